//! `ccplane attach`: registers algorithms with this host's kernel and runs their agents, one thread
//! per algorithm; a standalone program has none.
//!
//! The agents' threads run foreign code, and drop every capability first. This thread keeps the
//! capabilities to detach at the end. The thread that compiles programs installed later keeps those
//! for loading. The HTTP thread of the metrics has none, and requests the values from this thread.

pub(crate) mod agent_process;
mod options;
mod program_files;
mod reload;
mod remote;
mod rules;
mod samples;
mod watch;

use std::path::Path;
use std::sync::{Arc, mpsc};

use ccplane_agent::{Agent, AgentOptions, Tags};
use ccplane_datapath::Capabilities;
use ccplane_lab::Contender;
use ccplane_link::AgentConnection;
use ccplane_linux::select;
use ccplane_linux::stamp::{self, StampPrograms};
use ccplane_linux::{AlgorithmSpec, Arms, Kernel, LoadError, RegistrationOptions};

use crate::Registry;
use crate::config::{self, Settings};
use crate::contender::{add, is_python};
use crate::exceptions::Exceptions;
use crate::exit::{Failure, FailureKind};
use crate::{doctor, interrupt, metrics, paths};

use agent_process::AgentProcess;
pub use options::AttachArgs;
use reload::Reload;
use samples::{Callbacks, Samples};
use watch::{WatchMessage, WatchThread, serve};

/// Runs the command until Ctrl-C or SIGTERM.
pub fn run(args: &AttachArgs, registry: &Registry, json: bool) -> Result<(), Failure> {
    paths::apply();
    let config = config::read(args, registry)?;
    let mut settings = Settings::resolve(args, config.as_ref())?;
    config::require_algorithms(&settings, args)?;
    for contender in &settings.algorithms.value {
        config::suits_host_tcp(contender)
            .map_err(|what| Failure::text(FailureKind::Usage, what))?;
    }
    let tags =
        Tags::new(args.tag.iter().cloned()).map_err(|e| Failure::new(FailureKind::Usage, e))?;
    if args.watch && settings.algorithms.value.iter().any(is_python) {
        let what = "--watch does not support Python files, which are read only once";
        return Err(Failure::text(FailureKind::Usage, what)
            .hint("attach it without --watch, and attach it again after a change"));
    }
    let texts = match args.watch {
        true => {
            program_files::open_watched(&settings.algorithms.value, args.kernel_name.as_deref())?
        }
        false => Vec::new(),
    };
    let apart = start_agent_process(args, &settings, registry)?;
    let mut steered = match args
        .remote_agent
        .agent()
        .or_else(|| apart.as_ref().map(|apart| apart.address.clone()))
    {
        None => create_agents(&settings.algorithms.value, registry)?,
        Some(address) => remote::steered(&mut settings, &address)?,
    };
    let exceptions = exception_counts(&steered, apart.as_ref(), args.kernel_name.as_deref());
    if let Some(name) = &args.kernel_name {
        rename(&mut steered, name)?;
    }
    if let Some(round_trip) = settings.round_trip() {
        let how = format!(
            "agent timeout {:.1} ms: 3 round trips of {:.2} ms plus 200 ms",
            settings.fallback_after.value.as_nanos() as f64 / 1e6,
            round_trip.as_nanos() as f64 / 1e6
        );
        print_state(json, "agent", &how);
    }
    let wanting = users_of_stamps(args, &steered)?;
    doctor::require(&[doctor::Need::KernelTcp])?;
    let known: Vec<AlgorithmSpec> = steered
        .iter()
        .flat_map(|one| one.specs.iter().cloned())
        .collect();
    let choices = rules::choices(&settings, config.as_ref(), &known)?;
    // Must precede the first thread, because threads inherit it.
    ccplane_linux::no_new_privileges().map_err(failed)?;
    let (stop, again) = match &config {
        Some(_) => interrupt::flag_and_reload()?,
        None => (interrupt::flag()?, Default::default()),
    };

    let mut attached = AttachGuard {
        names: Vec::new(),
        keep: settings.keep.value,
    };
    let mut kernels = Vec::new();
    for one in &steered {
        let wants = wanting
            .iter()
            .find(|name| one.specs.iter().any(|spec| spec.kernel_name == **name));
        let stamped = wants.filter(|_| !args.dev.is_empty());
        let (mut kernel, adopted) =
            register(&one.specs, &settings, args, stamped.map(String::as_str))?;
        kernel.set_tags(&tags);
        for ((_, name, counters), slots) in kernel.counters().zip(kernel.slots()) {
            attached.names.push(name.to_owned());
            let how = if adopted {
                let seen = counters.flows - counters.without_slot;
                let beyond = match counters.without_slot {
                    0 => String::new(),
                    n => format!(", and {n} for which the table has no slot"),
                };
                format!("taken over with {seen} live flows{beyond}; capacity {slots}")
            } else {
                format!("registered, capacity {slots} flows")
            };
            print_state(json, name, &how);
        }
        if let Some(name) = wants {
            let has = kernel
                .info()
                .capabilities
                .contains(Capabilities::ONE_WAY_DELAY);
            report_stamps(name, has, adopted, args, json);
        }
        kernels.push(kernel);
    }
    let arms = settings
        .metrics
        .value
        .and_then(|_| create_arms(&attached.names));
    select::replace(&attached.names, &choices, arms.as_ref()).map_err(failed)?;
    for choice in &choices {
        print_state(
            json,
            &choice.kernel_name,
            &format!("selected for {}", choice.selection),
        );
    }
    keep_capabilities(args, true)?;
    let (sender, inbox) = mpsc::channel();
    if let Some(address) = settings.metrics.value {
        let to = sender.clone();
        // If this thread has ended, the reply channel is dropped and the scrape fails.
        let address = metrics::serve(address, move |answer| {
            drop(to.send(WatchMessage::MetricsRequest(answer)))
        })?;
        print_state(json, "metrics", &format!("http://{address}/metrics"));
    }
    let fallback_after = settings.fallback_after.value;
    let samples = settings.metrics.value.map(|_| {
        Samples::new(
            callbacks(&steered),
            arms,
            fallback_after,
            exceptions.clone(),
        )
    });
    let reload = Reload {
        requested: again,
        args,
        registry,
        settings,
        specs: known,
        operators: kernels.iter().map(Kernel::operator_handle).collect(),
        names: attached.names.clone(),
    };
    serve(
        steered,
        kernels,
        &mut attached,
        WatchThread {
            stop: &stop,
            fallback_after: fallback_after.to_std(),
            reload,
            samples,
            exceptions,
            programs: texts,
        },
        (sender, inbox),
        || keep_capabilities(args, false),
    )?;
    attached.remove()
}

