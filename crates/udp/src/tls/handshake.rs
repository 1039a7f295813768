//! One side of a TLS handshake: its bytes in and out, by level, and the resulting keys.

use std::collections::BTreeMap;
use std::ops::Range;

use rustls::pki_types::ServerName;
use rustls::quic::{ClientConnection, Connection, KeyChange, Secrets, ServerConnection, Version};
use rustls::{AlertDescription, CertificateError};

use super::keys::{Keys, LevelKeys, OpenFailure};
use super::{OpenError, Tls};

/// Maximum bytes from a peer per level. Own flights have at most 1,600 bytes, and an unverified
/// client cannot make this side store more.
pub const LEVEL_BYTES_MAX: usize = 2048;

/// Out-of-order fragments stored: a flight in datagrams of 548 bytes that arrive in the wrong
/// order.
const FRAGMENTS_MAX: usize = 8;

/// Reason for which the handshake failed, locally or at the peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The server's certificate does not have the expected fingerprint.
    #[error("its certificate has another fingerprint")]
    Fingerprint,
    /// The server accepts only configured fingerprints, and this client's is not among them.
    #[error("it does not accept this host's certificate")]
    Unknown,
    /// The server accepts only configured fingerprints, and this client presented no certificate.
    #[error("it accepts only hosts with a known certificate, and this host sent none")]
    Nameless,
    /// The peer aborted the handshake for another reason.
    #[error("it aborted the handshake with TLS alert {0} (RFC 8446, section 6)")]
    Alert(u8),
    /// The peer's handshake is too long.
    #[error(
        "its handshake messages exceed {LEVEL_BYTES_MAX} bytes, so its certificate is too long"
    )]
    Long,
    /// The peer's TLS is incompatible or its messages are invalid.
    #[error("TLS handshake failed: {0}")]
    Failed(String),
}

impl HandshakeError {
    /// Decodes a TLS alert of the peer.
    pub fn from_alert(alert: u8) -> HandshakeError {
        match AlertDescription::from(alert) {
            AlertDescription::AccessDenied => HandshakeError::Unknown,
            AlertDescription::CertificateRequired => HandshakeError::Nameless,
            _ => HandshakeError::Alert(alert),
        }
    }

    fn from_tls(why: rustls::Error) -> HandshakeError {
        match why {
            rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => {
                HandshakeError::Fingerprint
            }
            why => HandshakeError::Failed(why.to_string()),
        }
    }
}

/// Encryption level of handshake bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Plain text: both hellos.
    Plain = 0,
    /// Sealed for the peer: everything after the hellos.
    Sealed = 1,
}

/// One side of a TLS handshake; see the [module](self).
pub(crate) struct Handshake {
    tls: Connection,
    /// Handshake bytes to send, by level.
    output: [Vec<u8>; 2],
    input: [LevelInput; 2],
    /// Keys of the sealed level, and the number of the next packet sealed with them.
    keys: Option<LevelKeys>,
    next_number: u64,
    /// Connection keys, until they are taken.
    connection_keys: Option<Box<(rustls::quic::Keys, Secrets)>>,
    rekey_after: Option<u64>,
}

impl Handshake {
    /// Creates a client's handshake and its first flight. The client's identifier is authenticated
    /// by TLS.
    pub fn client(tls: &Tls, id: u64) -> Result<Handshake, HandshakeError> {
        let config = tls
            .client
            .clone()
            .ok_or_else(|| wrong_side_error("client"))?;
        let name = ServerName::try_from(ccplane_link::identity::SUBJECT_NAME)
            .map_err(|why| HandshakeError::Failed(why.to_string()))?;
        let connection =
            ClientConnection::new(config, Version::V1, name, id.to_be_bytes().to_vec());
        let mut handshake =
            Handshake::new(tls, connection.map_err(HandshakeError::from_tls)?.into());
        handshake.collect_output();
        Ok(handshake)
    }

    /// Creates a server's handshake for a received hello.
    pub fn server(tls: &Tls, id: u64) -> Result<Handshake, HandshakeError> {
        let config = tls
            .server
            .clone()
            .ok_or_else(|| wrong_side_error("server"))?;
        let connection = ServerConnection::new(config, Version::V1, id.to_be_bytes().to_vec());
        Ok(Handshake::new(
            tls,
            connection.map_err(HandshakeError::from_tls)?.into(),
        ))
    }

