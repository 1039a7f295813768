//! Contenders of the experiments on DX, and how one is put into a simulation.

use std::sync::Arc;

use ccplane_agent::Agent;
use ccplane_algorithms::{Parameters, Registry};
use ccplane_qdisc::Ecn;
use ccplane_sim::{Config, Congestion, Native, SteerOptions, World};

use super::simulations;
use ccplane_lab::Error;
use ccplane_lab::scenario::Stamps;
use ccplane_lab::sim::{put_stamps, switched_on};

/// A congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// DX on exact stamps.
    Dx,
    /// DX that decides once a round trip, by the first packet that left after the last decision: `samples=freshest`.
    DxFreshest,
    /// DX on stamps as noisy as hardware's.
    DxHardware,
    /// DX on stamps as noisy as software's.
    DxSoftware,
    /// The transport's own DCTCP: the baseline. g = 1/16.
    Dctcp,
    /// DCTCP as an algorithm of ccplane's.
    Steered,
    /// Swift, its target as measured.
    Swift,
}

impl Who {
    /// For a person.
    pub fn label(self) -> &'static str {
        match self {
            Who::Dx => "DX",
            Who::DxFreshest => "DX, `freshest`",
            Who::DxHardware => "DX, hardware-like stamps",
            Who::DxSoftware => "DX, software-like stamps",
            Who::Dctcp => "DCTCP",
            Who::Steered => "DCTCP, ccplane's",
            Who::Swift => "Swift",
        }
    }

    /// For names of files and figures.
    pub fn key(self) -> &'static str {
        match self {
            Who::Dx => "dx",
            Who::DxFreshest => "dx_freshest",
            Who::DxHardware => "dx_hw",
            Who::DxSoftware => "dx_sw",
            Who::Dctcp => "dctcp",
            Who::Steered => "steered_dctcp",
            Who::Swift => "swift",
        }
    }

    /// What `--alg` takes; nothing for the transport's own.
    fn algorithm(self) -> Option<&'static str> {
        match self {
            Who::Dctcp => None,
            Who::Steered => Some("dctcp"),
            Who::Dx | Who::DxFreshest | Who::DxHardware | Who::DxSoftware => Some("dx"),
            Who::Swift => Some(self.key()),
        }
    }

    /// What it is given after its name.
    fn parameters(self) -> Parameters {
        match self {
            Who::DxFreshest => Parameters::new().with("samples", "freshest"),
            _ => Parameters::new(),
        }
    }

    /// Whether it reads marks: the switches in its way have a threshold then.
    pub fn heeds_marks(self) -> bool {
        matches!(self, Who::Dctcp | Who::Steered)
    }

    /// The stamps of all hosts, where they are not exact.
    fn stamps(self) -> Option<Stamps> {
        match self {
            Who::DxHardware => Some(Stamps::HARDWARE),
            Who::DxSoftware => Some(Stamps::SOFTWARE),
            _ => None,
        }
    }

    /// Brings it into a simulation: what decides a flow's window, and the transport's settings with what that wants of them.
    pub fn join(self, sim: &mut World, registry: &Registry, own: Config) -> Result<(Congestion, Arc<Config>), Error> {
        if let Some(stamps) = self.stamps() {
            let hosts: Vec<_> = sim.network().hosts().collect();
            let put = put_stamps(&stamps, sim, hosts.into_iter());
            put.map_err(simulations::broken(self.label(), 0, "dx"))?;
        }
        let Some(name) = self.algorithm() else {
            let config = Config { ecn: Ecn::Ect0, ..own };
            return Ok((Congestion::Native(Native::dctcp()), Arc::new(config)));
        };
        let (congestion, config) = steered(sim, registry, own, name, &self.parameters())?;
        Ok((congestion, Arc::new(config)))
    }
}

/// Brings an algorithm of ccplane's into a simulation, and what it wants of the transport.
fn steered(
    sim: &mut World,
    registry: &Registry,
    own: Config,
    name: &str,
    parameters: &Parameters,
) -> Result<(Congestion, Config), Error> {
    let algorithm = registry.by_name(name, parameters)?;
    let config = switched_on(own, algorithm.wants());
    let mut agent = Agent::new(ccplane_agent::Options::default());
    agent.add_boxed(algorithm)?;
    let agent = sim.host_agent(agent, SteerOptions::default());
    Ok((Congestion::Steered(agent, Arc::from(name)), config))
}

/// The threshold at which switches mark for DCTCP, packets: 20 at 1 Gbit/s and 65 at 10, the values in use. The slides have
/// none. Lower, and DCTCP does not fill the link; higher, and its queue grows by as much, which flatters DX.
pub(super) fn marking_threshold(gbit: u64) -> u64 {
    if gbit >= 10 { 65 } else { 20 }
}
