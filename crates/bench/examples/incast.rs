//! 50 hosts send to one over 10 Gbit/s: what `ccplane bench sim` counts instructions of, under
//! callgrind.
//!
//! `incast [milliseconds] [steered]`: run it for two spans and take the difference.

use ccplane_bench::sim::incast;
use ccplane_sim::SimError;
use ccplane_units::Time;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let milliseconds = args.next().map_or(Ok(20), |arg| arg.parse())?;
    let steered = args.next().is_some_and(|arg| arg == "steered");
    println!("{}", run(milliseconds, steered)?);
    Ok(())
}

fn run(milliseconds: u64, steered: bool) -> Result<String, SimError> {
    let mut sim = incast(50, 250, steered)?;
    sim.run_until(Time::from_micros(milliseconds * 1_000))?;
    let counters = sim.counters();
    Ok(format!(
        "{} hops, {} events, digest {:016x}",
        counters.hops,
        counters.events,
        sim.digest()
    ))
}
