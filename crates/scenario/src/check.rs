//! Checks of a scenario file: the range of each quantity, and consistency between quantities.

use ccplane_units::{Bytes, Duration};
use toml::Spanned;

use crate::context::{CheckContext, ScenarioContent, name, names};
use crate::file::{self, Q, ScenarioFile, Word};
use crate::{
    BundleSettings, Contender, EventChange, FileLookup, FlowEnd, ReportOptions, Scenario,
    ScenarioEvent, Seeds, StaticRoute, StopTime, TransportOptions, Workload, bundle, stamps,
    topology, transport, workloads,
};
use crate::{Problem, SourceText};

/// Default number of samples per flow and run: enough for a page of 1,200 pixels.
pub(crate) const SAMPLES_PER_RUN: u64 = 1_000;
/// Maximum of the default sample interval. A chart of a path with an RTT of milliseconds shows no
/// finer detail.
pub(crate) const SAMPLE_INTERVAL_MAX: Duration = Duration::from_millis(20);
/// Minimum of the default sample interval; below it, sampling costs more than the run.
const SAMPLE_INTERVAL_MIN: Duration = Duration::from_micros(10);
/// Maximum number of samples per run. More suggest a mistake in units.
const SAMPLES_MAX: u64 = 1_000_000;

/// Parses and checks a file and returns the scenario.
pub(crate) fn scenario(source: SourceText<'_>, files: FileLookup<'_>) -> Result<Scenario, Problem> {
    let file: ScenarioFile = source.parse("docs/scenarios.md")?;
    checked(file, source, files)
}

/// Checks a parsed file, whose spans refer to `source`, and returns the scenario.
pub(crate) fn checked(
    file: ScenarioFile,
    source: SourceText<'_>,
    files: FileLookup<'_>,
) -> Result<Scenario, Problem> {
    let transport = &file.transport;
    let mss = transport
        .mss
        .as_ref()
        .map_or(u32::from(TransportOptions::MSS_BYTES_DEFAULT), |mss| {
            *mss.get_ref()
        });
    let headers = transport
        .header_bytes
        .as_ref()
        .map_or(u32::from(TransportOptions::HEADER_BYTES_DEFAULT), |bytes| {
            *bytes.get_ref()
        });
    let context = CheckContext {
        source,
        files,
        mss,
        mtu: mss.saturating_add(headers),
        content: ScenarioContent::new(source.text),
    };
    let topology_span = topology_span(&file);
    let conceal_losses = transport.conceal_losses.as_ref().map_or(Vec::new(), names);
    let transport = transport::options(&context, transport)?;
    let duration = duration(&context, &file.duration)?;
    let sample_every = sample(&context, file.sample.as_ref(), duration)?;
    let topology = topology::read(&context, &file)?;
    let workloads = workloads::all(&context, &file.workload, duration)?;
    let bundles = bundle::all(&context, &file.bundle)?;
    let contenders = contenders(&context, &file.contenders, &workloads, &bundles)?;
    let until = until(&context, file.until.as_ref(), &contenders, &workloads)?;
    let route = |route: &Spanned<file::RouteEntry>| {
        let r = route.get_ref();
        StaticRoute {
            at: name(&r.at),
            to: name(&r.to),
            next: name(&r.next),
        }
    };
    // Topology and workloads are the parts that refer to files.
    let content = context.content.take();
    Ok(Scenario {
        file: source.file.to_owned(),
        text: source.text.to_owned(),
        title: file.title,
        contenders,
        duration,
        stop_time: until,
        warm_up: warm(&context, file.warm.as_ref(), duration)?,
        seeds: file.seeds.map_or(Seeds::one(1), |seeds| seeds.get_ref().0),
        sample_every,
        per_packet: file.routing.per_packet,
        routes: file.routing.fixed.iter().map(route).collect(),
        events: events(&context, &file.event, duration)?,
        staleness: file.steering.staleness.map(|s| s.get_ref().0),
        topology_span,
        bundles,
        stamps: file
            .stamps
            .as_ref()
            .map(|s| stamps::stamps(&context, s))
            .transpose()?,
        report: report(&context, &file.report)?,
        topology,
        workloads,
        transport,
        conceal_losses,
        content_hash: *content.hasher.finalize().as_bytes(),
        referenced_files: content.files,
    })
}

