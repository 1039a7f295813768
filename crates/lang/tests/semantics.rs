//! Random programs: compiled and run by the datapath's interpreter, they agree with a form-by-form
//! evaluation of their source; and a program that is printed and compiled again is the same
//! program.

use crate::generate;
use crate::generate::Random;
use crate::machine::{Fault, Machine};
use ccplane_datapath::{
    Capabilities, Command, CommandTarget, Flow, OperatorLimits as Owner, ProgramTable, Signals,
    Transport, Update,
};
use ccplane_lang::{Program, ProgramLimits, compile};
use ccplane_units::splitmix::SplitMix64;
use ccplane_units::{Duration, Time};
use proptest::prelude::*;

const CALLS_PER_PROGRAM: u64 = 8;

/// Not every random text is a program: constants may have no value, or it may be too long.
fn compiled(text: &str) -> Option<Program> {
    use ccplane_lang::DiagnosticCode::{Limit, Value};
    match compile(text, &ProgramLimits::default()) {
        Ok(program) => Some(program),
        Err(why) => {
            assert!(
                why.problems()
                    .iter()
                    .all(|problem| matches!(problem.code(), Value | Limit)),
                "{why}\n{text}"
            );
            None
        }
    }
}

/// Runs source and bytecode side by side, until an operation has no result.
fn side_by_side(text: &str, program: &Program, seed: u64) {
    let owner = Owner {
        min_cwnd: 0,
        max_cwnd: u64::MAX,
        max_rate: u64::MAX,
        agent_timeout: Duration::MAX,
    };
    let mut table: ProgramTable<1> = ProgramTable::new(owner, Capabilities(u64::MAX));
    table
        .install(program.code().clone())
        .expect("the table is empty");
    let start = Time::from_micros(1_000);
    let mut transport = Transport {
        cwnd: 14_480,
        rate: 1_250_000,
        ssthresh: 1 << 40,
        now: start,
    };
    let mut flow: Flow<16> = Flow::new(start, transport.cwnd);
    let zero = [Update {
        target: CommandTarget::Micros,
        value: 0,
    }];
    flow.apply(
        start,
        &Command::SetProgram {
            uid: 0,
            updates: &zero,
        },
        &table,
    )
    .expect("the program fits");

    let mut machine = Machine::new(text);
    let mut random = SplitMix64(seed);
    for round in 0..CALLS_PER_PROGRAM {
        let random = random.next_u64();
        let signals = Signals {
            bytes_acked: random & 0x3fff,
            lost_pkts_sample: random >> 14 & 3,
            rtt_sample_us: 1 + (random >> 16 & 0xffff),
            mss: 1_448,
            was_timeout: random >> 32 & 1,
            ..Signals::default()
        };
        let elapsed = if round == 0 { 0 } else { random >> 33 & 0xfff };
        transport.now += Duration::from_micros(elapsed);
        for (name, value) in [
            ("Ack.bytes_acked", signals.bytes_acked),
            ("Ack.lost_pkts_sample", signals.lost_pkts_sample),
            ("Flow.rtt_sample_us", signals.rtt_sample_us),
            ("Flow.mss", signals.mss),
            ("Flow.was_timeout", signals.was_timeout),
            ("Ack.now", transport.now.as_micros()),
            ("Micros", machine.get("Micros").wrapping_add(elapsed)),
            ("Cwnd", transport.cwnd),
            ("Rate", transport.rate),
            ("Ssthresh", transport.ssthresh),
        ] {
            machine.set(name, value);
        }
        let before = flow.faults();
        let outcome = flow.on_ack(&transport, &signals, &table);
        let due = match machine.run() {
            Ok(due) => due,
            // From here on the datapath computes with a substitute value, where the reference would
            // abort.
            Err(Fault) => return,
        };
        // The datapath counts in ns and limits `Micros` to about 146 years.
        if machine.get("Micros") > 1 << 51 {
            return;
        }
        assert_eq!(
            flow.faults(),
            before,
            "a fault where there was none\n{text}\n{}",
            program.bytecode()
        );
        for (name, field, now) in [
            ("Cwnd", &mut transport.cwnd, outcome.cwnd),
            ("Rate", &mut transport.rate, outcome.rate),
            ("Ssthresh", &mut transport.ssthresh, outcome.ssthresh),
        ] {
            let wanted = if machine.get(name) == 0 {
                *field
            } else {
                machine.get(name)
            };
            assert_eq!(
                now.unwrap_or(*field),
                wanted,
                "{name} in round {round}\n{text}\n{}",
                program.bytecode()
            );
            *field = wanted;
        }
        assert_eq!(
            flow.report(&table),
            machine.report(),
            "round {round}\n{text}\n{}",
            program.bytecode()
        );
        assert_eq!(
            outcome.report.is_some(),
            due,
            "report in round {round}\n{text}\n{}",
            program.bytecode()
        );
        if due {
            flow.report_queued(&table);
            machine.reset();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        max_global_rejects: 8_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn bytecode_matches_the_interpreted_source(size in 1..120usize, seed: u64) {
        let text = generate::program(&mut Random(SplitMix64(seed)), size);
        let Some(program) = compiled(&text) else {
            return Err(TestCaseError::reject("no program"));
        };
        side_by_side(&text, &program, seed);
    }

    #[test]
    fn printing_then_compiling_gives_the_same_program(size in 1..120usize, seed: u64) {
        let text = generate::program(&mut Random(SplitMix64(seed)), size);
        let Some(program) = compiled(&text) else {
            return Err(TestCaseError::reject("no program"));
        };
        let printed = program.tree().to_string();
        let again = compile(&printed, &ProgramLimits::default())
            .unwrap_or_else(|why| panic!("{why}\n{printed}\n{text}"));
        prop_assert_eq!(again.code(), program.code(), "{}\n{}", printed, text);
        prop_assert_eq!(again.tree().to_string(), printed);
    }
}
