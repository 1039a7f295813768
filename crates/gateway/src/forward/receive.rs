//! Receive path, from the peers to the TUN device: receive, decrypt, check the source address,
//! count for the receivebox, write. This thread also sends the feedback.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ccplane_host::{Joiner, Tun, set_ecn};
use ccplane_qdisc::Ecn;
use ccplane_udp::{DatagramMarks, Inbox, Socket, passes};
use ccplane_units::{Duration, Time};

use super::handshakes::finish_handshake;
use super::{ForwardingThread, GatewayState, PeerMap, wait_readable};
use crate::error::GatewayError;
use crate::peer::{Peer, PeerState};
use crate::routes::PeerId;
use crate::tunnel::{DatagramKind, Recipient};
use crate::{control, mss, outer, peer_path};

/// Longest time before the thread reacts to a stop or a new table.
pub(super) const STOP_LATENCY_MAX: Duration = Duration::from_millis(100);
/// Minimum interval between `endpoint` events of a peer.
const ENDPOINT_EVENT_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Holds the longest datagram, or a handshake message.
pub(super) const BUFFER_BYTES: usize = 1 << 16;

pub(crate) struct Receiving {
    shared: Arc<GatewayState>,
    socket: Socket,
    tun: Arc<Tun>,
    joiner: Joiner,
    buffer: Box<[u8]>,
    /// Second buffer, for replies sent while a packet is in `room`.
    reply_buffer: Box<[u8]>,
    /// Time at which each peer's feedback is due, by peer index.
    feedback_due: BTreeMap<u32, Time>,
}

impl Receiving {
    pub fn new(shared: Arc<GatewayState>, socket: Socket, tun: Arc<Tun>) -> Receiving {
        Receiving {
            joiner: Joiner::new(tun.supports_udp_segmentation()),
            shared,
            socket,
            tun,
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            reply_buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            feedback_due: BTreeMap::new(),
        }
    }

    /// Runs until the gateway stops.
    pub fn run(mut self) -> Result<(), GatewayError> {
        let mut inbox = Inbox::new();
        while !self.shared.is_stopped() {
            self.shared.record_turn(ForwardingThread::Receive);
            self.wait()?;
            let table = self.shared.table();
            match self.socket.receive(&mut inbox) {
                Ok(received) => {
                    let now = self.shared.now();
                    let mut trouble = None;
                    received.for_each(|from, bits, datagram| {
                        if let Err(why) =
                            self.on_datagram(now, &table, from, Ecn::from_bits(bits), datagram)
                        {
                            trouble = Some(why);
                        }
                    });
                    trouble.map_or(Ok(()), Err)?;
                    self.flush_run();
                }
                Err(why) if passes(&why) => {}
                Err(why) => return Err(GatewayError::system("receive from peers")(why)),
            }
            self.send_due_feedback(&table)?;
        }
        Ok(())
    }

    /// Sleeps until a datagram arrives or feedback is due.
    fn wait(&self) -> Result<(), GatewayError> {
        let now = self.shared.now();
        let due = self
            .feedback_due
            .values()
            .min()
            .map_or(STOP_LATENCY_MAX, |due| due.since(now).min(STOP_LATENCY_MAX));
        wait_readable(&self.socket, due).map_err(GatewayError::system("wait for datagrams"))
    }

    /// Processes one datagram.
    fn on_datagram(
        &mut self,
        now: Time,
        table: &PeerMap,
        from: SocketAddr,
        outer: Ecn,
        datagram: &[u8],
    ) -> Result<(), GatewayError> {
        let address = from.ip().to_canonical();
        let place = match self.shared.demux.recipient(datagram) {
            Recipient::Index(place) => Some(place),
            _ => None,
        };
        let Some(peer) = place.and_then(|place| table.peer(place)) else {
            self.shared
                .counts
                .unknown_datagrams
                .fetch_add(1, Ordering::Relaxed);
            return Ok(());
        };
        let mut state = peer.lock();
        match state.tunnel.open(address, datagram, &mut self.buffer) {
            DatagramKind::Refused(why) => {
                state.counts.count_refused(why);
                Ok(())
            }
            DatagramKind::Handshake { answer, authentic } => {
                let outcome = (answer, authentic);
                finish_handshake(
                    &self.shared,
                    &self.socket,
                    (peer, state),
                    from,
                    outcome,
                    &mut self.buffer,
                )
            }
            DatagramKind::Packet {
                bytes,
                number,
                source,
            } => {
                update_endpoint(&self.shared, peer, &mut state, from);
                state.on_received(now, number, datagram.len(), from, outer);
                let mut passes = false;
                if let Some(source) = source {
                    if table.routes.allows_source(PeerId(peer.index), source) {
                        passes = self.process_packet(now, peer, &mut state, bytes, outer);
                    } else {
                        state.counts.foreign_source += 1;
                    }
                }
                self.send_feedback(now, peer, &mut state)?;
                // Unlock the peer before the slow write to the device, so that the sending thread
                // can use it.
                drop(state);
                if passes {
                    self.append_to_run(bytes);
                }
                Ok(())
            }
        }
    }