fn topology_span(file: &ScenarioFile) -> std::ops::Range<usize> {
    let node = file.node.first().map(|node| node.name.span());
    file.topology
        .as_ref()
        .map(Spanned::span)
        .or(node)
        .unwrap_or(0..0)
}

fn duration(context: &CheckContext, written: &Q<Duration>) -> Result<Duration, Problem> {
    let duration = written.get_ref().0;
    if duration == Duration::ZERO {
        return Err(context.source.problem(
            written,
            "the duration of the run is zero",
            "here",
            "give a time such as 10s",
        ));
    }
    Ok(duration)
}

fn warm(
    context: &CheckContext,
    written: Option<&Q<Duration>>,
    duration: Duration,
) -> Result<Duration, Problem> {
    let Some(written) = written else {
        return Ok(Duration::ZERO);
    };
    let warm = written.get_ref().0;
    if warm >= duration {
        return Err(context.source.problem(
            written,
            format!("the warm-up of {warm} is not shorter than the run of {duration}"),
            "here",
            "reduce `warm`, or increase `duration`",
        ));
    }
    Ok(warm)
}

fn sample(
    context: &CheckContext,
    written: Option<&Q<Duration>>,
    duration: Duration,
) -> Result<Duration, Problem> {
    let Some(written) = written else {
        let even = Duration::from_nanos(duration.as_nanos() / SAMPLES_PER_RUN);
        return Ok(even.clamp(SAMPLE_INTERVAL_MIN, SAMPLE_INTERVAL_MAX));
    };
    let every = written.get_ref().0;
    if every == Duration::ZERO || duration.as_nanos() / every.as_nanos() > SAMPLES_MAX {
        return Err(context.source.problem(
            written,
            format!("a sample every {every} gives more than {SAMPLES_MAX} samples in {duration}"),
            "here",
            "sample less often, for example every 20ms",
        ));
    }
    Ok(every)
}

fn contenders(
    context: &CheckContext,
    written: &[Q<Contender>],
    workloads: &[Workload],
    bundles: &[BundleSettings],
) -> Result<Vec<Contender>, Problem> {
    let open = workloads
        .iter()
        .find(|w| w.algorithm.is_none() && !w.is_uncontrolled());
    if let Some(steered) = bundles.iter().find(|bundle| bundle.algorithm.is_none()) {
        if written.is_empty() {
            return Err(context.source.problem(
                steered.span.clone(),
                "this bundle has no algorithm",
                "no algorithm",
                "add `contenders = [\"bundler\"]` at the top, or `algorithm = \"bundler\"` here",
            ));
        }
        if open.is_none() {
            return Err(context.source.problem(
                steered.span.clone(),
                "there is nothing to compare: every workload has its own algorithm",
                "controlled by the contenders",
                "remove the `algorithm` of the workload to compare; the bundle's `hosts` then \
                 controls it",
            ));
        }
    }
    match (written.first(), open) {
        (None, Some(open)) => Err(context.source.problem(
            open.span.clone(),
            format!("the workload `{}` has no algorithm", open.name),
            "no algorithm",
            "add `contenders = [\"native:cubic\"]` at the top, or an `algorithm` here",
        )),
        (Some(first), None) => Err(context.source.problem(
            first,
            "the contenders are not used: every workload has its own algorithm",
            "not used",
            "remove `contenders`, or the `algorithm` of the workload to compare",
        )),
        _ => Ok(written.iter().map(|c| c.get_ref().0.clone()).collect()),
    }
}

