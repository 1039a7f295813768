//! A plain CCP datapath for an agent in another process, whoever's that is: one report a datagram,
//! and nothing clever.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::path::Path;
use std::time::{Duration, Instant};

use ccplane_testbed::control_loop::{IdleDatapath, LoopError};

/// How it waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// It sleeps in the kernel.
    Sleeping,
    /// It asks the kernel again and again.
    Looking,
}

/// What an agent gets through, a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Reports that its socket took.
    pub reports: f64,
    /// Updates that came back.
    pub updates: f64,
}

/// Times report → update, one after the other, after a tenth as many that are not timed. The agent
/// answers every report.
pub fn times(agent: &Path, waits: Waits, exchanges: usize) -> Result<Vec<Duration>, LoopError> {
    let mut datapath = IdleDatapath::new(agent, 1)?;
    let mut times = Vec::with_capacity(exchanges);
    for exchange in 0..exchanges + exchanges / 10 {
        let start = Instant::now();
        datapath.report(1, 1)?;
        datapath.take_update(waits == Waits::Sleeping)?;
        if exchange >= exchanges / 10 {
            times.push(start.elapsed());
        }
    }
    Ok(times)
}

/// Reports as fast as the agent takes them, and counts what it answers.
pub fn rates(agent: &Path, duration: Duration) -> Result<Rates, LoopError> {
    let mut datapath = IdleDatapath::new(agent, 1)?;
    let start = Instant::now();
    let (mut reports, mut updates) = (0u64, 0);
    while start.elapsed() < duration {
        datapath.add_report(1);
        updates += datapath.send_all()? + datapath.take_updates()?;
        reports += 1;
    }
    let elapsed = start.elapsed().as_secs_f64();
    Ok(Rates {
        reports: reports as f64 / elapsed,
        updates: updates as f64 / elapsed,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    use ccplane_testbed::control_loop::fresh_path;

    use super::*;
    use crate::peers::answer;

    #[test]
    fn our_agent_takes_every_report_and_answers_each_that_it_is_to_answer() {
        for updates in [true, false] {
            let path = fresh_path("test");
            let (stop, (bound, is_bound)) = (AtomicBool::new(false), mpsc::channel());
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    answer(&path, updates, &stop, move || bound.send(()).unwrap()).unwrap()
                });
                is_bound.recv().unwrap();
                let rates = rates(&path, Duration::from_millis(100)).unwrap();
                assert!(rates.reports > 100.0, "{rates:?}");
                // All but those that wait at the end, in either socket.
                let (most, least) = if updates {
                    (rates.reports, 0.3 * rates.reports)
                } else {
                    (0.0, 0.0)
                };
                assert!(rates.updates <= most && rates.updates >= least, "{rates:?}");
                if updates {
                    for waits in [Waits::Sleeping, Waits::Looking] {
                        let times = times(&path, waits, 100).unwrap();
                        assert!(
                            times.len() == 100 && times.iter().all(|time| !time.is_zero()),
                            "{times:?}"
                        );
                    }
                }
                stop.store(true, Ordering::Relaxed);
            });
        }
    }
}
