//! `ccplane emu … -- COMMAND`: any command behind an emulated link; `emu list` and `emu set` while it runs.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use ccplane_emu::{Config, EmuReport, Gso, HOST_VARIABLE, LinkConfig, LinkLog, Timing, remote, shell};
use ccplane_qdisc::{LineSpec, LossModel, Piecewise, QueueSpec, Size, Trace};
use ccplane_units::{Duration, Rate};
use clap::{Args, Subcommand, ValueEnum};

use crate::doctor;
use crate::exit::{Failure, Kind};

/// The link, and what runs behind it.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct EmuArgs {
    #[command(subcommand)]
    remote: Option<Remote>,
    /// Rate of the link, both ways; without it and without a trace it is unlimited.
    #[arg(long, conflicts_with = "trace")]
    rate: Option<Rate>,
    /// Rate from the host to the command, where it differs.
    #[arg(long, value_name = "RATE", conflicts_with = "down_trace")]
    down_rate: Option<Rate>,
    /// A trace of packet delivery opportunities (Mahimahi's format) instead of a rate, both ways.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The trace from the host to the command, where it differs.
    #[arg(long, value_name = "FILE")]
    down_trace: Option<PathBuf>,
    /// A file of rates instead of one, both ways: on every line a time and the rate from then on, as in `0s 10mbit`; a rate of `0` is
    /// an outage.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rate", "trace"])]
    rate_file: Option<PathBuf>,
    /// Propagation delay, each way.
    #[arg(long, default_value = "0ms")]
    delay: Duration,
    /// How far from it each packet's delay may be, evenly distributed.
    #[arg(long, default_value = "0ms")]
    jitter: Duration,
    /// Let packets of different delays overtake each other; otherwise they wait for those before them.
    #[arg(long, requires = "jitter")]
    reorder: bool,
    /// The queue of each direction: `droptail:` and a size in BDP, packets or bytes (`1bdp`, `160p`, `240kB`, `inf`),
    /// `fq_codel`, `codel`, `sfq`, `prio:3:1bdp`, `red:min=30p:max=90p:limit=1bdp`, `ecn:65p`, `dualpi2`,
    /// `tbf:rate=96mbit:burst=32kB:limit=1bdp`, `rcp`, with settings as in `codel:target=5ms:ecn`.
    /// Without it `droptail:1bdp`, or `droptail:1000p` where there is no delay and so no BDP.
    #[arg(long)]
    queue: Option<QueueSpec>,
    /// Packets that are lost at random, each way: a share, or `gilbert:p=1%:r=25%` for losses in bursts.
    #[arg(long, default_value = "0%")]
    loss: LossModel,
    /// Seed of loss, jitter and queue: the n-th packet's fate depends on it and on n only.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How to wait for a packet's time.
    #[arg(long, value_enum, default_value = "balanced")]
    timing: TimingArg,
    /// Whether packets of one flow may be handed over together.
    #[arg(long, value_enum, default_value = "auto")]
    gso: GsoArg,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, ValueEnum)]
enum TimingArg {
    /// Sleep: a tenth of a millisecond late or so.
    Balanced,
    /// Spin while packets are on the way: microseconds late, for a core.
    Precise,
}

#[derive(Clone, Copy, ValueEnum)]
enum GsoArg {
    /// Where they take the line less than 100 us together.
    Auto,
    /// Always: the fewest system calls, and bursts that no line has.
    On,
    /// Never.
    Off,
}

#[derive(Subcommand)]
enum Remote {
    /// The emulations that are running.
    List,
    /// Change a running emulation: `set ID [up|down] rate 48mbit`, `… delay 5ms`, `… jitter 1ms`, `… loss 0.1%`.
    Set {
        /// Its name, as `list` shows it.
        id: String,
        /// What to change.
        #[arg(required = true, num_args = 2..=3)]
        change: Vec<String>,
    },
    /// A running emulation's settings and counts.
    Show {
        /// Its name, as `list` shows it.
        id: String,
    },
}

