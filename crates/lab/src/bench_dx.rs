//! DX on kernel TCP: what its time stamps cost, the queue that it leaves beside the kernel's Cubic, and what it sees of the
//! way there while the way of its ACKs is flooded.

use std::fs;
use std::thread;

use ccplane_algorithms::{Parameters, Registry};
use ccplane_datapath::Capabilities;
use ccplane_emu::{Emulator, LinkConfig, Timing};
use ccplane_qdisc::{LineSpec, QueueSpec};
use ccplane_units::{Duration, Probability, Rate};

use crate::diag::Diag;
use crate::error::Error;
use crate::experiment::{Contender, Experiment};
use crate::metrics::Distribution;
use crate::run::{MTU, Quiet};
use crate::stamped::Stamping;
use crate::steer::Steered;
use crate::traffic::{self, Plan};

const RATE_BITS: u64 = 100_000_000;
/// Of the proof's token bucket.
const QUEUE: &str = "droptail:400kB";
const RTT: Duration = Duration::from_micros(200);
/// Bytes of payload that a flow may have on its way, queue included, many times over.
const BUFFER: usize = 4 << 20;
/// Where the kernel is told to count what programs take.
const COUNTING: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Length of each run.
    pub run: Duration,
    /// Runs of each kind.
    pub rounds: usize,
}

/// Medians over the rounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// The program that stamps departures, a packet.
    pub egress_ns: f64,
    /// The program that stamps arrivals, a packet.
    pub ingress_ns: f64,
    /// The program at the sockets, a call.
    pub option_ns: f64,
    /// Median queueing delay at the link under DX.
    pub queue_p50_us: f64,
    /// Under the kernel's Cubic.
    pub queue_cubic_p50_us: f64,
    /// DX's goodput over Cubic's.
    pub goodput_ratio: f64,
    /// Median distance of the queueing delay from stamps to the link's own.
    pub queue_error_p50_us: f64,
    /// Queueing delay of the way there, from stamps, while the way back is idle.
    pub owd_p50_us: f64,
    /// The same while the way back is flooded.
    pub flooded_owd_p50_us: f64,
    /// TCP's smoothed RTT meanwhile.
    pub flooded_rtt_p50_us: f64,
}

/// Lets the kernel count what programs take until it is dropped.
struct Counting(Option<String>);

impl Counting {
    fn start() -> Counting {
        let before = fs::read_to_string(COUNTING).ok();
        let _ = fs::write(COUNTING, "1");
        Counting(before)
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = fs::write(COUNTING, before.trim());
        }
    }
}

/// Measures. `next` hears how far it is and what comes, and says whether to go on.
pub fn run(options: &Options, registry: &Registry, mut next: impl FnMut(f64, &str) -> bool) -> Result<Figures, Error> {
    if options.rounds == 0 {
        return Err(Error::Bad {
            what: "the number of rounds",
            value: "0".into(),
            fix: "give at least 1, better 5",
        });
    }
    let mut rounds = Vec::new();
    for round in 0..options.rounds {
        let share = |part: usize| (3 * round + part) as f64 / (3 * options.rounds) as f64;
        let mut go = |part, what: &str| {
            if next(share(part), what) {
                Ok(())
            } else {
                Err(Error::Interrupted)
            }
        };
        let mut figures = Figures::default();
        go(0, "DX and Cubic in turns")?;
        in_turns(options, registry, &mut figures)?;
        go(2, "the ACK path flooded")?;
        flooded(options, registry, &mut figures)?;
        rounds.push(figures);
    }
    let median = |of: fn(&Figures) -> f64| {
        Distribution::new(rounds.iter().map(of))
            .quantile(0.5)
            .unwrap_or(f64::NAN)
    };
    Ok(Figures {
        egress_ns: median(|f| f.egress_ns),
        ingress_ns: median(|f| f.ingress_ns),
        option_ns: median(|f| f.option_ns),
        queue_p50_us: median(|f| f.queue_p50_us),
        queue_cubic_p50_us: median(|f| f.queue_cubic_p50_us),
        goodput_ratio: median(|f| f.goodput_ratio),
        queue_error_p50_us: median(|f| f.queue_error_p50_us),
        owd_p50_us: median(|f| f.owd_p50_us),
        flooded_owd_p50_us: median(|f| f.flooded_owd_p50_us),
        flooded_rtt_p50_us: median(|f| f.flooded_rtt_p50_us),
    })
}

fn queue() -> Result<QueueSpec, Error> {
    QUEUE.parse().map_err(|_| Error::Bad {
        what: "the queue",
        value: QUEUE.into(),
        fix: "this is a bug in ccplane: please report it",
    })
}

fn line() -> LineSpec {
    LineSpec::Constant(Rate::from_bits_per_sec(RATE_BITS))
}

