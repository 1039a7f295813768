//! One direction of the path as a state machine, without clock or device: frames in, frames out at
//! their due times.
//!
//! Every packet of a super-packet is subject to loss, queue, line and delay separately, with its
//! own size and log record. Consecutive packets of one frame are delivered together only if their
//! due times lie within [`Gso::window`](crate::Gso::window).

use std::collections::VecDeque;

use ccplane_host::{Frame, FrameError, FramePacket, Head, IpHeaders, Store};
use ccplane_qdisc::{
    Delay, DelayModel, DropReason, Drops, Ecn, LineSpec, Loss, LossModel, Packet as _,
};
use ccplane_units::{Duration, Time};

use crate::LinkConfig;
use crate::capture::{FlowOrder, LogEntry};
use crate::control::PathDirection;
use crate::link::EmuLink;
use crate::log::{Fate, LinkLog, PacketRecord};

/// A link with the packets in it.
#[derive(Debug)]
pub(crate) struct EmuDirection {
    up: bool,
    loss: Loss,
    link: EmuLink,
    delay: Delay,
    /// Packets past the link and not yet delivered, in the order of their due times.
    delayed: VecDeque<DelayedPacket>,
    /// Longest time that the first packet of a frame may wait for the others.
    window: Duration,
    frames: HeldFrames,
}

/// Frames, counters and logs.
#[derive(Debug)]
struct HeldFrames {
    store: Store,
    /// Length of the link header of each frame.
    link_header_bytes: usize,
    log: LinkLog,
    packet_log: Option<LogHooks>,
}

/// State of the packet log.
#[derive(Debug)]
struct LogHooks {
    direction: PathDirection,
    now: Time,
    /// Backlog of the queue in bytes.
    backlog: u64,
    order: FlowOrder,
    /// Entries of packets that have left the queue since the last [`EmuDirection::seen`].
    entries: Vec<LogEntry>,
}

#[derive(Clone, Copy, Debug)]
struct DelayedPacket {
    packet: FramePacket,
    departed: Time,
    due: Time,
}

/// Packets delivered together.
pub(crate) struct DepartureRun<'a> {
    /// Link header of the frame.
    pub(crate) link_header: &'a [u8],
    /// The packets as one frame, in two pieces.
    pub(crate) pieces: [&'a [u8]; 2],
    /// Number of packets.
    pub(crate) count: u16,
}

impl EmuDirection {
    /// Creates an empty link.
    pub(crate) fn new(
        config: &LinkConfig,
        link: EmuLink,
        window: Duration,
        store: Store,
        log: LinkLog,
    ) -> EmuDirection {
        EmuDirection {
            up: true,
            loss: Loss::with_model(config.loss, config.seeds.loss),
            link,
            delay: Delay::with_model(config.delay_model(), config.seeds.delay),
            delayed: VecDeque::with_capacity(4_096),
            window,
            frames: HeldFrames {
                store,
                link_header_bytes: 0,
                log,
                packet_log: None,
            },
        }
    }

    /// Sets the length of the link header of each frame, which is delivered with it.
    pub(crate) fn with_link_header(mut self, lead: usize) -> EmuDirection {
        self.frames.link_header_bytes = lead;
        self
    }

    /// Enables the packet log: entries of packets that leave the queue are kept for
    /// [`seen`](EmuDirection::seen).
    pub(crate) fn with_packet_log(mut self, direction: PathDirection) -> EmuDirection {
        self.frames.packet_log = Some(LogHooks {
            direction,
            now: Time::ZERO,
            backlog: 0,
            order: FlowOrder::default(),
            entries: Vec::new(),
        });
        self
    }

    /// Returns the log entries since the last call, to be taken out by the caller.
    pub(crate) fn log_entries(&mut self) -> Option<&mut Vec<LogEntry>> {
        self.frames
            .packet_log
            .as_mut()
            .map(|watch| &mut watch.entries)
    }

    /// Returns the log entries since the last call, including dropped packets that are still held.
    pub(crate) fn flush_log_entries(&mut self) -> Option<&mut Vec<LogEntry>> {
        let watch = self.frames.packet_log.as_mut()?;
        watch.order.flush(watch.now, &mut watch.entries);
        Some(&mut watch.entries)
    }

    /// Returns memory for the next frame of at most `bytes`, whose length is then passed to
    /// [`arrive`](EmuDirection::arrive); `None` if the memory is used up.
    pub(crate) fn frame_buffer(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.frames.store.reserve(bytes)
    }

