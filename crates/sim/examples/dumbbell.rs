//! Example: two Cubic flows share a bottleneck of 96 Mbit/s for a minute.

use ccplane_sim::{FlowSpec, LinkSpec, SimError, SimOptions, Simulation, topology};
use ccplane_units::{Duration, Rate, Time};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for (n, mbit) in (1..).zip(goodputs()?) {
        println!("flow {n}: {mbit:.1} Mbit/s");
    }
    Ok(())
}

/// Returns the goodput of each flow, Mbit/s.
fn goodputs() -> Result<Vec<f64>, Box<dyn std::error::Error>> {
    let rtt = Duration::from_millis(20);
    let access = LinkSpec::new("1gbit".parse()?, Duration::ZERO);
    let bottleneck = LinkSpec::new(Rate::from_bits_per_sec(96_000_000), rtt / 2);
    let network = topology::dumbbell(
        2,
        &access,
        bottleneck.clone().with_queue("droptail:1bdp".parse()?, rtt),
        bottleneck,
    )?;
    let host = |name: &str| {
        network
            .find_node(name)
            .ok_or(SimError::InvalidTopology(format!(
                "there is no host `{name}`"
            )))
    };
    let pairs = [
        (host("left1")?, host("right1")?),
        (host("left2")?, host("right2")?),
    ];

    let mut sim = Simulation::new(network, SimOptions::default())?;
    let mut flows = Vec::new();
    for (from, to) in pairs {
        flows.push(sim.add_flow(FlowSpec::new(from, to))?);
    }
    let minute = Time::from_micros(60_000_000);
    sim.run_until(minute)?;
    let views = flows.into_iter().filter_map(|flow| sim.flow(flow));
    Ok(views
        .map(|view| view.received as f64 * 8.0 / minute.as_secs_f64() / 1e6)
        .collect())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_two_flows_fill_the_link_and_share_it() {
        let goodputs = super::goodputs().expect("a valid network");
        let sum: f64 = goodputs.iter().sum();
        // A packet of 1500 bytes on the wire carries 1448 bytes of payload.
        assert!((91.0..92.7).contains(&sum), "{goodputs:?}");
        assert!(
            goodputs.iter().all(|mbit| *mbit > 0.3 * sum),
            "{goodputs:?}"
        );
    }
}
