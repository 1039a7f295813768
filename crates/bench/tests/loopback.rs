//! Kernel TCP in a namespace: needs root, says so loudly where it has none.

use std::fs::File;
use std::path::Path;

use ccplane_algorithms::Registry;
use ccplane_bench::kernel::{Options, run};
use ccplane_units::Duration;
use nix::fcntl::{Flock, FlockArg};

#[test]
fn loopback_is_measured_under_every_condition() {
    let there = nix::unistd::geteuid().is_root() && Path::new("/sys/kernel/btf/vmlinux").exists();
    if !there {
        println!(
            "SKIPPED: loopback_is_measured_under_every_condition: needs root and /sys/kernel/btf/vmlinux"
        );
        assert!(
            std::env::var_os("CCPLANE_NO_SKIP").is_none_or(|v| v != "1"),
            "loopback_is_measured_under_every_condition may not be skipped"
        );
        return;
    }
    // Names of congestion controls are global to the host: one test at a time registers any.
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open("/run/lock/ccplane.lock")
        .unwrap();
    let _host = Flock::lock(lock, FlockArg::LockExclusive).unwrap();
    let options = Options {
        flows: vec![2],
        run: Duration::from_millis(300),
        rounds: 1,
        program: env!("CARGO_BIN_EXE_ccplane-bench").into(),
    };
    let mut steps = Vec::new();
    let figures = run(&options, &Registry::builtin(), |share, next| {
        steps.push((share, next.to_owned()));
        true
    })
    .unwrap();
    // Three saturated, and seven at a fixed rate.
    assert_eq!(steps.len(), 10);
    let figure = |key: &str| figures.get(key).unwrap();
    for key in [
        "goodput_ratio_per_ack_2",
        "goodput_ratio_10ms_2",
        "cpu_ratio_10ms_2",
        "goodput_native_gbit_2",
        "fixed_cpu_ratio_10ms",
        "fixed_cpu_ratio_program",
        "fixed_cpu_ratio_process_10ms",
        "fixed_cpu_ratio_process_per_ack",
    ] {
        let value = figure(key);
        assert!(value > 0.05 && value < 200.0, "{key} is {value}");
    }
    assert!(
        figure("reports_per_s_per_ack_2") > 2.0 * figure("reports_per_s_10ms_2"),
        "{figures:?}"
    );
    // Each way of isolation was measured.
    for key in [
        "isolation_acks_per_gb",
        "isolation_native_path_ns_per_ack",
        "isolation_program_run_ns",
        "isolation_interpreter_ns",
        "isolation_round_trip_p95_us",
    ] {
        assert!(figure(key) > 0.0, "{key} is {}", figure(key));
    }
    assert!(figure("isolation_thread_us_per_report").is_finite());
    assert!(figure("isolation_process_us_per_report").is_finite());
    let left = std::fs::read_dir("/run/netns")
        .into_iter()
        .flatten()
        .flatten();
    let ours = format!("ccplane-{}-", std::process::id());
    let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with(&ours));
    assert_eq!(left.count(), 0, "namespaces are left");
}
