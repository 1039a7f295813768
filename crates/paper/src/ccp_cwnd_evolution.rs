//! CCP, SIGCOMM 2018, section 7.1, figure 8: Cubic's window over time, in the datapath and outside
//! of it.
//!
//! Two runs never begin their sawtooths at the same moment, so that curves are aligned before they
//! are compared: one is moved in time to where the root of the mean square of their differences is
//! least. The same between two native runs says how much of it is chance.

use ccplane_algorithms::Registry;
use ccplane_qdisc::{LineSpec, LossModel, QueueSpec, Size};
use ccplane_report::TargetRange;
use ccplane_report::chart::{Axis, Chart, ChartSeries};
use ccplane_units::{Duration, Rate};

use super::link::{LOOK, Link, OneRun, SEED, Summary, on_kernel};
use super::page::Findings;
use super::stats::jackknife;
use super::{Datapath, Experiment, Options, Outcome, simulations};
use ccplane_lab::Contender;
use ccplane_lab::Error;
use ccplane_lab::Progress;
use ccplane_lab::metrics::Distribution;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ccp-cwnd-evolution",
    title: "Cubic's window over time, in the datapath and outside of it",
    source: "Narayan et al., Restructuring Endpoint Congestion Control, SIGCOMM 2018, section 7.1, figure 8",
    takes: "7 minutes; half a minute with --quick",
    on: &[Datapath::Sim, Datapath::Linux],
    repeats: Some(PAIRS),
    run: super::Run::Code(evolution),
};

/// Runs of native and of ccplane.
const PAIRS: usize = 3;
/// Most that a curve is moved: more than a period of Cubic's sawtooth on this link, which is some
/// seconds.
const MOST_SHIFT: Duration = Duration::from_secs(10);
/// What two curves have in common at least, of the shorter one: a good fit of their ends alone says
/// nothing.
const OVERLAP: f64 = 0.5;
/// Before this the curves are slow start and its end, which every run has in its own way.
const SETTLED: Duration = Duration::from_secs(2);

fn link() -> Link {
    Link {
        name: "fixed",
        line: LineSpec::Constant(Rate::from_bits_per_sec(96_000_000)),
        line_name: "96mbit".to_owned(),
        rtt: Duration::from_millis(20),
        queue: QueueSpec::DropTail(Size::MilliBdp(1_000)),
        loss: LossModel::NONE,
    }
}