    /// Processes a frame in the first `length` bytes of [`room`](EmuDirection::room).
    pub(crate) fn on_frame(&mut self, now: Time, length: usize) -> Result<(), FrameError> {
        self.advance(now);
        let bytes = self.frames.store.reserved(length);
        let bytes = bytes
            .get(self.frames.link_header_bytes..)
            .unwrap_or_default();
        let frame = Frame::parse(bytes)?;
        let packet = Frame::packet(bytes);
        // The kernel's own neighbour discovery would only distort the packet count of a private
        // link.
        if self.frames.link_header_bytes == 0 && is_multicast_v6(packet) {
            return Ok(());
        }
        let headers = IpHeaders::parse(packet);
        let place = self.frames.store.commit(length, frame, now, headers.ports);
        for index in 0..frame.packets() {
            let packet = FramePacket::new(place, index, frame.bytes(index), &headers);
            self.frames.log.arrived += 1;
            self.update_log_state(now);
            if let Some(watch) = &mut self.frames.packet_log {
                watch.order.on_arrived(packet.flow_hash(), (place, index));
            }
            if !self.up || self.loss.next_is_lost() {
                self.frames.dropped(packet, DropReason::Lost);
            } else {
                self.link.enqueue(now, packet, &mut self.frames);
            }
        }
        Ok(())
    }

    /// Updates the state of the packet log for time `now`.
    fn update_log_state(&mut self, now: Time) {
        if let Some(watch) = &mut self.frames.packet_log {
            watch.now = now;
            watch.backlog = self.link.backlog().1;
        }
    }

    /// Moves the packets that have left the link by `now` to the delay stage.
    pub(crate) fn advance(&mut self, now: Time) {
        self.update_log_state(now);
        while let Some((packet, departed)) = self.link.take_departed(now, &mut self.frames) {
            self.update_log_state(departed);
            self.frames.log_packet(&packet, None);
            let due = self.delay.schedule_arrival(departed);
            let leaving = DelayedPacket {
                packet,
                departed,
                due,
            };
            match self.delayed.back() {
                Some(last) if last.due > due => {
                    let place = self.delayed.partition_point(|other| other.due <= due);
                    self.delayed.insert(place, leaving);
                }
                _ => self.delayed.push_back(leaving),
            }
        }
    }

    /// Returns the time of the next possible delivery.
    pub(crate) fn next_due(&self) -> Option<Time> {
        let run = self.next_run_due();
        if run.is_some() && !self.delay.reorders() {
            return run;
        }
        let behind = self
            .link
            .next_ready()
            .map(|ready| ready + self.delay.min_delay());
        run.into_iter().chain(behind).min()
    }

    /// Returns the delivery time of the oldest packet: with all of its frame, if the frame passed
    /// completely and within the window.
    fn next_run_due(&self) -> Option<Time> {
        let first = self.delayed.front()?;
        let packets = self.frames.store.get(first.packet.frame).frame.packets();
        let last = self.delayed.get(usize::from(packets) - 1);
        let whole = last.filter(|last| {
            first.packet.index == 0
                && last.packet.frame == first.packet.frame
                && self.is_within_window(first, last)
        });
        Some(whole.map_or(first.due, |last| last.due))
    }

    fn is_within_window(&self, first: &DelayedPacket, last: &DelayedPacket) -> bool {
        last.due.since(first.due) <= self.window
    }

