//! Connection of `ccplane send` over QUIC.

use std::net::SocketAddr;

use ccplane_link::identity::Fingerprint;
use ccplane_quic::host::{Native, QuicCongestion, QuicHost};
use ccplane_quic::{PlaneError, QuicPlane, Stack};
use serde_json::json;

use super::stream::Stream;
use super::{
    ConnectionSummary, SendArgs, SendConnection, acked_file_bytes, lost_failure, wildcard,
};
use crate::Registry;
use crate::contender::make;
use crate::escape::printable;
use crate::exit::{Failure, FailureKind};
use crate::steering::{ControlSource, SteerArgs};
use crate::transfer::host::TransferHost;
use crate::transfer::quic::{failed, flush, options};

/// Connection to the receiver.
pub(super) struct QuicConnection {
    host: QuicHost,
    id: u64,
    to: SocketAddr,
    stack: Stack,
    congestion: QuicCongestion,
}

impl QuicConnection {
    /// Starts a connection to `to`, which must have the fingerprint `trusted` if there is one.
    pub fn open(
        args: &SendArgs,
        stack: Stack,
        registry: &Registry,
        (to, trusted): (SocketAddr, Option<Fingerprint>),
    ) -> Result<QuicConnection, Failure> {
        let mut options = options(&args.transfer, stack, wildcard(to))?;
        options.congestion = congestion(stack, &args.steer, registry)?;
        // A plane enforces the operator's limits itself, on stacks that have none of their own.
        let is_steered = matches!(options.congestion, QuicCongestion::Steered(_));
        let max_rate = args.steer.max_rate;
        options.max_rate = max_rate.filter(|_| stack == Stack::Noq || !is_steered);
        let congestion = options.congestion.clone();
        let mut host = QuicHost::bind(options, trusted).map_err(failed)?;
        let id = host.connect(to).map_err(failed)?;
        Ok(QuicConnection {
            host,
            id,
            to,
            stack,
            congestion,
        })
    }
}

impl SendConnection for QuicConnection {
    fn host(&mut self) -> (&mut dyn TransferHost, u64) {
        (&mut self.host, self.id)
    }

    fn check(&mut self, stream: &Stream) -> Result<(), Failure> {
        let Some(why) = self.host.failure(self.id) else {
            return Ok(());
        };
        let why = printable(why);
        if self.is_connected() {
            let arrived = acked_file_bytes(self, stream);
            return Err(lost_failure(self.to, stream, arrived, &why));
        }
        let text = format!("no connection to {}: {why}", self.to);
        let hint = if why.contains("certificate") {
            "the fingerprint belongs to another receiver; use the command that this receiver prints"
        } else {
            "check that `ccplane recv --over quic` is running there and that the path carries UDP"
        };
        Err(Failure::text(FailureKind::Failed, text).hint(hint))
    }

    fn is_connected(&self) -> bool {
        self.host.is_connected(self.id)
    }

    fn accepted(&self, stream: &Stream) -> u64 {
        stream.read - stream.unwritten() as u64
    }

    fn awaits_receiver(&self, stream: &Stream) -> bool {
        // The stack ends a connection whose peer is silent, but not one that a peer keeps alive
        // during the handshake.
        !self.is_connected() || stream.is_complete() || stream.unwritten() > 0
    }

    fn close(self: Box<Self>, completed: bool, _bytes: u64) -> Result<ConnectionSummary, Failure> {
        let mut host = self.host;
        let stats = host.stats(self.id).unwrap_or_default();
        host.close(self.id, completed);
        flush(&mut host)?;
        // Ends the paths, so that the plane's counters are final.
        drop(host);
        let steered = match &self.congestion {
            QuicCongestion::Steered(plane) => Some(plane.stats()),
            QuicCongestion::Native(_) => None,
        };
        let mut lines = Vec::new();
        if let Some(steered) = steered.filter(|steered| steered.fallbacks > 0) {
            let count = steered.fallbacks;
            lines.push(format!(
                "the algorithm timed out {count} times, and NewReno took over"
            ));
        }
        let headers = if self.to.is_ipv4() { 28 } else { 48 };
        Ok(ConnectionSummary {
            mss: stats.mtu.into(),
            packet_bytes: u64::from(stats.mtu) + headers,
            retransmitted: stats.lost,
            lost: stats.lost,
            srtt: stats.srtt,
            min_rtt: None,
            cwnd: stats.cwnd,
            pacing_rate: stats.pacing_rate,
            losses: format!("{} of {} packets lost", stats.lost, stats.sent),
            json: json!({
                "stack": self.stack.name(), "version": "1",
                "reports": steered.map(|steered| steered.reports),
                "fallbacks": steered.map(|steered| steered.fallbacks),
            }),
            lines,
        })
    }
}

/// Returns the congestion control; starts the algorithm, or connects to a remote agent.
fn congestion(
    stack: Stack,
    steer: &SteerArgs,
    registry: &Registry,
) -> Result<QuicCongestion, Failure> {
    let mut limits = steer.limits()?;
    let plane = match steer.control_source(&mut limits)? {
        ControlSource::Native(name) => {
            let native = Native::by_name(stack, name)
                .map_err(|why| Failure::new(FailureKind::Usage, why))?;
            return Ok(QuicCongestion::Native(native));
        }
        ControlSource::Agent(address, name) => {
            QuicPlane::with_agent(stack, &address, &name, limits)
        }
        ControlSource::InProcess => {
            QuicPlane::in_process(stack, make(&steer.alg, registry)?, limits)
        }
    };
    plane.map(QuicCongestion::Steered).map_err(|why| {
        let kind = match why {
            PlaneError::Missing { .. } | PlaneError::Algorithm(_) => FailureKind::Usage,
            _ => FailureKind::Failed,
        };
        Failure::new(kind, why)
    })
}
