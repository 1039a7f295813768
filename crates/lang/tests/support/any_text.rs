//! Any text: the compiler gives a program or reasons, and a program that is printed compiles to
//! itself. So it is with whole algorithms, whose program is their text without its header.

use ccplane_lang::{Diagnostics, ProgramFile, ProgramLimits, compile};

/// Holds for any text.
pub fn any_text(text: &str) {
    match compile(text, &ProgramLimits::default()) {
        Ok(program) => {
            let printed = program.tree().to_string();
            let again =
                compile(&printed, &ProgramLimits::default()).expect("printed programs compile");
            assert_eq!(again.code(), program.code(), "{printed}");
            if let Some(warned) = program.warnings() {
                placed(&warned, text);
            }
        }
        Err(why) => placed(&why, text),
    }
    match ProgramFile::read(text) {
        Ok(algorithm) => {
            let program = algorithm.program(&[]).expect("defaults are valid");
            assert!(
                compile(&program, &ProgramLimits::default()).is_ok(),
                "{program}"
            );
        }
        Err(why) => placed(&why, text),
    }
}

fn placed(why: &Diagnostics, text: &str) {
    assert!(!why.problems().is_empty());
    for problem in why.problems() {
        let (start, end) = (problem.span().start as usize, problem.span().end as usize);
        assert!(text.get(start..end).is_some(), "{start}..{end}: {problem}");
    }
}