fn print_state(json: bool, name: &str, what: &str) {
    if json {
        println!("{}", serde_json::json!({ "name": name, "state": what }));
    } else {
        println!("{name}: {what}");
    }
}

/// Algorithms served by one thread.
struct ServingThread {
    specs: Vec<AlgorithmSpec>,
    runner: CallbackRunner,
}

/// Runner of the callbacks.
enum CallbackRunner {
    Agent(Box<Agent>, Arc<Callbacks>),
    /// A standalone program, without callbacks.
    Standalone,
    Remote(Box<dyn AgentConnection>),
}

/// Returns the callback times of each congestion control.
fn callbacks(steered: &[ServingThread]) -> impl Iterator<Item = (String, Option<Arc<Callbacks>>)> {
    steered.iter().flat_map(|one| {
        let here = match &one.runner {
            CallbackRunner::Agent(_, callbacks) => Some(Arc::clone(callbacks)),
            CallbackRunner::Standalone | CallbackRunner::Remote(_) => None,
        };
        one.specs
            .iter()
            .map(move |spec| (spec.kernel_name.clone(), here.clone()))
    })
}

/// Registers the only algorithm under this name.
fn rename(steered: &mut [ServingThread], name: &str) -> Result<(), Failure> {
    let mut specs = steered.iter_mut().flat_map(|one| &mut one.specs);
    match (specs.next(), specs.count()) {
        (Some(spec), 0) => {
            name.clone_into(&mut spec.kernel_name);
            Ok(())
        }
        (_, others) => {
            let what = format!(
                "--kernel-name {name} names a single algorithm, but {} are to be attached",
                others + 1
            );
            Err(Failure::text(FailureKind::Usage, what).hint(
                "run one `ccplane attach` per algorithm, each with its own CCPLANE_STATE and \
                    CCPLANE_BPFFS",
            ))
        }
    }
}

/// Returns the exception counters of all algorithms that no external agent runs. `registered`: name
/// in the kernel, if it differs from the algorithm's own.
fn exception_counts(
    steered: &[ServingThread],
    apart: Option<&AgentProcess>,
    registered: Option<&str>,
) -> Exceptions {
    let exceptions = apart
        .map(|apart| apart.exceptions.clone())
        .unwrap_or_default();
    let ours = steered
        .iter()
        .filter(|one| apart.is_some() || matches!(one.runner, CallbackRunner::Agent(..)));
    ours.flat_map(|one| &one.specs).for_each(|spec| {
        exceptions.track(&spec.kernel_name, registered.unwrap_or(&spec.kernel_name))
    });
    exceptions
}

