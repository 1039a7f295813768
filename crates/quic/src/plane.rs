//! Control of all paths of a process: an algorithm on a thread of its own, or an agent in another
//! process.
//!
//! An event of a path takes one lock, the datapath's, while its program runs, for a few hundred
//! nanoseconds. No agent holds this lock during a callback, so an agent that is slow or hangs
//! delays no packet: its paths fall back to NewReno. Reports and commands are passed through
//! queues. A thread of the plane receives commands and applies them to the paths.
#![expect(
    clippy::disallowed_methods,
    reason = "the driver of the paths' clock and of the agent's thread"
)]

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Instant;

use ccplane_agent::datapath::{Datapath, DatapathCore, record_outcome};
use ccplane_agent::{Agent, AgentOptions, DynAlgorithm, ProgramTables};
use ccplane_datapath::{OperatorLimits, Outcome, Signals, SteeredFlow, Transport};
use ccplane_link::{AgentAddress, AgentThread};
use ccplane_link::{Pollable, RemoteChannel, thread_channel};
use ccplane_units::{Bytes, Duration, Time};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::{PlaneError, QuicPath, Stack};

/// Time within which the plane's threads end after its last user is gone.
const END_LATENCY_MAX: Duration = Duration::from_millis(100);

/// Handle to the control of all paths of a process. Clones share the plane; its threads end with
/// the last clone and the last path.
#[derive(Clone)]
pub struct QuicPlane(Arc<Inner>);

struct Inner {
    stack: Stack,
    epoch: Instant,
    datapath: Mutex<Datapath<Box<dyn Pollable>>>,
    next_flow: AtomicU64,
    opened: AtomicU64,
    closed: AtomicU64,
    reports: AtomicU64,
    fallbacks: AtomicU64,
    /// Thread of the algorithm, which ends when it is dropped.
    _thread: Option<AgentThread>,
}

/// Totals of a plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaneStats {
    /// Paths opened as flows.
    pub opened: u64,
    /// Paths closed.
    pub closed: u64,
    /// Reports sent to the agent.
    pub reports: u64,
    /// Number of times that a path fell back to NewReno.
    pub fallbacks: u64,
}

impl QuicPlane {
    /// Creates a plane that runs an algorithm on a thread of its own, for paths of `stack` and
    /// within `limits`.
    pub fn in_process(
        stack: Stack,
        algorithm: Box<dyn DynAlgorithm>,
        limits: OperatorLimits,
    ) -> Result<QuicPlane, PlaneError> {
        stack.can_run(&*algorithm)?;
        let mut agent = Agent::new(AgentOptions::default());
        agent.add_boxed(algorithm)?;
        let (way, served) = thread_channel()?;
        let thread = AgentThread::start("ccplane-agent", agent, served)?;
        let plane = QuicPlane::new(stack, Box::new(way), limits, Instant::now(), Some(thread));
        plane.start_receiver()?;
        Ok(plane)
    }

    /// Creates a plane controlled by an agent in another process, for flows of `algorithm`. The
    /// agent must be reachable now; if the connection is lost later, the plane reconnects. The
    /// agent rejects algorithms that need capabilities which the stack lacks.
    pub fn with_agent(
        stack: Stack,
        address: &AgentAddress,
        algorithm: &str,
        limits: OperatorLimits,
    ) -> Result<QuicPlane, PlaneError> {
        let way = RemoteChannel::connect(address.connection(algorithm), Time::ZERO)?;
        let plane = QuicPlane::with_channel(stack, Box::new(way), limits, Instant::now());
        plane.start_receiver()?;
        Ok(plane)
    }

    /// Creates a plane without threads, driven by calls of [`process`](QuicPlane::process): for
    /// virtual time, with an agent on the same thread
    /// ([`InlineChannel`](ccplane_agent::datapath::InlineChannel)). `epoch` is time zero.
    pub fn with_channel(
        stack: Stack,
        channel: Box<dyn Pollable>,
        limits: OperatorLimits,
        epoch: Instant,
    ) -> QuicPlane {
        QuicPlane::new(stack, channel, limits, epoch, None)
    }

    fn new(
        stack: Stack,
        channel: Box<dyn Pollable>,
        limits: OperatorLimits,
        epoch: Instant,
        thread: Option<AgentThread>,
    ) -> QuicPlane {
        let tables = ProgramTables::new(limits, stack.capabilities());
        let shared = DatapathCore::new(std::process::id(), stack.name(), tables, channel);
        QuicPlane(Arc::new(Inner {
            stack,
            epoch,
            datapath: Mutex::new(Datapath::new(Time::ZERO, shared)),
            next_flow: AtomicU64::new(1),
            opened: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            reports: AtomicU64::new(0),
            fallbacks: AtomicU64::new(0),
            _thread: thread,
        }))
    }

