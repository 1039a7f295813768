//! The transport in C of `examples/c/udp.c` behind the link that it emulates, beside our transport
//! behind the same link in the simulator.
//!
//! Both are in virtual time, so that the figures are the same on every machine.

use std::path::Path;
use std::process::Command;

use ccplane_algorithms::Registry;
use ccplane_lab::scenario::Scenario;
use ccplane_lab::sim::Sim;
use ccplane_lab::{Contender, MTU, NoProgress, RunOptions, run as run_once};
use ccplane_qdisc::{QueueSpec, Size};
use ccplane_report::TargetRange;
use ccplane_units::{Bytes, Duration, Rate};
use serde_json::Value;

use crate::{Error, Figures};

const ALGORITHMS: [&str; 4] = ["reno", "cubic", "bbr", "copa"];
const MBIT: u64 = 96;
const RTT_MS: u64 = 20;
/// Several of Reno's and Cubic's cycles.
const SECONDS: u64 = 60;
/// Within 5 %: what one transport may differ from the other.
const ALIKE: TargetRange = TargetRange::Within(0.95, 1.05);

/// Goodput in Mbit/s, and the median of the packets' time in the queue and on the line in ms.
struct Run {
    goodput: f64,
    delay: f64,
}

/// Adds the figures of each algorithm. `program` is built of `examples/c/udp.c`.
pub(super) fn run(program: &Path, registry: &Registry, figures: &mut Figures) -> Result<(), Error> {
    for name in ALGORITHMS {
        let (theirs, ours) = (in_c(program, name)?, simulated(name, registry)?);
        let mut add = |what: &str, c: f64, transport: f64, unit| {
            figures.add(format!("udp_{what}_{name}"), c, unit);
            figures.add(format!("udp_{what}_{name}_transport"), transport, unit);
            figures
                .add(
                    format!("udp_{what}_ratio_{name}"),
                    c / transport,
                    "of our transport's",
                )
                .target(ALIKE);
        };
        add("goodput_mbit", theirs.goodput, ours.goodput, "Mbit/s");
        add("delay_p50_ms", theirs.delay, ours.delay, "ms");
    }
    figures.note(format!(
        "udp_…: examples/c/udp.c behind {MBIT} Mbit/s, {RTT_MS} ms and a queue of one BDP, beside the same algorithm on our transport in the \
         simulator, {SECONDS} s; both in virtual time. Delays count from when a packet comes to the queue until it has left the line. In C \
         each packet is acknowledged, by our transport every second one"
    ));
    Ok(())
}

fn in_c(program: &Path, name: &str) -> Result<Run, Error> {
    let words = [
        ("--seconds", SECONDS),
        ("--mbit", MBIT),
        ("--rtt-ms", RTT_MS),
    ];
    let mut command = Command::new(program);
    command.arg(name);
    for (word, value) in words {
        command.arg(word).arg(value.to_string());
    }
    let failed = |why: String| Error::Failed {
        what: format!("{}: {why}", program.display()),
        hint: Some("build examples/c/udp.c as docs/c.md says, and give the path of the program"),
    };
    let said = command
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !said.status.success() {
        return Err(failed(
            String::from_utf8_lossy(&said.stderr).trim().to_owned(),
        ));
    }
    let told: Value = serde_json::from_slice(&said.stdout)
        .map_err(|error| failed(format!("what it said: {error}")))?;
    let number = |key: &str| {
        let number = told[key].as_f64();
        number.ok_or_else(|| failed(format!("it did not say {key}")))
    };
    // What it calls the queue is without the packet's own time.
    let line = Rate::from_bits_per_sec(MBIT * 1_000_000).transmission_time(Bytes::new(MTU.into()));
    Ok(Run {
        goodput: number("goodput_mbit")?,
        delay: number("queue_median_ms")? + line.as_nanos() as f64 / 1e6,
    })
}

fn simulated(name: &str, registry: &Registry) -> Result<Run, Error> {
    let (rate, rtt) = (
        Rate::from_bits_per_sec(MBIT * 1_000_000),
        Duration::from_millis(RTT_MS),
    );
    let queue = QueueSpec::DropTail(Size::Bytes(rate.bytes_in(rtt).get()));
    let scenario = Scenario::dumbbell(
        vec![Contender::ccplane(name)],
        rate,
        rtt,
        queue,
        Duration::from_secs(SECONDS),
    );
    let once = RunOptions::single(1, "ccplane bench capi");
    let result = run_once(&Sim::default(), &scenario, registry, &once, &NoProgress)?;
    let told = result
        .contenders
        .first()
        .map(|contender| &contender.metrics);
    Ok(Run {
        goodput: told.map_or(f64::NAN, |figures| figures.goodput_mbit),
        delay: told.map_or(f64::NAN, |figures| figures.delay_p50_ms),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_another_is_named() {
        for (program, reason) in [
            ("/nowhere/udp", "No such file"),
            ("/bin/false", "/bin/false: "),
            ("/bin/echo", "what it said"),
        ] {
            let Err(Error::Failed {
                what,
                hint: Some(hint),
            }) = in_c(Path::new(program), "reno")
            else {
                panic!("{program} is no transport");
            };
            assert!(what.contains(program) && what.contains(reason), "{what}");
            assert!(hint.contains("docs/c.md"), "{hint}");
        }
    }
}
