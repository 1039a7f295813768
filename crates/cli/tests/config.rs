//! The configuration of `attach`: diagnostics of `ccplane config`, and effects of a file on real
//! connections.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::Pid;

use crate::common::{can_run, ccplane, eventually, fails, lock_host, printed};

/// A temporary file, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(text: &str) -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!(
            "ccplane-config-{}-{number}.toml",
            std::process::id()
        ));
        fs::write(&path, text).expect("a free path");
        Scratch(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.0).expect("it was written")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_valid_file_is_explained() {
    let file = Scratch::new(
        "algorithms = [\"cubic\", \"copa\"]\n[[rule]]\nalgorithm = \"copa\"\nto = \"10.0.0.0/8\"\npercent = 5\n\
         [[rule]]\nalgorithm = \"cubic\"\ncgroup = \"/nonesuch\"\nport = \"8000-8999\"\n",
    );
    let out = printed(ccplane("config check").arg(file.path()));
    assert!(
        out.contains("copa for the whole system, to 10.0.0.0/8, 5 %"),
        "{out}"
    );
    assert!(
        out.contains("cubic for cgroup /nonesuch, ports 8000-8999"),
        "{out}"
    );
    assert!(
        out.contains("/nonesuch does not exist on this host"),
        "{out}"
    );
}

#[test]
fn an_invalid_file_is_reported_with_line_reason_and_fix() {
    for (text, parts) in [
        ("algorithms = [\"cubik\"]", [":1:", "cubik", "cubic"]),
        (
            "algorithms = [\"native:cubic\"]",
            [":1:", "kernel algorithm", "ccplane algorithms"],
        ),
        (
            "algorithms = [\"cubic:reprot=1\"]",
            [":1:", "reprot", "report"],
        ),
        (
            "algorithms = [\"cubic\"]\n[limits]\nmax_rat = 1",
            [":3:", "max_rat", "did you mean `max_rate`"],
        ),
        ("algorithms = [\"cubic\"", [":1:", "array", ""]),
    ] {
        let file = Scratch::new(text);
        fails(ccplane("config check").arg(file.path()), 2, &parts);
    }
}

#[test]
fn a_given_file_must_exist() {
    for arguments in [
        "config check /nonesuch.toml",
        "config show --config=/nonesuch.toml",
    ] {
        fails(arguments, 2, &["cannot be read"]);
    }
}

#[test]
fn the_environment_overrides_the_file() {
    let file = Scratch::new(
        "algorithms = [\"cubic\"]\nkeep = true\n[limits]\nmin_cwnd = \"3kB\"\nmax_rate = \"1gbit\"\n",
    );
    let show = |environment: &[(&str, &str)]| {
        let mut command = ccplane("config show --config");
        printed(command.arg(file.path()).envs(environment.iter().copied()))
    };
    let lines = |shown: &str, name: &str| {
        let found = shown.lines().find(|line| line.starts_with(name));
        found
            .unwrap_or_else(|| panic!("{name}: {shown}"))
            .to_owned()
    };
    let shown = show(&[]);
    assert!(
        lines(&shown, "max_rate").contains("1gbit")
            && lines(&shown, "max_rate").ends_with("# line 5"),
        "{shown}"
    );
    let shown = show(&[
        ("CCPLANE_LIMITS", "max_rate=2gbit"),
        ("CCPLANE_KEEP", "false"),
        ("CCPLANE_PORT", "443"),
    ]);
    assert!(lines(&shown, "max_rate").contains("2gbit"), "{shown}");
    assert!(lines(&shown, "min_cwnd").ends_with("# line 4"), "{shown}");
    assert!(lines(&shown, "keep").starts_with("keep = false"), "{shown}");
    assert!(
        lines(&shown, "port").contains("443") && lines(&shown, "algorithm =").contains("cubic"),
        "{shown}"
    );
}

#[test]
fn nothing_to_attach_is_an_error() {
    let file = Scratch::new("");
    fails(
        ccplane("attach --config").arg(file.path()),
        2,
        &["no algorithm to attach"],
    );
}

const NAMES: [&str; 2] = ["ccp_reno", "ccp_cubic"];

/// `ccplane attach` with a configuration file; killed on drop.
struct Attach {
    child: Child,
    said: Scratch,
}

impl Attach {
    fn start(file: &Scratch, arguments: &[&str]) -> Attach {
        let said = Scratch::new("");
        let log = || {
            Stdio::from(
                fs::File::options()
                    .append(true)
                    .open(said.path())
                    .expect("it was made"),
            )
        };
        let child = ccplane("attach --config")
            .arg(file.path())
            .args(arguments)
            .stdout(log())
            .stderr(log())
            .spawn()
            .expect("it starts");
        Attach { child, said }
    }

