//! Functions of `ccplane.h` as called from C, with valid and invalid arguments.

use std::ffi::{CStr, CString, c_int};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

use ccplane_agent::{Agent, AgentOptions};
use ccplane_algorithms::{Parameters, Registry};
use ccplane_capi::*;
use ccplane_link::{Local, ThreadClock, WaitStrategy, serve};
use nix::poll::{PollFd, PollFlags, poll};

const ALL_CAPABILITIES: u64 = 255;
const MSS: u64 = 1_448;

fn options(algorithm: &CStr, flags: u64) -> ccplane_options {
    ccplane_options {
        size: size_of::<ccplane_options>(),
        algorithm: algorithm.as_ptr(),
        agent: null(),
        capabilities: ALL_CAPABILITIES,
        flags,
        min_cwnd: 0,
        max_cwnd: 0,
        max_rate: 0,
        fallback_after_ns: 0,
    }
}

/// Opens a datapath. Returns the error code and message on failure.
fn open(options: *const ccplane_options) -> Result<*mut ccplane_datapath, (i64, String)> {
    let mut error = ccplane_error {
        size: size_of::<ccplane_error>(),
        code: 0,
        message: [1; 496],
    };
    // SAFETY: both structs are live and as large as stated; wrong sizes stay within live memory.
    let datapath = unsafe { ccplane_open(options, &mut error) };
    if !datapath.is_null() {
        return Ok(datapath);
    }
    // SAFETY: the library filled the message and terminated it.
    let why = unsafe { CStr::from_ptr(error.message.as_ptr()) };
    Err((error.code, why.to_str().expect("UTF-8").to_owned()))
}

fn reno() -> *mut ccplane_datapath {
    open(&options(c"reno", CCPLANE_SAME_THREAD)).expect("reno exists")
}

fn info() -> ccplane_flow_info {
    ccplane_flow_info {
        size: size_of::<ccplane_flow_info>(),
        mss: MSS,
        init_cwnd: 0,
        ssthresh: 0,
        rate: 0,
        srtt_ns: 0,
        live: 0,
        local: c"192.0.2.1:4000".as_ptr(),
        peer: c"[2001:db8::1]:443".as_ptr(),
    }
}

fn flow_of(datapath: *mut ccplane_datapath, now: u64) -> u64 {
    let mut flow = 0;
    // SAFETY: all pointers are to live locals with correct sizes.
    let code = unsafe { ccplane_flow_open(datapath, now, &info(), &mut flow) };
    assert_eq!(code, CCPLANE_OK);
    assert_ne!(flow, 0);
    flow
}

fn transport(now_ns: u64, cwnd: u64) -> ccplane_transport {
    ccplane_transport {
        size: size_of::<ccplane_transport>(),
        now_ns,
        cwnd,
        rate: 0,
        ssthresh: u64::MAX,
    }
}

fn signals(acked: u64) -> ccplane_signals {
    ccplane_signals {
        size: size_of::<ccplane_signals>(),
        bytes_acked: acked * MSS,
        packets_acked: acked,
        rtt_sample_us: 20_000,
        srtt_us: 20_000,
        min_rtt_us: 20_000,
        mss: MSS,
        cwnd_limited: 1,
        packets_in_flight: 10,
        bytes_in_flight: 10 * MSS,
        bytes_pending: 1 << 20,
        // SAFETY: all fields are integers, for which zero is valid.
        ..unsafe { std::mem::zeroed() }
    }
}

fn outcome() -> ccplane_outcome {
    ccplane_outcome {
        size: size_of::<ccplane_outcome>(),
        flags: 0,
        reserved: 0,
        cwnd: 0,
        rate: 0,
        ssthresh: 0,
    }
}

