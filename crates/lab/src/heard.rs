//! What an algorithm heard from the datapath: its reports, field by field, as they came out of the ring buffer.

use std::collections::HashMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use ccplane_agent::Hosted;
use ccplane_linux::Observer;
use ccplane_units::Time;
use ccplane_wire::Event;

/// The reports of a contender's run.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// The algorithm's programs: what the fields are called.
    pub programs: Vec<Reporting>,
    /// In the order in which they came.
    pub reports: Vec<Report>,
    /// Reports that came after there was no room to keep them.
    pub not_kept: u64,
}

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
pub struct Report {
    /// When the algorithm got it, `CLOCK_MONOTONIC` nanoseconds.
    pub at_ns: u64,
    /// The sender's address, which tells the flow.
    pub flow: Option<SocketAddr>,
    /// The program that made it.
    pub program: u32,
    /// Whether a loss, a timeout or an undo made it.
    pub urgent: bool,
    /// Values in the order of the program's fields.
    pub fields: Vec<u64>,
}

/// Listens to one algorithm's events.
pub(crate) struct Listener<'a> {
    count: &'a AtomicU64,
    room: usize,
    flows: HashMap<u64, SocketAddr>,
    heard: Heard,
}

impl<'a> Listener<'a> {
    /// Counts every report into `count` and keeps the first `room`.
    pub(crate) fn new<'h>(hosted: impl Iterator<Item = &'h Hosted>, count: &'a AtomicU64, room: usize) -> Listener<'a> {
        let programs = hosted.flat_map(|h| &h.programs).map(|program| Reporting {
            uid: program.uid,
            name: program.name.clone(),
            fields: program.compiled.report_names().map(str::to_owned).collect(),
        });
        Listener {
            count,
            room,
            flows: HashMap::new(),
            heard: Heard {
                programs: programs.collect(),
                ..Heard::default()
            },
        }
    }

    pub(crate) fn into_heard(self) -> Heard {
        self.heard
    }
}

impl Observer for Listener<'_> {
    fn event(&mut self, now: Time, event: &Event<'_>) {
        match event {
            Event::FlowOpened { flow, info } if self.room > 0 => {
                self.flows.insert(*flow, info.local);
            }
            Event::Report {
                flow,
                program,
                urgent,
                fields,
            } => {
                self.count.fetch_add(1, Ordering::Relaxed);
                if self.heard.reports.len() < self.room {
                    self.heard.reports.push(Report {
                        at_ns: now.as_nanos(),
                        flow: self.flows.get(flow).copied(),
                        program: *program,
                        urgent: *urgent,
                        fields: fields.to_vec(),
                    });
                } else {
                    self.heard.not_kept += 1;
                }
            }
            _ => {}
        }
    }
}

/// The heading of the rows that [`Heard::csv`] adds.
pub(crate) const CSV_HEADING: &str = "contender,flow,time_s,program,urgent,field,value\n";

impl Heard {
    /// One row a field, since programs differ in theirs. Flows are numbered as their senders stand in `senders`; times
    /// count from `started_ns`.
    pub(crate) fn csv(&self, contender: &str, senders: &[SocketAddr], started_ns: u64, csv: &mut String) {
        for report in &self.reports {
            let Some(program) = self.programs.iter().find(|p| p.uid == report.program) else {
                continue;
            };
            let flow = report.flow.and_then(|local| senders.iter().position(|s| *s == local));
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

#[cfg(test)]
mod tests {
    use super::*;
    use ccplane_wire::FlowInfo;

    #[test]
    fn reports_are_counted_kept_and_named() {
        let count = AtomicU64::new(0);
        let local: SocketAddr = "10.0.0.1:7".parse().unwrap();
        let mut listener = Listener::new([].into_iter(), &count, 2);
        listener.heard.programs.push(Reporting {
            uid: 9,
            name: "window".into(),
            fields: vec!["acked".into(), "rtt".into()],
        });
        let info = FlowInfo {
            local,
            ..FlowInfo::default()
        };
        listener.event(Time::from_nanos(1_000), &Event::FlowOpened { flow: 5, info });
        for n in 0..3 {
            let event = Event::Report {
                flow: 5,
                program: 9,
                urgent: n == 1,
                fields: &[n, 20_000],
            };
            listener.event(Time::from_nanos(2_000_000 + n), &event);
        }
        let heard = listener.into_heard();
        assert_eq!((count.into_inner(), heard.reports.len(), heard.not_kept), (3, 2, 1));
        let mut csv = String::new();
        heard.csv("reno", &[local], 1_000_000, &mut csv);
        assert_eq!(
            csv,
            "reno,1,0.001000,window,0,acked,0\nreno,1,0.001000,window,0,rtt,20000\n\
             reno,1,0.001000,window,1,acked,1\nreno,1,0.001000,window,1,rtt,20000\n"
        );
    }
}
