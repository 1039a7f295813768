//! `ccplane emu … -- COMMAND`: runs any command behind an emulated link; `emu list` and `emu set`
//! act on a running emulation.

mod graph;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::sync::Arc;

use ccplane_emu::{
    EmuConfig, EmuReport, Gso, HOST_VARIABLE, InterfaceBridge, LinkConfig, LinkLog, PathDirection,
    ShellOptions, Timing, remote, shell,
};
use ccplane_qdisc::{Limit, LineSpec, LinkSeeds, LossModel, Piecewise, QueueSpec, Size, Trace};
use ccplane_units::{Duration, Rate};
use clap::{Args, Subcommand, ValueEnum};

use crate::exit::{Failure, FailureKind};
use crate::{doctor, interrupt, key_values};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct EmuArgs {
    #[command(subcommand)]
    remote: Option<RemoteCommand>,
    /// Rate of the link in both directions; unlimited without a rate or a trace.
    #[arg(long, conflicts_with = "trace")]
    rate: Option<Rate>,
    /// Recorded link for both directions, in place of a rate: packet delivery opportunities in
    /// Mahimahi's format, or lines with a time and the rate from then on, as in `0s 10mbit`, where
    /// a rate of `0` is an outage.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Propagation delay in each direction.
    #[arg(long, default_value = "0ms")]
    delay: Duration,
    /// Jitter: largest deviation of a packet's delay, uniformly distributed. Packets stay in order,
    /// unless `:reorder` follows, as in `5ms:reorder`.
    #[arg(long, default_value = "0ms")]
    jitter: Jitter,
    /// Queue of each direction: `droptail:` and a size in BDP, packets or bytes (`1bdp`, `160p`,
    /// `240kB`, `inf`), `fq_codel`, `codel`, `sfq`, `prio:3:1bdp`,
    /// `red:min=30p:max=90p:limit=1bdp`, `ecn:65p`, `dualpi2`,
    /// `tbf:rate=96mbit:burst=32kB:limit=1bdp`, `rcp`, with settings as in `codel:target=5ms:ecn`.
    /// The default is `droptail:1bdp`, or `droptail:1000p` without a delay, where the BDP is zero.
    #[arg(long)]
    queue: Option<QueueSpec>,
    /// Random loss in each direction: a share, or `gilbert:p=1%:r=25%` for bursts of losses.
    #[arg(long, default_value = "0%")]
    loss: LossModel,
    /// Settings of the direction from the command to the host, where they differ: `rate`, `trace`,
    /// `delay`, `queue` and `loss`, as in `rate=5mbit,delay=25ms,queue=codel:target=5ms:ecn`. The
    /// path of a trace cannot contain a comma.
    #[arg(long, value_name = "SETTINGS")]
    up: Option<DirectionSettings>,
    /// Settings of the direction from the host to the command, likewise.
    #[arg(long, value_name = "SETTINGS")]
    down: Option<DirectionSettings>,
    /// Give the command access to the networks of this host, and to its name resolution, by address
    /// translation (IPv4, with nftables).
    #[arg(long)]
    nat: bool,
    /// Packet log of both directions, a pcapng file with the queue's verdict on each packet;
    /// `ccplane emu graph FILE` draws it.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Seed of loss, jitter and queue. The treatment of the n-th packet depends only on the seed
    /// and n.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Method of waiting for a packet's departure time.
    #[arg(long, value_enum, default_value = "balanced")]
    timing: TimingArg,
    /// Connect two interfaces of this host by the link instead, until Ctrl-C: packets that arrive
    /// on A leave on B, which is the up direction, and the other way round.
    #[arg(long, value_name = "A,B", conflicts_with_all = ["command", "nat"])]
    between: Option<InterfacePair>,
    /// Command and its arguments.
    #[arg(last = true, required_unless_present = "between")]
    command: Vec<OsString>,
}

/// Settings of one direction, which replace those of both.
#[derive(Clone, Debug, Default, PartialEq)]
struct DirectionSettings {
    rate: Option<Rate>,
    trace: Option<PathBuf>,
    delay: Option<Duration>,
    queue: Option<QueueSpec>,
    loss: Option<LossModel>,
}

impl FromStr for DirectionSettings {
    type Err = String;

