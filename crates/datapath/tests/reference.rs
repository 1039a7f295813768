//! Behaviour defined by the reference's own tests: libccp's unit tests and portus' integration
//! tests.

use crate::support::programs::{BYTES_ACKED, Code, RTT_SAMPLE, temp};
use crate::support::{MSS_BYTES, Rig, ack_of};
use ccplane_datapath::{CommandTarget, Op, Signals, Update, VarKind, reg};

/// Program that reports its control variable, which is initially `init`.
fn reports_control(init: u64) -> Code {
    let mut code = Code::default();
    let seen = code.volatile(0);
    let control = code.control(init);
    code.always(|code| {
        code.mov(seen, control);
        code.report();
    });
    code
}

/// Update of that control variable.
fn control_update(value: u64) -> [Update; 1] {
    [Update {
        target: CommandTarget::Var(1),
        value,
    }]
}

fn reports_cwnd_and_rate() -> Code {
    let mut code = Code::default();
    let [cwnd, rate] = [0; 2].map(|init| code.volatile(init));
    code.always(|code| {
        code.mov(cwnd, reg::CWND);
        code.mov(rate, reg::RATE);
        code.report();
    });
    code
}

/// 20 ACKs of 5 bytes: acked is 100 whenever the counter is 20.
#[test]
fn basic() {
    let mut code = Code::default();
    let [acked, counter] = [0; 2].map(|init| code.volatile(init));
    code.always(|code| {
        code.op(Op::Add, acked, acked, BYTES_ACKED);
        code.imm(Op::Add, counter, counter, 1);
        code.fallthrough();
    });
    code.when(|code| code.imm(Op::Eq, temp(0), counter, 20), Code::report);
    let mut rig = Rig::new(&code);
    for _ in 0..45 {
        let _ = rig.ack(ack_of(5));
    }
    let fields: Vec<_> = rig
        .reports
        .iter()
        .map(|(_, fields)| fields.as_slice())
        .collect();
    assert_eq!(fields, [[100, 20], [100, 20]]);
}

#[test]
fn primitives() {
    let mut code = Code::default();
    let all: Vec<u8> = (0..15).map(|_| code.volatile(0)).collect();
    code.always(|code| {
        for (signal, &var) in all.iter().enumerate() {
            code.mov(var, signal as u8);
        }
        code.report();
    });
    let signals = Signals {
        bytes_acked: 100,
        bytes_misordered: 101,
        ecn_bytes: 102,
        ecn_packets: 103,
        lost_pkts_sample: 104,
        now_us: 0,
        packets_acked: 106,
        packets_misordered: 107,
        bytes_in_flight: 108,
        bytes_pending: 109,
        packets_in_flight: 110,
        rate_incoming: 111,
        rate_outgoing: 112,
        rtt_sample_us: 113,
        was_timeout: 1,
        ..Signals::default()
    };
    let mut rig = Rig::new(&code);
    let _ = rig.ack(signals);
    let mut expected: Vec<u64> = (100..115).collect();
    (expected[5], expected[14]) = (1_000_000, 1);
    assert_eq!(rig.last_report(), expected);
}

/// A clause for a new minimum, then one that counts: the first true clause ends the run.
#[test]
fn multievent() {
    let mut code = Code::default();
    let min_rtt = code.var(VarKind::Report, false, u64::MAX);
    let counter = code.volatile(0);
    code.when(
        |code| code.op(Op::Lt, temp(0), RTT_SAMPLE, min_rtt),
        |code| {
            code.mov(min_rtt, RTT_SAMPLE);
            code.report();
        },
    );
    code.always(|code| {
        code.imm(Op::Add, counter, counter, 1);
        code.report();
    });
    let mut rig = Rig::new(&code);
    for (rtt_sample_us, expected) in [(10, [10, 0]), (20, [10, 1]), (5, [5, 0]), (5, [5, 1])] {
        let _ = rig.ack(Signals {
            rtt_sample_us,
            ..Signals::default()
        });
        assert_eq!(rig.last_report(), expected);
    }
}

#[test]
fn fallthrough() {
    let mut code = Code::default();
    let counter = code.volatile(0);
    code.always(|code| {
        code.imm(Op::Add, counter, counter, 1);
        code.fallthrough();
    });
    code.always(|code| {
        code.imm(Op::Add, counter, counter, 2);
        code.report();
    });
    let mut rig = Rig::new(&code);
    let _ = rig.ack(ack_of(0));
    assert_eq!(rig.last_report(), [3]);
}

#[test]
fn read_implicit() {
    let code = reports_cwnd_and_rate();
    let mut rig = Rig::new(&code);
    rig.transport.rate = 77;
    let outcome = rig.ack(ack_of(0));
    assert_eq!(rig.last_report(), [10 * MSS_BYTES, 77]);
    // Nothing changed, so nothing is set.
    assert_eq!((outcome.cwnd, outcome.rate), (None, None));
}

