//! State of a connection: its flow and the messages that it sends. In safe Rust; the calls pass
//! data that they have read from C.

use std::ffi::c_int;
use std::net::{Ipv4Addr, SocketAddr};

use ::ccplane_datapath::{Command, Flow, Outcome, Signals, Transport, Update, VARS_MAX};
use ccplane_units::Time;
use ccplane_wire::{Updates, v1};

use super::layout::{ccp_datapath_info, ccp_primitives, code};
use super::shared::{CcpProgramTable, CcpPrograms};

/// Bytes of the longest report.
const REPORT_BYTES_MAX: usize = 16 + 8 * VARS_MAX;

/// Library state of a connection.
pub(crate) struct CcpConnection {
    flow: Flow<VARS_MAX>,
    /// Index of the table that holds its program, if it has one.
    table: usize,
    /// Set once CREATE was sent.
    pub announced: bool,
    /// Message buffer, taken while a message is being sent.
    buffer: Vec<u8>,
}

/// Result of an invocation.
pub(crate) struct InvocationResult {
    pub outcome: Outcome,
    /// Report, and the program that made it. Pass it to [`CcpConnection::sent`] afterwards.
    pub report: Option<(Vec<u8>, u32)>,
}

impl CcpConnection {
    pub fn new(now: Time, init_cwnd: u32) -> CcpConnection {
        CcpConnection {
            flow: Flow::new(now, u64::from(init_cwnd)),
            table: 0,
            announced: false,
            buffer: Vec::with_capacity(REPORT_BYTES_MAX),
        }
    }

    /// Returns the number of the connection's program.
    pub fn program(&self) -> Option<u32> {
        self.flow.program_uid()
    }

    pub fn faults(&self) -> u32 {
        self.flow.faults()
    }

    /// Runs the connection's program on the datapath's measurements.
    pub fn invoke(
        &mut self,
        now: Time,
        index: u16,
        prims: &ccp_primitives,
        shared: &CcpPrograms,
    ) -> Result<InvocationResult, c_int> {
        let program = self.flow.program_uid().ok_or(code::PROG_IS_NULL)?;
        let table = shared.table(self.table).ok_or(code::PROG_IS_NULL)?;
        let transport = Transport {
            cwnd: prims.snd_cwnd.into(),
            rate: prims.snd_rate,
            ssthresh: u64::MAX,
            now,
        };
        let outcome = self.flow.on_ack(&transport, &signals(prims), table);
        let mut report = None;
        if outcome.report.is_some() {
            let mut message = std::mem::take(&mut self.buffer);
            message.clear();
            // A report without fields would mean that the connection has ended. A report of this
            // size always fits.
            let fields = self.flow.report(table);
            if !fields.is_empty()
                && v1::measure(&mut message, index.into(), program, fields).is_ok()
            {
                report = Some((message, program));
            } else {
                self.buffer = message;
                self.flow.report_queued(table);
            }
        }
        Ok(InvocationResult { outcome, report })
    }

    /// Records that a report was sent. If sending failed, its values are kept and sent with the
    /// next report.
    pub fn on_report_sent(
        &mut self,
        (message, program): (Vec<u8>, u32),
        left: bool,
        shared: &CcpPrograms,
    ) {
        self.buffer = message;
        // The agent may already have responded with another program.
        if left
            && self.flow.program_uid() == Some(program)
            && let Some(table) = shared.table(self.table)
        {
            self.flow.report_queued(table);
        }
    }

    /// Sets program variables, window or rate, effective from the next invocation on.
    pub fn update_fields(
        &mut self,
        now: Time,
        updates: v1::RawUpdates<'_>,
        shared: &mut CcpPrograms,
    ) -> Result<(), c_int> {
        let program = self.flow.program_uid();
        let table = program.and_then(|_| shared.table(self.table));
        let applied = match table {
            Some(table) => decode(updates, program.and_then(|uid| table.get(uid)))
                .and_then(|updates| self.apply(now, &Command::Update(updates.as_slice()), table)),
            None => Err(code::UPDATE_INVALID_REG_TYPE),
        };
        applied.inspect_err(|_| shared.counts.updates += 1)
    }

