//! Log of the reports that an algorithm received from the datapath, field by field.

use std::collections::HashMap;
use std::fmt::Write;
use std::net::SocketAddr;

use ccplane_agent::HostedAlgorithm;
use ccplane_sim as sim;
use serde::{Deserialize, Serialize};

/// Reports of a contender's run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReportLog {
    /// Programs of the algorithm, with the names of their fields.
    pub programs: Vec<Reporting>,
    /// Reports in the order of their arrival.
    pub reports: Vec<LoggedReport>,
    /// Number of reports that exceeded [`REPORTS_MAX`].
    pub discarded: u64,
    /// Datapath ids of the flows that the result lists, in its order; `None` for a flow that
    /// ccplane did not control.
    pub flows: Vec<Option<u64>>,
    /// Datapath ids by the address of the sender, for flows of the kernel.
    pub flow_by_sender: HashMap<SocketAddr, u64>,
}

/// Maximum number of reports per run in `reports.csv`; later ones are counted only. A report per
/// ACK makes thousands per second, each with a dozen fields.
pub const REPORTS_MAX: usize = 50_000;

/// Program that sends reports.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reporting {
    /// Identifier of the program in reports.
    pub uid: u32,
    /// Name under which the algorithm declared the program.
    pub name: String,
    /// Names of the fields, in the order of the report.
    pub fields: Vec<String>,
}

/// One report.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoggedReport {
    /// Time at which the algorithm received it, ns: `CLOCK_MONOTONIC` or virtual time.
    pub at_ns: u64,
    /// Datapath id of the flow.
    pub flow: u64,
    /// Identifier of the program.
    pub program: u32,
    /// True if a loss, a timeout or an undo triggered it.
    pub urgent: bool,
    /// Values in the order of the program's fields.
    pub fields: Vec<u64>,
}

/// Heading of the rows that [`ReportLog::write_csv`] writes.
pub const CSV_HEADING: &str = "contender,flow,time_s,program,urgent,field,value\n";

impl ReportLog {
    /// Creates an empty log for these algorithms.
    pub fn new<'h>(hosted: impl Iterator<Item = &'h HostedAlgorithm>) -> ReportLog {
        let programs = hosted.flat_map(|h| &h.programs).map(|program| Reporting {
            uid: program.uid,
            name: program.name.clone(),
            fields: program.compiled.report_names().map(str::to_owned).collect(),
        });
        ReportLog {
            programs: programs.collect(),
            ..ReportLog::default()
        }
    }

    /// Returns the reports received by a simulated agent, `count` in total, with flows in the order
    /// of the result.
    pub fn from_simulation(
        world: &sim::World,
        agent: sim::AgentId,
        count: u64,
        flows: &[sim::FlowId],
    ) -> ReportLog {
        let hosted = world
            .agent(agent)
            .into_iter()
            .flat_map(|agent| agent.hosted_algorithms());
        let kept = world.recorded_reports(agent);
        let reports = kept.iter().map(|report| LoggedReport {
            at_ns: report.at.as_nanos(),
            flow: report.flow.index() as u64,
            program: report.program,
            urgent: report.urgent,
            fields: report.fields.clone(),
        });
        ReportLog {
            reports: reports.collect(),
            discarded: count.saturating_sub(kept.len() as u64),
            flows: flows.iter().map(|flow| Some(flow.index() as u64)).collect(),
            ..ReportLog::new(hosted.map(|hosted| &**hosted))
        }
    }

    /// Returns the number of reports, including those that were not stored.
    pub fn count(&self) -> u64 {
        self.reports.len() as u64 + self.discarded
    }

    /// Sets the flows from the addresses of their senders, in this order.
    pub fn with_flow_order(mut self, senders: &[SocketAddr]) -> ReportLog {
        self.flows = senders
            .iter()
            .map(|sender| self.flow_by_sender.get(sender).copied())
            .collect();
        self
    }

    /// Appends one row per field, since programs have different fields. Times start at
    /// `started_ns`.
    pub fn write_csv(&self, contender: &str, started_ns: u64, csv: &mut String) {
        for report in &self.reports {
            let Some(program) = self.programs.iter().find(|p| p.uid == report.program) else {
                continue;
            };
            let flow = self
                .flows
                .iter()
                .position(|flow| *flow == Some(report.flow));
            let flow = flow.map_or(String::new(), |i| (i + 1).to_string());
            // Reports from before the first byte have time 0.
            let at = report.at_ns.saturating_sub(started_ns) as f64 / 1e9;
            for (field, value) in program.fields.iter().zip(&report.fields) {
                let _ = writeln!(
                    csv,
                    "{contender},{flow},{at:.6},{},{},{field},{value}",
                    program.name,
                    u8::from(report.urgent)
                );
            }
        }
    }
}
