//! Programs of the same form as the published CCP algorithms, written anew: each compiles to the
//! expected code.

use ccplane_lang::{Program, ProgramLimits, compile};

fn compiled(source: &str) -> Program {
    compile(source, &ProgramLimits::default()).unwrap_or_else(|why| panic!("{why}"))
}

macro_rules! published {
    ($($name:ident),*) => {$(
        #[test]
        fn $name() {
            let program = compiled(include_str!(concat!("programs/", stringify!($name), ".ccp")));
            let lowered = format!("{:?}\n{}", program.cost(), program.bytecode());
            insta::assert_snapshot!(stringify!($name), lowered);
            let again = compiled(&program.tree().to_string());
            assert_eq!(again.bytecode().to_string(), program.bytecode().to_string());
            assert_eq!(again.tree().to_string(), program.tree().to_string());
        }
    )*};
}

published!(
    reno_interval,
    reno_rtt,
    reno_ack,
    slow_start,
    bbr_probe_bw,
    bbr_probe_rtt,
    copa,
    nimbus
);

#[test]
fn names_of_a_program() {
    let program = compiled(include_str!("programs/reno_interval.ccp"));
    assert_eq!(
        program.report_names().collect::<Vec<_>>(),
        ["acked", "sacked", "loss", "timeout", "rtt", "inflight"]
    );
    assert_eq!(program.control_names().collect::<Vec<_>>(), ["interval"]);
    assert_eq!(program.var_index("interval"), Some(6));
    assert_eq!(program.var_index("Report.acked"), Some(0));
    assert_eq!(program.var_index("acked"), Some(0));
    assert_eq!(program.var_index("nothing"), None);
}

#[test]
fn report_and_control_variables_can_share_a_name() {
    let program = compiled(include_str!("programs/bbr_probe_bw.ccp"));
    assert_eq!(program.var_index("Report.phase"), Some(3));
    assert_eq!(program.var_index("phase"), Some(4));
}

#[test]
fn the_longest_path_stops_at_the_first_clause_without_fallthrough() {
    let program = compiled(include_str!("programs/bbr_probe_bw.ccp"));
    // Fold 6, then guards of 3, 4 and 4 instructions, the last body of 5, and all guards again for
    // the deadline.
    assert_eq!(
        program.cost().instrs_worst,
        6 + (3 + 4 + 4) + 5 + (3 + 4 + 4)
    );
}
