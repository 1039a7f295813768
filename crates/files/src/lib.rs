//! Files over a connection: what a sender and a receiver say ([`wire`]), which names they may have ([`name`]), and when the other
//! side is gone ([`liveness`]). Bytes and times come in, nothing here reads a file, a socket or a clock.
//!
//! ```
//! use ccplane_files::wire::{self, Entry, Event, What};
//!
//! let entries = [Entry { name: b"notes/today.txt".to_vec(), what: What::File { bytes: 5, executable: false } }];
//! let mut stream = wire::list(&entries).unwrap();
//! stream.extend(wire::begin(0, 0));
//! stream.extend(wire::data(5));
//! stream.extend(b"hello");
//! stream.extend(wire::end(blake3::hash(b"hello").as_bytes()));
//!
//! let (mut reader, mut rest) = (wire::Frames::default(), stream.as_slice());
//! assert!(matches!(reader.next(&mut rest).unwrap(), Some(Event::List(list)) if list == entries));
//! assert!(matches!(reader.next(&mut rest).unwrap(), Some(Event::Begin { entry: 0, from: 0 })));
//! assert!(matches!(reader.next(&mut rest).unwrap(), Some(Event::Data(b"hello"))));
//! assert!(matches!(reader.next(&mut rest).unwrap(), Some(Event::End(_))));
//! ```

#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod fuzz;
pub mod liveness;
pub mod name;
pub mod wire;

/// Bytes of a BLAKE3 hash.
pub const HASH: usize = 32;
/// A hash.
pub type Hash = [u8; HASH];
/// Bytes of a block. What a receiver has of a file is compared block by block. Smaller, and the hashes of a large file are many: 32
/// bytes each. Larger, and more of what had arrived before an interruption is sent again.
pub const BLOCK: u64 = 1 << 20;

/// The hash of a transfer: of one file, its own; of several, the hash of their hashes in order.
pub fn of_all(hashes: &[Hash]) -> Hash {
    match hashes {
        [one] => *one,
        all => *blake3::hash(all.as_flattened()).as_bytes(),
    }
}