    fn new(tls: &Tls, connection: Connection) -> Handshake {
        Handshake {
            tls: connection,
            output: Default::default(),
            input: Default::default(),
            keys: None,
            next_number: 0,
            connection_keys: None,
            rekey_after: tls.rekey_after,
        }
    }

    /// Returns this side's handshake bytes at a level.
    pub fn output(&self, level: Level) -> &[u8] {
        &self.output[level as usize]
    }

    /// Processes the peer's handshake bytes at a level. Duplicates are ignored, and bytes out of
    /// order are stored. Once both hellos have been exchanged, plain-text bytes are ignored,
    /// because TLS would treat them as sealed.
    pub fn receive(
        &mut self,
        level: Level,
        offset: u16,
        bytes: &[u8],
    ) -> Result<(), HandshakeError> {
        if self.is_level_complete(level) {
            return Ok(());
        }
        self.input[level as usize].insert(usize::from(offset), bytes)?;
        while !self.is_level_complete(level)
            && let Some(piece) = self.input[level as usize].next()
        {
            self.tls.read_hs(&piece).map_err(HandshakeError::from_tls)?;
            self.collect_output();
        }
        Ok(())
    }

    fn is_level_complete(&self, level: Level) -> bool {
        level == Level::Plain && self.has_keys()
    }

    /// Pulls outgoing handshake bytes and keys from TLS.
    fn collect_output(&mut self) {
        loop {
            let level = if self.keys.is_none() {
                Level::Plain
            } else {
                Level::Sealed
            };
            match self.tls.write_hs(&mut self.output[level as usize]) {
                Some(KeyChange::Handshake { keys }) => self.keys = Some(LevelKeys::new(keys)),
                Some(KeyChange::OneRtt { keys, next }) => {
                    self.connection_keys = Some(Box::new((keys, next)));
                }
                None => break,
            }
        }
    }

    /// Returns the connection keys once the handshake is complete, and checks that the peer's
    /// identifier, as authenticated by TLS, is `id`.
    pub fn finish(&mut self, id: u64) -> Result<Option<Box<Keys>>, HandshakeError> {
        if self.tls.is_handshaking() {
            return Ok(None);
        }
        if self.tls.quic_transport_parameters() != Some(&id.to_be_bytes()[..]) {
            return Err(HandshakeError::Failed(
                "its connection identifier was modified in transit".to_owned(),
            ));
        }
        let ready = self.connection_keys.take();
        Ok(ready.map(|ready| {
            let (keys, next) = *ready;
            Box::new(Keys::new(keys, next, self.rekey_after))
        }))
    }

    /// Returns true once both hellos have been exchanged; all further bytes are sealed.
    pub fn has_keys(&self) -> bool {
        self.keys.is_some()
    }

    /// Returns the TLS alert to send after a failure (RFC 8446, section 6).
    pub fn alert(&self) -> Option<u8> {
        self.tls.alert().map(u8::from)
    }

    /// Seals `datagram[head..end]` in place. The packet number is written to the end of the header.
    pub fn seal(&mut self, datagram: &mut [u8], head: usize, end: usize) -> Option<usize> {
        let length = self
            .keys
            .as_ref()?
            .seal(self.next_number, datagram, head, end)?;
        self.next_number += 1;
        Some(length)
    }

    /// Decrypts `datagram[head..]` in place and returns the end of the plain text.
    pub fn open(&mut self, datagram: &mut [u8], head: usize) -> Result<usize, OpenFailure> {
        let keys = self.keys.as_ref().ok_or(OpenFailure::HandshakeIncomplete)?;
        keys.open(datagram, head)
            .map_err(|OpenError| OpenFailure::Forged)
    }
}

fn wrong_side_error(which: &str) -> HandshakeError {
    HandshakeError::Failed(format!("this endpoint is not a {which}"))
}

/// Reassembly buffer of the peer's handshake bytes at one level.
#[derive(Default)]
struct LevelInput {
    /// Bytes already passed to TLS.
    consumed: usize,
    waiting: BTreeMap<usize, Vec<u8>>,
}