    /// Receives the agent's commands and sends pending messages. Only for planes without threads.
    pub fn process(&self, now: Instant) {
        self.0.lock().poll(self.time(now));
    }

    /// Returns the totals.
    pub fn stats(&self) -> PlaneStats {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        PlaneStats {
            opened: of(&self.0.opened),
            closed: of(&self.0.closed),
            reports: of(&self.0.reports) + self.0.lock().total_reports(),
            fallbacks: of(&self.0.fallbacks),
        }
    }

    /// Returns the stack of the plane.
    pub fn stack(&self) -> Stack {
        self.0.stack
    }

    /// Returns an error if the plane was created for another stack than `asked`.
    #[cfg(any(test, feature = "noq", feature = "quinn", feature = "s2n"))]
    pub(crate) fn check_stack(&self, asked: Stack) -> Result<(), PlaneError> {
        if self.stack() == asked {
            return Ok(());
        }
        Err(PlaneError::WrongStack {
            of: self.stack().name(),
            asked: asked.name(),
        })
    }

    /// Converts a time of the stack's clock to the paths' time.
    pub fn time(&self, at: Instant) -> Time {
        Time::ZERO + Duration::from(at.saturating_duration_since(self.0.epoch))
    }

    /// Starts the thread that receives commands.
    fn start_receiver(&self) -> Result<(), PlaneError> {
        let plane = Arc::downgrade(&self.0);
        thread::Builder::new()
            .name("ccplane-quic".to_owned())
            .spawn(move || receive_commands(&plane))?;
        Ok(())
    }
}

impl fmt::Debug for QuicPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plane")
            .field("stack", &self.0.stack)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl Inner {
    /// Locks the datapath. A poisoned lock is accepted, since a panic leaves each flow either
    /// updated or unchanged.
    fn lock(&self) -> MutexGuard<'_, Datapath<Box<dyn Pollable>>> {
        self.datapath.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Applies commands to the paths as they arrive, until the plane is dropped.
fn receive_commands(plane: &Weak<Inner>) {
    while let Some(inner) = plane.upgrade() {
        let plane = QuicPlane(inner);
        let (fd, longest) = {
            let mut datapath = plane.0.lock();
            let now = plane.time(Instant::now());
            datapath.poll(now);
            let due = datapath
                .next_deadline()
                .map_or(END_LATENCY_MAX, |due| due.since(now));
            // Duplicated, since another call may reopen the connection while this thread waits.
            let fd = datapath
                .channel()
                .as_fd()
                .and_then(|fd: BorrowedFd<'_>| fd.try_clone_to_owned().ok());
            (fd, due.min(END_LATENCY_MAX))
        };
        drop(plane);
        wait(fd.as_ref(), longest);
    }
}

fn wait(fd: Option<&OwnedFd>, longest: Duration) {
    let Some(fd) = fd else {
        return thread::sleep(std::time::Duration::from_nanos(
            longest.as_nanos().max(1_000_000),
        ));
    };
    // Rounded up, so that the thread does not wake early and spin.
    let ms = longest.as_nanos().div_ceil(1_000_000).min(60_000) as u16;
    // The next turn handles any error.
    let _ = poll(
        &mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)],
        PollTimeout::from(ms),
    );
}

/// Path together with its plane, for use in a stack's adapter.
#[derive(Debug)]
pub struct SteeredPath {
    plane: QuicPlane,
    path: QuicPath,
    /// Flow number, once the peer has answered; before the handshake the path is not a flow yet.
    flow: Option<u64>,
    /// Set if the path continues an earlier one.
    live: bool,
    in_fallback: bool,
}

impl SteeredPath {
    /// Creates a path that starts now.
    pub fn new(plane: &QuicPlane, now: Instant, mss: u16) -> SteeredPath {
        SteeredPath {
            plane: plane.clone(),
            path: QuicPath::new(plane.time(now), mss),
            flow: None,
            live: false,
            in_fallback: false,
        }
    }

    /// Returns the path that replaces this one after a migration. It becomes a flow of its own.
    #[must_use]
    pub fn migrate(&self) -> SteeredPath {
        SteeredPath {
            plane: self.plane.clone(),
            path: self.path.migrate(),
            flow: None,
            live: true,
            in_fallback: false,
        }
    }

    /// Returns the path.
    pub fn path(&self) -> &QuicPath {
        &self.path
    }

    /// Returns the path, to record packet events.
    pub fn path_mut(&mut self) -> &mut QuicPath {
        &mut self.path
    }

