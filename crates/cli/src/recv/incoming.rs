//! One transfer, from its first byte to the moment when the sender has its receipt.

use std::collections::VecDeque;
use std::io::Read;
use std::net::SocketAddr;
use std::thread::JoinHandle;

use ccplane_files::Hash;
use ccplane_files::wire::{Answer, Frames, greeting};
use ccplane_udp::Host;
use ccplane_units::{Duration, Time};
use indicatif::ProgressBar;

use super::received::Received;
use super::target::{Target, human};
use crate::exit::{Failure, Kind};
use crate::transfer::{bar, hex};

/// How long a sender has to take its receipt, once everything is stored. One that is gone has what it wanted.
const RECEIPT_TAKEN_WITHIN: Duration = Duration::from_secs(3);

/// See the [module](self).
pub(super) struct Incoming {
    peer: SocketAddr,
    begun: Time,
    frames: Frames,
    files: Received,
    /// What the sender is still to be told.
    out: VecDeque<u8>,
    /// Writes down what is complete. A disk may take seconds for it, in which the sender is to hear that this side lives.
    storing: Option<JoinHandle<Result<Option<String>, String>>>,
    /// When the last of its bytes came, in order.
    progress: Time,
    receipt: Option<(Answer, Time)>,
    finished: bool,
    bar: Option<ProgressBar>,
    failed: Option<String>,
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
    /// The `number`-th transfer. `trusted`: the sender has proved who it is.
    pub fn new(peer: SocketAddr, number: u64, trusted: bool, now: Time) -> Incoming {
        Incoming {
            peer,
            begun: now,
            frames: Frames::default(),
            files: Received::new(number, trusted),
            out: greeting().into(),
            storing: None,
            progress: now,
            receipt: None,
            finished: false,
            bar: None,
            failed: None,
        }
    }

    /// Whether it has work to do before anything more arrives.
    pub fn is_busy(&self) -> bool {
        self.receipt.is_none() && (self.storing.is_some() || self.files.is_hashing())
    }

    /// Takes what has arrived; true when there is nothing more to do.
    pub fn step(&mut self, id: u64, host: &mut Host, target: &Target) -> bool {
        let now = host.now();
        let (first, second) = host.arrived(id);
        let arrived = first.len() + second.len();
        // After the receipt: a sender that is told early that its bytes cannot be stored may have some under way.
        let mut taken = arrived;
        if self.receipt.is_none() {
            match self.work(first, second, target) {
                Ok(used) => taken = used,
                Err(why) => self.refuse(why, now),
            }
            if taken > 0 {
                self.progress = now;
            }
            self.complete(now, target);
        }
        host.take(id, taken);
        self.tell(id, host);
        let Some(connection) = host.connection(id) else {
            return true;
        };
        match (&self.receipt, connection.failure()) {
            // What is complete is written down, whether or not its sender waits for it.
            (None, _) if self.storing.is_some() => false,
            (None, Some(why)) => {
                self.failed = Some(why.to_string());
                true
            }
            (None, None) => {
                let ended = connection.received_all() && taken == arrived && !self.is_busy();
                if ended {
                    self.failed = Some("the sender ended it early".to_owned());
                }
                ended
            }
            (Some(_), Some(_)) => true,
            (Some((_, since)), None) => connection.sent_all() || now.since(*since) > RECEIPT_TAKEN_WITHIN,
        }
    }

    /// Hashes, and takes the sender's bytes as far as it is ready for them: so many were used.
    fn work(&mut self, first: &[u8], second: &[u8], target: &Target) -> Result<usize, Answer> {
        self.files.hash(&mut self.out);
        let mut used = 0;
        for piece in [first, second] {
            let mut rest = piece;
            while !self.files.is_behind() {
                let event = self.frames.next(&mut rest);
                let Some(event) = event.map_err(|why| Answer::Failed(why.to_string()))? else {
                    break;
                };
                self.files.take(event, target, &mut self.out)?;
            }
            used += piece.len() - rest.len();
            if !rest.is_empty() {
                break;
            }
        }
        if used > 0 {
            let total = self.files.total();
            let bar = self.bar.get_or_insert_with(|| bar(total));
            bar.set_position(self.files.received + self.files.had);
        }
        Ok(used)
    }

    /// When all entries are here: has them written down, then says so.
    fn complete(&mut self, now: Time, target: &Target) {
        if self.receipt.is_some() || !self.files.is_complete() {
            return;
        }
        match &self.storing {
            None => {
                let (whole, target) = (self.files.whole.take(), target.clone());
                self.storing = Some(std::thread::spawn(move || match whole {
                    Some((sink, hash)) => sink.store(&hash, true).map(Some),
                    None => target.sync().map(|()| None),
                }));
            }
            Some(thread) if thread.is_finished() => self.settle(now),
            Some(_) => {}
        }
    }

    /// Waits until everything is written down, and writes the receipt.
    fn settle(&mut self, now: Time) {
        let Some(thread) = self.storing.take() else { return };
        match thread
            .join()
            .unwrap_or_else(|_| Err("what stores it has failed".to_owned()))
        {
            Ok(name) => {
                if let Some(name) = name {
                    self.files.stored(name);
                }
                self.receipt(Answer::Stored(self.files.hash_of_all()), now);
            }
            Err(why) => self.refuse(Answer::Failed(why), now),
        }
    }

    /// It cannot be stored, and nothing of the entry that is wrong is kept.
    fn refuse(&mut self, why: Answer, now: Time) {
        self.files.give_up();
        self.receipt(why, now);
    }

    fn receipt(&mut self, answer: Answer, now: Time) {
        self.out.extend(answer.write());
        self.receipt = Some((answer, now));
    }

    /// Tells the sender what it is to hear, as far as there is room.
    fn tell(&mut self, id: u64, host: &mut Host) {
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

    /// This side is told to end. What is being written down is waited for.
    pub fn interrupt(&mut self, now: Time) {
        self.settle(now);
        self.failed = Some("interrupted".to_owned());
    }

    /// What became of it. What is not complete is kept for the next attempt, as far as that can use it.
    pub fn outcome(mut self) -> Result<Done, Failure> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let from = format!("the transfer from {}", self.peer);
        let failed = |text| Failure::text(Kind::Failed, text);
        let had = self.files.received + self.files.had;
        match self.receipt.take() {
            Some((Answer::Stored(hash), at)) => Ok(Done {
                peer: self.peer,
                name: self.files.whereabouts(),
                renamed: self.files.renamed(),
                files: self.files.files(),
                bytes: had,
                had: self.files.had,
                seconds: at.since(self.begun).as_secs_f64(),
                hash,
            }),
            Some((Answer::Differs(entry, ours), _)) => Err(failed(format!(
                "{from}: {} arrived as something else: its hash is {} here; it was not kept",
                self.files.name(entry),
                hex(&ours),
            ))
            .hint("what the network changes is thrown away and sent again: a machine changes data, or the file has changed meanwhile")),
            Some((Answer::Failed(why), _)) => Err(failed(format!("{from} was given up: {why}"))),
            _ => {
                let why = self.failed.take().unwrap_or_else(|| "the sender is gone".to_owned());
                let total = self.files.total();
                let of = total.map_or_else(String::new, |total| format!(" of {}", human(total)));
                let failure = failed(format!("{from} ended after {}{of}: {why}", human(had)));
                Err(match self.files.keep() {
                    true => failure.hint("what came is kept: the same `ccplane send` goes on from there, for a week"),
                    false => failure.hint("too little had come to be kept"),
                })
            }
        }
    }
}
