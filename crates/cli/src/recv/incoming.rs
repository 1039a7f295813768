//! One transfer, from its first byte to the moment when the sender has its receipt.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread::JoinHandle;

use ccplane_files::wire::{Answer, Entry, Event, Frames, What, WireError, greeting, printable};
use ccplane_files::{BLOCK, Hash, of_all};
use ccplane_transport::udp::Host;
use ccplane_units::{Duration, Time};
use indicatif::ProgressBar;

use super::place::{Found, Hashing, Sink, Target, human, offered, sweep};
use crate::exit::{Failure, Kind};
use crate::send::bar;
use crate::transfer::hex;

/// How long a sender has to take its receipt, once everything is stored. One that is gone has what it wanted.
const RECEIPT_TAKEN_WITHIN: Duration = Duration::from_secs(3);
/// Blocks that are hashed in one round of the loop, some milliseconds of it.
const ROUND: usize = 4;

/// See the [module](self).
pub(super) struct Incoming {
    peer: SocketAddr,
    number: u64,
    /// The sender has the key: hidden names are taken, and it may hear hashes of what it has not sent.
    trusted: bool,
    begun: Time,
    frames: Frames,
    slots: Vec<Slot>,
    /// Those whose blocks the sender is to compare, and the one that is read now.
    to_hash: VecDeque<usize>,
    hashing: Option<(usize, Hashing)>,
    current: Current,
    /// What the sender is still to be told.
    out: VecDeque<u8>,
    /// Gives the last file its name, or has all of them written down.
    storing: Option<JoinHandle<Result<Option<String>, String>>>,
    hashes: Vec<Hash>,
    names: Vec<String>,
    done: usize,
    received: u64,
    had: u64,
    /// When the last of its bytes came, in order.
    progress: Time,
    receipt: Option<(Answer, Time)>,
    finished: bool,
    bar: ProgressBar,
    failed: Option<String>,
}

/// One entry of the list.
struct Slot {
    entry: Entry,
    place: Option<PathBuf>,
    found: Found,
    offered: Option<u64>,
    /// Of what was offered, once it was read.
    hasher: Option<Box<blake3::Hasher>>,
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

/// A transfer that succeeded.
pub(super) struct Done {
    pub peer: SocketAddr,
    /// Where it is, for a person.
    pub name: String,
    /// Names that were taken, and what is stored beside them.
    pub renamed: Vec<(String, String)>,
    pub files: usize,
    pub bytes: u64,
    /// Of these, what was there before.
    pub had: u64,
    pub seconds: f64,
    pub hash: Hash,
}

impl Incoming {
    pub fn new(peer: SocketAddr, number: u64, trusted: bool, now: Time) -> Incoming {
        Incoming {
            peer,
            number,
            trusted,
            begun: now,
            frames: Frames::default(),
            slots: Vec::new(),
            to_hash: VecDeque::new(),
            hashing: None,
            current: Current::Nothing,
            out: greeting().into(),
            storing: None,
            hashes: Vec::new(),
            names: Vec::new(),
            done: 0,
            received: 0,
            had: 0,
            progress: now,
            receipt: None,
            finished: false,
            bar: ProgressBar::hidden(),
            failed: None,
        }
    }

    /// Whether it has work to do before anything more arrives.
    pub fn is_busy(&self) -> bool {
        self.storing.is_some() || self.hashing.is_some() || !self.to_hash.is_empty() || self.is_hashing_again()
    }

    fn is_hashing_again(&self) -> bool {
        matches!(&self.current, Current::Body { again: Some(_), .. })
    }

