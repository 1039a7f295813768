//! Authenticated encryption of datagrams under a key that both ends were given beforehand.
//!
//! There is no further round trip: [`Key`] and the two random identifiers of a connection give the keys of each direction,
//! and nobody without the key can read, forge, replay or reset. What it does not give: forward secrecy (who
//! learns the key reads what was recorded), and hiding of identifiers, packet numbers and lengths.
//!
//! Ciphers and hashes are `aes-gcm`'s and `blake3`'s; here is only which key and nonce goes where.

mod key;
mod replay;
mod seal;

pub use key::{Key, KeyError};
pub use replay::Replay;
pub use seal::{BadSeal, Keys, Opener, Sealer, TAG};
