//! `ccplane attach`: registers algorithms with this host's kernel and runs their agent, one thread an algorithm.
//!
//! Those threads run what others wrote, and give up every capability before they do. This one keeps its own: it loads,
//! pins, and detaches at the end. So do the threads that it starts beside them: what compiles a program that is installed
//! later, and what answers requests for metrics, which opens the pinned tables of all algorithms.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use ccplane_agent::{Agent, Options as AgentOptions};
use ccplane_datapath::{Capabilities, Limits};
use ccplane_lab::Contender;
use ccplane_linux::select::{self, Selection};
use ccplane_linux::stamp::{self, Stamps};
use ccplane_linux::{AlgorithmSpec, Kernel, LoadError, Options};
use ccplane_units::{Bytes, Duration, Rate};
use clap::Args;

use crate::exit::{Failure, Kind};
use crate::flows::stats;
use crate::{Parameters, Registry};
use crate::{doctor, interrupt, metrics};

/// How soon to notice that another process detached what this one serves. Each look is a system call or two.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_secs(1);

/// What to steer, and how far.
#[derive(Args)]
pub struct AttachArgs {
    /// Algorithms, separated by commas; with parameters: `cubic:report=10ms`. Sockets choose them as ccp_NAME.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true)]
    alg: Vec<Contender>,
    /// Also steer new connections of this cgroup, with the first algorithm.
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// Also steer new connections to this prefix, with the first algorithm.
    #[arg(long, value_name = "PREFIX")]
    to: Option<String>,
    /// Also steer all new connections of this host, with the first algorithm.
    #[arg(long, conflicts_with_all = ["cgroup", "to"])]
    system: bool,
    /// Stamp what leaves and comes by these devices, for an algorithm that wants one-way delay, such as dx: sockets of the
    /// cgroup, or of every process, offer and answer the option of time stamps (docs/one-way-delay.md).
    #[arg(long, value_name = "DEVICES", value_delimiter = ',')]
    dev: Vec<String>,
    /// Steer only this share of the connections so selected, chosen at random.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u8).range(1..=100))]
    percent: u8,
    /// Owner's limit: no flow paces faster.
    #[arg(long, value_name = "RATE")]
    max_rate: Option<Rate>,
    /// Owner's limit: no window is smaller.
    #[arg(long, value_name = "BYTES")]
    min_cwnd: Option<Bytes>,
    /// Owner's limit: no window is larger.
    #[arg(long, value_name = "BYTES")]
    max_cwnd: Option<Bytes>,
    /// Owner's limit: after this long without a sign of the agent, flows run on the datapath's own NewReno.
    #[arg(long, value_name = "TIME", default_value = "500ms")]
    fallback_after: Duration,
    /// Serve Prometheus figures here, under /metrics.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Leave the registration when this process ends, for the next `attach`; in between, flows run on the fallback.
    #[arg(long)]
    keep: bool,
}

/// Runs the command: until Ctrl-C or SIGTERM.
pub fn run(args: &AttachArgs, registry: &Registry, json: bool) -> Result<(), Failure> {
    let limits = limits(args)?;
    let selection = selection(args)?;
    let agents = agents(&args.alg, registry)?;
    let wanting = wanting(args, registry, &agents)?;
    doctor::require(&[doctor::Need::KernelTcp])?;
    let stop = interrupt::flag()?;

    let mut attached = Attached {
        names: Vec::new(),
        keep: args.keep,
    };
    let mut kernels = Vec::new();
    for agent in &agents {
        let wants = wanting
            .iter()
            .find(|name| agent.hosted().any(|hosted| hosted.kernel_name == **name));
        let stamped = wants.filter(|_| !args.dev.is_empty());
        let (kernel, adopted) = register(agent, &limits, stamped.map(|name| (name.as_str(), args)))?;
        for (_, name, counters) in kernel.counters() {
            attached.names.push(name.to_owned());
            let how = if adopted {
                format!("taken over, {} live flows", counters.flows)
            } else {
                "registered".to_owned()
            };
            say(json, name, &how);
        }
        if let Some(name) = wants {
            let has = kernel.info().capabilities.contains(Capabilities::ONE_WAY_DELAY);
            tell_of_stamps(name, has, adopted, args, json);
        }
        kernels.push(kernel);
    }
    if let (Some(selection), Some(name)) = (&selection, attached.names.first()) {
        select::attach(name, selection).map_err(|e| Failure::new(Kind::Failed, e))?;
        say(json, name, &format!("chosen for {selection}"));
    }
    if let Some(address) = args.metrics {
        metrics::serve(address, || stats().unwrap_or_default())?;
        say(json, "metrics", &format!("http://{address}/metrics"));
    }
    serve(agents, kernels, &attached.names, &stop)?;
    attached.remove()
}