fn in_turns(options: &Options, registry: &Registry, figures: &mut Figures) -> Result<(), Error> {
    let dx = Contender::Ccplane {
        name: "dx".to_owned(),
        parameters: Vec::new(),
    };
    let cubic = Contender::Native {
        name: "cubic".to_owned(),
    };
    let experiment = Experiment {
        contenders: vec![dx, cubic],
        line: line(),
        line_name: "100mbit".to_owned(),
        rtt: RTT,
        queue: queue()?,
        queue_name: QUEUE.to_owned(),
        loss: Probability::NEVER.into(),
        jitter: Duration::ZERO,
        reorder: false,
        timing: Timing::default(),
        seed: 1,
        flows: 1,
        duration: options.run,
        sample_every: Duration::from_millis(20),
        command: String::new(),
    };
    let result = crate::run::run(&experiment, registry, &mut Quiet)?;
    // What the packet itself takes on the wire is no queue.
    let wire_us = f64::from(MTU) * 8e6 / RATE_BITS as f64;
    let queue_us = |at: usize| {
        let figures = result.contenders.get(at).map(|c| &c.figures);
        figures.map_or(f64::NAN, |f| (f.delay_p50_ms * 1e3 - wire_us).max(0.0))
    };
    let goodput = |at: usize| result.contenders.get(at).map_or(f64::NAN, |c| c.figures.goodput_mbit);
    figures.queue_p50_us = queue_us(0);
    figures.queue_cubic_p50_us = queue_us(1);
    figures.goodput_ratio = goodput(0) / goodput(1);
    let one_way = result.contenders.first().and_then(|c| c.figures.one_way.as_ref());
    figures.queue_error_p50_us = one_way.map_or(f64::NAN, |o| o.queue_error_p50_us);
    figures.owd_p50_us = one_way.map_or(f64::NAN, |o| o.queue_p50_us);
    Ok(())
}

/// DX one way, Cubic the other, each over a link that the other one's ACKs share.
fn flooded(options: &Options, registry: &Registry, figures: &mut Figures) -> Result<(), Error> {
    let inside = |error| Error::Emulator(ccplane_emu::Error::Tun(error));
    let counting = Counting::start();
    let mut steered = Steered::start(registry, "dx", &Parameters::new(), 0)?;
    let way = LinkConfig {
        line: line(),
        delay: Duration::from_nanos(RTT.as_nanos() / 2),
        queue: queue()?,
        ..LinkConfig::default()
    };
    let config = ccplane_emu::Config {
        forward: way.clone(),
        reverse: way,
        mtu: MTU,
        ..ccplane_emu::Config::default()
    };
    let emulator = Emulator::start(config).map_err(|error| Error::from_emulator(error, true))?;
    let stamps = steered.take_stamps().ok_or(Error::AgentEnded)?;
    let mut stamping = Stamping::start(stamps, &emulator)?;
    let kernel_name = steered.kernel_name().to_owned();
    let (senders, receivers, diag) = crate::run::open(&emulator, &kernel_name, Capabilities::ONE_WAY_DELAY, 1, BUFFER)?;

    // The flood, from the receiver's side.
    let back = emulator.sender_addr();
    let listener = emulator
        .sender_ns()
        .run(|| traffic::listen(back, BUFFER))
        .map_err(inside)?
        .map_err(Error::traffic("listen in the sender's namespace", ""))?;
    let to = listener
        .local_addr()
        .map_err(Error::traffic("read the listener's address", ""))?;
    let (flooders, flood_diag) = emulator
        .receiver_ns()
        .run(|| Ok((vec![traffic::connect(to, "cubic", BUFFER)?], Diag::open()?)))
        .map_err(inside)?
        .map_err(Error::traffic("connect through the emulated path", ""))?;
    let drains = traffic::accept(&listener, &flooders).map_err(Error::traffic("accept the connections", ""))?;

    let plan = Plan {
        duration: options.run,
        sample_every: Duration::from_millis(20),
        ahead: true,
    };
    let transfers = thread::scope(|scope| {
        let flood = scope.spawn(|| traffic::transfer(flooders, drains, flood_diag, &plan, |_, _| true));
        let dx = traffic::transfer(senders, receivers, diag, &plan, |_, _| {
            stamping.collect();
            true
        });
        let flood = flood.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        dx.and_then(|dx| flood.map(|_| dx))
    });
    let transfer = transfers.map_err(Error::traffic(
        "observe the connections",
        "is the kernel built with inet_diag (CONFIG_INET_DIAG)?",
    ))?;
    let costs = stamping.costs();
    drop(counting);
    let report = emulator.finish().map_err(|error| Error::from_emulator(error, true))?;
    steered.finish()?;

    let measured = stamping.finish(&report, &transfer);
    figures.flooded_owd_p50_us = measured.figures().map_or(f64::NAN, |o| o.queue_p50_us);
    let rtts = transfer
        .flows
        .iter()
        .flatten()
        .map(|sample| f64::from(sample.tcp.srtt_us));
    figures.flooded_rtt_p50_us = Distribution::new(rtts).quantile(0.5).unwrap_or(f64::NAN);
    let each = |program: &str| {
        let cost = costs.iter().find(|cost| cost.program == program);
        cost.map_or(f64::NAN, |cost| cost.ns as f64 / cost.calls as f64)
    };
    figures.egress_ns = each("depart_ip");
    figures.ingress_ns = each("arrive_ip");
    figures.option_ns = each("option");
    Ok(())
}
