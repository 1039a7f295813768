//! Options that select an agent in another process, shared by `attach`, `run` and `send`.

use ccplane_link::AgentAddress;
use clap::Args;

/// Options of the agent.
#[derive(Args)]
pub struct RemoteAgentArgs {
    /// Agent in another process to run the algorithms: `unix:PATH`, or just PATH, of a `ccplane
    /// agent --unix PATH`, possibly another user's; `tls://HOST:PORT` of a `ccplane agent --tls` on
    /// another host, or `tls://HOST:PORT?keys=DIR` with the folder of this host's key [default:
    /// /etc/ccplane/keys]; `ccp:PATH` of a CCP agent such as portus, or `ccp:PATH?timeout=2s` if it
    /// is to count as dead that long after its last message. If given twice, the second takes over
    /// when the first is gone.
    #[arg(long, value_name = "ADDRESS")]
    agent: Vec<AgentAddress>,
}

impl RemoteAgentArgs {
    /// Returns the requested agent, if any.
    pub fn agent(&self) -> Option<AgentAddress> {
        AgentAddress::failover(self.agent.clone())
    }

    /// Returns true if an agent is requested.
    pub fn is_set(&self) -> bool {
        !self.agent.is_empty()
    }
}
