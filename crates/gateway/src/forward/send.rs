//! Send path, from the TUN device to the peers: read, route, enqueue in the sendbox, pace, encrypt,
//! send. Between packets the thread handles the algorithms' commands, the tunnels' timers and
//! reloads.

mod reload;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ccplane_bundle::{Reason, wants_pass_through};
use ccplane_host::{FRAME_BYTES_MAX, Frame, FramePacket as Kept, Head, IpHeaders, Store, Tun};
use ccplane_qdisc::Packet;
use ccplane_udp::{DatagramMarks, Socket};
use ccplane_units::{Duration, Time};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::{ForwardingThread, GatewayState, PeerMap, resolve_endpoints};
use crate::batch::SendBatch;
use crate::config::{AlgorithmSpec, ClassConfig, ClassifierInput, GatewayConfig, classify};
use crate::error::GatewayError;
use crate::peer::{Peer, PeerState, SendboxPacket, encapsulation_overhead, full_packet};
use crate::peer_path::{self, Fit};
use crate::steering::BundleSteering;
use crate::tunnel::{DATA_OVERHEAD_BYTES, HandshakeFault, TICK_INTERVAL};
use crate::uplink::{Share, Uplink};
use crate::{control, mss, outer};

/// Frames, and bytes of frames, read before the queues are served again. The byte limit matters for
/// super-packets (GSO). Same values as the emulator.
const FRAMES_PER_TURN_MAX: usize = 32;
const FRAME_BYTES_PER_TURN_MAX: usize = 256 * 1024;
/// Packets sent to one peer before the next peer is served.
const PEER_PACKETS_PER_TURN_MAX: usize = 64;
/// Packets due within this time are sent together: a wake-up costs as much as ten packets. Same
/// value as the emulator.
const SEND_QUANTUM: Duration = Duration::from_micros(100);
/// Longest sleep when nothing is due.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// Poll interval of a peer's queue while its handshake is in progress.
const HANDSHAKE_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Longest time that packets wait for a handshake. WireGuard retransmits its initiation after 5 s;
/// after 7 s the senders have given up or retransmitted.
const HANDSHAKE_WAIT_MAX: Duration = Duration::from_secs(7);
/// Memory for the packets of all queues, bytes. A 1.875 MB queue of 300-byte packets uses only part
/// of it, but a single queued packet can keep a whole super-packet allocated.
const QUEUE_MEMORY_BYTES_MAX: u64 = 256 << 20;

pub(crate) struct Sending {
    shared: Arc<GatewayState>,
    socket: Socket,
    tun: Arc<Tun>,
    config: GatewayConfig,
    store: Store,
    batch: SendBatch,
    /// Scratch: a reassembled packet.
    packet: Box<[u8]>,
    /// Scratch: a fragment of `packet`.
    fragment: Box<[u8]>,
    schedules: Vec<Option<PeerSchedule>>,
    uplink: Uplink,
    steerings: Vec<(AlgorithmSpec, BundleSteering)>,
    next_tick: Time,
    last_wakeup: Time,
}

/// State of a peer that only this thread uses.
struct PeerSchedule {
    algorithm: AlgorithmSpec,
    /// Time at which the peer is to be served next.
    due: Time,
    /// Share of the uplink.
    share: Share,
    established: bool,
    /// Last handshake fault that was reported.
    fault: Option<HandshakeFault>,
    /// Time since which packets have been waiting for keys.
    waiting_since: Option<Time>,
    reported_too_long: bool,
}

impl PeerSchedule {
    /// Reports new handshake faults, and sessions that were established or lost.
    fn report_keys(&mut self, now: Time, shared: &GatewayState, peer: &Peer, state: &PeerState) {
        let fault = state.tunnel.fault();
        if std::mem::replace(&mut self.fault, fault) != fault
            && let Some(fault) = fault
        {
            tracing::warn!(peer = peer.config.name, "{}", fault.explanation());
            let text = fault.explanation().to_owned();
            shared.events.record(now, &peer.config.name, "keys", text);
        }
        if state.tunnel.is_established() == self.established {
            return;
        }
        self.established = state.tunnel.is_established();
        let text = match self.established {
            true => "session established",
            false => "session expired: the peer does not answer",
        };
        shared
            .events
            .record(now, &peer.config.name, "keys", text.to_owned());
    }

