//! What the tests share.

use ccplane_host::Namespace;

/// A namespace for a test, unless this process may make none.
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
