//! Any text as a gateway's configuration: one that prints itself as the same, or a problem at a
//! line of the file with a way out.

use ccplane_gateway::config::GatewayConfig;

/// Holds for any text.
pub fn any_config(text: &str) {
    match GatewayConfig::parse("fuzz.toml", text, &|_| Ok(())) {
        Ok(config) => {
            let again = GatewayConfig::parse("again.toml", &config.to_string(), &|_| Ok(()));
            assert_eq!(again.ok().as_ref(), Some(&config));
        }
        Err(problem) => {
            assert!(problem.line() >= 1 && problem.line() <= text.lines().count().max(1) + 1);
            assert!(!problem.message().is_empty());
        }
    }
}
