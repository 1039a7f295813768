//! Records the reports that an algorithm receives from the kernel.

use std::sync::atomic::{AtomicU64, Ordering};

use ccplane_agent::Hosted;
use ccplane_lab::heard::{Heard, Report};
use ccplane_linux::Observer;
use ccplane_units::Time;
use ccplane_wire::Event;

/// Listens to one algorithm's events.
pub(crate) struct Listener<'a> {
    count: &'a AtomicU64,
    room: usize,
    heard: Heard,
}

impl<'a> Listener<'a> {
    /// Counts every report into `count` and keeps the first `room`.
    pub(crate) fn new<'h>(
        hosted: impl Iterator<Item = &'h Hosted>,
        count: &'a AtomicU64,
        room: usize,
    ) -> Listener<'a> {
        Listener {
            count,
            room,
            heard: Heard::of(hosted),
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
                self.heard.numbers.insert(info.local, *flow);
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
                        flow: *flow,
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

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use ccplane_lab::heard::Reporting;
    use ccplane_wire::FlowInfo;

    use super::*;

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
        listener.event(
            Time::from_nanos(1_000),
            &Event::FlowOpened { flow: 5, info },
        );
        for n in 0..3 {
            let event = Event::Report {
                flow: 5,
                program: 9,
                urgent: n == 1,
                fields: &[n, 20_000],
            };
            listener.event(Time::from_nanos(2_000_000 + n), &event);
        }
        let heard = listener.into_heard().in_order_of(&[local]);
        assert_eq!(
            (count.into_inner(), heard.reports.len(), heard.not_kept),
            (3, 2, 1)
        );
        let mut csv = String::new();
        heard.csv("reno", 1_000_000, &mut csv);
        assert_eq!(
            csv,
            "reno,1,0.001000,window,0,acked,0\nreno,1,0.001000,window,0,rtt,20000\n\
             reno,1,0.001000,window,1,acked,1\nreno,1,0.001000,window,1,rtt,20000\n"
        );
    }
}
