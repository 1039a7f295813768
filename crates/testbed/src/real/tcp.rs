//! The workloads of a run on the kernel's TCP.
//!
//! Two threads, one per end, carry all traffic ([`openers`](super::openers),
//! [`accepters`](super::accepters)). They run at a higher priority than ordinary threads if
//! permitted; the caller's thread takes the samples. Neither loop blocks on a flow: each flow gets
//! a block of 128 kB at a time, and short flows go first.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;

use ccplane_datapath::Capabilities;
use ccplane_emu::DEVICE_NAME;
use ccplane_host::Namespace;
use ccplane_lab::Contender;
use ccplane_lab::Error;
use ccplane_lab::result::Sample;
use ccplane_lab::traffic_kind::TrafficKind;
use ccplane_units::Duration;

use super::accounting::{Account, Course, Courses, FlowSamples};
use super::client::{ClientLoop, ClientResult, OpenTarget, RunState, WatchedFlow};
use super::controls::RegisteredControls;
use super::events::PendingChanges;
use super::hosts::{self, PathSide};
use super::mailbox::Mailbox;
use super::server::ServerLoop;
use super::{RealPath, RealPlan, RealRecord, socket};
use crate::diag::Diag;
use crate::ends::inside;
use crate::traffic::{monotonic_ns, wait_until};
use crate::wire;

/// Listeners with one congestion control, one in every space.
struct Listening {
    congestion: String,
    /// By space.
    ports: Vec<u16>,
}

/// Runs the plan over a new path and the sites behind it. `look` receives the elapsed time and
/// the bytes received so far, at time zero and then every `sample_every`. It returns false to end
/// the run.
///
/// An error is a failure that would affect every flow. A broken connection counts as a failed flow
/// and ends only itself. All connections are closed on return.
pub(crate) fn run<'p>(
    path: impl Into<RealPath<'p>>,
    sites: Vec<Namespace>,
    plan: &RealPlan,
    controls: &RegisteredControls,
    mut look: impl FnMut(Duration, u64) -> bool,
) -> Result<RealRecord, Error> {
    let path = path.into();
    socket::allow_many_files();
    let spaces = hosts::settle(path.namespaces, sites)?;
    for side in PathSide::SIDES {
        // Disables delayed ACKs at both ends of a stamped connection. If iproute2 is missing the
        // run continues, with occasional delays of 40 ms.
        if plan
            .workloads
            .iter()
            .any(|w| w.capabilities.contains(Capabilities::ONE_WAY_DELAY))
        {
            let network = hosts::network(side.opposite().index());
            let end = path.namespaces[side.index()];
            let _ = wire::answer_at_once(end, &network, &["dev", DEVICE_NAME]);
        }
    }
    let account = Account::new(plan)?;
    let (targets, listeners, sinks) = targets(&spaces, plan, controls, &account)?;
    let courses = Courses::new(&account);
    let events = PendingChanges::new(path.control, &plan.events);
    let mail = || Error::traffic("create an event descriptor", "");
    let shared = RunState {
        orders: Mailbox::new().map_err(mail())?,
        arrivals: Mailbox::new().map_err(mail())?,
        sampled: Mutex::default(),
        total: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    };
    let diags = || -> Result<Vec<Diag>, Error> {
        let what = "observe connections (is the kernel built with CONFIG_INET_DIAG?)";
        spaces
            .iter()
            .map(|space| inside(space, what, Diag::open))
            .collect()
    };
    let waits = || Error::traffic("wait for connections", "");
    let (for_openers, for_looks) = (diags()?, diags()?);
    let openers = ClientLoop::new(
        plan,
        &targets,
        spaces,
        for_openers,
        &shared,
        account,
        events,
    );
    let openers = openers.map_err(waits())?.with_algorithms(controls.flows());
    let accepters = ServerLoop::new(
        listeners,
        sinks,
        &shared.orders,
        &shared.arrivals,
        &shared.total,
    )
    .map_err(waits())?;
    let mut watching = Sampler::new(for_looks, &shared, courses);
    let (ended, started_ns, ended_ns) =
        carry(plan, openers, accepters, &shared, &mut watching, &mut look)?;
    let elapsed_ns = ended_ns.saturating_sub(started_ns).max(1);
    let (senders, sampled, courses) = watching.finish(plan, elapsed_ns, &ended);
    Ok(RealRecord {
        started_ns,
        elapsed_ns,
        workloads: ended
            .account
            .records(plan, elapsed_ns, sampled, courses, &path.unloaded),
        senders,
    })
}

