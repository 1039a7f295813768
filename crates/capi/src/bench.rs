//! Cost of an ACK through the C functions, for `ccplane bench capi`. It is part of this crate
//! because no other crate calls them.

use std::ffi::{c_char, c_int};
use std::hint::black_box;
use std::ptr::null_mut;

use ::ccplane_datapath::{Capabilities, OperatorLimits};
use ccplane_agent::datapath::InlineChannel;
use ccplane_agent::{Agent, AgentOptions, Algorithm, Control, FlowInfo, Programs, Report};
use ccplane_wire::v1;

use crate::plane::CPlane;
use crate::*;

/// Interval between two ACKs, ns: delayed ACKs at 192 Mbit/s.
const ACK_INTERVAL_NS: u64 = 125_000;
/// Constant window, bytes.
const CWND_BYTES: u64 = 231_680;

/// Algorithm that installs one program and sends no commands.
struct Runs(String);

impl Algorithm for Runs {
    type Flow = ();

    fn name(&self) -> &str {
        "runs"
    }

    fn programs(&self) -> Programs {
        Programs::new().with("program", self.0.clone())
    }

    fn open(&mut self, _info: &FlowInfo, control: &mut Control<'_>) {
        control.set_program("program", &[]);
    }

    fn on_report(&mut self, _flow: &mut (), _report: &Report<'_>, _control: &mut Control<'_>) {}
}

/// Measures `ccplane_on_ack` with a program in CCP's language. Returns the ns per ACK of each run
/// of `acks` ACKs, by this clock. Fails if the program does not compile or never reports.
pub fn on_ack(
    program: &str,
    runs: usize,
    acks: u64,
    clock_ns: fn() -> u64,
) -> Result<Vec<f64>, String> {
    let mut agent = Agent::new(AgentOptions::default());
    agent
        .add(Runs(program.to_owned()))
        .map_err(|why| why.to_string())?;
    let plane = CPlane::with_channel(
        Box::new(InlineChannel::new(agent)),
        OperatorLimits::default(),
        Capabilities(u64::MAX),
    );
    let datapath = ccplane_datapath::new(plane);
    // SAFETY: all fields of the C struct are integers and nullable pointers, for which zero is
    // valid.
    let info = unsafe { std::mem::zeroed::<ccplane_flow_info>() };
    let info = ccplane_flow_info {
        size: size_of::<ccplane_flow_info>(),
        mss: 1_448,
        ..info
    };
    let mut flow = 0;
    // SAFETY: `datapath` comes from `ccplane_datapath::new`, and `info` and `flow` are live locals
    // with a correct size.
    unsafe {
        ccplane_flow_open(datapath, 1, &info, &mut flow);
        ccplane_turn(datapath, 1);
    }
    let mut transport = ccplane_transport {
        size: size_of::<ccplane_transport>(),
        now_ns: 1,
        cwnd: CWND_BYTES,
        rate: 12_000_000,
        ssthresh: u64::MAX,
    };
    // SAFETY: all fields of the C struct are integers, for which zero is valid.
    let signals = unsafe { std::mem::zeroed::<ccplane_signals>() };
    let signals = ccplane_signals {
        size: size_of::<ccplane_signals>(),
        bytes_acked: 2_896,
        packets_acked: 2,
        packets_in_flight: 160,
        bytes_in_flight: CWND_BYTES,
        rate_incoming: 12_000_000,
        rate_outgoing: 12_000_000,
        rtt_sample_us: 20_000,
        srtt_us: 20_000,
        min_rtt_us: 20_000,
        mss: 1_448,
        ..signals
    };
    let mut outcome = ccplane_outcome {
        size: size_of::<ccplane_outcome>(),
        flags: 0,
        reserved: 0,
        cwnd: 0,
        rate: 0,
        ssthresh: 0,
    };
    let mut failed = 0;
    let samples = timed(runs, acks, clock_ns, |n| {
        transport.now_ns += ACK_INTERVAL_NS;
        // SAFETY: `datapath` is open, and all structs are live locals with correct sizes.
        failed |= unsafe {
            // Reports are received at intervals, as in a transport.
            if n % 512 == 0 {
                ccplane_turn(datapath, transport.now_ns);
            }
            ccplane_on_ack(
                datapath,
                flow,
                black_box(&transport),
                black_box(&signals),
                &mut outcome,
            )
        };
        black_box(&outcome);
    });
    let mut stats = ccplane_stats {
        size: size_of::<ccplane_stats>(),
        opened: 0,
        closed: 0,
        reports: 0,
        fallbacks: 0,
    };
    // SAFETY: `datapath` is open, and `stats` is a live local with a correct size.
    failed |= unsafe { ccplane_get_stats(datapath, &mut stats) | ccplane_close(datapath) };
    judged(samples, failed, stats.reports)
}

