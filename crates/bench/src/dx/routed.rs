//! The same in the kernel alone: virtual devices, and a router that limits what it forwards by a
//! token bucket.

use std::net::IpAddr;
use std::thread;

use ccplane_algorithms::Registry;
use ccplane_datapath::Capabilities;
use ccplane_lab::metrics::{self, Distribution};
use ccplane_lab::{Contender, Error};
use ccplane_linux::AlgorithmCounters;
use ccplane_linux::stamp::Cost;
use ccplane_testbed::BackendError;
use ccplane_testbed::Diag;
use ccplane_testbed::stamping::Stamping;
use ccplane_testbed::steer::SteeredAlgorithm;
use ccplane_testbed::traffic::{self, TrafficPlan, Transfer};
use ccplane_testbed::wire::{self, RoutedPair, TokenBucket};
use ccplane_units::Duration;

use super::{Link, Options, Round, SLOW, Turn};
use crate::bpf_statistics::BpfStatistics;

/// Bytes of payload that a flow may have on its way, queue included, many times over.
const BUFFER: usize = 4 << 20;

fn bucket(link: &Link) -> TokenBucket {
    TokenBucket {
        rate: link.rate,
        burst: link.burst,
        queue: link.queue,
    }
}

/// What a run showed.
struct Seen {
    transfer: Transfer,
    /// Of the stamps, where there were any, ns.
    waited: Vec<u64>,
    costs: Vec<Cost>,
    /// What the datapath counted, where it was steered.
    counters: AlgorithmCounters,
}

impl Seen {
    fn goodput_mbit(&self) -> f64 {
        let received = self
            .transfer
            .flows
            .iter()
            .filter_map(|samples| samples.last());
        metrics::mbits(
            received.map(|last| last.received).sum(),
            self.transfer.elapsed_ns,
        )
    }

    fn waited_p50_us(&self) -> f64 {
        let waited = Distribution::new(self.waited.iter().map(|ns| *ns as f64 / 1e3));
        waited.quantile(0.5).unwrap_or(f64::NAN)
    }

    /// Smoothed round trips as TCP has them, µs.
    fn rtts(&self) -> Distribution {
        let samples = self.transfer.flows.iter().flatten();
        Distribution::new(samples.map(|sample| f64::from(sample.tcp.srtt_us)))
    }
}

/// Runs the contender and then the kernel's Cubic over a bucket of this link.
pub(super) fn in_turns(options: &Options, link: &Link, registry: &Registry) -> Result<Turn, Error> {
    let run = |contender: &Contender| {
        let path = wire::routed(bucket(link), None)?;
        one(&path, contender, link.flows, false, options.run, registry)
    };
    let (ours, native) = (run(&options.contender)?, run(&Contender::native("cubic"))?);
    let rtts = native.rtts();
    let rtt = |share: f64| rtts.quantile(share).unwrap_or(f64::NAN);
    Ok(Turn {
        queue_p50_us: ours.waited_p50_us(),
        queue_cubic_p50_us: rtt(0.5) - rtt(0.0),
        goodput_mbit: ours.goodput_mbit(),
        goodput_cubic_mbit: native.goodput_mbit(),
        fallbacks: ours.counters.fallbacks,
        faults: ours.counters.faults,
    })
}

/// DX one way, Cubic the other, each over a bucket that the other one's ACKs share.
pub(super) fn flooded(
    options: &Options,
    registry: &Registry,
    round: &mut Round,
) -> Result<(), Error> {
    let statistics = BpfStatistics::enable();
    let path = wire::routed(bucket(&SLOW), Some(bucket(&SLOW)))?;
    let seen = one(
        &path,
        &options.contender,
        SLOW.flows,
        true,
        options.run,
        registry,
    )?;
    drop(statistics);
    round.flooded_owd_p50_us = seen.waited_p50_us();
    round.flooded_rtt_p50_us = seen.rtts().quantile(0.5).unwrap_or(f64::NAN);
    let each = |program: &str| {
        let cost = seen.costs.iter().find(|cost| cost.program == program);
        cost.map_or(f64::NAN, |cost| cost.ns as f64 / cost.calls as f64)
    };
    round.egress_ns = each("depart_ether");
    round.ingress_ns = each("arrive_ether");
    round.option_ns = each("option");
    Ok(())
}

/// One run; with `flood` Cubic sends from the receiver's side meanwhile.
fn one(
    path: &RoutedPair,
    contender: &Contender,
    flows: usize,
    flood: bool,
    length: Duration,
    registry: &Registry,
) -> Result<Seen, Error> {
    let ends = &path.ends;
    let inside = |error| BackendError::from_host(error, true);
    let mut steered = SteeredAlgorithm::start(contender, registry, None, 0, false)?;
    let congestion = steered
        .as_ref()
        .map_or(contender.algorithm(), SteeredAlgorithm::kernel_name)
        .to_owned();
    let stamps = steered.as_mut().and_then(SteeredAlgorithm::take_stamps);
    let mut stamping = stamps
        .map(|stamps| Stamping::start(stamps, ends, wire::END_DEVICES))
        .transpose()?;
    let wants = match stamping {
        Some(_) => Capabilities::ONE_WAY_DELAY,
        None => Capabilities::default(),
    };
    let (senders, receivers, diag) =
        ccplane_testbed::ends::open(ends, &congestion, wants, flows, BUFFER)?;

    // The flood, from the receiver's side.
    let back = IpAddr::from(wire::SENDER_ADDRESS);
    let plan = TrafficPlan {
        duration: length,
        sample_every: Duration::from_millis(20),
    };
    let flood = flood
        .then(|| {
            let listener = ends
                .sender
                .run(|| traffic::listen(back, BUFFER))
                .map_err(inside)?
                .map_err(Error::traffic("listen in the sender's namespace", ""))?;
            let to = listener
                .local_addr()
                .map_err(Error::traffic("read the listener's address", ""))?;
            let (flooders, diag) = ends
                .receiver
                .run(|| Ok((vec![traffic::connect(to, "cubic", BUFFER)?], Diag::open()?)))
                .map_err(inside)?
                .map_err(Error::traffic("connect over the path", ""))?;
            let drains = traffic::accept(&listener, &flooders)
                .map_err(Error::traffic("accept the connections", ""))?;
            Ok::<_, Error>((flooders, drains, diag))
        })
        .transpose()?;
    let transfers = thread::scope(|scope| {
        let flood = flood.map(|(flooders, drains, diag)| {
            scope.spawn(|| traffic::transfer(flooders, drains, diag, &plan, |_, _| true))
        });
        let transfer = traffic::transfer(senders, receivers, diag, &plan, |_, _| {
            if let Some(stamping) = &mut stamping {
                stamping.collect();
            }
            true
        });
        let flood = flood.map(|flood| {
            flood
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        transfer.and_then(|transfer| flood.transpose().map(|_| transfer))
    });
    let transfer = transfers.map_err(Error::traffic(
        "observe the connections",
        "is the kernel built with inet_diag (CONFIG_INET_DIAG)?",
    ))?;
    let costs = stamping.as_ref().map(Stamping::costs).unwrap_or_default();
    let waited = stamping
        .as_mut()
        .map(|stamping| stamping.queueing_delays(&transfer))
        .unwrap_or_default();
    let finished = steered.map(SteeredAlgorithm::finish).transpose()?;
    let counters = finished
        .map(|finished| finished.counters)
        .unwrap_or_default();
    Ok(Seen {
        transfer,
        waited,
        costs,
        counters,
    })
}