fn evolution(
    options: &Options,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<Outcome, Error> {
    let link = link();
    let duration = Duration::from_secs(if options.quick { 10 } else { 60 });
    let pairs = options.repeats(PAIRS, 2);
    let mut findings = Findings::default();
    let mut first = true;
    for on in [Datapath::Linux, Datapath::Sim]
        .into_iter()
        .filter(|on| options.on(*on))
    {
        let runs: Vec<OneRun> = (1..=if on == Datapath::Sim { 1 } else { pairs })
            .flat_map(|number| {
                [Contender::native("cubic"), Contender::ccplane("cubic")].map(|who| (number, who))
            })
            .map(|(number, contender)| OneRun {
                link: &link,
                contender,
                duration,
                number,
                seed: SEED,
                course: true,
                on,
                registry,
            })
            .collect();
        let summaries = match on {
            Datapath::Sim => simulations::run(&runs, options.threads, &options.parts(), progress)?,
            Datapath::Linux => on_kernel(&runs, options, progress)?,
        };
        let of = |native: bool| -> Vec<&Summary> {
            let same = runs
                .iter()
                .zip(&summaries)
                .filter(|(run, _)| run.contender.is_native() == native);
            same.map(|(_, summary)| summary).collect()
        };
        compare(
            &mut findings,
            &of(false),
            &of(true),
            on,
            if first { "" } else { "sim_" },
        );
        first = false;
        let unsound = summaries.iter().filter(|summary| !summary.sound).count();
        findings.disturbed(unsound, summaries.len());
    }
    findings.remark(
        "Windows in segments, looked at every 10 ms from the second second on, moved in time to where they fit best. In the \
         simulator nothing is random here: one run of each.",
    );
    findings.deviation(
        "ccplane's emulator (or simulator) instead of Mahimahi, and this host's kernel instead of Linux 4.14. The paper names no \
         queue for this figure: one BDP, as in its other ones on this link. It shows the two curves and gives no distance.",
    );
    findings.finish(&EXPERIMENT, options)
}

fn compare(
    findings: &mut Findings,
    ours: &[&Summary],
    native: &[&Summary],
    on: Datapath,
    prefix: &str,
) {
    let each = |a: &[&Summary], b: &[&Summary], skip_same: bool| {
        let mut distances = Vec::new();
        for (i, a) in a.iter().enumerate() {
            for b in b.iter().skip(if skip_same { i + 1 } else { 0 }) {
                distances.extend(aligned(&settled(a), &settled(b)).map(|(rms, _)| rms));
            }
        }
        Distribution::new(distances).mean()
    };
    let mean_window =
        |of: &[&Summary]| Distribution::new(of.iter().flat_map(|s| settled(s))).mean();
    let share = |ours: &[&Summary], native: &[&Summary]| {
        Some(each(ours, native, false)? / mean_window(native)?)
    };
    let (apart, floor, mean) = (
        each(ours, native, false),
        each(native, native, true),
        mean_window(native),
    );
    findings.figure(format!("{prefix}cwnd_rms_native_segments"), floor);
    findings.figure(format!("{prefix}cwnd_rms_segments"), apart);
    let (key, what, paper) = (
        format!("{prefix}cwnd_rms_share"),
        format!(
            "{on}: RMS distance of aligned windows ÷ mean window of {:.0} segments{}",
            mean.unwrap_or(0.0),
            floor
                .zip(mean)
                .map_or(String::new(), |(floor, mean)| format!(
                    " (native to itself {:.3})",
                    floor / mean
                ))
        ),
        "\"closely match\"",
    );
    match on {
        Datapath::Linux => findings.compare_ratio(
            &key,
            &what,
            jackknife(ours, native, share),
            paper,
            TargetRange::AtMost(0.1),
        ),
        // Nothing disturbs it.
        Datapath::Sim => findings.compare(
            &key,
            &what,
            share(ours, native),
            paper,
            TargetRange::AtMost(0.06),
        ),
    }
    if let (Some(a), Some(b)) = (ours.first(), native.first()) {
        let shift = aligned(&settled(a), &settled(b)).map_or(0, |(_, shift)| shift);
        let seconds = |i: i64| i as f64 * LOOK.as_secs_f64();
        let line = |label: &str, colour, windows: &[u32], shift: i64| {
            let points = windows
                .iter()
                .enumerate()
                .map(|(i, w)| (seconds(i as i64 + shift), f64::from(*w)));
            ChartSeries::new(label, colour, points.filter(|(t, _)| *t >= 0.0))
        };
        let panel = |title: &str, shift| Chart {
            title: title.to_owned(),
            x: Axis::linear("s"),
            y: Axis::linear(""),
            lines: vec![
                line("ccplane", 0, &a.window, shift),
                line("native", 1, &b.window, 0).dashed(),
            ],
            guides: vec![(320.0, "BDP and queue".into())],
        };
        let moved = format!("the same, ccplane's moved by {:.2} s", seconds(shift));
        findings.picture(
            format!("Window of Cubic over time, {on}, segments"),
            &[panel("window, segments", 0), panel(&moved, shift)],
        );
    }
}

/// The window after the beginning.
fn settled(summary: &Summary) -> Vec<f64> {
    let skip = (SETTLED.as_nanos() / LOOK.as_nanos()) as usize;
    summary
        .window
        .iter()
        .skip(skip)
        .map(|w| f64::from(*w))
        .collect()
}

/// The least root mean square of the difference of two curves over shifts of `a` in time, and that
/// shift in looks; `None` where they are too short to have anything in common.
fn aligned(a: &[f64], b: &[f64]) -> Option<(f64, i64)> {
    let shorter = a.len().min(b.len());
    let overlap = ((shorter as f64 * OVERLAP) as usize).max(1);
    let most = (shorter - overlap.min(shorter))
        .min((MOST_SHIFT.as_nanos() / LOOK.as_nanos()) as usize) as i64;
    let rms = |shift: i64| {
        // a[i] stands beside b[i + shift].
        let (a, b) = match usize::try_from(shift) {
            Ok(shift) => (a, b.get(shift..)?),
            Err(_) => (a.get(shift.unsigned_abs() as usize..)?, b),
        };
        let n = a.len().min(b.len());
        let squares: f64 = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum();
        (n >= overlap).then(|| (squares / n as f64).sqrt())
    };
    let all = (-most..=most).filter_map(|shift| Some((rms(shift)?, shift)));
    all.min_by(|a, b| a.0.total_cmp(&b.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_that_differ_by_a_shift_are_alike() {
        let tooth = |i: i64| (i.rem_euclid(300)) as f64;
        let a: Vec<f64> = (0..2_000).map(tooth).collect();
        let b: Vec<f64> = (70..2_070).map(tooth).collect();
        // b is 70 looks ahead: a fits it when it is moved back by 70, or on by the rest of a
        // period.
        let (rms, shift) = aligned(&a, &b).unwrap();
        assert_eq!((rms, (shift + 70).rem_euclid(300)), (0.0, 0));
        assert_eq!(aligned(&b, &a).unwrap().0, 0.0);
    }

    #[test]
    fn what_is_left_is_the_difference() {
        let a = vec![10.0; 500];
        let b = vec![13.0; 400];
        assert_eq!(aligned(&a, &b).unwrap().0, 3.0);
        assert_eq!(aligned(&[], &b), None);
    }
}
