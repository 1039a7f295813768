//! Memory shared by the BPF object, its loader and the agent: `bpf/layout.h` in Rust.
//!
//! Fields that both sides access while traffic runs are atomic. A test compares the sizes with the
//! object's.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use crate::map::totals::BUCKET_COUNT;

/// `CCP_LAYOUT`, part of the path of all pinned objects, including timestamps, so that an agent
/// never maps memory of another layout.
pub const LAYOUT_VERSION: u32 = 9;
/// `CCP_PADS`: programs with generated code.
pub const PAD_COUNT: usize = 4;
/// `CCP_PROGRAMS`: programs in total.
pub const PROGRAMS_MAX: usize = 12;
/// `CCP_CODE`: instructions of an interpreted program.
pub const CODE_INSNS_MAX: usize = 384;
/// `CCP_SHARES`: entries for shares of network namespaces.
pub const SHARE_ENTRIES: usize = 1024;
/// `CCP_VARS`: variables of a program.
pub const PROGRAM_VARS_MAX: usize = 64;

/// `CTL_*`: bits of the lock of the control words.
pub const CTL_WRITING: u64 = 1;
pub const CTL_PENDING: u64 = 2;
pub const CTL_STEP: u64 = 4;
/// `CTL_SET_*`: control words that are set.
pub const CTL_SET_PROGRAM: u32 = 1;
pub const CTL_SET_CWND: u32 = 2;
pub const CTL_SET_RATE: u32 = 4;
pub const CTL_SET_SSTHRESH: u32 = 8;
pub const CTL_SET_MICROS: u32 = 16;
/// `CTL_RELEASE`: NewReno controls the flow until a program is set.
pub const CTL_RELEASE: u32 = 32;

/// `FLOW_LIVE`.
pub const FLOW_LIVE: u32 = 1;
/// `SHOW_FALLBACK`, `SHOW_OWNED`, `SHOW_STAMPED`.
pub const SHOW_FALLBACK: u32 = 1;
pub const SHOW_OWNED: u32 = 2;
pub const SHOW_STAMPED: u32 = 4;

/// `READER_*`.
pub const READER_RUNNING: u32 = 0;
pub const READER_POLLING: u32 = 1;
pub const READER_IDLE: u32 = 2;
pub const READER_ABSENT: u32 = 3;

/// `REC_*`.
pub const REC_OPEN: u16 = 1;
pub const REC_RESUME: u16 = 2;
pub const REC_REPORT: u16 = 3;
pub const REC_CLOSE: u16 = 4;
pub const REC_URGENT: u16 = 1;

/// Mirrors `struct ccp_control`.
#[repr(C)]
pub struct ControlWords {
    pub lock: AtomicU64,
    pub generation: AtomicU32,
    pub epoch: AtomicU32,
    pub program: AtomicU32,
    pub tag: AtomicU32,
    pub set: AtomicU32,
    unused: u32,
    pub cwnd: AtomicU64,
    pub rate: AtomicU64,
    pub ssthresh: AtomicU64,
    pub micros: AtomicU64,
    pub var_mask: AtomicU64,
    pub vars: [AtomicU64; PROGRAM_VARS_MAX],
    pad: [u64; 7],
}

/// Mirrors `struct ccp_shown`.
#[repr(C)]
pub struct FlowStatus {
    pub generation: AtomicU32,
    pub state: AtomicU32,
    pub flags: AtomicU32,
    pub epoch: AtomicU32,
    pub program: AtomicU32,
    pub tag: AtomicU32,
    pub mss: AtomicU32,
    pub init_cwnd: AtomicU32,
    pub family: AtomicU16,
    pub local_port: AtomicU16,
    pub peer_port: AtomicU16,
    pub ca_state: AtomicU16,
    pub srtt_us: AtomicU32,
    pub local: [AtomicU8; 16],
    pub peer: [AtomicU8; 16],
    pub opened_us: AtomicU64,
    pub cwnd: AtomicU64,
    pub ssthresh: AtomicU64,
    pub rate: AtomicU64,
    pub acked: AtomicU64,
    pub lost: AtomicU64,
    pub reports: AtomicU64,
    pub faults: AtomicU64,
    pub fallbacks: AtomicU64,
    pub fallback_us: AtomicU64,
    pub last_us: AtomicU64,
    pub delivered_rate: AtomicU64,
    pub retransmits: AtomicU64,
    pad: [u64; 2],
}

/// Mirrors `struct ccp_slot`.
#[repr(C)]
pub struct FlowSlot {
    pub control: ControlWords,
    pub status: FlowStatus,
}

/// Mirrors `struct ccp_counters`.
#[repr(C)]
pub struct CpuCounters {
    pub flows: AtomicU64,
    pub reports: AtomicU64,
    pub ring_lost: AtomicU64,
    pub fallbacks: AtomicU64,
    pub faults: AtomicU64,
    pub table_full: AtomicU64,
    pub closed: AtomicU64,
    pub close_lost: AtomicU64,
    pub stamps: AtomicU64,
    pub stamps_dropped: AtomicU64,
    pub share_full: AtomicU64,
    unused: [u64; 5],
}

/// Mirrors `struct ccp_plane`.
#[repr(C)]
pub struct PlaneLayout {
    pub heartbeat_ns: AtomicU64,
    pub fallback_after_ns: AtomicU64,
    pub min_cwnd: AtomicU64,
    pub max_cwnd: AtomicU64,
    pub max_rate: AtomicU64,
    pub start_us: AtomicU64,
    pub slots: AtomicU32,
    pub agent: AtomicU32,
    pub reader: AtomicU32,
    pub fresh: AtomicU32,
    pub timed: AtomicU32,
    pub guests: AtomicU32,
    /// Encoded by [`open_own`].
    pub own: AtomicU64,
    /// Cookie of the agent's network namespace.
    pub home: AtomicU64,
    pad: [u64; 4],
    pub counters: [CpuCounters; 64],
    pub ended: [CpuTotals; 64],
    pub shares: [AtomicU32; SHARE_ENTRIES],
}

