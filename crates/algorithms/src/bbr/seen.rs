//! The fields of a report.

/// More than any count of bytes, µs or rounds: sums of what a broken datapath reports do not
/// overflow.
const MOST: u64 = 1 << 60;

/// The fields that both versions report, in the order of the program's declarations.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// Greatest delivery rate since the last report, bytes/s; 0 where the application limited all
    /// samples.
    pub bw: u64,
    /// Least RTT since the last report, µs; infinity without a sample.
    pub rtt: u64,
    /// Packet-timed rounds so far.
    pub rounds: u64,
    /// Bytes delivered so far, in order or not.
    pub delivered: u64,
    /// Bytes marked lost so far.
    pub lost: u64,
    /// Most bytes by which ACKs ran ahead of the bandwidth since the last report.
    pub extra: u64,
    /// Since the last report.
    pub events: Events,
    /// The datapath's clock, µs.
    pub now: u64,
    /// Bytes in flight when the last ACK came.
    pub flight: u64,
    /// The window in force, or that after the repair under way, bytes.
    pub window: u64,
    /// What version 3 reports beyond that.
    pub losses: Losses,
}

/// The rounds of losses of version 3.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Losses {
    /// Rounds, from a first loss or mark on, that are over.
    pub rounds: u64,
    /// Greatest delivery rate since the last report, whoever limited it, bytes/s.
    pub bw: u64,
    /// Greatest volume delivered in a round trip since the last report, bytes.
    pub volume: u64,
    /// Bytes that arrived with an ECN mark so far.
    pub marked: u64,
}

/// Counts, a byte of the report's field each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Events(pub u64);

impl Events {
    /// Retransmission timeouts.
    pub const TIMEOUT: u64 = 1;
    /// Reductions that proved spurious.
    pub const UNDO: u64 = 1 << 8;
    /// The queue was drained.
    pub const DRAINED: u64 = 1 << 16;
    /// Nothing was left to send or to wait for.
    pub const IDLE: u64 = 1 << 24;
    /// A precautionary probe came to its bound.
    pub const STOPPED: u64 = 1 << 32;
    /// The application limited a delivery-rate sample; set, not counted.
    pub const LIMITED: u64 = 1 << 40;

    pub fn has(self, event: u64) -> bool {
        (self.0 / event) & 0xff != 0
    }
}

impl Seen {
    /// Reads a report of version 1 or 3; `None` for anything else.
    pub fn read(fields: &[u64]) -> Option<Seen> {
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
        ] = common.map(|value| value.min(MOST));
        let losses = match *more {
            [] => Losses::default(),
            [rounds, bw, volume, marked] => Losses {
                rounds: rounds.min(MOST),
                bw: bw.min(MOST),
                volume: volume.min(MOST),
                marked: marked.min(MOST),
            },
            _ => return None,
        };
        Some(Seen {
            bw,
            rtt,
            rounds,
            delivered,
            lost,
            extra,
            events: Events(events),
            now,
            flight,
            window,
            losses,
        })
    }
}
