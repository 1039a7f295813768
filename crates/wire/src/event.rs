//! The typed messages, the same for every link and every framing.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ccplane_datapath::{Capabilities, Program, Refused, Target, Update};
use ccplane_units::{Bytes, Duration, Rate};

use crate::Tags;

/// Datapath to agent. A flow is a `u64` that its datapath allots and does not use again while the
/// flow lives.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<'a> {
    /// The datapath (re)started and holds no programs of this agent: the agent answers with
    /// [`Command::Install`]s.
    Ready {
        /// What it is and can do.
        datapath: DatapathInfo,
    },
    /// A flow began, or lives already and is announced to an agent that is new to it
    /// ([`FlowInfo::live`]).
    FlowOpened {
        /// The flow.
        flow: u64,
        /// Its addresses and its state.
        info: FlowInfo,
    },
    /// A report of a flow's program.
    Report {
        /// The flow.
        flow: u64,
        /// The uid of the program that made it.
        program: u32,
        /// True when a loss, a timeout or an undo was in it.
        urgent: bool,
        /// The report variables, in order of declaration.
        fields: &'a [u64],
    },
    /// A flow ended; its number may be used again.
    FlowClosed {
        /// The flow.
        flow: u64,
        /// Totals over its life.
        stats: FlowStats,
    },
    /// The datapath did not do what a command asked.
    Refused {
        /// The flow the command was for; `None` for an install.
        flow: Option<u64>,
        /// The uid of the program concerned; 0 where there is none.
        program: u32,
        /// Why.
        why: Refusal,
    },
    /// A program is ready to be set on flows.
    Installed {
        /// Its uid.
        program: u32,
    },
}

/// Agent to datapath.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// The agent runs this algorithm. Said after [`Event::Ready`], before the algorithm's programs:
    /// who sets flows up for an agent in another process learns from it what to set up.
    Offer(Arc<Offer>),
    /// Keep this program, under its [`Program::uid`], for flows of this algorithm.
    Install {
        /// The algorithm's name.
        algorithm: Arc<str>,
        /// The program, its uid in it.
        program: Arc<Program>,
    },
    /// Run an installed program on a flow, from its initial values, with these updates applied
    /// first.
    SetProgram {
        /// The flow.
        flow: u64,
        /// The program.
        uid: u32,
        /// Control variables of that program, window, rate, ssthresh.
        updates: Updates,
    },
    /// Change control variables of a flow's current program, its window, rate or ssthresh; all at
    /// once.
    Update {
        /// The flow.
        flow: u64,
        /// What to change.
        updates: Updates,
    },
    /// Give a flow to the datapath's own control, until it is set a program.
    Release {
        /// The flow.
        flow: u64,
    },
    /// The thread that runs the algorithm's callbacks is alive.
    Heartbeat {
        /// The algorithm's name.
        algorithm: Arc<str>,
    },
}

/// An algorithm that an agent runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The name by which flows choose it.
    pub name: Arc<str>,
    /// Its name among the kernel's congestion controls.
    pub kernel_name: String,
    /// What it needs of a datapath.
    pub needs: Capabilities,
    /// What it needs, and what it uses where it is there.
    pub wants: Capabilities,
    /// How long a report that is not urgent may wait.
    pub latency: Duration,
}

/// What a datapath says of itself at [`Event::Ready`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatapathInfo {
    /// A number that its owner gave it, for logs.
    pub id: u32,
    /// What kind it is: `linux`, `sim`, `ccp`, …
    pub kind: String,
    /// What it can do.
    pub capabilities: Capabilities,
    /// Most programs an algorithm may install.
    pub max_programs: u32,
    /// Most instructions of a program.
    pub max_instrs: u32,
    /// Most variables of a program.
    pub max_vars: u32,
    /// Silence of an algorithm after which its flows fall back; heartbeats come at a third of it.
    /// `None`: it never falls back by silence and takes no heartbeats, as a version-1 peer.
    pub fallback_after: Option<Duration>,
}

/// What a datapath says of a flow at [`Event::FlowOpened`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowInfo {
    /// The algorithm that the flow asked for; empty when it asked for none.
    pub algorithm: String,
    /// The window that the flow started with.
    pub init_cwnd: Bytes,
    /// Payload of a full segment.
    pub mss: Bytes,
    /// The sender's address; unspecified where the datapath has none.
    pub local: SocketAddr,
    /// The receiver's address.
    pub peer: SocketAddr,
    /// The window in force.
    pub cwnd: Bytes,
    /// The slow-start threshold in force; `u64::MAX` bytes before the first loss.
    pub ssthresh: Bytes,
    /// The pacing rate in force; zero when not paced.
    pub rate: Rate,
    /// Smoothed RTT; zero before the first sample.
    pub srtt: Duration,
    /// True when the flow lived before this agent knew it (the agent restarted, or the flow comes
    /// back from the fallback): the algorithm goes on from `cwnd`.
    pub live: bool,
    /// What the datapath's owner says of its flows; empty where nothing was said.
    pub tags: Tags,
}

