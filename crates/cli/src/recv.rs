//! `ccplane recv`: takes what `ccplane send` sends.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use ccplane_transport::endpoint::Limits;
use ccplane_transport::udp::Host;
use ccplane_units::{Bytes, Duration, Time};
use clap::Args;
use indicatif::ProgressBar;
use serde_json::json;

use crate::exit::{Failure, Kind};
use crate::interrupt;
use crate::send::bar;
use crate::sink::{Sink, Target};
use crate::transfer::{HASH, HEAD, Head, Receipt, TransferArgs, failed, hex, warn_without_key};

/// How long the loop waits at most before it looks for Ctrl-C.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a sender has to take its receipt, once everything is stored. One that is gone has what it wanted.
const RECEIPT_TAKEN_WITHIN: Duration = Duration::from_secs(3);
/// Transfers at a time. With fewer, many small senders wait for each other; with more, windows are small.
const MOST: usize = 64;
/// How many of them one address may have, where no key tells friends from strangers.
const MOST_OF_ADDRESS: usize = 8;
/// The part of the memory that one address may have then.
const PART_OF_ADDRESS: u64 = 6;

/// Where to listen, and where to put what comes.
#[derive(Args)]
pub struct RecvArgs {
    /// Where to listen.
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:4790")]
    listen: SocketAddr,
    /// A file, which takes one transfer; a folder, which takes many; `-` for standard output; or a device such as `/dev/null`.
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
    /// End after one transfer. A file and standard output take no more than one anyway.
    #[arg(long)]
    once: bool,
    /// Replace the file if it exists.
    #[arg(long)]
    force: bool,
    /// Memory for all connections. The more of them there are, the smaller are the windows of new ones. Without --key one address
    /// has a sixth of it, and 8 of 64 places.
    #[arg(long, value_name = "BYTES", default_value = "256MB")]
    memory: Bytes,
    #[command(flatten)]
    transfer: TransferArgs,
}

impl RecvArgs {
    /// What strangers may make this process hold.
    fn limits(&self, once: bool) -> Result<Limits, Failure> {
        let memory = self.memory.get();
        let (places, address) = match (once, &self.transfer.key) {
            (true, _) => (1, None),
            (false, Some(_)) => (MOST, None),
            (false, None) => (MOST, Some((MOST_OF_ADDRESS, memory / PART_OF_ADDRESS))),
        };
        let least = Limits::least_memory(places);
        if memory < least {
            let text = format!("--memory {memory} is too little for {places} connections");
            return Err(Failure::text(Kind::Usage, text).hint(format!("{least} bytes at least")));
        }
        Ok(Limits {
            places,
            memory,
            address,
        })
    }
}

/// Runs the command: until one transfer is through, or until Ctrl-C.
pub fn run(args: &RecvArgs, json: bool) -> Result<(), Failure> {
    let target = Target::parse(&args.out, args.force)?;
    let once = args.once || target.is_single();
    let limits = args.limits(once)?;
    let mut host = Host::bind(args.transfer.options(args.listen, None, 0)?).map_err(failed)?;
    host.listen_within(limits).map_err(failed)?;
    warn_without_key(args.transfer.key.as_ref(), host.local());
    let stop = interrupt::flag()?;
    // Standard output may be what is received.
    if json {
        eprintln!("{}", json!({ "listening": host.local().to_string() }));
    } else {
        eprintln!("listening on {}", host.local());
    }

    let mut transfers: BTreeMap<u64, Transfer> = BTreeMap::new();
    let mut count = 0;
    loop {
        if interrupt::raised(&stop) {
            let mut incomplete = once && transfers.is_empty();
            for (id, transfer) in transfers {
                host.abort(id).map_err(failed)?;
                match transfer.outcome() {
                    Ok(done) => print(&done, json, &target),
                    Err(_) => incomplete = true,
                }
            }
            if !incomplete {
                return Ok(());
            }
            return Err(Failure::text(
                Kind::Failed,
                "interrupted: nothing was kept of what was not complete",
            ));
        }
        host.turn(LOOK_EVERY).map_err(failed)?;
        while let Some(id) = host.accepted() {
            count += 1;
            let peer = host.peer(id).unwrap_or(args.listen);
            transfers.insert(id, Transfer::new(peer, count, host.now()));
        }
        let mut over = Vec::new();
        for (id, transfer) in &mut transfers {
            if transfer.step(*id, &mut host, &target) {
                over.push(*id);
            } else if transfer.gives_way(host.now(), args.transfer.timeout) {
                host.abort(*id).map_err(failed)?;
                over.push(*id);
            }
        }
        for id in over {
            host.remove(id);
            let Some(transfer) = transfers.remove(&id) else {
                continue;
            };
            let outcome = transfer.outcome();
            match (outcome, once) {
                (Ok(done), _) => {
                    print(&done, json, &target);
                    if once {
                        return Ok(());
                    }
                }
                (Err(why), true) => return Err(why),
                (Err(why), false) => {
                    why.report(json);
                }
            }
        }
    }
}

