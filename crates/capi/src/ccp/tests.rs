//! A datapath as written for libccp, and an agent that sends valid or invalid messages or is gone.

use std::cell::Cell;
use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

use ccplane_agent::{Agent, AgentOptions, CcpDatapath, DatapathId};
use ccplane_algorithms::{Parameters, Registry};
use ccplane_lang::ProgramLimits;
use ccplane_units::Time;
use ccplane_wire::v1;

use super::layout::code;
use super::*;

thread_local! {
    /// Virtual clock, µs.
    static CLOCK: Cell<u64> = const { Cell::new(1_000) };
}

unsafe extern "C" fn now() -> u64 {
    CLOCK.get()
}

unsafe extern "C" fn since(then: u64) -> u64 {
    CLOCK.get().wrapping_sub(then)
}

unsafe extern "C" fn after(us: u64) -> u64 {
    CLOCK.get() + us
}

/// Recorded callbacks and their configuration.
#[derive(Default)]
struct CallbackLog {
    cwnd: Vec<u32>,
    rate: Vec<u32>,
    sent: Vec<Vec<u8>>,
    gone: bool,
    /// Messages passed to the datapath from within `send_msg`.
    answers: Vec<Vec<u8>>,
}

unsafe fn seen<'a>(datapath: *mut ccp_datapath) -> &'a mut CallbackLog {
    // SAFETY: `Host::new` stored a boxed `CallbackLog` there, which lives as long as the host.
    unsafe { &mut *(*datapath).impl_.cast::<CallbackLog>() }
}

unsafe extern "C" fn set_cwnd(conn: *mut ccp_connection, cwnd: u32) {
    // SAFETY: the library passes a live connection of `Host`.
    unsafe { seen((*conn).datapath) }.cwnd.push(cwnd);
}

unsafe extern "C" fn set_rate(conn: *mut ccp_connection, rate: u32) {
    // SAFETY: the library passes a live connection of `Host`.
    unsafe { seen((*conn).datapath) }.rate.push(rate);
}

unsafe extern "C" fn send_msg(
    datapath: *mut ccp_datapath,
    message: *mut c_char,
    size: c_int,
) -> c_int {
    // SAFETY: the library guarantees `size` bytes. The answers are taken out before the library is
    // called again, so no reference to `CallbackLog` is live.
    unsafe {
        if seen(datapath).gone {
            return -11;
        }
        let bytes = std::slice::from_raw_parts(message.cast::<u8>(), size as usize).to_vec();
        seen(datapath).sent.push(bytes);
        for answer in std::mem::take(&mut seen(datapath).answers) {
            say(datapath, &answer);
        }
    }
    size
}

unsafe fn say(datapath: *mut ccp_datapath, message: &[u8]) -> c_int {
    // SAFETY: `message` has the stated length, and the library does not write to it.
    unsafe {
        ccp_read_msg(
            datapath,
            message.as_ptr().cast_mut().cast(),
            message.len() as c_int,
        )
    }
}

/// Datapath with its memory.
struct Host {
    datapath: *mut ccp_datapath,
    conns: *mut [ccp_connection],
}

impl Host {
    fn new(connections: usize, programs: usize) -> Host {
        // SAFETY: all fields are integers and nullable pointers, for which zero is valid.
        let zero: ccp_connection = unsafe { std::mem::zeroed() };
        let conns = Box::into_raw(vec![zero; connections].into_boxed_slice());
        let datapath = Box::into_raw(Box::new(ccp_datapath {
            set_cwnd: Some(set_cwnd),
            set_rate_abs: Some(set_rate),
            send_msg: Some(send_msg),
            log: None,
            time_zero: 0,
            now: Some(now),
            since_usecs: Some(since),
            after_usecs: Some(after),
            max_connections: connections,
            ccp_active_connections: conns.cast(),
            fto_us: 1_000,
            last_msg_sent: 0,
            _in_fallback: 0,
            max_programs: programs,
            programs: null_mut(),
            impl_: Box::into_raw(Box::<CallbackLog>::default()).cast(),
        }));
        // SAFETY: the datapath is fully initialized and lives until `drop`.
        assert_eq!(unsafe { ccp_init(datapath, 7) }, code::OK);
        Host { datapath, conns }
    }

