//! QUIC as the transport of a transfer. The sender's stream is the file; the receiver's stream is
//! the hash of the received file.
#![expect(
    clippy::disallowed_methods,
    reason = "the close of a connection has a deadline in real time"
)]

use std::net::SocketAddr;
use std::time::Instant;

use ccplane_quic::Stack;
use ccplane_quic::host::{HostError, HostOptions, Native, QuicCongestion, QuicHost, built_in};
use ccplane_units::Duration;

use super::TransferArgs;
use crate::exit::{Failure, FailureKind};

/// Time to deliver the close to the peer. Nothing depends on it.
const CLOSE_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(200);

/// Returns the options of a host at `local` with one connection.
pub fn options(
    args: &TransferArgs,
    stack: Stack,
    local: SocketAddr,
) -> Result<HostOptions, Failure> {
    is_built_in(stack)?;
    Ok(HostOptions {
        stack,
        local,
        window: args.window()?,
        idle_timeout: Some(args.timeout()?),
        max_rate: None,
        qlog: args.qlog.clone(),
        dscp: 0,
        connections_max: 1,
        per_address: 1,
        congestion: QuicCongestion::Native(Native::Cubic),
    })
}

/// Fails if the stack is not built in, and names its feature.
pub fn is_built_in(stack: Stack) -> Result<(), Failure> {
    built_in(stack).map_err(failed)
}

/// Converts an error. A stack that lacks something is a usage error; anything else is a failed run.
pub fn failed(why: HostError) -> Failure {
    match why {
        HostError::NotBuiltIn { feature, .. } => Failure::new(FailureKind::Usage, why).hint(
            format!("build it in: `cargo build --release --features {feature}`"),
        ),
        HostError::NoLimit { .. } => Failure::new(FailureKind::Usage, why)
            .hint("use `--over quic`, or an algorithm of ccplane, which supports --max-rate"),
        why => Failure::new(FailureKind::Failed, why),
    }
}

/// Sends the close of every connection.
pub fn flush(host: &mut QuicHost) -> Result<(), Failure> {
    let started = Instant::now();
    while host.connection_count() > 0 && started.elapsed() < CLOSE_TIMEOUT {
        host.poll(Duration::from_millis(10)).map_err(failed)?;
    }
    Ok(())
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