fn ack(
    datapath: *mut ccplane_datapath,
    flow: u64,
    transport: &ccplane_transport,
    acked: u64,
) -> ccplane_outcome {
    let mut outcome = outcome();
    // SAFETY: all structs are live with correct sizes.
    let code = unsafe { ccplane_on_ack(datapath, flow, transport, &signals(acked), &mut outcome) };
    assert_eq!(code, CCPLANE_OK);
    outcome
}

fn turn(datapath: *mut ccplane_datapath, now: u64) -> c_int {
    // SAFETY: `datapath` is null or from `ccplane_open`.
    unsafe { ccplane_turn(datapath, now) }
}

fn close(datapath: *mut ccplane_datapath) -> c_int {
    // SAFETY: `datapath` is null or from `ccplane_open`, closed or not.
    unsafe { ccplane_close(datapath) }
}

fn stats(datapath: *mut ccplane_datapath) -> ccplane_stats {
    let mut stats = ccplane_stats {
        size: size_of::<ccplane_stats>(),
        opened: 0,
        closed: 0,
        reports: 0,
        fallbacks: 0,
    };
    // SAFETY: `stats` is a live local with a correct size.
    let status = unsafe { ccplane_get_stats(datapath, &mut stats) };
    assert_eq!(status, CCPLANE_OK);
    stats
}

#[test]
fn an_algorithm_of_the_same_thread_steers_a_flow_in_virtual_time() {
    let datapath = reno();
    let mut now = 1_000_000;
    let flow = flow_of(datapath, now);
    assert_eq!(turn(datapath, now), CCPLANE_OK);
    let mut cwnd = 10 * MSS;
    for _ in 0..100 {
        now += 1_000_000;
        cwnd = ack(datapath, flow, &transport(now, cwnd), 1).cwnd;
        turn(datapath, now);
    }
    assert!(
        (100 * MSS..=111 * MSS).contains(&cwnd),
        "slow start: {cwnd}"
    );
    let (seen, told) = (transport(now, cwnd), signals(0));
    let mut lost = outcome();
    // SAFETY: all structs are live with correct sizes.
    let code = unsafe {
        ccplane_on_ack(
            datapath,
            flow,
            &seen,
            &ccplane_signals {
                lost_pkts_sample: 1,
                in_recovery: 1,
                ..told
            },
            &mut lost,
        )
    };
    assert_eq!(
        (code, lost.flags & CCPLANE_REPORTED),
        (CCPLANE_OK, CCPLANE_REPORTED)
    );
    let done = stats(datapath);
    assert!(
        done.opened == 1 && done.reports > 1 && done.fallbacks == 0,
        "{}",
        done.reports
    );
    // SAFETY: `datapath` is open.
    assert_eq!(unsafe { ccplane_fd(datapath) }, CCPLANE_ENOFD);
    turn(datapath, now);
    // SAFETY: `datapath` is open.
    let due = unsafe { ccplane_next_deadline(datapath, 0) };
    assert!(
        due > now && due < now + 500_000_000,
        "the agent's heartbeat"
    );
    assert_eq!(close(datapath), CCPLANE_OK);
}

#[test]
fn an_algorithm_in_its_own_thread_is_heard_through_the_descriptor() {
    let datapath = open(&options(c"cubic:report=10ms", 0)).unwrap();
    let flow = flow_of(datapath, 1);
    // SAFETY: `datapath` is open.
    let fd = unsafe { ccplane_fd(datapath) };
    assert!(fd >= 0);
    // SAFETY: the descriptor stays open until the datapath is closed.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let mut waited = [PollFd::new(fd, PollFlags::POLLIN)];
    let woken = poll(&mut waited, 5_000_u16);
    assert_eq!(woken, Ok(1), "the algorithm sets its program");
    let runs = (2..5_000).find(|now| {
        #[expect(
            clippy::disallowed_methods,
            reason = "the thread's commands arrive in real time"
        )]
        std::thread::sleep(std::time::Duration::from_millis(1));
        turn(datapath, *now);
        ack(datapath, flow, &transport(*now, 10 * MSS), 1).cwnd == 11 * MSS
    });
    let begun = runs.expect("its program runs");
    // Processing an ACK does not allocate, reports included.
    let mut cwnd = 10 * MSS;
    let allocated = allocation_counter::measure(|| {
        for n in 1..10_000 {
            cwnd = ack(
                datapath,
                flow,
                &transport(begun + n * 1_000_000, cwnd.min(1 << 24)),
                1,
            )
            .cwnd;
        }
    });
    assert_eq!(allocated.count_total, 0);
    assert!(stats(datapath).reports > 100);
    assert_eq!(close(datapath), CCPLANE_OK);
}

