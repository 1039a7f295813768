//! The two streams of a transfer, byte for byte. Integers are big-endian.
//!
//! The sender's: `ccpsend2`, the number of entries (4) and of bytes of the list (4), the list, then frames.
//!
//! | entry | bytes |
//! | --- | --- |
//! | kind: 0 file, 1 executable file, 2 folder, 3 stream whose length its end tells | 1 |
//! | bytes of the file; 0 of the others | 8 |
//! | length of the name, the name: components with `/` between them, its folder an entry before it; empty where the receiver is to choose | 2 + |
//!
//! | frame | bytes |
//! | --- | --- |
//! | 1, begin: entry, and from which byte on | 1 + 4 + 8 |
//! | 2, guess: as begin at 0, before the sender knows the offer. What follows is thrown away where the receiver offers something of this entry | 1 + 4 |
//! | 3, data: length, bytes | 1 + 4 + |
//! | 4, end: hash of the whole entry | 1 + 32 |
//!
//! The receiver's: `ccprecv2`, then answers.
//!
//! | answer | bytes |
//! | --- | --- |
//! | 1, offer: how many entries something is there of, and for each: entry, bytes. Once, after the list | 1 + 4 + 12 each |
//! | 2, block: entry, hash of the next block of what was offered of it | 1 + 4 + 32 |
//! | 3, stored: the hash of all ([`of_all`](crate::of_all)) | 1 + 32 |
//! | 4, differs: entry, the hash that it has here | 1 + 4 + 32 |
//! | 5, failed: length of the reason, the reason | 1 + 2 + |
//!
//! Blocks are whole ones, but for the last of an entry that is there in whole. Of such an entry the sender begins at its end or at 0.

use crate::{BLOCK, HASH, Hash};

/// Begins the sender's stream; the number at its end is the protocol's version.
const SENDER: [u8; 8] = *b"ccpsend2";
/// Begins the receiver's.
const RECEIVER: [u8; 8] = *b"ccprecv2";
/// Entries of a list. What a stranger can make a receiver hold is bounded by this and [`MOST_LIST`].
pub const MOST_ENTRIES: usize = 1 << 16;
/// Bytes of a list.
pub const MOST_LIST: usize = 4 << 20;
/// Bytes of a name.
pub const MOST_NAME: usize = 4096;
/// Bytes of one frame's data.
pub const MOST_DATA: usize = 1 << 20;
/// Bytes before a frame's data.
pub const DATA_HEAD: usize = 5;
/// Bytes of a reason.
const MOST_REASON: usize = 512;
/// Bytes of an entry without its name.
const ENTRY: usize = 11;
/// Bytes before the list.
const HEAD: usize = 16;

/// One of what is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Relative to what is sent, `/` between components; empty: the receiver chooses.
    pub name: Vec<u8>,
    /// What it is.
    pub what: What,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A regular file.
    File {
        /// Its length.
        bytes: u64,
        /// Who may read it may run it.
        executable: bool,
    },
    /// Bytes until their end.
    Stream,
    /// A folder, which may stay empty.
    Folder,
}

impl What {
    /// Its length, where it is known; 0 of a folder.
    pub fn bytes(self) -> Option<u64> {
        match self {
            What::File { bytes, .. } => Some(bytes),
            What::Stream => None,
            What::Folder => Some(0),
        }
    }
}

/// Why bytes are not what the other side should say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Another program, or version.
    #[error("the other side is no `ccplane send` or `ccplane recv`, or one of another version")]
    Version,
    /// A list beyond the limits.
    #[error("a list of {entries} files in {bytes} bytes; at most {MOST_ENTRIES} in {MOST_LIST} are taken")]
    List {
        /// Its entries.
        entries: u64,
        /// Its bytes.
        bytes: u64,
    },
    /// A list that is not as long as it says, or has an unknown kind.
    #[error("a list of files that is malformed")]
    Malformed,
    /// An unknown frame or answer, or one at the wrong time.
    #[error("an unknown message of kind {0}")]
    Kind(u8),
    /// Data of a frame beyond [`MOST_DATA`].
    #[error("a frame of {0} bytes, at most {MOST_DATA} are taken")]
    Data(u32),
}