    fn seen(&mut self) -> &mut CallbackLog {
        // SAFETY: `self` is borrowed exclusively, and no call of the library is in progress.
        unsafe { seen(self.datapath) }
    }

    fn start(&mut self) -> *mut ccp_connection {
        let mut info = ccp_datapath_info {
            init_cwnd: 14_600,
            mss: 1_460,
            src_ip: u32::from_le_bytes([10, 0, 0, 1]),
            src_port: 4_000,
            dst_ip: u32::from_le_bytes([10, 0, 0, 2]),
            dst_port: 443,
            congAlg: [0; 64],
        };
        for (to, from) in info.congAlg.iter_mut().zip(b"reno") {
            *to = *from as c_char;
        }
        // SAFETY: the datapath is live, and `info` is a live local.
        unsafe { ccp_connection_start(self.datapath, null_mut(), &mut info) }
    }

    fn say(&mut self, message: &[u8]) -> c_int {
        // SAFETY: the datapath is live.
        unsafe { say(self.datapath, message) }
    }

    fn counts(&mut self) -> ccp_counts {
        let mut counts = ccp_counts::default();
        // SAFETY: the datapath is live, and `counts` is a live local.
        let status = unsafe { ccp_get_counts(self.datapath, &mut counts) };
        assert_eq!(status, code::OK);
        counts
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // SAFETY: all pointers were created by `Box::into_raw` in `new` and are not used
        // afterwards.
        unsafe {
            ccp_free(self.datapath);
            drop(Box::from_raw((*self.datapath).impl_.cast::<CallbackLog>()));
            drop(Box::from_raw(self.datapath));
            drop(Box::from_raw(self.conns));
        }
    }
}

/// Advances the clock by one millisecond and processes an ACK of `acked` bytes.
fn invoke(conn: *mut ccp_connection, acked: u32) -> c_int {
    CLOCK.set(CLOCK.get() + 1_000);
    // SAFETY: the connection's memory is live.
    unsafe {
        (*conn).prims.bytes_acked = acked;
        (*conn).prims.snd_cwnd = 14_600;
        ccp_invoke(conn)
    }
}

fn install(uid: u32, source: &str) -> Vec<u8> {
    let program = ccplane_lang::compile(source, &ProgramLimits::default()).expect("it compiles");
    let mut message = Vec::new();
    v1::install(&mut message, uid, program.code()).expect("CCP can encode it");
    message
}

/// Returns CHANGEPROG or UPDATE_FIELD with updates given as register type, index and value.
fn updates(kind: u16, sid: u32, uid: Option<u32>, updates: &[(u8, u32, u64)]) -> Vec<u8> {
    let mut body = uid.map_or(Vec::new(), |uid| uid.to_le_bytes().to_vec());
    body.extend((updates.len() as u32).to_le_bytes());
    for (class, index, value) in updates {
        body.push(*class);
        body.extend(index.to_le_bytes());
        body.extend(value.to_le_bytes());
    }
    let mut message = kind.to_le_bytes().to_vec();
    message.extend((body.len() as u16 + 8).to_le_bytes());
    message.extend(sid.to_le_bytes());
    message.extend(body);
    message
}

fn change(sid: u32, uid: u32) -> Vec<u8> {
    updates(4, sid, Some(uid), &[])
}

fn update(sid: u32, what: &[(u8, u32, u64)]) -> Vec<u8> {
    updates(3, sid, None, what)
}

/// Returns the fields of a MEASURE message.
fn fields(message: &[u8]) -> Vec<u64> {
    match v1::messages(message).next() {
        Some(Ok(v1::V1Message::Measure { fields, .. })) => fields.iter().collect(),
        other => panic!("{other:?}"),
    }
}

const SUM_PROGRAM: &str = "(def (Report (volatile acked 0)) (gain 1)) \
    (when true (:= Report.acked (+ Report.acked (* gain Ack.bytes_acked))) (report))";