#[test]
fn failed_opens_state_the_reason() {
    let refused = |options: &ccplane_options| open(options).expect_err("the call is refused");
    let (code, why) = refused(&options(c"renoo", 0));
    assert_eq!(code, i64::from(CCPLANE_EALGORITHM));
    assert!(why.contains("did you mean `reno`?"), "{why}");
    let (_, why) = refused(&options(c"reno:repot=1ms", 0));
    assert!(why.contains("repot"), "{why}");
    let (_, why) = refused(&options(c"reno:fast", 0));
    assert!(why.contains("name=value"), "{why}");
    let (code, why) = refused(&options(c"./absent.ccp", 0));
    assert!(
        code == i64::from(CCPLANE_EALGORITHM) && why.contains("absent.ccp"),
        "{why}"
    );
    let only = |capabilities, algorithm| ccplane_options {
        capabilities,
        ..options(algorithm, 0)
    };
    let (code, why) = refused(&only(CCPLANE_CAN_CWND, c"bbr"));
    assert!(
        code == i64::from(CCPLANE_ECAPABILITY) && why.contains("pacing"),
        "{why}"
    );
    assert_eq!(refused(&only(0, c"reno")).0, i64::from(CCPLANE_EVALUE));
    assert_eq!(refused(&only(256, c"reno")).0, i64::from(CCPLANE_EVALUE));
    assert_eq!(refused(&options(c"reno", 2)).0, i64::from(CCPLANE_EVALUE));
    let limits = ccplane_options {
        min_cwnd: 2_000,
        max_cwnd: 1_000,
        ..options(c"reno", 0)
    };
    assert!(refused(&limits).1.contains("min_cwnd"));
    let nobody = ccplane_options {
        algorithm: null(),
        ..options(c"", 0)
    };
    assert!(refused(&nobody).1.contains("both null"));
    let absent = ccplane_options {
        agent: c"unix:/nowhere/agent.sock".as_ptr(),
        ..options(c"reno", 0)
    };
    let (code, why) = refused(&absent);
    assert!(
        code == i64::from(CCPLANE_EAGENT) && why.contains("/nowhere/agent.sock"),
        "{why}"
    );
    let latin = CString::new([b'r', 0xe9]).unwrap();
    assert_eq!(refused(&options(&latin, 0)).0, i64::from(CCPLANE_EVALUE));
    let long = CString::new("é".repeat(400)).unwrap();
    assert!(
        refused(&options(&long, 0)).1.len() >= 490,
        "truncated, and still valid text"
    );
    assert_eq!(
        open(null()),
        Err((CCPLANE_ENULL.into(), "a required pointer is null".into()))
    );
    // SAFETY: null pointers are rejected. Without an error struct the reason is discarded.
    assert!(unsafe { ccplane_open(null(), null_mut()) }.is_null());
}

