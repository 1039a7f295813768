//! Who decides the window of what a command sends, and how fast it may be: the same for `send` and
//! `quic send`.

use std::net::{SocketAddr, ToSocketAddrs};

use ccplane_datapath::OperatorLimits;
use ccplane_lab::Contender;
use ccplane_link::{AgentAddress, far_silence};
use ccplane_units::Rate;
use clap::Args;

use crate::attach::remote::{ask, may_be_silent, names};
use crate::elsewhere::ElsewhereArgs;
use crate::exit::{Failure, FailureKind};

/// What both commands take.
#[derive(Args)]
pub struct SteerArgs {
    /// One of ccplane's algorithms, with parameters (`cubic:report=10ms`), or the transport's own:
    /// `native:reno`, `native:cubic`, `native:dctcp` of `send`, `native:bbr3` of `quic send`.
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub alg: Contender,
    #[command(flatten)]
    pub elsewhere: ElsewhereArgs,
    /// Owner's limit: never faster, whatever is in control. Of packets with their headers, of UDP
    /// payload over QUIC.
    #[arg(long, value_name = "RATE")]
    pub max_rate: Option<Rate>,
}

/// Who decides.
pub enum Decides<'a> {
    /// The transport's own control of this name.
    Native(&'a str),
    /// An algorithm of this name, by an agent in another process, which has it.
    Agent(AgentAddress, String),
    /// An algorithm in this process.
    Here,
}

impl SteerArgs {
    /// The owner's limits.
    pub fn limits(&self) -> Result<OperatorLimits, Failure> {
        if self.max_rate.is_some_and(|rate| rate.bytes_per_sec() == 0) {
            let text = "--max-rate 0 lets nothing through";
            return Err(
                Failure::text(FailureKind::Usage, text).hint("without it there is no limit")
            );
        }
        let default = OperatorLimits::default();
        Ok(OperatorLimits {
            max_rate: self.max_rate.map_or(default.max_rate, Rate::bytes_per_sec),
            ..default
        })
    }

    /// Who decides; an agent is asked whether it has the algorithm. The silence after which flows
    /// fall back is by the round trip to one on another host.
    pub fn decides(&self, limits: &mut OperatorLimits) -> Result<Decides<'_>, Failure> {
        match (&self.alg, self.elsewhere.agent()) {
            (Contender::Native { name }, None) => Ok(Decides::Native(name)),
            (Contender::Native { .. }, Some(_)) => {
                let text = "an agent runs ccplane's algorithms, not the transport's own";
                Err(Failure::text(FailureKind::Usage, text)
                    .hint("--agent or --alg native:NAME, not both"))
            }
            (Contender::Ccplane { .. }, Some(address)) => {
                may_be_silent(&address, self.elsewhere.silence)?;
                let names = names(std::slice::from_ref(&self.alg), &address)?;
                let asked = ask(&address, &names, limits.fallback_after)?;
                if let Some(round_trip) = asked.round_trip {
                    limits.fallback_after = far_silence(round_trip);
                }
                Ok(Decides::Agent(address, self.alg.agent_name()))
            }
            (Contender::Ccplane { .. }, None) => Ok(Decides::Here),
        }
    }
}

/// The address of a receiver; `example`: how one is written.
pub fn resolve(text: &str, example: &str) -> Result<SocketAddr, Failure> {
    let bad = |why: &dyn std::fmt::Display| {
        Failure::text(FailureKind::Usage, format!("`{text}` is no address: {why}")).hint(example)
    };
    let mut found = text.to_socket_addrs().map_err(|why| bad(&why))?;
    found.next().ok_or_else(|| bad(&"the name has no address"))
}