/// Bytes of all entries; `None` where one tells only at its end. A stranger's may add up to more than there are numbers.
pub fn total<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Option<u64> {
    let add = |sum: u64, entry: &Entry| Some(sum.saturating_add(entry.what.bytes()?));
    entries.into_iter().try_fold(0, add)
}

/// The head of a sender's stream and its list; an error where it is too long.
pub fn list(entries: &[Entry]) -> Result<Vec<u8>, WireError> {
    let bytes: usize = entries.iter().map(|entry| ENTRY + entry.name.len()).sum();
    check(entries.len() as u64, bytes as u64)?;
    let mut out = Vec::with_capacity(HEAD + bytes);
    out.extend(SENDER);
    out.extend((entries.len() as u32).to_be_bytes());
    out.extend((bytes as u32).to_be_bytes());
    for Entry { name, what } in entries {
        let kind = match what {
            What::File { executable, .. } => u8::from(*executable),
            What::Folder => 2,
            What::Stream => 3,
        };
        let length = u16::try_from(name.len()).map_err(|_| WireError::Malformed)?;
        out.push(kind);
        out.extend(what.bytes().unwrap_or(0).to_be_bytes());
        out.extend(length.to_be_bytes());
        out.extend(name);
    }
    Ok(out)
}

fn check(entries: u64, bytes: u64) -> Result<(), WireError> {
    match entries <= MOST_ENTRIES as u64 && bytes <= MOST_LIST as u64 {
        true => Ok(()),
        false => Err(WireError::List { entries, bytes }),
    }
}

fn entries(count: usize, mut list: &[u8]) -> Result<Vec<Entry>, WireError> {
    let mut take = |length: usize| -> Result<&[u8], WireError> {
        let (taken, rest) = list.split_at_checked(length).ok_or(WireError::Malformed)?;
        list = rest;
        Ok(taken)
    };
    let mut all = Vec::new();
    for _ in 0..count {
        let head = take(ENTRY)?;
        let bytes = u64_of(&head[1..9]);
        let what = match (head[0], bytes) {
            (kind @ (0 | 1), bytes) => What::File {
                bytes,
                executable: kind == 1,
            },
            (2, 0) => What::Folder,
            (3, 0) => What::Stream,
            _ => return Err(WireError::Malformed),
        };
        let name = take(usize::from(u16::from_be_bytes([head[9], head[10]])))?.to_vec();
        all.push(Entry { name, what });
    }
    match list {
        [] => Ok(all),
        _ => Err(WireError::Malformed),
    }
}

/// A frame that begins an entry at a byte.
pub fn begin(entry: u32, from: u64) -> Vec<u8> {
    [&[1][..], &entry.to_be_bytes(), &from.to_be_bytes()].concat()
}

/// A frame that begins an entry at 0 before the offer is known.
pub fn guess(entry: u32) -> Vec<u8> {
    [&[2][..], &entry.to_be_bytes()].concat()
}

/// What stands before so many bytes of data.
pub fn data(length: u32) -> [u8; DATA_HEAD] {
    let [a, b, c, d] = length.to_be_bytes();
    [3, a, b, c, d]
}

/// A frame that ends an entry.
pub fn end(hash: &Hash) -> Vec<u8> {
    [&[4][..], hash].concat()
}

/// Something that a sender said.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// What it is going to send. Comes first, once.
    List(Vec<Entry>),
    /// An entry begins.
    Begin {
        /// Its place in the list.
        entry: u32,
        /// The first byte that follows.
        from: u64,
    },
    /// An entry begins at 0, if nothing of it was offered.
    Guess {
        /// Its place in the list.
        entry: u32,
    },
    /// Bytes of the entry; none, from a sender that has none at the moment and lives.
    Data(&'a [u8]),
    /// The entry ends, and has this hash.
    End(Hash),
}

