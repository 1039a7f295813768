//! s2n-quic's hook: `Server::builder().with_congestion_controller(plane.s2n()?)?`.
//!
//! An acknowledgement is the losses that it shows, packet by packet, then the count of its marks,
//! then its newest packet and how many bytes it brought: the newest packets that are outstanding
//! are taken for them. What a timer finds lost ends with nothing, so that it is told to the control
//! with the next packet that leaves or is acknowledged. s2n-quic does not pace: it asks when the
//! next packet may leave.
#![expect(
    clippy::disallowed_methods,
    reason = "s2n-quic's time has no epoch: a look at the clock for each path sets it"
)]

use std::time::Instant;

use ccplane_units::{Bytes, Duration, Rate, Time};
use s2n_quic::provider::congestion_controller::{
    CongestionController, Endpoint, PathInfo, Publisher, RandomGenerator, RttEstimator, Timestamp,
};

use crate::{Path, Plane, PlaneError, Stack, Steered};

/// A packet delays the next by at most this, as in ccplane's transport: the next order may be
/// higher, and what has left is not computed anew. More stalls a path after a rate that was low for
/// a moment; less exceeds ordered rates of less than a packet in that time.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Below this RTT what has no ordered rate is not paced: a timer would take longer than a packet
/// and its acknowledgement.
const PACED_FROM: Duration = Duration::from_millis(2);

impl Plane {
    /// The plane as s2n-quic takes it: a controller for each path of an endpoint's connections.
    pub fn s2n(&self) -> Result<impl Endpoint + use<>, PlaneError> {
        match self.stack() {
            Stack::S2n => Ok(S2n(self.clone())),
            other => Err(PlaneError::WrongStack {
                of: other.name(),
                asked: Stack::S2n.name(),
            }),
        }
    }
}

#[derive(Debug)]
struct S2n(Plane);

impl Endpoint for S2n {
    type CongestionController = Control;

    fn new_congestion_controller(&mut self, info: PathInfo<'_>) -> Control {
        let now = Instant::now();
        Control {
            told: Told::new(Steered::new(&self.0, now, info.max_datagram_size)),
            clock: None,
        }
    }
}

/// The controller of one path.
#[derive(Clone, Debug)]
struct Control {
    told: Told,
    /// A moment of s2n-quic's clock, and the same of ours.
    clock: Option<(Timestamp, Time)>,
}

impl Control {
    fn time(&mut self, at: Timestamp) -> Time {
        let steered = &self.told.steered;
        let (stamp, time) = *self
            .clock
            .get_or_insert_with(|| (at, steered.time(Instant::now())));
        time + at.saturating_duration_since(stamp).into()
    }
}

impl CongestionController for Control {
    type PacketInfo = Sent;

    fn congestion_window(&self) -> u32 {
        clamped(self.told.path().window())
    }

    fn bytes_in_flight(&self) -> u32 {
        clamped(self.told.in_flight)
    }

    fn is_congestion_limited(&self) -> bool {
        self.congestion_window()
            .saturating_sub(self.bytes_in_flight())
            < clamped(self.told.path().mss())
    }

    /// At once after a loss, before the window follows (RFC 9002, 7.3.2).
    fn requires_fast_retransmission(&self) -> bool {
        self.told.unended && !self.told.path().in_recovery()
    }

    fn on_packet_sent<Pub: Publisher>(
        &mut self,
        time_sent: Timestamp,
        sent_bytes: usize,
        app_limited: Option<bool>,
        _rtt: &RttEstimator,
        _publisher: &mut Pub,
    ) -> Sent {
        let now = self.time(time_sent);
        self.told.sent(now, sent_bytes as u64, app_limited)
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
        newest_acked_packet_info: Sent,
        _rtt: &RttEstimator,
        _random: &mut dyn RandomGenerator,
        ack_receive_time: Timestamp,
        _publisher: &mut Pub,
    ) {
        let now = self.time(ack_receive_time);
        self.told
            .acked(now, newest_acked_packet_info, bytes_acknowledged as u64);
    }

    fn on_packet_lost<Pub: Publisher>(
        &mut self,
        lost_bytes: u32,
        packet_info: Sent,
        persistent_congestion: bool,
        _new_loss_burst: bool,
        _random: &mut dyn RandomGenerator,
        timestamp: Timestamp,
        _publisher: &mut Pub,
    ) {
        let now = self.time(timestamp);
        self.told
            .lost(now, packet_info, lost_bytes.into(), persistent_congestion);
    }

    fn on_explicit_congestion<Pub: Publisher>(
        &mut self,
        ce_count: u64,
        _event_time: Timestamp,
        _publisher: &mut Pub,
    ) {
        self.told.marked(ce_count);
    }

