//! The entries of one transfer: what is there of them already, what comes, and where it goes.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::path::PathBuf;

use ccplane_files::wire::{self, Answer, Entry, Event, What, printable};
use ccplane_files::{BLOCK, Hash, of_all};

use super::sink::Sink;
use super::target::{Found, Target};
use super::unfinished::Hashing;

/// Blocks that are hashed in one round of the loop, some milliseconds of it.
const ROUND: usize = 4;
/// Unfinished files that a transfer goes on with: each is open from the offer on. Who has more sends the rest from their beginning.
const MOST_PARTS: usize = 64;

/// See the [module](self).
pub(super) struct Received {
    number: u64,
    /// The sender has proved who it is: hidden names are taken, and it may hear hashes of what it has not sent.
    trusted: bool,
    slots: Vec<Slot>,
    listed: bool,
    /// Files and streams that are not complete.
    left: usize,
    /// Those whose blocks the sender is to compare, and the one that is read now.
    to_hash: VecDeque<usize>,
    hashing: Option<(usize, Hashing)>,
    current: Current,
    hashes: Vec<Hash>,
    /// The only file of a transfer, complete, to be written down.
    pub whole: Option<(Sink, Hash)>,
    /// Bytes that came.
    pub received: u64,
    /// Bytes that were there.
    pub had: u64,
}

/// One entry of the list.
struct Slot {
    entry: Entry,
    place: Option<PathBuf>,
    found: Found,
    /// What the sender was told of it; gone when it has begun.
    offered: Option<u64>,
    /// Of what was offered, once it was read.
    hasher: Option<Box<blake3::Hasher>>,
    /// Where it is.
    stored: Option<String>,
    done: bool,
}

/// What the sender's data is for.
enum Current {
    /// None has begun.
    Nothing,
    /// A guess that was wrong.
    Ignored,
    /// A file that is there already.
    Whole(usize, Box<blake3::Hasher>),
    /// An entry. Before it takes bytes, what it keeps of an earlier attempt is hashed.
    Body {
        slot: usize,
        sink: Sink,
        hasher: Box<blake3::Hasher>,
        at: u64,
        again: Option<Hashing>,
    },
}

/// Why it cannot go on, as the sender is told.
pub(super) type Refusal = Answer;

fn refuse<T>(why: impl Into<String>) -> Result<T, Refusal> {
    Err(Answer::Failed(why.into()))
}

impl Received {
    /// The `number`-th transfer.
    pub fn new(number: u64, trusted: bool) -> Received {
        Received {
            number,
            trusted,
            slots: Vec::new(),
            listed: false,
            left: 0,
            to_hash: VecDeque::new(),
            hashing: None,
            current: Current::Nothing,
            hashes: Vec::new(),
            whole: None,
            received: 0,
            had: 0,
        }
    }

    /// Takes what the sender says. What it is to be answered at once is added to `out`.
    pub fn take(&mut self, event: Event<'_>, target: &Target, out: &mut VecDeque<u8>) -> Result<(), Refusal> {
        match event {
            Event::List(entries) => {
                let offers = self.list(entries, target).map_err(Answer::Failed)?;
                out.extend(Answer::Offer(offers).write());
                Ok(())
            }
            Event::Guess { entry } => {
                let slot = self.slot(entry)?;
                if self.slots[slot].offered.is_some() {
                    self.current = Current::Ignored;
                    return Ok(());
                }
                self.begin(slot, 0, target)
            }
            Event::Begin { entry, from } => {
                let slot = self.slot(entry)?;
                self.begin(slot, from, target)
            }
            Event::Data(bytes) => self.data(bytes),
            Event::End(theirs) => self.end(theirs),
        }
    }

    /// An entry of the list that can begin.
    fn slot(&self, entry: u32) -> Result<usize, Refusal> {
        let slot = entry as usize;
        match self.slots.get(slot) {
            Some(one) if !one.done => Ok(slot),
            _ => refuse("the sender begins what is not on its list, or twice"),
        }
    }