/// Returns the comparison arms for rules with a share, if this kernel supports them.
fn create_arms(names: &[String]) -> Option<Arms> {
    let arms = Arms::new(names);
    if let Err(error) = &arms {
        tracing::warn!(
            "rules with `percent` work, but the metrics do not compare them with \
            other connections: {error}"
        );
    }
    arms.ok()
}

/// Drops the capabilities that only loading needs. With `scheduling`, keeps those with which the
/// agents' threads set their scheduling and connect to an agent.
fn keep_capabilities(args: &AttachArgs, scheduling: bool) -> Result<(), Failure> {
    const CAP_DAC_OVERRIDE: u32 = 1;
    const CAP_DAC_READ_SEARCH: u32 = 2;
    const CAP_SYS_PTRACE: u32 = 19;
    const CAP_SYS_ADMIN: u32 = 21;
    const CAP_SYS_NICE: u32 = 23;
    let mut also = Vec::new();
    if scheduling {
        also.push(CAP_SYS_NICE);
        // The agent's socket may belong to another user.
        if args.remote_agent.is_set() {
            also.push(CAP_DAC_OVERRIDE);
        }
    }
    // A program file may belong to another user.
    if args.watch {
        also.push(CAP_DAC_READ_SEARCH);
    }
    // Without BPF links, an old registration is found by scanning all maps of the kernel.
    if !ccplane_linux::KernelFeatures::detect().is_ok_and(|kernel| kernel.links) {
        also.push(CAP_SYS_ADMIN);
    }
    // A device with time stamps may have moved to another namespace, where they must be removed.
    if !args.dev.is_empty() {
        also.extend([CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE, CAP_SYS_ADMIN]);
    }
    ccplane_linux::keep_capabilities(&also).map_err(failed)
}

/// Starts a process for algorithms in Python, unless they are trusted.
fn start_agent_process(
    args: &AttachArgs,
    settings: &Settings,
    registry: &Registry,
) -> Result<Option<AgentProcess>, Failure> {
    let algorithms = &settings.algorithms.value;
    if args.sandbox.is_off() || args.remote_agent.is_set() || !algorithms.iter().any(is_python) {
        return Ok(None);
    }
    if let Some(other) = algorithms.iter().find(|one| !is_python(one)) {
        let what = format!(
            "cannot attach {other} together with a Python file, which runs in a \
            separate process"
        );
        return Err(Failure::text(FailureKind::Usage, what)
            .hint("attach them with two commands, or use --sandbox off"));
    }
    // The agent's process inherits it.
    ccplane_linux::no_new_privileges().map_err(failed)?;
    let python = registry.python().unwrap_or(Path::new("python3"));
    let user = args.sandbox.user()?;
    AgentProcess::start(algorithms, python, user).map(Some)
}

/// Creates one agent per algorithm, each with its own thread and heartbeat; none for a standalone
/// program.
fn create_agents(wanted: &[Contender], registry: &Registry) -> Result<Vec<ServingThread>, Failure> {
    let one = |contender| {
        let mut agent = Agent::new(AgentOptions::default());
        add(&mut agent, contender, registry)?;
        let specs: Vec<AlgorithmSpec> = agent
            .hosted_algorithms()
            .map(|hosted| AlgorithmSpec::from(&**hosted))
            .collect();
        let by = match specs.iter().any(|spec| spec.standalone.is_some()) {
            true => CallbackRunner::Standalone,
            false => CallbackRunner::Agent(Box::new(agent), Arc::default()),
        };
        Ok(ServingThread { specs, runner: by })
    };
    wanted.iter().map(one).collect()
}

/// Returns the kernel names of the algorithms that use time stamps; with devices, exactly one.
fn users_of_stamps(args: &AttachArgs, steered: &[ServingThread]) -> Result<Vec<String>, Failure> {
    let wanting: Vec<String> = steered
        .iter()
        .flat_map(|one| &one.specs)
        .filter(|spec| spec.wants.contains(Capabilities::ONE_WAY_DELAY))
        .map(|spec| spec.kernel_name.clone())
        .collect();
    match (wanting.as_slice(), args.dev.as_slice()) {
        ([], [device, ..]) => Err(Failure::text(
            FailureKind::Usage,
            format!("--dev {device}: none of these algorithms uses time stamps"),
        )
        .hint(
            "remove --dev, or attach an algorithm that uses one-way delay, such as dx; see \
            `ccplane algorithms`",
        )),
        ([first, second, ..], [_, ..]) => Err(Failure::text(
            FailureKind::Usage,
            format!(
                "{first} and {second} both use time stamps, but a device supports only one \
                set"
            ),
        )
        .hint("attach only one of them")),
        // Compares names: `StampPrograms::attach_device` accepts no aliases of a device.
        (_, devices) => match devices
            .iter()
            .enumerate()
            .find(|(n, device)| devices[..*n].contains(device))
        {
            Some((_, device)) => {
                let text = format!("--dev: {device} is listed twice");
                Err(Failure::text(FailureKind::Usage, text).hint("list each device once"))
            }
            None => Ok(wanting),
        },
    }
}