    /// Takes what has arrived; true when there is nothing more to do.
    pub fn step(&mut self, id: u64, host: &mut Host, target: &Target, stored: &mut BTreeSet<PathBuf>) -> bool {
        let now = host.now();
        let (first, second) = host.arrived(id);
        let arrived = first.len() + second.len();
        let mut taken = arrived;
        if self.receipt.is_none() {
            let outcome = self.work(first, second, target, stored);
            match outcome {
                Ok(used) => taken = used,
                Err(why) => self.refuse(Answer::Failed(why), now),
            }
            if taken > 0 {
                self.progress = now;
            }
            if let Err(why) = self.complete(now, target) {
                self.refuse(Answer::Failed(why), now);
            }
        }
        // After the receipt: a sender that is told early that its bytes cannot be stored may have some under way.
        host.take(id, taken);
        self.tell(id, host);
        let Some(connection) = host.connection(id) else {
            return true;
        };
        if let Some(why) = connection.failure() {
            if self.receipt.is_none() {
                self.failed = Some(why.to_string());
            }
            return true;
        }
        if self.receipt.is_none() && connection.received_all() && taken == arrived && !self.is_busy() {
            self.failed = Some("the sender ended it early".to_owned());
            return true;
        }
        match &self.receipt {
            Some((_, since)) => connection.sent_all() || now.since(*since) > RECEIPT_TAKEN_WITHIN,
            None => false,
        }
    }

    /// Hashes, and takes the sender's bytes as far as it is ready for them: so many were used.
    fn work(
        &mut self,
        first: &[u8],
        second: &[u8],
        target: &Target,
        stored: &mut BTreeSet<PathBuf>,
    ) -> Result<usize, String> {
        self.hash_offers();
        self.hash_again();
        let mut used = 0;
        for piece in [first, second] {
            let mut rest = piece;
            while self.receipt.is_none() && !self.is_hashing_again() {
                let event = self.frames.next(&mut rest).map_err(|why: WireError| why.to_string())?;
                let Some(event) = event else { break };
                self.take(event, target, stored)?;
            }
            used += piece.len() - rest.len();
            if !rest.is_empty() {
                break;
            }
        }
        Ok(used)
    }

    fn take(&mut self, event: Event<'_>, target: &Target, stored: &mut BTreeSet<PathBuf>) -> Result<(), String> {
        match event {
            Event::List(entries) => self.listed(entries, target, stored),
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
            Event::Data(bytes) => self.body(bytes),
            Event::End(theirs) => self.end(theirs, target, stored),
        }
    }

    /// An entry of the list that can begin.
    fn slot(&self, entry: u32) -> Result<usize, String> {
        let slot = entry as usize;
        match self.slots.get(slot) {
            Some(one) if !one.done && one.entry.what != What::Folder => Ok(slot),
            _ => Err("the sender begins what is not on its list, or twice".to_owned()),
        }
    }

    /// Makes folders, looks for what is there already, and says so.
    fn listed(&mut self, entries: Vec<Entry>, target: &Target, stored: &BTreeSet<PathBuf>) -> Result<(), String> {
        let files = entries.iter().filter(|entry| entry.what != What::Folder).count();
        if target.is_single() && (files != 1 || entries.len() != 1) {
            return Err(format!("{files} files do not fit into one: give --out a folder"));
        }
        let (mut wanted, mut folders, mut offers) = (0u64, BTreeSet::new(), Vec::new());
        for (number, entry) in entries.into_iter().enumerate() {
            let place = target.place(&entry, self.trusted)?;
            let mut slot = Slot {
                entry,
                place,
                found: Found::Nothing,
                offered: None,
                hasher: None,
                done: false,
            };
            let bytes = slot.entry.what.bytes().unwrap_or(0);
            if let Some(place) = slot.place.as_deref() {
                if slot.entry.what == What::Folder {
                    target.make_folders(place)?;
                    slot.done = true;
                } else {
                    let inside = place.parent().unwrap_or(place).to_owned();
                    if !folders.contains(&inside) {
                        target.make_folders(&inside)?;
                        sweep(&inside);
                        folders.insert(inside);
                    }
                    let known = self.trusted || stored.contains(place);
                    slot.found = target.found(&slot.entry, place, known);
                    slot.offered = offered(&slot.found, bytes);
                }
            }
            if let Some(have) = slot.offered {
                offers.push((number as u32, have));
                self.to_hash.push_back(number);
            }
            slot.done |= slot.entry.what == What::Folder;
            wanted = wanted.saturating_add(bytes - slot.offered.unwrap_or(0));
            self.slots.push(slot);
        }
        target.has_room(wanted)?;
        let total: Option<u64> = self.slots.iter().map(|slot| slot.entry.what.bytes()).sum();
        self.bar = bar(total);
        self.out.extend(Answer::Offer(offers).write());
        Ok(())
    }

