//! The command behind the link when this process is ended from outside. The test runs itself again
//! as the process to end.
#![expect(clippy::disallowed_methods, reason = "tests in real time")]

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use ccplane_emu::{EmuConfig, ShellOptions, remote, shell};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("victim") {
        return victim();
    }
    if let Err(reason) =
        ccplane_host::Namespace::create(&format!("ccplane-{}-signals", std::process::id()))
    {
        assert!(
            std::env::var_os("CCPLANE_NO_SKIP").is_none(),
            "signals cannot run: {reason}"
        );
        eprintln!("SKIPPED: signals: {reason}");
        return;
    }
    a_terminated_emulation_forwards_the_signal_and_cleans_up();
    interrupts_go_to_the_command();
    a_killed_emulation_takes_its_command_along();
    println!("signals: 3 passed");
}

/// Runs a command that prints its PID, then reports its end.
fn victim() {
    let mut command = Command::new("sh");
    // Tests run in the background of a shell inherit ignored interrupts.
    let sleep = "exec env --default-signal=INT sleep 60";
    command.args([
        "-c",
        &format!("setsid sleep 60 & echo $!; echo $$; {sleep}"),
    ]);
    let report = shell(
        &EmuConfig::default(),
        ShellOptions::default(),
        &mut command,
        |info| println!("{}", info.namespace),
    )
    .expect("it runs");
    println!("{}", report.exit_code());
}

struct Victim {
    process: Child,
    output: Lines<BufReader<ChildStdout>>,
    namespace: String,
    background: Pid,
    command: Pid,
}

impl Victim {
    fn start() -> Victim {
        let own = std::env::current_exe().expect("a test has a file");
        let mut process = Command::new(own)
            .arg("victim")
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut output = BufReader::new(process.stdout.take().expect("piped")).lines();
        let mut line = || {
            output
                .next()
                .expect("the message is printed")
                .expect("text")
        };
        let namespace = line();
        let mut pid = || Pid::from_raw(line().parse().expect("a process number"));
        let (background, command) = (pid(), pid());
        Victim {
            process,
            output,
            namespace,
            background,
            command,
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.process.id() as i32)
    }

    fn assert_nothing_left(&self) {
        let id = self.process.id();
        assert!(!is_alive(self.command), "the command has ended");
        assert!(!remote::list().contains(&id.to_string()));
        assert!(!Path::new(&format!("/run/ccplane/emu-{id}.sock")).exists());
        assert!(!Path::new(&format!("/sys/class/net/ccplane-{id}")).exists());
        assert!(!Path::new("/run/netns").join(&self.namespace).is_symlink());
    }
}

fn a_terminated_emulation_forwards_the_signal_and_cleans_up() {
    let mut victim = Victim::start();
    kill(victim.pid(), Signal::SIGTERM).expect("it runs");
    let exit_code = victim
        .output
        .next()
        .expect("the message is printed")
        .expect("text");
    assert_eq!(exit_code, "143", "128 + SIGTERM");
    assert!(victim.process.wait().expect("it ends").success());
    assert!(
        !is_alive(victim.background),
        "the background process has ended"
    );
    victim.assert_nothing_left();
}

fn interrupts_go_to_the_command() {
    let mut victim = Victim::start();
    // Like a terminal, but to the emulator first.
    kill(victim.pid(), Signal::SIGINT).expect("it runs");
    std::thread::sleep(Duration::from_millis(50));
    assert!(
        victim.process.try_wait().expect("ours").is_none(),
        "Ctrl-C does not end the emulation"
    );
    kill(victim.command, Signal::SIGINT).expect("it runs");
    let exit_code = victim
        .output
        .next()
        .expect("the message is printed")
        .expect("text");
    assert_eq!(exit_code, "130", "128 + SIGINT");
    victim.process.wait().expect("it ends");
    victim.assert_nothing_left();
}

fn a_killed_emulation_takes_its_command_along() {
    let mut victim = Victim::start();
    kill(victim.pid(), Signal::SIGKILL).expect("it runs");
    victim.process.wait().expect("it ends");
    let deadline = Instant::now() + Duration::from_secs(10);
    while is_alive(victim.command) {
        assert!(Instant::now() < deadline, "the command keeps running");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Nothing ends background processes once the emulator has been killed.
    kill(victim.background, Signal::SIGKILL).expect("it keeps running without a network");
    // Any later start sweeps.
    ccplane_host::remove_stale_names();
    victim.assert_nothing_left();
}

/// An ended process that was not reaped is in state Z, proc(5).
fn is_alive(process: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, state)| !state.starts_with('Z'))
}