/// Reads a sender's stream, however it is cut.
#[derive(Debug, Default)]
pub struct Frames {
    /// What is not complete yet.
    held: Vec<u8>,
    /// Entries and bytes of the list, once the head is there.
    list: Option<(usize, usize)>,
    listed: bool,
    /// Bytes of data to come.
    data: usize,
}

impl Frames {
    /// The next event; `None` where it needs more input. What it used is taken from the front of `input`.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, WireError> {
        if !self.listed {
            return Ok(self.read_list(input)?.map(Event::List));
        }
        if self.data > 0 {
            let length = self.data.min(input.len());
            let (data, rest) = input.split_at(length);
            *input = rest;
            self.data -= length;
            return Ok((length > 0).then_some(Event::Data(data)));
        }
        if !hold(&mut self.held, 1, input) {
            return Ok(None);
        }
        let length = match self.held[0] {
            1 => 13,
            2 => 5,
            3 => DATA_HEAD,
            4 => 1 + HASH,
            kind => return Err(WireError::Kind(kind)),
        };
        if !hold(&mut self.held, length, input) {
            return Ok(None);
        }
        let held = std::mem::take(&mut self.held);
        let event = match held[0] {
            1 => Event::Begin {
                entry: u32_of(&held[1..5]),
                from: u64_of(&held[5..13]),
            },
            2 => Event::Guess {
                entry: u32_of(&held[1..5]),
            },
            3 => {
                let length = u32_of(&held[1..5]);
                if length as usize > MOST_DATA {
                    return Err(WireError::Data(length));
                }
                self.data = length as usize;
                return if self.data == 0 {
                    Ok(Some(Event::Data(&[])))
                } else {
                    self.next(input)
                };
            }
            _ => Event::End(hash_of(&held[1..])),
        };
        Ok(Some(event))
    }

    fn read_list(&mut self, input: &mut &[u8]) -> Result<Option<Vec<Entry>>, WireError> {
        let (count, bytes) = match self.list {
            Some(list) => list,
            None => {
                if !hold(&mut self.held, HEAD, input) {
                    return Ok(None);
                }
                let (count, bytes) = (u32_of(&self.held[8..12]), u32_of(&self.held[12..16]));
                if self.held[..8] != SENDER {
                    return Err(WireError::Version);
                }
                check(count.into(), bytes.into())?;
                self.held.clear();
                *self.list.insert((count as usize, bytes as usize))
            }
        };
        if !hold(&mut self.held, bytes, input) {
            return Ok(None);
        }
        self.listed = true;
        entries(count, &std::mem::take(&mut self.held)).map(Some)
    }

    /// Whether it is between two frames: a stream that ends elsewhere was cut.
    pub fn is_between(&self) -> bool {
        self.listed && self.data == 0 && self.held.is_empty()
    }
}

/// What a receiver says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Of these entries so many bytes are there.
    Offer(Vec<(u32, u64)>),
    /// The next block of what was offered of an entry has this hash.
    Block(u32, Hash),
    /// All is stored.
    Stored(Hash),
    /// An entry does not have the hash that the sender said, but this one, and is not stored.
    Differs(u32, Hash),
    /// It cannot be stored.
    Failed(String),
}

/// The head of a receiver's stream.
pub fn greeting() -> [u8; 8] {
    RECEIVER
}

