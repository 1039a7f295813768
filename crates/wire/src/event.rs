//! Typed messages, common to all links and framings.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ccplane_datapath::{Capabilities, CommandError, CommandTarget, Program, Update};
use ccplane_units::{Bytes, Duration, Rate};

use crate::Tags;

/// Message from datapath to agent. A flow is a `u64` that its datapath assigns and does not reuse
/// while the flow is live.
#[derive(Clone, Debug, PartialEq)]
pub enum WireEvent<'a> {
    /// The datapath has (re)started and holds no programs of this agent. The agent answers with
    /// [`WireCommand::Install`]s.
    Ready {
        /// Description of the datapath.
        datapath: DatapathInfo,
    },
    /// A flow has opened, or a live flow is announced to a new agent ([`FlowInfo::live`]).
    FlowOpened {
        /// The flow.
        flow: u64,
        /// Its addresses and state.
        info: FlowInfo,
    },
    /// A flow's program made a report.
    Report {
        /// The flow.
        flow: u64,
        /// Uid of the program.
        program: u32,
        /// True if the report includes a loss, a timeout or an undo.
        urgent: bool,
        /// Report variables, in order of declaration.
        fields: &'a [u64],
    },
    /// A flow has closed; its number may be reused.
    FlowClosed {
        /// The flow.
        flow: u64,
        /// Totals of the flow.
        stats: FlowStats,
    },
    /// The datapath refused a command.
    Refused {
        /// Flow of the command; `None` for an install.
        flow: Option<u64>,
        /// Uid of the program concerned; 0 if there is none.
        program: u32,
        /// Reason of the refusal.
        why: Refusal,
    },
    /// A program is ready to be set on flows.
    Installed {
        /// Uid of the program.
        program: u32,
    },
}

/// Message from agent to datapath.
#[derive(Clone, Debug, PartialEq)]
pub enum WireCommand {
    /// The agent hosts this algorithm. Sent after [`WireEvent::Ready`] and before the algorithm's
    /// programs: a process that sets up flows for a remote agent learns from it what to set up.
    Offer(Arc<Offer>),
    /// Store this program, under its [`Program::uid`], for flows of this algorithm.
    Install {
        /// Name of the algorithm.
        algorithm: Arc<str>,
        /// Program, including its uid.
        program: Arc<Program>,
    },
    /// Run an installed program on a flow, from its initial values with these updates applied.
    SetProgram {
        /// The flow.
        flow: u64,
        /// Uid of the program.
        uid: u32,
        /// Control variables of that program, window, rate, ssthresh.
        updates: Updates,
    },
    /// Change control variables of a flow's current program, its window, rate or ssthresh,
    /// atomically.
    Update {
        /// The flow.
        flow: u64,
        /// New values.
        updates: Updates,
    },
    /// Return a flow to the datapath's own control, until a program is set.
    Release {
        /// The flow.
        flow: u64,
    },
    /// Heartbeat: the thread that runs the algorithm's callbacks is alive.
    Heartbeat {
        /// Name of the algorithm.
        algorithm: Arc<str>,
    },
}

/// Algorithm hosted by an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Name by which flows choose it.
    pub name: Arc<str>,
    /// Name among the kernel's congestion controls.
    pub kernel_name: String,
    /// Required capabilities.
    pub required: Capabilities,
    /// Required and optional capabilities.
    pub requested: Capabilities,
    /// Maximum delay of a report that is not urgent.
    pub latency: Duration,
}

/// Description of a datapath in [`WireEvent::Ready`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatapathInfo {
    /// Number assigned by its operator, for logs.
    pub id: u32,
    /// Kind of the datapath: `linux`, `sim`, `ccp`, …
    pub kind: String,
    /// Capabilities.
    pub capabilities: Capabilities,
    /// Maximum programs per algorithm.
    pub max_programs: u32,
    /// Maximum instructions of a program.
    pub max_instrs: u32,
    /// Maximum variables of a program.
    pub max_vars: u32,
    /// Agent timeout, after which an algorithm's flows fall back; heartbeats are sent at a third of
    /// it. `None`: the datapath never times out and takes no heartbeats, like a version-1 peer.
    pub agent_timeout: Option<Duration>,
}

/// Description of a flow in [`WireEvent::FlowOpened`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowInfo {
    /// Algorithm that the flow asked for; empty if none.
    pub algorithm: String,
    /// Initial window of the flow.
    pub init_cwnd: Bytes,
    /// Payload of a full segment.
    pub mss: Bytes,
    /// Address of the sender; unspecified if the datapath has none.
    pub local: SocketAddr,
    /// Address of the receiver.
    pub peer: SocketAddr,
    /// Congestion window in force.
    pub cwnd: Bytes,
    /// Slow-start threshold in force; `u64::MAX` bytes before the first loss.
    pub ssthresh: Bytes,
    /// Pacing rate in force; zero when not paced.
    pub rate: Rate,
    /// Smoothed RTT; zero before the first sample.
    pub srtt: Duration,
    /// True if the flow was live before this agent took it over (the agent restarted, or the flow
    /// returns from the fallback): the algorithm continues from `cwnd`.
    pub live: bool,
    /// Tags that the datapath's operator set for its flows; empty by default.
    pub tags: Tags,
}

impl Default for FlowInfo {
    /// A new flow with 10 segments of 1448 bytes (RFC 6928) that asks for no algorithm.
    fn default() -> FlowInfo {
        let unspecified = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        FlowInfo {
            algorithm: String::new(),
            init_cwnd: Bytes::new(14_480),
            mss: Bytes::new(1448),
            local: unspecified,
            peer: unspecified,
            cwnd: Bytes::new(14_480),
            ssthresh: Bytes::new(u64::MAX),
            rate: Rate::default(),
            srtt: Duration::ZERO,
            live: false,
            tags: Tags::default(),
        }
    }
}

