//! Fields of a report.

/// Upper bound of counts of bytes, µs and rounds, so that sums of a faulty datapath's values do not
/// overflow.
const COUNT_MAX: u64 = 1 << 60;

/// Fields that both versions report, in the order of the program's declarations.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BbrReport {
    /// Maximum delivery rate since the last report, bytes/s; 0 if all samples were
    /// application-limited.
    pub bw: u64,
    /// Minimum RTT since the last report, µs; infinity without a sample.
    pub rtt: u64,
    /// Packet-timed rounds so far.
    pub rounds: u64,
    /// Bytes delivered so far, in order or not.
    pub delivered: u64,
    /// Bytes marked lost so far.
    pub lost: u64,
    /// Maximum excess of ACKs over the bandwidth since the last report, bytes.
    pub extra_acked: u64,
    /// Events since the last report.
    pub events: ReportEvents,
    /// Clock of the datapath, µs.
    pub now_us: u64,
    /// Bytes in flight at the last ACK.
    pub inflight: u64,
    /// Current window, or the window after the recovery in progress, bytes.
    pub cwnd: u64,
    /// Additional fields of version 3.
    pub losses: LossRounds,
}

/// Loss rounds of version 3.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossRounds {
    /// Completed rounds that started with a first loss or mark.
    pub rounds: u64,
    /// Maximum delivery rate since the last report, including application-limited samples, bytes/s.
    pub bw_latest: u64,
    /// Maximum volume delivered in a round trip since the last report, bytes.
    pub inflight_latest: u64,
    /// Bytes delivered with a CE mark so far.
    pub ce_marked: u64,
}

/// Event counters, one byte of the report's field each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReportEvents(pub u64);

impl ReportEvents {
    /// Retransmission timeouts.
    pub const TIMEOUT: u64 = 1;
    /// Reductions found to be spurious.
    pub const UNDO: u64 = 1 << 8;
    /// Detections of a drained queue.
    pub const QUEUE_DRAINED: u64 = 1 << 16;
    /// Periods with nothing to send or in flight.
    pub const IDLE: u64 = 1 << 24;
    /// Precautionary probes that reached their bound.
    pub const PROBE_STOPPED: u64 = 1 << 32;
    /// Application-limited delivery rate samples; a flag instead of a counter.
    pub const APP_LIMITED: u64 = 1 << 40;

    pub fn has(self, event: u64) -> bool {
        (self.0 / event) & 0xff != 0
    }
}

impl BbrReport {
    /// Parses a report of version 1 or 3; `None` for any other length.
    pub fn read(fields: &[u64]) -> Option<BbrReport> {
        let (common, more) = fields.split_first_chunk::<10>()?;
        let [
            bw,
            rtt,
            rounds,
            delivered,
            lost,
            extra,
            events,
            now,
            flight,
            window,
        ] = common.map(|value| value.min(COUNT_MAX));
        let losses = match *more {
            [] => LossRounds::default(),
            [rounds, bw, volume, marked] => LossRounds {
                rounds: rounds.min(COUNT_MAX),
                bw_latest: bw.min(COUNT_MAX),
                inflight_latest: volume.min(COUNT_MAX),
                ce_marked: marked.min(COUNT_MAX),
            },
            _ => return None,
        };
        Some(BbrReport {
            bw,
            rtt,
            rounds,
            delivered,
            lost,
            extra_acked: extra,
            events: ReportEvents(events),
            now_us: now,
            inflight: flight,
            cwnd: window,
            losses,
        })
    }
}
