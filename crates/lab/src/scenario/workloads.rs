//! The workloads of a scenario: exactly one kind each, and what that kind needs.

use ccplane_units::{Bytes, Duration};
use toml::Spanned;

use super::check::{Context, name};
use super::file;
use super::problem::Problem;
use super::sizes::{self, BadPoints, SizePoint};
use super::{Arrivals, Kind, Name, Pairing, TraceFlow, Workload};

/// Flows of one kind a pair; beyond, a simulation of anything else would be meant.
const MOST_FLOWS: u32 = 1_000_000;

/// The size of a request: a line of HTTP with its headers.
const REQUEST: Bytes = Bytes::new(200);

/// Checks every workload; there is at least one.
pub(super) fn all(
    context: &Context,
    written: &[Spanned<file::Workload>],
    duration: Duration,
) -> Result<Vec<Workload>, Problem> {
    if written.is_empty() {
        return Err(context.source.problem(
            0..0,
            "nobody sends anything",
            "no workload",
            "add `[[workload]]` with `bulk = {}`",
        ));
    }
    let mut workloads: Vec<Workload> = Vec::new();
    for (i, at) in written.iter().enumerate() {
        let w = at.get_ref();
        let kind = kind(context, at)?;
        let name = w
            .name
            .as_ref()
            .map_or_else(|| default_name(&kind, i), |name| name.get_ref().clone());
        if let Some(other) = workloads.iter().find(|other| other.name == name) {
            return Err(context.source.problem(
                w.name.as_ref().map_or(at.span(), Spanned::span),
                format!("there are two workloads `{}`", other.name),
                "the second",
                "give each a `name` of its own",
            ));
        }
        let start = w.start.as_ref().map_or(Duration::ZERO, |start| start.get_ref().0);
        if let Some(written) = w.start.as_ref().filter(|_| start >= duration) {
            return Err(context.problem(
                written,
                format!("at {start} the run of {duration} is over"),
                "here",
                "start it earlier, or let the run last longer",
            ));
        }
        if let Some(stop) = w.stop.as_ref().filter(|stop| stop.get_ref().0 <= start) {
            return Err(context.problem(stop, "it stops before it starts", "here", "give a later time"));
        }
        if let (Kind::Trace { .. }, Some(hosts)) = (&kind, w.from.as_ref().or(w.to.as_ref())) {
            return Err(context.problem(hosts, "a trace names its own hosts", "here", "remove `from` and `to`"));
        }
        workloads.push(Workload {
            name,
            from: hosts(w.from.as_ref()),
            to: hosts(w.to.as_ref()),
            pairing: w.pairs.as_ref().map_or(Pairing::Each, |pairs| pairs.get_ref().0),
            algorithm: w.algorithm.as_ref().map(|algorithm| algorithm.get_ref().0.clone()),
            start,
            stop: w.stop.as_ref().map(|stop| stop.get_ref().0),
            kind,
            span: first_line(context, at),
        });
    }
    Ok(workloads)
}

/// The table's heading: the mark of a problem with the whole of it.
fn first_line(context: &Context, at: &Spanned<file::Workload>) -> std::ops::Range<usize> {
    let span = at.span();
    let text = context.source.text.get(span.clone()).unwrap_or_default();
    span.start..span.start + text.find('\n').unwrap_or(text.len())
}

fn default_name(kind: &Kind, index: usize) -> String {
    let what = match kind {
        Kind::Bulk { .. } => "bulk",
        Kind::OnOff { .. } => "on-off",
        Kind::ConstantRate { .. } => "constant-rate",
        Kind::Poisson { .. } => "poisson",
        Kind::Requests { .. } => "requests",
        Kind::Trace { .. } => "trace",
    };
    if index == 0 {
        what.to_owned()
    } else {
        format!("{what}-{}", index + 1)
    }
}

fn hosts(written: Option<&Spanned<file::Hosts>>) -> Vec<Name> {
    let Some(written) = written else { return Vec::new() };
    let one = |word: &Spanned<String>| {
        let mut host = name(word);
        // A single name carries the span of the whole value.
        if host.span.is_empty() {
            host.span = written.span();
        }
        host
    };
    written.get_ref().0.iter().map(one).collect()
}

