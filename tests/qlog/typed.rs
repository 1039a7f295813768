//! qlog reader for the tests that write qlogs.

use std::path::Path;
use std::process::Command;

/// Checks that the `qlog` crate can type all events of a file. The reader is a separate package,
/// because the crate would change the order of JSON keys in every test.
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
