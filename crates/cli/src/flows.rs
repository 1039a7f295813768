//! `ccplane flows`: live flows of attached algorithms, and totals of each algorithm.

use std::io::IsTerminal;
use std::time::Instant;

use ccplane_units::Duration;
use clap::Args;

use crate::exit::{Failure, FailureKind};
use crate::metrics::{AlgorithmStats, StampStats};
use crate::{doctor, interrupt, output, paths};

#[derive(Args)]
pub struct FlowsArgs {
    /// Refresh every second until Ctrl-C; with --json, print one line each time.
    #[arg(long, short)]
    watch: bool,
}

/// Interval between refreshes.
const REFRESH_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);
/// Interval at which the interrupt flag is checked.
const INTERRUPT_POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(50);
/// Moves the cursor to the upper left corner and clears the screen below it (ECMA-48).
const CLEAR_SCREEN: &str = "\x1b[H\x1b[J";

/// Returns the totals of every attached algorithm since its registration.
pub fn stats() -> Result<Vec<AlgorithmStats>, Failure> {
    let observed = ccplane_linux::observe().map_err(|e| Failure::new(FailureKind::Failed, e))?;
    let stamps =
        ccplane_linux::stamp::observe().map_err(|e| Failure::new(FailureKind::Failed, e))?;
    Ok(observed
        .iter()
        .map(|o| {
            let c = o.counters();
            let stamped = stamps
                .iter()
                .find(|s| s.name() == o.name())
                .map(|s| s.counters());
            AlgorithmStats {
                algorithm: o.name().to_owned(),
                flows: c.flows,
                flows_without_slot: c.without_slot,
                flows_in_fallback: o.flows().filter(|f| f.in_fallback).count() as u64
                    + c.without_slot,
                reports: c.reports,
                ring_losses: c.ring_lost,
                fallbacks: c.fallbacks,
                faults: c.faults,
                table_full: c.table_full,
                share_full: c.share_full,
                stamps: stamped.map(|s| StampStats {
                    flows: o.flows().filter(|f| f.has_queue_delay).count() as u64,
                    samples: c.stamps,
                    impossible: c.stamps_dropped,
                    departed: s.departed,
                    arrived: s.arrived,
                    bursts: s.bursts,
                    agreed: s.agreed,
                    not_agreed: s.not_agreed,
                    unstamped: s.unstamped,
                    malformed: s.malformed,
                    no_room: s.no_room,
                }),
            }
        })
        .collect())
}

#[expect(clippy::disallowed_methods, reason = "refreshes once a second")]
pub fn run(args: &FlowsArgs, json: bool) -> Result<(), Failure> {
    paths::apply();
    doctor::require_bpf_access("`ccplane flows` reads the kernel's BPF maps")?;
    if !args.watch {
        return show(json);
    }
    let stop = interrupt::flag()?;
    let terminal = std::io::stdout().is_terminal();
    while !interrupt::raised(&stop) && !output::lost() {
        if terminal && !json {
            output::write_raw(CLEAR_SCREEN);
        }
        show(json)?;
        let next = Instant::now() + REFRESH_INTERVAL;
        while Instant::now() < next && !interrupt::raised(&stop) {
            std::thread::sleep(INTERRUPT_POLL_INTERVAL);
        }
    }
    Ok(())
}

/// Returns what controls a flow. `alone`: the algorithm is a standalone program, without an agent.
fn steered_by(flow: &ccplane_linux::FlowView, alone: bool) -> &'static str {
    match (flow.in_fallback, flow.agent_controlled, alone) {
        (true, ..) => "fallback",
        (false, true, true) => "program",
        (false, true, false) => "agent",
        (false, false, _) => "starting",
    }
}

/// Returns the age of the last heartbeat if it exceeds the agent timeout. A standalone program has
/// no heartbeats.
fn agent_silence(observed: &ccplane_linux::PinnedView) -> Option<Duration> {
    (!observed.is_standalone())
        .then(|| observed.heartbeat_age())
        .filter(|silence| *silence > observed.fallback_after())
}

