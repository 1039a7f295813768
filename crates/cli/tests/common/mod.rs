//! Helpers for tests of the command on a real kernel.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![expect(clippy::disallowed_methods, reason = "tests in real time")]

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use serde_json::Value;

#[path = "../../../host/tests/common/mod.rs"]
mod host;
pub mod pair;

#[allow(unused_imports, reason = "each test binary uses a part of it")]
pub use host::{RoutedPath, ip, ip_in, is_root, namespace, skip};

/// Time limit for reactions of a process. A shorter one fails on a busy machine, a longer one
/// delays failures.
pub const REACTION_TIMEOUT: Duration = Duration::from_secs(20);

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(
            started.elapsed() < REACTION_TIMEOUT,
            "not within {REACTION_TIMEOUT:?}: {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the command under test with `arguments`, which are separated by spaces.
pub fn ccplane(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccplane"));
    command
        .args(arguments.split_whitespace())
        .env_remove("CCPLANE_LOG");
    command
}

/// Command to run: the arguments of `ccplane` as one text, or a whole command.
pub trait RunCommand {
    fn run(self) -> Output;
}

impl RunCommand for &str {
    fn run(self) -> Output {
        ccplane(self).run()
    }
}

impl RunCommand for &mut Command {
    fn run(self) -> Output {
        self.output().expect("the command starts")
    }
}

/// Runs the command. Returns its exit code and standard error, with line wrapping removed.
pub fn said(command: impl RunCommand) -> (i32, String) {
    let output = command.run();
    let text = unwrapped(&output.stderr);
    assert!(!text.contains("panicked"), "{text}");
    (output.status.code().unwrap_or(-1), text)
}

/// Checks that the command fails with `code` and that its message has all the parts in `says`.
#[track_caller]
pub fn fails(command: impl RunCommand, code: i32, says: &[&str]) {
    let (found, text) = said(command);
    assert_eq!(found, code, "{text}");
    for part in says {
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
}

/// Runs a command that succeeds. Returns its standard output.
#[track_caller]
pub fn printed(command: impl RunCommand) -> String {
    let output = command.run();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a command that succeeds and prints one line, a JSON value.
#[track_caller]
pub fn printed_json(command: impl RunCommand) -> Value {
    let text = printed(command);
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).expect("JSON")
}

/// Returns a path in the tests' folder at which nothing exists.
pub fn unused_path(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    path
}

/// Creates an empty folder for a test.
pub fn empty_folder(name: &str) -> PathBuf {
    let path = unused_path(name);
    fs::create_dir_all(&path).expect("the tests' folder can be written");
    path
}

/// Writes a file for a test and returns its path.
pub fn write_file(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).expect("the tests' folder can be written");
    path
}

/// Undoes the line wrapping of messages: returns the text on one line, without the frame and with
/// single spaces. Lines are also wrapped behind `-` and `/` inside a word.
pub fn unwrapped(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text).replace('│', " ");
    let mut line = String::new();
    for part in text.lines() {
        let mut before = line.chars().rev();
        let in_word = matches!(before.next(), Some('-' | '/'))
            && before.next().is_some_and(|before| before != ' ');
        if !line.is_empty() && !in_word {
            line.push(' ');
        }
        let words: Vec<&str> = part.split_whitespace().collect();
        line += &words.join(" ");
    }
    line.trim_end().to_owned()
}

/// Returns true if BPF programs can be loaded; otherwise reports the test as skipped.
pub fn can_run(test: &str) -> bool {
    let has_btf = Path::new("/sys/kernel/btf/vmlinux").exists();
    if !has_btf {
        skip(test, "needs /sys/kernel/btf/vmlinux to load BPF programs");
    }
    has_btf && is_root(test)
}

/// Lock for tests that register congestion controls: names are global to the host.
pub fn lock_host() -> Flock<File> {
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open("/run/lock/ccplane.lock");
    Flock::lock(lock.expect("as root"), FlockArg::LockExclusive).expect("flock works")
}

/// Copies the command so that all users may run it. Another process writes the copy: a child that
/// another test forks during the write would inherit the open file, and executing it would fail
/// (ETXTBSY).
pub fn copy_command(to: &Path) {
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_ccplane"))
        .arg(to)
        .status();
    assert!(copied.expect("cp is there").success());
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).expect("ours");
}