    /// Looks for what is there already, and makes folders when all of it finds room.
    fn list(&mut self, entries: Vec<Entry>, target: &Target) -> Result<Vec<(u32, u64)>, String> {
        let files = entries.iter().filter(|entry| entry.what != What::Folder).count();
        if target.is_single() && (files != 1 || entries.len() != 1) {
            return Err(format!("{files} files do not fit into one: give --out a folder"));
        }
        let (mut folders, mut parts) = (BTreeSet::new(), 0);
        let (mut wanted, mut offers) = (0u64, Vec::new());
        for (number, entry) in entries.into_iter().enumerate() {
            // So one entry makes one folder at most, and none is looked into that is somewhere else.
            let inside = entry
                .name
                .iter()
                .rposition(|byte| *byte == b'/')
                .map(|at| &entry.name[..at]);
            if inside.is_some_and(|folder| !folders.contains(folder)) {
                return Err(format!(
                    "{} is in a folder that is not on the list before it",
                    printable(&entry.name)
                ));
            }
            let place = target.place(&entry, self.trusted)?;
            let found = match (entry.what, &place) {
                (What::Folder, Some(place)) => {
                    target.check_folder(place)?;
                    Found::Nothing
                }
                (_, Some(place)) => target.found(&entry, place, self.trusted, parts < MOST_PARTS),
                (_, None) => Found::Nothing,
            };
            let bytes = entry.what.bytes().unwrap_or(0);
            let offered = match &found {
                Found::Nothing => None,
                Found::Whole(_) => Some(bytes),
                Found::Part(part) => Some(part.blocks()),
            };
            parts += usize::from(matches!(found, Found::Part(_)));
            if let Some(have) = offered {
                offers.push((number as u32, have));
                self.to_hash.push_back(number);
            }
            wanted = wanted.saturating_add(bytes - offered.unwrap_or(0));
            let folder = entry.what == What::Folder;
            if folder {
                folders.insert(entry.name.clone());
            }
            self.slots.push(Slot {
                entry,
                place,
                found,
                offered,
                hasher: None,
                stored: None,
                done: folder,
            });
        }
        target.has_room(wanted)?;
        for slot in self.slots.iter().filter(|slot| slot.entry.what == What::Folder) {
            slot.place
                .as_deref()
                .map_or(Ok(()), |place| target.make_folder(place))?;
        }
        (self.left, self.listed) = (files, true);
        Ok(offers)
    }

    /// A few blocks of what was offered, for the sender to compare, and of what an entry keeps of an earlier attempt.
    pub fn hash(&mut self, out: &mut VecDeque<u8>) {
        if let Current::Body { hasher, again, .. } = &mut self.current
            && let Some(mut hashing) = again.take()
        {
            let more = (0..ROUND).all(|_| hashing.next().is_some());
            match more {
                true => *again = Some(hashing),
                // At its end it has all.
                false => *hasher = hashing.finish().unwrap_or_default(),
            }
        }
        for _ in 0..ROUND {
            let Some((slot, mut hashing)) = self.hashing.take().or_else(|| self.next_to_hash()) else {
                return;
            };
            match hashing.next() {
                Some(hash) => {
                    out.extend(Answer::Block(slot as u32, hash).write());
                    self.hashing = Some((slot, hashing));
                }
                None => self.slots[slot].hasher = hashing.finish(),
            }
        }
    }

    fn next_to_hash(&mut self) -> Option<(usize, Hashing)> {
        let slot = self.to_hash.pop_front()?;
        let Slot { found, offered, .. } = &self.slots[slot];
        let file = match found {
            Found::Part(part) => part.reader(),
            Found::Whole(path) => File::open(path),
            Found::Nothing => Err(io::ErrorKind::NotFound.into()),
        };
        Some((slot, Hashing::new(file, offered.unwrap_or(0))))
    }

    /// Whether it has to hash before it can take more bytes.
    pub fn is_behind(&self) -> bool {
        matches!(&self.current, Current::Body { again: Some(_), .. })
    }

    /// Whether it has something to hash.
    pub fn is_hashing(&self) -> bool {
        self.hashing.is_some() || !self.to_hash.is_empty() || self.is_behind()
    }

    fn begin(&mut self, number: usize, from: u64, target: &Target) -> Result<(), Refusal> {
        // Whatever the sender still had to compare of it, it has compared enough.
        self.to_hash.retain(|slot| *slot != number);
        let reading = self.hashing.take_if(|(slot, _)| *slot == number);
        let slot = &mut self.slots[number];
        let read = slot
            .hasher
            .take()
            .or_else(|| reading.and_then(|(_, hashing)| hashing.finish()));
        let have = slot.offered.take().unwrap_or(0);
        let bytes = slot.entry.what.bytes();
        if from > have || (from != 0 && from != have && !from.is_multiple_of(BLOCK)) {
            return refuse("the sender goes on where nothing is");
        }
        self.current = match (std::mem::replace(&mut slot.found, Found::Nothing), &slot.place) {
            // An empty one begins at its end too.
            (Found::Whole(_), _) if Some(from) == bytes => {
                let Some(hasher) = read else {
                    return refuse("the sender does not wait for what it has to compare");
                };
                self.had += from;
                Current::Whole(number, hasher)
            }
            (Found::Part(part), Some(place)) if from > 0 => {
                let reader = part.reader();
                let sink = Sink::resume(part, &slot.entry, place, target.taken(), from).map_err(Answer::Failed)?;
                let (hasher, again) = match read {
                    Some(hasher) if from == have => (hasher, None),
                    _ => (Box::default(), Some(Hashing::new(reader, from))),
                };
                self.had += from;
                Current::Body {
                    slot: number,
                    sink,
                    hasher,
                    at: from,
                    again,
                }
            }
            // A whole file has one end.
            _ if from > 0 => return refuse("the sender goes on where nothing is"),
            // What is there differs, and is begun anew: its lock has to be free for that.
            (differs, place) => {
                drop(differs);
                let sink = target
                    .open(&slot.entry, place.as_deref(), self.number)
                    .map_err(Answer::Failed)?;
                Current::Body {
                    slot: number,
                    sink,
                    hasher: Box::default(),
                    at: 0,
                    again: None,
                }
            }
        };
        Ok(())
    }

