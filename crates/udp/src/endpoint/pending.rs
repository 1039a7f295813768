//! Handshakes of a listening endpoint: what strangers make it hold, and no more of it than this.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use ccplane_transport::{Proof, Segment, Side};
use ccplane_units::{Duration, Time};

use super::Dropped;
use super::flight::{write_alert, write_part};
use super::shares::origin;
use crate::codec::{CodecError, Cover, Crypto, Envelope, NUMBER, Source};
use crate::tls::{Handshake, Keys, Level};

/// Handshakes at a time of clients that have not proved their address, and as many of those that
/// have. Each takes some 8 kB. With fewer, a flood of forged hellos sooner costs everybody one more
/// round trip; more of them is memory that anybody can take.
pub const MOST_PENDING: usize = 256;

/// Handshakes at a time of one address that is proved. With fewer, users behind one address keep
/// each other out; with more, one host keeps out all others.
const MOST_OF_ORIGIN: usize = 16;

/// How long a handshake may take. A client gives up after 7 s; longer, and a flood keeps its places
/// for longer.
const WITHIN: Duration = Duration::from_secs(10);

/// One client's handshake.
pub(super) struct Pending {
    pub address: SocketAddr,
    /// Who says that it is the client.
    pub client: Source,
    /// It has shown that it receives at its address.
    proved: bool,
    since: Time,
    pub handshake: Handshake,
    /// Once it is over.
    pub keys: Option<Box<Keys>>,
}

/// All of them, by our identifiers.
#[derive(Default)]
pub(super) struct Waiting(BTreeMap<u64, Box<Pending>>);

impl Waiting {
    /// Forgets those that take too long.
    pub fn expire(&mut self, now: Time) {
        self.0
            .retain(|_, pending| now.since(pending.since) <= WITHIN);
    }

    /// The one that this client has begun already.
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

    /// Whether one more client may begin without a proof of its address.
    pub fn has_room_for_strangers(&self) -> bool {
        self.0.values().filter(|pending| !pending.proved).count() < MOST_PENDING
    }

    /// Returns true if one more client may begin that has proved this address. If there are as many
    /// handshakes as allowed, it ends another one to make room.
    ///
    /// The victim is the next after `id`, which is a keyed hash: random for whoever sent it. So
    /// many addresses that begin handshakes and end none keep nobody out who takes a round trip for
    /// one.
    pub fn make_room_for(&mut self, address: SocketAddr, id: u64) -> bool {
        let whose: IpAddr = origin(address);
        let proved = self.0.values().filter(|pending| pending.proved);
        let (mut all, mut of_origin) = (0, 0);
        for pending in proved {
            all += 1;
            of_origin += usize::from(origin(pending.address) == whose);
        }
        if of_origin >= MOST_OF_ORIGIN {
            return false;
        }
        if all >= MOST_PENDING {
            let mut around = self.0.range(id..).chain(self.0.range(..id));
            let victim = around
                .find(|(_, pending)| pending.proved)
                .map(|(id, _)| *id);
            victim.and_then(|victim| self.0.remove(&victim));
        }
        true
    }

    /// A client has begun, and said its hello.
    pub fn begin(
        &mut self,
        now: Time,
        id: u64,
        address: SocketAddr,
        client: Source,
        proved: bool,
        handshake: Handshake,
    ) {
        let pending = Pending {
            address,
            client,
            proved,
            since: now,
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
    /// Writes our side of the handshake in datagrams of `size` bytes, `segment` in each, at most
    /// `most` bytes of them; all their bytes, and those of each but the last.
    pub fn answer(
        &mut self,
        us: Source,
        segment: &[u8],
        size: usize,
        most: usize,
        out: &mut [u8],
    ) -> Option<(usize, usize)> {
        let hello = self.handshake.said(Level::Plain).to_vec();
        let all = self.handshake.said(Level::Sealed).len();
        let envelope = self.envelope(us);
        let (mut at, mut filled, most) = (0, 0, most.min(out.len()));
        while at < all {
            let plain = if at == 0 { &hello[..] } else { &[] };
            let place = &mut out[filled..most.min(filled + size)];
            let written = write_part(&mut self.handshake, envelope, plain, at, segment, place);
            let Some((length, next)) = written else { break };
            (at, filled) = (next, filled + length);
            // The last one is shorter, or what is allowed ends here.
            if length < size || filled == most {
                break;
            }
        }
        (filled > 0).then_some((filled, size.min(filled)))
    }

    /// Why the client's side of it is not taken, for the client to know.
    pub fn alert(&mut self, us: Source, out: &mut [u8]) -> Option<usize> {
        let alert = self.handshake.alert()?;
        let envelope = self.envelope(us);
        write_alert(&mut self.handshake, envelope, alert, out)
    }

    fn envelope(&self, us: Source) -> Envelope {
        Envelope {
            to: self.client.id,
            from: Some(us),
            cover: Cover::SealedHandshake,
        }
    }

    /// Takes a datagram of the client's last flight. False when it is refused.
    pub fn hear(&mut self, head: usize, datagram: &mut [u8]) -> Result<bool, Dropped> {
        let short = Dropped::Malformed(CodecError::Short);
        if self.keys.is_some() {
            return Err(Dropped::Unknown);
        }
        let (_, length) =
            Crypto::read(datagram.get(head..).ok_or(short)?).map_err(Dropped::Malformed)?;
        let head = head + length + NUMBER;
        let end = self.handshake.open(datagram, head)?;
        let (part, _) =
            Crypto::read(datagram.get(head..end).ok_or(short)?).map_err(Dropped::Malformed)?;
        let heard = self.handshake.hear(Level::Sealed, part.offset, part.bytes);
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

/// The segment behind each part of an answer, as bytes.
pub(super) fn encode(segment: &Segment, out: &mut [u8]) -> Option<usize> {
    let room = out.len();
    crate::codec::write(segment, &mut Side::default(), out, room, |_| {
        Proof::default()
    })
}
