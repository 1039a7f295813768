//! Fuzz harness of the functions of `ccp.h` with arbitrary calls and agent messages. Checks that
//! nothing panics and that every rejection is counted under exactly one reason. Every struct and
//! message is an allocation of its own, so that AddressSanitizer finds an access beyond it.

use std::cell::Cell;
use std::ffi::{c_char, c_int};
use std::ptr::null_mut;
use std::sync::OnceLock;

use ccplane_datapath::{CommandTarget, Update};
use ccplane_lang::ProgramLimits;
use ccplane_wire::v1;

use super::CallInput;
use crate::ccp::*;

thread_local! {
    /// Virtual clock, µs.
    static CLOCK: Cell<u64> = const { Cell::new(1) };
    /// Makes `send_msg` fail.
    static REFUSES: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C" fn now() -> u64 {
    CLOCK.get()
}

unsafe extern "C" fn since(then: u64) -> u64 {
    CLOCK.get().wrapping_sub(then)
}

unsafe extern "C" fn after(us: u64) -> u64 {
    CLOCK.get().wrapping_add(us)
}

unsafe extern "C" fn set_cwnd(conn: *mut ccp_connection, cwnd: u32) {
    // SAFETY: the library calls this only with a live connection.
    unsafe { (*conn).prims.snd_cwnd = cwnd };
}

unsafe extern "C" fn set_rate(conn: *mut ccp_connection, rate: u32) {
    // SAFETY: the library calls this only with a live connection.
    unsafe { (*conn).prims.snd_rate = rate.into() };
}

unsafe extern "C" fn send_msg(_: *mut ccp_datapath, message: *mut c_char, size: c_int) -> c_int {
    // SAFETY: the library guarantees that `message` has `size` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(message.cast::<u8>(), size as usize) };
    assert!(
        v1::messages(bytes).all(|message| message.is_ok()),
        "{bytes:?}"
    );
    if REFUSES.get() { -1 } else { size }
}

const FOLD_PROGRAM: &str = "
(def (Report (volatile acked 0) (volatile loss 0) (volatile rtt +infinity))
    (reportTime 5000) (cap 100))
(when true (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (:= Report.loss (+ Report.loss Ack.lost_pkts_sample))
    (:= Report.rtt (min Report.rtt Flow.rtt_sample_us)) (fallthrough))
(when (> Report.loss 0) (:= Cwnd (* cap 1460)) (report) (:= Micros 0))
(when (> Micros reportTime) (:= Rate (/ Report.acked 3)) (report) (:= Micros 0))";

/// Valid messages of an agent for connection 1.
fn right() -> &'static [Vec<u8>] {
    static VALID_MESSAGES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    VALID_MESSAGES.get_or_init(|| {
        let compiled =
            |source| ccplane_lang::compile(source, &ProgramLimits::default()).expect("it compiles");
        let fold = compiled(FOLD_PROGRAM);
        let other = compiled(
            "(def (Report (volatile x 0))) \
             (when true (:= Report.x (/ Ack.bytes_acked 2)) (report))",
        );
        let value = Update {
            target: CommandTarget::Var(4),
            value: 3_000,
        };
        let window = Update {
            target: CommandTarget::Cwnd,
            value: 29_200,
        };
        let mut all = vec![Vec::new(); 4];
        v1::install(&mut all[0], 1, fold.code()).expect("CCP can encode it");
        v1::install(&mut all[1], 2, other.code()).expect("CCP can encode it");
        v1::change_program(&mut all[2], 1, 1, fold.code(), &[value]).expect("a control variable");
        v1::update_fields(&mut all[3], 1, Some(fold.code()), &[window])
            .expect("the value can be set");
        all
    })
}

/// Returns a message: usually a valid one, possibly modified or truncated.
fn message(input: &mut CallInput<'_>) -> Box<[u8]> {
    let kind = input.small() as usize;
    let mut bytes = match right().get(kind % 5) {
        Some(right) => right.clone(),
        None => (0..input.small()).map(|_| input.small() as u8).collect(),
    };
    for _ in 0..(kind / 5).saturating_sub(25).min(4) {
        let at = input.small() as usize | (input.small() as usize) << 8;
        let at = at % bytes.len().max(1);
        if let Some(byte) = bytes.get_mut(at) {
            *byte = input.small() as u8;
        }
    }
    if kind > 240 {
        bytes.truncate(input.small() as usize);
    }
    bytes.into()
}