#[test]
fn an_agent_is_told_of_the_datapath_and_its_connections() {
    let mut host = Host::new(2, 10);
    assert_eq!(host.seen().sent, [[5, 0, 12, 0, 0, 0, 0, 0, 7, 0, 0, 0]]);
    let conn = host.start();
    let sent = std::mem::take(&mut host.seen().sent);
    let Some(Ok(v1::V1Message::Create { flow, create })) = v1::messages(&sent[1]).next() else {
        panic!("{sent:?}");
    };
    assert_eq!((flow, create.algorithm, create.mss), (1, "reno", 1_460));
    assert_eq!(create.destination.to_string(), "10.0.0.2:443");
    assert_eq!(invoke(conn, 1), code::PROG_IS_NULL, "no program yet");
    // Every slot can be used, and is reusable.
    let second = host.start();
    assert!(!second.is_null() && host.start().is_null());
    // SAFETY: the datapath and its connections are live.
    unsafe {
        assert_eq!(ccp_connection_lookup(host.datapath, 1), conn);
        ccp_connection_free(host.datapath, 1);
        ccp_connection_free(host.datapath, 1);
        ccp_connection_free(host.datapath, 0);
        ccp_connection_free(host.datapath, 3);
        assert!(ccp_connection_lookup(host.datapath, 1).is_null());
        assert_eq!(ccp_invoke(conn), code::PRIV_IS_NULL);
    }
    let sent = std::mem::take(&mut host.seen().sent);
    assert_eq!((sent.len(), fields(&sent[1]).len()), (2, 0), "one end");
    assert_eq!(host.start(), conn);
}

#[test]
fn programs_run_report_and_are_updated() {
    let mut host = Host::new(1, 10);
    let conn = host.start();
    assert_eq!(host.say(&install(3, SUM_PROGRAM)), code::OK);
    assert_eq!(host.say(&updates(4, 1, Some(3), &[(0, 0, 2)])), code::OK);
    host.seen().sent.clear();
    assert_eq!(invoke(conn, 100), code::OK);
    assert_eq!(
        host.say(&update(1, &[(0, 0, 5), (2, 4, 29_200), (2, 5, 1 << 40)])),
        code::OK
    );
    assert_eq!(invoke(conn, 100), code::OK);
    let sent = std::mem::take(&mut host.seen().sent);
    assert_eq!([fields(&sent[0]), fields(&sent[1])], [[200], [500]]);
    // A rate above 32 bits is clamped to the callback's range; libccp truncates it.
    assert_eq!(host.seen().cwnd, [29_200]);
    assert_eq!(host.seen().rate, [u32::MAX]);
    assert_eq!(
        host.counts(),
        ccp_counts {
            messages: 3,
            reports: 2,
            ..ccp_counts::default()
        }
    );
}

/// Register as type and index. An instruction is an operation, a result, and two operands.
type Reg = (u8, u32);

/// Returns an INSTALL as written by CCP's compiler; ours compensates for libccp's behaviour.
fn raw(uid: u32, events: &[[u32; 4]], instrs: &[(u8, Reg, Reg, Reg)]) -> Vec<u8> {
    let mut body = [uid, events.len() as u32, instrs.len() as u32]
        .map(u32::to_le_bytes)
        .concat();
    body.extend(events.iter().flatten().flat_map(|n| n.to_le_bytes()));
    for (op, result, left, right) in instrs {
        body.push(*op);
        for (class, index) in [result, left, right] {
            body.push(*class);
            body.extend(index.to_le_bytes());
        }
    }
    let mut message = vec![2, 0];
    message.extend((body.len() as u16 + 8).to_le_bytes());
    message.extend([0; 4]);
    message.extend(body);
    message
}

const OPCODE_DEF: u8 = 2;
const OPCODE_BIND: u8 = 1;

#[test]
fn a_fallthrough_holds_for_every_later_clause_as_in_the_reference() {
    let mut host = Host::new(1, 10);
    let conn = host.start();
    let (flag, goes_on, reports) = ((2, 0), (2, 1), (2, 2));
    let [a, b, c] = [(5, 0), (5, 1), (5, 2)];
    let to = |result, value| (OPCODE_BIND, result, result, (1, value));
    let mut instrs: Vec<_> = [a, b, c].map(|var| (OPCODE_DEF, var, var, (1, 0))).to_vec();
    instrs.extend([to(flag, 1), to(a, 1), to(goes_on, 1)]);
    instrs.extend([to(flag, 1), to(b, 1)]);
    instrs.extend([to(flag, 1), to(c, 1), to(reports, 1)]);
    let three = raw(1, &[[3, 1, 4, 2], [6, 1, 7, 1], [8, 1, 9, 2]], &instrs);
    assert_eq!(
        (host.say(&three), host.say(&change(1, 1))),
        (code::OK, code::OK)
    );
    host.seen().sent.clear();
    invoke(conn, 1);
    assert_eq!(fields(&host.seen().sent[0]), [1, 1, 1]);
}

