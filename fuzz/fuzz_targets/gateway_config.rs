//! Arbitrary text as a gateway configuration. Either it parses and its printed form parses to the
//! same, or the problem has a line of the file and a fix.
#![no_main]

use ccplane_gateway::config::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Config::parse("fuzz.toml", text, &|_| Ok(())) {
        Ok(config) => {
            let again = Config::parse("again.toml", &config.to_string(), &|_| Ok(()));
            assert_eq!(again.ok().as_ref(), Some(&config));
        }
        Err(problem) => {
            assert!(problem.line() >= 1 && problem.line() <= text.lines().count().max(1) + 1);
            assert!(!problem.message().is_empty());
        }
    }
});