    /// Handles a packet that exceeded the path MTU: queries the kernel for the MTU, and if it has
    /// no answer, reports that once.
    fn report_too_long(&mut self, now: Time, shared: &GatewayState, peer: &Peer) {
        if peer_path::query_path_mtu(shared, peer, now, true)
            || std::mem::replace(&mut self.reported_too_long, true)
        {
            return;
        }
        let text = format!(
            "the path drops packets of {} bytes, and its MTU is unknown; lower `mtu`",
            shared.site.mtu
        );
        shared
            .events
            .record(now, &peer.config.name, "too_long", text);
    }
}

impl Sending {
    pub fn new(
        shared: Arc<GatewayState>,
        socket: Socket,
        tun: Arc<Tun>,
        config: GatewayConfig,
    ) -> Result<Sending, GatewayError> {
        let mut sending = Sending {
            next_tick: shared.now(),
            last_wakeup: shared.now(),
            shared,
            socket,
            tun,
            store: Store::new(QUEUE_MEMORY_BYTES_MAX),
            batch: SendBatch::new(),
            packet: vec![0; FRAME_BYTES_MAX].into_boxed_slice(),
            fragment: vec![0; FRAME_BYTES_MAX].into_boxed_slice(),
            schedules: Vec::new(),
            uplink: Uplink::new(
                Time::ZERO,
                config.site.uplink_rate,
                full_packet(&config.site),
            ),
            steerings: Vec::new(),
            config,
        };
        let found = resolve_endpoints(&sending.shared, &sending.config.peers);
        let mut table = PeerMap::default();
        for peer in sending.config.peers.clone() {
            sending.add(&mut table, peer, &found)?;
        }
        table.rebuild_routes();
        sending.shared.set_table(table);
        Ok(sending)
    }

    /// Runs until the gateway stops.
    pub fn run(mut self) -> Result<(), GatewayError> {
        // The default timer slack of 50 µs would delay packets.
        let _ = nix::sys::prctl::set_timerslack(1);
        while !self.shared.is_stopped() {
            self.shared.record_turn(ForwardingThread::Send);
            for reload in self.shared.take_reloads() {
                let outcome = self.reload(&reload);
                let _ = reload.result.send(outcome);
            }
            let table = self.shared.table();
            if self.shared.now() >= self.next_tick {
                self.tick(&table)?;
            }
            for (_, steering) in &mut self.steerings {
                steering.process(self.shared.now());
            }
            let due = self.serve(&table)?;
            if self.wait(due)? {
                self.read_packets(&table)?;
            }
        }
        Ok(())
    }

    /// Serves every peer that is due and returns the next deadline.
    fn serve(&mut self, table: &PeerMap) -> Result<Time, GatewayError> {
        let mut next = self.next_tick;
        let held = self.schedules.iter().flatten().any(|lane| lane.share.held);
        let first = (self.uplink.start_round(held) as usize).min(table.peers.len());
        let (later, sooner) = table.peers.split_at(first);
        for peer in sooner.iter().chain(later).flatten() {
            let due = self.schedule(peer.index).map_or(Time::MAX, |lane| lane.due);
            if due <= self.shared.now() {
                self.serve_peer(peer)?;
            }
            next = next.min(self.schedule(peer.index).map_or(Time::MAX, |lane| lane.due));
        }
        Ok(next)
    }

    fn schedule(&mut self, index: u32) -> Option<&mut PeerSchedule> {
        self.schedules.get_mut(index as usize)?.as_mut()
    }

