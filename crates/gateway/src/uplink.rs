//! The site's uplink: limits the sum of all peers' rates and shares it equally among the peers that
//! have packets.
//!
//! A [`Line`] at the uplink rate follows all sendboxes. While it is busy, packets wait in their own
//! sendbox, where they are scheduled by class. When it is free, deficit round robin (Shreedhar and
//! Varghese, SIGCOMM 1995) selects the peer. It counts bytes, so small packets are no disadvantage,
//! and capacity that a peer cannot use because of its own rate limit goes to the others.

use ccplane_qdisc::{Line, LineSpec};
use ccplane_units::{Duration, Rate, Time};

use ccplane_bundle::CATCH_UP_TIME_MAX;

/// Duration of a turn at the uplink rate; a turn is at least one full packet. Longer turns delay
/// the other peers; shorter turns send fewer packets per system call.
const TURN_DURATION: Duration = Duration::from_millis(1);

/// The uplink. Without a rate it admits every packet.
pub(crate) struct Uplink {
    line: Option<Line>,
    /// Bytes added to a peer's credit per turn (the DRR quantum).
    quantum: i64,
    /// Peer whose turn it is, and whether its turn has started.
    current_peer: u32,
    turn_started: bool,
    /// True if packets were waiting when the line became free. The line then counts as busy since
    /// that time, because only the wake-up of the thread was late.
    late: bool,
}

/// Uplink state of one peer.
#[derive(Debug, Default)]
pub(crate) struct Share {
    /// Bytes the peer may send in its turn (the DRR deficit counter); negative after an overdraft.
    deficit: i64,
    /// Total bytes of the peer that have been charged; `None` before the first call.
    charged_bytes: Option<u64>,
    /// True if the peer has packets that wait for the line or for its turn.
    pub held: bool,
}

impl Uplink {
    /// Creates the uplink. `largest`: bytes of a full packet.
    pub fn new(now: Time, rate: Option<Rate>, largest: u32) -> Uplink {
        let turn = rate.map_or(0, |rate| rate.bytes_in(TURN_DURATION).get());
        Uplink {
            line: rate.map(|rate| Line::new(&LineSpec::Constant(rate), now)),
            quantum: i64::try_from(turn).unwrap_or(i64::MAX).max(largest.into()),
            current_peer: 0,
            turn_started: false,
            late: false,
        }
    }

    /// Starts a round and returns the peer whose turn it is, which is served first. `late`: some
    /// peers were held.
    pub fn start_round(&mut self, late: bool) -> u32 {
        self.late = late;
        self.current_peer
    }

    /// Starts the service of a peer, which has sent `left` bytes in total.
    pub fn begin_service(&mut self, now: Time, peer: u32, share: &mut Share, sent_bytes: u64) {
        // Feedback, sent by the receiving thread, is never held but is charged here.
        self.charge(now, share, sent_bytes);
        if self.is_free(now) && (self.current_peer != peer || !self.turn_started) {
            (self.current_peer, self.turn_started) = (peer, true);
            share.deficit = share.deficit.saturating_add(self.quantum);
        }
    }

    /// Returns whether a packet of the peer being served may be sent.
    pub fn can_send(&self, now: Time, share: &Share) -> bool {
        self.line.is_none() || self.is_free(now) && share.deficit > 0
    }

    /// Charges the peer for its packets; `left` is the total sent by both threads, bytes.
    pub fn charge(&mut self, now: Time, share: &mut Share, sent_bytes: u64) {
        let bytes = sent_bytes.saturating_sub(
            share
                .charged_bytes
                .replace(sent_bytes)
                .unwrap_or(sent_bytes),
        );
        let Some(line) = self.line.as_mut().filter(|_| bytes > 0) else {
            return;
        };
        share.deficit = share.deficit.saturating_sub_unsigned(bytes);
        let since = if self.late {
            now - CATCH_UP_TIME_MAX
        } else {
            now
        };
        line.send(
            line.next_start(since),
            u32::try_from(bytes).unwrap_or(u32::MAX),
        );
    }

    /// Ends the service of a peer. `more`: it has packets that are due now.
    pub fn end_service(&mut self, peer: u32, share: &mut Share, more: bool) {
        share.held = more;
        let goes_on = more && share.deficit > 0;
        if self.turn_started && self.current_peer == peer && !goes_on {
            // Unused credit expires; an overdraft does not.
            share.deficit = share.deficit.min(0);
            (self.current_peer, self.turn_started) = (peer + 1, false);
        }
    }

    /// Returns the time at which the line becomes free.
    pub fn free_at(&self) -> Time {
        self.line
            .as_ref()
            .map_or(Time::ZERO, |line| line.next_start(Time::ZERO))
    }

