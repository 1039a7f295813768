//! Network of a scenario: named topologies, explicit nodes and links, graphs from a file.

use ccplane_qdisc::{LineSpec, LossModel, QueueSpec};
use ccplane_units::{Duration, Rate};
use toml::Spanned;

use crate::Problem;
use crate::context::{CheckContext, name};
use crate::file::{self, Q, ScenarioFile, Word, value_or};
use crate::{GraphLink, LinkSettings, Name, NodeSettings, Topology};

/// Maximum hosts per side; the simulator's memory limit is below it.
const HOSTS_PER_SIDE_MAX: u32 = 1_000_000;

/// Maximum number of parallel links; networks do not spread a flow over more.
const PARALLEL_PATHS_MAX: u32 = 1_024;

/// Reads the file's topology, which is either a named one or a graph.
pub(crate) fn read(context: &CheckContext, file: &ScenarioFile) -> Result<Topology, Problem> {
    let Some(topology) = &file.topology else {
        if file.node.is_empty() {
            return Err(context.source.problem(
                0..0,
                "the scenario has no network",
                "expected a topology",
                "add `[topology.dumbbell]` with `rate` and `rtt`, or `[[node]]` and `[[link]]`",
            ));
        }
        return graph(context, &file.node, &file.link);
    };
    if let Some(node) = file.node.first() {
        return Err(context.source.problem(
            &node.name,
            "[topology] and [[node]] cannot be combined",
            "extra node",
            "remove `[topology]`, or remove all `[[node]]` and `[[link]]` entries",
        ));
    }
    if let Some(link) = file.link.first() {
        return Err(context.source.problem(
            link,
            "[topology] and [[link]] cannot be combined",
            "extra link",
            "remove `[topology]`, or remove all `[[node]]` and `[[link]]` entries",
        ));
    }
    let times = |delay: &Q<Duration>, n: u64| {
        Duration::from_nanos(delay.get_ref().0.as_nanos().saturating_mul(n))
    };
    let share = |rtt: &Q<Duration>, of: u64| Duration::from_nanos(rtt.get_ref().0.as_nanos() / of);
    let optional = |word: &Option<Word>| {
        let word = word.as_ref();
        // Rates differ between links, so sizes in BDP are checked when the network is built.
        word.map(|w| {
            w.get_ref().parse::<QueueSpec>().map_err(|error| {
                context
                    .source
                    .problem(w, error.to_string(), "this queue", "")
            })
        })
        .transpose()
    };
    Ok(match topology.get_ref() {
        file::Topology::Dumbbell(d) => dumbbell(context, topology, d)?,
        file::Topology::ParkingLot(p) => {
            let bottlenecks = context.check_count(
                "the number of bottlenecks",
                &p.bottlenecks,
                HOSTS_PER_SIDE_MAX,
            )?;
            let rtt = times(&p.delay, 2 * u64::from(bottlenecks));
            Topology::ParkingLot {
                bottlenecks,
                link: plain(context, &p.rate, p.delay.get_ref().0, rtt, p.queue.as_ref())?,
            }
        }
        file::Topology::Incast(i) => Topology::Incast {
            senders: context.check_count(
                "the number of senders",
                &i.senders,
                HOSTS_PER_SIDE_MAX,
            )?,
            link: plain(
                context,
                &i.rate,
                share(&i.rtt, 4),
                i.rtt.get_ref().0,
                i.queue.as_ref(),
            )?,
        },
        file::Topology::LeafSpine(l) => {
            let delay = l.delay.get_ref().0;
            let rtt = times(&l.delay, 8);
            Topology::LeafSpine {
                leaves: context.check_count(
                    "the number of leaves",
                    &l.leaves,
                    HOSTS_PER_SIDE_MAX,
                )?,
                spines: context.check_count(
                    "the number of spines",
                    &l.spines,
                    HOSTS_PER_SIDE_MAX,
                )?,
                hosts_per_leaf: context.check_count(
                    "the number of hosts",
                    &l.hosts_per_leaf,
                    HOSTS_PER_SIDE_MAX,
                )?,
                host: plain(context, &l.host_rate, delay, rtt, l.queue.as_ref())?,
                fabric: plain(context, &l.fabric_rate, delay, rtt, l.queue.as_ref())?,
            }
        }
        file::Topology::FatTree(f) => {
            let k = context.check_count("k", &f.k, 1_024)?;
            if !k.is_multiple_of(2) {
                return Err(context.source.problem(
                    &f.k,
                    format!("k must be even, not {k}"),
                    "odd",
                    "use an even k: half of each switch's ports point up",
                ));
            }
            Topology::FatTree {
                k,
                link: plain(
                    context,
                    &f.rate,
                    f.delay.get_ref().0,
                    times(&f.delay, 12),
                    f.queue.as_ref(),
                )?,
            }
        }
        file::Topology::Tree192(t) => Topology::Tree192 {
            queue: optional(&t.queue)?,
            host_delay: t.host_delay.as_ref().map(|delay| delay.get_ref().0),
            fabric_delay: t.fabric_delay.as_ref().map(|delay| delay.get_ref().0),
        },
        file::Topology::Internet2(i) => Topology::Internet2 {
            queue: optional(&i.queue)?,
        },
        file::Topology::Graph(g) => graph_file(context, &g.file, g.queue.as_ref())?,
    })
}