/// Runs both loops and the sampling. Returns the senders' result, the start time, and the time when
/// counting ended.
fn carry(
    plan: &RealPlan,
    openers: ClientLoop<'_>,
    mut accepters: ServerLoop<'_>,
    shared: &RunState,
    watching: &mut Sampler<'_>,
    look: &mut impl FnMut(Duration, u64) -> bool,
) -> Result<(ClientResult, u64, u64), Error> {
    let started = AtomicU64::new(0);
    // Held until both threads are running.
    let gate = RwLock::new(());
    thread::scope(|scope| {
        let stop = || {
            shared.stop.store(true, Ordering::Relaxed);
            shared.orders.wake();
            shared.arrivals.wake();
        };
        let run = || -> Result<_, Error> {
            let spawn = |error| Error::traffic("start a thread", "")(error);
            let closed = gate.write();
            let begin = || {
                ahead();
                drop(gate.read());
                started.load(Ordering::Acquire)
            };
            let accepting = thread::Builder::new().name("lab-accept".into());
            let accepting = accepting.spawn_scoped(scope, move || {
                let end = begin().saturating_add(plan.duration.as_nanos());
                let ended = accepters.run(end, &shared.stop);
                // The senders must not continue if this loop has failed.
                if ended.is_err() {
                    stop();
                }
                (accepters, ended)
            });
            let accepting = accepting.map_err(spawn)?;
            let opening = thread::Builder::new().name("lab-open".into());
            let opening = opening.spawn_scoped(scope, move || {
                let ended = openers.run(begin());
                if ended.is_err() {
                    stop();
                }
                ended
            });
            let opening = match opening {
                Ok(opening) => opening,
                Err(error) => {
                    stop();
                    return Err(spawn(error));
                }
            };
            let started_ns = monotonic_ns();
            started.store(started_ns, Ordering::Release);
            drop(closed);
            let seen = watching.run(plan, started_ns, look);
            if seen.is_err() || shared.stop.load(Ordering::Relaxed) {
                stop();
            }
            let panicked =
                |_| Error::traffic("carry the traffic", "")(io::Error::other("a thread panicked"));
            let opened = opening.join().map_err(panicked)?;
            let (accepters, accepted) = accepting.join().map_err(panicked)?;
            let accepted = accepted.map_err(Error::traffic(
                "accept connections",
                "many concurrent flows need many open files (ulimit -n)",
            ));
            accepters.reset();
            let (opened, ended_ns) = (opened?, accepted?);
            seen?;
            Ok((opened, started_ns, ended_ns))
        };
        let outcome = run();
        if outcome.is_err() {
            stop();
        }
        outcome
    })
}

/// Raises the thread's priority. A thread that is preempted inside its socket holds back all
/// packets that arrive for it and then releases them as a burst: on a busy machine such bursts
/// overflow queues that the congestion control would not have filled.
fn ahead() {
    // Without the privilege it runs at normal priority; the audit shows the consequences.
    let _ = ccplane_host::raise_priority();
    // The default timer slack of a normal thread is 50 µs.
    let _ = nix::sys::prctl::set_timerslack(1);
}

