//! DX, slide 26 (title only): queueing delay and use of the link with 10, 20 and 30 senders.

use ccplane_algorithms::Registry;
use ccplane_report::Aim;
use ccplane_report::chart::{Axis, Chart, Line};
use ccplane_units::Duration;

use super::many_to_one::{ManyToOne, RTT, Seen, Senders};
use super::page::Findings;
use super::who::Who;
use super::{Datapath, Experiment, Options, Outcome, page, pool};
use ccplane_lab::Error;
use ccplane_lab::Progress;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "dx-senders",
    title: "Queueing delay and use of a link of 10 Gbit/s with 10, 20 and 30 senders",
    source: "Lee et al., Accurate Latency-based Congestion Feedback for Datacenters, USENIX ATC 2015, slide 26 (title only)",
    takes: "1 minute on two cores; 10 seconds with --quick",
    on: &[Datapath::Sim],
    repeats: None,
    run: senders,
};

const SENDERS: [u32; 3] = [10, 20, 30];
const CONTENDERS: [Who; 3] = [Who::Dx, Who::Dctcp, Who::Swift];
const WARM: Duration = Duration::from_millis(50);

fn senders(options: &Options, registry: &Registry, progress: &mut dyn Progress) -> Result<Outcome, Error> {
    let (seeds, measured) = if options.quick {
        (1, Duration::from_millis(100))
    } else {
        (10, Duration::from_millis(500))
    };
    let one = ManyToOne {
        warm: WARM,
        until: WARM + measured,
        ..ManyToOne::of(registry, EXPERIMENT.name)
    };
    let jobs = one.crossed(&SENDERS, &CONTENDERS, seeds);
    let seen = pool::run(&jobs, options.threads, &options.parts(), progress)?;
    let results: Vec<(&ManyToOne, &Seen)> = jobs.iter().zip(&seen).collect();
    findings(&results).finish(&EXPERIMENT, options)
}

fn findings(results: &[(&ManyToOne, &Seen)]) -> Findings {
    let mut findings = Findings::default();
    let mean = |count: u32, who: Who, figure: &dyn Fn(&Seen) -> f64| {
        let meant = |job: &ManyToOne| (job.senders, job.who) == (Senders::Always(count), who);
        pool::mean(results, meant, |seen| Some(figure(seen)))
    };
    for count in SENDERS {
        findings.compare(
            &format!("util_{count}_senders"),
            &format!("use of the link, {count} senders under DX"),
            mean(count, Who::Dx, &|seen| seen.utilisation),
            "",
            Aim::AtLeast(0.99),
        );
    }
    for count in SENDERS {
        let delay = |who| mean(count, who, &|seen| seen.delay(0.5));
        findings.compare(
            &format!("ratio_{count}_senders"),
            &format!("DCTCP's median queueing delay over DX's, {count} senders"),
            delay(Who::Dctcp).zip(delay(Who::Dx)).map(|(dctcp, dx)| dctcp / dx),
            "",
            Aim::AtLeast(1.0),
        );
    }
    let rows = SENDERS.iter().flat_map(|count| CONTENDERS.map(|who| (*count, who)));
    let rows = rows.map(|(count, who)| {
        let cell = |figure: &dyn Fn(&Seen) -> f64, digits: usize| {
            let mean = mean(count, who, figure);
            page::cell(mean, digits)
        };
        vec![
            count.to_string(),
            who.label().to_owned(),
            cell(&|seen| seen.mean_us, 2),
            cell(&|seen| seen.waited(0.5), 2),
            cell(&|seen| seen.waited(0.99), 2),
            cell(&|seen| seen.utilisation * 100.0, 2),
            cell(&|seen| seen.drops as f64, 0),
        ]
    });
    findings.table(
        "Waiting time at the bottleneck, µs, and its use; means over seeds",
        &["senders", "under", "mean", "p50", "p99", "use\n%", "drops"],
        rows.collect(),
    );
    let panel = |count: u32| Chart {
        title: format!("{count} senders"),
        x: Axis::log("queueing delay, µs"),
        y: Axis::linear("").from_to(0.0, 1.0),
        lines: CONTENDERS
            .iter()
            .enumerate()
            .filter_map(|(n, who)| {
                let is = |job: &ManyToOne| (job.senders, job.who, job.seed) == (Senders::Always(count), *who, 1);
                let (_, seen) = results.iter().find(|(job, _)| is(job))?;
                Some(Line::new(who.label(), n, seen.curve()))
            })
            .collect(),
        guides: Vec::new(),
    };
    findings.picture(
        "Share of packets up to a queueing delay, their own transmission included",
        &SENDERS.map(panel),
    );
    findings.remark(
        "A flow that adds a packet a round trip makes a queue of as many packets as there are senders before any of them \
         knows: 36 µs of 30 senders. Swift holds a target above the empty path's delay on purpose.",
    );
    findings.deviation(format!(
        "The slides have the title of this figure and nothing of its content. Ours: 10 Gbit/s, a round trip of {} µs, exact \
         stamps, K = 65 packets for DCTCP.",
        RTT.as_micros()
    ));
    findings
}

#[cfg(test)]
mod tests {
    use super::pool::Job;
    use super::*;

    /// Our aim, for the goal that slides 21 and 22 state: next to no queue, and a link that is full after every decrease.
    #[test]
    fn the_link_is_full_and_the_queue_short_with_many_senders() {
        let registry = Registry::builtin();
        let run = |count, who| {
            let job = ManyToOne {
                who,
                senders: Senders::Always(count),
                warm: Duration::from_millis(100),
                until: Duration::from_millis(150),
                ..ManyToOne::of(&registry, EXPERIMENT.name)
            };
            job.run().unwrap()
        };
        for count in [10, 30] {
            let (dx, dctcp) = (run(count, Who::Dx), run(count, Who::Dctcp));
            assert!(dx.utilisation >= 0.99, "{count} senders: {}", dx.utilisation);
            assert!(
                dx.delay(0.5) < dctcp.delay(0.5) / 2.0,
                "{count} senders: {}",
                dx.delay(0.5)
            );
        }
    }
}
