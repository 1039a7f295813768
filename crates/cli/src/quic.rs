//! `ccplane quic`: a file over QUIC, under any of ccplane's algorithms or the stack's own.

mod recv;
mod send;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use ccplane_files::Hash;
use ccplane_quic::host::{Congestion, HostError, Native, Options};
use ccplane_units::{Bytes, Duration, Rate};
use clap::{Args, Subcommand, ValueEnum};

use crate::Registry;
use crate::exit::{Failure, Kind};

/// What a receiver answers: the hash of what it has.
const RECEIPT: usize = size_of::<Hash>();
/// How long the loop waits at most before it looks for Ctrl-C.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Bytes read from a file at a time.
const PIECE: usize = 1 << 18;

/// What to do.
#[derive(Subcommand)]
pub enum QuicCommand {
    /// Send a file to a `ccplane quic recv` on another host.
    Send(send::SendArgs),
    /// Receive what `ccplane quic send` sends.
    Recv(recv::RecvArgs),
}

/// What both commands take.
#[derive(Args)]
struct CommonArgs {
    /// The QUIC stack.
    #[arg(long, value_enum, default_value = "noq")]
    stack: StackArg,
    /// Bytes of a connection that may be under way; at least rate times round-trip time, or it limits.
    #[arg(long, value_name = "BYTES", default_value = "16MiB")]
    window: Bytes,
    /// Give up when the other side is silent for so long.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    timeout: Duration,
    /// Write a qlog of each connection into this folder: windows, rates, RTTs, losses.
    #[arg(long, value_name = "DIR")]
    qlog: Option<PathBuf>,
}

/// The stacks that this command was built with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StackArg {
    /// noq, n0's successor of quinn.
    Noq,
}

impl StackArg {
    fn name(self) -> &'static str {
        match self {
            StackArg::Noq => "noq",
        }
    }
}

impl CommonArgs {
    fn options(&self, local: SocketAddr, most: usize, max_rate: Option<Rate>) -> Result<Options, Failure> {
        let window = self.window.get();
        if !(1 << 16..=1 << 30).contains(&window) {
            let text = format!("--window {window} is out of range");
            return Err(Failure::text(Kind::Usage, text).hint("64 KiB to 1 GiB"));
        }
        if self.timeout < Duration::from_secs(1) {
            return Err(Failure::text(Kind::Usage, "--timeout is too short").hint("1 s at least"));
        }
        Ok(Options {
            local,
            window: window as usize,
            idle_timeout: Some(self.timeout),
            max_rate,
            qlog: self.qlog.clone(),
            most,
            accepted: Congestion::Native(Native::Cubic),
        })
    }
}

/// Runs the command.
pub fn run(command: &QuicCommand, registry: &Registry, json: bool) -> Result<(), Failure> {
    match command {
        QuicCommand::Send(args) => send::run(args, registry, json),
        QuicCommand::Recv(args) => recv::run(args, json),
    }
}

fn failed(why: HostError) -> Failure {
    Failure::new(Kind::Failed, why)
}

/// Any address of the family of `peer`.
fn any(peer: SocketAddr) -> SocketAddr {
    if peer.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    }
}