    fn is_free(&self, now: Time) -> bool {
        self.free_at() <= now
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 12 Mbit/s, or one packet of 1,500 bytes per millisecond.
    const RATE: Rate = Rate::from_bytes_per_sec(1_500_000);
    const PACKET_BYTES_MAX: u32 = 1_500;

    /// A peer with packets of `bytes` bytes, sent at most once per `every`; one is due at the
    /// start.
    struct Peer {
        share: Share,
        bytes: u64,
        every: Duration,
        next: Time,
        left: u64,
    }

    impl Peer {
        fn new(bytes: u64, every_us: u64) -> Peer {
            Peer {
                share: Share::default(),
                bytes,
                every: Duration::from_micros(every_us),
                next: Time::ZERO,
                left: 0,
            }
        }
    }

    /// Serves the peers as the gateway does, with wake-ups that are `late` µs late in turn. Returns
    /// the bytes sent at each time.
    fn run(peers: &mut [Peer], rate: Rate, late: &[u64], time: Duration) -> Vec<(Time, u64)> {
        let mut uplink = Uplink::new(Time::ZERO, Some(rate), PACKET_BYTES_MAX);
        let (mut now, mut sent, mut step) = (Time::ZERO, Vec::new(), 0);
        while now < Time::ZERO + time {
            let first = uplink.start_round(peers.iter().any(|peer| peer.share.held)) as usize;
            let count = peers.len();
            let mut due = Time::MAX;
            for place in (0..count).map(|n| (first + n) % count) {
                let peer = &mut peers[place];
                uplink.begin_service(now, place as u32, &mut peer.share, peer.left);
                let mut packets = 0;
                while peer.next <= now && packets < 64 && uplink.can_send(now, &peer.share) {
                    peer.next = peer.next.max(now - CATCH_UP_TIME_MAX) + peer.every;
                    peer.left += peer.bytes;
                    sent.push((now, peer.bytes));
                    uplink.charge(now, &mut peer.share, peer.left);
                    packets += 1;
                }
                uplink.end_service(place as u32, &mut peer.share, peer.next <= now);
                due = due.min(if peer.share.held {
                    uplink.free_at()
                } else {
                    peer.next
                });
            }
            // Deadlines that have passed are served without sleeping.
            if due > now {
                now = due + Duration::from_micros(late[step % late.len()]);
                step += 1;
            }
        }
        sent
    }

    fn parts(peers: &[Peer]) -> Vec<f64> {
        let all: u64 = peers.iter().map(|peer| peer.left).sum();
        peers
            .iter()
            .map(|peer| peer.left as f64 / all as f64)
            .collect()
    }

    #[test]
    fn shares_are_equal_for_any_packet_size_and_smaller_demands_are_met() {
        let second = Duration::from_secs(1);
        // Both peers are backlogged.
        let mut peers = [Peer::new(1_500, 1), Peer::new(100, 1)];
        run(&mut peers, RATE, &[0], second);
        assert!((parts(&peers)[0] - 0.5).abs() < 0.01, "{:?}", parts(&peers));
        // One peer sends 1.2 of the 12 Mbit/s; two share the rest.
        let mut peers = [
            Peer::new(1_500, 10_000),
            Peer::new(1_500, 1),
            Peer::new(700, 1),
        ];
        run(&mut peers, RATE, &[100], second);
        let parts = parts(&peers);
        assert!(
            (parts[0] - 0.1).abs() < 0.01 && (parts[1] - 0.45).abs() < 0.01,
            "{parts:?}"
        );
    }

    #[test]
    fn the_uplink_stays_busy_despite_late_wakeups() {
        for late in [&[0][..], &[3_000, 50, 900], &[15_000]] {
            let mut peers = [Peer::new(1_500, 1), Peer::new(1_500, 1)];
            run(&mut peers, RATE, late, Duration::from_secs(2));
            let all: u64 = peers.iter().map(|peer| peer.left).sum();
            assert!(
                (2_950_000..=3_000_000 + 30_000).contains(&all),
                "{late:?}: {all}"
            );
        }
    }

    #[test]
    fn idle_time_accumulates_no_credit() {
        let mut uplink = Uplink::new(Time::ZERO, Some(RATE), PACKET_BYTES_MAX);
        let mut share = Share::default();
        let now = Time::ZERO + Duration::from_secs(10);
        uplink.start_round(false);
        uplink.begin_service(now, 0, &mut share, 0);
        assert!(uplink.can_send(now, &share));
        uplink.charge(now, &mut share, 1_500);
        assert!(!uplink.can_send(now, &share), "a packet a millisecond");
        assert_eq!(uplink.free_at(), now + Duration::from_millis(1));
        // Packets of the receiving thread count too.
        uplink.charge(now, &mut share, 3_000);
        assert_eq!(uplink.free_at(), now + Duration::from_millis(2));
        // Without a rate nothing is held.
        let free = Uplink::new(now, None, PACKET_BYTES_MAX);
        assert!(free.can_send(now, &share) && free.free_at() == Time::ZERO);
    }

    proptest! {
        /// In any interval, the bytes sent are at most the rate times the interval plus
        /// `CATCH_UP_TIME_MAX`, and one packet.
        #[test]
        fn the_rate_is_never_exceeded(
            peers in proptest::collection::vec((60..=1_500_u64, 1..20_000_u64), 1..6),
            late in proptest::collection::vec(0..30_000_u64, 1..8),
            rate in 125_000..2_500_000_u64,
        ) {
            let mut peers: Vec<Peer> = peers
                .into_iter()
                .map(|(bytes, every)| Peer::new(bytes, every))
                .collect();
            let sent = run(
                &mut peers,
                Rate::from_bytes_per_sec(rate),
                &late,
                Duration::from_millis(300),
            );
            for (from, (begins, _)) in sent.iter().enumerate() {
                let mut bytes = 0;
                for (ends, more) in &sent[from..] {
                    bytes += more;
                    let bytes_max = Rate::from_bytes_per_sec(rate)
                        .bytes_in(ends.since(*begins) + CATCH_UP_TIME_MAX)
                        .get();
                    prop_assert!(
                        bytes <= bytes_max + u64::from(PACKET_BYTES_MAX),
                        "{} > {}",
                        bytes,
                        bytes_max
                    );
                }
            }
        }
    }
}