    /// Returns the next packets to deliver at or before `now`.
    pub(crate) fn next_run<'a>(
        &'a self,
        now: Time,
        head: &'a mut Head,
    ) -> Option<DepartureRun<'a>> {
        if self.next_run_due()? > now {
            return None;
        }
        let first = self.delayed.front()?;
        let follows = |(n, next): &(u16, &DelayedPacket)| {
            next.packet.frame == first.packet.frame
                && next.packet.index == first.packet.index + n
                && next.packet.marked == first.packet.marked
                && next.due <= now
                && self.is_within_window(first, next)
        };
        let count = (0..).zip(&self.delayed).take_while(follows).count() as u16;
        let FramePacket {
            frame,
            index,
            marked,
            ..
        } = first.packet;
        let store = &self.frames.store;
        let run = index..index + count;
        let (lead, bytes) = self.frames.bytes(frame);
        Some(DepartureRun {
            link_header: lead,
            pieces: store.get(frame).frame.write_run(bytes, run, marked, head),
            count,
        })
    }

    /// Records the delivery of the next `count` packets; `late` is called with the lateness of each
    /// at `now`.
    pub(crate) fn on_delivered(&mut self, now: Time, count: u16, mut late: impl FnMut(Duration)) {
        let log = &mut self.frames.log;
        log.handovers += 1;
        for leaving in self.delayed.drain(..usize::from(count)) {
            late(now.since(leaving.due));
            let stored = self.frames.store.get(leaving.packet.frame);
            log.marks += u64::from(leaving.packet.marked);
            log.add(PacketRecord::new(
                stored,
                leaving.packet.bytes,
                Fate::Departed(leaving.departed),
            ));
            self.frames.store.release(leaving.packet.frame, 1);
        }
    }

    /// Changes the line and reschedules waiting packets.
    pub(crate) fn set_line(&mut self, now: Time, line: &LineSpec) {
        self.advance(now);
        self.link.set_line(now, line, &mut self.frames);
    }

    /// Changes the delay of packets that are still in the queue. The due times of packets past it
    /// are unchanged.
    pub(crate) fn set_delay(&mut self, now: Time, delay: DelayModel) {
        self.advance(now);
        self.delay.set_model(delay);
    }

    /// Changes the random loss of future packets.
    pub(crate) fn set_loss(&mut self, loss: LossModel) {
        self.loss.set_model(loss);
    }

    /// Takes the link down, which loses all future packets, or up.
    pub(crate) fn set_up(&mut self, up: bool) {
        self.up = up;
    }

    /// Returns the counters and records so far.
    pub(crate) fn log(&self) -> &LinkLog {
        &self.frames.log
    }

    /// Returns the backlog of the queue in bytes.
    pub(crate) fn backlog_bytes(&self) -> u64 {
        self.link.backlog().1
    }

    /// Returns the number of packets that arrived and were neither delivered nor dropped.
    fn packets_inside(&self) -> u64 {
        self.link.backlog().0 + self.delayed.len() as u64
    }

    /// Returns the log at the end of the emulation.
    pub(crate) fn finish(mut self) -> LinkLog {
        self.frames.log.in_flight = self.packets_inside();
        self.frames.log
    }
}

impl HeldFrames {
    /// Returns the link header of a frame, and the frame.
    fn bytes(&self, frame: u32) -> (&[u8], &[u8]) {
        let bytes = self.store.bytes(frame);
        bytes
            .split_at_checked(self.link_header_bytes)
            .unwrap_or((&[], bytes))
    }

    /// Logs a packet that leaves the queue.
    fn log_packet(&mut self, packet: &FramePacket, dropped: Option<DropReason>) {
        if let Some(watch) = &self.packet_log {
            let (stored, bytes) = (self.store.get(packet.frame), self.bytes(packet.frame));
            let mut sight =
                LogEntry::from_packet(stored, bytes, packet, watch.direction, watch.now);
            (sight.dropped, sight.backlog) = (dropped, watch.backlog);
            if let Some(watch) = &mut self.packet_log {
                let id = (packet.frame, packet.index);
                watch
                    .order
                    .on_removed(packet.flow_hash(), id, sight, &mut watch.entries);
            }
        }
    }
}

impl Drops<FramePacket> for HeldFrames {
    fn dropped(&mut self, packet: FramePacket, reason: DropReason) {
        self.log_packet(&packet, Some(reason));
        self.log.ecn_drops += u64::from(reason != DropReason::Lost && packet.ecn() != Ecn::NotEct);
        let record = PacketRecord::new(
            self.store.get(packet.frame),
            packet.bytes,
            Fate::Dropped(reason),
        );
        self.log.add(record);
        self.store.release(packet.frame, 1);
    }
}

/// Matches neighbour discovery and multicast reports: an IPv6 destination in ff00::/8.
fn is_multicast_v6(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first >> 4 == 6) && packet.get(24) == Some(&0xff)
}

#[cfg(test)]
mod tests {
    use ccplane_qdisc::{QueueSpec, Size};
    use ccplane_units::{Probability, Rate};
    use proptest::prelude::*;

    use super::*;
    use crate::{Gso, PathDirection};