#[test]
fn null_is_an_error_everywhere() {
    let datapath = reno();
    let flow = flow_of(datapath, 1);
    let (seen, told, mut room) = (transport(2, 10 * MSS), signals(1), outcome());
    // SAFETY: pointers that are not null are to live locals with correct sizes.
    unsafe {
        let mut number = 0;
        assert_eq!(
            ccplane_flow_open(null_mut(), 1, &info(), &mut number),
            CCPLANE_ENULL
        );
        assert_eq!(
            ccplane_flow_open(datapath, 1, null(), &mut number),
            CCPLANE_ENULL
        );
        assert_eq!(
            ccplane_flow_open(datapath, 1, &info(), null_mut()),
            CCPLANE_ENULL
        );
        assert_eq!(
            ccplane_on_ack(null_mut(), flow, &seen, &told, &mut room),
            CCPLANE_ENULL
        );
        assert_eq!(
            ccplane_on_ack(datapath, flow, null(), &told, &mut room),
            CCPLANE_ENULL
        );
        assert_eq!(
            ccplane_on_ack(datapath, flow, &seen, null(), &mut room),
            CCPLANE_ENULL
        );
        assert_eq!(
            ccplane_on_ack(datapath, flow, &seen, &told, null_mut()),
            CCPLANE_ENULL
        );
        assert_eq!(
            ccplane_on_deadline(null_mut(), flow, &seen, &mut room),
            CCPLANE_ENULL
        );
        assert_eq!(
            ccplane_on_deadline(datapath, flow, null(), &mut room),
            CCPLANE_ENULL
        );
        assert_eq!(
            ccplane_on_deadline(datapath, flow, &seen, null_mut()),
            CCPLANE_ENULL
        );
        assert_eq!(ccplane_next_deadline(null_mut(), flow), u64::MAX);
        assert_eq!(ccplane_turn(null_mut(), 1), CCPLANE_ENULL);
        assert_eq!(ccplane_fd(null_mut()), CCPLANE_ENULL);
        assert_eq!(ccplane_flow_close(null_mut(), 1, flow, 0, 0), CCPLANE_ENULL);
        assert_eq!(ccplane_get_stats(null_mut(), null_mut()), CCPLANE_ENULL);
        assert_eq!(ccplane_close(null_mut()), CCPLANE_ENULL);
    }
    assert_eq!(stats(datapath).reports, 0, "none of it was counted");
    close(datapath);
}

#[test]
fn a_struct_of_no_size_or_an_impossible_one_is_refused_and_an_older_one_is_not() {
    let datapath = reno();
    let flow = flow_of(datapath, 1);
    let on_ack = |seen: usize, told: usize, room: usize| {
        let seen = ccplane_transport {
            size: seen,
            ..transport(2, 10 * MSS)
        };
        let told = ccplane_signals {
            size: told,
            ..signals(1)
        };
        let mut room = ccplane_outcome {
            size: room,
            ..outcome()
        };
        // SAFETY: the structs are at least as large as stated, or state a size that is rejected
        // before more than the size is read.
        unsafe { ccplane_on_ack(datapath, flow, &seen, &told, &mut room) }
    };
    let (seen, told, room) = (
        size_of::<ccplane_transport>(),
        size_of::<ccplane_signals>(),
        size_of::<ccplane_outcome>(),
    );
    for wrong in [0, 4, 8, 33, usize::MAX] {
        assert_eq!(on_ack(wrong, told, room), CCPLANE_ESIZE, "{wrong}");
        assert_eq!(on_ack(seen, wrong, room), CCPLANE_ESIZE, "{wrong}");
        assert_eq!(on_ack(seen, told, wrong), CCPLANE_ESIZE, "{wrong}");
    }
    // Only CCP's signals.
    assert_eq!(on_ack(seen, 16 * 8, room), CCPLANE_OK);
    assert_eq!(on_ack(seen, told, room), CCPLANE_OK);
    let mut number = 0;
    let sized = |size, mss| ccplane_flow_info {
        size,
        mss,
        ..info()
    };
    // SAFETY: the structs are at least as large as stated.
    unsafe {
        assert_eq!(
            ccplane_flow_open(datapath, 1, &sized(16, MSS), &mut number),
            CCPLANE_OK
        );
        assert_eq!(
            ccplane_flow_open(datapath, 1, &sized(8, MSS), &mut number),
            CCPLANE_ESIZE
        );
        assert_eq!(
            ccplane_flow_open(datapath, 1, &sized(16, 0), &mut number),
            CCPLANE_EVALUE
        );
        let nowhere = ccplane_flow_info {
            peer: c"somewhere".as_ptr(),
            ..info()
        };
        assert_eq!(
            ccplane_flow_open(datapath, 1, &nowhere, &mut number),
            CCPLANE_EVALUE
        );
    }
    close(datapath);
}