    fn from_str(text: &str) -> Result<DirectionSettings, String> {
        const KEYS: [&str; 5] = ["rate", "trace", "delay", "queue", "loss"];
        let mut all = DirectionSettings::default();
        for setting in key_values::parse(text, &KEYS, "rate=5mbit,delay=25ms")? {
            match setting.key {
                "rate" => all.rate = Some(setting.parse()?),
                "trace" => all.trace = Some(setting.parse()?),
                "delay" => all.delay = Some(setting.parse()?),
                "queue" => all.queue = Some(setting.parse()?),
                "loss" => all.loss = Some(setting.parse()?),
                key => unreachable!("`{key}` is not in KEYS"),
            }
            if all.rate.is_some() && all.trace.is_some() {
                return Err(setting.error("`rate` and `trace` exclude each other; remove one"));
            }
        }
        Ok(all)
    }
}

/// Largest deviation of a packet's delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Jitter {
    spread: Duration,
    /// Packets may overtake each other.
    reorder: bool,
}

impl FromStr for Jitter {
    type Err = String;

    fn from_str(text: &str) -> Result<Jitter, String> {
        let (spread, reorder) = match text.split_once(':') {
            None => (text, false),
            Some((spread, "reorder")) => (spread, true),
            Some((_, other)) => {
                return Err(format!(
                    "`{}` is not a kind of jitter; write a time, such as 5ms, or 5ms:reorder",
                    other.escape_debug()
                ));
            }
        };
        let spread = spread.parse().map_err(|why| format!("{why}"))?;
        Ok(Jitter { spread, reorder })
    }
}

/// Names of two interfaces.
#[derive(Clone, Debug)]
struct InterfacePair([String; 2]);

impl FromStr for InterfacePair {
    type Err = String;