    #[derive(Clone, Debug)]
    enum Step {
        /// A TCP super-packet: flow, number of packets, payload per packet, ECN-capable.
        Frame(u8, u16, u16, bool),
        Rate(u64),
        Delay(u64),
        Loss(u64),
        Up(bool),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            10 => (0_u8..4, 1_u16..9, 1_u16..1_449, any::<bool>())
                .prop_map(|(a, b, c, d)| Step::Frame(a, b, c, d)),
            1 => (10_000_u64..20_000_000).prop_map(Step::Rate),
            1 => (0_u64..50_000_000).prop_map(Step::Delay),
            1 => (0_u64..1 << 31).prop_map(Step::Loss),
            1 => any::<bool>().prop_map(Step::Up),
        ]
    }

    /// Queues with limits that the steps exceed, in the command-line syntax.
    const QUEUES: [&str; 13] = [
        "policer:rate=4mbit:burst=4kB",
        "droptail:20p",
        "ecn:5p:20p",
        "prio:3:20p",
        "prio:3:shared:20p",
        "sfq:limit=20p",
        "codel:target=1ms:interval=5ms:limit=20p",
        "codel:target=1ms:interval=5ms:limit=20p:ecn",
        "fq_codel:target=1ms:interval=5ms:limit=20p",
        "red:min=5p:max=15p:limit=20p:ecn",
        "dualpi2:target=2ms:limit=20p",
        "tbf:rate=4mbit:burst=4kB:limit=20p",
        "rcp:limit=20p",
    ];

    fn direction(queue: &str, jitter: (u64, bool), gso: Gso) -> EmuDirection {
        let config = LinkConfig {
            line: LineSpec::Constant(Rate::from_bytes_per_sec(1_000_000)),
            delay: Duration::from_millis(5),
            jitter: Duration::from_micros(jitter.0),
            reorder: jitter.1,
            queue: queue.parse().expect("a queue"),
            ..LinkConfig::default()
        };
        let link = EmuLink::new(
            PathDirection::Forward,
            &config,
            Duration::from_millis(10),
            1_500,
        )
        .expect("possible");
        EmuDirection::new(
            &config,
            link,
            gso.window(),
            Store::new(1 << 22),
            LinkLog::new(usize::MAX),
        )
    }

    /// Puts a super-packet of TCP over IPv4 into the link. Its packets are numbered from `first` by
    /// their sequence numbers.
    fn put(
        link: &mut EmuDirection,
        now: Time,
        flow: u8,
        first: u32,
        packets: u16,
        size: u16,
        capable: bool,
    ) {
        let length = 10 + 40 + usize::from(packets * size);
        let room = link
            .frame_buffer(ccplane_host::FRAME_BYTES_MAX)
            .expect("memory enough");
        room[..length].fill(flow);
        // The checksum is partial, the kind TCPv4, the transport header at offset 20.
        let kind = u8::from(packets > 1);
        room[..10].copy_from_slice(&[1, kind, 0, 0, 0, 0, 20, 0, 16, 0]);
        room[4..6].copy_from_slice(&size.to_ne_bytes());
        room[6..8].copy_from_slice(&20_u16.to_ne_bytes());
        let packet = &mut room[10..];
        packet[..2].copy_from_slice(&[0x45, flow << 2 | if capable { 0b10 } else { 0 }]);
        packet[6..10].copy_from_slice(&[0, 0, 64, 6]);
        packet[20..24].copy_from_slice(&[flow, 0, 0, 1]);
        packet[24..28].copy_from_slice(&(first * u32::from(size)).to_be_bytes());
        packet[32] = 5 << 4;
        link.on_frame(now, length).expect("well formed");
    }

    /// Appends the packets delivered by `now`: due time, flow, number, and whether marked.
    fn take(link: &mut EmuDirection, now: Time, taken: &mut Vec<(Time, u8, u32, bool)>) {
        link.advance(now);
        let mut head = Head::default();
        while let Some(DepartureRun { pieces, count, .. }) = link.next_run(now, &mut head) {
            let bytes = pieces.concat();
            let frame = Frame::parse(&bytes).expect("well formed");
            assert_eq!(frame.packets(), count, "written packets match the counters");
            let packet = Frame::packet(&bytes);
            let (flow, sequence) = (
                packet[20],
                u32::from_be_bytes([24, 25, 26, 27].map(|i| packet[i])),
            );
            let marked = packet[1] & 0b11 == 0b11;
            let mut sizes = 0;
            for (index, leaving) in (0..count).zip(&link.delayed) {
                assert_eq!(
                    u32::from(frame.bytes(index)),
                    u32::from(leaving.packet.bytes)
                );
                taken.push((leaving.due, flow, sequence + sizes, marked));
                sizes += u32::from(frame.bytes(index)) - 40;
            }
            link.on_delivered(now, count, |_| {});
        }
    }

    fn gso() -> impl Strategy<Value = Gso> {
        prop_oneof![Just(Gso::Auto), Just(Gso::On), Just(Gso::Off)]
    }

    /// Steps with the time before each, in nanoseconds.
    fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
        proptest::collection::vec((0_u64..3_000_000, step()), 1..200)
    }

    /// Runs the steps and checks that each packet is delivered, dropped or queued.
    fn check_accounting(
        steps: Vec<(u64, Step)>,
        queue: &str,
        jitter: (u64, bool),
        gso: Gso,
    ) -> Result<(), TestCaseError> {
        let mut link = direction(queue, jitter, gso);
        let (mut now, mut taken, mut sent) = (Time::ZERO, Vec::new(), 0);
        for (gap, step) in steps {
            now += Duration::from_nanos(gap);
            take(&mut link, now, &mut taken);
            match step {
                Step::Frame(flow, packets, size, capable) => {
                    put(&mut link, now, flow, sent, packets, size, capable);
                    sent += u32::from(packets);
                }
                Step::Rate(rate) => {
                    link.set_line(now, &LineSpec::Constant(Rate::from_bytes_per_sec(rate)))
                }
                Step::Delay(delay) => {
                    link.set_delay(now, DelayModel::Fixed(Duration::from_nanos(delay)));
                }
                Step::Loss(parts) => {
                    link.set_loss(LossModel::Bernoulli(Probability::from_parts(parts)))
                }
                Step::Up(up) => link.set_up(up),
            }
            let log = link.log();
            prop_assert_eq!(
                log.arrived,
                log.delivered + log.queue_drops + log.losses + link.packets_inside()
            );
        }
        // Every packet inside is delivered eventually, at the announced times.
        while let Some(due) = link.next_due() {
            now = now.max(due);
            take(&mut link, now, &mut taken);
        }
        let marks = taken.iter().filter(|packet| packet.3).count() as u64;
        let log = link.finish();
        prop_assert_eq!(log.in_flight, 0);
        prop_assert_eq!(log.arrived, u64::from(sent));
        prop_assert_eq!(log.delivered, taken.len() as u64);
        prop_assert_eq!(log.marks, marks);
        prop_assert_eq!(
            log.records().filter_map(PacketRecord::sojourn).count(),
            taken.len()
        );
        prop_assert!(log.handovers <= log.delivered);
        Ok(())
    }

    proptest! {
        #[test]
        fn every_packet_is_accounted_for_in_any_queue(
            steps in steps(), queue in proptest::sample::select(&QUEUES[..]),
            jitter in (0_u64..3_000, any::<bool>()), gso in gso(),
        ) {
            check_accounting(steps, queue, jitter, gso)?;
        }

        #[test]
        fn every_packet_is_accounted_for_in_the_examples_of_queues(
            steps in steps(),
            queue in proptest::sample::select(QueueSpec::examples().collect::<Vec<_>>()),
            jitter in (0_u64..3_000, any::<bool>()), gso in gso(),
        ) {
            check_accounting(steps, queue, jitter, gso)?;
        }

        #[test]
        fn nothing_overtakes_in_a_queue_that_keeps_the_order(
            steps in proptest::collection::vec(
                (0_u64..3_000_000, 1_u16..9, 100_u16..1_449),
                1..100,
            ),
            jitter in 0_u64..3_000,
            gso in gso(),
        ) {
            let mut link = direction("droptail:40p", (jitter, false), gso);
            let (mut now, mut taken, mut sent) = (Time::ZERO, Vec::new(), 0);
            for (gap, packets, _) in steps {
                now += Duration::from_nanos(gap);
                take(&mut link, now, &mut taken);
                put(&mut link, now, 1, sent, packets, 1_000, false);
                sent += u32::from(packets);
            }
            take(&mut link, Time::MAX, &mut taken);
            prop_assert!(taken.is_sorted(), "ordered by time, then by number");
        }
    }

    #[test]
    fn drops_of_ecn_capable_packets_are_counted_separately() {
        let mut link = direction("droptail:2p", (0, false), Gso::Off);
        put(&mut link, Time::ZERO, 1, 0, 8, 1_000, true);
        // The queue is full.
        put(&mut link, Time::ZERO, 1, 8, 3, 1_000, false);
        link.set_loss(LossModel::Bernoulli(Probability::ALWAYS));
        put(&mut link, Time::ZERO, 1, 11, 1, 1_000, true);
        let log = link.log();
        assert!(log.ecn_drops > 4, "{log:?}");
        assert_eq!((log.queue_drops, log.losses), (log.ecn_drops + 3, 1));
    }

    #[test]
    fn a_super_packet_passes_whole_where_the_line_is_fast_and_in_packets_where_it_is_slow() {
        let handed_over = |rate: u64, gso: Gso| {
            let mut link = direction("droptail:inf", (0, false), gso);
            link.set_line(
                Time::ZERO,
                &LineSpec::Constant(Rate::from_bits_per_sec(rate)),
            );
            put(&mut link, Time::ZERO, 1, 0, 40, 1_400, false);
            let mut times = Vec::new();
            let mut head = Head::default();
            while let Some(due) = link.next_due() {
                link.advance(due);
                while let Some(DepartureRun { count, .. }) = link.next_run(due, &mut head) {
                    times.push((due.as_nanos() / 1_000 - 5_000, count));
                    link.on_delivered(due, count, |_| {});
                }
            }
            times
        };
        // 57,600 bytes with headers: 46 µs at 10 Gbit/s, 480 µs at 960 Mbit/s.
        assert_eq!(handed_over(10_000_000_000, Gso::Auto), [(46, 40)]);
        let slow = handed_over(960_000_000, Gso::Auto);
        assert_eq!((slow.len(), slow[0], slow[39]), (40, (12, 1), (480, 1)));
        assert_eq!(handed_over(960_000_000, Gso::On), [(480, 40)]);
    }

    #[test]
    fn a_shorter_delay_applies_to_queued_packets_in_order() {
        let mut link = direction("droptail:20p", (0, false), Gso::Off);
        for n in 0..3 {
            // 1 ms per packet.
            put(&mut link, Time::ZERO, 1, n, 1, 960, false);
        }
        // The first has left the queue and remains due at 6 ms; the others cannot precede it.
        link.set_delay(Time::from_micros(1_500), DelayModel::Fixed(Duration::ZERO));
        let mut taken = Vec::new();
        take(&mut link, Time::from_micros(2_500), &mut taken);
        link.set_delay(
            Time::from_micros(2_600),
            DelayModel::Fixed(Duration::from_millis(10)),
        );
        take(&mut link, Time::MAX, &mut taken);
        let dues: Vec<_> = taken.iter().map(|packet| packet.0.as_micros()).collect();
        assert_eq!(dues, [6_000, 6_000, 13_000]);
    }

    #[test]
    fn a_link_that_is_down_loses_new_packets_and_delivers_those_in_flight() {
        let mut link = direction("droptail:20p", (0, false), Gso::Off);
        put(&mut link, Time::ZERO, 1, 0, 4, 960, false);
        link.set_up(false);
        put(&mut link, Time::from_micros(1_500), 1, 4, 3, 960, false);
        link.set_up(true);
        put(&mut link, Time::from_micros(1_600), 1, 7, 1, 960, false);
        let mut taken = Vec::new();
        take(&mut link, Time::MAX, &mut taken);
        let numbers: Vec<_> = taken.iter().map(|packet| packet.2 / 960).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 7]);
        let log = link.log();
        assert_eq!((log.arrived, log.losses, log.queue_drops), (8, 3, 0));
    }

    #[test]
    fn a_link_without_limits_holds_nothing_back() {
        let config = LinkConfig {
            queue: QueueSpec::DropTail(Size::Unlimited),
            ..LinkConfig::default()
        };
        let link =
            EmuLink::new(PathDirection::Forward, &config, Duration::ZERO, 1_500).expect("possible");
        let mut link = EmuDirection::new(
            &config,
            link,
            Gso::Auto.window(),
            Store::new(1),
            LinkLog::new(0),
        );
        let now = Time::from_micros(7);
        put(&mut link, now, 1, 0, 8, 1_000, false);
        assert_eq!(link.next_due(), Some(now));
        let mut taken = Vec::new();
        take(&mut link, now, &mut taken);
        assert_eq!((taken.len(), link.log().handovers), (8, 1));
    }
}
