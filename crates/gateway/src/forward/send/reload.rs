//! Reloads: adds, changes and removes peers while packets are queued.

use std::sync::{Arc, Mutex};

use ccplane_bundle::Sendbox;
use ccplane_host::{Frame, IpHeaders};
use ccplane_udp::DatagramMarks;
use ccplane_units::Time;

use super::{PeerSchedule, Sending, classify_packet};
use crate::config::{AlgorithmSpec, GatewayConfig, PeerConfig};
use crate::error::GatewayError;
use crate::forward::{PeerMap, PeerRoutes, Reload};
use crate::peer::{Peer, PeerState, SendboxPacket, class_names, full_packet, sendbox_config};
use crate::steering::BundleSteering;
use crate::uplink::{Share, Uplink};

impl Sending {
    /// Adds a peer in a free slot.
    pub(super) fn add(
        &mut self,
        table: &mut PeerMap,
        peer: PeerConfig,
        found: &PeerRoutes,
    ) -> Result<(), GatewayError> {
        let now = self.shared.now();
        let place = table.free_slot();
        let kept = peer.endpoint.is_some();
        let tunnel = self
            .shared
            .demux
            .tunnel(place, peer.public_key, peer.preshared_key, kept);
        let mut state = PeerState::new(now, tunnel, &peer, &self.config, self.shared.observe)?;
        state.endpoint = found.get(&peer.public_key).copied();
        self.begin(now, place, &peer)?;
        table.insert(Peer {
            index: place,
            tunnel_addresses: tunnel_addresses(&self.config, &peer),
            state: Arc::new(Mutex::new(state)),
            config: peer,
        });
        Ok(())
    }

    /// Returns the index of a running algorithm; starts it if it is not running.
    fn steering(&mut self, now: Time, algorithm: &AlgorithmSpec) -> Result<usize, GatewayError> {
        if let Some(at) = self
            .steerings
            .iter()
            .position(|(known, _)| known == algorithm)
        {
            return Ok(at);
        }
        let made =
            (self.shared.create_algorithm)(algorithm).map_err(|why| GatewayError::Algorithm {
                algorithm: algorithm.to_string(),
                why,
            })?;
        self.steerings
            .push((algorithm.clone(), BundleSteering::start(now, made)?));
        Ok(self.steerings.len() - 1)
    }

    /// Opens the peer's bundle with its algorithm.
    fn begin(&mut self, now: Time, place: u32, peer: &PeerConfig) -> Result<(), GatewayError> {
        let at = self.steering(now, &peer.algorithm)?;
        if let Some((_, steering)) = self.steerings.get_mut(at) {
            steering.open(now, place.into(), full_packet(&self.config.site));
        }
        let at = place as usize;
        if self.schedules.len() <= at {
            self.schedules.resize_with(at + 1, || None);
        }
        self.schedules[at] = Some(PeerSchedule {
            algorithm: peer.algorithm.clone(),
            due: now,
            share: Share::default(),
            established: false,
            fault: None,
            waiting_since: None,
            reported_too_long: false,
        });
        Ok(())
    }

    /// Closes the peer's bundle.
    fn end(&mut self, peer: &Peer) {
        let now = self.shared.now();
        let totals = peer.lock().sendbox.status(now).totals;
        let Some(lane) = self
            .schedules
            .get_mut(peer.index as usize)
            .and_then(Option::take)
        else {
            return;
        };
        let steering = self
            .steerings
            .iter_mut()
            .find(|(algorithm, _)| *algorithm == lane.algorithm);
        if let Some((_, steering)) = steering {
            steering.close(
                now,
                peer.index.into(),
                totals.received_bytes,
                totals.missing,
            );
        }
    }

    /// Stops the algorithms that no bundle uses.
    fn retire(&mut self) {
        let in_use = |algorithm: &AlgorithmSpec| {
            self.schedules
                .iter()
                .flatten()
                .any(|lane| lane.algorithm == *algorithm)
        };
        self.steerings.retain(|(algorithm, _)| in_use(algorithm));
    }

    /// Switches to another configuration. On error, nothing has changed.
    ///
    /// The steps follow from the table and not from the previous configuration, so that an existing
    /// peer is never added twice.
    pub(super) fn reload(&mut self, reload: &Reload) -> Result<(), GatewayError> {
        let now = self.shared.now();
        let old = self.shared.table();
        let before = std::mem::replace(&mut self.config, reload.config.clone());
        // Everything that can fail is done before anything changes.
        let mut table = match self.prepare(now, &old, &reload.addresses) {
            Ok(table) => table,
            Err(why) => {
                self.config = before;
                self.retire();
                return Err(why);
            }
        };
        let classes = before.classes != self.config.classes;
        if before.site.uplink_rate != self.config.site.uplink_rate {
            let site = &self.config.site;
            self.uplink = Uplink::new(now, site.uplink_rate, full_packet(site));
        }
        for peer in old.iter() {
            let peers = &self.config.peers;
            match peers
                .iter()
                .find(|new_config| is_for_peer(peer, new_config))
            {
                Some(to) => {
                    let to = to.clone();
                    self.change(now, peer, &to, classes, &reload.addresses);
                    table.insert(Peer {
                        index: peer.index,
                        tunnel_addresses: tunnel_addresses(&self.config, &to),
                        state: Arc::clone(&peer.state),
                        config: to,
                    });
                }
                None => {
                    self.drain(now, peer);
                    self.end(peer);
                    table.remove(peer);
                }
            }
        }
        self.retire();
        table.rebuild_routes();
        self.shared.set_table(table);
        Ok(())
    }

