//! The figures of `ccplane bench sim`, for work on the simulator itself.

use ccplane_sim::{PACKET_BYTES, STEERED_FLOW_EXTRA_BYTES, SimError, bench};
use ccplane_units::Time;

fn main() -> Result<(), SimError> {
    let ms = |ms: u64| Time::from_micros(ms * 1_000);
    let runs = 3;
    let show = |name: &str, cost: bench::Cost| {
        println!(
            "{name}: {:.1} ns/hop, {:.3} events/hop, {} hops, {:.4} s, {} MB",
            cost.ns_per_hop(),
            cost.events_per_hop(),
            cost.hops,
            cost.cpu_s,
            cost.memory / 1_000_000
        );
    };
    show(
        "incast50",
        bench::cost(runs, Time::ZERO, ms(1_000), || bench::incast(50, 250, false))?,
    );
    show(
        "incast50_ccp",
        bench::cost(runs, Time::ZERO, ms(1_000), || bench::incast(50, 250, true))?,
    );
    show(
        "dumbbell",
        bench::cost(runs, Time::ZERO, ms(60_000), || bench::dumbbell(160, 1))?,
    );
    show(
        "dumbbell_big",
        bench::cost(runs, Time::ZERO, ms(60_000), || bench::dumbbell(bench::BIG_QUEUE, 1))?,
    );
    show("incast10000", bench::cost(runs, ms(100), ms(400), bench::incast_10000)?);
    let tree = bench::cost(1, ms(0), ms(1), || bench::fat_tree(16))?;
    show("fattree1024", tree);
    println!("fattree bytes per host {}", tree.memory / 1024);
    println!(
        "packet {PACKET_BYTES}, steered {STEERED_FLOW_EXTRA_BYTES}, idle {}",
        bench::idle_flow_bytes()?
    );
    println!("speedup {:.2}", bench::parallel_speedup()?);
    Ok(())
}