    /// Converts a time of the stack's clock to the path's time.
    pub fn time(&self, at: Instant) -> Time {
        self.plane.time(at)
    }

    /// Returns true while the path runs NewReno because no agent controls it.
    pub fn in_fallback(&self) -> bool {
        self.in_fallback
    }

    /// Opens the path as a flow on the first answer of the peer.
    pub fn open(&mut self, now: Time) {
        if self.flow.is_some() {
            return;
        }
        let inner = &self.plane.0;
        let flow = inner.next_flow.fetch_add(1, Ordering::Relaxed);
        let mut datapath = inner.lock();
        datapath.open(now, flow, self.path.info(self.live));
        datapath.flush(now);
        drop(datapath);
        inner.opened.fetch_add(1, Ordering::Relaxed);
        self.flow = Some(flow);
    }

    /// Ends an event; see [`QuicPath::finish_event`].
    pub fn finish_event(&mut self, now: Time, app_limited: bool) {
        let (flow, inner) = (self.flow, &self.plane.0);
        let mut fallback = self.in_fallback;
        self.path.finish_event(
            now,
            app_limited,
            |transport: &Transport, signals: &Signals| {
                let Some(flow) = flow else {
                    return Outcome::default();
                };
                let mut datapath = inner.lock();
                let outcome = match datapath.flow(flow) {
                    Some(mut lent) => {
                        let outcome = lent.on_ack(transport, signals);
                        let info = lent.user_data();
                        record_outcome(info, transport, &outcome);
                        info.srtt = Duration::from_micros(signals.srtt_us);
                        outcome
                    }
                    None => Outcome::default(),
                };
                // Wakes the agent if a report was sent; otherwise costs nothing.
                datapath.flush(transport.now);
                fallback = outcome.fallback;
                outcome
            },
        );
        if fallback && !self.in_fallback {
            inner.fallbacks.fetch_add(1, Ordering::Relaxed);
        }
        self.in_fallback = fallback;
    }
}

