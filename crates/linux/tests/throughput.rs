//! Throughput over loopback beside native Reno: printed, not judged, since it takes an idle machine. `ccplane bench
//! kernel` judges.

mod common;

use ccplane_linux::bench::loopback;
use ccplane_units::Duration;
use common::*;

#[test]
#[ignore = "takes an idle machine and half a minute"]
fn beside_native_reno() {
    if !can_run("beside_native_reno") {
        return;
    }
    let _host = lock_host();
    let length = Duration::from_millis(1500);
    for flows in [1, 8, 64] {
        for interval_us in [0, 10_000] {
            let mut ratios = Vec::new();
            let mut cpus = Vec::new();
            for _ in 0..5 {
                let native = loopback("reno", flows, length).expect("it runs");
                let agent = agent_of("t_bench", interval_us);
                let running = Running::start(load(&agent, &options(500)), agent);
                let ours = loopback("ccp_t_bench", flows, length).expect("it runs");
                let kernel = running.stop();
                let (_, _, counters) = kernel.counters().next().expect("one");
                eprintln!(
                    "{flows} flows, {interval_us} us: native {:.1} Gbit/s {:.2} CPUs, ours {:.1} Gbit/s {:.2} CPUs, {counters:?}",
                    native.bits_per_second * 1e-9,
                    native.own_cpus,
                    ours.bits_per_second * 1e-9,
                    ours.own_cpus
                );
                ratios.push(ours.bits_per_second / native.bits_per_second);
                cpus.push((ours.own_cpus / ours.bits_per_second) / (native.own_cpus / native.bits_per_second));
            }
            ratios.sort_by(f64::total_cmp);
            cpus.sort_by(f64::total_cmp);
            eprintln!(
                "{flows} flows, {interval_us} us: goodput ratio {:.3}, CPU per bit ratio {:.3}",
                ratios[2], cpus[2]
            );
        }
    }
}