fn say(json: bool, name: &str, what: &str) {
    if json {
        println!("{}", serde_json::json!({ "name": name, "state": what }));
    } else {
        println!("{name}: {what}");
    }
}

fn limits(args: &AttachArgs) -> Result<Limits, Failure> {
    let default = Limits::default();
    let limits = Limits {
        min_cwnd: args.min_cwnd.map_or(default.min_cwnd, Bytes::get),
        max_cwnd: args.max_cwnd.map_or(default.max_cwnd, Bytes::get),
        max_rate: args.max_rate.map_or(default.max_rate, Rate::bytes_per_sec),
        fallback_after: args.fallback_after,
    };
    if limits.min_cwnd > limits.max_cwnd {
        return Err(Failure::text(Kind::Usage, "--min-cwnd is above --max-cwnd").hint("no window satisfies both"));
    }
    if limits.fallback_after < Duration::from_millis(10) {
        return Err(Failure::text(
            Kind::Usage,
            format!("--fallback-after {} is too short", limits.fallback_after),
        )
        .hint("a pause of the scheduler would look like a dead agent: 100ms or more, 10ms at least"));
    }
    Ok(limits)
}

fn selection(args: &AttachArgs) -> Result<Option<Selection>, Failure> {
    if args.cgroup.is_none() && args.to.is_none() && !args.system {
        if args.percent < 100 {
            return Err(Failure::text(Kind::Usage, "--percent of what?")
                .hint("it takes a share of what --cgroup, --to or --system selects"));
        }
        return Ok(None);
    }
    let to = args.to.as_deref().map(str::parse).transpose();
    let to = to.map_err(|e: select::BadPrefix| Failure::new(Kind::Usage, e))?;
    Ok(Some(Selection {
        cgroup: args.cgroup.clone(),
        to,
        system: args.system,
        percent: args.percent,
    }))
}

/// One agent an algorithm, so that each has a thread and a heartbeat of its own.
fn agents(wanted: &[Contender], registry: &Registry) -> Result<Vec<Agent>, Failure> {
    let one = |contender| {
        let mut agent = Agent::new(AgentOptions::default());
        add(&mut agent, contender, registry).map(|()| agent)
    };
    wanted.iter().map(one).collect()
}

/// Adds an algorithm as it was written on the command line.
pub fn add(agent: &mut Agent, contender: &Contender, registry: &Registry) -> Result<(), Failure> {
    let Contender::Ccplane { name, parameters } = contender else {
        return Err(Failure::text(Kind::Usage, format!("`{contender}` is the kernel's own"))
            .hint("--alg takes ccplane's algorithms, such as cubic; `ccplane algorithms` lists them"));
    };
    let parameters = parameters.iter().fold(Parameters::new(), |p, (k, v)| p.with(k, v));
    let algorithm = registry
        .by_name(name, &parameters)
        .map_err(|e| Failure::new(Kind::Usage, e))?;
    agent.add_boxed(algorithm).map_err(|e| Failure::new(Kind::Failed, e))
}