impl Answer {
    /// As it is sent.
    pub fn write(&self) -> Vec<u8> {
        match self {
            Answer::Offer(offers) => {
                let mut out = [&[1][..], &(offers.len() as u32).to_be_bytes()].concat();
                for (entry, bytes) in offers {
                    out.extend(entry.to_be_bytes());
                    out.extend(bytes.to_be_bytes());
                }
                out
            }
            Answer::Block(entry, hash) => [&[2][..], &entry.to_be_bytes(), hash].concat(),
            Answer::Stored(hash) => [&[3][..], hash].concat(),
            Answer::Differs(entry, hash) => [&[4][..], &entry.to_be_bytes(), hash].concat(),
            Answer::Failed(reason) => {
                let reason = first_bytes(reason, MOST_REASON);
                [&[5][..], &(reason.len() as u16).to_be_bytes(), reason].concat()
            }
        }
    }
}

/// Reads a receiver's stream, however it is cut.
#[derive(Debug, Default)]
pub struct Answers {
    held: Vec<u8>,
    greeted: bool,
}

impl Answers {
    /// The next answer; `None` where it needs more input. What it used is taken from the front of `input`.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Answer>, WireError> {
        if !self.greeted {
            if !hold(&mut self.held, 8, input) {
                return Ok(None);
            }
            if self.held != RECEIVER {
                return Err(WireError::Version);
            }
            self.greeted = true;
            self.held.clear();
        }
        if !hold(&mut self.held, 1, input) {
            return Ok(None);
        }
        // How long an offer or a reason is stands in it.
        let head = match self.held[0] {
            1 => 5,
            2 | 4 => 5 + HASH,
            3 => 1 + HASH,
            5 => 3,
            kind => return Err(WireError::Kind(kind)),
        };
        if !hold(&mut self.held, head, input) {
            return Ok(None);
        }
        let length = match self.held[0] {
            1 => match u32_of(&self.held[1..5]) as usize {
                count if count > MOST_ENTRIES => return Err(WireError::Malformed),
                count => head + 12 * count,
            },
            5 => match usize::from(u16::from_be_bytes([self.held[1], self.held[2]])) {
                length if length > MOST_REASON => return Err(WireError::Malformed),
                length => head + length,
            },
            _ => head,
        };
        if !hold(&mut self.held, length, input) {
            return Ok(None);
        }
        let held = std::mem::take(&mut self.held);
        Ok(Some(match held[0] {
            1 => Answer::Offer(
                held[5..]
                    .chunks_exact(12)
                    .map(|o| (u32_of(&o[..4]), u64_of(&o[4..])))
                    .collect(),
            ),
            2 => Answer::Block(u32_of(&held[1..5]), hash_of(&held[5..])),
            3 => Answer::Stored(hash_of(&held[1..])),
            4 => Answer::Differs(u32_of(&held[1..5]), hash_of(&held[5..])),
            _ => Answer::Failed(printable(&held[3..])),
        }))
    }
}

/// How many blocks a receiver hashes of what it offered.
pub fn blocks(offered: u64, of: u64) -> u64 {
    match offered == of {
        true => offered.div_ceil(BLOCK),
        false => offered / BLOCK,
    }
}

/// Moves bytes from the input until so many are held; whether they are.
fn hold(held: &mut Vec<u8>, length: usize, input: &mut &[u8]) -> bool {
    let missing = length.saturating_sub(held.len()).min(input.len());
    let (taken, rest) = input.split_at(missing);
    held.extend_from_slice(taken);
    *input = rest;
    held.len() >= length
}

fn u32_of(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |n, byte| n << 8 | u32::from(*byte))
}

fn u64_of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

fn hash_of(bytes: &[u8]) -> Hash {
    let mut hash = [0; HASH];
    hash.copy_from_slice(bytes);
    hash
}

/// At most so many bytes of the text, whole characters only.
fn first_bytes(text: &str, most: usize) -> &[u8] {
    let end = text
        .char_indices()
        .map(|(at, c)| at + c.len_utf8())
        .take_while(|end| *end <= most)
        .last();
    &text.as_bytes()[..end.unwrap_or(0)]
}

/// Another host's words, for a terminal: without what could steer it.
pub fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests;