#[test]
fn messages_that_break_the_reference_are_refused_and_counted() {
    let mut host = Host::new(1, 10);
    let conn = host.start();
    host.say(&install(1, SUM_PROGRAM));
    host.say(&change(1, 1));
    // 256 definitions: libccp's byte counter would never reach the end.
    let many: Vec<_> = (0..256)
        .map(|n| (OPCODE_DEF, (5, n % 60), (5, n % 60), (1, 0)))
        .collect();
    let many = raw(9, &[], &many);
    assert_eq!(host.say(&many), code::INSTALL_TOO_MANY_INSTR);
    // Ninth temporary register, to which libccp ignores writes.
    let mut ninth = install(1, SUM_PROGRAM);
    let temp = ninth
        .windows(5)
        .position(|w| w == [7, 0, 0, 0, 0])
        .expect("there is one");
    ninth[temp + 1] = 8;
    assert_eq!(host.say(&ninth), code::READ_REG_NOT_ALLOWED);
    // Registers outside libccp's memory.
    for (class, index) in [
        (0, 5_000),
        (0, 1),
        (0, u32::MAX),
        (8, 5_000),
        (2, 0),
        (2, 9),
        (5, 0),
        (4, 1),
        (200, 0),
    ] {
        let said = host.say(&update(1, &[(0, 0, 9), (class, index, 1)]));
        assert_eq!(said, code::UPDATE_INVALID_REG_TYPE, "{class} {index}");
    }
    let mut cut = update(1, &[(0, 0, 1), (0, 0, 2)]);
    cut[8] = 200;
    assert_eq!(host.say(&cut), code::UPDATE_TYPE_MISMATCH);
    assert_eq!(
        host.say(&change(1, 9)),
        code::PROG_NOT_FOUND,
        "accepted there without an effect"
    );
    assert_eq!(host.say(&update(2, &[])), code::UNKNOWN_CONNECTION);
    assert_eq!(
        host.say(&update(0x0001_0001, &[])),
        code::UNKNOWN_CONNECTION,
        "the reference uses 16 bits"
    );
    assert_eq!(
        host.say(&[9, 0, 8, 0, 0, 0, 0, 0]),
        code::READ_INVALID_HEADER_TYPE
    );
    assert_eq!(host.say(&[2, 0, 255, 255, 0, 0, 0, 0]), code::MSG_TOO_LONG);
    assert_eq!(
        host.say(&[2, 0, 20, 0, 0, 0, 0, 0]),
        code::BUFSIZE_TOO_SMALL
    );
    assert_eq!(host.say(&[]), code::BUFSIZE_TOO_SMALL);
    let counts = host.counts();
    let refused =
        counts.malformed + counts.programs + counts.table_full + counts.updates + counts.unknown;
    assert_eq!(
        (counts.messages, counts.refused, refused),
        (21, 19, 19),
        "{counts:?}"
    );
    assert_eq!(
        (
            counts.programs,
            counts.updates,
            counts.unknown,
            counts.malformed
        ),
        (2, 9, 3, 5)
    );
    // None of the updates in a rejected message is applied, and the connection continues.
    host.seen().sent.clear();
    invoke(conn, 100);
    assert_eq!(fields(&host.seen().sent[0]), [100]);
}

