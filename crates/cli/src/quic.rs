//! `ccplane quic`: a file over QUIC, under any of ccplane's algorithms or the stack's own.

mod recv;
mod send;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use crate::transfer::wire::Hash;
use ccplane_quic::Stack;
use ccplane_quic::host::{HostError, HostOptions, QuicCongestion, built_in};
use ccplane_units::{Bytes, Duration, Rate};
use clap::{Args, Subcommand, ValueEnum};

use crate::Registry;
use crate::exit::{Failure, FailureKind};

/// What a receiver answers: the hash of what it has.
const RECEIPT_BYTES: usize = size_of::<Hash>();
/// How long the loop waits at most before it looks for Ctrl-C.
const INTERRUPT_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Connections of one address at a time: no certificate tells friends from strangers.
const CONNECTIONS_PER_ADDRESS_MAX: usize = 4;
/// Bytes read from a file at a time.
const READ_BYTES: usize = 1 << 18;

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
    /// Bytes of a connection that may be under way; at least rate times round-trip time, or it
    /// limits.
    #[arg(long, value_name = "BYTES", default_value = "16MiB")]
    window: Bytes,
    /// Give up when the other side is silent for so long.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    timeout: Duration,
    /// Write a qlog of each connection into this folder: windows, rates, RTTs, losses.
    #[arg(long, value_name = "DIR")]
    qlog: Option<PathBuf>,
}

/// QUIC stacks. A command may be built without some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StackArg {
    /// noq, n0's successor of quinn.
    Noq,
    /// quinn, where it is built in (feature `quinn`).
    Quinn,
    /// s2n-quic, where it is built in (feature `s2n`).
    S2n,
}

impl CommonArgs {
    /// The stack, if it is built in.
    fn stack(&self) -> Result<Stack, Failure> {
        let stack = match self.stack {
            StackArg::Noq => Stack::Noq,
            StackArg::Quinn => Stack::Quinn,
            StackArg::S2n => Stack::S2n,
        };
        is_built_in(stack)?;
        Ok(stack)
    }

    fn options(
        &self,
        local: SocketAddr,
        most: usize,
        max_rate: Option<Rate>,
        congestion: QuicCongestion,
    ) -> Result<HostOptions, Failure> {
        let window = self.window.get();
        if !(1 << 16..=1 << 30).contains(&window) {
            let text = format!("--window {window} is out of range");
            return Err(Failure::text(FailureKind::Usage, text).hint("64 KiB to 1 GiB"));
        }
        if self.timeout < Duration::from_secs(1) {
            return Err(
                Failure::text(FailureKind::Usage, "--timeout is too short").hint("1 s at least")
            );
        }
        Ok(HostOptions {
            stack: self.stack()?,
            local,
            window: window as usize,
            idle_timeout: Some(self.timeout),
            max_rate,
            qlog: self.qlog.clone(),
            most,
            per_address: CONNECTIONS_PER_ADDRESS_MAX,
            congestion,
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

/// A stack that is not in this command is refused by its feature.
pub fn is_built_in(stack: Stack) -> Result<(), Failure> {
    built_in(stack).map_err(failed)
}

fn failed(why: HostError) -> Failure {
    match why {
        HostError::NotBuiltIn { feature, .. } => Failure::new(FailureKind::Usage, why).hint(
            format!("build the command with it: `cargo build --release --features {feature}`"),
        ),
        HostError::NoLimit { .. } => Failure::new(FailureKind::Usage, why)
            .hint("`--stack noq`, or an algorithm of ccplane's, which keeps to --max-rate"),
        why => Failure::new(FailureKind::Failed, why),
    }
}

/// Any address of the family of `peer`.
fn any(peer: SocketAddr) -> SocketAddr {
    if peer.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    }
}