/// Runs the command, and passes its exit code on.
pub fn run(args: &EmuArgs, json: bool) -> Result<ExitCode, Failure> {
    let fail = |e: ccplane_emu::Error| Failure::new(Kind::Failed, e);
    match &args.remote {
        Some(Remote::List) => {
            let running = remote::list();
            if json {
                println!("{}", serde_json::json!({ "running": running }));
            } else {
                running.iter().for_each(|id| println!("{id}"));
            }
            return Ok(ExitCode::SUCCESS);
        }
        Some(Remote::Set { id, change }) => {
            answer(
                &remote::ask(id, &format!("set {}", change.join(" "))).map_err(fail)?,
                json,
            );
            return Ok(ExitCode::SUCCESS);
        }
        Some(Remote::Show { id }) => {
            answer(&remote::ask(id, "show").map_err(fail)?, json);
            return Ok(ExitCode::SUCCESS);
        }
        None => {}
    }
    let config = config(args)?;
    doctor::require(&[doctor::Need::Emulator])?;
    let (program, arguments) = args.command.split_first().expect("clap requires a command");
    let mut command = Command::new(program);
    command.args(arguments);
    let report = shell(&config, &mut command, |info| {
        // The command owns stdout.
        eprintln!(
            "ccplane emu {}: this host is {} (${HOST_VARIABLE}) behind the link",
            info.id, info.host
        );
        let [up, down] = info.limits.map(|limit| limit.describe(config.mtu));
        eprintln!("queues: up {up}, down {down}");
    })
    .map_err(fail)?;
    let code = report.exit_code();
    tell(&report.report, code, json);
    Ok(ExitCode::from(code))
}

fn answer(text: &str, json: bool) {
    if json {
        println!("{}", serde_json::json!({ "answer": text }));
    } else if !text.is_empty() {
        println!("{text}");
    }
}

fn config(args: &EmuArgs) -> Result<Config, Failure> {
    let one_bdp = QueueSpec::ONE_BDP;
    let no_bdp = QueueSpec::DropTail(Size::Packets(1_000));
    let queue = args
        .queue
        .unwrap_or(if args.delay == Duration::ZERO { no_bdp } else { one_bdp });
    let both = match &args.rate_file {
        Some(file) => Some(pieces(file)?),
        None => line(args.rate, args.trace.as_deref())?,
    };
    let up = both.unwrap_or(LineSpec::Unlimited);
    let down = line(args.down_rate, args.down_trace.as_deref())?.unwrap_or_else(|| up.clone());
    let link = |line: LineSpec, seed| {
        // A queue that never fills needs no size, and a BDP of an unlimited rate has none. A token bucket has a rate
        // of its own.
        let never_fills = matches!(line, LineSpec::Unlimited) && !matches!(queue, QueueSpec::Tbf { .. });
        LinkConfig {
            line,
            delay: args.delay,
            jitter: args.jitter,
            reorder: args.reorder,
            queue: if never_fills { QueueSpec::UNLIMITED } else { queue },
            loss: args.loss,
            seed,
        }
    };
    Ok(Config {
        forward: link(up, args.seed),
        // Another stream, or the two directions would lose the same packets.
        reverse: link(down, args.seed.wrapping_add(1)),
        timing: match args.timing {
            TimingArg::Balanced => Timing::Balanced,
            TimingArg::Precise => Timing::Precise,
        },
        gso: match args.gso {
            GsoArg::Auto => Gso::Auto,
            GsoArg::On => Gso::On,
            GsoArg::Off => Gso::Off,
        },
        ..Config::default()
    })
}

/// The line that a file of times and rates describes; empty lines and what follows a `#` say nothing.
fn pieces(file: &Path) -> Result<LineSpec, Failure> {
    let name = file.display();
    let wrong = |reason: String| Failure::text(Kind::Usage, reason);
    let text = std::fs::read_to_string(file).map_err(|e| wrong(format!("the rates {name} cannot be read: {e}")))?;
    let mut steps = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
        let read = |time: &str, rate: &str| {
            let outage = (rate == "0").then(Rate::default);
            Some((time.parse().ok()?, outage.or_else(|| rate.parse().ok())?))
        };
        match words[..] {
            [] => {}
            [time, rate] if let Some(step) = read(time, rate) => steps.push(step),
            _ => {
                let number = number + 1;
                let help = "write a time and a rate, as in `5s 10mbit`";
                return Err(wrong(format!("{name}:{number}: this is not a time and a rate; {help}")));
            }
        }
    }
    let pieces = Piecewise::new(&steps, None).map_err(|e| wrong(format!("{name}: {e}")))?;
    Ok(LineSpec::Piecewise(Arc::new(pieces)))
}

