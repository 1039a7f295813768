//! What a score is made of. Each part is 1 where the candidate is as good as the best of the
//! baselines on the same link.

use ccplane_units::stats;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;
use serde::Serialize;

use super::asked::{Options, Suite};
use super::pool::Outcomes;
use super::standing::Standing;
use super::suspect::{Judged, Suspect};
use crate::contender::Contender;
use crate::evaluate::{Measured, Run, Sketch};

/// The parts, and what each counts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Parts {
    /// What it uses of the link, alone.
    pub throughput: f64,
    /// The 95th percentile of queueing delay that it leaves, alone: a twentieth of the round trip
    /// is as good as none.
    pub delay: f64,
    /// Packets that its queue drops, alone: one in five hundred is as good as none.
    pub loss: f64,
    /// Jain's index of two of its own, in the last half of their run.
    pub fairness: f64,
    /// What a Cubic that was there before keeps of what another Cubic leaves to it; more than that
    /// counts no more.
    pub harm: f64,
    /// How soon the second of two has four fifths of an equal share: what is left of the run by
    /// then.
    pub convergence: f64,
}

/// How much each part counts: exponents of a geometric mean, so that nothing makes up for a part
/// that is next to nothing.
pub const WEIGHTS: Parts = Parts {
    throughput: 0.25,
    delay: 0.25,
    loss: 0.1,
    fairness: 0.15,
    harm: 0.15,
    convergence: 0.1,
};

/// A part is no less than this: nought on one link would hide all others.
const LEAST: f64 = 0.01;
/// A part is no more than this: what is far better than every baseline shall not pay for harm
/// elsewhere.
const MOST: f64 = 1.25;

impl Parts {
    /// What they are called.
    pub const NAMES: [&str; 6] = [
        "throughput",
        "delay",
        "loss",
        "fairness",
        "harm",
        "convergence",
    ];

    /// Each of them, in the order of [`NAMES`](Parts::NAMES).
    pub fn each(&self) -> [f64; 6] {
        [
            self.throughput,
            self.delay,
            self.loss,
            self.fairness,
            self.harm,
            self.convergence,
        ]
    }

    fn of([throughput, delay, loss, fairness, harm, convergence]: [f64; 6]) -> Parts {
        Parts {
            throughput,
            delay,
            loss,
            fairness,
            harm,
            convergence,
        }
    }

    /// Their weighted geometric mean.
    fn score(&self) -> f64 {
        let logs = self.each().into_iter().zip(WEIGHTS.each());
        libm::exp(
            logs.map(|(part, weight)| weight * libm::log(part.clamp(LEAST, MOST)))
                .sum(),
        )
    }
}

/// A candidate on one link.
#[derive(Clone, Debug, Serialize)]
pub struct LinkScore {
    /// The link in words.
    pub link: String,
    /// 0 to 1.25.
    pub score: f64,
    /// What it is made of.
    pub parts: Parts,
    /// Goodput of the candidate alone.
    pub goodput_mbit: f64,
    /// 95th percentile of the queueing delay of the candidate alone.
    pub delay_p95_ms: f64,
    /// Rate of the link.
    pub rate_mbit: f64,
    /// RTT without queueing.
    pub rtt_ms: f64,
    /// The file of a run on this link, alone: `ccplane run FILE`.
    pub scenario: String,
    /// Who is the best of the baselines, by part.
    #[serde(skip)]
    pub(super) best: [Option<Contender>; 6],
}

/// A candidate's score.
#[derive(Clone, Debug, Serialize)]
pub struct Score {
    /// Means over the links.
    pub parts: Parts,
    /// Every link.
    pub links: Vec<LinkScore>,
}

impl Score {
    /// The mean over the links.
    pub fn mean(&self) -> f64 {
        stats::mean(self.links.iter().map(|link| link.score)).unwrap_or(0.0)
    }

    /// The link that it did worst on.
    pub fn worst(&self) -> &LinkScore {
        let least = |one: &&LinkScore, other: &&LinkScore| one.score.total_cmp(&other.score);
        // There is at least one link: a suite without any has no score.
        self.links
            .iter()
            .min_by(least)
            .unwrap_or_else(|| unreachable!("a score has links"))
    }
}

/// A link to score on.
#[derive(Clone, Debug)]
pub(super) struct Link {
    rate_kbit: u64,
    rtt_us: u64,
    queue: String,
    loss: &'static str,
}

/// The published links are those of this seed.
const PUBLISHED: u64 = 9_743;