    /// A few blocks of what was offered, for the sender to compare.
    fn hash_offers(&mut self) {
        for _ in 0..ROUND {
            let (slot, mut hashing) = match (self.hashing.take(), self.to_hash.pop_front()) {
                (Some(now), next) => {
                    if let Some(next) = next {
                        self.to_hash.push_front(next);
                    }
                    now
                }
                (None, Some(slot)) => (slot, self.read_offered(slot)),
                (None, None) => return,
            };
            match hashing.next() {
                Some(hash) => {
                    self.out.extend(Answer::Block(slot as u32, hash).write());
                    self.hashing = Some((slot, hashing));
                }
                None => {
                    if let Some(slot) = self.slots.get_mut(slot) {
                        slot.hasher = Some(hashing.hasher);
                    }
                }
            }
        }
    }

    fn read_offered(&self, slot: usize) -> Hashing {
        let bytes = self.slots[slot].offered.unwrap_or(0);
        match &self.slots[slot].found {
            Found::Part(part, _) => Hashing::new(part.reader(), bytes),
            Found::Whole(path) => Hashing::new(std::fs::File::open(path), bytes),
            // It has begun, and the sender needs no hashes any more.
            Found::Nothing => Hashing::new(Err(std::io::ErrorKind::NotFound.into()), 0),
        }
    }

    /// What an entry keeps of an earlier attempt, where that is less than was offered.
    fn hash_again(&mut self) {
        let Current::Body { hasher, again, .. } = &mut self.current else {
            return;
        };
        let Some(hashing) = again else { return };
        for _ in 0..ROUND {
            if hashing.next().is_none() {
                *hasher = std::mem::take(&mut hashing.hasher);
                *again = None;
                return;
            }
        }
    }

    fn begin(&mut self, number: usize, from: u64, target: &Target) -> Result<(), String> {
        let slot = &mut self.slots[number];
        let have = slot.offered.unwrap_or(0);
        let bytes = slot.entry.what.bytes();
        let whole = matches!(slot.found, Found::Whole(_));
        if from > have
            || (whole && from != 0 && Some(from) != bytes)
            || (from != 0 && from != have && !from.is_multiple_of(BLOCK))
        {
            return Err("the sender goes on where nothing is".to_owned());
        }
        let read = slot.hasher.take();
        match std::mem::replace(&mut slot.found, Found::Nothing) {
            // An empty one begins at its end too.
            Found::Whole(_) if Some(from) == bytes => {
                let hasher = read.ok_or("the sender does not wait for what it has to compare")?;
                self.current = Current::Whole(number, hasher);
                self.had += from;
            }
            Found::Part(part, _) if from > 0 => {
                let reader = part.reader();
                let place = slot.place.clone().ok_or("a part without a place")?;
                let sink = part.resume(&slot.entry, &place, target, from)?;
                let (hasher, again) = match read {
                    Some(hasher) if from == have => (hasher, None),
                    _ => (Box::default(), Some(Hashing::new(reader, from))),
                };
                self.had += from;
                self.current = Current::Body {
                    slot: number,
                    sink,
                    hasher,
                    at: from,
                    again,
                };
            }
            // What is there differs, and is begun anew: its lock has to be free for that.
            differs => {
                drop(differs);
                let sink = target.open(&slot.entry, slot.place.as_deref(), self.number)?;
                self.current = Current::Body {
                    slot: number,
                    sink,
                    hasher: Box::default(),
                    at: 0,
                    again: None,
                };
            }
        }
        Ok(())
    }