/// Opens listeners for every congestion control and sinks for every datagram workload, in every
/// space. Also returns the targets of each workload's flows.
#[expect(clippy::type_complexity, reason = "both loops share these parameters")]
fn targets(
    spaces: &[Namespace],
    plan: &RealPlan,
    controls: &RegisteredControls,
    account: &Account,
) -> Result<
    (
        Vec<OpenTarget>,
        Vec<TcpListener>,
        Vec<(UdpSocket, Arc<AtomicU64>)>,
    ),
    Error,
> {
    let (mut targets, mut listeners, mut sinks) = (Vec::new(), Vec::new(), Vec::new());
    let mut listening: Vec<Listening> = Vec::new();
    for (which, workload) in plan.workloads.iter().enumerate() {
        let mut target = OpenTarget::default();
        if account.traffic(which) == TrafficKind::Datagrams {
            for space in spaces {
                let open = || socket::sink(plan.socket_buffer);
                let sink = inside(space, "receive datagrams in a namespace", open)?;
                let address = sink
                    .local_addr()
                    .map_err(Error::traffic("read a socket's address", ""))?;
                target.sinks.push(address.port());
                sinks.push((sink, account.read_counter(which)));
            }
        } else if let Some(contender) = &workload.contender {
            let congestion = controls.kernel_name(contender).to_owned();
            let answers = answers(contender, workload.capabilities, &congestion);
            target.congestion = congestion;
            let known = listening.iter().find(|known| known.congestion == answers);
            target.listeners = match known {
                Some(known) => known.ports.clone(),
                None => {
                    let mut ports = Vec::with_capacity(spaces.len());
                    for space in spaces {
                        let open = || socket::listen(&answers, plan.socket_buffer);
                        let listener = inside(space, "listen in a namespace", open)?;
                        let address = listener
                            .local_addr()
                            .map_err(Error::traffic("read the listener's address", ""))?;
                        ports.push(address.port());
                        listeners.push(listener);
                    }
                    listening.push(Listening {
                        congestion: answers,
                        ports: ports.clone(),
                    });
                    ports
                }
            };
        }
        targets.push(target);
    }
    Ok((targets, listeners, sinks))
}

/// Returns the congestion control of the accepting ends of a contender's connections.
///
/// As in the simulator it is the contender if native, and otherwise Cubic. If ECN or stamps are
/// wanted it is always the contender: the kernel then accepts the offer, echoes every mark and
/// answers each stamped packet.
fn answers(contender: &Contender, wants: Capabilities, congestion: &str) -> String {
    let both = wants.contains(Capabilities::ECN) || wants.contains(Capabilities::ONE_WAY_DELAY);
    let own = contender.is_native() || both || !crate::traffic::exists(CUBIC_ALGORITHM);
    if own { congestion } else { CUBIC_ALGORITHM }.to_owned()
}

const CUBIC_ALGORITHM: &str = "cubic";

/// Samples the long-lived flows.
struct Sampler<'r> {
    /// Sockets by space.
    diags: Vec<Diag>,
    shared: &'r RunState,
    flows: Vec<(WatchedFlow, Vec<Sample>)>,
    courses: Courses,
}

