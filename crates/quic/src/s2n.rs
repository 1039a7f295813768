//! s2n-quic's hook: `Server::builder().with_congestion_controller(plane.s2n()?)?`.
//!
//! For an ACK it reports the losses that it reveals, packet by packet, then the number of CE marks,
//! then the newest acknowledged packet and the number of bytes; the newest outstanding packets are
//! assumed to be the acknowledged ones. Losses detected by a timer have no end-of-event call, so
//! the control is called with the next packet that is sent or acknowledged. s2n-quic does not pace;
//! it asks for the earliest departure time of the next packet.
#![expect(
    clippy::disallowed_methods,
    reason = "s2n-quic's time has no epoch, so each path reads the clock to set one"
)]

use std::time::Instant;

use ccplane_units::{Bytes, Duration, Rate, Time};
use s2n_quic::provider::congestion_controller::{
    CongestionController, Endpoint, PathInfo, Publisher, RandomGenerator, RttEstimator, Timestamp,
};

use crate::{PlaneError, QuicPath, QuicPlane, Stack, SteeredPath};

/// Longest pacing delay of a packet, as in ccplane's transport. The rate may be raised while a
/// packet waits, and delays already computed are not updated. A longer limit stalls a path after a
/// momentarily low rate; a shorter one exceeds rates below one packet per second.
const PACING_DELAY_MAX: Duration = Duration::from_secs(1);

/// Smallest RTT at which packets are paced if the control sets no rate. Below it, a timer would
/// take longer than a round trip.
const PACED_RTT_MIN: Duration = Duration::from_millis(2);

impl QuicPlane {
    /// Returns an endpoint for s2n-quic that creates a controller for each path of each connection.
    pub fn s2n(&self) -> Result<impl Endpoint + use<>, PlaneError> {
        self.check_stack(Stack::S2n)?;
        Ok(S2n(self.clone()))
    }
}

#[derive(Debug)]
struct S2n(QuicPlane);

impl Endpoint for S2n {
    type CongestionController = S2nController;

    fn new_congestion_controller(&mut self, info: PathInfo<'_>) -> S2nController {
        let now = Instant::now();
        S2nController {
            path: S2nPath::new(SteeredPath::new(&self.0, now, info.max_datagram_size)),
            clock: None,
        }
    }
}

/// Controller of one path.
#[derive(Clone, Debug)]
struct S2nController {
    path: S2nPath,
    /// A time of s2n-quic's clock with the corresponding time of the plane's.
    clock: Option<(Timestamp, Time)>,
}

impl S2nController {
    fn time(&mut self, at: Timestamp) -> Time {
        let steered = &self.path.steered;
        let (stamp, time) = *self
            .clock
            .get_or_insert_with(|| (at, steered.time(Instant::now())));
        time + at.saturating_duration_since(stamp).into()
    }
}

impl CongestionController for S2nController {
    type PacketInfo = S2nPacket;

    fn congestion_window(&self) -> u32 {
        saturate(self.path.path().window())
    }

    fn bytes_in_flight(&self) -> u32 {
        saturate(self.path.in_flight)
    }

    fn is_congestion_limited(&self) -> bool {
        self.congestion_window()
            .saturating_sub(self.bytes_in_flight())
            < saturate(self.path.path().mss())
    }

    /// One packet may be retransmitted at once after a loss, before the window is reduced (RFC
    /// 9002, section 7.3.2).
    fn requires_fast_retransmission(&self) -> bool {
        self.path.event_pending && !self.path.path().in_recovery()
    }

    fn on_packet_sent<Pub: Publisher>(
        &mut self,
        time_sent: Timestamp,
        sent_bytes: usize,
        app_limited: Option<bool>,
        _rtt: &RttEstimator,
        _publisher: &mut Pub,
    ) -> S2nPacket {
        let now = self.time(time_sent);
        self.path.on_sent(now, sent_bytes as u64, app_limited)
    }

    fn on_rtt_update<Pub: Publisher>(
        &mut self,
        _: Timestamp,
        _: Timestamp,
        _: &RttEstimator,
        _: &mut Pub,
    ) {
    }