fn dumbbell(
    context: &CheckContext,
    at: &Spanned<file::Topology>,
    d: &file::Dumbbell,
) -> Result<Topology, Problem> {
    let (line, line_name) = context.parse_line(
        d.rate.as_ref(),
        d.trace.as_ref(),
        d.piecewise.as_ref(),
        d.cellular.as_ref(),
    )?;
    if line.mean_rate().is_none() {
        return Err(context.source.problem(
            at,
            "the bottleneck has no rate",
            "here",
            "add `rate = \"96mbit\"`, a `trace`, `piecewise` steps or a `cellular` link",
        ));
    }
    let rtt = d.rtt.get_ref().0;
    let there = Duration::from_nanos(rtt.as_nanos() / 2);
    let mut reverse = LinkSettings::wire(rtt.saturating_sub(there));
    if let Some(entry) = &d.reverse {
        limit_reverse(context, entry, rtt, &mut reverse)?;
    }
    let fallback = QueueSpec::ONE_BDP.to_string();
    let pairs = d
        .pairs
        .as_ref()
        .map(|pairs| context.check_count("the number of pairs", pairs, HOSTS_PER_SIDE_MAX));
    Ok(Topology::Dumbbell {
        pairs: pairs.transpose()?.unwrap_or(1),
        bottleneck: LinkSettings {
            queue: context.parse_queue(d.queue.as_ref(), (&fallback, &d.rtt), &line, rtt)?,
            queue_name: d
                .queue
                .as_ref()
                .map_or(fallback, |word| word.get_ref().clone()),
            loss: value_or(&d.loss, LossModel::NONE),
            jitter: value_or(&d.jitter, Duration::ZERO),
            reorder: d.reorder,
            strip_classes: false,
            tbf_burst: d.tbf_burst.as_ref().map(|burst| burst.get_ref().0),
            delay: there,
            line,
            line_name,
        },
        reverse,
        access_rate: d.access_rate.as_ref().map(|rate| rate.get_ref().0),
    })
}

/// Sets rate and queue of the reverse direction.
fn limit_reverse(
    context: &CheckContext,
    at: &Spanned<file::ReverseEntry>,
    rtt: Duration,
    reverse: &mut LinkSettings,
) -> Result<(), Problem> {
    let entry = at.get_ref();
    (reverse.line, reverse.line_name) = context.parse_line(
        entry.rate.as_ref(),
        entry.trace.as_ref(),
        entry.piecewise.as_ref(),
        entry.cellular.as_ref(),
    )?;
    if reverse.line.mean_rate().is_none() {
        return Err(context.source.problem(
            at,
            "`reverse` has no rate",
            "here",
            "add `rate = \"10mbit\"`, a `trace`, `piecewise` steps or a `cellular` link, or remove \
             `reverse`: the reverse direction then has no limit",
        ));
    }
    let fallback = QueueSpec::ONE_BDP.to_string();
    let queue = entry.queue.as_ref();
    reverse.queue = context.parse_queue(queue, (&fallback, at), &reverse.line, rtt)?;
    reverse.queue_name = queue.map_or(fallback, |word| word.get_ref().clone());
    Ok(())
}

