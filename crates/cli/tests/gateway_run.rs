//! `ccplane gateway run` as a service: privileges, status and metrics, and reloads.
#![expect(clippy::disallowed_methods, reason = "tests in real time")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use ccplane_host::Namespace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Gid, Pid, Uid, chown};
use serde_json::Value;

use crate::common::{ccplane, eventually, namespace, printed};

/// CAP_NET_ADMIN in the notation of /proc.
const NET_ADMIN: &str = "0000000000001000";
const NONE: &str = "0000000000000000";
/// ID of an unprivileged user and group.
const NOBODY_UID: u32 = 65_534;

/// A folder with a key and a configuration.
struct Files {
    folder: PathBuf,
}

impl Files {
    fn new(test: &str) -> Files {
        let folder = std::env::temp_dir().join(format!("ccplane-{}-{test}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let files = Files { folder };
        printed(ccplane("gateway keys").arg(files.path("site.key")));
        files.write("");
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes the configuration with `more` appended.
    fn write(&self, more: &str) {
        let text = "[site]\nkey = \"site.key\"\nlisten = \"0.0.0.0:51820\"\ndevice = \"gate1\"\naddresses = [\"10.7.0.1/24\"]\n\
             [metrics]\nlisten = \"127.0.0.1:9465\"\n\
             [[peer]]\nname = \"b\"\npublic_key = \"hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=\"\nprefixes = [\"10.8.0.0/16\"]\naddress = \"10.8.0.1\"\n";
        fs::write(self.path("site.toml"), format!("{text}{more}")).unwrap();
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A running gateway.
struct Running {
    process: Child,
    output: BufReader<ChildStdout>,
    socket: PathBuf,
}

impl Running {
    /// Starts the gateway with `command` as a prefix and waits until it is ready.
    fn start(mut command: Command, files: &Files, space: &Namespace) -> Running {
        let socket = files.path("gateway.sock");
        command
            .args(["gateway", "run", "--json"])
            .arg(files.path("site.toml"))
            .env("CCPLANE_GATEWAY_SOCKET", &socket);
        let mut process = space
            .enter_on_spawn(&mut command)
            .unwrap()
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut running = Running {
            process,
            output,
            socket,
        };
        let mut line = String::new();
        running.output.read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line)
            .unwrap_or_else(|why| panic!("it is not ready: {why}: {line}"));
        assert_eq!(
            (&ready["device"], &ready["metrics"]),
            (&"gate1".into(), &"127.0.0.1:9465".into())
        );
        running
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.process.id()).unwrap())
    }

    /// Returns the output of `status --json`.
    fn status(&self) -> Value {
        let mut status = Command::new(env!("CARGO_BIN_EXE_ccplane"));
        let asked = status
            .args(["gateway", "status", "--json"])
            .env("CCPLANE_GATEWAY_SOCKET", &self.socket)
            .output()
            .unwrap();
        serde_json::from_slice(&asked.stdout).unwrap()
    }

    /// Returns fields of `status` in /proc for each thread, by name.
    fn threads(&self, fields: &[&str]) -> Vec<(String, Vec<String>)> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap();
        let of = |status: &str, field: &str| {
            let mut lines = status
                .lines()
                .filter_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
            lines.next().unwrap_or_default().trim().to_owned()
        };
        tasks
            .filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok())
            .map(|status| {
                (
                    of(&status, "Name"),
                    fields.iter().map(|field| of(&status, field)).collect(),
                )
            })
            .collect()
    }

