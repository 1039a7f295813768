//! Choice of the congestion control and of the rate limit, for `send`.

use std::net::{SocketAddr, ToSocketAddrs};

use ccplane_datapath::OperatorLimits;
use ccplane_lab::Contender;
use ccplane_link::{AgentAddress, remote_agent_timeout};
use ccplane_units::Rate;
use clap::Args;

use crate::exit::{Failure, FailureKind};
use crate::remote_agent::RemoteAgentArgs;
use crate::remote_agent::{names, own_agent, query_algorithms};

/// Options of the congestion control.
#[derive(Args)]
pub struct SteerArgs {
    /// Algorithm of ccplane, with parameters (`cubic:report=10ms`), or one built into the
    /// transport: `native:reno`, `native:cubic` and `native:dctcp` over UDP, and those of the stack
    /// over QUIC, such as `native:bbr3`. `NAME@ADDRESS` is one of an agent in another process, as
    /// with --agent.
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub alg: Contender,
    #[command(flatten)]
    pub remote_agent: RemoteAgentArgs,
    /// Upper limit on the rate, independent of the algorithm: of packets with their headers, or of
    /// UDP payload over QUIC.
    #[arg(long, value_name = "RATE")]
    pub max_rate: Option<Rate>,
}

/// Controller of the window.
pub enum ControlSource<'a> {
    /// Congestion control of this name, built into the transport.
    Native(&'a str),
    /// Agent in another process, and the name of its algorithm.
    Agent(AgentAddress, String),
    /// Algorithm in this process.
    InProcess,
}

impl SteerArgs {
    /// Returns the operator's limits.
    pub fn limits(&self) -> Result<OperatorLimits, Failure> {
        if self.max_rate.is_some_and(|rate| rate.bytes_per_sec() == 0) {
            let text = "--max-rate must be above 0";
            return Err(
                Failure::text(FailureKind::Usage, text).hint("for no limit, remove --max-rate")
            );
        }
        let default = OperatorLimits::default();
        Ok(OperatorLimits {
            max_rate: self.max_rate.map_or(default.max_rate, Rate::bytes_per_sec),
            ..default
        })
    }

    /// Returns the controller. Asks an agent whether it provides the algorithm; for an agent on
    /// another host, the round trip to it determines the agent timeout in `limits`.
    pub fn control_source(
        &self,
        limits: &mut OperatorLimits,
    ) -> Result<ControlSource<'_>, Failure> {
        let (address, names) = match (&self.alg, self.remote_agent.agent()) {
            (Contender::Native { name }, None) => return Ok(ControlSource::Native(name)),
            (Contender::Native { .. }, Some(_)) => {
                let text = "--agent cannot be used with the transport's own algorithms";
                return Err(Failure::text(FailureKind::Usage, text)
                    .hint("remove --agent or --alg native:NAME"));
            }
            (_, Some(address)) => {
                let names = names(std::slice::from_ref(&self.alg), &address)?;
                (address, names)
            }
            (_, None) => match own_agent(&self.alg)? {
                Some(address) => (address, vec![self.alg.agent_name()]),
                None => return Ok(ControlSource::InProcess),
            },
        };
        let asked = query_algorithms(&address, &names, limits.agent_timeout)?;
        if let Some(round_trip) = asked.round_trip {
            limits.agent_timeout = remote_agent_timeout(round_trip);
        }
        Ok(ControlSource::Agent(address, self.alg.agent_name()))
    }
}

/// Resolves the address of a receiver. `example` is a valid address, for the hint.
pub fn resolve(text: &str, example: &str) -> Result<SocketAddr, Failure> {
    let bad = |why: &dyn std::fmt::Display| {
        Failure::text(
            FailureKind::Usage,
            format!("`{text}` is not a valid address: {why}"),
        )
        .hint(example)
    };
    let mut found = text.to_socket_addrs().map_err(|why| bad(&why))?;
    found
        .next()
        .ok_or_else(|| bad(&"the name does not resolve to an address"))
}