    fn on_mtu_update<Pub: Publisher>(&mut self, max_data_size: u16, _publisher: &mut Pub) {
        self.told.mtu(max_data_size);
    }

    fn on_packet_discarded<Pub: Publisher>(&mut self, bytes_sent: usize, _publisher: &mut Pub) {
        self.told.discarded(bytes_sent as u64);
    }

    fn earliest_departure_time(&self) -> Option<Timestamp> {
        let (stamp, time) = self.clock?;
        let next = self.told.next_departure()?;
        Some(stamp + next.since(time).to_std())
    }

    fn send_quantum(&self) -> Option<usize> {
        let quantum = self.told.path().quantum_at(self.told.rate()?);
        usize::try_from(quantum).ok()
    }
}

/// What s2n-quic keeps of each packet for us: our own number of it, and when it left.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    number: u64,
    at: Time,
}

/// One path, as s2n-quic tells of it.
#[derive(Debug)]
struct Told {
    steered: Steered,
    /// The newest packet that takes part in congestion control.
    newest: Sent,
    /// As s2n-quic counts it, probes for the MTU included.
    in_flight: u64,
    /// Bytes that acknowledgements brought beyond whole packets; negative where the packets taken
    /// for them had more.
    rest: i64,
    /// The size of a probe for the MTU that is under way, and of one that arrived and whose
    /// acknowledgement is still to be told.
    probe: Option<u64>,
    probed: u64,
    /// Losses or marks were told, and not yet the end of their event.
    unended: bool,
    app_limited: bool,
    /// When everything that has left would have, at the rate alone.
    paid: Time,
}

impl Clone for Told {
    /// The path after this one: a flow of its own, with nothing in flight.
    fn clone(&self) -> Told {
        Told::new(self.steered.successor())
    }
}

impl Told {
    fn new(steered: Steered) -> Told {
        Told {
            steered,
            newest: Sent::default(),
            in_flight: 0,
            rest: 0,
            probe: None,
            probed: 0,
            unended: false,
            app_limited: false,
            paid: Time::ZERO,
        }
    }

    fn path(&self) -> &Path {
        self.steered.path()
    }

    fn sent(&mut self, now: Time, bytes: u64, app_limited: Option<bool>) -> Sent {
        if self.unended {
            self.end_of_event(now);
        }
        self.app_limited = app_limited.unwrap_or(false);
        // One with nothing but acknowledgements.
        if bytes == 0 {
            return self.newest;
        }
        self.in_flight += bytes;
        if let Some(rate) = self.rate() {
            self.paid = self.paid.max(now) + pause(rate, bytes);
        }
        if bytes > self.path().mss() {
            self.probe = Some(bytes);
            return self.newest;
        }
        self.newest = Sent {
            number: self.newest.number + 1,
            at: now,
        };
        let size = u16::try_from(bytes).unwrap_or(u16::MAX);
        self.steered.path_mut().sent(now, self.newest.number, size);
        self.newest
    }

    fn acked(&mut self, now: Time, newest: Sent, bytes: u64) {
        self.leave(bytes);
        let probed = std::mem::take(&mut self.probed).min(bytes);
        let told = i64::try_from(bytes - probed).unwrap_or(i64::MAX);
        let path = self.steered.path_mut();
        self.rest = path.acked_no_later(
            now,
            newest.number,
            newest.at,
            self.rest.saturating_add(told),
        );
        self.steered.open(now);
        self.end_of_event(now);
    }

    fn lost(&mut self, now: Time, packet: Sent, bytes: u64, persistent: bool) {
        self.leave(bytes);
        let path = self.steered.path_mut();
        path.lost_no_later(now, packet.number, packet.at);
        if persistent {
            path.persistent();
        }
        self.unended = true;
    }

    fn marked(&mut self, packets: u64) {
        let path = self.steered.path_mut();
        path.marked(clamped(packets), packets.saturating_mul(path.mss()));
        self.unended = true;
    }

    fn mtu(&mut self, mss: u16) {
        if let Some(probe) = self.probe.take_if(|probe| *probe <= mss.into()) {
            self.probed += probe;
        }
        self.steered.path_mut().set_mss(mss);
    }

    /// A lost probe for the MTU, or what went with the keys of the handshake.
    fn discarded(&mut self, bytes: u64) {
        self.leave(bytes);
        if self.probe.take_if(|probe| *probe == bytes).is_none() {
            self.steered.path_mut().dropped(bytes);
        }
    }

    fn end_of_event(&mut self, now: Time) {
        self.unended = false;
        self.steered.end_of_event(now, self.app_limited);
    }

    fn leave(&mut self, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
    }

