//! `ccplane quic recv`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ccplane_files::Hash;
use ccplane_quic::Stack;
use ccplane_quic::host::{Congestion, Host, Native};
use clap::Args;
use serde_json::json;

use super::{CommonArgs, LOOK_EVERY, failed};
use crate::exit::{Failure, Kind};
use crate::transfer::hex;
use crate::{identity, interrupt};

/// Connections at a time. With fewer, strangers who say nothing keep others out sooner; each may hold twice the window.
const MOST: usize = 16;

/// Where to listen, and where to put what comes.
#[derive(Args)]
pub struct RecvArgs {
    /// Where to listen.
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:4791")]
    listen: SocketAddr,
    /// A file, which takes one transfer; `-` for standard output; or a device such as `/dev/null`, which takes any number.
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
    /// End after one transfer.
    #[arg(long)]
    once: bool,
    /// Replace the file if it exists.
    #[arg(long)]
    force: bool,
    /// The file with the certificate and its private key, made at the first start; `~/.config/ccplane/identity` without this.
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    #[command(flatten)]
    common: CommonArgs,
}

/// Runs the command: until one transfer is through, or until Ctrl-C.
pub fn run(args: &RecvArgs, json: bool) -> Result<(), Failure> {
    let once = args.once || !is_device(&args.out);
    refuse_existing(args)?;
    let own = identity::load(args.identity.as_deref())?;
    let options = args
        .common
        .options(args.listen, MOST, None, Congestion::Native(Native::Cubic))?;
    let stack = options.stack;
    let mut host = Host::listen(options, &own).map_err(failed)?;
    let stop = interrupt::flag()?;
    let (local, fingerprint) = (host.local(), own.fingerprint());
    // Standard output may be what is received.
    if json {
        eprintln!(
            "{}",
            json!({ "listening": local.to_string(), "fingerprint": fingerprint.to_string() })
        );
    } else {
        eprintln!(
            "listening on {local}; to send:\n  ccplane quic send {}#{fingerprint} FILE",
            identity::reached(local)
        );
    }
    let mut transfers: Vec<Transfer> = Vec::new();
    loop {
        if interrupt::raised(&stop) {
            transfers.iter().for_each(|transfer| host.close(transfer.id, false));
            host.turn(LOOK_EVERY).map_err(failed)?;
            let incomplete = once || !transfers.is_empty();
            return if incomplete {
                Err(Failure::text(Kind::Failed, "interrupted"))
            } else {
                Ok(())
            };
        }
        host.turn(LOOK_EVERY).map_err(failed)?;
        while let Some(id) = host.accepted() {
            transfers.push(Transfer::new(id));
        }
        let (mut ended, mut first) = (None, transfers.iter().find(|one| one.has_begun()).map(|one| one.id));
        transfers.retain_mut(|transfer| {
            // A file and standard output are one transfer's: that of the first byte.
            if once && first.is_some_and(|first| first != transfer.id) {
                host.close(transfer.id, false);
                return false;
            }
            let outcome = transfer.step(&mut host, args);
            if transfer.has_begun() {
                first = Some(transfer.id);
            }
            let well = match outcome {
                Ok(None) => return true,
                Ok(Some((bytes, hash))) => {
                    print(bytes, &hash, args, stack, json);
                    ended = Some(Ok(()));
                    true
                }
                // Who has sent nothing is nobody.
                Err(why) if transfer.has_begun() => {
                    ended = Some(Err(why));
                    false
                }
                Err(why) => {
                    tracing::info!("a connection that brought nothing ended: {why}");
                    false
                }
            };
            host.close(transfer.id, well);
            false
        });
        match ended {
            Some(outcome) if once => {
                // The sender hears of the end; it has its receipt already.
                host.turn(LOOK_EVERY).map_err(failed)?;
                return outcome;
            }
            Some(Err(why)) => {
                why.report(json);
            }
            _ => {}
        }
    }
}

/// One connection.
struct Transfer {
    id: u64,
    sink: Option<Sink>,
    hasher: blake3::Hasher,
    bytes: u64,
    receipt: Option<Hash>,
}

impl Transfer {
    fn new(id: u64) -> Transfer {
        Transfer {
            id,
            sink: None,
            hasher: blake3::Hasher::new(),
            bytes: 0,
            receipt: None,
        }
    }

    /// Something of it is stored.
    fn has_begun(&self) -> bool {
        self.sink.is_some()
    }