impl LevelInput {
    fn insert(&mut self, offset: usize, bytes: &[u8]) -> Result<(), HandshakeError> {
        let range: Range<usize> = offset..offset + bytes.len();
        if range.end > LEVEL_BYTES_MAX {
            return Err(HandshakeError::Long);
        }
        let longer = self
            .waiting
            .get(&offset)
            .is_none_or(|known| known.len() < bytes.len());
        let held: usize = self.waiting.values().map(Vec::len).sum();
        let room = self.waiting.len() < FRAGMENTS_MAX && held + bytes.len() <= LEVEL_BYTES_MAX
            || range.start <= self.consumed;
        if range.end > self.consumed && longer && room {
            self.waiting.insert(offset, bytes.to_vec());
        }
        Ok(())
    }

    /// Returns the next fragment in order.
    fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            let (&offset, _) = self
                .waiting
                .first_key_value()
                .filter(|(at, _)| **at <= self.consumed)?;
            let mut piece = self.waiting.remove(&offset)?;
            let known = self.consumed - offset;
            if known < piece.len() {
                piece.drain(..known);
                self.consumed += piece.len();
                return Some(piece);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ccplane_link::identity::{Fingerprint, Identity};
    use proptest::prelude::*;

    use super::*;

    /// Runs a handshake until both sides have their keys, in fragments of `piece` bytes; each
    /// flight is delivered last fragment first.
    fn talk(
        client: &Tls,
        server: &Tls,
        piece: usize,
    ) -> Result<[Box<Keys>; 2], (HandshakeError, Option<u8>)> {
        let mut client = Handshake::client(client, 7).unwrap();
        let mut server = Handshake::server(server, 8).unwrap();
        let bring = |from: &Handshake, to: &mut Handshake| {
            for level in [Level::Plain, Level::Sealed] {
                let all: Vec<_> = from.output(level).chunks(piece).enumerate().collect();
                for (n, bytes) in all.into_iter().rev() {
                    if let Err(why) = to.receive(level, (n * piece) as u16, bytes) {
                        return Err((why, to.alert()));
                    }
                }
            }
            Ok(())
        };
        bring(&client, &mut server)?;
        bring(&server, &mut client)?;
        bring(&client, &mut server)?;
        Ok([
            client.finish(8).unwrap().unwrap(),
            server.finish(7).unwrap().unwrap(),
        ])
    }

    #[test]
    fn peers_that_trust_each_other_derive_the_same_keys() {
        let (server, client) = (Identity::new().unwrap(), Identity::new().unwrap());
        for piece in [LEVEL_BYTES_MAX, 400, 200] {
            for (own, known) in [(None, vec![]), (Some(&client), vec![client.fingerprint()])] {
                let to = Tls::client(Some(server.fingerprint()), own).unwrap();
                let from = Tls::server(&server, &known).unwrap();
                let [mut ours, mut theirs] = talk(&to, &from, piece).unwrap();
                let mut datagram = vec![0x32, 0, 0, 0, 0, 1, 2, 3];
                datagram.resize(8 + super::super::TAG_BYTES, 0);
                let length = ours.seal_at(&mut datagram, 5, 8).unwrap();
                assert_eq!(theirs.open(&mut datagram[..length], 5), Ok(8));
                assert_eq!(datagram[5..8], [1, 2, 3]);
            }
        }
    }

    #[test]
    fn keys_that_are_worn_out_seal_nothing_and_those_that_met_too_many_forgeries_end() {
        let server = Identity::new().unwrap();
        let to = Tls::client(Some(server.fingerprint()), None).unwrap();
        let [mut ours, mut theirs] =
            talk(&to, &Tls::server(&server, &[]).unwrap(), LEVEL_BYTES_MAX).unwrap();
        // Limits of AES-GCM (RFC 9001, section 6.6). The peer has never answered, so the keys
        // cannot be updated.
        let mut datagram = [0x32; 64];
        ours.age((1 << 23) - 1, 0);
        assert!(ours.seal_at(&mut datagram, 13, 20).is_some());
        assert!(ours.is_exhausted() && ours.seal_at(&mut datagram, 13, 20).is_none());
        assert_eq!(ours.key_updates(), 0);
        theirs.age(0, (1 << 52) - 2);
        let mut forged = [0x32; 64];
        assert_eq!(theirs.open(&mut forged, 13), Err(OpenFailure::Forged));
        assert_eq!(
            theirs.open(&mut forged, 13),
            Err(OpenFailure::IntegrityLimit)
        );
    }

    #[test]
    fn untrusted_peers_are_refused_with_the_reason() {
        let (server, client, other) = (
            Identity::new().unwrap(),
            Identity::new().unwrap(),
            Identity::new().unwrap().fingerprint(),
        );
        let refused = |trusted: Fingerprint, own: Option<&Identity>, known: &[Fingerprint]| {
            let (to, from) = (Tls::client(Some(trusted), own), Tls::server(&server, known));
            match talk(&to.unwrap(), &from.unwrap(), LEVEL_BYTES_MAX) {
                Err((why, alert)) => (why, alert.map(HandshakeError::from_alert)),
                Ok(_) => panic!("both ends accept each other"),
            }
        };
        let (why, _) = refused(other, None, &[]);
        assert_eq!(why, HandshakeError::Fingerprint);
        let (_, told) = refused(server.fingerprint(), Some(&client), &[other]);
        assert_eq!(told, Some(HandshakeError::Unknown));
        let (_, told) = refused(server.fingerprint(), None, &[other]);
        assert_eq!(told, Some(HandshakeError::Nameless));
    }

    #[test]
    fn a_certificate_of_60_kb_is_refused_before_it_is_read() {
        let mut client = Handshake::client(&Tls::client(None, None).unwrap(), 7).unwrap();
        let why = client
            .receive(Level::Plain, 0, &vec![0; 60_000])
            .unwrap_err();
        assert!(why.to_string().contains("certificate is too long"), "{why}");
        assert_eq!(
            client.receive(Level::Sealed, 60_000, &[0]),
            Err(HandshakeError::Long)
        );
    }

    /// Returns a client with the identifier 7, and a server with 8 that has received its hello.
    fn after_client_hello() -> (Handshake, Handshake) {
        let identity = Identity::new().unwrap();
        let client = Handshake::client(&Tls::client(None, None).unwrap(), 7).unwrap();
        let mut server = Handshake::server(&Tls::server(&identity, &[]).unwrap(), 8).unwrap();
        server
            .receive(Level::Plain, 0, client.output(Level::Plain))
            .unwrap();
        (client, server)
    }

    #[test]
    fn plain_text_after_the_hellos_is_ignored() {
        let (mut client, server) = after_client_hello();
        let hello = server.output(Level::Plain).to_vec();
        let end = hello.len() as u16;
        // Some of it arrives out of order.
        client.receive(Level::Plain, end, &[9; 40]).unwrap();
        client.receive(Level::Plain, 0, &hello).unwrap();
        client.receive(Level::Plain, end, &[9; 80]).unwrap();
        client.receive(Level::Plain, u16::MAX - 1, &[9]).unwrap();
        client
            .receive(Level::Sealed, 0, server.output(Level::Sealed))
            .unwrap();
        assert!(client.finish(8).unwrap().is_some());
    }

    #[test]
    fn keys_of_a_handshake_seal_no_more_than_they_bear() {
        let (_, mut server) = after_client_hello();
        let mut datagram = [0; 64];
        server.next_number = (1 << 23) - 1;
        assert!(server.seal(&mut datagram, 8, 20).is_some());
        assert_eq!(server.seal(&mut datagram, 8, 20), None);
    }

    #[test]
    fn the_identifiers_of_both_are_under_tls() {
        let (mut client, server) = after_client_hello();
        for level in [Level::Plain, Level::Sealed] {
            client.receive(level, 0, server.output(level)).unwrap();
        }
        assert!(client.finish(9).is_err(), "the server announced 8");
        assert!(client.finish(8).unwrap().is_some());
    }

    proptest! {
        /// Fragments that overlap, repeat and arrive in any order are delivered once, unchanged.
        #[test]
        fn handshake_bytes_arrive_in_order(
            parts in prop::collection::vec((0usize..1000, 1usize..300), 0..60),
        ) {
            let said: Vec<u8> = (0..1300u32).map(|n| (n * 7) as u8).collect();
            let (mut heard, mut all) = (LevelInput::default(), Vec::new());
            for (at, length) in parts {
                heard.insert(at, &said[at..at + length]).unwrap();
                while let Some(piece) = heard.next() {
                    all.extend(piece);
                }
                prop_assert!(heard.waiting.len() <= FRAGMENTS_MAX + 1);
            }
            prop_assert_eq!(&all, &said[..all.len()]);
            prop_assert_eq!(heard.consumed, all.len());
        }
    }
}
