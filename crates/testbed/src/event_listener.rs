//! Records the reports that an algorithm receives from the kernel.

use std::sync::atomic::{AtomicU64, Ordering};

use ccplane_agent::HostedAlgorithm;
use ccplane_lab::report_log::{LoggedReport, ReportLog};
use ccplane_linux::Observer;
use ccplane_units::Time;
use ccplane_wire::WireEvent;

/// Observer of one algorithm's events.
pub(crate) struct EventListener<'a> {
    count: &'a AtomicU64,
    reports_max: usize,
    log: ReportLog,
}

impl<'a> EventListener<'a> {
    /// Counts every report in `count` and stores the first `room`.
    pub(crate) fn new<'h>(
        hosted: impl Iterator<Item = &'h HostedAlgorithm>,
        count: &'a AtomicU64,
        room: usize,
    ) -> EventListener<'a> {
        EventListener {
            count,
            reports_max: room,
            log: ReportLog::new(hosted),
        }
    }

    pub(crate) fn into_log(self) -> ReportLog {
        self.log
    }
}

impl Observer for EventListener<'_> {
    fn on_event(&mut self, now: Time, event: &WireEvent<'_>) {
        match event {
            WireEvent::FlowOpened { flow, info } if self.reports_max > 0 => {
                self.log.flow_by_sender.insert(info.local, *flow);
            }
            WireEvent::Report {
                flow,
                program,
                urgent,
                fields,
            } => {
                self.count.fetch_add(1, Ordering::Relaxed);
                if self.log.reports.len() < self.reports_max {
                    self.log.reports.push(LoggedReport {
                        at_ns: now.as_nanos(),
                        flow: *flow,
                        program: *program,
                        urgent: *urgent,
                        fields: fields.to_vec(),
                    });
                } else {
                    self.log.discarded += 1;
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use ccplane_lab::report_log::Reporting;
    use ccplane_wire::FlowInfo;

    use super::*;

    #[test]
    fn reports_are_counted_kept_and_named() {
        let count = AtomicU64::new(0);
        let local: SocketAddr = "10.0.0.1:7".parse().unwrap();
        let mut listener = EventListener::new([].into_iter(), &count, 2);
        listener.log.programs.push(Reporting {
            uid: 9,
            name: "window".into(),
            fields: vec!["acked".into(), "rtt".into()],
        });
        let info = FlowInfo {
            local,
            ..FlowInfo::default()
        };
        listener.on_event(
            Time::from_nanos(1_000),
            &WireEvent::FlowOpened { flow: 5, info },
        );
        for n in 0..3 {
            let event = WireEvent::Report {
                flow: 5,
                program: 9,
                urgent: n == 1,
                fields: &[n, 20_000],
            };
            listener.on_event(Time::from_nanos(2_000_000 + n), &event);
        }
        let heard = listener.into_log().with_flow_order(&[local]);
        assert_eq!(
            (count.into_inner(), heard.reports.len(), heard.discarded),
            (3, 2, 1)
        );
        let mut csv = String::new();
        heard.write_csv("reno", 1_000_000, &mut csv);
        assert_eq!(
            csv,
            "reno,1,0.001000,window,0,acked,0\nreno,1,0.001000,window,0,rtt,20000\n\
             reno,1,0.001000,window,1,acked,1\nreno,1,0.001000,window,1,rtt,20000\n"
        );
    }
}