    fn on_ack<Pub: Publisher>(
        &mut self,
        _newest_acked_time_sent: Timestamp,
        bytes_acknowledged: usize,
        newest_acked_packet_info: S2nPacket,
        _rtt: &RttEstimator,
        _random: &mut dyn RandomGenerator,
        ack_receive_time: Timestamp,
        _publisher: &mut Pub,
    ) {
        let now = self.time(ack_receive_time);
        self.path
            .on_acked(now, newest_acked_packet_info, bytes_acknowledged as u64);
    }

    fn on_packet_lost<Pub: Publisher>(
        &mut self,
        lost_bytes: u32,
        packet_info: S2nPacket,
        persistent_congestion: bool,
        _new_loss_burst: bool,
        _random: &mut dyn RandomGenerator,
        timestamp: Timestamp,
        _publisher: &mut Pub,
    ) {
        let now = self.time(timestamp);
        self.path
            .on_lost(now, packet_info, lost_bytes.into(), persistent_congestion);
    }

    fn on_explicit_congestion<Pub: Publisher>(
        &mut self,
        ce_count: u64,
        _event_time: Timestamp,
        _publisher: &mut Pub,
    ) {
        self.path.on_ce_marks(ce_count);
    }

    fn on_mtu_update<Pub: Publisher>(&mut self, max_data_size: u16, _publisher: &mut Pub) {
        self.path.on_mtu_update(max_data_size);
    }

    fn on_packet_discarded<Pub: Publisher>(&mut self, bytes_sent: usize, _publisher: &mut Pub) {
        self.path.on_discarded(bytes_sent as u64);
    }

    fn earliest_departure_time(&self) -> Option<Timestamp> {
        let (stamp, time) = self.clock?;
        let next = self.path.next_departure()?;
        Some(stamp + next.since(time).to_std())
    }

    fn send_quantum(&self) -> Option<usize> {
        let quantum = self.path.path().send_quantum_at(self.path.rate()?);
        usize::try_from(quantum).ok()
    }
}

/// Packet information that s2n-quic stores for the controller: our packet number and the send time.
#[derive(Clone, Copy, Debug, Default)]
struct S2nPacket {
    number: u64,
    sent_at: Time,
}

/// One path as reported by s2n-quic.
#[derive(Debug)]
struct S2nPath {
    steered: SteeredPath,
    /// Newest packet that takes part in congestion control.
    newest: S2nPacket,
    /// Bytes in flight as counted by s2n-quic, including MTU probes.
    in_flight: u64,
    /// Acknowledged bytes not attributed to packets yet; negative if the attributed packets were
    /// larger.
    unattributed_bytes: i64,
    /// Size of the MTU probe in flight, and of probes that arrived but whose ACK was not reported
    /// yet.
    probe_bytes: Option<u64>,
    acked_probe_bytes: u64,
    /// Set if losses or marks were reported without an end of the event.
    event_pending: bool,
    app_limited: bool,
    /// Time by which all sent packets would have departed at the pacing rate.
    last_departure: Time,
}

impl Clone for S2nPath {
    /// Returns the path after a migration: a flow of its own, with nothing in flight.
    fn clone(&self) -> S2nPath {
        S2nPath::new(self.steered.migrate())
    }
}

impl S2nPath {
    fn new(steered: SteeredPath) -> S2nPath {
        S2nPath {
            steered,
            newest: S2nPacket::default(),
            in_flight: 0,
            unattributed_bytes: 0,
            probe_bytes: None,
            acked_probe_bytes: 0,
            event_pending: false,
            app_limited: false,
            last_departure: Time::ZERO,
        }
    }

    fn path(&self) -> &QuicPath {
        self.steered.path()
    }

    fn on_sent(&mut self, now: Time, bytes: u64, app_limited: Option<bool>) -> S2nPacket {
        if self.event_pending {
            self.finish_event(now);
        }
        self.app_limited = app_limited.unwrap_or(false);
        // ACK-only packet.
        if bytes == 0 {
            return self.newest;
        }
        self.in_flight += bytes;
        if let Some(rate) = self.rate() {
            self.last_departure = self.last_departure.max(now) + pacing_delay(rate, bytes);
        }
        if bytes > self.path().mss() {
            self.probe_bytes = Some(bytes);
            return self.newest;
        }
        self.newest = S2nPacket {
            number: self.newest.number + 1,
            sent_at: now,
        };
        let size = u16::try_from(bytes).unwrap_or(u16::MAX);
        self.steered
            .path_mut()
            .on_sent(now, self.newest.number, size);
        self.newest
    }