/// Links are drawn from 2 to 100 Mbit/s and 10 to 200 ms, evenly on a logarithmic scale, with
/// buffers of half a BDP to four. Every third link loses one packet in a thousand. Every fifth has
/// a queue for each flow.
pub(super) fn links(held_out: Option<u64>, count: usize) -> Vec<Link> {
    // A stream of its own, so that no seed of somebody's gives the published ones.
    let stream = u128::from(held_out.is_some());
    let mut drawn = Pcg64::new(u128::from(held_out.unwrap_or(PUBLISHED)), stream);
    let mut share = move || (drawn.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let mut between = move |low: f64, high: f64| low * libm::pow(high / low, share());
    (0..count)
        .map(|n| {
            let (rate, rtt, buffer) = (between(2e3, 1e5), between(1e4, 2e5), between(0.5, 4.0));
            Link {
                rate_kbit: rate.round() as u64,
                rtt_us: rtt.round() as u64,
                queue: match n % 5 {
                    4 => "fq_codel".to_owned(),
                    _ => format!("droptail:{buffer:.2}bdp"),
                },
                loss: if n % 3 == 2 { "0.1%" } else { "0%" },
            }
        })
        .collect()
}

impl Link {
    fn words(&self) -> String {
        let (mbit, ms) = (self.rate_kbit as f64 / 1e3, self.rtt_us as f64 / 1e3);
        format!(
            "{mbit:.1} Mbit/s, {ms:.1} ms, {}, {} lost",
            self.queue, self.loss
        )
    }

    /// Long enough for forty round trips and for some thousand packets.
    fn seconds(&self, full: bool) -> f64 {
        let trips = (40.0 * self.rtt_us as f64 / 1e6).clamp(6.0, 16.0);
        if full { trips * 3.0 } else { trips }
    }

    fn sketch(&self, full: bool) -> Sketch {
        Sketch::dumbbell(
            format!("{}kbit", self.rate_kbit),
            format!("{}us", self.rtt_us),
            &self.queue,
        )
        .with(format!("loss = \"{}\"\njitter = \"100us\"", self.loss))
        .seconds(self.seconds(full))
    }
}

/// What runs on a link.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Alone,
    /// Two of its own, the second after a fifth of the time.
    Two,
    /// Cubic, and it after a fifth of the time.
    BesideCubic,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Alone, Kind::Two, Kind::BesideCubic];
}

const JOINS_AT: f64 = 0.2;
const CUBIC: &str = "native:cubic";

fn key(link: usize, kind: Kind, who: &str) -> String {
    let kind = match kind {
        Kind::Alone => "alone",
        Kind::Two => "two",
        Kind::BesideCubic => "beside-cubic",
    };
    format!("{link} {kind} {who}")
}

fn run(at: usize, link: &Link, kind: Kind, who: &str, full: bool) -> Run {
    let joins = format!("{}ms", (link.seconds(full) * JOINS_AT * 1e3) as u64);
    let first = "from = \"left1\"\nto = \"right1\"";
    let second = format!("from = \"left2\"\nto = \"right2\"\nstart = \"{joins}\"");
    let sketch = link.sketch(full);
    let sketch = match kind {
        Kind::Alone => sketch.flow(who, "bulk = {}", first),
        Kind::Two => sketch
            .flow(who, "bulk = {}", first)
            .flow(who, "bulk = {}", &second),
        Kind::BesideCubic => sketch
            .flow(CUBIC, "bulk = {}", first)
            .flow(who, "bulk = {}", &second),
    };
    sketch.run(key(at, kind, who))
}

/// All runs of these algorithms, and of Cubic beside Cubic.
pub(super) fn runs(all: &[Contender], links: &[Link], full: bool) -> Vec<Run> {
    let names: Vec<String> = all.iter().map(Contender::to_string).collect();
    let mut runs = Vec::new();
    for (at, link) in links.iter().enumerate() {
        for name in &names {
            runs.extend(Kind::ALL.map(|kind| run(at, link, kind, name, full)));
        }
    }
    if !names.iter().any(|name| name == CUBIC) {
        runs.extend(
            links
                .iter()
                .enumerate()
                .map(|(at, link)| run(at, link, Kind::BesideCubic, CUBIC, full)),
        );
    }
    runs
}