fn graph(
    context: &CheckContext,
    nodes: &[file::NodeEntry],
    links: &[Spanned<file::LinkEntry>],
) -> Result<Topology, Problem> {
    let mut known: Vec<&str> = nodes
        .iter()
        .map(|node| node.name.get_ref().as_str())
        .collect();
    let spans = nodes.iter().map(|node| node.name.span());
    context.source.check_distinct(
        "node name",
        known.iter().zip(spans),
        "give each node a unique name",
    )?;
    known.sort_unstable();
    let mut all: Vec<GraphLink> = Vec::new();
    let mut spans = Vec::new();
    for link in links {
        let at = link;
        let link = link.get_ref();
        for end in [&link.from, &link.to] {
            if known.binary_search(&end.get_ref().as_str()).is_err() {
                return Err(context
                    .source
                    .unknown_name(end, "node", end.get_ref(), &known));
            }
        }
        let (from, to) = (link.from.get_ref(), link.to.get_ref());
        if from == to {
            return Err(context.source.problem(
                &link.to,
                format!("`{from}` is linked to itself"),
                "here",
                "change `from` or `to`",
            ));
        }
        let (line, line_name) = context.parse_line(
            link.rate.as_ref(),
            link.trace.as_ref(),
            link.piecewise.as_ref(),
            link.cellular.as_ref(),
        )?;
        let delay = value_or(&link.delay, Duration::ZERO);
        let rtt = Duration::from_nanos(delay.as_nanos().saturating_mul(2));
        // Nothing queues in front of a line without a rate, and without a delay the BDP is zero.
        let fallback = match line {
            LineSpec::Unlimited => "droptail:inf",
            _ if delay == Duration::ZERO => "droptail:1000p",
            _ => "droptail:1bdp",
        };
        let properties = LinkSettings {
            queue: context.parse_queue(link.queue.as_ref(), (fallback, at), &line, rtt)?,
            queue_name: link
                .queue
                .as_ref()
                .map_or(fallback, |word| word.get_ref())
                .to_owned(),
            loss: value_or(&link.loss, LossModel::NONE),
            jitter: value_or(&link.jitter, Duration::ZERO),
            reorder: link.reorder,
            strip_classes: link.strip_classes,
            tbf_burst: None,
            line,
            line_name,
            delay,
        };
        let one = |from: &Word, to: &Word, given: Option<String>, path: LinkSettings| GraphLink {
            name: given.unwrap_or_else(|| format!("{}->{}", from.get_ref(), to.get_ref())),
            from: name(from),
            to: name(to),
            link: path,
        };
        let mut these = Vec::new();
        for (n, path) in paths(context, at, properties)?.into_iter().enumerate() {
            let plain = format!("{from}->{to}");
            let named = match (link.name.as_ref().map(|word| word.get_ref()), n) {
                (None, 0) => None,
                (given, 0) => given.cloned(),
                (given, n) => Some(format!("{}:{}", given.unwrap_or(&plain), n + 1)),
            };
            these.push(one(&link.from, &link.to, named.clone(), path.clone()));
            if !link.one_way {
                let back = named.as_ref().map(|name| format!("{name}:back"));
                these.push(one(&link.to, &link.from, back, path));
            }
        }
        spans.resize(spans.len() + these.len(), at.span());
        all.extend(these);
    }
    context.source.check_distinct(
        "link name",
        all.iter().map(|link| &link.name).zip(spans),
        "give each link a unique `name`, or make them `one_way`",
    )?;
    let nodes = nodes.iter().map(|node| NodeSettings {
        name: name(&node.name),
        switch: node.switch,
    });
    Ok(Topology::Graph {
        nodes: nodes.collect(),
        links: all,
    })
}

/// Expands a link with `paths` into parallel links. They share the rate evenly, and their delays
/// are interpolated between the first and the slowest.
fn paths(
    context: &CheckContext,
    at: &Spanned<file::LinkEntry>,
    link: LinkSettings,
) -> Result<Vec<LinkSettings>, Problem> {
    let written = at.get_ref();
    let (count, slowest) = match (&written.paths, &written.slowest) {
        (None, None) => return Ok(vec![link]),
        (None, Some(slowest)) => {
            return Err(context.source.problem(
                slowest,
                "`slowest` needs several paths",
                "here",
                "set `paths` to the number of paths, or remove `slowest`",
            ));
        }
        (Some(count), slowest) => (
            context.check_count("the number of paths", count, PARALLEL_PATHS_MAX)?,
            slowest,
        ),
    };
    let slowest = slowest
        .as_ref()
        .map_or(link.delay, |slowest| slowest.get_ref().0);
    let LineSpec::Constant(rate) = link.line else {
        return Err(context.source.problem(
            at,
            "only a link with a constant rate can have several paths",
            "this link",
            "give it a `rate`, or remove `paths`",
        ));
    };
    let share = Rate::from_bits_per_sec(rate.bits_per_sec() / u64::from(count));
    let one = |n: u32| {
        let (n, last) = (u64::from(n), u64::from(count - 1).max(1));
        let between = |from: Duration, to: Duration| {
            (from.as_nanos() * (last - n) + to.as_nanos() * n) / last
        };
        LinkSettings {
            line: LineSpec::Constant(share),
            line_name: share.to_string(),
            delay: Duration::from_nanos(between(link.delay, slowest)),
            ..link.clone()
        }
    };
    Ok((0..count).map(one).collect())
}