/// Prints everything once.
fn show(json: bool) -> Result<(), Failure> {
    let totals = stats()?;
    let observed = ccplane_linux::observe().map_err(|e| Failure::new(FailureKind::Failed, e))?;
    let flows: Vec<_> = observed
        .iter()
        .flat_map(|o| {
            o.flows()
                .map(|flow| (steered_by(&flow, o.is_standalone()), flow))
        })
        .collect();
    if json {
        let flows: Vec<_> = flows
            .iter()
            .map(|(steered_by, f)| {
                serde_json::json!({
                    "flow": f.flow, "algorithm": f.algorithm,
                    "local": f.local.to_string(), "peer": f.peer.to_string(),
                    "cwnd_bytes": f.cwnd.get(), "cwnd_segments": f.cwnd.get() / f.mss.get().max(1),
                    "mss": f.mss.get(),
                    "ssthresh_bytes": (f.ssthresh.get() != u64::MAX).then_some(f.ssthresh.get()),
                    "pacing_rate_bytes_per_s": (f.rate.bytes_per_sec() != 0).then_some(f.rate.bytes_per_sec()),
                    "srtt_us": f.srtt.as_micros(),
                    "delivery_rate_bytes_per_s": f.delivered_rate.bytes_per_sec(),
                    "acked_bytes": f.acked.get(), "lost_packets": f.lost, "reports": f.reports,
                    "faults": f.faults, "fallbacks": f.fallbacks, "fallback": f.in_fallback,
                    "owned": f.agent_controlled,
                    "stamped": f.has_queue_delay, "steered_by": steered_by,
                    "ca_state": f.ca_state,
                })
            })
            .collect();
        let gone: Vec<&str> = observed
            .iter()
            .filter(|o| agent_silence(o).is_some())
            .map(ccplane_linux::PinnedView::name)
            .collect();
        println!(
            "{}",
            serde_json::json!({ "algorithms": totals, "flows": flows, "agents_gone": gone })
        );
        return Ok(());
    }
    if totals.is_empty() {
        println!("no algorithm is attached; attach one with `ccplane attach --alg cubic`");
        return Ok(());
    }
    let rows: Vec<Vec<String>> = totals
        .iter()
        .map(|s| {
            let numbers = [
                s.flows,
                s.flows_in_fallback,
                s.flows_without_slot,
                s.reports,
                s.ring_losses,
                s.fallbacks,
                s.faults,
                s.table_full,
                s.share_full,
            ];
            std::iter::once(s.algorithm.clone())
                .chain(numbers.map(|n| n.to_string()))
                .collect()
        })
        .collect();
    let headings = [
        "algorithm",
        "flows",
        "in fallback",
        "without slot",
        "reports",
        "ring losses",
        "fallbacks",
        "faults",
        "table full",
        "share full",
    ];
    print!("{}", ccplane_report::Table::new(headings, rows).to_text());
    for (name, s) in totals
        .iter()
        .filter_map(|t| Some((&t.algorithm, t.stamps.as_ref()?)))
    {
        println!(
            "{name}: time stamps on {} of its flows, the others use the RTT; {} connections \
             negotiated them, {} peers do not support them; {} samples, {} implausible, {} \
             malformed, {} without space next to SACK, {} on a device without stamps, {} \
             super-packets not stamped",
            s.flows,
            s.agreed,
            s.not_agreed,
            s.samples,
            s.impossible,
            s.malformed,
            s.no_room,
            s.unstamped,
            s.bursts
        );
    }
    for o in &observed {
        if let Some(silence) = agent_silence(o) {
            println!(
                "{}: no heartbeat from its agent for {:.1} s, longer than its fallback_after of \
                 {}, and its flows run NewReno; restart `ccplane attach` if it has exited, or run \
                 `ccplane detach`",
                o.name(),
                silence.as_secs_f64(),
                o.fallback_after()
            );
        }
    }
    if !flows.is_empty() {
        let rows: Vec<Vec<String>> = flows
            .iter()
            .map(|(steered_by, f)| {
                vec![
                    f.algorithm.clone(),
                    f.local.to_string(),
                    f.peer.to_string(),
                    (f.cwnd.get() / f.mss.get().max(1)).to_string(),
                    f.srtt.to_string(),
                    format!("{:.1}", f.delivered_rate),
                    f.lost.to_string(),
                    f.reports.to_string(),
                    if f.has_queue_delay { "stamps" } else { "RTT" }.to_owned(),
                    (*steered_by).to_owned(),
                ]
            })
            .collect();
        let headings = [
            "algorithm",
            "local",
            "peer",
            "cwnd",
            "srtt",
            "delivery",
            "lost",
            "reports",
            "delay from",
            "steered by",
        ];
        println!();
        print!("{}", ccplane_report::Table::new(headings, rows).to_text());
    }
    Ok(())
}
