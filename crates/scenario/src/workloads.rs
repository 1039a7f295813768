//! Workloads of a scenario: exactly one kind each, with its settings.

use ccplane_qdisc::CLASS_COUNT;
use ccplane_units::{Bytes, Duration, Rate};
use ccplane_workload::{
    Arrivals, Carrier, ConnectionPolicy, DurationDistribution, Duty, SizeTable, Workload as Sends,
};
use toml::Spanned;

use crate::Problem;
use crate::context::{CheckContext, names};
use crate::file::{self, value_or};
use crate::{Pairing, TraceFlow, Workload, WorkloadKind};

/// Maximum number of flows of one kind per pair; more are probably a mistake.
const FLOWS_PER_PAIR_MAX: u32 = 1_000_000;

/// Default size of a request: an HTTP request line with headers.
const REQUEST_SIZE: Bytes = Bytes::new(200);

/// Checks every workload; there is at least one.
pub(crate) fn all(
    context: &CheckContext,
    written: &[Spanned<file::WorkloadEntry>],
    duration: Duration,
) -> Result<Vec<Workload>, Problem> {
    if written.is_empty() {
        return Err(context.source.problem(
            0..0,
            "the scenario has no workload",
            "expected a workload",
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
        let start = value_or(&w.start, Duration::ZERO);
        if let Some(written) = w.start.as_ref().filter(|_| start >= duration) {
            return Err(context.source.problem(
                written,
                format!("the workload starts at {start}, but the run lasts only {duration}"),
                "here",
                "start it earlier, or increase `duration`",
            ));
        }
        if let Some(stop) = w.stop.as_ref().filter(|stop| stop.get_ref().0 <= start) {
            return Err(context.source.problem(
                stop,
                "the workload stops before it starts",
                "here",
                "set `stop` to a time after `start`",
            ));
        }
        if let (WorkloadKind::Trace { .. }, Some(hosts)) =
            (&kind, w.from.as_ref().or(w.to.as_ref()))
        {
            return Err(context.source.problem(
                hosts,
                "a trace contains its own hosts",
                "here",
                "remove `from` and `to`",
            ));
        }
        workloads.push(Workload {
            name,
            from: w.from.as_ref().map_or(Vec::new(), names),
            to: w.to.as_ref().map_or(Vec::new(), names),
            pairing: value_or(&w.pairs, Pairing::Each),
            algorithm: w
                .algorithm
                .as_ref()
                .map(|algorithm| algorithm.get_ref().0.clone()),
            band: w
                .band
                .as_ref()
                .map_or(Ok(0), |band| self::band(context, band))?,
            start,
            stop: w.stop.as_ref().map(|stop| stop.get_ref().0),
            kind,
            span: context.source.first_line(at),
        });
    }
    let names = workloads.iter().map(|workload| &workload.name);
    let spans = written.iter().map(|at| {
        let name = at.get_ref().name.as_ref();
        name.map_or(at.span(), Spanned::span)
    });
    context.source.check_distinct(
        "workload name",
        names.zip(spans),
        "give each workload a unique `name`",
    )?;
    Ok(workloads)
}

fn band(context: &CheckContext, band: &Spanned<u8>) -> Result<u8, Problem> {
    match *band.get_ref() {
        known if known < CLASS_COUNT => Ok(known),
        unknown => Err(context.source.problem(
            band,
            format!("there is no priority band {unknown}"),
            "here",
            format!("give a band from 0 (highest) to {}", CLASS_COUNT - 1),
        )),
    }
}

fn default_name(kind: &WorkloadKind, index: usize) -> String {
    let what = match kind {
        WorkloadKind::Generated(Sends::Bulk { .. }) => "bulk",
        WorkloadKind::Generated(Sends::Paced { .. }) => "paced",
        WorkloadKind::Generated(Sends::Poisson { .. }) => "poisson",
        WorkloadKind::Generated(Sends::Requests { .. }) => "requests",
        WorkloadKind::Generated(Sends::Messages { .. }) => "messages",
        WorkloadKind::Generated(Sends::Bursts { .. }) => "bursts",
        WorkloadKind::Generated(Sends::List { .. }) => "list",
        WorkloadKind::Generated(Sends::Trace { .. }) | WorkloadKind::Trace { .. } => "trace",
    };
    if index == 0 {
        what.to_owned()
    } else {
        format!("{what}-{}", index + 1)
    }
}

fn kind(
    context: &CheckContext,
    at: &Spanned<file::WorkloadEntry>,
) -> Result<WorkloadKind, Problem> {
    const WORKLOAD_KINDS: &str = "`bulk`, `paced`, `datagrams`, `poisson`, `requests`, `messages`, \
                                  `bursts`, `list` and `trace`";
    let w = at.get_ref();
    let given = [
        w.bulk.as_ref().map(Spanned::span),
        w.paced.as_ref().map(Spanned::span),
        w.datagrams.as_ref().map(Spanned::span),
        w.poisson.as_ref().map(Spanned::span),
        w.requests.as_ref().map(Spanned::span),
        w.messages.as_ref().map(Spanned::span),
        w.bursts.as_ref().map(Spanned::span),
        w.list.as_ref().map(Spanned::span),
        w.trace.as_ref().map(Spanned::span),
    ];
    let mut given = given.into_iter().flatten();
    if let (Some(_), Some(second)) = (given.next(), given.next()) {
        return Err(context.source.problem(
            second,
            format!("a workload has exactly one of {WORKLOAD_KINDS}"),
            "second kind",
            "move it to a [[workload]] of its own",
        ));
    }
    if let Some(file) = &w.trace {
        return trace(context, file);
    }
    let made = [
        w.bulk.as_ref().map(|bulk| self::bulk(context, bulk)),
        w.paced.as_ref().map(|paced| self::paced(context, paced)),
        w.datagrams
            .as_ref()
            .map(|datagrams| self::datagrams(context, datagrams)),
        w.poisson
            .as_ref()
            .map(|poisson| self::poisson(context, poisson)),
        w.requests
            .as_ref()
            .map(|requests| self::requests(context, requests)),
        w.messages
            .as_ref()
            .map(|messages| self::messages(context, messages)),
        w.bursts
            .as_ref()
            .map(|bursts| self::bursts(context, bursts)),
        w.list.as_ref().map(|list| self::list(context, list)),
    ];
    made.into_iter().flatten().next().map_or_else(
        || {
            Err(context.source.problem(
                context.source.first_line(at),
                "the workload has no kind of traffic",
                "here",
                format!("add one of {WORKLOAD_KINDS}, for example `bulk = {{}}`"),
            ))
        },
        |made| made.map(WorkloadKind::Generated),
    )
}

fn bulk(context: &CheckContext, at: &Spanned<file::Bulk>) -> Result<Sends, Problem> {
    let b = at.get_ref();
    let spread = value_or(&b.spread, Duration::ZERO);
    if let Some(lasts) = &b.lasts {
        if b.bytes.is_some() {
            return Err(context.source.problem(
                lasts,
                "`bytes` and `lasts` both set the end of a flow",
                "conflicts with `bytes`",
                "remove `bytes` or `lasts`",
            ));
        }
        if lasts.get_ref().0 <= spread {
            return Err(context.source.problem(
                lasts,
                format!(
                    "flows last {} but may start up to {spread} late, so some would never run",
                    lasts.get_ref().0
                ),
                "here",
                "give a time above 0 and above `spread`",
            ));
        }
    }
    Ok(Sends::Bulk {
        flows: b.flows.as_ref().map_or(Ok(1), |n| {
            context.check_count("the number of flows", n, FLOWS_PER_PAIR_MAX)
        })?,
        bytes: b
            .bytes
            .as_ref()
            .map(|bytes| nonzero(context, bytes))
            .transpose()?,
        stagger: value_or(&b.stagger, Duration::ZERO),
        spread,
        lifetime: b.lasts.as_ref().map(|lasts| lasts.get_ref().0),
    })
}

fn paced(context: &CheckContext, at: &Spanned<file::PacedEntry>) -> Result<Sends, Problem> {
    let p = at.get_ref();
    Ok(Sends::Paced {
        rate: p.rate.get_ref().0,
        duty: duty(context, p.on.as_ref(), p.off.as_ref(), p.exponential)?,
        carrier: Carrier::Stream { write: context.mss },
    })
}

fn datagrams(context: &CheckContext, at: &Spanned<file::DatagramsEntry>) -> Result<Sends, Problem> {
    let d = at.get_ref();
    let bytes = match &d.bytes {
        Some(bytes) => context.check_count("the size of a datagram", bytes, context.mtu)?,
        None => context.mtu,
    };
    Ok(Sends::Paced {
        rate: d.rate.get_ref().0,
        duty: duty(context, d.on.as_ref(), d.off.as_ref(), d.exponential)?,
        carrier: Carrier::Datagrams {
            bytes,
            poisson: d.poisson,
        },
    })
}

/// Returns the duty cycle: always on, or alternating.
fn duty(
    context: &CheckContext,
    on: Option<&file::Q<Duration>>,
    off: Option<&file::Q<Duration>>,
    exponential: bool,
) -> Result<Duty, Problem> {
    match (on, off) {
        (None, None) => Ok(Duty::Always),
        (Some(on), _) if on.get_ref().0 == Duration::ZERO => Err(context.source.problem(
            on,
            "the on time is zero, so nothing is sent",
            "here",
            "give a time above 0",
        )),
        (Some(on), Some(off)) => Ok(Duty::OnOff {
            on: pause(on.get_ref().0, exponential),
            off: pause(off.get_ref().0, exponential),
        }),
        (Some(one), None) | (None, Some(one)) => Err(context.source.problem(
            one,
            "`on` and `off` must be set together",
            "only one is set",
            "set both `on` and `off`, or neither",
        )),
    }
}

fn pause(length: Duration, exponential: bool) -> DurationDistribution {
    if exponential {
        DurationDistribution::Exponential(length)
    } else {
        DurationDistribution::Fixed(length)
    }
}

fn poisson(context: &CheckContext, at: &Spanned<file::Poisson>) -> Result<Sends, Problem> {
    let p = at.get_ref();
    Ok(Sends::Poisson {
        arrivals: arrivals(context, at, p.rate.as_ref(), p.per_second.as_ref())?,
        sizes: sizes(context, &p.sizes)?,
        flows: p.flows.as_ref().map(|flows| *flows.get_ref()),
    })
}

/// Returns the arrival process of flows or messages.
fn arrivals<T>(
    context: &CheckContext,
    at: &Spanned<T>,
    rate: Option<&file::Q<Rate>>,
    per_second: Option<&Spanned<f64>>,
) -> Result<Arrivals, Problem> {
    match (rate, per_second) {
        (Some(rate), None) => Ok(Arrivals::Rate(rate.get_ref().0)),
        (None, Some(n)) if *n.get_ref() > 0.0 && n.get_ref().is_finite() => {
            Ok(Arrivals::PerSecond(*n.get_ref()))
        }
        (None, Some(n)) => Err(context.source.problem(
            n,
            format!("invalid rate of {} flows per second", n.get_ref()),
            "here",
            "give a number above 0",
        )),
        _ => Err(context.source.problem(
            at,
            "arrivals need exactly one of `rate` and `per_second`",
            "here",
            "set `rate = \"48mbit\"` or `per_second = 500.0`",
        )),
    }
}

fn messages(context: &CheckContext, at: &Spanned<file::MessagesEntry>) -> Result<Sends, Problem> {
    let m = at.get_ref();
    let (connections, pick) = m
        .connections
        .as_ref()
        .map_or(Ok((1, ConnectionPolicy::default())), |written| {
            connections(context, written)
        })?;
    if let Some(none) = m.count.as_ref().filter(|count| *count.get_ref() == 0) {
        return Err(context.source.problem(
            none,
            "the number of messages is 0",
            "here",
            "give at least 1, or remove `count`",
        ));
    }
    let request = m.request.as_ref();
    if let Some(none) = request.filter(|request| request.get_ref().0.get() == 0) {
        return Err(context.source.problem(
            none,
            "a request has 0 bytes",
            "here",
            "give at least 1, or remove `request`",
        ));
    }
    if let Some(request) = request.filter(|_| m.requested) {
        return Err(context.source.problem(
            request,
            "`requested` leaves the request out, and `request` sends it",
            "conflicts with `requested`",
            "remove one of them",
        ));
    }
    let spread = value_or(&m.spread, Duration::ZERO);
    let arrivals = match &m.at {
        Some(once) if m.rate.is_some() || m.per_second.is_some() || m.count.is_some() => {
            return Err(context.source.problem(
                once,
                "`at` is one message of each pair, without a rate and a count",
                "conflicts with `rate`, `per_second` or `count`",
                "remove `at`, or the other settings",
            ));
        }
        Some(once) => Arrivals::Once {
            at: once.get_ref().0,
            spread,
        },
        None if spread > Duration::ZERO => {
            return Err(context.source.problem(
                at,
                "`spread` needs `at`",
                "here",
                "set the time of the messages, such as `at = \"1ms\"`, or remove `spread`",
            ));
        }
        None => arrivals(context, at, m.rate.as_ref(), m.per_second.as_ref())?,
    };
    Ok(Sends::Messages {
        connections,
        policy: pick,
        arrivals,
        sizes: sizes(context, &m.sizes)?,
        messages: m.count.as_ref().map(|count| *count.get_ref()),
        requested: m.requested,
        request: request.map(|request| request.get_ref().0),
        seed: m.seed,
    })
}

/// Returns the number of connections per pair and the policy that selects among them.
fn connections(
    context: &CheckContext,
    at: &Spanned<file::Connections>,
) -> Result<(u32, ConnectionPolicy), Problem> {
    match at.get_ref() {
        file::Connections::Number(number) => {
            let number = Spanned::new(at.span(), *number);
            Ok((
                context.check_count("the number of connections", &number, FLOWS_PER_PAIR_MAX)?,
                ConnectionPolicy::Last,
            ))
        }
        file::Connections::Table(table) => {
            let pick = match table.pick.get_ref().as_str() {
                "random" => ConnectionPolicy::Random,
                "last" => ConnectionPolicy::Last,
                other => {
                    let span = table.pick.span();
                    return Err(context.source.unknown_name(
                        span,
                        "pick",
                        other,
                        &["random", "last"],
                    ));
                }
            };
            Ok((
                context.check_count("the number of servers", &table.servers, FLOWS_PER_PAIR_MAX)?,
                pick,
            ))
        }
    }
}

fn list(context: &CheckContext, at: &Spanned<Vec<file::ListedEntry>>) -> Result<Sends, Problem> {
    let written = at.get_ref();
    if written.is_empty() {
        return Err(context.source.problem(
            at,
            "the list has no flows",
            "here",
            "give the time and size of each flow: `[[\"0s\", \"10kB\"], [\"50ms\", \"1MB\"]]`",
        ));
    }
    let mut flows: Vec<(Duration, Bytes)> = Vec::with_capacity(written.len());
    for file::ListedEntry(after, bytes) in written {
        let time = after.get_ref().0;
        if flows.last().is_some_and(|(before, _)| *before > time) {
            return Err(context.source.problem(
                after,
                format!("the flow at {time} is earlier than the flow before it"),
                "here",
                "sort the flows by time",
            ));
        }
        flows.push((time, nonzero(context, bytes)?));
    }
    Ok(Sends::List { flows })
}

fn requests(context: &CheckContext, at: &Spanned<file::Requests>) -> Result<Sends, Problem> {
    let r = at.get_ref();
    let connections = r.connections.as_ref();
    Ok(Sends::Requests {
        connections: connections.map_or(Ok(1), |n| {
            context.check_count("the number of connections", n, FLOWS_PER_PAIR_MAX)
        })?,
        request: r
            .request
            .as_ref()
            .map_or(Ok(SizeTable::fixed(REQUEST_SIZE)), |request| {
                sizes(context, request)
            })?,
        response: sizes(context, &r.response)?,
        think_time: pause(value_or(&r.think, Duration::ZERO), r.exponential),
    })
}

fn bursts(context: &CheckContext, at: &Spanned<file::Bursts>) -> Result<Sends, Problem> {
    let b = at.get_ref();
    if b.every.get_ref().0 == Duration::ZERO {
        return Err(context.source.problem(
            &b.every,
            "the interval between bursts is zero",
            "here",
            "give a time above 0",
        ));
    }
    Ok(Sends::Bursts {
        sizes: sizes(context, &b.sizes)?,
        interval: b.every.get_ref().0,
        bursts: b.bursts.as_ref().map(|bursts| *bursts.get_ref()),
    })
}

fn nonzero(context: &CheckContext, bytes: &file::Q<Bytes>) -> Result<Bytes, Problem> {
    match bytes.get_ref().0 {
        none if none == Bytes::new(0) => Err(context.source.problem(
            bytes,
            "a flow of 0 bytes sends nothing",
            "here",
            "give a size such as 10kB",
        )),
        some => Ok(some),
    }
}

fn sizes(context: &CheckContext, at: &Spanned<file::Sizes>) -> Result<SizeTable, Problem> {
    match at.get_ref() {
        file::Sizes::Table(name) => SizeTable::named(name.get_ref()).ok_or_else(|| {
            let known: Vec<&str> = SizeTable::names().map(|(name, _)| name).collect();
            context
                .source
                .unknown_name(name, "size table", name.get_ref(), &known)
        }),
        file::Sizes::File(file) => SizeTable::parse(&context.read_file(file)?).map_err(|error| {
            let what = format!("{}:{}: {}", file.get_ref(), error.index, error.why);
            context.source.problem(file, what, "this file", error.fix)
        }),
        file::Sizes::Fixed(bytes) => Ok(SizeTable::fixed(nonzero(context, bytes)?)),
        file::Sizes::Points(written) => {
            let point = |point: &file::Point| (point.0.get_ref().0.get(), *point.1.get_ref());
            let points: Vec<(u64, f64)> = written.iter().map(point).collect();
            SizeTable::new(&points).map_err(|error| {
                let span =
                    written
                        .get(error.index)
                        .map_or(at.span(), |file::Point(size, share)| {
                            if error.share {
                                share.span()
                            } else {
                                size.span()
                            }
                        });
                context.source.problem(span, error.why, "here", error.fix)
            })
        }
    }
}

/// Reads lines `time,source,destination,size`, with an optional heading.
fn trace(context: &CheckContext, file: &file::Word) -> Result<WorkloadKind, Problem> {
    let text = context.read_file(file)?;
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
            context.source.problem(
                file,
                format!("{}:{}: {why}", file.get_ref(), i + 1),
                "this file",
                "write lines such as `10ms,left1,right1,20kB`, sorted by time",
            )
        };
        let [at, from, to, bytes] = fields.as_slice() else {
            if fields.iter().all(|field| field.is_empty()) {
                continue;
            }
            return Err(wrong(format!("expected 4 fields, found {}", fields.len())));
        };
        let heading = i == 0 && !at.starts_with(|c: char| c.is_ascii_digit());
        if heading {
            continue;
        }
        // Bare numbers are seconds and bytes, as in published traces.
        let time = |text: &str| {
            text.parse::<Duration>()
                .or_else(|_| format!("{text}s").parse())
        };
        let size = |text: &str| {
            text.parse::<Bytes>()
                .or_else(|_| format!("{text}b").parse())
        };
        let flow = TraceFlow {
            at: time(at).map_err(|error| wrong(format!("`{}`: {error}", at.escape_debug())))?,
            from: (*from).to_owned(),
            to: (*to).to_owned(),
            bytes: size(bytes)
                .map_err(|error| wrong(format!("`{}`: {error}", bytes.escape_debug())))?,
            line: i + 1,
        };
        if flow.bytes == Bytes::new(0) {
            return Err(wrong("a flow of 0 bytes sends nothing".to_owned()));
        }
        if flows.last().is_some_and(|before| before.at > flow.at) {
            return Err(wrong(format!(
                "the flow at {} is earlier than the flow before it",
                flow.at
            )));
        }
        flows.push(flow);
    }
    if flows.is_empty() {
        return Err(context.source.problem(
            file,
            "the trace has no flows",
            "this file",
            "write lines such as `10ms,left1,right1,20kB`",
        ));
    }
    Ok(WorkloadKind::Trace { flows })
}