    /// Returns a thread's ID by name.
    fn task(&self, name: &str) -> Pid {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap();
        let named = |task: &PathBuf| {
            fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name)
        };
        let task = tasks.map(|task| task.unwrap().path()).find(named).unwrap();
        Pid::from_raw(task.file_name().unwrap().to_str().unwrap().parse().unwrap())
    }

    /// Waits until every thread has its name and the metrics thread has dropped its capabilities.
    fn settles(&self) {
        eventually("its threads are as they stay", || {
            let threads = self.threads(&["CapEff"]);
            let unnamed = threads.iter().filter(|(name, _)| name == "ccplane").count();
            let metrics = threads
                .iter()
                .any(|(name, has)| name == "ccplane-metrics" && has[0] == NONE);
            unnamed == 1 && metrics
        });
    }

    /// Sends SIGTERM and expects success.
    fn end(mut self) {
        kill(self.pid(), Signal::SIGTERM).unwrap();
        assert!(self.process.wait().unwrap().success());
        assert!(!self.socket.exists());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn routes(space: &Namespace) -> String {
    space
        .run(|| fs::read_to_string("/proc/thread-self/net/route").unwrap())
        .unwrap()
}

fn scrape(space: &Namespace) -> String {
    let ask = || {
        let mut stream = TcpStream::connect("127.0.0.1:9465").unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    space.run(ask).unwrap()
}

/// Returns the entry of a network's route in /proc, which prints an IPv4 address in host byte
/// order.
fn route_to(address: [u8; 4]) -> String {
    format!("gate1\t{:08X}", u32::from_ne_bytes(address))
}

fn reloads(running: &Running, files: &Files, space: &Namespace) {
    let [before, new] = [[10, 8, 0, 0], [10, 9, 0, 0]].map(route_to);
    assert!(routes(space).contains(&before) && !routes(space).contains(&new));
    files.write("[[peer]]\nname = \"c\"\npublic_key = \"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"\nprefixes = [\"10.9.0.0/16\"]\n");
    kill(running.pid(), Signal::SIGHUP).unwrap();
    eventually("a peer that a reload brings has its route", || {
        routes(space).contains(&new)
    });
}

#[test]
fn it_keeps_one_capability_reloads_with_it_and_serves_metrics_without() {
    let Some(space) = namespace("run") else {
        return;
    };
    let files = Files::new("run");
    let running = Running::start(Command::new(env!("CARGO_BIN_EXE_ccplane")), &files, &space);
    running.settles();
    let threads = running.threads(&[
        "CapPrm",
        "CapEff",
        "CapInh",
        "CapAmb",
        "CapBnd",
        "NoNewPrivs",
    ]);
    assert!(threads.len() > 4, "{threads:?}");
    for (name, has) in &threads {
        let own = if name == "ccplane-metrics" {
            NONE
        } else {
            NET_ADMIN
        };
        assert_eq!(has, &[own, own, NONE, NONE, NET_ADMIN, "1"], "{name}");
    }
    assert!(
        threads.iter().any(|(name, _)| name == "ccplane-metrics"),
        "{threads:?}"
    );
    reloads(&running, &files, &space);
    // Metrics of a new peer appear shortly after it is in force.
    eventually("the new peer has figures", || {
        scrape(&space).contains("{peer=\"c\"}")
    });

    let (text, status) = (scrape(&space), running.status());
    assert!(
        text.starts_with("HTTP/1.1 200") && text.ends_with('\n'),
        "{text}"
    );
    for peer in status["peers"].as_array().unwrap() {
        let name = peer["name"].as_str().unwrap();
        for count in peer["counts"].as_object().unwrap().keys() {
            let series = format!("\nccplane_gateway_{count}_total{{peer=\"{name}\"}} ");
            assert!(text.contains(&series), "{series} is not in {text}");
        }
    }
    running.end();
    assert!(!routes(&space).contains("gate1"));
}

#[test]
fn one_capability_is_enough_without_root() {
    let Some(space) = namespace("nobody") else {
        return;
    };
    let files = Files::new("nobody");
    for name in ["", "site.key", "site.toml"] {
        chown(
            &files.path(name),
            Some(Uid::from_raw(NOBODY_UID)),
            Some(Gid::from_raw(NOBODY_UID)),
        )
        .unwrap();
    }
    // On some machines the TUN device is accessible to root only. The process gets one for all
    // users, as on most machines.
    let script = format!(
        "mknod {tun} c 10 200 && chmod 666 {tun} && mount --bind {tun} /dev/net/tun && exec setpriv --reuid {NOBODY_UID} --regid {NOBODY_UID} \
         --clear-groups --inh-caps=-all,+net_admin --ambient-caps=-all,+net_admin --bounding-set=-all,+net_admin \"$@\"",
        tun = Path::display(&files.path("tun")),
    );
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "sh",
        "-c",
        &script,
        "sh",
        env!("CARGO_BIN_EXE_ccplane"),
    ]);
    let running = Running::start(command, &files, &space);
    running.settles();
    for (name, has) in running.threads(&["Uid", "CapEff"]) {
        assert!(
            has[0].starts_with(&NOBODY_UID.to_string()),
            "{name}: {has:?}"
        );
        assert_eq!(
            has[1],
            if name == "ccplane-metrics" {
                NONE
            } else {
                NET_ADMIN
            },
            "{name}"
        );
    }
    reloads(&running, &files, &space);
    running.end();
    assert!(!routes(&space).contains("gate1"));
}

/// Returns true if a watchdog notification arrives within this time.
fn notified(socket: &UnixDatagram, within: Duration) -> bool {
    let deadline = Instant::now() + within;
    let mut buffer = [0; 256];
    while Instant::now() < deadline {
        if let Ok(bytes) = socket.recv(&mut buffer)
            && buffer[..bytes].starts_with(b"WATCHDOG=1")
        {
            return true;
        }
    }
    false
}

#[test]
fn the_watchdog_is_notified_while_both_threads_forward_and_not_when_one_is_stuck() {
    let Some(space) = namespace("watchdog") else {
        return;
    };
    let files = Files::new("watchdog");
    let notify = files.path("notify");
    let socket = UnixDatagram::bind(&notify).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    let limit = Duration::from_secs(1);
    for stuck in ["gateway-send", "gateway-receive"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ccplane"));
        command
            .env("NOTIFY_SOCKET", &notify)
            .env("WATCHDOG_USEC", limit.as_micros().to_string());
        let running = Running::start(command, &files, &space);
        assert!(notified(&socket, 5 * limit), "a gateway that forwards");
        // A tracer stops one thread and leaves the others running.
        let task = running.task(stuck);
        for request in [libc::PTRACE_SEIZE, libc::PTRACE_INTERRUPT] {
            // SAFETY: PTRACE_SEIZE and PTRACE_INTERRUPT read and write no memory of this process;
            // `task` is a thread of our child, which `Running` keeps alive.
            let done = unsafe { libc::ptrace(request, task.as_raw(), 0, 0) };
            assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        }
        // Discards notifications from before the thread counts as stuck.
        std::thread::sleep(limit);
        while socket.recv(&mut [0; 256]).is_ok() {}
        let late = notified(&socket, 2 * limit);
        // The tracer has to reap the thread, or the process remains.
        kill(running.pid(), Signal::SIGKILL).unwrap();
        while waitpid(task, Some(WaitPidFlag::__WALL))
            .is_ok_and(|status| matches!(status, WaitStatus::PtraceEvent(..)))
        {}
        assert!(!late, "{stuck} is stuck");
    }
}
