//! `ccplane bench capi`: an ACK through the functions of `ccplane.h`, and through those of the
//! reference's library. CPU time of this thread, medians. And a transport in C beside ours, behind
//! one link.

use std::path::Path;

use ccplane_algorithms::Registry;
use ccplane_capi::bench::{dropin_on_ack, on_ack};
use ccplane_testbed::cpu::this_thread_ns;

use crate::rounds::median;
use crate::{Error, Figures};

mod linked;

const RENO: &str = include_str!("programs/reno_10ms.ccp");

/// Odd, so that a median is a run.
const RUNS: usize = 15;
/// ACKs a run: as in `bench datapath`, with which the figures compare.
const ACKS: u64 = 400_000;

/// Runs the benchmark. With a program that was built of `examples/c/udp.c` its goodput and delay
/// are set beside our transport's.
pub fn run(udp: Option<&Path>, registry: &Registry) -> Result<Figures, Error> {
    let mut figures = Figures::default();
    let native = on_ack(RENO, RUNS, ACKS, this_thread_ns).map_err(Error::failed)?;
    figures
        .add("on_ack_ns", median(native), "ns an ACK")
        .at_most(40.0)
        .beside("bench datapath's reno_10ms_ns, without C around it");
    let dropin = dropin_on_ack(RENO, RUNS, ACKS, this_thread_ns).map_err(Error::failed)?;
    figures
        .add("dropin_on_ack_ns", median(dropin), "ns an ACK")
        .at_most(90.0)
        .beside("libccp 239 to 402 on such a VM");
    figures.note(format!(
        "CPU time, medians of {RUNS} runs of {ACKS} ACKs of Reno's fold, a report each 10 ms; the algorithm in the same thread"
    ));
    if let Some(program) = udp {
        linked::run(program, registry, &mut figures)?;
    }
    Ok(figures)
}
