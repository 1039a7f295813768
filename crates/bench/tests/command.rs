//! The program as a person meets it.

use std::process::{Command, Output};

fn run(arguments: &[&str], path: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccplane-bench"));
    command.args(arguments).env_remove("CCPLANE_LOG");
    command.envs(path.map(|path| ("PATH", path)));
    command.output().expect("the program under test starts")
}

#[track_caller]
fn fails(arguments: &[&str], code: i32, says: &str) {
    let output = run(arguments, None);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.contains(says) && !text.contains("panicked"), "{text}");
}

#[test]
fn the_benchmark_of_dx_takes_what_asks_for_time_stamps() {
    fails(&["dx", "--alg", "native:cubic"], 2, "kernel algorithm");
    fails(&["dx", "--alg", "reno"], 2, "asks for no time stamps");
    fails(&["dx", "--alg", "dx:headroom=wide"], 2, "headroom");
    fails(&["dx", "--alg", "./mine.py"], 2, "is a Python file");
}

#[test]
fn its_command_line_is_that_of_ccplane_bench() {
    let said = |arguments: &[&str]| {
        let output = run(arguments, None);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(said(&["--help"]).contains("Usage: ccplane bench [OPTIONS] <COMMAND>"));
    assert_eq!(
        said(&["--version"]),
        format!("ccplane-bench {}\n", env!("CARGO_PKG_VERSION"))
    );
    // What is counted under callgrind prints its hops alone.
    let hops = said(&["sim", "--only-incast-ms", "1"]);
    assert!(
        hops.trim().parse::<u64>().is_ok_and(|hops| hops > 0),
        "{hops}"
    );
    fails(&["dxx"], 2, "dxx");
}

#[test]
fn bench_python_runs_the_python_package() {
    let output = run(&["python"], Some("/nonexistent"));
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("python3 cannot be run"), "{said}");
}