fn kind(context: &Context, at: &Spanned<file::Workload>) -> Result<Kind, Problem> {
    const KINDS: &str = "`bulk`, `on_off`, `constant_rate`, `poisson`, `requests` and `trace`";
    let w = at.get_ref();
    let given = [
        w.bulk.as_ref().map(Spanned::span),
        w.on_off.as_ref().map(Spanned::span),
        w.constant_rate.as_ref().map(Spanned::span),
        w.poisson.as_ref().map(Spanned::span),
        w.requests.as_ref().map(Spanned::span),
        w.trace.as_ref().map(Spanned::span),
    ];
    let mut given = given.into_iter().flatten();
    if let (Some(_), Some(second)) = (given.next(), given.next()) {
        return Err(context.source.problem(
            second,
            format!("a workload is one of {KINDS}"),
            "another one",
            "write another [[workload]] for it",
        ));
    }
    if let Some(bulk) = &w.bulk {
        let b = bulk.get_ref();
        return Ok(Kind::Bulk {
            flows: b
                .flows
                .as_ref()
                .map_or(Ok(1), |n| context.count("the number of flows", n, MOST_FLOWS))?,
            bytes: b.bytes.as_ref().map(|bytes| nonzero(context, bytes)).transpose()?,
            stagger: b.stagger.as_ref().map_or(Duration::ZERO, |stagger| stagger.get_ref().0),
        });
    }
    if let Some(on_off) = &w.on_off {
        let o = on_off.get_ref();
        let (on, off) = (o.on.get_ref().0, o.off.get_ref().0);
        if on == Duration::ZERO {
            return Err(context.problem(&o.on, "it is never on", "here", "give a time above 0"));
        }
        return Ok(Kind::OnOff {
            on,
            off,
            rate: o.rate.get_ref().0,
            exponential: o.exponential,
        });
    }
    if let Some(constant) = &w.constant_rate {
        return Ok(Kind::ConstantRate {
            rate: constant.get_ref().rate.get_ref().0,
        });
    }
    if let Some(poisson) = &w.poisson {
        return self::poisson(context, poisson);
    }
    if let Some(requests) = &w.requests {
        let r = requests.get_ref();
        return Ok(Kind::Requests {
            connections: r
                .connections
                .as_ref()
                .map_or(Ok(1), |n| context.count("the number of connections", n, MOST_FLOWS))?,
            request: r
                .request
                .as_ref()
                .map_or(Ok(REQUEST), |bytes| nonzero(context, bytes))?,
            response: distribution(context, &r.response)?,
            think: r.think.as_ref().map_or(Duration::ZERO, |think| think.get_ref().0),
        });
    }
    if let Some(file) = &w.trace {
        return trace(context, file);
    }
    let span = first_line(context, at);
    Err(context.source.problem(
        span,
        "the workload sends nothing",
        "here",
        format!("give one of {KINDS}, as `bulk = {{}}`"),
    ))
}

fn nonzero(context: &Context, bytes: &file::Q<Bytes>) -> Result<Bytes, Problem> {
    match bytes.get_ref().0 {
        none if none == Bytes::new(0) => {
            Err(context.problem(bytes, "0 bytes are no flow", "here", "give a size such as 10kB"))
        }
        some => Ok(some),
    }
}

fn poisson(context: &Context, at: &Spanned<file::Poisson>) -> Result<Kind, Problem> {
    let p = at.get_ref();
    let arrivals = match (&p.rate, &p.per_second) {
        (Some(rate), None) => Arrivals::Load(rate.get_ref().0),
        (None, Some(n)) if *n.get_ref() > 0.0 && n.get_ref().is_finite() => Arrivals::PerSecond(*n.get_ref()),
        (None, Some(n)) => {
            return Err(context.problem(
                n,
                format!("{} flows a second never come", n.get_ref()),
                "here",
                "give a number above 0",
            ));
        }
        _ => {
            return Err(context.problem(
                at,
                "arrivals have either a `rate` or a number `per_second`",
                "here",
                "give one of them: `rate = \"48mbit\"` or `per_second = 500.0`",
            ));
        }
    };
    Ok(Kind::Poisson {
        arrivals,
        sizes: distribution(context, &p.sizes)?,
        flows: p.flows.as_ref().map(|flows| *flows.get_ref()),
    })
}