#[test]
fn a_program_of_the_same_number_replaces_and_a_full_table_says_so() {
    let mut host = Host::new(1, 3);
    let conn = host.start();
    let constant = |value: u32| {
        format!("(def (Report (volatile x 0))) (when true (:= Report.x {value}) (report))")
    };
    for uid in [1, 2, 3] {
        assert_eq!(
            host.say(&install(uid, &constant(uid))),
            code::OK,
            "all announced slots"
        );
    }
    assert_eq!(host.say(&install(4, SUM_PROGRAM)), code::PROG_TABLE_FULL);
    assert_eq!(host.say(&change(1, 2)), code::OK);
    host.seen().sent.clear();
    invoke(conn, 1);
    assert_eq!(host.say(&install(2, &constant(9))), code::OK);
    invoke(conn, 1);
    let sent = std::mem::take(&mut host.seen().sent);
    assert_eq!([fields(&sent[0]), fields(&sent[1])], [[2], [9]]);
    // A new agent counts from 1 and may evict programs that no connection runs.
    for uid in [1, 4, 5] {
        let said = host.say(&install(uid, &constant(uid)));
        assert_eq!(
            said,
            if uid == 5 {
                code::PROG_TABLE_FULL
            } else {
                code::OK
            },
            "{uid}"
        );
    }
    assert_eq!(invoke(conn, 1), code::OK);
    assert_eq!(fields(&host.seen().sent[0]), [9]);
    assert_eq!(host.counts().table_full, 2);
}

#[test]
fn a_blocked_agent_counts_as_lost_until_it_sends() {
    let mut host = Host::new(1, 10);
    let conn = host.start();
    host.say(&install(1, SUM_PROGRAM));
    host.say(&change(1, 1));
    invoke(conn, 1);
    host.seen().gone = true;
    assert_eq!(invoke(conn, 10), code::OK);
    assert_eq!(invoke(conn, 10), code::OK, "a millisecond has not passed");
    assert_eq!(invoke(conn, 10), code::FALLBACK_TIMED_OUT);
    host.seen().gone = false;
    assert_eq!(
        invoke(conn, 10),
        code::FALLBACK_TIMED_OUT,
        "a report is due"
    );
    assert_eq!(host.say(&update(1, &[])), code::OK);
    host.seen().sent.clear();
    assert_eq!(invoke(conn, 10), code::OK);
    assert_eq!(fields(&host.seen().sent[0]), [30], "measurements are kept");
    assert_eq!(host.counts().reports_kept, 2);
}

#[test]
fn a_connection_that_was_not_announced_is_announced_later() {
    let mut host = Host::new(1, 10);
    host.seen().gone = true;
    let conn = host.start();
    host.seen().gone = false;
    host.say(&install(1, SUM_PROGRAM));
    let sent = host.seen().sent.len();
    assert_eq!(invoke(conn, 1), code::OK);
    assert_eq!(
        host.seen().sent.len(),
        sent,
        "not before 100 ms have passed"
    );
    CLOCK.set(CLOCK.get() + 100_000);
    assert_eq!(invoke(conn, 1), code::OK);
    assert_eq!(host.seen().sent.len(), sent + 1);
}

/// ccplane's agent with its support for CCP datapaths; all messages are exchanged as bytes.
#[test]
fn our_agent_steers_a_connection_by_messages_of_version_1() {
    let mut host = Host::new(1, 10);
    let mut agent = Agent::new(AgentOptions::default());
    let reno = Registry::builtin()
        .by_name("reno", &Parameters::new())
        .expect("it exists");
    agent.add_boxed(reno).expect("it compiles");
    let mut link = CcpDatapath::new(DatapathId(0));
    let conn = host.start();
    let mut exchange = |host: &mut Host| {
        let now = Time::from_micros(CLOCK.get());
        for message in std::mem::take(&mut host.seen().sent) {
            link.handle(now, &message, &mut agent)
                .expect("the message is of a datapath");
        }
        while let Some((_, command)) = agent.poll() {
            let mut out = Vec::new();
            link.encode_command(now, &command, &mut agent, &mut out);
            if !out.is_empty() {
                assert_eq!(host.say(&out), code::OK, "{command:?}");
            }
        }
    };
    exchange(&mut host);
    let mut ack = |host: &mut Host, lost: u32| {
        CLOCK.set(CLOCK.get() + 1_000);
        // SAFETY: the connection's memory is live.
        let code = unsafe {
            let window = host.seen().cwnd.last().copied().unwrap_or(14_600);
            (*conn).prims = ccp_primitives {
                bytes_acked: 1_460,
                packets_acked: 1,
                lost_pkts_sample: lost,
                rtt_sample_us: 20_000,
                packets_in_flight: window / 1_460,
                bytes_in_flight: window,
                snd_cwnd: window,
                ..Default::default()
            };
            ccp_invoke(conn)
        };
        assert_eq!(code, code::OK);
        exchange(host);
        host.seen().cwnd.last().copied().unwrap_or(14_600)
    };
    let grown = (0..200).fold(0, |_, _| ack(&mut host, 0));
    assert!(grown > 100_000, "slow start: {grown}");
    ack(&mut host, 1);
    let reduced = (0..3).fold(0, |_, _| ack(&mut host, 0));
    assert!(
        (grown / 3..grown * 2 / 3).contains(&reduced),
        "{reduced} after {grown}"
    );
    assert_eq!(host.counts().refused, 0);
}