    /// Processes a decrypted packet whose source address is valid: a control message or a packet
    /// for the site. Returns true if the packet is to be written to the device.
    fn process_packet(
        &mut self,
        now: Time,
        peer: &Peer,
        state: &mut PeerState,
        bytes: usize,
        outer: Ecn,
    ) -> bool {
        let packet = &mut self.buffer[..bytes];
        if let Some([own, far]) = peer.tunnel_addresses
            && let Some(message) = control::read(packet, far, own)
        {
            let before = state.sendbox.next_deadline();
            let mtu = state.path.mtu();
            state.on_control_message(now, message, bytes);
            peer_path::report_search(&self.shared, peer, &state.path, mtu, now);
            if state.sendbox.next_deadline() < before {
                self.shared.wake();
            }
            return false;
        }
        state.warrant_feedback();
        state.counts.received += 1;
        state.counts.received_bytes += bytes as u64;
        mss::clamp(packet, state.path.mtu());
        let inner = outer::ecn(packet);
        match outer::combine(inner, outer) {
            Some(combined) if combined != inner => set_ecn(packet, combined),
            Some(_) => {}
            None => {
                state.counts.ce_without_ect += 1;
                return false;
            }
        }
        true
    }

    /// Appends the packet to the current GRO run, or starts a new run if it does not fit.
    fn append_to_run(&mut self, bytes: usize) {
        let packet = &self.buffer[..bytes];
        if !self.joiner.add(packet).unwrap_or(true) {
            write_run(&self.shared, &self.tun, &mut self.joiner);
            let _ = self.joiner.add(packet);
        }
    }

    /// Writes the current run to the device.
    fn flush_run(&mut self) {
        write_run(&self.shared, &self.tun, &mut self.joiner);
    }

    /// Sends all feedback that is due.
    fn send_due_feedback(&mut self, table: &PeerMap) -> Result<(), GatewayError> {
        let now = self.shared.now();
        let due: Vec<u32> = self
            .feedback_due
            .iter()
            .filter(|(_, due)| **due <= now)
            .map(|(place, _)| *place)
            .collect();
        for place in due {
            match table.peer(place) {
                Some(peer) => self.send_feedback(now, peer, &mut peer.lock())?,
                None => drop(self.feedback_due.remove(&place)),
            }
        }
        Ok(())
    }

    fn send_feedback(
        &mut self,
        now: Time,
        peer: &Peer,
        state: &mut PeerState,
    ) -> Result<(), GatewayError> {
        if let Some(feedback) = state.poll_feedback(now)
            && let Some(to) = state.endpoint
            && let Some(bytes) = state.seal_message(
                now,
                peer.tunnel_addresses,
                &feedback.encode(),
                &mut self.reply_buffer,
            )
        {
            send(&self.socket, to, &self.reply_buffer[..bytes])?;
        }
        if let Some(ack) = state.probe_ack.take()
            && let Some(to) = state.endpoint
            && let Some(bytes) = state.seal_message(
                now,
                peer.tunnel_addresses,
                &ack.encode(),
                &mut self.reply_buffer,
            )
        {
            send(&self.socket, to, &self.reply_buffer[..bytes])?;
        }
        match state.next_feedback() {
            Some(due) => drop(self.feedback_due.insert(peer.index, due)),
            None => drop(self.feedback_due.remove(&peer.index)),
        }
        Ok(())
    }
}

/// Updates the endpoint of a peer to the source of its last authenticated datagram (roaming). The
/// event is rate-limited, so that an address that changes with every datagram does not fill the
/// log.
pub(super) fn update_endpoint(
    shared: &GatewayState,
    peer: &Peer,
    state: &mut PeerState,
    from: SocketAddr,
) {
    // Port 0 is not a valid destination.
    if from.port() == 0 || state.endpoint == Some(from) {
        return;
    }
    state.endpoint = Some(from);
    let now = shared.now();
    state.path.search_mut().restart(now);
    if state
        .last_endpoint_event
        .is_none_or(|before| now.since(before) >= ENDPOINT_EVENT_INTERVAL_MIN)
    {
        state.last_endpoint_event = Some(now);
        let text = format!("endpoint is now {from}");
        shared
            .events
            .record(now, &peer.config.name, "endpoint", text);
    }
}

/// Sends a datagram. Returns false if it was dropped because the socket is full.
pub(super) fn send(socket: &Socket, to: SocketAddr, datagram: &[u8]) -> Result<bool, GatewayError> {
    match socket.send(to, datagram, datagram.len(), DatagramMarks::default()) {
        Ok(_) => Ok(true),
        Err(why) if why.kind() == std::io::ErrorKind::WouldBlock || passes(&why) => Ok(false),
        Err(why) => Err(GatewayError::system("send to a peer")(why)),
    }
}

fn write_run(shared: &GatewayState, tun: &Tun, joiner: &mut Joiner) {
    if let Some(frame) = joiner.finish()
        && tun.write([frame, &[]]).is_err()
    {
        shared.counts.refused.fetch_add(1, Ordering::Relaxed);
    }
}