    /// Takes what has come; what there is of it once everything is stored and the sender has the receipt.
    fn step(&mut self, host: &mut Host, args: &RecvArgs) -> Result<Option<(u64, Hash)>, Failure> {
        if let Some(hash) = self.receipt {
            let over = host.has_sent_all(self.id) || host.failure(self.id).is_some();
            return Ok(over.then_some((self.bytes, hash)));
        }
        let (mut outcome, hasher, bytes) = (Ok(()), &mut self.hasher, &mut self.bytes);
        let sink = &mut self.sink;
        host.read(self.id, usize::MAX, |chunk| {
            hasher.update(chunk);
            *bytes += chunk.len() as u64;
            if outcome.is_ok() {
                outcome = open(sink, args).and_then(|sink| sink.write(chunk));
            }
        });
        outcome?;
        if host.has_read_all(self.id) {
            open(sink, args)?.keep()?;
            let hash = *self.hasher.finalize().as_bytes();
            host.write(self.id, &hash);
            host.finish(self.id);
            self.receipt = Some(hash);
        } else if let Some(why) = host.failure(self.id) {
            let text = format!("a transfer ended after {} bytes: {why}", self.bytes);
            return Err(Failure::text(Kind::Failed, text));
        }
        Ok(None)
    }
}

fn open<'s>(sink: &'s mut Option<Sink>, args: &RecvArgs) -> Result<&'s mut Sink, Failure> {
    match sink {
        Some(sink) => Ok(sink),
        None => Ok(sink.insert(Sink::open(&args.out)?)),
    }
}

/// Where bytes go: a file gets its name once it is whole.
struct Sink {
    file: Box<dyn Write>,
    path: PathBuf,
    /// The name until then.
    part: Option<PathBuf>,
}

impl Sink {
    fn open(out: &Path) -> Result<Sink, Failure> {
        let bad = |path: &Path, why: io::Error| Failure::text(Kind::Failed, format!("{}: {why}", path.display()));
        let path = out.to_owned();
        if out == Path::new("-") {
            let file = Box::new(io::stdout());
            return Ok(Sink { file, path, part: None });
        }
        if is_device(out) {
            let file = OpenOptions::new().write(true).open(out).map_err(|why| bad(out, why))?;
            return Ok(Sink {
                file: Box::new(file),
                path,
                part: None,
            });
        }
        let mut name = out.file_name().unwrap_or_default().to_owned();
        name.push(".part");
        let part = out.with_file_name(name);
        let file = File::create(&part).map_err(|why| bad(&part, why))?;
        Ok(Sink {
            file: Box::new(file),
            path,
            part: Some(part),
        })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.file.write_all(bytes).map_err(|why| self.bad(&why))
    }

    fn keep(&mut self) -> Result<(), Failure> {
        self.file.flush().map_err(|why| self.bad(&why))?;
        match self.part.take() {
            Some(part) => fs::rename(part, &self.path).map_err(|why| self.bad(&why)),
            None => Ok(()),
        }
    }

    fn bad(&self, why: &io::Error) -> Failure {
        Failure::text(
            Kind::Failed,
            format!("{} cannot be written: {why}", self.path.display()),
        )
    }
}

impl Drop for Sink {
    /// What is not whole is not kept.
    fn drop(&mut self) {
        if let Some(part) = self.part.take() {
            let _ = fs::remove_file(part);
        }
    }
}

fn is_device(out: &Path) -> bool {
    fs::metadata(out).is_ok_and(|about| !about.is_file() && !about.is_dir())
}

fn refuse_existing(args: &RecvArgs) -> Result<(), Failure> {
    let out = &args.out;
    match fs::metadata(out) {
        Ok(about) if about.is_dir() => {
            let text = format!("--out {} is a folder", out.display());
            Err(Failure::text(Kind::Usage, text).hint("name the file; `ccplane recv` takes folders"))
        }
        Ok(about) if about.is_file() && !args.force => {
            let text = format!("{} exists", out.display());
            Err(Failure::text(Kind::Usage, text).hint("--force replaces it"))
        }
        _ => Ok(()),
    }
}

fn print(bytes: u64, hash: &Hash, args: &RecvArgs, stack: Stack, json: bool) {
    let out = args.out.display().to_string();
    let text = if json {
        let object =
            json!({ "out": out, "bytes": bytes, "blake3": hex(hash), "encrypted": true, "stack": stack.name() });
        object.to_string()
    } else {
        format!("{out}: {bytes} bytes, hash {}", &hex(hash)[..16])
    };
    // Standard output may be what was received.
    if args.out == Path::new("-") {
        eprintln!("{text}");
    } else {
        println!("{text}");
    }
}
