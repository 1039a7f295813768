//! Subcommands that are separate programs: search path and arguments.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::unwrapped;

/// A folder of a test.
struct Folder(PathBuf);

impl Folder {
    fn make(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join("programs")
            .join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("the test's folder can be written");
        Folder(path)
    }

    /// Creates a folder with the command in it, as a hard link: its own path is then in this
    /// folder.
    fn with_command(name: &str) -> Folder {
        let folder = Folder::make(name);
        fs::hard_link(env!("CARGO_BIN_EXE_ccplane"), folder.0.join("ccplane"))
            .expect("the test's folder is on the same disk");
        folder
    }

    /// Writes a shell script. Another process writes it: a child that another test forks during the
    /// write would inherit the open file, and executing it would fail (ETXTBSY).
    fn script(self, name: &str, mode: &str, text: &str) -> Folder {
        let written = Command::new("sh")
            .args([
                "-c",
                "printf '#!/bin/sh\n%s\n' \"$3\" >\"$1\"; chmod $2 \"$1\"",
            ])
            .arg("sh")
            .arg(self.0.join(name))
            .args([mode, text])
            .status();
        assert!(written.expect("sh is there").success());
        self
    }

    fn command(&self, path: &str) -> Command {
        let mut command = Command::new(self.0.join("ccplane"));
        command.env_remove("CCPLANE_LOG").env("PATH", path);
        command
    }

    fn path(&self) -> String {
        self.0.display().to_string()
    }
}

/// Shell command that prints its name and its arguments.
fn says(which: &str) -> String {
    format!("echo {which} \"$@\"")
}

fn printed(command: &mut Command) -> String {
    let output = command.output().expect("the command starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Returns the exit code and standard error, with line wrapping removed.
fn said(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), unwrapped(&output.stderr))
}

#[test]
fn a_program_gets_the_words_behind_its_name() {
    let folder = Folder::with_command("words")
        .script("ccplane-paper", "755", &says("paper"))
        .script("ccplane-bench", "755", &says("bench"))
        .script("ccplane-hello", "755", &says("hello"))
        .script("ccplane-algorithms", "755", &says("shadow"));
    let run = |words: &str| printed(folder.command("/bin").args(words.split_whitespace()));
    assert_eq!(run("paper list"), "paper list");
    assert_eq!(
        run("--json -vv paper x.toml --out - -- --json"),
        "paper --json -vv x.toml --out - -- --json"
    );
    assert_eq!(run("bench --help"), "bench --help");
    assert_eq!(run("help bench dx"), "bench dx --help");
    assert_eq!(run("hello --any option"), "hello --any option");
    assert!(
        !run("algorithms").starts_with("shadow"),
        "the command's own come first"
    );
    assert!(run("help algorithms").contains("Usage: ccplane algorithms"));
}

#[test]
fn a_program_is_looked_for_next_to_the_command_and_then_in_path() {
    let in_path = Folder::make("in-path").script("ccplane-paper", "755", &says("in-path"));
    let alone = Folder::with_command("alone").script("ccplane-bench", "644", &says("no program"));
    let path = in_path.path();
    assert_eq!(printed(alone.command(&path).arg("paper")), "in-path");
    let next = Folder::with_command("next").script("ccplane-paper", "755", &says("next"));
    assert_eq!(printed(next.command(&path).arg("paper")), "next");
    // Through a symbolic link: next to its target.
    let linked = Folder::make("linked");
    symlink(next.0.join("ccplane"), linked.0.join("ccplane")).expect("the test's folder");
    assert_eq!(printed(linked.command("/bin").arg("paper")), "next");

    // A relative folder in PATH would depend on the working directory.
    let mut relative = alone.command(":.:");
    let refused = relative.arg("paper").arg("list").current_dir(&in_path.0);
    assert_eq!(said(&refused.output().expect("it starts")).0, Some(3));
}

#[test]
fn a_missing_program_is_named_with_the_folders_and_how_to_get_it() {
    let alone = Folder::with_command("missing").script("ccplane-bench", "644", "");
    for (words, name) in [(["paper", "list"], "paper"), (["bench", "sim"], "bench")] {
        let output = alone.command("/bin").arg("-j").args(words).output();
        let output = output.expect("it starts");
        let (code, text) = said(&output);
        assert_eq!(code, Some(3), "{text}");
        assert!(
            text.contains(&format!("needs the program ccplane-{name}")),
            "{text}"
        );
        // JSON, because terminal output is wrapped within paths.
        let object: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let (error, hint) = (&object["error"], &object["hint"]);
        let folders = format!("neither in {} nor in PATH", alone.path());
        assert!(
            error.as_str().is_some_and(|e| e.contains(&folders)),
            "{object}"
        );
        let build = format!("cargo build --release -p ccplane-{name}");
        assert!(
            hint.as_str().is_some_and(|h| h.contains(&build)),
            "{object}"
        );
        assert_eq!(object["kind"], "unsupported");
    }

    // Arguments that need no program: help, a typo, an unknown name.
    let help = printed(alone.command("/bin").args(["paper", "--help"]));
    assert!(help.contains("Usage: ccplane paper"), "{help}");
    let list = printed(alone.command("/bin").arg("--help"));
    assert!(
        list.contains("\n  bench ") && list.contains("\n  paper "),
        "{list}"
    );
    let output = alone.command("/bin").args(["bench", "dxx"]).output();
    assert_eq!(said(&output.expect("it starts")).0, Some(2));
    let output = alone.command("/bin").arg("papr").output();
    let (code, text) = said(&output.expect("it starts"));
    assert!(code == Some(2) && text.contains("'paper'"), "{text}");
}

#[test]
fn a_program_that_cannot_be_started_is_named() {
    let folder = Folder::with_command("broken");
    let program = folder.0.join("ccplane-paper");
    fs::write(&program, "#!/no/such/shell\n").expect("the test's folder can be written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("ours");
    let output = folder.command("/bin").args(["paper", "list"]).output();
    let (code, text) = said(&output.expect("it starts"));
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("ccplane-paper cannot be run"), "{text}");
}

#[test]
fn exit_code_input_and_signals_are_the_programs() {
    let folder = Folder::with_command("process")
        .script("ccplane-code", "755", "exit 7")
        .script("ccplane-killed", "755", "kill -TERM $$")
        .script("ccplane-input", "755", "read line; echo $line $$")
        .script(
            "ccplane-waits",
            "755",
            "trap 'exit 42' INT; echo ready; while :; do sleep 0.05; done",
        );
    let status = |name: &str| {
        let status = folder.command("/bin:/usr/bin").arg(name).status();
        status.expect("the command starts")
    };
    assert_eq!(status("code").code(), Some(7));
    assert_eq!(status("killed").signal(), Some(Signal::SIGTERM as i32));

    let mut input = folder.command("/bin:/usr/bin");
    let input = input
        .arg("input")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = input.spawn().expect("the command starts");
    let pid = child.id();
    let mut writer = child.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut writer, b"typed\n").expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    // The same process (exec), so that job control, limits and supervisors apply to it.
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        format!("typed {pid}\n")
    );

    let mut waits = folder.command("/bin:/usr/bin");
    let mut child = waits
        .arg("waits")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut ready = [0; 6];
    let mut reader = child.stdout.take().expect("a pipe");
    std::io::Read::read_exact(&mut reader, &mut ready).expect("it is ready");
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).expect("it runs");
    assert_eq!(child.wait().expect("it ends").code(), Some(42));
}
