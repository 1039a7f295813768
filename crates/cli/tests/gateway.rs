//! `ccplane gateway`: keys, and valid and invalid configurations.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::unwrapped;

fn ccplane(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccplane"));
    command
        .arg("gateway")
        .args(arguments)
        .env_remove("CCPLANE_LOG");
    command.output().expect("the binary under test starts")
}

fn said(output: &Output) -> String {
    unwrapped(&output.stderr)
}

/// Creates a folder for a test, with an example in it.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the test's folder can be written");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gateway/site-a.toml");
    fs::copy(example, folder.join("site-a.toml")).expect("the example is there");
    folder
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a name of letters")
}

#[test]
fn a_key_is_made_once_for_its_owner_alone() {
    let file = folder("gateway-keys").join("a.key");
    let first = ccplane(&["keys", text(&file)]);
    assert!(first.status.success(), "{}", said(&first));
    assert_eq!(
        fs::metadata(&file).expect("made").permissions().mode() & 0o7777,
        0o600
    );
    let again = ccplane(&["keys", text(&file)]);
    assert_eq!(first.stdout, again.stdout, "it was not overwritten");
    assert_eq!(String::from_utf8_lossy(&first.stdout).trim().len(), 44);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("it is ours");
    let exposed = ccplane(&["keys", text(&file)]);
    assert_eq!(exposed.status.code(), Some(1));
    assert!(said(&exposed).contains("chmod 600"), "{}", said(&exposed));
}

#[test]
fn a_configuration_is_shown_in_full_or_an_error_with_line_and_fix() {
    let folder = folder("gateway-check");
    let (file, key) = (folder.join("site-a.toml"), folder.join("site-a.key"));
    let missing = ccplane(&["check", text(&file)]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(
        said(&missing).contains("site-a.toml:5:") && said(&missing).contains("gateway keys"),
        "{}",
        said(&missing)
    );
    assert!(ccplane(&["keys", text(&key)]).status.success());
    let good = ccplane(&["check", text(&file)]);
    assert!(good.status.success(), "{}", said(&good));
    let shown = String::from_utf8_lossy(&good.stdout);
    for part in [
        "no errors",
        "10.8.0.0/16",
        "measured through 10.7.0.2",
        "algorithm = \"bundler\"",
        "mtu = 1420",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // The printed text is a valid configuration too.
    let (_, printed) = shown
        .split_once("# With all defaults\n")
        .expect("it prints one");
    fs::write(folder.join("printed.toml"), printed).expect("written");
    let again = ccplane(&["check", text(&folder.join("printed.toml"))]);
    assert!(again.status.success(), "{}", said(&again));
    let original = fs::read_to_string(&file).expect("there");
    for (from, to, says) in [
        ("10.8.0.0/16", "10.8.0.1/16", "write 10.8.0.0/16"),
        (
            "# algorithm = \"bundler\"",
            "algorithm = \"bumbler\"",
            "available:",
        ),
        (
            "# algorithm = \"bundler\"",
            "algorithm = \"vegas\"",
            "such as `bundler`",
        ),
    ] {
        fs::write(folder.join("bad.toml"), original.replace(from, to)).expect("written");
        let bad = ccplane(&["check", text(&folder.join("bad.toml"))]);
        assert_eq!(bad.status.code(), Some(2), "{to}");
        assert!(
            said(&bad).contains(says) && said(&bad).contains("bad.toml:"),
            "{to}: {}",
            said(&bad)
        );
    }
    let classes =
        "\n[[class]]\nname = \"voice\"\nmatch = { dscp = \"EF\" }\n[[class]]\nlevel = 3\n";
    fs::write(folder.join("classes.toml"), original + classes).expect("written");
    let good = ccplane(&["check", text(&folder.join("classes.toml"))]);
    let shown = String::from_utf8_lossy(&good.stdout);
    for part in [
        "class voice",
        "DSCP 46",
        "all other packets",
        "level 3, weight 1",
    ] {
        assert!(shown.contains(part), "{part}: {shown} {}", said(&good));
    }
}

#[test]
fn queries_without_a_gateway_fail_with_a_hint() {
    let socket = folder("gateway-ask").join("none.sock");
    for question in [
        &["status"][..],
        &["events"],
        &["pass", "b"],
        &["control", "b"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ccplane"));
        command.arg("gateway").args(question);
        command.env("CCPLANE_GATEWAY_SOCKET", &socket);
        let asked = command.output().expect("the binary under test starts");
        assert_eq!(asked.status.code(), Some(1));
        assert!(said(&asked).contains("gateway run"), "{}", said(&asked));
    }
}