/// Totals of a flow; zero if the datapath does not count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowStats {
    /// Bytes acknowledged.
    pub bytes_acked: Bytes,
    /// Packets marked lost.
    pub packets_lost: u64,
    /// Reports made.
    pub reports: u64,
    /// Time from open to close.
    pub lifetime: Duration,
}

/// Reason why a datapath refused a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No such program is installed.
    #[error(
        "the datapath has no program {0}: it was not installed, or the datapath restarted since"
    )]
    UnknownProgram(u32),
    /// No such flow is live, or it was announced again since, because it returned from the
    /// datapath's own control.
    #[error(
        "the datapath has no such flow: it ended or was announced again while the command was in \
         transit"
    )]
    UnknownFlow,
    /// The target is a variable that the flow's program does not have, or that the agent may not
    /// set.
    #[error("unknown or read-only target of an update: {0}")]
    BadTarget(String),
    /// The program table is full.
    #[error("the datapath's program table is full: install fewer programs, or raise its limit")]
    TableFull,
    /// The program has more variables than the datapath can hold per flow.
    #[error("the program needs {needed} variables; the datapath has {available}")]
    TooManyVars {
        /// Variables of the program.
        needed: u32,
        /// Variables that the datapath can hold.
        available: u32,
    },
    /// The datapath lacks capabilities that the algorithm requires.
    #[error("the datapath lacks {}", .0.names().collect::<Vec<_>>().join(", "))]
    MissingCapabilities(Capabilities),
    /// The program does not pass the datapath's check.
    #[error("the program is not valid: {0}")]
    InvalidProgram(String),
    /// The program cannot be expressed in the language of the datapath or the link.
    #[error("not supported by this datapath: {0}")]
    Unsupported(String),
    /// The datapath does not support releasing a flow; it continues unchanged.
    #[error(
        "this datapath cannot release a flow while its agent is alive; its window is unchanged \
         until a program is set"
    )]
    NoRelease,
    /// Any other reason, as text.
    #[error("{0}")]
    Other(String),
}

impl From<CommandError> for Refusal {
    fn from(refused: CommandError) -> Refusal {
        match refused {
            CommandError::UnknownProgram { uid } => Refusal::UnknownProgram(uid),
            CommandError::BadTarget { .. } | CommandError::NoProgram => {
                Refusal::BadTarget(refused.to_string())
            }
            CommandError::TableFull { .. } => Refusal::TableFull,
            CommandError::TooManyVars { has, room } => Refusal::TooManyVars {
                needed: has as u32,
                available: room as u32,
            },
            CommandError::MissingCapabilities(missing) => Refusal::MissingCapabilities(missing),
            CommandError::InvalidProgram(_) => Refusal::InvalidProgram(refused.to_string()),
            other => Refusal::Other(other.to_string()),
        }
    }
}

/// List of updates, stored inline up to 16 and on the heap beyond.
#[derive(Clone, Debug)]
pub struct Updates(UpdateList);

#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the large variant is the common one, and boxing it would allocate per command"
)]
enum UpdateList {
    Inline {
        len: u8,
        items: [Update; Updates::INLINE_UPDATES_MAX],
    },
    Heap(Vec<Update>),
}

const UNUSED_UPDATE: Update = Update {
    target: CommandTarget::Cwnd,
    value: 0,
};

impl Updates {
    /// Number of updates stored inline. The published algorithms set at most 5 at once.
    pub const INLINE_UPDATES_MAX: usize = 16;

    /// Creates an empty list.
    pub const fn new() -> Updates {
        Updates(UpdateList::Inline {
            len: 0,
            items: [UNUSED_UPDATE; Updates::INLINE_UPDATES_MAX],
        })
    }

    /// Adds an update. It replaces an earlier update of the same target, as only the last counts.
    pub fn push(&mut self, update: Update) {
        if let Some(old) = self
            .as_mut_slice()
            .iter_mut()
            .find(|u| u.target == update.target)
        {
            *old = update;
            return;
        }
        match &mut self.0 {
            UpdateList::Inline { len, items } => match items.get_mut(*len as usize) {
                Some(free) => {
                    *free = update;
                    *len += 1;
                }
                None => {
                    let mut heap = items.to_vec();
                    heap.push(update);
                    self.0 = UpdateList::Heap(heap);
                }
            },
            UpdateList::Heap(heap) => heap.push(update),
        }
    }

    /// All updates, in the order of first mention of their targets.
    pub fn as_slice(&self) -> &[Update] {
        match &self.0 {
            UpdateList::Inline { len, items } => items.get(..*len as usize).unwrap_or(items),
            UpdateList::Heap(heap) => heap,
        }
    }

    /// Returns true if there are no updates.
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// Removes and returns all updates.
    pub fn take(&mut self) -> Updates {
        std::mem::take(self)
    }

    fn as_mut_slice(&mut self) -> &mut [Update] {
        match &mut self.0 {
            UpdateList::Inline { len, items } => &mut items[..*len as usize],
            UpdateList::Heap(heap) => heap,
        }
    }
}

impl Default for Updates {
    fn default() -> Updates {
        Updates::new()
    }
}

impl PartialEq for Updates {
    fn eq(&self, other: &Updates) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl FromIterator<Update> for Updates {
    fn from_iter<I: IntoIterator<Item = Update>>(items: I) -> Updates {
        let mut updates = Updates::new();
        items.into_iter().for_each(|u| updates.push(u));
        updates
    }
}