fn distribution(context: &Context, at: &Spanned<file::Sizes>) -> Result<Vec<SizePoint>, Problem> {
    match at.get_ref() {
        file::Sizes::Table(name) => sizes::named(name.get_ref()).ok_or_else(|| {
            let known: Vec<&str> = sizes::TABLES.iter().map(|table| table.name).collect();
            context
                .source
                .unknown(name.span(), "table of sizes", name.get_ref(), &known)
        }),
        file::Sizes::File(file) => sizes::parse(&context.text_of(file)?).map_err(|BadPoints { index, why, fix }| {
            context.problem(file, format!("{}:{index}: {why}", file.get_ref()), "this file", fix)
        }),
        file::Sizes::Fixed(bytes) => {
            let bytes = nonzero(context, bytes)?;
            Ok(vec![SizePoint { bytes, share: 1.0 }])
        }
        file::Sizes::Points(written) => {
            let point = |point: &file::Point| SizePoint {
                bytes: point.0.get_ref().0,
                share: *point.1.get_ref(),
            };
            let points: Vec<SizePoint> = written.iter().map(point).collect();
            match sizes::check(&points) {
                Ok(()) => Ok(points),
                Err(BadPoints { index, why, fix }) => {
                    let span = written.get(index).map_or(at.span(), |file::Point(size, share)| {
                        if why.contains("probability") {
                            share.span()
                        } else {
                            size.span()
                        }
                    });
                    Err(context.source.problem(span, why, "here", fix))
                }
            }
        }
    }
}

/// Lines `time,source,destination,size`; a heading is allowed.
fn trace(context: &Context, file: &file::Word) -> Result<Kind, Problem> {
    let text = context.text_of(file)?;
    let mut flows: Vec<TraceFlow> = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let fields: Vec<&str> = line
            .split('#')
            .next()
            .unwrap_or_default()
            .split(',')
            .map(str::trim)
            .collect();
        let wrong = |why: String| {
            context.problem(
                file,
                format!("{}:{}: {why}", file.get_ref(), i + 1),
                "this file",
                "write lines such as `10ms,left1,right1,20kB`, in the order of their times",
            )
        };
        let [at, from, to, bytes] = fields.as_slice() else {
            if fields.iter().all(|field| field.is_empty()) {
                continue;
            }
            return Err(wrong(format!("{} fields are no flow", fields.len())));
        };
        let heading = i == 0 && !at.starts_with(|c: char| c.is_ascii_digit());
        if heading {
            continue;
        }
        // Bare numbers are seconds and bytes, as in published traces.
        let time = |text: &str| text.parse::<Duration>().or_else(|_| format!("{text}s").parse());
        let size = |text: &str| text.parse::<Bytes>().or_else(|_| format!("{text}b").parse());
        let flow = TraceFlow {
            at: time(at).map_err(|error| wrong(format!("`{}`: {error}", at.escape_debug())))?,
            from: (*from).to_owned(),
            to: (*to).to_owned(),
            bytes: size(bytes).map_err(|error| wrong(format!("`{}`: {error}", bytes.escape_debug())))?,
            line: i + 1,
        };
        if flow.bytes == Bytes::new(0) {
            return Err(wrong("0 bytes are no flow".to_owned()));
        }
        if flows.last().is_some_and(|before| before.at > flow.at) {
            return Err(wrong(format!("{} is before the flow above it", flow.at)));
        }
        flows.push(flow);
    }
    if flows.is_empty() {
        return Err(context.problem(
            file,
            "the trace has no flows",
            "this file",
            "write lines such as `10ms,left1,right1,20kB`",
        ));
    }
    Ok(Kind::Trace { flows })
}