/// One transfer, from its first byte to the moment when the sender has its receipt.
struct Transfer {
    peer: SocketAddr,
    number: u64,
    begun: Time,
    head: Vec<u8>,
    bytes: u64,
    sink: Option<Sink>,
    name: String,
    received: u64,
    /// When the last of its bytes came, in order.
    progress: Time,
    hasher: blake3::Hasher,
    /// The sender's.
    hash: Vec<u8>,
    receipt: Option<(Receipt, Time)>,
    bar: ProgressBar,
    failed: Option<String>,
}

/// A transfer that succeeded.
struct Done {
    peer: SocketAddr,
    name: String,
    bytes: u64,
    seconds: f64,
    hash: [u8; HASH],
}

impl Transfer {
    fn new(peer: SocketAddr, number: u64, now: Time) -> Transfer {
        Transfer {
            peer,
            number,
            begun: now,
            head: Vec::with_capacity(HEAD),
            bytes: 0,
            sink: None,
            name: String::new(),
            received: 0,
            progress: now,
            hasher: blake3::Hasher::new(),
            hash: Vec::with_capacity(HASH),
            receipt: None,
            bar: ProgressBar::hidden(),
            failed: None,
        }
    }

    /// Takes what has arrived; true when there is nothing more to do.
    fn step(&mut self, id: u64, host: &mut Host, target: &Target) -> bool {
        let now = host.now();
        if self.receipt.is_none() {
            let (first, second) = host.arrived(id);
            let taken = first.len() + second.len();
            if taken > 0 {
                self.progress = now;
            }
            let outcome = self.take(first, target).and_then(|()| self.take(second, target));
            host.take(id, taken);
            if let Err(why) = outcome.and_then(|()| self.complete(now)) {
                self.sink = None;
                self.receipt = Some((Receipt::Failed(why), now));
            }
            if let Some((receipt, _)) = &self.receipt {
                let bytes = receipt.write();
                let room = host.room(id);
                let written = bytes.len().min(room.len());
                room[..written].copy_from_slice(&bytes[..written]);
                host.wrote(id, written);
                host.finish(id);
            }
        } else {
            // A sender that is told early that its bytes cannot be stored may have some under way.
            let (first, second) = host.arrived(id);
            let taken = first.len() + second.len();
            host.take(id, taken);
        }
        let Some(connection) = host.connection(id) else {
            return true;
        };
        if let Some(why) = connection.failure() {
            if self.receipt.is_none() {
                self.failed = Some(why.to_string());
            }
            return true;
        }
        match &self.receipt {
            Some((_, since)) => connection.sent_all() || now.since(*since) > RECEIPT_TAKEN_WITHIN,
            None => false,
        }
    }