fn until(
    context: &CheckContext,
    written: Option<&Word>,
    contenders: &[Contender],
    workloads: &[Workload],
) -> Result<StopTime, Problem> {
    let Some(written) = written else {
        return Ok(StopTime::Duration);
    };
    match written.get_ref().as_str() {
        "duration" => return Ok(StopTime::Duration),
        "flows done" => {}
        other => {
            let known = ["duration", "flows done"];
            return Err(context
                .source
                .unknown_name(written, "stop condition", other, &known));
        }
    }
    let mut compared = workloads
        .iter()
        .filter(|workload| workload.is_compared(contenders));
    if let Some(endless) = compared
        .clone()
        .find(|workload| workload.flow_end() == FlowEnd::Each)
    {
        return Err(context.source.problem(
            endless.span.clone(),
            format!(
                "the flows are never done: `{}` starts flows as long as the run lasts",
                endless.name
            ),
            "unlimited flows",
            "set `stop`, or limit the number (`flows`, `bursts` or `count`)",
        ));
    }
    if !compared.any(|workload| workload.flow_end() == FlowEnd::All) {
        return Err(context.source.problem(
            written,
            "no flow of a compared workload ever ends",
            "here",
            "give the flows a size, for example `bulk = { bytes = \"10MB\" }`, or remove this line",
        ));
    }
    Ok(StopTime::FlowsDone)
}

fn events(
    context: &CheckContext,
    written: &[Spanned<file::EventEntry>],
    duration: Duration,
) -> Result<Vec<ScenarioEvent>, Problem> {
    let one = |event: &Spanned<file::EventEntry>| {
        let e = event.get_ref();
        let changes: Vec<EventChange> = [
            e.rate
                .as_ref()
                .map(|rate| EventChange::Rate(rate.get_ref().0)),
            e.delay
                .as_ref()
                .map(|delay| EventChange::Delay(delay.get_ref().0)),
            e.loss
                .as_ref()
                .map(|loss| EventChange::Loss(loss.get_ref().0)),
            e.up.as_ref().map(|up| EventChange::Up(*up.get_ref())),
            e.route.as_ref().map(|host| EventChange::Route(name(host))),
        ]
        .into_iter()
        .flatten()
        .collect();
        let [change] = changes.as_slice() else {
            return Err(context.source.problem(
                event,
                format!(
                    "an event makes one change, but this one makes {}",
                    changes.len()
                ),
                "here",
                "set one of `rate`, `delay`, `loss`, `up` and `route`; use one [[event]] per \
                 change",
            ));
        };
        let at = e.at.get_ref().0;
        if at > duration {
            return Err(context.source.problem(
                &e.at,
                format!("the event is at {at}, but the run lasts only {duration}"),
                "here",
                "move the event earlier, or increase `duration`",
            ));
        }
        Ok(ScenarioEvent {
            at,
            link: name(&e.link),
            change: change.clone(),
        })
    };
    written.iter().map(one).collect()
}

fn report(context: &CheckContext, written: &file::ReportEntry) -> Result<ReportOptions, Problem> {
    let classes = |written: &Spanned<Vec<Q<Bytes>>>| {
        let bounds = written.get_ref();
        let falls = bounds
            .windows(2)
            .find(|w| w[0].get_ref().0 >= w[1].get_ref().0);
        if let Some([_, second]) = falls {
            return Err(context.source.problem(
                second,
                "the size classes are not in ascending order",
                "here",
                "sort the bounds in ascending order",
            ));
        }
        Ok(bounds
            .iter()
            .map(|bound| bound.get_ref().0)
            .collect::<Vec<_>>())
    };
    Ok(ReportOptions {
        link: written.link.as_ref().map(name),
        links: written.links.iter().map(name).collect(),
        size_classes: written
            .size_classes
            .as_ref()
            .map(classes)
            .transpose()?
            .unwrap_or_else(default_classes),
    })
}

/// Returns the size classes of Bundler (EuroSys 2021, section 7.1): up to 10 kB, up to 1 MB,
/// larger.
fn default_classes() -> Vec<Bytes> {
    vec![Bytes::new(10_000), Bytes::new(1_000_000)]
}
