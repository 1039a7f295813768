//! 50 hosts send to one over 10 Gbit/s: what `ccplane bench sim` counts instructions of, under callgrind.
//!
//! `incast [milliseconds]`: run it for two spans and take the difference.

use ccplane_sim::{FlowSpec, LinkSpec, SimError, SimOptions, Simulation, topology};
use ccplane_units::{Duration, Rate, Time};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let milliseconds = std::env::args().nth(1).map_or(Ok(20), |arg| arg.parse())?;
    println!("{}", run(milliseconds)?);
    Ok(())
}

fn run(milliseconds: u64) -> Result<String, SimError> {
    let link = LinkSpec::new(Rate::from_bits_per_sec(10_000_000_000), Duration::from_micros(5));
    let queue = "droptail:250p"
        .parse()
        .map_err(|_| SimError::Shape("no queue".into()))?;
    let network = topology::incast(50, &link, link.clone().with_queue(queue, Duration::ZERO))?;
    let mut sim = Simulation::new(network, SimOptions::default())?;
    let hosts: Vec<_> = sim.network().hosts().collect();
    for sender in &hosts[1..] {
        sim.add_flow(FlowSpec::new(*sender, hosts[0]))?;
    }
    sim.run_until(Time::from_micros(milliseconds * 1_000))?;
    let counters = sim.counters();
    Ok(format!(
        "{} hops, {} events, digest {:016x}",
        counters.hops,
        counters.events,
        sim.digest()
    ))
}