#[test]
fn a_callback_may_call_back() {
    let mut host = Host::new(1, 10);
    let conn = host.start();
    host.say(&install(1, SUM_PROGRAM));
    host.say(&change(1, 1));
    let other = "(def (Report (y 7))) (when true (report))";
    host.seen().answers = vec![
        install(2, other),
        change(1, 2),
        update(1, &[(2, 4, 99_000)]),
    ];
    host.seen().sent.clear();
    assert_eq!(invoke(conn, 5), code::OK);
    assert_eq!(invoke(conn, 5), code::OK);
    let sent = std::mem::take(&mut host.seen().sent);
    assert_eq!([fields(&sent[0]), fields(&sent[1])], [[5], [7]]);
    assert_eq!(host.seen().cwnd, [99_000]);
}

#[test]
fn arithmetic_without_a_result_goes_on_and_is_counted() {
    let mut host = Host::new(1, 10);
    let conn = host.start();
    let wrong = "(def (Report (volatile x 0) (volatile y 0))) \
        (when true (:= Report.x (/ 1 Ack.bytes_acked)) \
        (:= Report.y (- Ack.bytes_acked 2)) (report))";
    host.say(&install(1, wrong));
    host.say(&change(1, 1));
    host.seen().sent.clear();
    assert_eq!(
        invoke(conn, 0),
        code::OK,
        "the reference sends no report and sets nothing"
    );
    assert_eq!(fields(&host.seen().sent[0]), [0, 0]);
    // SAFETY: the datapath is live.
    unsafe { ccp_connection_free(host.datapath, 1) };
    assert_eq!(host.counts().faults, 2);
}

#[test]
fn null_and_uninitialised_arguments_are_errors() {
    // SAFETY: all pointers are null or to live memory.
    unsafe {
        assert_eq!(ccp_init(null_mut(), 1), code::MISSING_ARG);
        assert_eq!(ccp_read_msg(null_mut(), null_mut(), 0), code::NULL_ARG);
        assert_eq!(ccp_invoke(null_mut()), code::NULL_ARG);
        assert_eq!(ccp_get_counts(null_mut(), null_mut()), code::NULL_ARG);
        assert!(ccp_connection_start(null_mut(), null_mut(), null_mut()).is_null());
        assert!(ccp_connection_lookup(null_mut(), 1).is_null());
        assert!(ccp_get_impl(null_mut()).is_null() && !_check_fto(null_mut()));
        ccp_set_impl(null_mut(), null_mut());
        ccp_connection_free(null_mut(), 1);
        _update_fto_timer(null_mut());
        _turn_off_fto_timer(null_mut());
        ccp_free(null_mut());
        let mut host = Host::new(1, 1);
        assert!(ccp_connection_start(host.datapath, null_mut(), null_mut()).is_null());
        assert_eq!(ccp_read_msg(host.datapath, null_mut(), 8), code::NULL_ARG);
        assert_eq!(
            ccp_read_msg(host.datapath, [0; 8].as_mut_ptr(), -1),
            code::BUFSIZE_NEGATIVE
        );
        let conn = host.start();
        ccp_free(host.datapath);
        ccp_free(host.datapath);
        assert_eq!(ccp_invoke(conn), code::PROG_IS_NULL);
        let mut zero: ccp_connection = std::mem::zeroed();
        assert_eq!(ccp_invoke(&mut zero), code::CONNECTION_NOT_INITIALIZED);
        let mut bare: ccp_datapath = *host.datapath;
        bare.fto_us = 0;
        assert_eq!(ccp_init(&mut bare, 1), code::MISSING_ARG);
    }
}