/// The kernel names of the algorithms that want time stamps; where devices are given for them, one.
fn wanting(args: &AttachArgs, registry: &Registry, agents: &[Agent]) -> Result<Vec<String>, Failure> {
    let wanting: Vec<String> = args
        .alg
        .iter()
        .zip(agents)
        .filter(|(contender, _)| {
            let wants = contender.wants(registry).unwrap_or_default();
            wants.contains(Capabilities::ONE_WAY_DELAY)
        })
        .flat_map(|(_, agent)| agent.hosted().map(|hosted| hosted.kernel_name.clone()))
        .collect();
    match (wanting.as_slice(), args.dev.as_slice()) {
        ([], [device, ..]) => Err(Failure::text(
            Kind::Usage,
            format!("--dev {device}: none of these algorithms wants time stamps"),
        )
        .hint("dx does; `ccplane algorithms` lists them")),
        ([first, second, ..], [_, ..]) => Err(Failure::text(
            Kind::Usage,
            format!("both {first} and {second} want time stamps, and a device has one set of them"),
        )
        .hint("attach one of the two")),
        // A device has one name that is taken for it.
        (_, devices) => match devices
            .iter()
            .enumerate()
            .find(|(n, device)| devices[..*n].contains(device))
        {
            Some((_, device)) => {
                let text = format!("--dev names {device} twice");
                Err(Failure::text(Kind::Usage, text).hint("once is enough for all of its packets"))
            }
            None => Ok(wanting),
        },
    }
}

/// What came of it for an algorithm that wants time stamps. `has`: it reads some; `adopted`: since an earlier `attach`.
fn tell_of_stamps(name: &str, has: bool, adopted: bool, args: &AttachArgs, json: bool) {
    match (has, adopted, args.dev.is_empty()) {
        (true, true, true) => {}
        (true, true, false) => {
            tracing::warn!("{name} keeps the time stamps that it had: `ccplane detach` first changes that");
        }
        (true, false, _) => {
            say(json, "time stamps", &format!("on {}", args.dev.join(", ")));
            for listener in crate::listeners::open(args.cgroup.as_deref()) {
                let what =
                    format!("{listener} was open before: what it accepts has no time stamps until it is restarted");
                say(json, "time stamps", &what);
            }
        }
        (false, true, _) => tracing::warn!(
            "{name} goes by the RTT: it was attached without time stamps, which cannot be added; after `ccplane detach`, \
             --dev DEVICE would attach them"
        ),
        (false, false, _) => {
            tracing::warn!("{name} goes by the RTT: it wants time stamps, and --dev DEVICE would attach them");
        }
    }
}

/// Takes over what an earlier process left under this name, or registers anew; with time stamps where they are wanted.
fn register(agent: &Agent, limits: &Limits, stamped: Option<(&str, &AttachArgs)>) -> Result<(Kernel, bool), Failure> {
    let specs: Vec<AlgorithmSpec> = agent.hosted().map(|hosted| AlgorithmSpec::from(&**hosted)).collect();
    let fail = |e| Failure::new(Kind::Failed, e);
    match Kernel::adopt(&specs, limits) {
        Ok(kernel) => Ok((kernel, true)),
        Err(LoadError::NotAttached { .. }) => {
            let stamps = stamped.map(|(name, args)| attach_stamps(name, args)).transpose()?;
            let options = Options {
                limits: *limits,
                pin: true,
                stamps: stamps.as_ref().map(Stamps::storage).transpose().map_err(fail)?,
                ..Options::default()
            };
            // Where it fails nobody would read the stamps, and they go.
            let kernel = Kernel::load(&specs, &options).map_err(fail)?;
            if let Some(stamps) = stamps {
                stamps.keep();
            }
            Ok((kernel, false))
        }
        Err(error) => Err(fail(error)),
    }
}

/// Attaches time stamps, pinned, so that they can last as long as the registration.
fn attach_stamps(name: &str, args: &AttachArgs) -> Result<Stamps, Failure> {
    let fail = |e| Failure::new(Kind::Failed, e);
    if let Some(other) = stamp::attached().first() {
        let text = format!("time stamps are attached already, for {other}");
        return Err(Failure::text(Kind::Failed, text).hint("`ccplane detach` removes them"));
    }
    let mut stamps = Stamps::pinned(name).map_err(fail)?;
    for device in &args.dev {
        stamps.attach_device(device).map_err(fail)?;
    }
    let sockets = stamps.attach_sockets(args.cgroup.as_deref());
    sockets.map_err(|e| Failure::new(Kind::Failed, e))?;
    Ok(stamps)
}