/// Reports the state of time stamps of an algorithm that uses them. `has`: it reads stamps;
/// `adopted`: it was taken over from an earlier `attach`.
fn report_stamps(name: &str, has: bool, adopted: bool, args: &AttachArgs, json: bool) {
    match (has, adopted, args.dev.is_empty()) {
        (true, true, true) => {}
        (true, true, false) => {
            tracing::warn!(
                "{name} keeps its time stamps from the previous `attach`; run `ccplane detach` \
                 first to change them"
            );
        }
        (true, false, _) => {
            print_state(json, "time stamps", &format!("on {}", args.dev.join(", ")));
            for listener in crate::listeners::open(args.cgroup.as_deref()) {
                let what = format!(
                    "{listener} was already listening; restart it to get time stamps on the \
                     connections that it accepts"
                );
                print_state(json, "time stamps", &what);
            }
        }
        (false, true, _) => tracing::warn!(
            "{name} uses the RTT, as it was attached without time stamps; to add them, run \
             `ccplane detach`, then attach with --dev DEVICE"
        ),
        (false, false, _) => {
            tracing::warn!(
                "{name} uses the RTT in place of one-way delay; to add time stamps, attach with \
                 --dev DEVICE"
            );
        }
    }
}

/// Takes over the registration of an earlier process under this name, or registers anew, with time
/// stamps if requested.
fn register(
    specs: &[AlgorithmSpec],
    settings: &Settings,
    args: &AttachArgs,
    stamped: Option<&str>,
) -> Result<(Kernel, bool), Failure> {
    let fail = |e| Failure::new(FailureKind::Failed, e);
    let limits = settings.limits();
    match Kernel::adopt(specs, &limits) {
        Ok(kernel) => Ok((kernel, true)),
        Err(LoadError::NotAttached { .. }) => {
            let stamps = stamped.map(|name| attach_stamps(name, args)).transpose()?;
            let options = RegistrationOptions {
                limits,
                pin: true,
                flows: settings.max_flows.value,
                unrestricted: settings.any_user.value,
                stamps: stamps
                    .as_ref()
                    .map(StampPrograms::storage)
                    .transpose()
                    .map_err(fail)?,
                ..RegistrationOptions::default()
            };
            // If loading fails, dropping `stamps` removes them.
            let kernel = Kernel::load(specs, &options).map_err(fail)?;
            if let Some(stamps) = stamps {
                stamps.leave_attached();
            }
            for spec in specs {
                if let Err(error) = ccplane_linux::default_control::rebind(&spec.kernel_name) {
                    tracing::warn!("new sockets still use the previous registration: {error}");
                }
            }
            Ok((kernel, false))
        }
        Err(error) => Err(fail(error)),
    }
}

/// Attaches time stamps, pinned so that they last as long as the registration.
fn attach_stamps(name: &str, args: &AttachArgs) -> Result<StampPrograms, Failure> {
    let fail = |e| Failure::new(FailureKind::Failed, e);
    if let Some(other) = stamp::attached().first() {
        let text = format!("time stamps are already attached, for {other}");
        return Err(Failure::text(FailureKind::Failed, text).hint(
            "remove them with `ccplane \
            detach`",
        ));
    }
    let mut stamps = StampPrograms::load_pinned(name).map_err(fail)?;
    for device in &args.dev {
        stamps.attach_device(device).map_err(fail)?;
    }
    let sockets = stamps.attach_sockets(args.cgroup.as_deref());
    sockets.map_err(|e| Failure::new(FailureKind::Failed, e))?;
    Ok(stamps)
}

/// Removes the registrations on drop, unless they are to be kept.
struct AttachGuard {
    names: Vec<String>,
    keep: bool,
}

impl AttachGuard {
    fn remove(&mut self) -> Result<(), Failure> {
        let names = std::mem::take(&mut self.names);
        if self.keep {
            return Ok(());
        }
        detach(&names)
    }
}

impl Drop for AttachGuard {
    fn drop(&mut self) {
        if !self.keep
            && let Err(failure) = detach(&self.names)
        {
            tracing::error!("cleanup is incomplete: {failure}; run `ccplane detach` to retry");
        }
    }
}

/// Removes all registrations, continuing after errors. Returns the first error.
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
    Failure::new(FailureKind::Failed, error)
}