/// Runs the calls in `data`.
pub fn libccp(data: &[u8]) {
    let mut input = CallInput(data.iter());
    let places = 1 + input.small() as usize % 4;
    // SAFETY: all fields are integers and nullable pointers, for which zero is valid.
    let mut connections =
        vec![unsafe { std::mem::zeroed::<ccp_connection>() }; places].into_boxed_slice();
    let connections = connections.as_mut_ptr();
    let mut datapath = Box::new(ccp_datapath {
        set_cwnd: Some(set_cwnd),
        set_rate_abs: Some(set_rate),
        send_msg: Some(send_msg),
        log: None,
        time_zero: 0,
        now: Some(now),
        since_usecs: Some(since),
        after_usecs: Some(after),
        max_connections: places,
        ccp_active_connections: connections,
        fto_us: 1_000,
        last_msg_sent: 0,
        _in_fallback: 0,
        max_programs: 1 + input.small() as usize % 4,
        programs: null_mut(),
        impl_: null_mut(),
    });
    let datapath: *mut ccp_datapath = &mut *datapath;
    REFUSES.set(false);
    // SAFETY: the datapath and its connections live until the end of this function.
    assert_eq!(unsafe { ccp_init(datapath, 1) }, 0);
    while let (Some(what), Some(which)) = (input.byte(), input.byte()) {
        CLOCK.set(CLOCK.get().wrapping_add(1 << (which % 16)));
        REFUSES.set(which > 200);
        let number = match which % 8 {
            0 => input.number() as u16,
            _ => 1 + u16::from(which) % places as u16,
        };
        // SAFETY: pointers are null, to live locals of this function, or from the library. Messages
        // have the stated size.
        unsafe {
            match what {
                0..=39 => {
                    let mut info = Box::new(ccp_datapath_info {
                        init_cwnd: input.number() as u32,
                        mss: input.number() as u32,
                        src_ip: 0,
                        src_port: 0,
                        dst_ip: 0,
                        dst_port: 0,
                        // Null-terminated or not.
                        congAlg: [input.small() as c_char; 64],
                    });
                    let started = ccp_connection_start(datapath, null_mut(), &mut *info);
                    assert!(
                        started.is_null()
                            || started >= connections && started < connections.add(places)
                    );
                }
                40..=49 => ccp_connection_free(datapath, number),
                50..=149 => {
                    let mut bytes = message(&mut input);
                    let size = if which == 7 { -1 } else { bytes.len() as c_int };
                    assert!(ccp_read_msg(datapath, bytes.as_mut_ptr().cast(), size) <= 0);
                }
                150..=229 => {
                    let connection = connections.add(usize::from(which) % places);
                    let prims = &mut (*connection).prims;
                    (prims.bytes_acked, prims.lost_pkts_sample) =
                        (input.number() as u32, input.small() as u32 / 100);
                    (prims.rtt_sample_us, prims.was_timeout) =
                        (input.number(), input.small() as u8 / 100);
                    assert!(ccp_invoke(connection) <= 0);
                }
                230..=239 => {
                    let found = ccp_connection_lookup(datapath, number);
                    ccp_set_impl(found, found.cast());
                    assert_eq!(ccp_get_impl(found), found.cast());
                }
                240..=249 => {
                    _update_fto_timer(datapath);
                    if !_check_fto(datapath) {
                        _turn_off_fto_timer(datapath);
                    }
                }
                _ => {
                    assert!(
                        ccp_read_msg(datapath, null_mut(), 9) < 0
                            && ccp_read_msg(null_mut(), null_mut(), 0) < 0
                    );
                    assert!(ccp_invoke(null_mut()) < 0 && ccp_get_counts(datapath, null_mut()) < 0);
                    assert!(ccp_connection_start(datapath, null_mut(), null_mut()).is_null());
                }
            }
        }
    }
    // SAFETY: the datapath and its connections are still live; calls after `ccp_free` are allowed.
    unsafe {
        let mut counts = ccp_counts::default();
        assert_eq!(ccp_get_counts(datapath, &mut counts), 0);
        let reasons = [
            counts.malformed,
            counts.programs,
            counts.table_full,
            counts.updates,
            counts.unknown,
        ];
        assert_eq!(reasons.iter().sum::<u64>(), counts.refused, "{counts:?}");
        assert!(counts.refused <= counts.messages, "{counts:?}");
        ccp_free(datapath);
        let mut bytes: Box<[u8]> = right()[0].clone().into();
        assert!(ccp_read_msg(datapath, bytes.as_mut_ptr().cast(), bytes.len() as c_int) < 0);
        assert!(ccp_connection_lookup(datapath, 1).is_null() && ccp_invoke(connections) < 0);
        ccp_free(datapath);
    }
}
