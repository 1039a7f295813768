//! Handshakes in progress of a listening endpoint, within bounds.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use ccplane_transport::{Proof, Segment, SideData};
use ccplane_units::{Duration, Time};

use super::DropReason;
use super::flight::{write_alert, write_part};
use super::quota::origin;
use crate::codec::{ClientAddress, CodecError, Cover, Crypto, Envelope, PACKET_NUMBER_BYTES};
use crate::tls::{Handshake, Keys, Level};

/// Maximum number of handshakes of unverified clients, and as many again of verified ones. Each
/// takes about 8 kB. With a smaller limit, a flood of forged hellos sooner costs every client
/// another round trip; a larger one gives more memory to anyone.
pub const PENDING_HANDSHAKES_MAX: usize = 256;

/// Maximum number of handshakes per verified address. A smaller limit makes users behind one
/// address exclude each other; a larger one lets one host exclude all others.
const ADDRESS_HANDSHAKES_MAX: usize = 16;

/// Time limit of a handshake. A client gives up after 7 s; with a longer limit a flood holds its
/// slots for longer.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Handshake of one client.
pub(super) struct Pending {
    pub address: SocketAddr,
    /// Claimed client.
    pub client: ClientAddress,
    /// Set if the client has proved that it receives at its address.
    address_verified: bool,
    started_at: Time,
    pub handshake: Handshake,
    /// Connection keys, once the handshake is complete.
    pub keys: Option<Box<Keys>>,
}

/// Handshakes by server identifier.
#[derive(Default)]
pub(super) struct PendingHandshakes(BTreeMap<u64, Box<Pending>>);

impl PendingHandshakes {
    /// Removes handshakes that have timed out.
    pub fn expire(&mut self, now: Time) {
        self.0
            .retain(|_, pending| now.since(pending.started_at) <= HANDSHAKE_TIMEOUT);
    }

    /// Returns the identifier of a handshake that this client has already started.
    pub fn find(&self, address: SocketAddr, client: u64) -> Option<u64> {
        let same = |pending: &Pending| pending.address == address && pending.client.id == client;
        self.0
            .iter()
            .find(|(_, pending)| same(pending))
            .map(|(id, _)| *id)
    }

    pub fn get(&mut self, id: u64) -> Option<&mut Pending> {
        self.0.get_mut(&id).map(|pending| &mut **pending)
    }

    pub fn remove(&mut self, id: u64) -> Option<Box<Pending>> {
        self.0.remove(&id)
    }

    /// Returns true if another client may start without proof of its address.
    pub fn has_room_for_unverified(&self) -> bool {
        self.0
            .values()
            .filter(|pending| !pending.address_verified)
            .count()
            < PENDING_HANDSHAKES_MAX
    }

    /// Returns true if a client with this verified address may start. At the limit it ends another
    /// handshake to make room.
    ///
    /// The victim is the next handshake after `id`, which is a keyed hash and thus random to the
    /// sender. Even a flood from many verified addresses therefore excludes no client that
    /// completes within a round trip.
    pub fn make_room_for(&mut self, address: SocketAddr, id: u64) -> bool {
        let whose: IpAddr = origin(address);
        let proved = self.0.values().filter(|pending| pending.address_verified);
        let (mut all, mut of_origin) = (0, 0);
        for pending in proved {
            all += 1;
            of_origin += usize::from(origin(pending.address) == whose);
        }
        if of_origin >= ADDRESS_HANDSHAKES_MAX {
            return false;
        }
        if all >= PENDING_HANDSHAKES_MAX {
            let mut around = self.0.range(id..).chain(self.0.range(..id));
            let victim = around
                .find(|(_, pending)| pending.address_verified)
                .map(|(id, _)| *id);
            victim.and_then(|victim| self.0.remove(&victim));
        }
        true
    }

    /// Adds the handshake of a client whose hello was accepted.
    pub fn insert(
        &mut self,
        now: Time,
        id: u64,
        address: SocketAddr,
        client: ClientAddress,
        proved: bool,
        handshake: Handshake,
    ) {
        let pending = Pending {
            address,
            client,
            address_verified: proved,
            started_at: now,
            handshake,
            keys: None,
        };
        self.0.insert(id, Box::new(pending));
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl Pending {
    /// Writes the server's flight in datagrams of `size` bytes, each with `segment`, and at most
    /// `most` bytes in all. Returns the total bytes and the bytes of every datagram but the last.
    pub fn write_flight(
        &mut self,
        us: ClientAddress,
        segment: &[u8],
        size: usize,
        bytes_max: usize,
        out: &mut [u8],
    ) -> Option<(usize, usize)> {
        let hello = self.handshake.output(Level::Plain).to_vec();
        let all = self.handshake.output(Level::Sealed).len();
        let envelope = self.envelope(us);
        let (mut at, mut filled, most) = (0, 0, bytes_max.min(out.len()));
        while at < all {
            let plain = if at == 0 { &hello[..] } else { &[] };
            let place = &mut out[filled..most.min(filled + size)];
            let written = write_part(&mut self.handshake, envelope, plain, at, segment, place);
            let Some((length, next)) = written else { break };
            (at, filled) = (next, filled + length);
            // This datagram is the last: it is shorter, or the amplification limit is reached.
            if length < size || filled == most {
                break;
            }
        }
        (filled > 0).then_some((filled, size.min(filled)))
    }

    /// Writes the alert with the reason for the client's failed handshake.
    pub fn alert(&mut self, us: ClientAddress, out: &mut [u8]) -> Option<usize> {
        let alert = self.handshake.alert()?;
        let envelope = self.envelope(us);
        write_alert(&mut self.handshake, envelope, alert, out)
    }

    fn envelope(&self, us: ClientAddress) -> Envelope {
        Envelope {
            to: self.client.id,
            from: Some(us),
            cover: Cover::SealedHandshake,
        }
    }

    /// Processes a datagram of the client's last flight. Returns false if TLS rejects it.
    pub fn on_datagram(&mut self, head: usize, datagram: &mut [u8]) -> Result<bool, DropReason> {
        let short = DropReason::Malformed(CodecError::Short);
        if self.keys.is_some() {
            return Err(DropReason::UnknownConnection);
        }
        let (_, length) =
            Crypto::read(datagram.get(head..).ok_or(short)?).map_err(DropReason::Malformed)?;
        let head = head + length + PACKET_NUMBER_BYTES;
        let end = self.handshake.open(datagram, head)?;
        let (part, _) =
            Crypto::read(datagram.get(head..end).ok_or(short)?).map_err(DropReason::Malformed)?;
        let heard = self
            .handshake
            .receive(Level::Sealed, part.offset, part.bytes);
        let keys = heard.and_then(|()| self.handshake.finish(self.client.id));
        match keys {
            Ok(keys) => {
                self.keys = keys;
                Ok(true)
            }
            Err(_) => Ok(false),
        }
    }
}

/// Encodes the segment that follows each fragment of an answer.
pub(super) fn encode(segment: &Segment, out: &mut [u8]) -> Option<usize> {
    let room = out.len();
    crate::codec::write(segment, &mut SideData::default(), out, room, |_| {
        Proof::default()
    })
}