    /// Waits until its log contains the text this many times.
    fn says(&mut self, what: &str, times: usize) {
        eventually(what, || {
            let said = self.said.text();
            assert!(
                self.child.try_wait().expect("our child").is_none(),
                "it goes on: {said}"
            );
            said.matches(what).count() >= times
        });
    }

    fn reload(&self) {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGHUP).expect("it runs");
    }
}

impl Drop for Attach {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for name in NAMES {
            let _ = ccplane_linux::select::detach(Some(name));
            let _ = ccplane_linux::detach(Some(name));
        }
    }
}

/// Returns the congestion control of a new connection to this listener.
fn control(listener: &TcpListener) -> String {
    let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let name = getsockopt(&stream, sockopt::TcpCongestion).expect("a TCP socket");
    name.to_string_lossy().into_owned()
}

#[test]
fn several_algorithms_are_chosen_by_rules_and_a_reload_is_all_or_nothing() {
    if !can_run("several_algorithms_are_chosen_by_rules_and_a_reload_is_all_or_nothing") {
        return;
    }
    let _host = lock_host();
    // No other process connects to these addresses.
    let listener = || TcpListener::bind("127.7.7.7:0").expect("loopback");
    let (web, other) = (listener(), listener());
    let port = web.local_addr().expect("bound").port();
    let file = Scratch::new(&format!(
        "algorithms = [\"reno\", \"cubic\"]\n\
         [limits]\nmin_cwnd = \"3kB\"\n\
         [[rule]]\nalgorithm = \"cubic\"\nto = \"127.7.7.0/24\"\nport = {port}\n\
         [[rule]]\nalgorithm = \"reno\"\nto = \"127.7.7.0/24\"\n"
    ));
    let first = file.text();
    let mut attach = Attach::start(&file, &[]);
    attach.says("ccp_reno: selected for", 1);
    assert_eq!(
        (control(&web), control(&other)),
        ("ccp_cubic".into(), "ccp_reno".into())
    );

    // An invalid file, and one with a change that needs a restart: the log shows line and fix, and
    // nothing changes.
    fs::write(file.path(), first.replace("3kB", "much")).expect("ours");
    attach.reload();
    attach.says("the old configuration remains in effect", 1);
    let moved = first.replace("\"reno\", \"cubic\"", "\"reno\", \"cubic\", \"copa\"");
    fs::write(file.path(), moved.replace("port = ", "port = 1 #")).expect("ours");
    attach.reload();
    attach.says("the old configuration remains in effect", 2);
    let text = format!("{}:1: `algorithms` cannot change", file.path().display());
    attach.says(&text, 1);
    // A rule that this host cannot apply also rejects the rules before it.
    let impossible = first.replace("algorithm = \"cubic\"", "algorithm = \"reno\"");
    fs::write(file.path(), format!("{impossible}cgroup = \"/nonesuch\"\n")).expect("ours");
    attach.reload();
    attach.says("the old configuration remains in effect", 3);
    attach.says("/nonesuch", 1);
    assert_eq!(
        (control(&web), control(&other)),
        ("ccp_cubic".into(), "ccp_reno".into())
    );

    // The two algorithms swapped.
    let swapped = first
        .replace("= \"cubic\"", "= \"x\"")
        .replace("= \"reno\"", "= \"cubic\"");
    fs::write(file.path(), swapped.replace("= \"x\"", "= \"reno\"")).expect("ours");
    attach.reload();
    attach.says(&format!("reloaded {}", file.path().display()), 1);
    let said = attach.said.text();
    let warned = said
        .lines()
        .any(|line| line.contains("WARN") && line.contains("reloaded"));
    assert!(!warned, "a reload that succeeds is no warning: {said}");
    assert_eq!(
        (control(&web), control(&other)),
        ("ccp_reno".into(), "ccp_cubic".into())
    );

    // Without rules no algorithm is selected.
    let alone: String = first.split("[[rule]]").take(1).collect();
    fs::write(file.path(), alone).expect("ours");
    attach.reload();
    attach.says(&format!("reloaded {}", file.path().display()), 2);
    assert!(!NAMES.contains(&control(&web).as_str()));

    kill(
        Pid::from_raw(attach.child.id().cast_signed()),
        Signal::SIGTERM,
    )
    .expect("it runs");
    assert!(
        attach.child.wait().expect("our child").success(),
        "{}",
        attach.said.text()
    );
    assert!(
        ccplane_linux::select::chosen()
            .iter()
            .all(|name| !NAMES.contains(&name.as_str()))
    );
}
