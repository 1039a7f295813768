//! The simplest scenario, which needs no file: flows without end over one bottleneck.

use ccplane_qdisc::{LineSpec, LossModel, QueueSpec};
use ccplane_units::{Duration, Rate};

use crate::{
    Contender, LinkSettings, Pairing, ReportOptions, Scenario, Seeds, StopTime, Topology,
    TransportOptions, Workload, WorkloadKind,
};

/// Default interval between two samples of a flow. Charts show no finer detail.
const SAMPLE_INTERVAL_DEFAULT: Duration = Duration::from_millis(20);

impl Scenario {
    /// Returns a scenario with one flow per contender over a loss-free link with a constant rate.
    pub fn dumbbell(
        contenders: Vec<Contender>,
        rate: Rate,
        rtt: Duration,
        queue: QueueSpec,
        duration: Duration,
    ) -> Scenario {
        let there = Duration::from_nanos(rtt.as_nanos() / 2);
        Scenario {
            file: "one link".to_owned(),
            text: String::new(),
            content_hash: [0; 32],
            referenced_files: Vec::new(),
            title: None,
            contenders,
            duration,
            stop_time: StopTime::Duration,
            bundles: Vec::new(),
            warm_up: Duration::ZERO,
            seeds: Seeds::one(1),
            sample_every: SAMPLE_INTERVAL_DEFAULT,
            topology: Topology::Dumbbell {
                pairs: 1,
                bottleneck: LinkSettings {
                    line: LineSpec::Constant(rate),
                    line_name: rate.to_string(),
                    delay: there,
                    jitter: Duration::ZERO,
                    reorder: false,
                    queue,
                    queue_name: queue.to_string(),
                    loss: LossModel::NONE,
                    strip_classes: false,
                    tbf_burst: None,
                },
                reverse: LinkSettings::wire(rtt.saturating_sub(there)),
                access_rate: None,
            },
            topology_span: 0..0,
            per_packet: false,
            routes: Vec::new(),
            conceal_losses: Vec::new(),
            workloads: vec![Workload {
                name: "bulk".to_owned(),
                from: Vec::new(),
                to: Vec::new(),
                pairing: Pairing::Each,
                algorithm: None,
                band: 0,
                start: Duration::ZERO,
                stop: None,
                kind: bulk(1),
                span: 0..0,
            }],
            events: Vec::new(),
            transport: TransportOptions::default(),
            staleness: None,
            stamps: None,
            report: ReportOptions::default(),
        }
    }

    /// Sets the number of flows per pair of hosts.
    pub fn with_flows(mut self, flows: u32) -> Scenario {
        self.workloads
            .iter_mut()
            .for_each(|workload| workload.kind = bulk(flows));
        self
    }

    /// Applies `change` to the bottleneck of a dumbbell.
    pub fn with_bottleneck(mut self, change: impl FnOnce(&mut LinkSettings)) -> Scenario {
        if let Topology::Dumbbell { bottleneck, .. } = &mut self.topology {
            change(bottleneck);
        }
        self
    }

    /// Sets the sample interval.
    pub fn with_sample_interval(mut self, every: Duration) -> Scenario {
        self.sample_every = every;
        self
    }
}

fn bulk(flows: u32) -> WorkloadKind {
    WorkloadKind::Generated(ccplane_workload::Workload::Bulk {
        flows,
        bytes: None,
        stagger: Duration::ZERO,
        spread: Duration::ZERO,
        lifetime: None,
    })
}