    /// Takes bytes of the sender's stream.
    fn take(&mut self, mut bytes: &[u8], target: &Target) -> Result<(), String> {
        if self.head.len() < HEAD {
            let part = bytes.len().min(HEAD - self.head.len());
            self.head.extend_from_slice(&bytes[..part]);
            bytes = &bytes[part..];
            let Ok(head) = self.head.as_slice().try_into() else {
                return Ok(());
            };
            let head = Head::read(head).ok_or("the sender is no `ccplane send`, or one of another version")?;
            let sink = target.open(self.number)?;
            self.name = sink.name().to_owned();
            (self.bytes, self.sink) = (head.bytes, Some(sink));
            self.bar = bar(head.bytes);
        }
        let body = usize::try_from(self.bytes - self.received)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let (body, rest) = bytes.split_at(body);
        if let Some(sink) = &mut self.sink
            && !body.is_empty()
        {
            sink.write(body)?;
            self.hasher.update(body);
            self.received += body.len() as u64;
            self.bar.set_position(self.received);
        }
        if self.hash.len() + rest.len() > HASH {
            return Err("more bytes than the sender announced".to_owned());
        }
        self.hash.extend_from_slice(rest);
        Ok(())
    }

    /// Whether it has its place for nothing: its peer may be heard, but nothing comes that continues the stream.
    fn gives_way(&mut self, now: Time, within: Duration) -> bool {
        let idle = self.receipt.is_none() && now.since(self.progress) > within;
        if idle {
            self.failed = Some(format!("nothing new came for {within}"));
        }
        idle
    }

    /// Judges and stores, when everything is here.
    fn complete(&mut self, now: Time) -> Result<(), String> {
        let Ok(theirs) = <[u8; HASH]>::try_from(self.hash.as_slice()) else {
            return Ok(());
        };
        let ours = *self.hasher.finalize().as_bytes();
        self.bar.finish_and_clear();
        let receipt = if ours == theirs {
            if let Some(sink) = self.sink.take() {
                self.name = sink.finish()?;
            }
            Receipt::Stored(ours)
        } else {
            self.sink = None;
            Receipt::Differs(ours)
        };
        self.receipt = Some((receipt, now));
        Ok(())
    }

    fn outcome(self) -> Result<Done, Failure> {
        let from = format!("the transfer from {}", self.peer);
        let failed = |text| Failure::text(Kind::Failed, text);
        match self.receipt {
            Some((Receipt::Stored(hash), at)) => Ok(Done {
                peer: self.peer,
                name: self.name,
                bytes: self.bytes,
                seconds: at.since(self.begun).as_secs_f64(),
                hash,
            }),
            Some((Receipt::Differs(ours), _)) => Err(failed(format!(
                "{from} arrived as something else: its hash is {}, the sender's {}; nothing was kept",
                hex(&ours),
                self.hash.iter().map(|b| format!("{b:02x}")).collect::<String>()
            ))
            .hint("the network, or a machine, changes data; with --key such datagrams are thrown away and sent again")),
            Some((Receipt::Failed(why), _)) => Err(failed(format!("{from} was given up: {why}"))),
            None => Err(failed(format!(
                "{from} ended after {} of {} bytes: {}; nothing was kept",
                self.received,
                self.bytes,
                self.failed.as_deref().unwrap_or("the sender is gone")
            ))),
        }
    }
}

fn print(done: &Done, json: bool, target: &Target) {
    let mbit = done.bytes as f64 * 8.0 / done.seconds.max(1e-9) / 1e6;
    let text = if json {
        let object = json!({
            "from": done.peer.to_string(), "out": done.name, "bytes": done.bytes, "blake3": hex(&done.hash),
            "duration_s": done.seconds, "goodput_mbit": mbit,
        });
        object.to_string()
    } else {
        let hash = &hex(&done.hash)[..16];
        format!(
            "{}: {} bytes from {}, hash {hash}: {:.2} s, {mbit:.1} Mbit/s",
            done.name, done.bytes, done.peer, done.seconds
        )
    };
    if matches!(target, Target::Stdout) {
        eprintln!("{text}");
    } else {
        println!("{text}");
    }
}
