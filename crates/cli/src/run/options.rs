//! Scenario of the options of `ccplane run`: a single bottleneck.

use std::path::Path;

use ccplane_lab::Error;
use ccplane_lab::scenario::{Problem, Scenario, toml_list, toml_string};
use ccplane_units::Duration;

use super::{RunArgs, TransportArg, failure};
use crate::exit::{Failure, FailureKind};

/// Sample interval of runs that would be sampled more often by default. Long enough for sockets on
/// real packets.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
/// Duration from which [`SAMPLE_INTERVAL`] is the default: a run has 1,000 samples.
const DEFAULT_SAMPLING_DURATION_MIN: Duration = Duration::from_secs(20);

/// Builds the scenario of the options.
pub(super) fn scenario(args: &RunArgs) -> Result<Scenario, Failure> {
    if args.alg.is_empty() && args.vs.is_empty() {
        return Err(failure(Error::NoContender));
    }
    let scenario = Scenario::parse("options", &scenario_text(args), Path::new("."));
    scenario.map_err(|problem| blame_option(Error::Scenario(problem), args))
}

/// Returns the equivalent scenario file, which is kept with the results.
fn scenario_text(args: &RunArgs) -> String {
    let contenders = toml_list(args.alg.iter().chain(&args.vs));
    let sample = if args.duration < DEFAULT_SAMPLING_DURATION_MIN {
        format!("sample = {}\n", toml_string(SAMPLE_INTERVAL))
    } else {
        String::new()
    };
    let capacity = match &args.trace {
        Some(file) => {
            let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            format!("trace = {}", toml_string(file.display()))
        }
        None => format!("rate = {}", toml_string(args.rate)),
    };
    let transport = match args.transport {
        TransportArg::Plain => "",
        TransportArg::Rc3 => "\n[transport]\nrc3 = true\n",
    };
    format!(
        "contenders = {contenders}\nduration = {}\n{sample}\n\
         [topology.dumbbell]\nrtt = {}\n{capacity}\nqueue = {}\nloss = {}\n\n\
         [[workload]]\nbulk = {{ flows = {} }}\n{transport}",
        toml_string(args.duration),
        toml_string(args.rtt),
        toml_string(&args.queue),
        toml_string(args.loss),
        args.flows,
    )
}

/// Returns the setting that a problem concerns: `rtt`, `queue`, `bulk`. A heading belongs to the
/// first setting of its table.
fn setting_of(problem: &Problem) -> Option<&str> {
    let from_line = problem
        .text()
        .lines()
        .skip(problem.line().saturating_sub(1));
    let mut settings = from_line.filter_map(|line| line.split_once(" = "));
    settings.next().map(|(setting, _)| setting)
}

/// Converts an error of a run without a file. A problem names the option instead of a line in a
/// text that the user did not write.
pub(super) fn blame_option(error: Error, args: &RunArgs) -> Failure {
    let Error::Scenario(problem) = &error else {
        return failure(error);
    };
    let option = match setting_of(problem) {
        Some("contenders") => match (args.alg.as_slice(), args.vs.as_slice()) {
            (_, []) => "--alg".to_owned(),
            ([], _) => "--vs".to_owned(),
            _ => "--alg and --vs".to_owned(),
        },
        Some("duration" | "sample") => format!("--duration {}", args.duration),
        Some("rtt") => format!("--rtt {}", args.rtt),
        Some("trace") => {
            let file = args.trace.as_deref().unwrap_or(Path::new(""));
            format!("--trace {}", file.display())
        }
        Some("rate") => format!("--rate {}", args.rate),
        Some("queue") => format!("--queue {}", args.queue),
        Some("loss") => format!("--loss {}", args.loss),
        Some("bulk") => format!("--flows {}", args.flows),
        Some("rc3") => "--transport rc3".to_owned(),
        _ => return failure(error),
    };
    let text = format!("{option}: {}", problem.message());
    let usage = Failure::text(FailureKind::Usage, text);
    match problem.fix() {
        Some(fix) => usage.hint(fix),
        None => usage,
    }
}

#[cfg(test)]
mod tests {
    use ccplane_lab::scenario::Topology;
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct TestCommand {
        #[command(flatten)]
        run: RunArgs,
    }

    fn parse(options: &str) -> RunArgs {
        let words = std::iter::once("run").chain(options.split_whitespace());
        TestCommand::try_parse_from(words).expect(options).run
    }

    #[test]
    fn every_option_is_in_the_scenario() {
        let options = "--alg cubic:report=10ms --vs native:reno --duration 30s --rtt 7ms \
                       --rate 48mbit --queue prio:6:shared:1bdp --loss 1% --flows 3 \
                       --transport rc3";
        let scenario = scenario(&parse(options)).unwrap_or_else(|_| panic!("{options}"));
        let contenders: Vec<String> = scenario.contenders.iter().map(|c| c.to_string()).collect();
        assert_eq!(contenders, ["cubic:report=10ms", "native:reno"]);
        assert_eq!(scenario.duration, Duration::from_secs(30));
        assert!(scenario.transport.rc3.is_some());
        let Topology::Dumbbell {
            bottleneck,
            reverse_delay,
            ..
        } = &scenario.topology
        else {
            panic!("{:?}", scenario.topology)
        };
        assert_eq!(bottleneck.delay + *reverse_delay, Duration::from_millis(7));
        assert_eq!(bottleneck.line_name, "48mbit");
        assert_eq!(bottleneck.queue_name, "prio:6:shared:1bdp");
        assert_eq!(bottleneck.loss, "1%".parse().expect("a share"));
        assert!(scenario.text.contains("flows = 3"), "{}", scenario.text);
    }

    #[test]
    fn short_runs_are_sampled_every_20_ms() {
        for (duration, sampled) in [("19s", true), ("20s", false)] {
            let args = parse(&format!("--alg reno --duration {duration}"));
            let text = scenario_text(&args);
            assert_eq!(text.contains("sample = \"20ms\""), sampled, "{text}");
            let scenario = scenario(&args).unwrap_or_else(|_| panic!("{text}"));
            assert_eq!(scenario.sample_every, SAMPLE_INTERVAL);
        }
    }

    #[test]
    fn a_problem_names_its_setting() {
        for (options, setting) in [
            ("--duration 0s", "duration"),
            ("--queue droptial:1bdp", "queue"),
            ("--flows 0", "bulk"),
            ("--trace missing.trace", "trace"),
        ] {
            let text = scenario_text(&parse(&format!("--alg reno {options}")));
            let problem = Scenario::parse("options", &text, Path::new(".")).unwrap_err();
            assert_eq!(setting_of(&problem), Some(setting), "{problem}");
        }
    }
}
