//! Congestion controls of a run on kernel TCP. An algorithm of ccplane is registered once, even if
//! several workloads use it.

use ccplane_algorithms::Registry;
use ccplane_datapath::Capabilities;
use ccplane_link::AgentAddress;
use ccplane_linux::Flows;

use ccplane_lab::Contender;
use ccplane_lab::Error;
use ccplane_lab::report_log;

use crate::steer::{AlgorithmRecord, SteeredAlgorithm};

/// Registered algorithms. They are unregistered on [`finish`](Self::finish) or drop.
pub(crate) struct RegisteredControls {
    steered: Vec<(Contender, SteeredAlgorithm)>,
}

impl RegisteredControls {
    /// Registers each algorithm among the contenders once. `agent` runs those that name no agent of
    /// their own; `None`: this process.
    pub(crate) fn start<'c>(
        contenders: impl IntoIterator<Item = &'c Contender>,
        registry: &Registry,
        agent: Option<&AgentAddress>,
    ) -> Result<RegisteredControls, Error> {
        let mut steered: Vec<(Contender, SteeredAlgorithm)> = Vec::new();
        for contender in contenders {
            if steered.iter().any(|(known, _)| known == contender) {
                continue;
            }
            let keep = report_log::REPORTS_MAX;
            let started = SteeredAlgorithm::start(contender, registry, agent, keep, false)?;
            steered.extend(started.map(|started| (contender.clone(), started)));
        }
        Ok(RegisteredControls { steered })
    }

    /// Returns an empty set: ccplane's own transport needs no registration.
    pub(crate) fn empty() -> RegisteredControls {
        RegisteredControls {
            steered: Vec::new(),
        }
    }

    /// Returns the registered algorithm of a contender.
    pub(crate) fn steered(&self, contender: &Contender) -> Option<&SteeredAlgorithm> {
        let mut all = self.steered.iter();
        all.find(|(known, _)| known == contender)
            .map(|(_, steered)| steered)
    }

    /// Returns all registered algorithms.
    pub(crate) fn algorithms_mut(
        &mut self,
    ) -> impl Iterator<Item = (&Contender, &mut SteeredAlgorithm)> {
        self.steered
            .iter_mut()
            .map(|(contender, steered)| (&*contender, steered))
    }

    /// Returns the congestion control name that sockets of this contender select.
    pub(crate) fn kernel_name<'n>(&'n self, contender: &'n Contender) -> &'n str {
        self.steered(contender)
            .map_or(contender.algorithm(), SteeredAlgorithm::kernel_name)
    }

    /// Returns the flows of all algorithms, as the kernel sees them.
    pub(crate) fn flows(&self) -> Vec<Flows> {
        self.steered
            .iter()
            .map(|(_, steered)| steered.flows().clone())
            .collect()
    }

    /// Returns the capabilities that a contender needs.
    pub(crate) fn wants(
        &self,
        contender: &Contender,
        registry: &Registry,
    ) -> Result<Capabilities, Error> {
        match self.steered(contender) {
            Some(steered) => Ok(steered.capabilities()),
            None => Ok(ccplane_lab::wants(contender, registry)?),
        }
    }

    /// Stops and unregisters all of them.
    pub(crate) fn finish(self) -> Result<Vec<(Contender, AlgorithmRecord)>, Error> {
        let each = self.steered.into_iter();
        each.map(|(contender, steered)| Ok((contender, steered.finish()?)))
            .collect()
    }
}