    fn body(&mut self, bytes: &[u8]) -> Result<(), String> {
        match &mut self.current {
            Current::Ignored => Ok(()),
            Current::Nothing | Current::Whole(..) if bytes.is_empty() => Ok(()),
            Current::Nothing | Current::Whole(..) => Err("bytes of nothing that has begun".to_owned()),
            Current::Body {
                slot, sink, hasher, at, ..
            } => {
                *at += bytes.len() as u64;
                if self.slots[*slot].entry.what.bytes().is_some_and(|all| *at > all) {
                    return Err("more bytes than the sender announced".to_owned());
                }
                sink.write(bytes)?;
                hasher.update(bytes);
                self.received += bytes.len() as u64;
                self.bar.set_position(self.received + self.had);
                Ok(())
            }
        }
    }

    /// Judges an entry, and gives it its name.
    fn end(&mut self, theirs: Hash, target: &Target, stored: &mut BTreeSet<PathBuf>) -> Result<(), String> {
        let differs = |slot: usize, ours: Hash| Answer::Differs(slot as u32, ours);
        match std::mem::replace(&mut self.current, Current::Nothing) {
            Current::Ignored => self.current = Current::Ignored,
            Current::Nothing => return Err("the end of nothing that has begun".to_owned()),
            Current::Whole(slot, hasher) => {
                let ours = *hasher.finalize().as_bytes();
                if ours != theirs {
                    self.refuse(differs(slot, ours), self.progress);
                    return Ok(());
                }
                let name = self.slots[slot].place.as_ref().map(|place| place.display().to_string());
                self.names.extend(name);
                self.finish(slot, ours);
            }
            Current::Body {
                slot, sink, hasher, at, ..
            } => {
                let ours = *hasher.finalize().as_bytes();
                if self.slots[slot].entry.what.bytes().is_some_and(|all| at != all) {
                    return Err("fewer bytes than the sender announced".to_owned());
                }
                if ours != theirs {
                    self.refuse(differs(slot, ours), self.progress);
                    return Ok(());
                }
                // A disk may take seconds to write a file down, in which the sender is to hear that this side lives.
                if self.slots.len() == 1 || !matches!(target, Target::Folder(_)) {
                    self.storing = Some(std::thread::spawn(move || sink.store(&ours, true).map(Some)));
                } else {
                    let name = sink.store(&ours, false)?;
                    stored.insert(PathBuf::from(&name));
                    self.names.push(name);
                }
                self.finish(slot, ours);
            }
        }
        Ok(())
    }

    fn finish(&mut self, slot: usize, hash: Hash) {
        self.slots[slot].done = true;
        self.hashes.push(hash);
        self.done += 1;
    }

    /// When all entries are here: has them written down, then says so.
    fn complete(&mut self, now: Time, target: &Target) -> Result<(), String> {
        if self.receipt.is_some() || self.slots.is_empty() || self.slots.iter().any(|slot| !slot.done) {
            return Ok(());
        }
        match &self.storing {
            None if self.slots.len() > 1 => {
                let target = target.clone();
                self.storing = Some(std::thread::spawn(move || target.sync().map(|()| None)));
                return Ok(());
            }
            Some(thread) if !thread.is_finished() => return Ok(()),
            _ => {}
        }
        if let Some(thread) = self.storing.take() {
            let stored = thread.join().map_err(|_| "what stores it has failed".to_owned())??;
            self.names.extend(stored);
        }
        self.bar.finish_and_clear();
        self.receipt(Answer::Stored(of_all(&self.hashes)), now);
        Ok(())
    }

    fn receipt(&mut self, answer: Answer, now: Time) {
        self.out.extend(answer.write());
        self.receipt = Some((answer, now));
    }

    /// It cannot be stored, and nothing of the entry that is wrong is kept.
    fn refuse(&mut self, answer: Answer, now: Time) {
        self.bar.finish_and_clear();
        self.current = Current::Nothing;
        if self.receipt.is_none() {
            self.receipt(answer, now);
        }
    }

