//! The sender's stream: the list, then each entry from where the receiver needs it, read where it is sent from.
//!
//! An entry begins when the receiver has said what it has of it, and its hashes were compared with the file here. That takes a round
//! trip. So the first one begins at once, as a guess that the receiver has nothing of it: with what a first window carries, or, for a
//! second loop, which begins with the end of what it knows, with all that there is room for.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use ccplane_files::wire::{self, DATA_HEAD, MOST_DATA, What};
use ccplane_files::{BLOCK, Hash, of_all};
use ccplane_udp::Host;
use ccplane_units::{Duration, Time};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::gather::{From, Item, unreadable};
use crate::exit::{Failure, Kind};

/// Bytes read in one round of the loop: what a round of sending takes at most. More would keep acknowledgements waiting while a disk
/// is read.
const ROUND: usize = 256 << 10;
/// Bytes that are sent before the receiver's offer is known: some first windows. More would be sent in vain where it has them.
const GUESS: u64 = 64 << 10;
/// Room below which a frame is put together elsewhere.
const SMALL: usize = 64;
/// A source that has nothing says so this often, or the receiver would take its place away.
const ALIVE_EVERY: Duration = Duration::from_secs(1);

/// See the [module](self).
pub(super) struct Stream {
    items: Vec<Item>,
    /// The one that is being sent.
    entry: usize,
    stage: Stage,
    /// What goes out before anything else.
    pending: VecDeque<u8>,
    /// What the receiver has, once it has said so.
    offers: Option<BTreeMap<u32, u64>>,
    /// Its hashes that were not compared yet, and how many more it may send: what a peer makes this side hold is bounded by its offer.
    blocks: VecDeque<(u32, Hash)>,
    awaited: u64,
    /// Of the entries that are through.
    hashes: Vec<Hash>,
    /// Bytes that are sent before the offer is known.
    guess: u64,
    /// When the last byte was given.
    given_at: Time,
    scratch: Vec<u8>,
    /// Bytes that the receiver had already.
    pub had: u64,
    /// Bytes of entries that were read here, compared or sent.
    pub read: u64,
}

enum Stage {
    /// The entry has not begun.
    Next,
    /// What the receiver has of it is compared.
    Compare {
        file: File,
        hasher: Box<blake3::Hasher>,
        matched: u64,
        have: u64,
    },
    /// Its bytes are sent.
    Body {
        source: Source,
        at: u64,
        hasher: Box<blake3::Hasher>,
        guess: bool,
    },
    /// It is through, if the guess was right: so many bytes of this hash.
    Guessed(u64, Hash),
    /// All are through.
    Over,
}

enum Source {
    File(File, PathBuf, u64),
    Pipe(File),
    Pattern(u64),
}

/// What became of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    /// There may be more at once.
    More,
    /// The connection has no room, or the receiver has to say something first.
    Waits,
    /// The source has nothing at the moment.
    Quiet,
}

impl Stream {
    /// Of these. `ahead`: without waiting for the receiver's offer.
    pub fn new(items: Vec<Item>, ahead: bool, now: Time) -> Result<Stream, Failure> {
        let entries: Vec<_> = items.iter().map(|item| item.entry.clone()).collect();
        let list = wire::list(&entries).map_err(|why| {
            Failure::new(Kind::Usage, why).hint("send an archive instead: tar -c FOLDER | ccplane send HOST:PORT -")
        })?;
        Ok(Stream {
            items,
            entry: 0,
            stage: Stage::Next,
            pending: list.into(),
            offers: None,
            blocks: VecDeque::new(),
            awaited: 0,
            hashes: Vec::new(),
            guess: if ahead { u64::MAX } else { GUESS },
            given_at: now,
            scratch: Vec::new(),
            had: 0,
            read: 0,
        })
    }

    /// Bytes of all entries; `None` where one tells only at its end.
    pub fn total(&self) -> Option<u64> {
        wire::total(self.items.iter().map(|item| &item.entry))
    }

    /// How many files and streams there are.
    pub fn files(&self) -> usize {
        self.items
            .iter()
            .filter(|item| !matches!(item.from, From::Nowhere))
            .count()
    }

    /// What they are called, for a person.
    pub fn name(&self, entry: u32) -> String {
        let item = usize::try_from(entry).ok().and_then(|entry| self.items.get(entry));
        item.map_or_else(String::new, |item| wire::printable(&item.entry.name))
    }