    fn serve_peer(&mut self, peer: &Peer) -> Result<(), GatewayError> {
        let Some(lane) = self
            .schedules
            .get_mut(peer.index as usize)
            .and_then(Option::as_mut)
        else {
            return Ok(());
        };
        let now = self.shared.now();
        self.batch.begin_turn();
        let mut state = peer.lock();
        let steering = self
            .steerings
            .iter_mut()
            .find(|(algorithm, _)| *algorithm == lane.algorithm);
        if let Some((_, steering)) = steering {
            drive(now, peer.index.into(), &mut state, steering);
        }
        // The peer gateway may have restarted and lost its keys. WireGuard alone would start a new
        // handshake only after 15 s.
        let lost = report_changes(&self.shared, peer, &mut state);
        if let (true, Some(to)) = (lost, state.endpoint)
            && let Some(bytes) = state.tunnel.rekey(self.batch.buffer())
        {
            self.batch.add(to, DatagramMarks::default(), bytes);
            self.batch.flush(&self.socket)?;
        }
        lane.report_keys(now, &self.shared, peer, &state);
        let (Some(to), true) = (state.endpoint, lane.established) else {
            return self.initiate_handshake(now, peer, state);
        };
        lane.waiting_since = None;
        let store = &mut self.store;
        let mut too_long = false;
        self.uplink
            .begin_service(now, peer.index, &mut lane.share, state.sendbox.sent_bytes());
        if let Some(notice) = state.sendbox.poll_notice(now) {
            // The notice's own packet is not an epoch boundary.
            let room = self.batch.buffer();
            if let Some(bytes) =
                state.seal_message(now, peer.tunnel_addresses, &notice.encode(), room)
            {
                self.batch.add(to, DatagramMarks::default(), bytes);
                too_long |= self.batch.flush(&self.socket)?.too_long;
            }
        }
        let batch_datagrams_max = self.socket.batch_max();
        let mut packets = 0;
        while state.sendbox.is_ready(now)
            && packets < PEER_PACKETS_PER_TURN_MAX
            && !self.batch.is_socket_full()
            && self.uplink.can_send(now, &lane.share)
        {
            packets += 1;
            let mut drops = |dropped: SendboxPacket, _| store.release(dropped.packet.frame, 1);
            let Some(waiting) = state.sendbox.dequeue(now, &mut drops) else {
                break;
            };
            let whole = assemble_packet(store, &waiting, &mut self.packet);
            store.release(waiting.packet.frame, 1);
            let Some(bytes) = whole else { continue };
            let packet = &mut self.packet[..bytes];
            mss::clamp(packet, state.path.mtu());
            let dscp = if self.config.site.copy_dscp {
                outer::dscp(packet)
            } else {
                0
            };
            let ecn = waiting.ecn() as u8;
            let marks = DatagramMarks { ecn, dscp };
            let mut leave = |state: &mut PeerState, piece: &[u8]| -> Result<bool, GatewayError> {
                if !self.batch.can_add(
                    to,
                    marks,
                    piece.len() + DATA_OVERHEAD_BYTES,
                    batch_datagrams_max,
                ) {
                    too_long |= self.batch.flush(&self.socket)?.too_long;
                }
                let Some(bytes) = state.seal(now, piece, self.batch.buffer()) else {
                    // The session expired. The remaining packets wait for a new one.
                    state.counts.unreachable += 1;
                    return Ok(false);
                };
                self.batch.add(to, marks, bytes);
                self.uplink
                    .charge(now, &mut lane.share, state.sendbox.sent_bytes());
                Ok(true)
            };
            let sealed = match state.path.fit(packet) {
                Fit::Whole => leave(&mut state, packet)?,
                Fit::Fragmented(mut fragments) => {
                    state.counts.fragmented += 1;
                    let mut sealed = true;
                    while sealed && let Some(bytes) = fragments.next(&mut self.fragment) {
                        sealed = leave(&mut state, &self.fragment[..bytes])?;
                    }
                    sealed
                }
                Fit::TooBig => {
                    peer_path::send_too_big(now, &mut state, packet, &self.tun);
                    true
                }
            };
            if !sealed {
                break;
            }
        }
        // Flush while the peer is locked: packets that the receiving thread seals next have higher
        // numbers and must not overtake these.
        too_long |= self.batch.flush(&self.socket)?.too_long;
        self.uplink
            .end_service(peer.index, &mut lane.share, state.sendbox.is_ready(now));
        lane.due = state.sendbox.next_deadline();
        if lane.share.held {
            lane.due = self.uplink.free_at().min(state.sendbox.next_tick());
        }
        if too_long {
            state.counts.too_long += 1;
            drop(state);
            lane.report_too_long(now, &self.shared, peer);
        }
        Ok(())
    }

