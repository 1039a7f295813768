//! `ccplane quic`: transfers a file over QUIC, under any of ccplane's algorithms or the stack's
//! own.

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

/// Length of the receiver's receipt: the hash of the received file.
const RECEIPT_BYTES: usize = size_of::<Hash>();
/// Interval at which the interrupt flag is checked.
const INTERRUPT_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Concurrent connections per address. No certificate authenticates senders.
const CONNECTIONS_PER_ADDRESS_MAX: usize = 4;
/// Bytes per read of a file.
const READ_BYTES: usize = 1 << 18;

#[derive(Subcommand)]
pub enum QuicCommand {
    /// Send a file to a `ccplane quic recv` on another host.
    Send(send::SendArgs),
    /// Receive files from `ccplane quic send`.
    Recv(recv::RecvArgs),
}

/// Options shared by both commands.
#[derive(Args)]
struct CommonArgs {
    /// QUIC stack.
    #[arg(long, value_enum, default_value = "noq")]
    stack: StackArg,
    /// Limit of the bytes in flight per connection. Below rate times round-trip time it limits the
    /// throughput.
    #[arg(long, value_name = "BYTES", default_value = "16MiB")]
    window: Bytes,
    /// Give up after the peer has been silent for this long.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    timeout: Duration,
    /// Folder for a qlog of each connection: windows, rates, RTTs, losses.
    #[arg(long, value_name = "DIR")]
    qlog: Option<PathBuf>,
}

/// QUIC stacks. A command may be built without some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StackArg {
    /// noq, n0's successor of quinn.
    Noq,
    /// quinn, if built in (feature `quinn`).
    Quinn,
    /// s2n-quic, if built in (feature `s2n`).
    S2n,
}

impl CommonArgs {
    /// Returns the stack, if it is built in.
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
            return Err(Failure::text(FailureKind::Usage, text).hint("use 64 KiB to 1 GiB"));
        }
        if self.timeout < Duration::from_secs(1) {
            return Err(
                Failure::text(FailureKind::Usage, "--timeout is too short").hint("use 1 s or more")
            );
        }
        Ok(HostOptions {
            stack: self.stack()?,
            local,
            window: window as usize,
            idle_timeout: Some(self.timeout),
            max_rate,
            qlog: self.qlog.clone(),
            connections_max: most,
            per_address: CONNECTIONS_PER_ADDRESS_MAX,
            congestion,
        })
    }
}

pub fn run(command: &QuicCommand, registry: &Registry, json: bool) -> Result<(), Failure> {
    match command {
        QuicCommand::Send(args) => send::run(args, registry, json),
        QuicCommand::Recv(args) => recv::run(args, json),
    }
}

/// Fails if the stack is not built in, and names its feature.
pub fn is_built_in(stack: Stack) -> Result<(), Failure> {
    built_in(stack).map_err(failed)
}

fn failed(why: HostError) -> Failure {
    match why {
        HostError::NotBuiltIn { feature, .. } => Failure::new(FailureKind::Usage, why).hint(
            format!("build it in: `cargo build --release --features {feature}`"),
        ),
        HostError::NoLimit { .. } => Failure::new(FailureKind::Usage, why)
            .hint("use `--stack noq`, or an algorithm of ccplane, which supports --max-rate"),
        why => Failure::new(FailureKind::Failed, why),
    }
}

/// Returns the wildcard address of the family of `peer`.
fn unspecified_address(peer: SocketAddr) -> SocketAddr {
    if peer.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_that_is_not_built_in_is_named() {
        let stacks = [
            (Stack::Noq, true, "noq"),
            (Stack::Quinn, cfg!(feature = "quinn"), "quinn"),
            (Stack::S2n, cfg!(feature = "s2n"), "s2n"),
        ];
        for (stack, expected, feature) in stacks {
            match is_built_in(stack) {
                Ok(()) => assert!(expected, "{feature}"),
                Err(failure) => {
                    assert!(!expected, "{failure:?}");
                    assert_eq!(failure.kind, FailureKind::Usage);
                    let needed = format!("(feature `{feature}`)");
                    assert!(failure.to_string().contains(&needed), "{failure:?}");
                }
            }
        }
    }
}