/// A control variable is 5, then 42 from the next ACK on.
#[test]
fn update_fields() {
    let code = reports_control(5);
    let mut rig = Rig::new(&code);
    let _ = rig.ack(ack_of(0));
    assert_eq!(rig.last_report(), [5]);
    rig.update(&control_update(42)).expect("a control variable");
    let _ = rig.ack(ack_of(0));
    assert_eq!(rig.last_report(), [42]);
}

/// A program is set together with the value of a control variable.
#[test]
fn preset() {
    let code = reports_control(0);
    let mut rig = Rig::new(&code);
    rig.set_program(1, &control_update(52))
        .expect("a control variable");
    let _ = rig.ack(ack_of(0));
    assert_eq!(rig.last_report(), [52]);
}

/// `(> Micros 3000000)` with ACKs 100 ms apart: the report is made in the fourth second, and again
/// three seconds later.
#[test]
fn timing() {
    let mut code = Code::default();
    let acked = code.volatile(0);
    code.always(|code| {
        code.op(Op::Add, acked, acked, BYTES_ACKED);
        code.fallthrough();
    });
    code.when(
        |code| code.imm(Op::After, temp(0), reg::CONSTANT_ONE, 3_000_000),
        |code| {
            code.report();
            code.set(reg::MICROS, 0);
        },
    );
    let mut rig = Rig::new(&code);
    for _ in 0..70 {
        rig.advance_us(100_000);
        let _ = rig.ack(ack_of(5));
    }
    // The program starts with the first ACK, at 1.1 s.
    let times: Vec<_> = rig
        .reports
        .iter()
        .map(|(time, _)| time.as_micros())
        .collect();
    assert_eq!(times, [4_200_000, 7_300_000]);
}

/// Two flows of one program have separate control variables.
#[test]
fn twoflow() {
    let code = reports_control(0);
    let mut rigs = [Rig::new(&code), Rig::new(&code)];
    for (rig, value) in rigs.iter_mut().zip([10, 20]) {
        rig.update(&control_update(value))
            .expect("a control variable");
    }
    for (rig, value) in rigs.iter_mut().zip([10, 20]) {
        let _ = rig.ack(ack_of(0));
        assert_eq!(rig.last_report(), [value]);
    }
}

/// An agent's window and rate apply, and are visible to the program, from the next call on.
#[test]
fn update() {
    let code = reports_cwnd_and_rate();
    let mut rig = Rig::new(&code);
    let updates = [(CommandTarget::Cwnd, 42), (CommandTarget::Rate, 10)]
        .map(|(target, value)| Update { target, value });
    rig.update(&updates).expect("built-in state");
    let outcome = rig.ack(ack_of(0));
    assert_eq!((outcome.cwnd, outcome.rate), (Some(42), Some(10)));
    assert_eq!(rig.last_report(), [42, 10]);
}

/// Volatile variables are reset after each report; others persist.
#[test]
fn volatile() {
    let mut code = Code::default();
    let foo = code.volatile(0);
    let bar = code.var(VarKind::Report, false, 10);
    let sum = code.volatile(0);
    code.always(|code| {
        code.imm(Op::Add, foo, foo, 10);
        code.op(Op::Add, sum, foo, bar);
        code.fallthrough();
    });
    code.always(|code| {
        code.report();
        code.fallthrough();
    });
    code.always(|code| code.set(bar, 20));
    let mut rig = Rig::new(&code);
    let _ = rig.ack(ack_of(0));
    // The report is made at the end of the run: bar is already 20.
    assert_eq!(rig.last_report(), [10, 20, 20]);
    let _ = rig.ack(ack_of(0));
    assert_eq!(rig.last_report(), [10, 20, 30]);
}

/// Volatile control variables return to their initial values too.
#[test]
fn volatile_control() {
    let mut code = Code::default();
    let seen = code.volatile(0);
    let flag = code.var(VarKind::Control, true, 1);
    code.always(|code| {
        code.mov(seen, flag);
        code.set(flag, 0);
        code.fallthrough();
    });
    code.when(
        |code| code.imm(Op::Gt, temp(0), BYTES_ACKED, 0),
        Code::report,
    );
    let mut rig = Rig::new(&code);
    let _ = rig.ack(ack_of(0));
    let _ = rig.ack(ack_of(1));
    assert_eq!(rig.last_report(), [0]);
    let _ = rig.ack(ack_of(1));
    assert_eq!(rig.last_report(), [1]);
}

/// `(reset)` without `(report)`: volatile variables are reset, and nothing is sent.
#[test]
fn reset() {
    let mut code = Code::default();
    let count = code.volatile(0);
    code.always(|code| {
        code.imm(Op::Add, count, count, 1);
        code.fallthrough();
    });
    code.when(
        |code| code.imm(Op::Eq, temp(0), count, 3),
        |code| code.set(reg::SHOULD_RESET, 1),
    );
    code.when(
        |code| code.imm(Op::Eq, temp(0), BYTES_ACKED, 9),
        Code::report,
    );
    let mut rig = Rig::new(&code);
    for _ in 0..4 {
        let _ = rig.ack(ack_of(0));
    }
    assert!(rig.reports.is_empty());
    let _ = rig.ack(ack_of(9));
    assert_eq!(rig.last_report(), [2]);
}
