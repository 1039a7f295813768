//! Any text: the compiler gives a program or reasons, and a program that is printed compiles to itself.
#![no_main]

use ccplane_lang::{Limits, compile};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match compile(text, &Limits::default()) {
        Ok(program) => {
            let printed = program.tree().to_string();
            let again = compile(&printed, &Limits::default()).expect("what is printed compiles");
            assert_eq!(again.code(), program.code(), "{printed}");
            let warned = program.warnings();
            for problem in warned.iter().flat_map(|warned| warned.problems()) {
                let (start, end) = (problem.span().start as usize, problem.span().end as usize);
                assert!(text.get(start..end).is_some(), "{start}..{end}: {problem}");
            }
        }
        Err(why) => {
            assert!(!why.problems().is_empty());
            for problem in why.problems() {
                let (start, end) = (problem.span().start as usize, problem.span().end as usize);
                assert!(text.get(start..end).is_some(), "{start}..{end}: {problem}");
            }
        }
    }
});
