//! Helpers shared by the tests.

use ccplane_host::Namespace;

/// Creates a namespace for a test, or skips the test if not permitted.
pub fn namespace(test: &str) -> Option<Namespace> {
    match Namespace::create(&format!("ccplane-{}-{test}", std::process::id())) {
        Ok(namespace) => Some(namespace),
        Err(reason) if std::env::var_os("CCPLANE_NO_SKIP").is_none() => {
            eprintln!("SKIPPED: {test}: {reason}");
            None
        }
        Err(reason) => panic!("{test} cannot run: {reason}"),
    }
}
