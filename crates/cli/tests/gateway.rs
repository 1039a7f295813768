//! `ccplane gateway`: keys, and valid and invalid configurations.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::common::{ccplane, empty_folder, fails, printed};

/// Creates a folder for a test, with an example in it.
fn folder(name: &str) -> PathBuf {
    let folder = empty_folder(name);
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gateway/site-a.toml");
    fs::copy(example, folder.join("site-a.toml")).expect("the example is there");
    folder
}

#[test]
fn a_key_is_made_once_for_its_owner_alone() {
    let file = folder("gateway-keys").join("a.key");
    let first = printed(ccplane("gateway keys").arg(&file));
    assert_eq!(
        fs::metadata(&file).expect("made").permissions().mode() & 0o7777,
        0o600
    );
    let again = printed(ccplane("gateway keys").arg(&file));
    assert_eq!(first, again, "it was not overwritten");
    assert_eq!(first.trim().len(), 44);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("it is ours");
    fails(ccplane("gateway keys").arg(&file), 1, &["chmod 600"]);
}

#[test]
fn a_configuration_is_shown_in_full_or_an_error_with_line_and_fix() {
    let folder = folder("gateway-check");
    let (file, key) = (folder.join("site-a.toml"), folder.join("site-a.key"));
    fails(
        ccplane("gateway check").arg(&file),
        2,
        &["site-a.toml:5:", "gateway keys"],
    );
    printed(ccplane("gateway keys").arg(&key));
    let shown = printed(ccplane("gateway check").arg(&file));
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
    let (_, complete) = shown
        .split_once("# With all defaults\n")
        .expect("it prints one");
    fs::write(folder.join("printed.toml"), complete).expect("written");
    printed(ccplane("gateway check").arg(folder.join("printed.toml")));
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
        fails(
            ccplane("gateway check").arg(folder.join("bad.toml")),
            2,
            &[says, "bad.toml:"],
        );
    }
    let classes =
        "\n[[class]]\nname = \"voice\"\nmatch = { dscp = \"EF\" }\n[[class]]\nlevel = 3\n";
    fs::write(folder.join("classes.toml"), original + classes).expect("written");
    let shown = printed(ccplane("gateway check").arg(folder.join("classes.toml")));
    for part in [
        "class voice",
        "DSCP 46",
        "all other packets",
        "level 3, weight 1",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[test]
fn queries_without_a_gateway_fail_with_a_hint() {
    let socket = folder("gateway-ask").join("none.sock");
    for question in ["status", "events", "pass b", "control b"] {
        let mut command = ccplane("gateway");
        command.args(question.split_whitespace());
        command.env("CCPLANE_GATEWAY_SOCKET", &socket);
        fails(&mut command, 1, &["gateway run"]);
    }
}