/// Runs the agents until `stop`, or until the first of their threads ends by itself, which only a bug can cause. The
/// kernels stay this thread's: what ends with them may need its capabilities.
fn serve(agents: Vec<Agent>, mut kernels: Vec<Kernel>, names: &[String], stop: &AtomicBool) -> Result<(), Failure> {
    let (ended, end) = mpsc::channel();
    let (detached, asked, ends) = thread::scope(|scope| {
        let start = |(mut agent, kernel): (Agent, _)| {
            // Sent when the thread unwinds too.
            let ended = Ended(ended.clone());
            let run = move || {
                let _ended = ended;
                ccplane_linux::run_agent_unprivileged(kernel, &mut agent, stop, &mut ())
            };
            let thread = thread::Builder::new().name("ccplane-agent".into());
            thread.spawn_scoped(scope, run)
        };
        let threads: Result<Vec<_>, _> = agents.into_iter().zip(&mut kernels).map(start).collect();
        let detached = threads.is_ok().then(|| watch(names, stop, &end)).flatten();
        // Before the end of the scope, which waits for the threads.
        let asked = stop.swap(true, Ordering::Relaxed);
        let ends = threads.map(|threads| threads.into_iter().map(|t| t.join()).collect::<Vec<_>>());
        (detached, asked, ends)
    });
    let ends = ends.map_err(|e| Failure::text(Kind::Failed, format!("no thread for the agent: {e}")))?;
    if let Some(error) = ends.iter().flatten().find_map(|end| end.as_ref().err()) {
        let text = format!("the agent's thread cannot give up its capabilities: {error}");
        return Err(
            Failure::text(Kind::Failed, text).hint("a filter of system calls may forbid it: allow capset and prctl")
        );
    }
    if !asked || ends.iter().any(Result::is_err) {
        return Err(Failure::text(
            Kind::Failed,
            "an algorithm's thread ended by itself: its callbacks panicked",
        )
        .hint("its flows run on the fallback; the message above says where"));
    }
    if let Some(name) = detached {
        tracing::warn!("{name} was detached by another process: nothing is left to steer");
    }
    Ok(())
}

/// Waits for `stop`, or for the end of a thread. Raises `stop` when another process detached one of the names: that one.
#[expect(clippy::disallowed_methods, reason = "the command drives in real time")]
fn watch(names: &[String], stop: &AtomicBool, end: &mpsc::Receiver<()>) -> Option<String> {
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    let mut looked = Instant::now();
    let mut detached = None;
    let watchdog = sd_notify::watchdog_enabled().unwrap_or(std::time::Duration::from_secs(10)) / 3;
    while !stop.load(Ordering::Relaxed) {
        match end.recv_timeout(watchdog.min(std::time::Duration::from_millis(100))) {
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let _ = sd_notify::notify(&[sd_notify::NotifyState::Watchdog]);
                if looked.elapsed() >= LOOK_EVERY {
                    looked = Instant::now();
                    let here = ccplane_linux::attached();
                    if let Some(gone) = names.iter().find(|name| !here.contains(name)) {
                        stop.store(true, Ordering::Relaxed);
                        detached = Some(gone.clone());
                    }
                }
            }
            Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    detached
}

struct Ended(mpsc::Sender<()>);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

/// Removes on every way out what was registered, unless it is to be kept.
struct Attached {
    names: Vec<String>,
    keep: bool,
}

impl Attached {
    fn remove(mut self) -> Result<(), Failure> {
        let names = std::mem::take(&mut self.names);
        if self.keep {
            return Ok(());
        }
        detach(&names)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if !self.keep
            && let Err(failure) = detach(&self.names)
        {
            tracing::error!("not everything could be removed: {failure}; `ccplane detach` tries again");
        }
    }
}

/// Removes all of them; what cannot be removed does not keep the rest, and the first such failure is told.
fn detach(names: &[String]) -> Result<(), Failure> {
    let mut first = Ok(());
    for name in names {
        let parts = [
            select::detach(Some(name)).map(drop).map_err(failed),
            ccplane_linux::detach(Some(name)).map(drop).map_err(failed),
            stamp::detach(Some(name)).map(drop).map_err(failed),
        ];
        first = parts.into_iter().fold(first, Result::and);
    }
    first
}

fn failed(error: impl std::error::Error) -> Failure {
    Failure::new(Kind::Failed, error)
}