    /// The hash of all, once they are through.
    pub fn hash(&self) -> Hash {
        of_all(&self.hashes)
    }

    /// The receiver says what it has. An error: it cannot have that.
    pub fn offered(&mut self, offers: Vec<(u32, u64)>) -> Result<(), Failure> {
        let all = offers.len();
        for (entry, have) in &offers {
            let item = self.items.get(*entry as usize);
            match item.map(|item| (&item.from, item.entry.what)) {
                Some((From::File(_), What::File { bytes, .. })) if *have <= bytes => {
                    self.awaited += wire::blocks(*have, bytes);
                }
                _ => return Err(nonsense("it offers what is not on the list")),
            }
        }
        let offers: BTreeMap<u32, u64> = offers.into_iter().collect();
        if offers.len() != all || self.offers.replace(offers).is_some() {
            return Err(nonsense("it offers something twice"));
        }
        Ok(())
    }

    /// And what that is.
    pub fn block(&mut self, entry: u32, hash: Hash) -> Result<(), Failure> {
        let left = self.awaited.checked_sub(1);
        self.awaited = left.ok_or_else(|| nonsense("it sends more hashes than it has blocks"))?;
        // Of an entry that began before its last block was compared.
        if entry as usize >= self.entry {
            self.blocks.push_back((entry, hash));
        }
        Ok(())
    }

    /// Gives the connection what it has room for, up to [`ROUND`] bytes.
    pub fn fill(&mut self, host: &mut Host, id: u64) -> Result<Filled, Failure> {
        let (mut left, now) = (ROUND, host.now());
        while left > 0 {
            let room = host.room(id);
            let most = room.len().min(left);
            if most == 0 {
                return Ok(Filled::Waits);
            }
            match self.next(now, &mut room[..most])? {
                Step::Gave(bytes) => {
                    self.given_at = now;
                    host.wrote(id, bytes);
                    left -= bytes;
                }
                Step::Worked => {}
                // As long as a round of sending takes.
                Step::Compared => return Ok(Filled::More),
                Step::Waits => return Ok(Filled::Waits),
                Step::Quiet => return Ok(Filled::Quiet),
                Step::Over => {
                    host.finish(id);
                    return Ok(Filled::Waits);
                }
            }
        }
        Ok(Filled::More)
    }

    /// Gives the connection what it has room for, before it sends anything: for so long at most, as a slow disk would hold it up.
    pub fn read_ahead(&mut self, host: &mut Host, id: u64, most: Duration) -> Result<(), Failure> {
        let end = host.now() + most;
        while self.fill(host, id)? == Filled::More && host.now() < end {}
        Ok(())
    }