    fn on_acked(&mut self, now: Time, newest: S2nPacket, bytes: u64) {
        self.subtract_in_flight(bytes);
        let probed = std::mem::take(&mut self.acked_probe_bytes).min(bytes);
        let told = i64::try_from(bytes - probed).unwrap_or(i64::MAX);
        let path = self.steered.path_mut();
        self.unattributed_bytes = path.on_acked_up_to(
            now,
            newest.number,
            newest.sent_at,
            self.unattributed_bytes.saturating_add(told),
        );
        self.steered.open(now);
        self.finish_event(now);
    }

    fn on_lost(&mut self, now: Time, packet: S2nPacket, bytes: u64, persistent: bool) {
        self.subtract_in_flight(bytes);
        let path = self.steered.path_mut();
        path.on_lost_up_to(now, packet.number, packet.sent_at);
        if persistent {
            path.on_persistent_congestion();
        }
        self.event_pending = true;
    }

    fn on_ce_marks(&mut self, packets: u64) {
        let path = self.steered.path_mut();
        path.on_ce_marks(saturate(packets), packets.saturating_mul(path.mss()));
        self.event_pending = true;
    }

    fn on_mtu_update(&mut self, mss: u16) {
        if let Some(probe) = self.probe_bytes.take_if(|probe| *probe <= mss.into()) {
            self.acked_probe_bytes += probe;
        }
        self.steered.path_mut().set_mss(mss);
    }

    /// Handles a lost MTU probe, or packets dropped with the handshake keys.
    fn on_discarded(&mut self, bytes: u64) {
        self.subtract_in_flight(bytes);
        if self.probe_bytes.take_if(|probe| *probe == bytes).is_none() {
            self.steered.path_mut().on_discarded(bytes);
        }
    }

    fn finish_event(&mut self, now: Time) {
        self.event_pending = false;
        self.steered.finish_event(now, self.app_limited);
    }

    fn subtract_in_flight(&mut self, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
    }

    /// Returns the pacing rate. If the control sets none: two windows per smoothed RTT in slow
    /// start and 1.25 after, like s2n-quic's own controllers (RFC 9002, section 7.7: slightly above
    /// one, so that pacing does not leave the window unused).
    fn rate(&self) -> Option<Rate> {
        let path = self.path();
        if let Some(ordered) = path.pacing_rate() {
            return Some(ordered);
        }
        let srtt = path.srtt();
        if srtt < PACED_RTT_MIN {
            return None;
        }
        let window = path.window();
        let ahead = if window < path.ssthresh() {
            window
        } else {
            window / 4
        };
        Some(Rate::from_bytes_over(Bytes::new(window + ahead), srtt))
    }

    /// Returns the earliest departure time of the next packet, so that at most one quantum leaves
    /// in a burst.
    fn next_departure(&self) -> Option<Time> {
        let (rate, path) = (self.rate()?, self.path());
        // The next packet completes the quantum.
        let ahead = path.send_quantum_at(rate) - path.mss();
        Some(self.last_departure - pacing_delay(rate, ahead))
    }
}

/// Returns the serialization time of `bytes` bytes, at most [`PACING_DELAY_MAX`].
fn pacing_delay(rate: Rate, bytes: u64) -> Duration {
    rate.transmission_time(Bytes::new(bytes))
        .min(PACING_DELAY_MAX)
}

