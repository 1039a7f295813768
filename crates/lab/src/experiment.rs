//! What to compare, over which link.

use ccplane_agent::link::AgentAddress;
use ccplane_algorithms::{Registry, UnknownAlgorithm};
use ccplane_datapath::Capabilities;
use ccplane_emu::Timing;
use ccplane_qdisc::{LineSpec, LossModel, QueueSpec};
pub use ccplane_scenario::{BadContender, Contender, suggestions};
use ccplane_units::{Duration, Rate};

/// One run: each contender in turn on the same kind of link, with the same seed.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Who runs, in this order.
    pub contenders: Vec<Contender>,
    /// The bottleneck.
    pub line: LineSpec,
    /// The bottleneck as the user wrote it: `96mbit`, or the trace's file.
    pub line_name: String,
    /// Round-trip time without a queue, half of it each way.
    pub rtt: Duration,
    /// The bottleneck's queue. Under one BDP, Reno cannot keep the link full; far above, delay is all that grows.
    pub queue: QueueSpec,
    /// The queue as the user wrote it.
    pub queue_name: String,
    /// Random loss on the way to the receiver.
    pub loss: LossModel,
    /// Up to so much less or more delay on the way to the receiver, packet by packet.
    pub jitter: Duration,
    /// Whether packets may overtake one another thereby.
    pub reorder: bool,
    /// How the emulator waits for a packet's time.
    pub timing: Timing,
    /// Seed of the random loss: the same for every contender.
    pub seed: u64,
    /// Connections a contender, all from the start.
    pub flows: usize,
    /// For how long each contender sends.
    pub duration: Duration,
    /// Between two looks at each socket. Below 10 ms the looking itself costs CPU; above the round-trip time, the
    /// window's course is lost.
    pub sample_every: Duration,
    /// Who runs ccplane's algorithms; without it this process does.
    pub agent: Option<RemoteAgent>,
    /// The command line that does this again, for the report.
    pub command: String,
}

/// An agent in another process.
#[derive(Clone, Debug)]
pub struct RemoteAgent {
    /// Where it serves.
    pub address: AgentAddress,
    /// How long a CCP agent may say nothing; without it, as long as it is there.
    pub silence: Option<Duration>,
}

impl Experiment {
    /// One flow of each contender over a link of a steady rate that loses nothing.
    pub fn over(
        contenders: Vec<Contender>,
        rate: Rate,
        rtt: Duration,
        queue: QueueSpec,
        duration: Duration,
    ) -> Experiment {
        Experiment {
            contenders,
            line: LineSpec::Constant(rate),
            line_name: rate.to_string(),
            rtt,
            queue,
            queue_name: queue.to_string(),
            loss: LossModel::NONE,
            jitter: Duration::ZERO,
            reorder: false,
            timing: Timing::default(),
            seed: 1,
            flows: 1,
            duration,
            sample_every: Duration::from_millis(20),
            agent: None,
            command: String::new(),
        }
    }
}

/// What has to be switched on for a contender: its connections offer ECN, or carry time stamps. Of those that are no
/// algorithms of ours, kernel's or transport's, only DCTCP wants anything, ECN.
pub fn wants(contender: &Contender, registry: &Registry) -> Result<Capabilities, UnknownAlgorithm> {
    match contender {
        Contender::Native { name } if name == "dctcp" => Ok(Capabilities::ECN),
        Contender::Native { .. } => Ok(Capabilities::default()),
        Contender::Ccplane { name, parameters } => Ok(registry.by_name(name, &crate::run::read(parameters))?.wants()),
    }
}