/// Encodes `ccp_plane.own` (`OWN_*`): the standalone program at index `place`.
pub fn encode_standalone(tag: u32, place: usize, begun: Option<u8>, paces: bool) -> u64 {
    let begun = begun.map_or(0, |variable| u64::from(variable) + 1);
    u64::from(tag) << 32 | u64::from(paces) << 16 | begun << 8 | (place as u64 & 0xff)
}

/// Mirrors `struct ccp_totals`.
#[repr(C)]
pub struct CpuTotals {
    pub acked: AtomicU64,
    pub retransmits: AtomicU64,
    pub lost: AtomicU64,
    pub rtt_sum: AtomicU64,
    pub rate_sum: AtomicU64,
    pub rtt: [AtomicU64; BUCKET_COUNT],
    pub rate: [AtomicU64; BUCKET_COUNT],
    unused: [u64; 3],
}

/// Mirrors `struct ccp_program`, with the code as words.
#[repr(C)]
pub struct ProgramSlot {
    pub tag: AtomicU32,
    pub code_len: AtomicU32,
    pub report_vars: AtomicU32,
    unused: u32,
    pub volatiles: AtomicU64,
    pub init: [AtomicU64; PROGRAM_VARS_MAX],
    pub code: [[AtomicU64; 2]; CODE_INSNS_MAX],
}

/// Mirrors `struct ccp_record`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ReportRecord {
    pub kind: u16,
    pub flags: u16,
    pub slot: u32,
    pub generation: u32,
    pub epoch: u32,
    pub program: u32,
    pub tag: u32,
    pub time_us: u64,
}

/// Size of a [`ReportRecord`] in 64-bit words.
pub const RECORD_WORDS: usize = size_of::<ReportRecord>() / 8;

impl ReportRecord {
    /// Splits words into the header of a record and its payload. `None` if they are too short,
    /// which no object of this layout sends.
    pub fn split(words: &[u64]) -> Option<(ReportRecord, &[u64])> {
        let (&[a, b, c, time_us], rest) = words.split_first_chunk::<RECORD_WORDS>()?;
        let record = ReportRecord {
            kind: a as u16,
            flags: (a >> 16) as u16,
            slot: (a >> 32) as u32,
            generation: b as u32,
            epoch: (b >> 32) as u32,
            program: c as u32,
            tag: (c >> 32) as u32,
            time_us,
        };
        Some((record, rest))
    }
}

/// Word offsets in the payload of `REC_CLOSE`: `struct ccp_closing` without its header.
pub mod closing {
    pub const OPENED_US: usize = 0;
    pub const BYTES_ACKED: usize = 1;
    pub const PACKETS_LOST: usize = 2;
    pub const REPORT_COUNT: usize = 3;
}

/// Byte offsets in the object's `struct tcp_congestion_ops` of the members that the loader sets.
pub mod ops {
    /// `name[16]`
    pub const NAME_RANGE: std::ops::Range<usize> = 40..56;
    /// `flags`
    pub const FLAGS_RANGE: std::ops::Range<usize> = 56..60;
    /// `in_ack_event`
    pub const IN_ACK_EVENT_RANGE: std::ops::Range<usize> = 80..88;
    /// Size of the object's own definition.
    pub const OPS_BYTES: usize = 88;
    /// `TCP_CONG_NON_RESTRICTED`: processes without CAP_NET_ADMIN may select it.
    pub const TCP_CONG_NON_RESTRICTED: u32 = 1;
    /// `TCP_CONG_NEEDS_ECN`: connections negotiate ECN.
    pub const TCP_CONG_NEEDS_ECN: u32 = 2;
}

#[cfg(test)]
mod tests {
    use super::*;
    use libbpf_rs::ObjectBuilder;

    /// Compares the sizes with the object's own type information.
    #[test]
    fn the_object_has_this_layout() {
        let object = include_bytes!("../../bpf/prebuilt/ccplane.bpf.o");
        let open = ObjectBuilder::default()
            .open_memory(object)
            .expect("it is an object");
        let mut seen = 0;
        for map in open.maps() {
            let size = match map.name().to_str() {
                Some("table") => size_of::<FlowSlot>(),
                Some("programs") => size_of::<ProgramSlot>(),
                Some(".data.plane") => size_of::<PlaneLayout>(),
                Some("ccplane_ops" | "ccplane_ops_2") => ops::OPS_BYTES,
                _ => continue,
            };
            assert_eq!(map.value_size() as usize, size, "{:?}", map.name());
            seen += 1;
        }
        assert_eq!(seen, 5);
    }

    #[test]
    fn a_record_is_read_as_it_is_written() {
        let words = [
            u64::from(REC_REPORT) | u64::from(REC_URGENT) << 16 | 5 << 32,
            7 | 8 << 32,
            9 | 10 << 32,
            11,
            12,
        ];
        let (record, rest) = ReportRecord::split(&words).expect("long enough");
        assert_eq!(
            (record.kind, record.flags, record.slot),
            (REC_REPORT, REC_URGENT, 5)
        );
        assert_eq!((record.generation, record.epoch), (7, 8));
        assert_eq!((record.program, record.tag, record.time_us), (9, 10, 11));
        assert_eq!(rest, [12]);
        assert!(ReportRecord::split(&words[..3]).is_none());
    }
}
