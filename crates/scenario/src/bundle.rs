//! Bundles: a sendbox at one switch paces all traffic of a site towards a receivebox at another.

use std::ops::Range;

use ccplane_qdisc::CLASS_COUNT;
use ccplane_qdisc::{ClassSpec, ClassesSpec, QueueSpec, QueueSpecError};
use ccplane_units::{Bytes, Rate};
use toml::Spanned;

use crate::context::{CheckContext, name};
use crate::file::{self, value_or};
use crate::{Contender, Name, Problem};

/// Maximum overhead of a tunnel, bytes. WireGuard over IPv6 adds 80, a chain of tunnels a few
/// hundred.
const TUNNEL_OVERHEAD_BYTES_MAX: u64 = 1_000;

/// Bundle between a sendbox at one switch and a receivebox at another.
#[derive(Clone, Debug, PartialEq)]
pub struct BundleSettings {
    /// Switch of the sendbox.
    pub from: Name,
    /// Switch of the receivebox.
    pub to: Name,
    /// Algorithm of the bundle; `None`: the contenders, one per run.
    pub algorithm: Option<Contender>,
    /// Congestion control of workloads without an algorithm while contenders steer the bundle.
    pub host_algorithm: Contender,
    /// Queue discipline of the sendbox; `None` selects the sendbox's default.
    pub queue: Option<QueueSpec>,
    /// Classes of the queue, selected by the packets' bands; empty for a single class.
    pub classes: Vec<BundleClass>,
    /// Bytes that the tunnel adds per packet.
    pub overhead: u32,
    /// Minimum of the rate limit; `None` selects the sendbox's default.
    pub min_rate: Option<Rate>,
    /// Maximum of the rate limit.
    pub max_rate: Option<Rate>,
    /// True if the sendbox measures and never limits.
    pub observe_only: bool,
    /// True if epoch boundaries are chosen by a hash of the header, as in the paper, instead of by
    /// the tunnel's packet counter.
    pub by_hash: bool,
    /// Bytes of the bundle's table in the file.
    pub span: Range<usize>,
}

/// A class of a bundle's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleClass {
    /// Priority level; level 0 is served first.
    pub level: u8,
    /// Weight within the level.
    pub weight: u32,
    /// Queue of the class; `None`: the bundle's queue.
    pub queue: Option<QueueSpec>,
}

impl BundleSettings {
    /// Returns the queues of all classes. `own` is the default for a bundle that names no queue.
    pub fn queues(&self, own: QueueSpec) -> ClassesSpec {
        let own = self.queue.unwrap_or(own);
        if self.classes.is_empty() {
            return own.into();
        }
        let classes = self.classes.iter().map(|class| ClassSpec {
            level: class.level,
            weight: class.weight,
            queue: class.queue.unwrap_or(own),
        });
        ClassesSpec {
            classes: classes.collect(),
        }
    }

    /// Returns the title `site a -> site b`.
    pub fn title(&self) -> String {
        format!("{} -> {}", self.from.text, self.to.text)
    }
}

/// Checks every bundle.
pub(crate) fn all(
    context: &CheckContext,
    written: &[Spanned<file::BundleEntry>],
) -> Result<Vec<BundleSettings>, Problem> {
    let bundles: Vec<BundleSettings> = written
        .iter()
        .map(|at| one(context, at))
        .collect::<Result<_, _>>()?;
    let steered: Vec<&BundleSettings> = bundles
        .iter()
        .filter(|bundle| bundle.algorithm.is_none())
        .collect();
    if let [first, rest @ ..] = steered.as_slice()
        && let Some(other) = rest
            .iter()
            .find(|other| other.host_algorithm != first.host_algorithm)
    {
        return Err(context.source.problem(
            other.span.clone(),
            format!(
                "workloads without an algorithm would be controlled by both {} and {}",
                first.host_algorithm, other.host_algorithm
            ),
            "this bundle",
            "give both bundles the same `hosts`",
        ));
    }
    Ok(bundles)
}

fn queue(
    context: &CheckContext,
    written: Option<&file::Word>,
) -> Result<Option<QueueSpec>, Problem> {
    let read = |word: &file::Word| {
        let queue = word.get_ref().parse();
        queue.map_err(|error: QueueSpecError| {
            context
                .source
                .problem(word, error.to_string(), "this queue", "")
        })
    };
    written.map(read).transpose()
}

fn class(context: &CheckContext, at: &Spanned<file::BundleClass>) -> Result<BundleClass, Problem> {
    let c = at.get_ref();
    let weight = match &c.weight {
        None => 1,
        Some(weight) => {
            context.check_count("the weight of a class", weight, ClassSpec::WEIGHT_MAX)?
        }
    };
    Ok(BundleClass {
        level: c.level,
        weight,
        queue: queue(context, c.queue.as_ref())?,
    })
}

fn one(context: &CheckContext, at: &Spanned<file::BundleEntry>) -> Result<BundleSettings, Problem> {
    let b = at.get_ref();
    if let (Some(_), Some(hosts)) = (&b.algorithm, &b.hosts) {
        return Err(context.source.problem(
            hosts,
            "`hosts` has no effect in a bundle with its own `algorithm`: the contenders control \
             the workloads",
            "not used",
            "remove `hosts`, or give the workloads an `algorithm`",
        ));
    }
    let overhead = value_or(&b.overhead, Bytes::new(0));
    if let Some(written) = b
        .overhead
        .as_ref()
        .filter(|_| overhead.get() > TUNNEL_OVERHEAD_BYTES_MAX)
    {
        return Err(context.source.problem(
            written,
            format!("an overhead of {overhead} per packet is too large"),
            "not the overhead of a tunnel",
            "give the overhead per packet, such as 60B for WireGuard over IPv4",
        ));
    }
    let rate = |written: &Option<file::Q<Rate>>| written.as_ref().map(|rate| rate.get_ref().0);
    let (min, max) = (rate(&b.min), rate(&b.max));
    if let (Some(low), Some(high), Some(written)) = (min, max, &b.max)
        && low > high
    {
        return Err(context.source.problem(
            written,
            format!("`max` ({high}) is below `min` ({low})"),
            "here",
            "set `max` above `min`",
        ));
    }
    if let Some(beyond) = b.class.get(usize::from(CLASS_COUNT)) {
        return Err(context.source.problem(
            beyond,
            "too many classes",
            "here",
            format!("use at most {CLASS_COUNT} classes, one per band"),
        ));
    }
    Ok(BundleSettings {
        from: name(&b.from),
        to: name(&b.to),
        algorithm: b
            .algorithm
            .as_ref()
            .map(|algorithm| algorithm.get_ref().0.clone()),
        host_algorithm: b.hosts.as_ref().map_or_else(
            || Contender::native("cubic"),
            |hosts| hosts.get_ref().0.clone(),
        ),
        queue: queue(context, b.queue.as_ref())?,
        classes: b
            .class
            .iter()
            .map(|at| class(context, at))
            .collect::<Result<_, _>>()?,
        overhead: overhead.get() as u32,
        min_rate: min,
        max_rate: max,
        observe_only: b.observe,
        by_hash: b.by_hash,
        span: at.span(),
    })
}
