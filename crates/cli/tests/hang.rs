//! An algorithm whose callback hangs: the systemd watchdog is no longer notified, and SIGTERM still
//! ends the process, which leaves nothing behind. With the variable HANGS this binary is the
//! command with that algorithm, otherwise the test.
#![expect(clippy::disallowed_methods, reason = "a test in real time")]

mod common;

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use ccplane::agent::{Algorithm, Control, FlowInfo, Programs, Report, box_algorithm};
use ccplane::{AlgorithmDoc, Registry};
use ccplane_linux::PinnedView;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use common::pair::{Pair, is_registered};
use common::{REACTION_TIMEOUT, can_run, eventually, lock_host};

const NAME: &str = "ccp_hangs";
const HANGING_ALGORITHM: &str = "CCPLANE_TEST_HANGS";

struct Hangs;

impl Algorithm for Hangs {
    type Flow = ();

    fn name(&self) -> &str {
        "hangs"
    }

    fn programs(&self) -> Programs {
        Programs::new().with(
            "fold",
            "(def (Report (volatile acked 0))) (when (> Micros 1000) (:= Micros 0) (report))",
        )
    }

    fn open(&mut self, _info: &FlowInfo, _control: &mut Control<'_>) {
        loop {
            std::thread::sleep(REACTION_TIMEOUT);
        }
    }

    fn on_report(&mut self, (): &mut (), _report: &Report<'_>, _control: &mut Control<'_>) {}
}

const DOC: AlgorithmDoc = AlgorithmDoc {
    name: "hangs",
    doc: "its first callback never returns",
    parameters: &[],
};

fn main() -> ExitCode {
    if std::env::var_os(HANGING_ALGORITHM).is_some() {
        return ccplane::main_with(Registry::empty().add(DOC, |_| Ok(box_algorithm(Hangs))));
    }
    if can_run("a_hung_callback_silences_the_watchdog_and_does_not_keep_the_process") {
        a_hung_callback_silences_the_watchdog_and_does_not_keep_the_process();
    }
    ExitCode::SUCCESS
}

struct Attach(Child);

impl Drop for Attach {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = ccplane_linux::detach(Some(NAME));
    }
}

fn a_hung_callback_silences_the_watchdog_and_does_not_keep_the_process() {
    let _host = lock_host();
    let path = std::env::temp_dir().join(format!("ccplane-notify-{}", std::process::id()));
    let _ = fs::remove_file(&path);
    let systemd = UnixDatagram::bind(&path).expect("a free path");
    systemd.set_nonblocking(true).expect("a socket");

    let process = Command::new(std::env::current_exe().expect("it runs"))
        .args(["attach", "--alg", "hangs"])
        .env(HANGING_ALGORITHM, "1")
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "300000")
        .stdout(Stdio::null())
        .spawn();
    let mut process = Attach(process.expect("it starts"));
    let pings = || {
        let mut message = [0; 256];
        let mut pings = 0;
        while let Ok(length) = systemd.recv(&mut message) {
            pings += usize::from(message[..length].starts_with(b"WATCHDOG=1"));
        }
        pings
    };
    let mut seen = 0;
    eventually("all is well at first", || {
        seen += pings();
        seen > 3
    });

    let watch = PinnedView::open(NAME).expect("it is attached");
    let pair = Pair::under(NAME);
    eventually("the heartbeat is old", || {
        watch.heartbeat_age() > ccplane::units::Duration::from_secs(1)
    });
    pings();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(pings(), 0, "a hung algorithm is not well");

    kill(Pid::from_raw(process.0.id().cast_signed()), Signal::SIGTERM).expect("it runs");
    let asked = Instant::now();
    let end = process.0.wait().expect("our child");
    assert!(end.success(), "{end}");
    assert!(
        asked.elapsed() < Duration::from_secs(5),
        "{:?}",
        asked.elapsed()
    );
    assert_eq!(
        ccplane_linux::presence(NAME).expect("it can be told"),
        ccplane_linux::Presence::Gone
    );
    drop((watch, pair));
    eventually("it is unregistered", || !is_registered(NAME));
    assert!(fs::exists(format!("/run/ccplane/{NAME}.lock")).is_ok_and(|exists| !exists));
    let _ = fs::remove_file(&path);
}