    /// Sets the program together with its variables.
    pub fn change_program(
        &mut self,
        now: Time,
        uid: u32,
        updates: v1::RawUpdates<'_>,
        shared: &mut CcpPrograms,
    ) -> Result<(), c_int> {
        let place = shared.table_index(uid);
        let Some((place, table)) = place.and_then(|place| Some((place, shared.table(place)?)))
        else {
            shared.counts.unknown += 1;
            return Err(code::PROG_NOT_FOUND);
        };
        let applied = decode(updates, table.get(uid)).and_then(|updates| {
            let updates = updates.as_slice();
            self.apply(now, &Command::SetProgram { uid, updates }, table)
        });
        if applied.is_ok() {
            self.table = place;
        }
        applied.inspect_err(|_| shared.counts.updates += 1)
    }

    fn apply(
        &mut self,
        now: Time,
        command: &Command<'_>,
        table: &CcpProgramTable,
    ) -> Result<(), c_int> {
        self.flow
            .apply(now, command, table)
            .map_err(|_| code::UPDATE_INVALID_REG_TYPE)
    }
}

fn decode(
    updates: v1::RawUpdates<'_>,
    program: Option<&::ccplane_datapath::Program>,
) -> Result<Updates, c_int> {
    let read = |update: v1::RawUpdate| -> Result<Update, c_int> {
        update
            .decode(program)
            .map_err(|_| code::UPDATE_INVALID_REG_TYPE)
    };
    updates.iter().map(read).collect()
}

fn signals(prims: &ccp_primitives) -> Signals {
    Signals {
        bytes_acked: prims.bytes_acked.into(),
        bytes_misordered: prims.bytes_misordered.into(),
        ecn_bytes: prims.ecn_bytes.into(),
        ecn_packets: prims.ecn_packets.into(),
        lost_pkts_sample: prims.lost_pkts_sample.into(),
        packets_acked: prims.packets_acked.into(),
        packets_misordered: prims.packets_misordered.into(),
        bytes_in_flight: prims.bytes_in_flight.into(),
        bytes_pending: prims.bytes_pending.into(),
        packets_in_flight: prims.packets_in_flight.into(),
        rate_incoming: prims.rate_incoming,
        rate_outgoing: prims.rate_outgoing,
        rtt_sample_us: prims.rtt_sample_us,
        was_timeout: u64::from(prims.was_timeout != 0),
        ..Signals::default()
    }
}

/// Returns the CREATE message of a connection. The algorithm's name is truncated to the message's
/// field, and omitted if it is not UTF-8.
pub(crate) fn create(index: u16, info: &ccp_datapath_info) -> Vec<u8> {
    let name: Vec<u8> = info
        .congAlg
        .iter()
        .map(|c| *c as u8)
        .take_while(|c| *c != 0)
        .collect();
    let name = name.get(..v1::ALGORITHM_NAME_BYTES - 1).unwrap_or(&name);
    // The address has the caller's byte order. An invalid port is sent as 0.
    let address = |ip: u32, port: u32| {
        let ip = Ipv4Addr::from(ip.to_le_bytes());
        SocketAddr::new(ip.into(), u16::try_from(port).unwrap_or(0))
    };
    let create = v1::Create {
        init_cwnd: info.init_cwnd,
        mss: info.mss,
        source: address(info.src_ip, info.src_port),
        destination: address(info.dst_ip, info.dst_port),
        algorithm: std::str::from_utf8(name).unwrap_or_default(),
    };
    let mut message = Vec::with_capacity(v1::CREATE);
    // Cannot fail: the addresses are IPv4, and the name fits.
    let _ = v1::create(&mut message, index.into(), &create);
    message
}
