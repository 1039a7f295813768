//! What an algorithm heard from the datapath: its reports, field by field, as they came to the
//! agent.

use std::collections::HashMap;
use std::fmt::Write;
use std::net::SocketAddr;

use ccplane_agent::HostedAlgorithm;
use ccplane_sim as sim;

/// The reports of a contender's run.
#[derive(Clone, Debug, Default)]
pub struct ReportLog {
    /// The algorithm's programs: what the fields are called.
    pub programs: Vec<Reporting>,
    /// In the order in which they came.
    pub reports: Vec<LoggedReport>,
    /// Reports that came after there was no room to keep them.
    pub not_kept: u64,
    /// The datapath's numbers of the flows that the result lists, in its order; `None` for one that
    /// was not steered.
    pub flows: Vec<Option<u64>>,
    /// By sender; the kernel's flows only.
    pub numbers: HashMap<SocketAddr, u64>,
}

/// Reports kept for `reports.csv`, the first of a run: a report every ACK makes thousands a second,
/// each with a dozen fields.
pub const REPORTS_MAX: usize = 50_000;

/// A program that reports.
#[derive(Clone, Debug)]
pub struct Reporting {
    /// Its identity in reports.
    pub uid: u32,
    /// The name under which the algorithm declared it.
    pub name: String,
    /// Its fields, in the order in which they are sent.
    pub fields: Vec<String>,
}

/// One report.
#[derive(Clone, Debug)]
pub struct LoggedReport {
    /// When the algorithm got it: `CLOCK_MONOTONIC` or virtual nanoseconds.
    pub at_ns: u64,
    /// The flow's number at its datapath.
    pub flow: u64,
    /// The program that made it.
    pub program: u32,
    /// Whether a loss, a timeout or an undo made it.
    pub urgent: bool,
    /// Values in the order of the program's fields.
    pub fields: Vec<u64>,
}

/// The heading of the rows that [`ReportLog::csv`] adds.
pub const CSV_HEADING: &str = "contender,flow,time_s,program,urgent,field,value\n";

impl ReportLog {
    /// Nothing yet, of these algorithms.
    pub fn of<'h>(hosted: impl Iterator<Item = &'h HostedAlgorithm>) -> ReportLog {
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

    /// What a simulated agent heard, `count` reports in all, with flows in the order of the result.
    pub fn simulated(
        world: &sim::World,
        agent: sim::AgentId,
        count: u64,
        flows: &[sim::FlowId],
    ) -> ReportLog {
        let hosted = world
            .agent(agent)
            .into_iter()
            .flat_map(|agent| agent.hosted());
        let kept = world.heard(agent);
        let reports = kept.iter().map(|report| LoggedReport {
            at_ns: report.at.as_nanos(),
            flow: report.flow.index() as u64,
            program: report.program,
            urgent: report.urgent,
            fields: report.fields.clone(),
        });
        ReportLog {
            reports: reports.collect(),
            not_kept: count.saturating_sub(kept.len() as u64),
            flows: flows.iter().map(|flow| Some(flow.index() as u64)).collect(),
            ..ReportLog::of(hosted.map(|hosted| &**hosted))
        }
    }

    /// Reports that came, kept or not.
    pub fn count(&self) -> u64 {
        self.reports.len() as u64 + self.not_kept
    }

    /// With flows in the order of their senders.
    pub fn in_order_of(mut self, senders: &[SocketAddr]) -> ReportLog {
        self.flows = senders
            .iter()
            .map(|sender| self.numbers.get(sender).copied())
            .collect();
        self
    }

    /// One row a field, since programs differ in theirs. Times count from `started_ns`.
    pub fn csv(&self, contender: &str, started_ns: u64, csv: &mut String) {
        for report in &self.reports {
            let Some(program) = self.programs.iter().find(|p| p.uid == report.program) else {
                continue;
            };
            let flow = self
                .flows
                .iter()
                .position(|flow| *flow == Some(report.flow));
            let flow = flow.map_or(String::new(), |i| (i + 1).to_string());
            // What came while the connections opened stands at 0.
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