#[test]
fn a_flow_that_ended_is_unknown_and_its_place_gets_another_number() {
    let datapath = reno();
    let first = flow_of(datapath, 1);
    let call = |flow| {
        let mut room = outcome();
        // SAFETY: all structs are live with correct sizes.
        unsafe {
            ccplane_on_ack(
                datapath,
                flow,
                &transport(2, 10 * MSS),
                &signals(1),
                &mut room,
            )
        }
    };
    let end = |flow| {
        // SAFETY: `datapath` is open.
        unsafe { ccplane_flow_close(datapath, 3, flow, 1, 2) }
    };
    assert_eq!(call(first), CCPLANE_OK);
    assert_eq!(end(first), CCPLANE_OK);
    assert_eq!(
        (end(first), call(first)),
        (CCPLANE_ENOFLOW, CCPLANE_ENOFLOW)
    );
    let second = flow_of(datapath, 4);
    assert_ne!(first, second);
    assert_eq!((call(first), call(second)), (CCPLANE_ENOFLOW, CCPLANE_OK));
    for unknown in [0, u64::MAX, second + 1, 1 << 32, first ^ 1 << 63] {
        assert_eq!(
            (call(unknown), end(unknown)),
            (CCPLANE_ENOFLOW, CCPLANE_ENOFLOW),
            "{unknown}"
        );
    }
    // SAFETY: `datapath` is open.
    assert_eq!(unsafe { ccplane_next_deadline(datapath, first) }, u64::MAX);
    let done = stats(datapath);
    assert_eq!((done.opened, done.closed), (2, 1));
    assert_eq!(close(datapath), CCPLANE_OK);
}

#[test]
fn a_datapath_that_was_closed_stays_closed() {
    let datapath = open(&options(c"copa", 0)).unwrap();
    let flow = flow_of(datapath, 1);
    assert_eq!(close(datapath), CCPLANE_OK);
    assert_eq!(
        (close(datapath), turn(datapath, 1)),
        (CCPLANE_ECLOSED, CCPLANE_ECLOSED)
    );
    let mut room = outcome();
    // SAFETY: a handle stays valid after it is closed.
    let code =
        unsafe { ccplane_on_ack(datapath, flow, &transport(2, MSS), &signals(1), &mut room) };
    assert_eq!(code, CCPLANE_ECLOSED);
}

#[test]
fn a_second_thread_is_refused_and_harms_nothing() {
    struct CallbackState(*mut ccplane_datapath);
    // SAFETY: handles may be used from any thread; concurrent calls are rejected, which this test
    // checks.
    unsafe impl Sync for CallbackState {}
    let datapath = CallbackState(reno());
    let shared = &datapath;
    let mut codes: Vec<c_int> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(move || {
                    let mut codes = Vec::new();
                    for now in 0..20_000 {
                        codes.push(turn({ shared }.0, now));
                    }
                    codes
                })
            })
            .collect();
        calls
            .into_iter()
            .flat_map(|call| call.join().unwrap())
            .collect()
    });
    codes.sort_unstable();
    codes.dedup();
    assert!(
        codes
            .iter()
            .all(|code| [CCPLANE_OK, CCPLANE_EBUSY].contains(code)),
        "{codes:?}"
    );
    assert_eq!(turn(datapath.0, 1 << 40), CCPLANE_OK);
    close(datapath.0);
}