    /// Handles packets for a peer without a session or without an endpoint: starts a handshake, and
    /// drops packets that have waited too long.
    fn initiate_handshake(
        &mut self,
        now: Time,
        peer: &Peer,
        mut state: std::sync::MutexGuard<'_, PeerState>,
    ) -> Result<(), GatewayError> {
        let Some(lane) = self
            .schedules
            .get_mut(peer.index as usize)
            .and_then(Option::as_mut)
        else {
            return Ok(());
        };
        lane.due = now + HANDSHAKE_POLL_INTERVAL;
        lane.share.held = false;
        if state.sendbox.backlog().packets == 0 {
            lane.waiting_since = None;
            return Ok(());
        }
        let since = *lane.waiting_since.get_or_insert(now);
        if state.endpoint.is_none() || now.since(since) > HANDSHAKE_WAIT_MAX {
            let store = &mut self.store;
            let mut dropped = 0;
            let mut drops = |waiting: SendboxPacket, _| store.release(waiting.packet.frame, 1);
            let mut gone = Vec::new();
            // A rate limit may hold back some of them; they are dropped on the next call.
            while let Some(waiting) = state.sendbox.dequeue(now, &mut drops) {
                gone.push(waiting.packet.frame);
                dropped += 1;
            }
            gone.into_iter()
                .for_each(|frame| self.store.release(frame, 1));
            state.counts.unreachable += dropped;
            return Ok(());
        }
        if let (Some(to), Some(bytes)) = (
            state.endpoint,
            state.tunnel.initiate_handshake(self.batch.buffer()),
        ) {
            self.batch.add(to, DatagramMarks::default(), bytes);
            self.batch.flush(&self.socket)?;
        }
        Ok(())
    }

    /// Runs the timers of the tunnels.
    fn tick(&mut self, table: &PeerMap) -> Result<(), GatewayError> {
        let now = self.shared.now();
        self.next_tick = now + Duration::from(TICK_INTERVAL);
        self.shared.demux.tick();
        self.store.reclaim(now);
        self.batch.begin_turn();
        for peer in table.iter() {
            peer_path::query_path_mtu(&self.shared, peer, now, false);
            let mut state = peer.lock();
            self.probe(now, peer, &mut state)?;
            let Some((bytes, number)) = state.tunnel.tick(self.batch.buffer()) else {
                continue;
            };
            if let Some(number) = number {
                state.on_sent(now, number, bytes);
            }
            if let Some(to) = state.endpoint {
                self.batch.add(to, DatagramMarks::default(), bytes);
                self.batch.flush(&self.socket)?;
            }
        }
        Ok(())
    }

    /// Sends a peer's path MTU probe if it is due.
    fn probe(&mut self, now: Time, peer: &Peer, state: &mut PeerState) -> Result<(), GatewayError> {
        let Some(to) = state.endpoint else {
            return Ok(());
        };
        let Some(probe) = state.next_probe(now) else {
            return Ok(());
        };
        let scratch = [&mut self.fragment[..], &mut self.packet[..]];
        if let Some(bytes) = state.seal_probe(
            now,
            peer.tunnel_addresses,
            probe,
            scratch,
            self.batch.buffer(),
        ) {
            self.batch.add(to, DatagramMarks::default(), bytes);
            // If the probe exceeds the MTU of the local interface, it counts as lost.
            self.batch.flush(&self.socket)?;
        }
        Ok(())
    }

