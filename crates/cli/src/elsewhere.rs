//! Which agent in another process runs the algorithms: the same for `attach`, `run`, `send` and
//! `quic send`.

use std::path::{Path, PathBuf};

use ccplane_link::{AgentAddress, KEY_DIRECTORY};
use ccplane_units::Duration;
use clap::Args;

/// What these commands take.
#[derive(Args)]
pub struct ElsewhereArgs {
    /// Let an agent in another process run the algorithms: `unix:PATH`, or PATH alone, of a
    /// `ccplane agent --unix PATH`, which may be another user's; `tls://HOST:PORT` of a `ccplane
    /// agent --tls` on another host, with --keys; `ccp:PATH` of a CCP agent such as portus. Given
    /// twice, the first steers, and the second when that is gone.
    #[arg(long, value_name = "ADDRESS")]
    agent: Vec<AgentAddress>,
    /// The folder with this host's key for an agent on another host, from `ccplane keys` [default:
    /// /etc/ccplane/keys].
    #[arg(long, value_name = "DIR", requires = "agent")]
    keys: Option<PathBuf>,
    /// Owner's limit for a CCP agent, which has no heartbeats: it counts as silent this long after
    /// its last message. Without it, it counts as alive while its socket is there.
    #[arg(long, value_name = "TIME", requires = "agent")]
    pub silence: Option<Duration>,
}

impl ElsewhereArgs {
    /// The agent that is asked for.
    pub fn agent(&self) -> Option<AgentAddress> {
        let address = AgentAddress::one_of(self.agent.clone())?;
        Some(address.with_keys(self.keys.as_deref().unwrap_or(Path::new(KEY_DIRECTORY))))
    }

    /// Whether one is asked for.
    pub fn is_asked(&self) -> bool {
        !self.agent.is_empty()
    }
}