/// Measures `ccp_invoke`, as called by a libccp datapath.
pub fn dropin_on_ack(
    program: &str,
    runs: usize,
    acks: u64,
    clock_ns: fn() -> u64,
) -> Result<Vec<f64>, String> {
    let messages = messages_of(program)?;
    // SAFETY: all fields of the C struct are integers and nullable pointers, for which zero is
    // valid.
    let mut conn = unsafe { std::mem::zeroed::<ccp_connection>() };
    let mut datapath = ccp_datapath {
        set_cwnd: Some(set),
        set_rate_abs: Some(set),
        send_msg: Some(send),
        log: None,
        time_zero: 0,
        now: Some(now),
        since_usecs: Some(since),
        after_usecs: Some(since),
        max_connections: 1,
        ccp_active_connections: &mut conn,
        fto_us: 1_000,
        last_msg_sent: 0,
        _in_fallback: 0,
        max_programs: 10,
        programs: null_mut(),
        impl_: null_mut(),
    };
    let dp = &raw mut datapath;
    // SAFETY: all fields of the C struct are integers, for which zero is valid.
    let mut info = unsafe { std::mem::zeroed::<ccp_datapath_info>() };
    let mut failed = 0;
    let mut counts = ccp_counts::default();
    // SAFETY: the datapath is fully initialized, its only connection and the messages outlive all
    // calls, and nothing else accesses them.
    let samples = unsafe {
        failed |= ccp_init(dp, 1);
        let conn = ccp_connection_start(dp, null_mut(), &mut info);
        for message in messages {
            failed |= ccp_read_msg(
                dp,
                message.as_ptr().cast_mut().cast(),
                message.len() as c_int,
            );
        }
        (*conn).prims = ccp_primitives {
            bytes_acked: 2_896,
            packets_acked: 2,
            rtt_sample_us: 20_000,
            rate_outgoing: 12_000_000,
            rate_incoming: 12_000_000,
            bytes_in_flight: CWND_BYTES as u32,
            packets_in_flight: 160,
            snd_cwnd: CWND_BYTES as u32,
            ..ccp_primitives::default()
        };
        let samples = timed(runs, acks, clock_ns, |_| {
            CLOCK.with(|clock| clock.set(clock.get() + ACK_INTERVAL_NS / 1_000));
            failed |= ccp_invoke(black_box(conn));
        });
        failed |= ccp_get_counts(dp, &mut counts);
        ccp_free(dp);
        samples
    };
    judged(samples, failed, counts.reports)
}

fn timed(runs: usize, acks: u64, clock_ns: fn() -> u64, mut ack: impl FnMut(u64)) -> Vec<f64> {
    let run = |_| {
        let begun = clock_ns();
        (0..acks).for_each(&mut ack);
        (clock_ns() - begun) as f64 / acks as f64
    };
    (0..runs).map(run).collect()
}

fn judged(samples: Vec<f64>, failed: c_int, reports: u64) -> Result<Vec<f64>, String> {
    match (failed, reports) {
        (0, 0) => Err("the program never reported, so the measurement is not valid".to_owned()),
        (0, _) => Ok(samples),
        (code, _) => Err(format!("a call failed: {code}")),
    }
}

/// Returns INSTALL of the program as number 1, and CHANGEPROG to it.
fn messages_of(program: &str) -> Result<[Vec<u8>; 2], String> {
    let compiled = ccplane_lang::compile(program, &ccplane_lang::ProgramLimits::default())
        .map_err(|why| why.to_string())?;
    let (mut install, mut change) = (Vec::new(), Vec::new());
    v1::install(&mut install, 1, compiled.code()).map_err(|why| why.to_string())?;
    v1::change_program(&mut change, 1, 1, compiled.code(), &[]).map_err(|why| why.to_string())?;
    Ok([install, change])
}

thread_local! {
    /// Virtual clock, µs.
    static CLOCK: std::cell::Cell<u64> = const { std::cell::Cell::new(1) };
}

unsafe extern "C" fn now() -> u64 {
    CLOCK.with(std::cell::Cell::get)
}

unsafe extern "C" fn since(then: u64) -> u64 {
    CLOCK.with(std::cell::Cell::get).wrapping_sub(then)
}

unsafe extern "C" fn set(_: *mut ccp_connection, _: u32) {}

unsafe extern "C" fn send(_: *mut ccp_datapath, _: *mut c_char, size: c_int) -> c_int {
    size
}