    /// The next bytes of the stream.
    fn next(&mut self, now: Time, room: &mut [u8]) -> Result<Step, Failure> {
        if !self.pending.is_empty() {
            let given = self.pending.read(room).unwrap_or(0);
            return Ok(Step::Gave(given));
        }
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Over => Ok(Step::Over),
            Stage::Next => self.begin(),
            Stage::Guessed(bytes, hash) => Ok(match self.offer() {
                None => {
                    self.stage = Stage::Guessed(bytes, hash);
                    Step::Waits
                }
                Some(None) => {
                    self.hashes.push(hash);
                    self.advance();
                    Step::Worked
                }
                Some(Some(_)) => {
                    self.read -= bytes;
                    self.stage = Stage::Next;
                    Step::Worked
                }
            }),
            Stage::Compare {
                file,
                hasher,
                matched,
                have,
            } => self.compare(now, file, hasher, matched, have),
            Stage::Body {
                source,
                at,
                hasher,
                guess,
            } => self.body(source, at, hasher, guess, now, room),
        }
    }

    /// What the receiver has of this entry: `None` where it has not said yet.
    fn offer(&self) -> Option<Option<u64>> {
        let offers = self.offers.as_ref()?;
        Some(offers.get(&(self.entry as u32)).copied())
    }

    fn advance(&mut self) {
        self.entry += 1;
        self.stage = if self.entry < self.items.len() {
            Stage::Next
        } else {
            Stage::Over
        };
    }

    fn begin(&mut self) -> Result<Step, Failure> {
        let Some(item) = self.items.get(self.entry) else {
            return Ok(Step::Over);
        };
        if matches!(item.from, From::Nowhere) {
            self.advance();
            return Ok(Step::Worked);
        }
        let number = self.entry as u32;
        match self.offer() {
            None if self.hashes.is_empty() || self.guess == u64::MAX => {
                self.pending.extend(wire::guess(number));
                self.open(true)?;
            }
            None => {
                self.stage = Stage::Next;
                return Ok(Step::Waits);
            }
            Some(None) => {
                self.pending.extend(wire::begin(number, 0));
                self.open(false)?;
            }
            Some(Some(have)) => {
                let From::File(path) = &item.from else {
                    return Err(nonsense("it offers what is not on the list"));
                };
                let file = File::open(path).map_err(|why| unreadable(path, &why))?;
                self.stage = Stage::Compare {
                    file,
                    hasher: Box::default(),
                    matched: 0,
                    have,
                };
            }
        }
        Ok(Step::Worked)
    }

    fn open(&mut self, guess: bool) -> Result<(), Failure> {
        let item = &mut self.items[self.entry];
        let bytes = item.entry.what.bytes().unwrap_or(0);
        let source = match &mut item.from {
            From::File(path) => Source::File(
                File::open(&path).map_err(|why| unreadable(path, &why))?,
                path.clone(),
                bytes,
            ),
            From::Pipe(input) => Source::Pipe(
                input
                    .try_clone()
                    .map_err(|why| unreadable("standard input".as_ref(), &why))?,
            ),
            From::Pattern | From::Nowhere => Source::Pattern(bytes),
        };
        self.stage = Stage::Body {
            source,
            at: 0,
            hasher: Box::default(),
            guess,
        };
        Ok(())
    }

    /// Compares one block, where its hash has come.
    fn compare(
        &mut self,
        now: Time,
        file: File,
        mut hasher: Box<blake3::Hasher>,
        matched: u64,
        have: u64,
    ) -> Result<Step, Failure> {
        let item = &self.items[self.entry];
        let bytes = item.entry.what.bytes().unwrap_or(0);
        let From::File(path) = &item.from else {
            return Ok(Step::Over);
        };
        let path = path.clone();
        if matched == wire::blocks(have, bytes) {
            return Ok(self.resume(file, path, hasher, if have == bytes { bytes } else { matched * BLOCK }));
        }
        // Of an entry whose first block already differed more may have come.
        while self
            .blocks
            .front()
            .is_some_and(|(entry, _)| (*entry as usize) < self.entry)
        {
            self.blocks.pop_front();
        }
        if now.since(self.given_at) >= ALIVE_EVERY {
            self.pending.extend(wire::data(0));
        }
        let Some((_, theirs)) = self.blocks.pop_front() else {
            self.stage = Stage::Compare {
                file,
                hasher,
                matched,
                have,
            };
            return Ok(if self.pending.is_empty() {
                Step::Waits
            } else {
                Step::Worked
            });
        };
        self.scratch.resize((bytes - matched * BLOCK).min(BLOCK) as usize, 0);
        file.read_exact_at(&mut self.scratch, matched * BLOCK)
            .map_err(|why| unreadable(&path, &why))?;
        if *blake3::hash(&self.scratch).as_bytes() != theirs {
            // A whole file that differs is another file.
            let from = if have == bytes { 0 } else { matched * BLOCK };
            let hasher = if from == 0 { Box::default() } else { hasher };
            return Ok(self.resume(file, path, hasher, from));
        }
        hasher.update(&self.scratch);
        self.stage = Stage::Compare {
            file,
            hasher,
            matched: matched + 1,
            have,
        };
        Ok(Step::Compared)
    }

    fn resume(&mut self, file: File, path: PathBuf, hasher: Box<blake3::Hasher>, from: u64) -> Step {
        let bytes = self.items[self.entry].entry.what.bytes().unwrap_or(0);
        self.had += from;
        self.read += from;
        self.pending.extend(wire::begin(self.entry as u32, from));
        self.stage = Stage::Body {
            source: Source::File(file, path, bytes),
            at: from,
            hasher,
            guess: false,
        };
        Step::Worked
    }

    fn body(
        &mut self,
        mut source: Source,
        at: u64,
        mut hasher: Box<blake3::Hasher>,
        guess: bool,
        now: Time,
        room: &mut [u8],
    ) -> Result<Step, Failure> {
        let guess = match (guess, self.offer()) {
            (true, Some(Some(_))) => {
                // The receiver throws the guess away.
                self.read -= at;
                self.stage = Stage::Next;
                return Ok(Step::Worked);
            }
            (true, None) if at >= self.guess => {
                self.stage = Stage::Body {
                    source,
                    at,
                    hasher,
                    guess,
                };
                return Ok(Step::Waits);
            }
            (guess, offer) => guess && offer.is_none(),
        };
        let mut elsewhere = [0; SMALL];
        let small = room.len() < SMALL;
        let frame = if small { &mut elsewhere[..] } else { room };
        let most = (frame.len() - DATA_HEAD).min(MOST_DATA);
        let read = source.read(&mut frame[DATA_HEAD..DATA_HEAD + most], at)?;
        match read {
            None => {
                self.stage = Stage::Body {
                    source,
                    at,
                    hasher,
                    guess,
                };
                if now.since(self.given_at) >= ALIVE_EVERY {
                    self.pending.extend(wire::data(0));
                    return Ok(Step::Worked);
                }
                Ok(Step::Quiet)
            }
            Some(0) => {
                let hash = *hasher.finalize().as_bytes();
                self.pending.extend(wire::end(&hash));
                if guess {
                    self.stage = Stage::Guessed(at, hash);
                } else {
                    self.hashes.push(hash);
                    self.advance();
                }
                Ok(Step::Worked)
            }
            Some(read) => {
                hasher.update(&frame[DATA_HEAD..DATA_HEAD + read]);
                frame[..DATA_HEAD].copy_from_slice(&wire::data(read as u32));
                let length = DATA_HEAD + read;
                self.read += read as u64;
                self.stage = Stage::Body {
                    source,
                    at: at + read as u64,
                    hasher,
                    guess,
                };
                if small {
                    self.pending.extend(&elsewhere[..length]);
                    return Ok(Step::Worked);
                }
                Ok(Step::Gave(length))
            }
        }
    }
}

