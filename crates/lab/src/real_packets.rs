//! Which scenarios run on real packets: flows without end over one bottleneck.

use ccplane_emu::Timing;
use ccplane_sim::Workload as Sends;
use ccplane_units::Duration;

use crate::error::Error;
use crate::experiment::Experiment;
use crate::scenario::{Kind, Scenario, Seeds, Topology, TransportOptions, Until};

/// A scenario on kernel TCP behind an emulated link; [`Error::NotOnLinux`] names everything that cannot be.
pub fn on_real_packets(scenario: &Scenario, seeds: Seeds, command: String) -> Result<Experiment, Error> {
    let mut parts: Vec<String> = Vec::new();
    let mut cannot = |when: bool, what: &str| {
        if when {
            parts.push(what.to_owned());
        }
    };
    cannot(
        seeds.count() > 1,
        "several seeds: real time runs once (give one with --seeds)",
    );
    cannot(
        scenario.until != Until::Duration,
        "`until`: real time lasts as long as the duration",
    );
    cannot(!scenario.events.is_empty(), "events");
    cannot(!scenario.routes.is_empty() || scenario.per_packet, "routing");
    cannot(
        scenario.transport != TransportOptions::default(),
        "[transport]: what carries real packets has settings of its own",
    );
    cannot(
        scenario.staleness.is_some(),
        "[steering]: reports take the time that they take",
    );
    cannot(scenario.stamps.is_some(), "[stamps]: clocks are what they are");
    cannot(!scenario.report.links.is_empty(), "links in [report]: there is one");
    cannot(scenario.workloads.len() > 1, "several workloads");
    let workload = scenario.workloads.first();
    let flows = match workload.map(|w| &w.kind) {
        Some(Kind::Of(Sends::Bulk {
            flows,
            bytes: None,
            stagger: Duration::ZERO,
        })) => *flows,
        Some(Kind::Of(Sends::Bulk { bytes: Some(_), .. })) => {
            cannot(true, "flows of a given size");
            0
        }
        Some(Kind::Of(Sends::Bulk { .. })) => {
            cannot(true, "flows that start one after the other");
            0
        }
        _ => {
            cannot(true, "workloads other than `bulk`");
            0
        }
    };
    cannot(
        workload.is_some_and(|w| w.algorithm.is_some()),
        "a workload's own algorithm",
    );
    cannot(
        workload.is_some_and(|w| w.start > Duration::ZERO || w.stop.is_some()),
        "a workload's start and stop",
    );
    cannot(
        workload.is_some_and(|w| !w.from.is_empty() || !w.to.is_empty()),
        "a choice of hosts: there is one sender and one receiver",
    );
    let Topology::Dumbbell {
        pairs,
        bottleneck,
        back,
        access,
    } = &scenario.topology
    else {
        cannot(true, "networks other than [topology.dumbbell]");
        return Err(not_on_linux(scenario, parts));
    };
    cannot(access.is_some(), "`access_rate`");
    if !parts.is_empty() {
        return Err(not_on_linux(scenario, parts));
    }
    Ok(Experiment {
        contenders: scenario.contenders.clone(),
        line: bottleneck.line.clone(),
        line_name: bottleneck.line_name.clone(),
        rtt: bottleneck.delay + *back,
        queue: bottleneck.queue,
        queue_name: bottleneck.queue_name.clone(),
        loss: bottleneck.loss,
        jitter: bottleneck.jitter,
        reorder: bottleneck.reorder,
        timing: Timing::default(),
        seed: seeds.first(),
        flows: (*pairs as usize).saturating_mul(flows as usize),
        duration: scenario.duration,
        sample_every: scenario.sample_every,
        agent: None,
        command,
    })
}

fn not_on_linux(scenario: &Scenario, parts: Vec<String>) -> Error {
    Error::NotOnLinux {
        file: scenario.file.clone(),
        parts,
    }
}