    /// Reads packets of the site from the TUN device into the sendboxes.
    fn read_packets(&mut self, table: &PeerMap) -> Result<(), GatewayError> {
        let failed = GatewayError::system("read from the device");
        let counts = &self.shared.counts;
        let mut bytes = 0;
        for _ in 0..FRAMES_PER_TURN_MAX {
            let Some(room) = self.store.reserve(FRAME_BYTES_MAX) else {
                let mut nowhere = [0];
                if self.tun.read(&mut nowhere).map_err(&failed)?.is_none() {
                    break;
                }
                counts.no_memory.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            let Some(length) = self.tun.read(room).map_err(&failed)? else {
                break;
            };
            bytes += length;
            let now = self.shared.now();
            let read = self.store.reserved(length);
            let headers = IpHeaders::parse(Frame::packet(read));
            let (Ok(frame), Some([_, destination])) = (Frame::parse(read), headers.addresses)
            else {
                continue;
            };
            let Some(peer) = table
                .routes
                .lookup(destination)
                .and_then(|peer| table.peer(peer.0))
            else {
                counts.no_route.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            // Real control messages never come through the device, so a local process or a host of
            // the site is posing as this gateway.
            if let Some([own, far]) = peer.tunnel_addresses
                && control::is_message(Frame::packet(read), own, far)
            {
                peer.lock().counts.spoofed_control += 1;
                continue;
            }
            let class = classify_packet(&self.config.classes, &headers);
            let kept = self.store.commit(length, frame, now, headers.ports);
            let mut state = peer.lock();
            let overhead = encapsulation_overhead(state.endpoint) as u16;
            let store = &mut self.store;
            let mut drops = |dropped: SendboxPacket, _| store.release(dropped.packet.frame, 1);
            for index in 0..frame.packets() {
                let kept = Kept::new(kept, index, frame.bytes(index), &headers).with_class(class);
                state.sendbox.enqueue(
                    now,
                    SendboxPacket {
                        packet: kept,
                        encapsulation_bytes: overhead,
                    },
                    &mut drops,
                );
            }
            let due = state.sendbox.next_deadline();
            drop(state);
            if let Some(lane) = self
                .schedules
                .get_mut(peer.index as usize)
                .and_then(Option::as_mut)
                && lane.established
            {
                lane.due = due;
            }
            if bytes >= FRAME_BYTES_PER_TURN_MAX {
                break;
            }
        }
        Ok(())
    }

    /// Sleeps until a deadline, a packet or a wake-up. Returns whether the TUN device is readable.
    fn wait(&mut self, due: Time) -> Result<bool, GatewayError> {
        let now = self.shared.now();
        let until_due = due.since(now).min(SLEEP_MAX);
        let sleep = if until_due == Duration::ZERO {
            Duration::ZERO
        } else {
            until_due.max((self.last_wakeup + SEND_QUANTUM).since(now))
        };
        let mut polled = vec![
            PollFd::new(self.tun.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.shared.wake.as_fd(), PollFlags::POLLIN),
        ];
        let orders = self
            .steerings
            .iter()
            .filter_map(|(_, steering)| steering.as_fd());
        polled.extend(orders.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        match ppoll(
            &mut polled,
            Some(TimeSpec::from_duration(sleep.to_std())),
            None,
        ) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(why) => return Err(GatewayError::system("wait for packets")(why.into())),
        }
        let came = |at: usize| polled.get(at).and_then(PollFd::any).unwrap_or(false);
        let (readable, woken) = (came(0), came(1));
        if woken {
            let _ = self.shared.wake.read();
            // A session may have been established or a limit lifted, so every peer is due.
            self.schedules
                .iter_mut()
                .flatten()
                .for_each(|lane| lane.due = Time::ZERO);
        }
        if sleep > Duration::ZERO {
            self.last_wakeup = self.shared.now();
        }
        Ok(readable)
    }
}

/// Reports the mode changes of a bundle. Returns whether one of them was due to missing feedback.
fn report_changes(shared: &GatewayState, peer: &Peer, state: &mut PeerState) -> bool {
    let mut silent = false;
    while let Some(change) = state.sendbox.next_mode_change() {
        silent |= change.reason == Reason::NoFeedback;
        let seen = &change.path;
        let text = format!(
            "{} to {}, {}: RTT {} ms over {}, S {}, R {}, {} bytes queued",
            change.from.name(),
            change.to.name(),
            change.reason.name(),
            milliseconds(seen.rtt),
            milliseconds(seen.min_rtt),
            seen.sent,
            seen.received,
            seen.waiting
        );
        shared
            .events
            .record(change.at, &peer.config.name, "mode", text);
    }
    silent
}

/// Writes a queued packet into `room`, segmented from its frame and with its checksum completed.
/// Returns its length, or `None` if the frame is malformed.
fn assemble_packet(store: &Store, waiting: &SendboxPacket, room: &mut [u8]) -> Option<usize> {
    let Kept {
        frame,
        index,
        marked,
        ..
    } = waiting.packet;
    let mut head = Head::default();
    let kept = store.get(frame).frame;
    let [first, rest] = kept
        .write_packet(store.bytes(frame), index, marked, &mut head)
        .ok()?;
    let bytes = first.len() + rest.len();
    room[..first.len()].copy_from_slice(first);
    room[first.len()..bytes].copy_from_slice(rest);
    Some(bytes)
}

/// Runs the bundle's deadlines and, if it is due, the algorithm's program.
fn drive(now: Time, bundle: u64, state: &mut PeerState, steering: &mut BundleSteering) {
    state.sendbox.on_deadline(now);
    let Some(mut lent) = steering.bundle(bundle) else {
        return;
    };
    if !state.sendbox.drive(now, &mut lent) {
        return;
    }
    state.gauges = steering.gauges(bundle);
    state
        .sendbox
        .set_pass_through(now, wants_pass_through(&state.gauges));
}

/// Returns the class of a packet with these headers.
fn classify_packet(classes: &[ClassConfig], headers: &IpHeaders) -> u8 {
    let Some([source, destination]) = headers.addresses else {
        return 0;
    };
    let input = ClassifierInput {
        dscp: headers.dscp,
        protocol: headers.protocol,
        source,
        destination,
        ports: headers.ports,
    };
    classify(classes, &input)
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}
