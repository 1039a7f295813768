//! Options that select an agent in another process, shared by `attach`, `run` and `send`.

use std::path::{Path, PathBuf};

use ccplane_link::{AgentAddress, KEY_DIRECTORY};
use ccplane_units::Duration;
use clap::Args;

/// Options of the agent.
#[derive(Args)]
pub struct RemoteAgentArgs {
    /// Agent in another process to run the algorithms: `unix:PATH`, or just PATH, of a `ccplane
    /// agent --unix PATH`, possibly another user's; `tls://HOST:PORT` of a `ccplane agent --tls` on
    /// another host, with --keys; `ccp:PATH` of a CCP agent such as portus. If given twice, the
    /// second takes over when the first is gone.
    #[arg(long, value_name = "ADDRESS")]
    agent: Vec<AgentAddress>,
    /// Folder with this host's key for an agent on another host, from `ccplane keys` [default:
    /// /etc/ccplane/keys].
    #[arg(long, value_name = "DIR", requires = "agent")]
    keys: Option<PathBuf>,
    /// Timeout of a CCP agent, which sends no heartbeats, counted from its last message. Without
    /// it, the agent counts as alive while its socket exists.
    #[arg(long, value_name = "TIME", requires = "agent")]
    pub silence: Option<Duration>,
}

impl RemoteAgentArgs {
    /// Returns the requested agent, if any.
    pub fn agent(&self) -> Option<AgentAddress> {
        let address = AgentAddress::failover(self.agent.clone())?;
        Some(address.with_keys(self.keys.as_deref().unwrap_or(Path::new(KEY_DIRECTORY))))
    }

    /// Returns true if an agent is requested.
    pub fn is_set(&self) -> bool {
        !self.agent.is_empty()
    }
}