/// What one step did.
enum Step {
    /// So many bytes are in the room.
    Gave(usize),
    /// Something else, and there may be more to do.
    Worked,
    /// A block was read and compared.
    Compared,
    Waits,
    Quiet,
    Over,
}

/// What a receiver says cannot be.
fn nonsense(what: &str) -> Failure {
    Failure::text(Kind::Failed, format!("the receiver makes no sense: {what}"))
}

impl Source {
    /// Reads from `at` on: none at the end, `None` where nothing is there at the moment.
    fn read(&mut self, room: &mut [u8], at: u64) -> Result<Option<usize>, Failure> {
        match self {
            Source::File(file, path, bytes) => {
                let most = usize::try_from(*bytes - at).unwrap_or(usize::MAX).min(room.len());
                if most == 0 {
                    return Ok(Some(0));
                }
                loop {
                    match file.read_at(&mut room[..most], at) {
                        Ok(0) => {
                            let text = format!(
                                "{} became shorter while it was sent: {at} of {bytes} bytes",
                                path.display()
                            );
                            return Err(Failure::text(Kind::Failed, text));
                        }
                        Ok(read) => return Ok(Some(read)),
                        Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                        Err(why) => return Err(unreadable(path, &why)),
                    }
                }
            }
            Source::Pipe(input) => {
                let mut polled = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
                if poll(&mut polled, PollTimeout::ZERO).unwrap_or(0) == 0 {
                    return Ok(None);
                }
                match input.read(room) {
                    Ok(read) => Ok(Some(read)),
                    Err(why) if matches!(why.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                        Ok(None)
                    }
                    Err(why) => Err(unreadable("what is sent".as_ref(), &why)),
                }
            }
            Source::Pattern(bytes) => {
                let most = usize::try_from(*bytes - at).unwrap_or(usize::MAX).min(room.len());
                pattern(&mut room[..most], at);
                Ok(Some(most))
            }
        }
    }
}

/// Each eight bytes say where they are, so that a hash of anything misplaced differs.
fn pattern(room: &mut [u8], at: u64) {
    let begun = (at.next_multiple_of(8) - at).min(room.len() as u64) as usize;
    let (first, rest) = room.split_at_mut(begun);
    first.copy_from_slice(&(at / 8).to_be_bytes()[(at % 8) as usize..][..begun]);
    for (number, piece) in (at.div_ceil(8)..).zip(rest.chunks_mut(8)) {
        piece.copy_from_slice(&number.to_be_bytes()[..piece.len()]);
    }
}

#[cfg(test)]
mod tests;