    /// The ordered rate; without one two windows a smoothed RTT in slow start and 1.25 after, as
    /// s2n-quic's own controls have it (RFC 9002, 7.7: a little more than one, so that pacing alone
    /// does not keep the window empty).
    fn rate(&self) -> Option<Rate> {
        let path = self.path();
        if let Some(ordered) = path.pacing() {
            return Some(ordered);
        }
        let srtt = path.srtt();
        if srtt < PACED_FROM {
            return None;
        }
        let window = path.window();
        let ahead = if window < path.ssthresh() {
            window
        } else {
            window / 4
        };
        Some(Rate::of(Bytes::new(window + ahead), srtt))
    }

    /// When the next packet may leave: with what the rate gives until then, no more than a quantum
    /// leaves at once.
    fn next_departure(&self) -> Option<Time> {
        let (rate, path) = (self.rate()?, self.path());
        // With this packet it is a quantum.
        let ahead = path.quantum_at(rate) - path.mss();
        Some(self.paid - pause(rate, ahead))
    }
}

/// The time that so many bytes take.
fn pause(rate: Rate, bytes: u64) -> Duration {
    rate.time_for(Bytes::new(bytes)).min(LONGEST_PAUSE)
}

/// What s2n-quic has 32 bits for.
fn clamped(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use ccplane_agent::datapath::Here;
    use ccplane_agent::{Agent, Options};
    use ccplane_algorithms::{Parameters, Registry};
    use ccplane_datapath::{Limits, Outcome};

    use super::*;

    const MSS: u64 = 1_200;

    /// A plane whose time begins now.
    struct Steers {
        plane: Plane,
        epoch: Instant,
    }

    impl Steers {
        /// Commands come to the paths.
        fn turn(&self, now: Time) {
            self.plane.turn(self.epoch + now.since(Time::ZERO).to_std());
        }
    }

    fn told(name: &str, parameters: &Parameters) -> (Steers, Told) {
        let epoch = Instant::now();
        let mut agent = Agent::new(Options::default());
        let algorithm = Registry::builtin().by_name(name, parameters).unwrap();
        agent.add_boxed(algorithm).unwrap();
        let plane = Plane::driven(
            Stack::S2n,
            Box::new(Here::new(agent)),
            Limits::default(),
            epoch,
        );
        let told = Told::new(Steered::new(&plane, epoch, MSS as u16));
        (Steers { plane, epoch }, told)
    }

    fn at(ms: u64) -> Time {
        Time::from_micros(1_000 * ms)
    }

    #[test]
    fn a_window_beyond_32_bits_is_the_most_that_s2n_quic_can_hold() {
        assert_eq!(clamped(u64::MAX), u32::MAX);
        let parameters = Parameters::new().with("cwnd", "6GB").with("rate", "20mbit");
        let (plane, mut told) = told("constant", &parameters);
        for n in 0..20 {
            let packet = told.sent(at(n * 10), MSS, Some(false));
            told.acked(at(n * 10 + 5), packet, MSS);
            plane.turn(at(n * 10 + 5));
        }
        assert!(
            told.path().window() > u64::from(u32::MAX),
            "{}",
            told.path().window()
        );
        let mut control = Control { told, clock: None };
        assert_eq!(control.congestion_window(), u32::MAX);
        assert!(!control.is_congestion_limited());
        control.told.in_flight = u64::MAX;
        assert_eq!(control.bytes_in_flight(), u32::MAX);
        assert!(control.is_congestion_limited());
    }

    /// One packet is late: what is acknowledged beyond it is known by its newest and by bytes, and
    /// the hole stays outstanding.
    #[test]
    fn what_an_acknowledgement_brought_is_told_from_its_newest_packet_and_its_bytes() {
        let (_plane, mut told) = told("reno", &Parameters::default());
        let packets: Vec<Sent> = (0..8).map(|n| told.sent(at(n), MSS, Some(false))).collect();
        told.acked(at(20), packets[1], 2 * MSS);
        // The third is late, and overtaken.
        told.acked(at(22), packets[4], 2 * MSS);
        assert_eq!(
            (told.in_flight, told.path().bytes_in_flight()),
            (4 * MSS, 4 * MSS)
        );
        // It is there, with one that is newer.
        told.acked(at(23), packets[5], 2 * MSS);
        assert_eq!(
            (told.in_flight, told.path().bytes_in_flight()),
            (2 * MSS, 2 * MSS)
        );
        told.lost(at(40), packets[6], MSS, false);
        assert!(told.unended && !told.path().in_recovery());
        told.acked(at(40), packets[7], MSS);
        assert!(!told.unended && told.path().in_recovery());
        assert_eq!(
            (told.path().bytes_in_flight(), told.path().lost_packets()),
            (0, 1)
        );
        assert_eq!(told.path().strays(), 0);
    }

    #[test]
    fn a_wrong_guess_is_put_right_when_a_packet_that_was_believed_to_have_arrived_is_lost() {
        let (_plane, mut told) = told("reno", &Parameters::default());
        let packets: Vec<Sent> = (0..6).map(|n| told.sent(at(n), MSS, Some(false))).collect();
        // Those of 0, 1 and 3: believed to be 1, 2 and 3.
        told.acked(at(20), packets[3], 3 * MSS);
        told.lost(at(25), packets[2], MSS, false);
        told.acked(at(25), packets[5], 2 * MSS);
        let path = told.path();
        assert_eq!(
            (path.bytes_in_flight(), path.lost_packets(), path.strays()),
            (0, 1, 0)
        );
    }

    #[test]
    fn probes_for_the_mtu_and_what_goes_with_the_keys_take_no_part() {
        let (_plane, mut told) = told("reno", &Parameters::default());
        let first = told.sent(at(1), MSS, None);
        let probe = told.sent(at(2), 1_472, Some(false));
        assert_eq!((probe.number, told.in_flight), (first.number, MSS + 1_472));
        told.mtu(1_472);
        told.acked(at(20), probe, MSS + 1_472);
        assert_eq!(
            (told.in_flight, told.path().acked_bytes(), told.path().mss()),
            (0, MSS, 1_472)
        );
        // A probe that is lost.
        told.sent(at(21), 1_472, Some(false));
        told.sent(at(22), 9_000, Some(false));
        told.discarded(9_000);
        assert_eq!(
            (told.in_flight, told.path().bytes_in_flight()),
            (1_472, 1_472)
        );
        // The keys of the handshake.
        told.discarded(1_472);
        assert_eq!((told.in_flight, told.path().bytes_in_flight()), (0, 0));
        assert_eq!((told.path().lost_packets(), told.path().strays()), (0, 0));
    }

    #[test]
    fn what_a_timer_finds_lost_reduces_the_window_with_the_next_packet() {
        let (plane, mut told) = told("reno", &Parameters::default());
        for n in 0..10 {
            let packet = told.sent(at(n), MSS, Some(false));
            if n == 5 {
                told.acked(at(n), packet, 6 * MSS);
                plane.turn(at(n));
            }
        }
        let before = told.path().window();
        let lost = Sent {
            number: told.newest.number - 1,
            at: at(8),
        };
        told.lost(at(60), lost, MSS, false);
        assert_eq!(told.path().window(), before);
        let control = Control { told, clock: None };
        assert!(control.requires_fast_retransmission());
        let Control { mut told, .. } = control;
        told.sent(at(61), MSS, Some(false));
        assert!(told.path().in_recovery() && told.path().ssthresh() < before);
    }

    #[test]
    fn a_rate_that_was_low_for_a_moment_delays_a_packet_by_a_second_at_most() {
        let (_plane, mut told) = told("reno", &Parameters::default());
        let order = |told: &mut Told, packet: Sent, now: Time, rate: u64| {
            let path = told.steered.path_mut();
            path.acked_no_later(now, packet.number, packet.at, MSS as i64);
            path.end_of_event(now, false, |_, _| Outcome {
                rate: Some(rate),
                ..Outcome::default()
            });
        };
        let first = told.sent(at(0), MSS, Some(false));
        order(&mut told, first, at(10), 1);
        told.sent(at(10), MSS, Some(false));
        // A quantum is two packets.
        assert_eq!(told.next_departure(), Some(at(10)));
        let last = told.sent(at(10), MSS, Some(false));
        assert_eq!(told.next_departure(), Some(at(1_010)));
        order(&mut told, last, at(20), 10_000_000);
        assert!(told.next_departure().unwrap() <= at(2_010));
    }

    /// In any two milliseconds what the rate gives, and a quantum. The stack takes a moment that is
    /// less than a millisecond away for due.
    #[test]
    fn an_ordered_rate_paces_what_leaves() {
        let parameters = Parameters::new()
            .with("cwnd", "200p")
            .with("rate", "20mbit");
        let (plane, mut told) = told("constant", &parameters);
        for n in 0..20 {
            let packet = told.sent(at(n * 20), MSS, Some(false));
            told.acked(at(n * 20 + 10), packet, MSS);
            plane.turn(at(n * 20 + 10));
        }
        let rate = told.rate().unwrap();
        assert_eq!(rate, Rate::from_bits_per_sec(20_000_000));
        let quantum = told.path().quantum_at(rate);
        let mut sent: Vec<Time> = Vec::new();
        let (mut us, mut left) = (400_000u64, Vec::new());
        while us < 1_400_000 {
            let now = Time::from_micros(us);
            let due = told.next_departure().unwrap();
            if due <= now {
                left.push(told.sent(now, MSS, Some(false)));
                sent.push(now);
            } else {
                us = due.as_micros().div_ceil(250) * 250;
            }
            if left.len() == 8 {
                let newest = left.pop().unwrap();
                left.clear();
                told.acked(now, newest, 8 * MSS);
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