/// Clamps a value to s2n-quic's 32 bits.
fn saturate(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use ccplane_agent::datapath::InlineChannel;
    use ccplane_agent::{Agent, AgentOptions};
    use ccplane_algorithms::{Parameters, Registry};
    use ccplane_datapath::{OperatorLimits, Outcome};

    use super::*;

    const MSS: u64 = 1_200;

    /// Plane in virtual time.
    struct Steers {
        plane: QuicPlane,
        epoch: Instant,
    }

    impl Steers {
        /// Delivers commands to the paths.
        fn turn(&self, now: Time) {
            self.plane
                .process(self.epoch + now.since(Time::ZERO).to_std());
        }
    }

    fn told(name: &str, parameters: &Parameters) -> (Steers, S2nPath) {
        let epoch = Instant::now();
        let mut agent = Agent::new(AgentOptions::default());
        let algorithm = Registry::builtin().by_name(name, parameters).unwrap();
        agent.add_boxed(algorithm).unwrap();
        let plane = QuicPlane::with_channel(
            Stack::S2n,
            Box::new(InlineChannel::new(agent)),
            OperatorLimits::default(),
            epoch,
        );
        let told = S2nPath::new(SteeredPath::new(&plane, epoch, MSS as u16));
        (Steers { plane, epoch }, told)
    }

    fn at(ms: u64) -> Time {
        Time::from_micros(1_000 * ms)
    }

    #[test]
    fn a_window_beyond_32_bits_is_the_most_that_s2n_quic_can_hold() {
        assert_eq!(saturate(u64::MAX), u32::MAX);
        let parameters = Parameters::new().with("cwnd", "6GB").with("rate", "20mbit");
        let (plane, mut told) = told("constant", &parameters);
        for n in 0..20 {
            let packet = told.on_sent(at(n * 10), MSS, Some(false));
            told.on_acked(at(n * 10 + 5), packet, MSS);
            plane.turn(at(n * 10 + 5));
        }
        assert!(
            told.path().window() > u64::from(u32::MAX),
            "{}",
            told.path().window()
        );
        let mut control = S2nController {
            path: told,
            clock: None,
        };
        assert_eq!(control.congestion_window(), u32::MAX);
        assert!(!control.is_congestion_limited());
        control.path.in_flight = u64::MAX;
        assert_eq!(control.bytes_in_flight(), u32::MAX);
        assert!(control.is_congestion_limited());
    }

    /// One packet is reordered: the packets acknowledged beyond it are identified by the newest one
    /// and the bytes, and the gap stays outstanding.
    #[test]
    fn delivered_bytes_follow_from_newest_packet_and_total() {
        let (_plane, mut told) = told("reno", &Parameters::default());
        let packets: Vec<S2nPacket> = (0..8)
            .map(|n| told.on_sent(at(n), MSS, Some(false)))
            .collect();
        told.on_acked(at(20), packets[1], 2 * MSS);
        // The third packet is reordered.
        told.on_acked(at(22), packets[4], 2 * MSS);
        assert_eq!(
            (told.in_flight, told.path().bytes_in_flight()),
            (4 * MSS, 4 * MSS)
        );
        // It arrives together with a newer packet.
        told.on_acked(at(23), packets[5], 2 * MSS);
        assert_eq!(
            (told.in_flight, told.path().bytes_in_flight()),
            (2 * MSS, 2 * MSS)
        );
        told.on_lost(at(40), packets[6], MSS, false);
        assert!(told.event_pending && !told.path().in_recovery());
        told.on_acked(at(40), packets[7], MSS);
        assert!(!told.event_pending && told.path().in_recovery());
        assert_eq!(
            (told.path().bytes_in_flight(), told.path().lost_packets()),
            (0, 1)
        );
        assert_eq!(told.path().unknown_packets(), 0);
    }

    #[test]
    fn wrong_delivery_guesses_are_corrected_on_loss() {
        let (_plane, mut told) = told("reno", &Parameters::default());
        let packets: Vec<S2nPacket> = (0..6)
            .map(|n| told.on_sent(at(n), MSS, Some(false)))
            .collect();
        // Packets 0, 1 and 3 were acknowledged; 1, 2 and 3 are assumed.
        told.on_acked(at(20), packets[3], 3 * MSS);
        told.on_lost(at(25), packets[2], MSS, false);
        told.on_acked(at(25), packets[5], 2 * MSS);
        let path = told.path();
        assert_eq!(
            (
                path.bytes_in_flight(),
                path.lost_packets(),
                path.unknown_packets()
            ),
            (0, 1, 0)
        );
    }

    #[test]
    fn probes_for_the_mtu_and_what_goes_with_the_keys_take_no_part() {
        let (_plane, mut told) = told("reno", &Parameters::default());
        let first = told.on_sent(at(1), MSS, None);
        let probe = told.on_sent(at(2), 1_472, Some(false));
        assert_eq!((probe.number, told.in_flight), (first.number, MSS + 1_472));
        told.on_mtu_update(1_472);
        told.on_acked(at(20), probe, MSS + 1_472);
        assert_eq!(
            (told.in_flight, told.path().acked_bytes(), told.path().mss()),
            (0, MSS, 1_472)
        );
        // A lost probe.
        told.on_sent(at(21), 1_472, Some(false));
        told.on_sent(at(22), 9_000, Some(false));
        told.on_discarded(9_000);
        assert_eq!(
            (told.in_flight, told.path().bytes_in_flight()),
            (1_472, 1_472)
        );
        // The handshake keys are dropped.
        told.on_discarded(1_472);
        assert_eq!((told.in_flight, told.path().bytes_in_flight()), (0, 0));
        assert_eq!(
            (told.path().lost_packets(), told.path().unknown_packets()),
            (0, 0)
        );
    }

    #[test]
    fn timer_losses_reduce_the_window_at_the_next_packet() {
        let (plane, mut told) = told("reno", &Parameters::default());
        for n in 0..10 {
            let packet = told.on_sent(at(n), MSS, Some(false));
            if n == 5 {
                told.on_acked(at(n), packet, 6 * MSS);
                plane.turn(at(n));
            }
        }
        let before = told.path().window();
        let lost = S2nPacket {
            number: told.newest.number - 1,
            sent_at: at(8),
        };
        told.on_lost(at(60), lost, MSS, false);
        assert_eq!(told.path().window(), before);
        let control = S2nController {
            path: told,
            clock: None,
        };
        assert!(control.requires_fast_retransmission());
        let S2nController { path: mut told, .. } = control;
        told.on_sent(at(61), MSS, Some(false));
        assert!(told.path().in_recovery() && told.path().ssthresh() < before);
    }

    #[test]
    fn a_rate_that_was_low_for_a_moment_delays_a_packet_by_a_second_at_most() {
        let (_plane, mut told) = told("reno", &Parameters::default());
        let order = |told: &mut S2nPath, packet: S2nPacket, now: Time, rate: u64| {
            let path = told.steered.path_mut();
            path.on_acked_up_to(now, packet.number, packet.sent_at, MSS as i64);
            path.finish_event(now, false, |_, _| Outcome {
                rate: Some(rate),
                ..Outcome::default()
            });
        };
        let first = told.on_sent(at(0), MSS, Some(false));
        order(&mut told, first, at(10), 1);
        told.on_sent(at(10), MSS, Some(false));
        // The quantum is two packets.
        assert_eq!(told.next_departure(), Some(at(10)));
        let last = told.on_sent(at(10), MSS, Some(false));
        assert_eq!(told.next_departure(), Some(at(1_010)));
        order(&mut told, last, at(20), 10_000_000);
        assert!(told.next_departure().unwrap() <= at(2_010));
    }

    /// Checks that in any 2 ms at most the rate's bytes plus one quantum are sent. The stack treats
    /// a time less than 1 ms away as due.
    #[test]
    fn an_ordered_rate_paces_what_leaves() {
        let parameters = Parameters::new()
            .with("cwnd", "200p")
            .with("rate", "20mbit");
        let (plane, mut told) = told("constant", &parameters);
        for n in 0..20 {
            let packet = told.on_sent(at(n * 20), MSS, Some(false));
            told.on_acked(at(n * 20 + 10), packet, MSS);
            plane.turn(at(n * 20 + 10));
        }
        let rate = told.rate().unwrap();
        assert_eq!(rate, Rate::from_bits_per_sec(20_000_000));
        let quantum = told.path().send_quantum_at(rate);
        let mut sent: Vec<Time> = Vec::new();
        let (mut us, mut left) = (400_000u64, Vec::new());
        while us < 1_400_000 {
            let now = Time::from_micros(us);
            let due = told.next_departure().unwrap();
            if due <= now {
                left.push(told.on_sent(now, MSS, Some(false)));
                sent.push(now);
            } else {
                us = due.as_micros().div_ceil(250) * 250;
            }
            if left.len() == 8 {
                let newest = left.pop().unwrap();
                left.clear();
                told.on_acked(now, newest, 8 * MSS);
                plane.turn(now);
            }
        }
        let total = sent.len() as u64 * MSS;
        assert!(
            (2_475_000..=2_500_000 + quantum).contains(&total),
            "{total} bytes in a second"
        );
        for (at, from) in sent.iter().enumerate() {
            let window = *from + Duration::from_millis(2);
            let count = sent
                .iter()
                .skip(at)
                .take_while(|sent| **sent < window)
                .count() as u64;
            assert!(count * MSS <= 5_000 + quantum, "{count} packets in 2 ms");
        }
    }
}