    /// Starts the algorithms and checks the queues of the new configuration. Returns the old table
    /// extended by the new peers.
    fn prepare(
        &mut self,
        now: Time,
        old: &PeerMap,
        found: &PeerRoutes,
    ) -> Result<PeerMap, GatewayError> {
        for peer in self.config.peers.clone() {
            let settings = sendbox_config(&peer, &self.config, false);
            Sendbox::<SendboxPacket>::new(now, &settings).map_err(|why| GatewayError::Queue {
                peer: peer.name.clone(),
                why,
            })?;
            self.steering(now, &peer.algorithm)?;
        }
        let mut table = PeerMap {
            peers: old.peers.clone(),
            by_key: old.by_key.clone(),
            ..PeerMap::default()
        };
        for peer in self.config.peers.clone() {
            let before = old
                .by_key
                .get(&peer.public_key)
                .and_then(|place| old.peer(*place));
            if before.is_some_and(|old_peer| is_for_peer(old_peer, &peer)) {
                continue;
            }
            // A peer without a configured endpoint keeps the one learned from its packets, also
            // when its preshared key changes.
            let learned = before.and_then(|peer| peer.lock().endpoint);
            let mut found = found.clone();
            if let (None, Some(endpoint)) = (&peer.endpoint, learned) {
                found.insert(peer.public_key, endpoint);
            }
            if let Err(why) = self.add(&mut table, peer, &found) {
                let added = table.iter().filter(|peer| old.peer(peer.index).is_none());
                added.for_each(|peer| self.end(peer));
                return Err(why);
            }
        }
        Ok(table)
    }

    /// Applies a peer's new settings. `classes`: the traffic classes changed too.
    fn change(
        &mut self,
        now: Time,
        peer: &Peer,
        to: &PeerConfig,
        classes: bool,
        found: &PeerRoutes,
    ) {
        let from = &peer.config;
        let outcome = match from.endpoint != to.endpoint {
            true => self.relocate(peer, to, found),
            false => Ok(()),
        };
        let outcome = outcome.and_then(|()| self.requeue(now, peer, to, classes));
        let outcome = outcome.and_then(|()| match from.algorithm != to.algorithm {
            true => {
                self.end(peer);
                self.begin(now, peer.index, to)
            }
            false => Ok(()),
        });
        if let Err(why) = outcome {
            // Cannot happen: `prepare` has already created all of it once.
            tracing::error!("{}: {why}", to.name);
        }
    }

    /// Moves a peer to its newly configured endpoint. Starts a handshake at once if there is no
    /// session.
    fn relocate(
        &mut self,
        peer: &Peer,
        new_config: &PeerConfig,
        found: &PeerRoutes,
    ) -> Result<(), GatewayError> {
        let mut state = peer.lock();
        state.tunnel.set_keepalive(new_config.endpoint.is_some());
        let Some(to) = found.get(&new_config.public_key).copied() else {
            return Ok(());
        };
        state.endpoint = Some(to);
        if state.tunnel.is_established() {
            return Ok(());
        }
        self.batch.begin_turn();
        if let Some(bytes) = state.tunnel.rekey(self.batch.buffer()) {
            self.batch.add(to, DatagramMarks::default(), bytes);
            self.batch.flush(&self.socket)?;
        }
        Ok(())
    }

    /// Applies a peer's new queues and rate bounds. Queued packets are kept and classified again.
    fn requeue(
        &mut self,
        now: Time,
        peer: &Peer,
        new_config: &PeerConfig,
        classes: bool,
    ) -> Result<(), GatewayError> {
        let settings = sendbox_config(new_config, &self.config, self.shared.observe);
        let mut state = peer.lock();
        state
            .sendbox
            .set_bounds(now, settings.min_rate, settings.max_rate);
        if !classes && *state.sendbox.queue() == settings.queue {
            return Ok(());
        }
        let (store, all) = (&self.store, &self.config.classes);
        let again = |waiting: SendboxPacket| {
            let headers = IpHeaders::parse(Frame::packet(store.bytes(waiting.packet.frame)));
            let kept = waiting.packet.with_class(classify_packet(all, &headers));
            SendboxPacket {
                packet: kept,
                ..waiting
            }
        };
        let mut gone = Vec::new();
        let mut drops = |dropped: SendboxPacket, _| gone.push(dropped.packet.frame);
        let outcome = state
            .sendbox
            .requeue(now, &settings.queue, again, &mut drops);
        state.classes = class_names(&self.config);
        drop(state);
        gone.into_iter()
            .for_each(|frame| self.store.release(frame, 1));
        outcome.map_err(|why| GatewayError::Queue {
            peer: new_config.name.clone(),
            why,
        })
    }

    /// Drops all packets queued for a removed peer.
    fn drain(&mut self, now: Time, peer: &Peer) {
        let mut state = peer.lock();
        state.sendbox.set_disabled_by_operator(now, true);
        let store = &mut self.store;
        let mut gone = Vec::new();
        let mut drops = |dropped: SendboxPacket, _| store.release(dropped.packet.frame, 1);
        while let Some(waiting) = state.sendbox.dequeue(now, &mut drops) {
            gone.push(waiting.packet.frame);
        }
        gone.into_iter()
            .for_each(|frame| self.store.release(frame, 1));
    }
}

/// Returns whether the tunnel of `peer` can serve the peer of `config`: public key and preshared
/// key are the same.
fn is_for_peer(peer: &Peer, config: &PeerConfig) -> bool {
    let keys = |config: &PeerConfig| (config.public_key, config.preshared_key);
    keys(&peer.config) == keys(config)
}

/// Returns both tunnel addresses, this site's first.
fn tunnel_addresses(config: &GatewayConfig, peer: &PeerConfig) -> Option<[std::net::IpAddr; 2]> {
    let far = peer.address?;
    Some([config.tunnel_address(far)?, far])
}
