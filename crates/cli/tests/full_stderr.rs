//! A gateway and an agent whose standard error is full and not read, as with a stopped journal or a
//! terminal after Ctrl-S.
#![expect(clippy::disallowed_methods, reason = "tests in real time")]

use std::fs;
use std::io::Write;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ccplane_host::Namespace;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::unistd::Pid;

use crate::common::{RunCommand, ccplane, eventually, ip_in, namespace, printed};

/// Time limit for termination. A main thread that blocks on standard error never ends.
const END: Duration = Duration::from_secs(5);

/// A process; killed on drop.
struct Process {
    child: Child,
    /// Read end of its standard error, which is never read.
    _stderr: Option<std::io::PipeReader>,
}

impl Process {
    /// Starts a command whose standard error is full.
    fn start(command: &mut Command) -> Process {
        let (reader, mut writer) = std::io::pipe().unwrap();
        fcntl(&writer, FcntlArg::F_SETPIPE_SZ(4_096)).unwrap();
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        while writer.write(&[b'x'; 512]).is_ok() {}
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
        let child = command
            .stdout(Stdio::null())
            .stderr(writer)
            .spawn()
            .unwrap();
        Process {
            child,
            _stderr: Some(reader),
        }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Sends SIGTERM and expects success.
    fn end(mut self) {
        let asked = Instant::now();
        self.signal(Signal::SIGTERM);
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(asked.elapsed() < END, "SIGTERM does not end it");
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(status.success(), "{status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A temporary folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("ccplane-{}-{test}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Creates the key of site `n` and returns its public key.
fn key(folder: &Folder, n: usize) -> String {
    let path = folder.path(&format!("{n}.key"));
    let key = printed(ccplane("gateway keys").arg(path));
    key.lines().last().unwrap().to_owned()
}

/// Writes the configuration of site `n`, with the other site as its peer.
fn configure(folder: &Folder, n: usize, other_key: &str) -> PathBuf {
    let (own, other) = (n + 1, 2 - n);
    let text = format!(
        "[site]\nkey = \"{n}.key\"\nlisten = \"0.0.0.0:51820\"\ndevice = \"gate0\"\naddresses = [\"10.7.0.{own}/24\"]\n\
         [[peer]]\nname = \"other\"\npublic_key = \"{other_key}\"\nendpoint = \"192.0.2.{other}:51820\"\nprefixes = [\"10.7.0.{other}/32\"]\n"
    );
    let path = folder.path(&format!("{n}.toml"));
    fs::write(&path, text).unwrap();
    path
}

fn start_gateway(space: &Namespace, config: &Path, socket: &Path) -> Process {
    let mut command = ccplane("-v gateway run");
    command.arg(config).env("CCPLANE_GATEWAY_SOCKET", socket);
    let gateway = Process::start(space.enter_on_spawn(&mut command).unwrap());
    eventually("the gateway runs", || socket.exists());
    gateway
}

fn udp(space: &Namespace, address: &str) -> UdpSocket {
    let bind = || UdpSocket::bind((address, 0)).unwrap();
    let mut socket = None;
    eventually("the gateway has its interface", || {
        let bound = space.run(|| UdpSocket::bind((address, 0)).is_ok()).unwrap();
        socket = bound.then(|| space.run(bind).unwrap());
        bound
    });
    let socket = socket.unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    socket
}

/// Returns true if a datagram crosses from one socket to the other and back.
fn ping(a: &UdpSocket, b: &UdpSocket) -> bool {
    let mut buffer = [0; 64];
    let _ = a.send_to(b"ping", b.local_addr().unwrap());
    b.recv(&mut buffer).is_ok()
        && b.send_to(b"pong", a.local_addr().unwrap()).is_ok()
        && a.recv(&mut buffer).is_ok()
}

#[test]
fn a_gateway_forwards_reloads_and_ends_while_nobody_reads_its_log() {
    let (Some(a), Some(b)) = (namespace("stderr-a"), namespace("stderr-b")) else {
        return;
    };
    let folder = Folder::new("stderr");
    let keys = [0, 1].map(|n| key(&folder, n));
    let configs = [
        configure(&folder, 0, &keys[1]),
        configure(&folder, 1, &keys[0]),
    ];
    ip_in(
        &a,
        &format!(
            "link add under0 type veth peer name under1 netns {}",
            b.name()
        ),
    );
    for (space, device, n) in [(&a, "under0", 1), (&b, "under1", 2)] {
        ip_in(space, &format!("address add 192.0.2.{n}/24 dev {device}"));
        ip_in(space, &format!("link set {device} up"));
    }
    let first = start_gateway(&a, &configs[0], &folder.path("a.sock"));
    let second = start_gateway(&b, &configs[1], &folder.path("b.sock"));
    let sockets = [udp(&a, "10.7.0.1"), udp(&b, "10.7.0.2")];
    // The key exchange is an event, and each event is logged.
    eventually("keys", || ping(&sockets[0], &sockets[1]));
    // More lines than the log queue holds, from the main thread too: each reload logs the error in
    // the file.
    let good = fs::read_to_string(&configs[0]).unwrap();
    for round in 0..5 {
        fs::write(&configs[0], format!("{good}nonsense = {round}\n")).unwrap();
        first.signal(Signal::SIGHUP);
        std::thread::sleep(Duration::from_millis(150));
    }
    let answered = (0..10).filter(|_| ping(&sockets[0], &sockets[1])).count();
    assert_eq!(answered, 10);
    // A valid reload still works.
    let more = format!(
        "{good}[[peer]]\nname = \"c\"\npublic_key = \"{}\"\nprefixes = [\"10.9.0.0/16\"]\n",
        "A".repeat(43) + "="
    );
    fs::write(&configs[0], more).unwrap();
    first.signal(Signal::SIGHUP);
    eventually("the new peer has its route", || {
        let routes = a.run(|| fs::read_to_string("/proc/thread-self/net/route").unwrap());
        routes
            .unwrap()
            .contains(&format!("gate0\t{:08X}", u32::from_ne_bytes([10, 9, 0, 0])))
    });
    first.end();
    second.end();
}

#[test]
fn an_agent_steers_and_ends_while_nobody_reads_its_log() {
    if namespace("stderr-agent").is_none() {
        return;
    }
    let folder = Folder::new("stderr-agent");
    let path = folder.path("agent.sock");
    let mut command = ccplane("-v agent --alg cubic --unix");
    command.arg(&path);
    let agent = Process::start(&mut command);
    eventually("it listens", || path.exists());
    // Each connection logs a line, and each one without a message another.
    for _ in 0..50 {
        let fd: OwnedFd = socket(
            AddressFamily::Unix,
            SockType::SeqPacket,
            SockFlag::SOCK_CLOEXEC,
            None,
        )
        .unwrap();
        connect(fd.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        let _ = nix::unistd::write(&fd, b"no message");
    }
    let run = "--json run --alg cubic --datapath udp --rate 10mbit --rtt 20ms --duration 2s";
    let output = ccplane(run)
        .arg("--agent")
        .arg(format!("unix:{}", path.display()))
        .arg("--out")
        .arg(folder.path("out"))
        .run();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && !said.contains("fallback"),
        "{said}"
    );
    agent.end();
}