#[test]
fn a_silent_agent_loses_its_flows_and_gets_them_back() {
    let datapath = reno();
    let flow = flow_of(datapath, 1);
    turn(datapath, 1);
    let second = 1_000_000_000;
    let at = |now| ack(datapath, flow, &transport(now, 20 * MSS), 1).flags & CCPLANE_FALLBACK;
    assert_eq!(at(second / 10), 0);
    assert_eq!(at(second), CCPLANE_FALLBACK, "no call for a second");
    // SAFETY: all structs are live with correct sizes.
    let code = unsafe {
        ccplane_on_deadline(
            datapath,
            flow,
            &transport(second + 1, 20 * MSS),
            &mut outcome(),
        )
    };
    assert_eq!(code, CCPLANE_OK);
    turn(datapath, second + 2);
    turn(datapath, second + 3);
    assert_eq!(at(second + 4), 0);
    assert_eq!(stats(datapath).fallbacks, 1);
    close(datapath);
}

#[test]
fn every_code_has_words() {
    let words = |code| {
        // SAFETY: the result is never null and is null-terminated.
        unsafe { CStr::from_ptr(ccplane_strerror(code)) }
            .to_str()
            .unwrap()
            .to_owned()
    };
    let all: std::collections::BTreeSet<String> =
        (CCPLANE_EPANIC..=CCPLANE_OK).map(words).collect();
    assert_eq!(all.len(), 14);
    assert_eq!(words(7), words(c_int::MIN));
    // SAFETY: the result is never null and is null-terminated.
    let version = unsafe { CStr::from_ptr(ccplane_version()) };
    assert_eq!(version.to_str(), Ok(env!("CARGO_PKG_VERSION")));
}

/// Runs an agent as if it were in another process.
fn serving(path: &Path, stop: &AtomicBool) {
    let mut agent = Agent::new(AgentOptions::default());
    let reno = Registry::builtin()
        .by_name("reno", &Parameters::new())
        .unwrap();
    agent.add_boxed(reno).unwrap();
    let mut link = Local::bind(path).unwrap();
    serve(&mut agent, &mut [&mut link], WaitStrategy::default(), stop).unwrap();
}

#[test]
fn an_agent_elsewhere_steers_and_may_go_and_come_back() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("agent-{}", std::process::id()));
    let address = CString::new(format!("unix:{}", path.display())).unwrap();
    let mut options = options(c"", 0);
    (options.agent, options.algorithm) = (address.as_ptr(), null());
    options.fallback_after_ns = 200_000_000;
    // Opens the datapath once the agent is reachable, then runs the flow in real time until the
    // condition holds.
    let (mut datapath, mut flow, begun) = (null_mut::<ccplane_datapath>(), 0, ThreadClock::new());
    let mut until = |what: &str, wanted: &dyn Fn(u32, u64) -> bool| {
        for _ in 0..10_000 {
            #[expect(
                clippy::disallowed_methods,
                reason = "the agent runs in its own thread"
            )]
            std::thread::sleep(std::time::Duration::from_millis(1));
            if datapath.is_null() {
                let Ok(opened) = open(&options) else { continue };
                datapath = opened;
                flow = flow_of(datapath, begun.now().as_nanos());
            }
            let now = begun.now().as_nanos();
            turn(datapath, now);
            let done = ack(datapath, flow, &transport(now, 10 * MSS), 1);
            if wanted(done.flags, done.cwnd) {
                return datapath;
            }
        }
        panic!("never {what}");
    };
    let mut opened = null_mut();
    for round in 0..2 {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| serving(&path, &stop));
            until("steered", &|flags, cwnd| {
                flags & CCPLANE_FALLBACK == 0 && cwnd == 11 * MSS
            });
            stop.store(true, Ordering::Relaxed);
        });
        opened = until("on the fallback", &|flags, _| flags & CCPLANE_FALLBACK != 0);
        assert!(stats(opened).fallbacks > round);
        let _ = std::fs::remove_file(&path);
    }
    assert_eq!(close(opened), CCPLANE_OK);
}