    fn data(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        match &mut self.current {
            Current::Ignored => Ok(()),
            // A sender that lives and has nothing.
            Current::Nothing | Current::Whole(..) if bytes.is_empty() => Ok(()),
            Current::Nothing | Current::Whole(..) => refuse("bytes of nothing that has begun"),
            Current::Body {
                slot, sink, hasher, at, ..
            } => {
                *at += bytes.len() as u64;
                if self.slots[*slot].entry.what.bytes().is_some_and(|all| *at > all) {
                    return refuse("more bytes than the sender announced");
                }
                sink.write(bytes).map_err(Answer::Failed)?;
                hasher.update(bytes);
                self.received += bytes.len() as u64;
                Ok(())
            }
        }
    }

    /// Judges an entry, and gives it its name, or, of a transfer of one file, leaves that to whoever writes it down.
    fn end(&mut self, theirs: Hash) -> Result<(), Refusal> {
        let differs = |slot: usize, ours: Hash| Err(Answer::Differs(slot as u32, ours));
        match std::mem::replace(&mut self.current, Current::Nothing) {
            Current::Ignored => self.current = Current::Ignored,
            Current::Nothing => return refuse("the end of nothing that has begun"),
            Current::Whole(slot, hasher) => {
                let ours = *hasher.finalize().as_bytes();
                if ours != theirs {
                    return differs(slot, ours);
                }
                let place = self.slots[slot].place.as_ref();
                self.slots[slot].stored = place.map(|place| place.display().to_string());
                self.done(slot, ours);
            }
            Current::Body {
                slot, sink, hasher, at, ..
            } => {
                let ours = *hasher.finalize().as_bytes();
                if self.slots[slot].entry.what.bytes().is_some_and(|all| at != all) {
                    return refuse("fewer bytes than the sender announced");
                }
                if ours != theirs {
                    return differs(slot, ours);
                }
                if self.slots.len() == 1 {
                    self.whole = Some((sink, ours));
                } else {
                    self.slots[slot].stored = Some(sink.store(&ours, false).map_err(Answer::Failed)?);
                }
                self.done(slot, ours);
            }
        }
        Ok(())
    }

    fn done(&mut self, slot: usize, hash: Hash) {
        self.slots[slot].done = true;
        self.hashes.push(hash);
        self.left -= 1;
    }

    /// The only file of the transfer has this name.
    pub fn stored(&mut self, name: String) {
        if let [one] = self.slots.as_mut_slice() {
            one.stored = Some(name);
        }
    }

    /// Whether all entries are complete.
    pub fn is_complete(&self) -> bool {
        self.listed && self.left == 0
    }

    /// The hash of all of them.
    pub fn hash_of_all(&self) -> Hash {
        of_all(&self.hashes)
    }

    /// Bytes of all, once the list is there.
    pub fn total(&self) -> Option<u64> {
        wire::total(self.slots.iter().map(|slot| &slot.entry)).filter(|_| self.listed)
    }

    /// How many files and streams there are.
    pub fn files(&self) -> usize {
        self.slots.iter().filter(|slot| slot.entry.what != What::Folder).count()
    }

    /// What an entry is called, for a person.
    pub fn name(&self, entry: u32) -> String {
        let name = self.slots.get(entry as usize).map(|slot| printable(&slot.entry.name));
        name.filter(|name| !name.is_empty())
            .unwrap_or_else(|| "what was sent".to_owned())
    }

    /// Where it is, for a person: the file, or the first of what came.
    pub fn whereabouts(&self) -> String {
        let first = self.slots.first();
        let stored = first.and_then(|slot| slot.stored.clone());
        let place = || first.and_then(|slot| Some(slot.place.as_ref()?.display().to_string()));
        stored.or_else(place).unwrap_or_else(|| "nothing".to_owned())
    }

    /// Names that were taken, and what is stored beside them.
    pub fn renamed(&self) -> Vec<(String, String)> {
        let renamed = |slot: &Slot| {
            let (wanted, name) = (slot.place.as_ref()?.display().to_string(), slot.stored.clone()?);
            (wanted != name).then_some((wanted, name))
        };
        self.slots.iter().filter_map(renamed).collect()
    }

    /// The transfer is interrupted: whether the next attempt has something to go on with.
    pub fn keep(&mut self) -> bool {
        let kept = match std::mem::replace(&mut self.current, Current::Nothing) {
            Current::Body { sink, .. } => sink.keep() > 0,
            _ => false,
        };
        kept || self
            .slots
            .iter()
            .any(|slot| slot.done && slot.stored.is_some() || matches!(slot.found, Found::Part(_)))
    }

    /// Nothing more comes, and what is not complete is not kept.
    pub fn give_up(&mut self) {
        self.current = Current::Nothing;
    }
}