/// The line that a rate or a trace file describes.
pub fn line(rate: Option<Rate>, trace: Option<&Path>) -> Result<Option<LineSpec>, Failure> {
    match trace {
        None => Ok(rate.map(LineSpec::Constant)),
        Some(file) => recorded(file).map(Some),
    }
}

/// A recorded link, in Mahimahi's format.
pub fn recorded(file: &Path) -> Result<LineSpec, Failure> {
    let name = file.display();
    let text =
        std::fs::read(file).map_err(|e| Failure::text(Kind::Usage, format!("the trace {name} cannot be read: {e}")))?;
    let trace = Trace::parse(&String::from_utf8_lossy(&text))
        .map_err(|e| Failure::text(Kind::Usage, format!("{name}: {e}")))?;
    Ok(LineSpec::Trace(Arc::new(trace)))
}

fn tell(report: &EmuReport, code: u8, json: bool) {
    let audit = &report.audit;
    let micros = |d: Duration| d.as_nanos() as f64 / 1e3;
    let way = |log: &LinkLog| {
        serde_json::json!({
            "arrived": log.arrived, "delivered": log.delivered, "delivered_bytes": log.delivered_bytes,
            "handovers": log.handovers, "marks": log.marks, "queue_drops": log.queue_drops, "losses": log.losses,
        })
    };
    let timing = match report.timing {
        Timing::Balanced => "balanced",
        Timing::Precise => "precise",
    };
    let gso = match report.gso {
        Gso::Auto => "auto",
        Gso::On => "on",
        Gso::Off => "off",
    };
    let mut stderr = std::io::stderr().lock();
    let done = if json {
        let object = serde_json::json!({
            "exit_code": code, "timing": timing, "gso": gso, "processor_share": report.processor_share, "up": way(&report.forward), "down": way(&report.reverse),
            "audit": {
                "ok": audit.ok, "lateness_p50_us": micros(audit.lateness_p50), "lateness_p99_us": micros(audit.lateness_p99),
                "lateness_max_us": micros(audit.lateness_max), "own_drops": audit.own_drops, "tun_drops": audit.tun_drops,
            },
        });
        writeln!(stderr, "{object}")
    } else {
        let line = |log: &LinkLog| {
            format!(
                "{} packets in {} pieces, {} marked and {} dropped by the queue, {} lost at random",
                log.delivered, log.handovers, log.marks, log.queue_drops, log.losses
            )
        };
        writeln!(
            stderr,
            "ccplane emu ({timing} timing, gso {gso}): up {}; down {}; late by {:.0} us at most for 99 % of packets; own \
             drops {}{}",
            line(&report.forward),
            line(&report.reverse),
            micros(audit.lateness_p99),
            audit.own_drops + audit.tun_drops,
            if audit.ok {
                ""
            } else {
                ": BEYOND THE BOUNDS, do not trust what was measured"
            },
        )
    };
    // The command's own outcome matters more than a closed stderr.
    let _ = done;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_in_a_file_are_read_and_what_is_wrong_has_its_line() {
        let file = std::env::temp_dir().join(format!("ccplane-{}-rates", std::process::id()));
        let read = |text: &str| {
            std::fs::write(&file, text).expect("a temporary file");
            let result = pieces(&file).map_err(|failure| failure.to_string());
            std::fs::remove_file(&file).expect("it is there");
            result
        };
        let rate = |text: &str| text.parse::<Rate>().expect("a rate");
        let steps = [
            ("0s", rate("10mbit")),
            ("1500ms", Rate::default()),
            ("2s", rate("5mbit")),
        ];
        let steps = steps.map(|(time, rate)| (time.parse().expect("a time"), rate));
        let expected = Piecewise::new(&steps, None).expect("it ends above zero");
        let text = "0s 10mbit\n\n1500ms 0 # an outage\n  2s\t5mbit\n";
        assert_eq!(
            read(text).expect("well formed"),
            LineSpec::Piecewise(Arc::new(expected))
        );
        assert!(
            read("0s 10mbit\n5s fast\n")
                .expect_err("no rate")
                .contains(":2: this is not a time and a rate")
        );
        assert!(read("0s 10mbit 5s\n").is_err() && read("").is_err() && read("1s 10mbit\n").is_err());
    }
}