impl Default for FlowInfo {
    /// A fresh flow of 10 segments of 1448 bytes (RFC 6928) that asks for no algorithm.
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

/// Totals over a flow's life; zero where the datapath does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowStats {
    /// Bytes acknowledged.
    pub bytes_acked: Bytes,
    /// Packets marked lost.
    pub packets_lost: u64,
    /// Reports made.
    pub reports: u64,
    /// How long it lived.
    pub lifetime: Duration,
}

/// Why a datapath did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No such program is installed.
    #[error(
        "the datapath has no program {0}: it was not installed, or the datapath restarted since"
    )]
    UnknownProgram(u32),
    /// No such flow lives, or it was announced anew since: it is back from the datapath's own
    /// control.
    #[error(
        "the datapath has no such flow: it ended, or began anew, while the command was on its way"
    )]
    UnknownFlow,
    /// An update of something that the flow's program does not have, or that the agent may not set.
    #[error("an update names what its program does not have or the agent may not set: {0}")]
    BadTarget(String),
    /// No room for another program.
    #[error("the datapath's program table is full: install fewer programs, or raise its limit")]
    TableFull,
    /// More variables than the datapath holds for a flow.
    #[error("the program needs {needed} variables, the datapath has {available}")]
    TooManyVars {
        /// Variables of the program.
        needed: u32,
        /// Variables that the datapath holds.
        available: u32,
    },
    /// The datapath cannot do what the algorithm needs.
    #[error("the datapath lacks {}", .0.names().collect::<Vec<_>>().join(", "))]
    Missing(Capabilities),
    /// The program is not valid there.
    #[error("the program is not valid: {0}")]
    Invalid(String),
    /// The datapath's or the link's language cannot say it.
    #[error("this datapath cannot say it: {0}")]
    Unsupported(String),
    /// A flow cannot be given back to the datapath's own control; it goes on as it was.
    #[error(
        "this datapath cannot take a flow back before its agent is silent: its window stays until it is set a program"
    )]
    NoRelease,
    /// Anything else, in words.
    #[error("{0}")]
    Other(String),
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Refusal {
        match refused {
            Refused::UnknownProgram { uid } => Refusal::UnknownProgram(uid),
            Refused::BadTarget { .. } | Refused::NoProgram => {
                Refusal::BadTarget(refused.to_string())
            }
            Refused::TableFull { .. } => Refusal::TableFull,
            Refused::TooManyVars { has, room } => Refusal::TooManyVars {
                needed: has as u32,
                available: room as u32,
            },
            Refused::Missing(missing) => Refusal::Missing(missing),
            Refused::Invalid(_) => Refusal::Invalid(refused.to_string()),
            other => Refusal::Other(other.to_string()),
        }
    }
}

/// A list of updates that lives inside its command up to 16 of them, and on the heap beyond.
#[derive(Clone, Debug)]
pub struct Updates(List);

#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is the common one, and a box would allocate per command"
)]
enum List {
    Inline {
        len: u8,
        items: [Update; Updates::INLINE],
    },
    Heap(Vec<Update>),
}

const UNUSED: Update = Update {
    target: Target::Cwnd,
    value: 0,
};

impl Updates {
    /// As many as need no heap. The published algorithms set at most 5 at once.
    pub const INLINE: usize = 16;

    /// None.
    pub const fn new() -> Updates {
        Updates(List::Inline {
            len: 0,
            items: [UNUSED; Updates::INLINE],
        })
    }

    /// Adds one; an update of the same target is replaced, as only the last counts.
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
            List::Inline { len, items } => match items.get_mut(*len as usize) {
                Some(free) => {
                    *free = update;
                    *len += 1;
                }
                None => {
                    let mut heap = items.to_vec();
                    heap.push(update);
                    self.0 = List::Heap(heap);
                }
            },
            List::Heap(heap) => heap.push(update),
        }
    }

    /// All of them, in order of first mention.
    pub fn as_slice(&self) -> &[Update] {
        match &self.0 {
            List::Inline { len, items } => items.get(..*len as usize).unwrap_or(items),
            List::Heap(heap) => heap,
        }
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// Takes all, leaving none.
    pub fn take(&mut self) -> Updates {
        std::mem::take(self)
    }

    fn as_mut_slice(&mut self) -> &mut [Update] {
        match &mut self.0 {
            List::Inline { len, items } => &mut items[..*len as usize],
            List::Heap(heap) => heap,
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