    /// Tells the sender what it is to hear, as far as there is room.
    fn tell(&mut self, id: u64, host: &mut Host) {
        use std::io::Read;
        while !self.out.is_empty() {
            let room = host.room(id);
            if room.is_empty() {
                return;
            }
            let written = self.out.read(room).unwrap_or(0);
            host.wrote(id, written);
        }
        if self.receipt.is_some() && !self.finished {
            self.finished = true;
            host.finish(id);
        }
    }

    /// Whether it has its place for nothing: its peer may be heard, but nothing comes that continues the stream.
    pub fn gives_way(&mut self, now: Time, within: Duration) -> bool {
        let idle = self.receipt.is_none() && !self.is_busy() && now.since(self.progress) > within;
        if idle {
            self.failed = Some(format!("nothing new came for {within}"));
        }
        idle
    }

    /// This side is told to end.
    pub fn interrupt(&mut self) {
        self.failed = Some("interrupted".to_owned());
    }

    /// What became of it. What is not complete is kept for the next attempt, as far as that can use it.
    pub fn outcome(mut self) -> Result<Done, Failure> {
        self.bar.finish_and_clear();
        let from = format!("the transfer from {}", self.peer);
        let failed = |text| Failure::text(Kind::Failed, text);
        let total: Option<u64> = self.slots.iter().map(|slot| slot.entry.what.bytes()).sum();
        match self.receipt.take() {
            Some((Answer::Stored(hash), at)) => Ok(self.done(hash, at)),
            Some((Answer::Differs(entry, ours), _)) => {
                let name = self.slots.get(entry as usize).map(|slot| printable(&slot.entry.name));
                Err(failed(format!(
                    "{from}: {} arrived as something else: its hash is {} here; it was not kept",
                    name.filter(|name| !name.is_empty())
                        .unwrap_or_else(|| "what was sent".to_owned()),
                    hex(&ours),
                ))
                .hint(
                    "the network, or a machine, changes data; with --key such datagrams are thrown away and sent again",
                ))
            }
            Some((Answer::Failed(why), _)) => Err(failed(format!("{from} was given up: {why}"))),
            _ => {
                let kept = match std::mem::replace(&mut self.current, Current::Nothing) {
                    Current::Body { sink, .. } => sink.keep(),
                    _ => 0,
                };
                let why = self.failed.take().unwrap_or_else(|| "the sender is gone".to_owned());
                let of = total.map_or_else(String::new, |total| format!(" of {}", human(total)));
                let here = human(self.received + self.had);
                let failure = failed(format!("{from} ended after {here}{of}: {why}"));
                Err(match (kept, self.done) {
                    (0, 0) => failure.hint("too little had come to be kept"),
                    _ => failure.hint("what came is kept: the same `ccplane send` goes on from there, for a week"),
                })
            }
        }
    }

    fn done(self, hash: Hash, at: Time) -> Done {
        let files = self.slots.iter().filter(|slot| slot.entry.what != What::Folder);
        let wanted = files
            .clone()
            .filter_map(|slot| slot.place.as_ref())
            .map(|place| place.display().to_string());
        let renamed = wanted
            .zip(&self.names)
            .filter(|(wanted, name)| wanted != *name)
            .map(|(wanted, name)| (wanted, name.clone()));
        let first = self.slots.first().and_then(|slot| slot.place.as_ref());
        let name = match (self.names.as_slice(), first) {
            ([one], _) if self.slots.len() == 1 => one.clone(),
            (_, Some(first)) => first.display().to_string(),
            _ => "nothing".to_owned(),
        };
        Done {
            peer: self.peer,
            name,
            renamed: renamed.collect(),
            files: files.count(),
            bytes: self.received + self.had,
            had: self.had,
            seconds: at.since(self.begun).as_secs_f64(),
            hash,
        }
    }
}