    fn from_str(text: &str) -> Result<InterfacePair, String> {
        match text.split_once(',') {
            Some((a, b)) if !a.is_empty() && !b.is_empty() && !b.contains(',') => {
                Ok(InterfacePair([a.into(), b.into()]))
            }
            _ => {
                Err("expected two interface names separated by a comma, such as `eth1,eth2`".into())
            }
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum TimingArg {
    /// Sleep: about a tenth of a millisecond late.
    Balanced,
    /// Spin while packets are in transit: microseconds late, at the cost of a core.
    Precise,
}

#[derive(Subcommand)]
enum RemoteCommand {
    /// List running emulations.
    List,
    /// Change a running emulation: `set ID [up|down] rate 48mbit`, `… delay 5ms`, `… jitter 1ms`,
    /// `… loss 0.1%`.
    Set {
        /// Name of the emulation, from `list`.
        id: String,
        /// Setting and value.
        #[arg(required = true, num_args = 2..=3)]
        change: Vec<String>,
    },
    /// Show the settings and counters of a running emulation.
    Show {
        /// Name of the emulation, from `list`.
        id: String,
    },
    /// Draw a packet log: throughput, queueing delay and drops of both directions over time.
    Graph {
        /// Packet log written by `--log`.
        log: PathBuf,
        /// Page to write; without it, the log's name with `.html`.
        page: Option<PathBuf>,
    },
}

/// Runs the command and returns its exit code.
pub fn run(args: &EmuArgs, json: bool) -> Result<u8, Failure> {
    let fail = |e: ccplane_emu::Error| Failure::new(FailureKind::Failed, e);
    match &args.remote {
        Some(RemoteCommand::List) => {
            let running = remote::list();
            if json {
                println!("{}", serde_json::json!({ "running": running }));
            } else {
                running.iter().for_each(|id| println!("{id}"));
            }
            return Ok(0);
        }
        Some(RemoteCommand::Set { id, change }) => {
            answer(
                &remote::request(id, &format!("set {}", change.join(" "))).map_err(fail)?,
                json,
            );
            return Ok(0);
        }
        Some(RemoteCommand::Show { id }) => {
            answer(&remote::request(id, "show").map_err(fail)?, json);
            return Ok(0);
        }
        Some(RemoteCommand::Graph { log, page }) => return graph::draw(log, page.as_deref(), json),
        None => {}
    }
    let config = config(args)?;
    doctor::require(&[doctor::Need::Emulator])?;
    if let Some(InterfacePair([a, b])) = &args.between {
        return between(&config, [a, b], json);
    }
    let (program, arguments) = args.command.split_first().expect("clap requires a command");
    let mut command = Command::new(program);
    command.args(arguments);
    let around = ShellOptions { nat: args.nat };
    let report = shell(&config, around, &mut command, |info| {
        // The command owns standard output until it ends.
        if info.nested {
            eprintln!(
                "ccplane emu {}: the host is {} (${HOST_VARIABLE}), behind this link and the \
                 enclosing links",
                info.id, info.host_address
            );
        } else {
            eprintln!(
                "ccplane emu {}: this host is {} (${HOST_VARIABLE}), behind the link",
                info.id, info.host_address
            );
        }
        queues(info.limits, config.mtu);
        if let Some(warning) = small_buffers(&config) {
            eprintln!("warning: {warning}");
        }
    })
    .map_err(|error| match error {
        // All other usage errors are detected while options are read.
        ccplane_emu::Error::Jitter { .. } => Failure::new(FailureKind::Usage, error),
        error => fail(error),
    })?;
    let code = report.exit_code();
    print_report(&report.report, code, json);
    Ok(code)
}

fn queues(limits: [Limit; 2], mtu: u32) {
    let [up, down] = limits.map(|limit| limit.describe(mtu));
    eprintln!("queues: up {up}, down {down}");
}

/// Returns a warning if this host's TCP may not keep a bandwidth-delay product in flight.
fn small_buffers(config: &EmuConfig) -> Option<String> {
    let limits = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").ok()?;
    let most: u64 = limits.split_whitespace().nth(2)?.parse().ok()?;
    let rtt = config.forward.delay + config.reverse.delay;
    let rates = [&config.forward, &config.reverse].map(|link| link.line.mean_rate());
    let fastest = rates
        .into_iter()
        .flatten()
        .map(|rate| rate.bytes_per_sec())
        .max()?;
    let bdp = u128::from(fastest) * u128::from(rtt.as_nanos()) / 1_000_000_000;
    (bdp > u128::from(most)).then(|| {
        format!(
            "net.ipv4.tcp_wmem limits TCP on this host to {most} bytes in flight, below the \
             bandwidth-delay product of {bdp}; to fill the link, run `sysctl -w \
             net.ipv4.tcp_wmem=\"4096 16384 {}\"` (and set tcp_rmem likewise)",
            2 * bdp
        )
    })
}

/// Connects two interfaces until it is interrupted.
#[expect(clippy::disallowed_methods, reason = "the link runs until Ctrl-C")]
fn between(config: &EmuConfig, interfaces: [&str; 2], json: bool) -> Result<u8, Failure> {
    let ended = interrupt::flag()?;
    let link = InterfaceBridge::start(config, interfaces)
        .map_err(|e| Failure::new(FailureKind::Failed, e))?;
    let [a, b] = interfaces;
    eprintln!(
        "ccplane emu {}: up is from {a} to {b}; press Ctrl-C to stop",
        link.id()
    );
    queues(
        [PathDirection::Forward, PathDirection::Reverse].map(|way| link.limit(way)),
        config.mtu,
    );
    while !interrupt::raised(&ended) {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let report = link
        .finish()
        .map_err(|e| Failure::new(FailureKind::Failed, e))?;
    print_report(&report, 0, json);
    Ok(0)
}

fn answer(text: &str, json: bool) {
    if json {
        println!("{}", serde_json::json!({ "answer": text }));
    } else if !text.is_empty() {
        println!("{text}");
    }
}

fn config(args: &EmuArgs) -> Result<EmuConfig, Failure> {
    let both = line(args.rate, args.trace.as_deref())?.unwrap_or(LineSpec::Unlimited);
    let ways = [&args.up, &args.down].map(|way| way.clone().unwrap_or_default());
    let delays = [0, 1].map(|way: usize| ways[way].delay.unwrap_or(args.delay));
    let one_bdp = QueueSpec::ONE_BDP;
    let no_bdp = QueueSpec::DropTail(Size::Packets(1_000));
    let queue = args.queue.unwrap_or(if delays == [Duration::ZERO; 2] {
        no_bdp
    } else {
        one_bdp
    });
    let link = |way: PathDirection| -> Result<LinkConfig, Failure> {
        let own = &ways[way as usize];
        let line = line(own.rate, own.trace.as_deref())?.unwrap_or_else(|| both.clone());
        let queue = own.queue.unwrap_or(queue);
        // A queue that never fills needs no size, and an unlimited rate has no BDP. A token bucket
        // has a rate of its own.
        let never_fills =
            matches!(line, LineSpec::Unlimited) && !matches!(queue, QueueSpec::Tbf { .. });
        Ok(LinkConfig {
            line,
            delay: delays[way as usize],
            jitter: args.jitter.spread,
            reorder: args.jitter.reorder,
            queue: if never_fills {
                QueueSpec::UNLIMITED
            } else {
                queue
            },
            loss: own.loss.unwrap_or(args.loss),
            // With the same seed both directions would lose the same packets.
            seeds: LinkSeeds::from_seed(args.seed.wrapping_add(way as u64)),
        })
    };
    Ok(EmuConfig {
        forward: link(PathDirection::Forward)?,
        reverse: link(PathDirection::Reverse)?,
        timing: match args.timing {
            TimingArg::Balanced => Timing::Balanced,
            TimingArg::Precise => Timing::Precise,
        },
        capture: args.log.clone(),
        ..EmuConfig::default()
    })
}

/// Returns the line of a rate or of a trace file.
fn line(rate: Option<Rate>, trace: Option<&Path>) -> Result<Option<LineSpec>, Failure> {
    match trace {
        None => Ok(rate.map(LineSpec::Constant)),
        Some(file) => recorded(file).map(Some),
    }
}

/// Reads a recorded link: delivery opportunities in Mahimahi's format, or times and rates, which
/// have two words per line.
fn recorded(file: &Path) -> Result<LineSpec, Failure> {
    let name = file.display().to_string();
    let wrong = |why: String| Failure::text(FailureKind::Usage, why);
    let text =
        std::fs::read(file).map_err(|e| wrong(format!("the trace {name} cannot be read: {e}")))?;
    let text = String::from_utf8_lossy(&text);
    if text.lines().any(|line| words(line).len() > 1) {
        return pieces(&name, &text).map_err(wrong);
    }
    let trace = Trace::parse(&text).map_err(|e| wrong(format!("{name}: {e}")))?;
    Ok(LineSpec::Trace(Arc::new(trace)))
}

/// Returns the words of a line. `#` starts a comment.
fn words(line: &str) -> Vec<&str> {
    let text = line.split('#').next().unwrap_or_default();
    text.split_whitespace().collect()
}

/// Parses times and rates. Empty lines are ignored.
fn pieces(name: &str, text: &str) -> Result<LineSpec, String> {
    let mut steps = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let read = |time: &str, rate: &str| {
            let outage = (rate == "0").then(Rate::default);
            Some((time.parse().ok()?, outage.or_else(|| rate.parse().ok())?))
        };
        match words(line)[..] {
            [] => {}
            [time, rate] if let Some(step) = read(time, rate) => steps.push(step),
            _ => {
                let number = number + 1;
                let help = "write a time and a rate, such as `5s 10mbit`";
                return Err(format!("{name}:{number}: not a time and a rate; {help}"));
            }
        }
    }
    let pieces = Piecewise::new(&steps, None).map_err(|e| format!("{name}: {e}"))?;
    Ok(LineSpec::Piecewise(Arc::new(pieces)))
}

fn print_report(report: &EmuReport, code: u8, json: bool) {
    let audit = &report.audit;
    let micros = |d: Duration| d.as_nanos() as f64 / 1e3;
    let way = |log: &LinkLog| {
        serde_json::json!({
            "arrived": log.arrived, "delivered": log.delivered,
            "delivered_bytes": log.delivered_bytes,
            "handovers": log.handovers, "marks": log.marks, "queue_drops": log.queue_drops,
            "losses": log.losses,
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
    let done = if json {
        let object = serde_json::json!({
            "exit_code": code, "timing": timing, "gso": gso, "processor_share": report.cpu_share,
            "up": way(&report.forward), "down": way(&report.reverse),
            "audit": {
                "ok": audit.passed, "lateness_p50_us": micros(audit.lateness_p50),
                "lateness_p99_us": micros(audit.lateness_p99),
                "lateness_max_us": micros(audit.lateness_max), "own_drops": audit.emulator_drops,
                "tun_drops": audit.tun_drops,
            },
            "log": report.capture.as_ref().map(|log| serde_json::json!({
                "packets": log.packets, "missed": log.missed, "error": log.error,
            })),
        });
        writeln!(std::io::stdout().lock(), "{object}")
    } else {
        let line = |log: &LinkLog| {
            format!(
                "{} packets in {} writes, {} marked and {} dropped by the queue, {} lost at random",
                log.delivered, log.handovers, log.marks, log.queue_drops, log.losses
            )
        };
        writeln!(
            std::io::stderr().lock(),
            "ccplane emu ({timing} timing, gso {gso}): up {}; down {}; 99th percentile of \
             lateness {:.0} us; own drops {}{}",
            line(&report.forward),
            line(&report.reverse),
            micros(audit.lateness_p99),
            audit.emulator_drops + audit.tun_drops,
            if audit.passed {
                ""
            } else {
                ": OUT OF BOUNDS, measurements are not reliable"
            },
        )
    };
    let lost = report
        .capture
        .as_ref()
        .filter(|log| log.missed > 0 || log.error.is_some());
    let lost = lost.filter(|_| !json).map(|log| {
        let why = log.error.as_deref().unwrap_or("the disk was too slow");
        writeln!(
            std::io::stderr().lock(),
            "packet log: {} packets written, {} missing: {why}",
            log.packets,
            log.missed
        )
    });
    // The command's own outcome matters more than a closed standard error.
    let _ = (done, lost);
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct TestCommand {
        #[command(flatten)]
        emu: EmuArgs,
    }

    #[test]
    fn times_and_rates_are_parsed_and_errors_have_line_numbers() {
        let read = |text: &str| pieces("rates", text);
        let rate = |text: &str| text.parse::<Rate>().expect("a rate");
        let steps = [
            ("0s", rate("10mbit")),
            ("1500ms", Rate::default()),
            ("2s", rate("5mbit")),
        ];
        let steps = steps.map(|(time, rate)| (time.parse().expect("a time"), rate));
        let expected = Piecewise::new(&steps, None).expect("the last rate is above zero");
        let text = "0s 10mbit\n\n1500ms 0 # an outage\n  2s\t5mbit\n";
        assert_eq!(
            read(text).expect("well formed"),
            LineSpec::Piecewise(Arc::new(expected))
        );
        assert!(
            read("0s 10mbit\n5s fast\n")
                .expect_err("no rate")
                .contains("rates:2: not a time and a rate")
        );
        assert!(
            read("0s 10mbit 5s\n").is_err() && read("").is_err() && read("1s 10mbit\n").is_err()
        );
    }

    #[test]
    fn a_trace_has_opportunities_or_times_and_rates() {
        let file = std::env::temp_dir().join(format!("ccplane-{}-trace", std::process::id()));
        let read = |text: &str| {
            std::fs::write(&file, text).expect("a temporary file");
            let line = recorded(&file).map_err(|failure| failure.to_string());
            std::fs::remove_file(&file).expect("the file exists");
            line
        };
        assert!(matches!(read("0\n5\n10\n"), Ok(LineSpec::Trace(_))));
        let rates = read("# an outage\n0s 10mbit\n5s 0\n6s 1mbit\n");
        assert!(matches!(rates, Ok(LineSpec::Piecewise(_))), "{rates:?}");
        for bad in ["0\nx\n", "0s 10mbit\n5\n", ""] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn settings_of_a_direction_replace_those_of_both() {
        let args = |line: &str| {
            let words = format!("emu {line} -- true");
            TestCommand::try_parse_from(words.split(' ')).map(|line| line.emu)
        };
        let [both, up, down] = [
            "--rate 8mbit --delay 20ms --queue droptail:9p --loss 1%",
            "--up rate=5mbit,delay=25ms,queue=codel:target=9ms:ecn,loss=gilbert:p=1%:r=25%",
            "--down delay=0ms",
        ];
        let given = args(&format!("{both} {up} {down}")).expect("valid options");
        let found = config(&given).unwrap_or_else(|failure| panic!("{failure}"));
        let (forward, reverse) = (found.forward, found.reverse);
        assert_eq!(
            forward.to_string(),
            "rate 5mbit delay 25ms jitter 0ms queue codel:target=9ms:ecn loss gilbert:p=1%:r=25%"
        );
        assert_eq!(
            reverse.to_string(),
            "rate 8mbit delay 0ms jitter 0ms queue droptail:9p loss 1%"
        );
        let jittered = args("--delay 9ms --jitter 5ms:reorder").expect("valid options");
        let forward = config(&jittered)
            .unwrap_or_else(|failure| panic!("{failure}"))
            .forward;
        assert!(forward.reorder && forward.jitter == Duration::from_millis(5));
    }

    #[test]
    fn errors_of_a_direction_name_the_setting() {
        let error = |text: &str| text.parse::<DirectionSettings>().expect_err("invalid");
        assert!(error("rate=5mbit,delya=2ms").contains("did you mean `delay`?"));
        assert_eq!(
            error("delay=1ms,rate=5mbit,trace=a"),
            "at character 22: `rate` and `trace` exclude each other; remove one"
        );
        assert!(error("delay=1ms,rate=5").starts_with("at character 11: `rate`: "));
        assert!(error("queue=fifo").contains("droptail"));
        let jitter = |text: &str| text.parse::<Jitter>().expect_err("invalid");
        assert!(jitter("5ms:overtake").contains("5ms:reorder"));
        assert!(!jitter("5").is_empty());
    }
}
