//! Keys of a connection, and what they do to a datagram.

use std::fmt;

use aes_gcm::aead::AeadInOut;
use aes_gcm::{Aes256Gcm, KeyInit, Nonce};

use super::Key;

/// Bytes that sealing adds behind the segment.
pub const TAG: usize = 16;

/// A datagram that was not sealed with this key, or was changed on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sealed with this key, or changed on the way")]
pub struct BadSeal;

/// One direction of a connection.
///
/// AES-256-GCM; the nonce is the packet number behind four zero bytes, the envelope is authenticated with it. Each
/// direction has its own key, so that a number may occur once in each and never twice under one key.
struct Cipher(Aes256Gcm);

impl Cipher {
    fn new(key: &[u8; 32]) -> Cipher {
        Cipher(Aes256Gcm::new(key.into()))
    }
}

fn nonce(number: u64) -> Nonce<aes_gcm::aead::consts::U12> {
    let mut nonce = Nonce::default();
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    nonce
}

/// Seals what goes out.
pub struct Sealer(Cipher);

impl Sealer {
    /// Seals `datagram[head..length]` in place, with `datagram[..head]` authenticated; gives the length with the tag.
    /// `None` where there is no room for the tag, or the plaintext is longer than a datagram can be.
    ///
    /// A number must not be used twice.
    pub fn seal(&self, number: u64, datagram: &mut [u8], head: usize, length: usize) -> Option<usize> {
        let (head, rest) = datagram.split_at_mut_checked(head)?;
        let (text, rest) = rest.split_at_mut_checked(length.checked_sub(head.len())?)?;
        let place = rest.first_chunk_mut::<TAG>()?;
        let tag = self
            .0
            .0
            .encrypt_inout_detached(&nonce(number), head, text.into())
            .ok()?;
        *place = tag.into();
        Some(length + TAG)
    }
}

/// Opens what comes in.
pub struct Opener(Cipher);

impl Opener {
    /// Opens `datagram[head..]` in place, with `datagram[..head]` authenticated; gives the length without the tag.
    pub fn open(&self, number: u64, datagram: &mut [u8], head: usize) -> Result<usize, BadSeal> {
        let length = datagram.len().checked_sub(TAG).ok_or(BadSeal)?;
        let (head, rest) = datagram.split_at_mut_checked(head).ok_or(BadSeal)?;
        let text = length.checked_sub(head.len()).ok_or(BadSeal)?;
        let (text, tag) = rest.split_at_mut_checked(text).ok_or(BadSeal)?;
        let tag: &[u8; TAG] = (&*tag).try_into().map_err(|_| BadSeal)?;
        let opened = self
            .0
            .0
            .decrypt_inout_detached(&nonce(number), head, text.into(), tag.into());
        opened.map(|()| length).map_err(|_| BadSeal)
    }
}

/// Keys of the two directions of one exchange.
pub struct Keys {
    /// From the client to the server.
    pub client: [u8; 32],
    /// From the server to the client.
    pub server: [u8; 32],
}

impl Keys {
    /// Of a hello, when only the client's identifier is known. The client numbers its attempts from 0.
    pub fn hello(key: &Key, client: u64) -> Keys {
        Keys::derive(key, b"ccplane hello 1", client, 0)
    }

    /// Of the answer to a hello. A server that keeps no state numbers all its answers, to whomever, in one sequence.
    pub fn answer(key: &Key, client: u64, server: u64) -> Keys {
        Keys::derive(key, b"ccplane answer 1", client, server)
    }

    /// Of the connection.
    pub fn connection(key: &Key, client: u64, server: u64) -> Keys {
        Keys::derive(key, b"ccplane stream 1", client, server)
    }

    /// BLAKE3 keyed with the shared key, as a pseudo-random function of purpose and identifiers with 64 bytes of output.
    fn derive(key: &Key, purpose: &[u8], client: u64, server: u64) -> Keys {
        let mut output = key.hasher();
        output.update(purpose);
        output.update(&client.to_be_bytes());
        output.update(&server.to_be_bytes());
        let mut output = output.finalize_xof();
        let mut keys = Keys {
            client: [0; 32],
            server: [0; 32],
        };
        output.fill(&mut keys.client);
        output.fill(&mut keys.server);
        keys
    }

    /// The client's ends.
    pub fn for_client(&self) -> (Sealer, Opener) {
        (Sealer(Cipher::new(&self.client)), Opener(Cipher::new(&self.server)))
    }

    /// The server's ends.
    pub fn for_server(&self) -> (Sealer, Opener) {
        (Sealer(Cipher::new(&self.server)), Opener(Cipher::new(&self.client)))
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(…)")
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealer(…)")
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opener(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(keys: &Keys, number: u64) -> Vec<u8> {
        let mut datagram = vec![1, 2, 3, 4, 5, 6, 7, 8];
        datagram.extend([0; TAG]);
        let length = keys.for_client().0.seal(number, &mut datagram, 3, 8).unwrap();
        assert_eq!(length, 8 + TAG);
        datagram
    }

    #[test]
    fn what_is_sealed_opens_at_the_other_end_and_only_there() {
        let key = Key::from_bytes([7; 32]);
        let keys = Keys::connection(&key, 1, 2);
        let datagram = sealed(&keys, 9);
        assert_eq!(datagram[..3], [1, 2, 3], "the envelope stays readable");
        assert_ne!(datagram[3..8], [4, 5, 6, 7, 8]);

        let mut opened = datagram.clone();
        assert_eq!(keys.for_server().1.open(9, &mut opened, 3), Ok(8));
        assert_eq!(opened[..8], [1, 2, 3, 4, 5, 6, 7, 8]);

        let others = [
            (
                Keys::connection(&Key::from_bytes([8; 32]), 1, 2).for_server().1,
                "another key",
            ),
            (Keys::connection(&key, 1, 3).for_server().1, "another connection"),
            (Keys::answer(&key, 1, 2).for_server().1, "another purpose"),
            (keys.for_client().1, "the other direction"),
        ];
        for (opener, what) in others {
            assert_eq!(opener.open(9, &mut datagram.clone(), 3), Err(BadSeal), "{what}");
        }
        assert_eq!(
            keys.for_server().1.open(10, &mut datagram.clone(), 3),
            Err(BadSeal),
            "another number"
        );
    }

    #[test]
    fn a_changed_byte_anywhere_is_noticed_and_so_is_a_cut() {
        let keys = Keys::connection(&Key::from_bytes([7; 32]), 1, 2);
        let datagram = sealed(&keys, 9);
        let opener = keys.for_server().1;
        for at in 0..datagram.len() {
            let mut changed = datagram.clone();
            changed[at] ^= 0x40;
            assert_eq!(opener.open(9, &mut changed, 3), Err(BadSeal), "byte {at}");
        }
        for length in 0..datagram.len() {
            assert_eq!(
                opener.open(9, &mut datagram[..length].to_vec(), 3),
                Err(BadSeal),
                "{length} bytes"
            );
        }
    }
}
