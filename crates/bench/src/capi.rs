//! `ccplane bench capi`: an ACK through the functions of `ccplane.h`, and through those of the reference's library. CPU time of this thread, medians.

use ccplane_capi::bench::{dropin_on_ack, on_ack};
use ccplane_lab::cpu::this_thread_ns;

use crate::rounds::median;
use crate::{Error, Figures};

const RENO: &str = include_str!("programs/reno_10ms.ccp");

/// Odd, so that a median is a run.
const RUNS: usize = 15;
/// ACKs a run: as in `bench datapath`, with which the figures compare.
const ACKS: u64 = 400_000;

/// Runs the benchmark.
pub fn run() -> Result<Figures, Error> {
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
    Ok(figures)
}