impl<'r> Sampler<'r> {
    fn new(diags: Vec<Diag>, shared: &'r RunState, courses: Courses) -> Sampler<'r> {
        Sampler {
            diags,
            shared,
            flows: Vec::new(),
            courses,
        }
    }

    /// Samples until the plan's duration is over or `look` returns false.
    fn run(
        &mut self,
        plan: &RealPlan,
        started_ns: u64,
        look: &mut impl FnMut(Duration, u64) -> bool,
    ) -> Result<(), Error> {
        let (every, duration) = (
            plan.sample_every.as_nanos().max(1_000_000),
            plan.duration.as_nanos(),
        );
        let mut next = 0;
        loop {
            let at_ns = monotonic_ns().saturating_sub(started_ns);
            if at_ns >= duration || self.shared.stop.load(Ordering::Relaxed) {
                // The final sample is taken when counting ends.
                return Ok(());
            }
            self.sample(at_ns)?;
            if !look(
                Duration::from_nanos(at_ns),
                self.shared.total.load(Ordering::Relaxed),
            ) {
                self.shared.stop.store(true, Ordering::Relaxed);
                return Ok(());
            }
            // Keeps to the sampling grid even after a late sample; missed ones are skipped.
            next = (next + every)
                .max(monotonic_ns().saturating_sub(started_ns))
                .min(duration);
            wait_until(started_ns + next);
        }
    }

    fn sample(&mut self, at_ns: u64) -> Result<(), Error> {
        self.courses.sample(at_ns);
        {
            let all = self
                .shared
                .sampled
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            for watched in all.get(self.flows.len()..).unwrap_or_default() {
                let begun = Sample {
                    at_ns: watched.started.as_nanos(),
                    ..Sample::default()
                };
                self.flows.push((watched.clone(), vec![begun]));
            }
        }
        // All receive counters are read first: querying the kernel takes time on busy CPUs.
        let mut fresh = Vec::with_capacity(self.flows.len());
        for (watched, samples) in &mut self.flows {
            let last = samples.last().copied().unwrap_or_default();
            let later = at_ns > last.at_ns;
            fresh.push(later);
            if later {
                samples.push(Sample {
                    at_ns,
                    received: watched.received.load(Ordering::Relaxed),
                    // A broken connection keeps its last state; its goodput shows the failure.
                    tcp: last.tcp,
                });
            }
        }
        for ((watched, samples), fresh) in self.flows.iter_mut().zip(fresh) {
            let sample = samples.last_mut().filter(|_| fresh);
            let (Some(sample), Some(diag)) = (sample, self.diags.get_mut(watched.space)) else {
                continue;
            };
            let asked = diag
                .query(watched.local, watched.peer)
                .map_err(Error::traffic(
                    "observe the connections",
                    "is the kernel built with inet_diag (CONFIG_INET_DIAG)?",
                ))?;
            if let Some(tcp) = asked {
                sample.tcp = tcp;
            }
        }
        Ok(())
    }

    /// Takes a final sample. Returns the senders in the order of the result, and the samples and
    /// courses by workload.
    fn finish(
        mut self,
        plan: &RealPlan,
        elapsed_ns: u64,
        ended: &ClientResult,
    ) -> (Vec<SocketAddr>, Vec<FlowSamples>, Vec<Course>) {
        let all = self
            .shared
            .sampled
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for watched in all.get(self.flows.len()..).unwrap_or_default() {
            self.flows.push((watched.clone(), Vec::new()));
        }
        let mut senders: Vec<_> = self
            .flows
            .iter()
            .map(|(watched, _)| (in_result(plan, watched.workload), watched.local))
            .collect();
        senders.sort_by_key(|(place, _)| *place);
        let sampled = self.flows.into_iter().map(|(watched, mut samples)| {
            let last = samples.last().copied().unwrap_or_default();
            samples.push(Sample {
                at_ns: elapsed_ns.max(last.at_ns),
                received: watched.received.load(Ordering::Relaxed),
                tcp: ended
                    .final_info
                    .get(&watched.flow)
                    .copied()
                    .unwrap_or(last.tcp),
            });
            (watched.workload, samples)
        });
        let senders = senders.into_iter().map(|(_, sender)| sender);
        (
            senders.collect(),
            sampled.collect(),
            self.courses.finish(elapsed_ns),
        )
    }
}

/// Returns the sort key of a flow in the result, from its workload. Flows with the same key are in
/// the order of their start.
pub(super) fn in_result(plan: &RealPlan, workload: usize) -> usize {
    let compared = plan
        .workloads
        .get(workload)
        .is_some_and(|workload| workload.compared);
    if compared { 0 } else { 1 + workload }
}