/// Raw figures of an algorithm on a link, in the order of [`Parts`]; more is better.
fn raw(at: usize, link: &Link, who: &str, outcomes: &Outcomes) -> Result<[f64; 6], String> {
    let of = |kind, who: &str| -> Result<&Measured, String> {
        outcomes
            .of(&key(at, kind, who))
            .map_err(|why| format!("{}: it broke: {why}", link.words()))
    };
    let (alone, two, beside) = (
        of(Kind::Alone, who)?,
        of(Kind::Two, who)?,
        of(Kind::BesideCubic, who)?,
    );
    let cubic = of(Kind::BesideCubic, CUBIC)?;
    let [one, other] = [0, 1].map(|flow| two.goodput(flow, 0.5, 1.0));
    let jain = match one * one + other * other {
        0.0 => 0.0,
        squares => (one + other) * (one + other) / (2.0 * squares),
    };
    let kept = match cubic.goodput(0, 1.0 / 3.0, 1.0) {
        0.0 => 1.0,
        own_kind => (beside.goodput(0, 1.0 / 3.0, 1.0) / own_kind).min(1.0),
    };
    let bins = two.flows.get(1).map_or(&[][..], Vec::as_slice);
    // Over a twentieth of the run: a flow's goodput comes in bursts.
    let width = bins.len() / 20;
    let level = 0.8 * (one + other) / 2.0;
    let reached = Measured::reached(bins, level, width, JOINS_AT).filter(|_| level > 0.0);
    Ok([
        alone.utilisation(0.0, 1.0),
        1.0 / (alone.figures.delay_p95_ms + link.rtt_us as f64 / 1e3 / 20.0),
        1.0 / (alone.dropped() + 0.002),
        jain,
        kept,
        reached.map_or(0.0, |at| (1.0 - at) / (1.0 - JOINS_AT)),
    ])
}

/// The least part on the worst link, for a closer look.
pub(super) fn suspect(
    candidate: &Contender,
    options: &Options,
    standing: &Standing,
) -> Option<Suspect> {
    let worst = standing.parts.as_ref()?.worst();
    let full = options.suite == Suite::Full;
    let all = links(options.held_out, options.suite.links());
    let (at, link) = all
        .iter()
        .enumerate()
        .find(|(_, link)| link.words() == worst.link)?;
    let parts = worst.parts.each();
    let part = (0..parts.len()).min_by(|one, other| parts[*one].total_cmp(&parts[*other]))?;
    let (kind, judged, from) = [
        (Kind::Alone, Judged::Goodput, 0.0),
        (Kind::Alone, Judged::Delay, 0.0),
        (Kind::Alone, Judged::Loss, 0.0),
        (Kind::Two, Judged::Share, 0.5),
        (Kind::BesideCubic, Judged::Other, 1.0 / 3.0),
        (Kind::Two, Judged::Share, JOINS_AT),
    ][part];
    let best = worst.best[part]
        .clone()
        .or_else(|| options.against.first().cloned())?;
    // What a Cubic keeps is set beside what it keeps of another.
    let baseline = match judged {
        Judged::Other => CUBIC.parse().ok()?,
        _ => best.clone(),
    };
    Some(Suspect {
        place: link.words(),
        figure: format!(
            "{}: {:.2} of what {best} has",
            Parts::NAMES[part],
            parts[part]
        ),
        run: run(at, link, kind, &candidate.to_string(), full),
        beside: run(at, link, kind, &baseline.to_string(), full),
        baseline,
        judged,
        from,
    })
}

/// A candidate's score on these links; an error says how it broke.
pub(super) fn judge(
    candidate: &Contender,
    against: &[Contender],
    links: &[Link],
    outcomes: &Outcomes,
) -> Result<Score, String> {
    let who = candidate.to_string();
    let mut scored = Vec::new();
    for (at, link) in links.iter().enumerate() {
        let own = raw(at, link, &who, outcomes)?;
        let mut best = [0.0_f64; 6];
        let mut whose: [Option<Contender>; 6] = Default::default();
        for known in against {
            // A baseline that breaks somewhere is no measure there.
            if let Ok(theirs) = raw(at, link, &known.to_string(), outcomes) {
                for (part, theirs) in theirs.into_iter().enumerate() {
                    if theirs > best[part] {
                        (best[part], whose[part]) = (theirs, Some(known.clone()));
                    }
                }
            }
        }
        let part = |n: usize| if best[n] > 0.0 { own[n] / best[n] } else { 1.0 };
        let parts = Parts::of(std::array::from_fn(|n| part(n).clamp(0.0, MOST)));
        let measured = outcomes.of(&key(at, Kind::Alone, &who))?;
        let alone = run(at, link, Kind::Alone, &who, false);
        scored.push(LinkScore {
            link: link.words(),
            score: parts.score(),
            parts,
            goodput_mbit: measured.figures.goodput_mbit,
            delay_p95_ms: measured.figures.delay_p95_ms,
            rate_mbit: link.rate_kbit as f64 / 1e3,
            rtt_ms: link.rtt_us as f64 / 1e3,
            scenario: alone.scenario.text,
            best: whose,
        });
    }
    let mean =
        |n: usize| stats::mean(scored.iter().map(|link| link.parts.each()[n])).unwrap_or(0.0);
    Ok(Score {
        parts: Parts::of(std::array::from_fn(mean)),
        links: scored,
    })
}