impl Drop for SteeredPath {
    fn drop(&mut self) {
        let Some(flow) = self.flow.take() else { return };
        let inner = &self.plane.0;
        let mut datapath = inner.lock();
        let reports = datapath.reports(flow).unwrap_or(0);
        datapath.close(
            self.path.now(),
            flow,
            Bytes::new(self.path.acked_bytes()),
            self.path.lost_packets(),
        );
        drop(datapath);
        inner.reports.fetch_add(reports, Ordering::Relaxed);
        inner.closed.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use ccplane_agent::datapath::{AgentChannel, Incoming, InlineChannel};
    use ccplane_agent::{Algorithm, Control, FlowInfo, Programs, Report, box_algorithm};
    use ccplane_wire::WireEvent;

    use super::*;

    /// Agent channel on which an agent appears on request and which records opened flows.
    #[derive(Clone, Default)]
    struct Overheard(Arc<Mutex<(bool, Vec<FlowInfo>)>>);

    impl AgentChannel for Overheard {
        fn try_report(&mut self, _now: Time, _report: &WireEvent<'_>) -> bool {
            true
        }

        fn send(&mut self, _now: Time, event: WireEvent<'static>) {
            if let WireEvent::FlowOpened { info, .. } = event {
                self.0.lock().unwrap().1.push(info);
            }
        }

        fn recv(&mut self, _now: Time) -> Option<Incoming> {
            std::mem::take(&mut self.0.lock().unwrap().0).then_some(Incoming::AgentConnected)
        }

        fn next_deadline(&self) -> Option<Time> {
            None
        }
    }

    impl Pollable for Overheard {}

    #[test]
    fn a_plane_of_another_stack_is_refused_by_name() {
        let plane = QuicPlane::with_channel(
            Stack::Noq,
            Box::new(Overheard::default()),
            OperatorLimits::default(),
            Instant::now(),
        );
        assert!(plane.check_stack(Stack::Noq).is_ok());
        let why = plane.check_stack(Stack::S2n).unwrap_err().to_string();
        assert!(
            why.contains("created for noq") && why.contains("s2n-quic"),
            "{why}"
        );
    }

    #[test]
    fn a_late_agent_gets_the_current_window() {
        let (way, epoch) = (Overheard::default(), Instant::now());
        let plane = QuicPlane::with_channel(
            Stack::Noq,
            Box::new(way.clone()),
            OperatorLimits::default(),
            epoch,
        );
        let mut steered = SteeredPath::new(&plane, epoch, 1_200);
        // Without an agent, NewReno controls the path from half a second on, in slow start.
        for number in 0..200u64 {
            let sent = Time::from_micros(number * 10_000);
            let now = sent + Duration::from_millis(5);
            steered.path_mut().on_sent(sent, number, 1_200);
            steered.path_mut().on_cwnd_limited();
            steered.path_mut().on_acked(now, number, sent);
            steered.open(now);
            steered.finish_event(now, false);
        }
        assert!(steered.in_fallback() && plane.stats().fallbacks == 1);
        way.0.lock().unwrap().0 = true;
        plane.process(epoch);
        let told = way.0.lock().unwrap().1.clone();
        let (first, later) = (&told[0], &told[1]);
        assert!(
            !first.live && later.live && later.cwnd > first.cwnd,
            "{told:?}"
        );
        assert_eq!(
            (later.cwnd.get(), later.srtt),
            (steered.path().window(), Duration::from_millis(5))
        );
    }

    /// Channel to an agent on this thread that has no room for reports at times.
    struct Narrow(InlineChannel, Arc<AtomicBool>);

    impl AgentChannel for Narrow {
        fn try_report(&mut self, now: Time, report: &WireEvent<'_>) -> bool {
            !self.1.load(Ordering::Relaxed) && self.0.try_report(now, report)
        }

        fn send(&mut self, now: Time, event: WireEvent<'static>) {
            self.0.send(now, event);
        }

        fn poll(&mut self, now: Time) {
            self.0.poll(now);
        }

        fn recv(&mut self, now: Time) -> Option<Incoming> {
            self.0.recv(now)
        }

        fn flush(&mut self, now: Time) {
            self.0.flush(now);
        }

        fn next_deadline(&self) -> Option<Time> {
            self.0.next_deadline()
        }
    }

    impl Pollable for Narrow {}

    /// Counts reports and the bytes in them.
    #[derive(Default)]
    struct Counts(Arc<(AtomicU64, AtomicU64)>);

    impl Algorithm for Counts {
        type Flow = ();

        fn name(&self) -> &str {
            "counts"
        }

        fn programs(&self) -> Programs {
            let fold = "(def (Report (volatile acked 0))) \
                        (when true (:= Report.acked (+ Report.acked Ack.bytes_acked)) (report))";
            Programs::new().with("fold", fold)
        }

        fn open(&mut self, _: &FlowInfo, control: &mut Control<'_>) {
            control.set_program("fold", &[]);
        }

        fn on_report(&mut self, (): &mut (), report: &Report<'_>, _: &mut Control<'_>) {
            self.0.0.fetch_add(1, Ordering::Relaxed);
            self.0
                .1
                .fetch_add(report.get("acked").unwrap(), Ordering::Relaxed);
        }
    }

    #[test]
    fn a_minute_of_full_queue_loses_no_command() {
        let (counts, full, epoch) = (
            Counts::default(),
            Arc::new(AtomicBool::new(false)),
            Instant::now(),
        );
        let heard = Arc::clone(&counts.0);
        let mut agent = Agent::new(AgentOptions::default());
        agent.add_boxed(box_algorithm(counts)).unwrap();
        let way = Narrow(InlineChannel::new(agent), Arc::clone(&full));
        let plane =
            QuicPlane::with_channel(Stack::Noq, Box::new(way), OperatorLimits::default(), epoch);
        let mut steered = SteeredPath::new(&plane, epoch, 1_200);
        let mut before = 0;
        // An ACK every 10 ms for 62 s, with room in the queue only in the first and the last
        // second.
        for number in 0..6_200u64 {
            let sent = Time::from_micros(number * 10_000);
            let now = sent + Duration::from_millis(5);
            full.store((100..6_100).contains(&number), Ordering::Relaxed);
            steered.path_mut().on_sent(sent, number, 1_200);
            steered.path_mut().on_acked(now, number, sent);
            steered.open(now);
            steered.finish_event(now, true);
            plane.process(epoch + std::time::Duration::from_micros(number * 10_000 + 5_000));
            assert!(!steered.in_fallback(), "{now:?}: the agent answers");
            match number {
                99 => before = heard.0.load(Ordering::Relaxed),
                6_099 => assert_eq!(
                    heard.0.load(Ordering::Relaxed),
                    before,
                    "the table was full"
                ),
                _ => {}
            }
        }
        // The first ACK opens the flow before its program is installed.
        let (reports, bytes) = (
            heard.0.load(Ordering::Relaxed),
            heard.1.load(Ordering::Relaxed),
        );
        assert!(
            before > 90 && reports > before + 90,
            "{before} and {reports}"
        );
        assert!(
            steered.path().acked_bytes() - bytes <= 2 * 1_200,
            "{bytes} of {}",
            steered.path().acked_bytes()
        );
    }
}