/// Returns a link without jitter and loss, for topologies with identical links.
fn plain(
    context: &CheckContext,
    rate: &Q<Rate>,
    delay: Duration,
    rtt: Duration,
    queue: Option<&Word>,
) -> Result<LinkSettings, Problem> {
    let line = LineSpec::Constant(rate.get_ref().0);
    let fallback = QueueSpec::ONE_BDP.to_string();
    Ok(LinkSettings {
        line_name: rate.get_ref().0.to_string(),
        queue: context.parse_queue(queue, (&fallback, rate), &line, rtt)?,
        queue_name: queue.map_or(fallback, |word| word.get_ref().clone()),
        line,
        delay,
        jitter: Duration::ZERO,
        reorder: false,
        strip_classes: false,
        tbf_burst: None,
        loss: LossModel::NONE,
    })
}

/// Reads lines `from to rate delay`, one symmetric link each. Nodes with one neighbour are hosts,
/// all others are switches.
fn graph_file(
    context: &CheckContext,
    file: &Word,
    queue: Option<&Word>,
) -> Result<Topology, Problem> {
    let text = context.read_file(file)?;
    let mut links: Vec<GraphLink> = Vec::new();
    let mut neighbours: std::collections::BTreeMap<String, u32> = std::collections::BTreeMap::new();
    for (i, line) in text.lines().enumerate() {
        let wrong = |why: String| {
            context.source.problem(
                file,
                format!("{}:{}: {why}", file.get_ref(), i + 1),
                "this file",
                "write lines such as `chicago denver 10gbit 10ms`",
            )
        };
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let (from, to, rate, delay) = match words.as_slice() {
            [] => continue,
            [from, to, rate, delay] => (*from, *to, *rate, *delay),
            _ => return Err(wrong(format!("expected 4 words, found {}", words.len()))),
        };
        if from == to {
            return Err(wrong(format!("`{from}` is linked to itself")));
        }
        let rate: Rate = rate
            .parse()
            .map_err(|error| wrong(format!("`{rate}`: {error}")))?;
        let delay: Duration = delay
            .parse()
            .map_err(|error| wrong(format!("`{delay}`: {error}")))?;
        let line = LineSpec::Constant(rate);
        let rtt = Duration::from_nanos(delay.as_nanos().saturating_mul(2));
        let fallback = if delay == Duration::ZERO {
            "droptail:1000p"
        } else {
            "droptail:1bdp"
        };
        let link = LinkSettings {
            queue: context.parse_queue(queue, (fallback, file), &line, rtt)?,
            queue_name: queue.map_or(fallback, |word| word.get_ref()).to_owned(),
            line_name: rate.to_string(),
            line,
            delay,
            jitter: Duration::ZERO,
            reorder: false,
            strip_classes: false,
            tbf_burst: None,
            loss: LossModel::NONE,
        };
        let node = |text: &str| Name {
            text: text.to_owned(),
            span: file.span(),
        };
        for (a, b) in [(from, to), (to, from)] {
            let name = format!("{a}->{b}");
            if links.iter().any(|other| other.name == name) {
                return Err(wrong(format!(
                    "there are two links between `{from}` and `{to}`"
                )));
            }
            *neighbours.entry(a.to_owned()).or_default() += 1;
            links.push(GraphLink {
                name,
                from: node(a),
                to: node(b),
                link: link.clone(),
            });
        }
    }
    let nodes: Vec<NodeSettings> = neighbours
        .into_iter()
        .map(|(text, degree)| NodeSettings {
            name: Name {
                text,
                span: file.span(),
            },
            switch: degree > 1,
        })
        .collect();
    if nodes.is_empty() {
        return Err(context.source.problem(
            file,
            "the graph has no links",
            "this file",
            "write lines such as `chicago denver 10gbit 10ms`",
        ));
    }
    Ok(Topology::Graph { nodes, links })
}
