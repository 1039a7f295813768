//! Reader of qlog files, for the tests that write them.

use std::path::Path;
use std::process::Command;

/// Reads a file with the `qlog` crate, which types every event that has a name and data of the
/// schema. The reader is a package of its own: the crate would change the order of JSON keys in
/// every test.
pub fn typed_by_the_qlog_crate(file: &Path, events: usize) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["run", "--quiet", "--locked", "--manifest-path"])
        .arg(root.join("tests/qlog/Cargo.toml"))
        .arg("--target-dir")
        .arg(root.join("target/qlog"))
        .arg("--")
        .arg(file)
        .output()
        .expect("cargo starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let read = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(read.trim(), format!("{events} typed, 0 others"), "{errors}");
}
