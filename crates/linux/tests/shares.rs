//! Shares of the flow table: other network namespaces leave slots for the host.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::common::direct::{Direct, WATCHER_PROGRAM, program};
use crate::common::*;
use ccplane_host::Namespace;
use ccplane_linux::AlgorithmCounters;

/// Environment variables that turn a test process into a tenant: congestion control, and number of
/// connections.
const NAME_VARIABLE: &str = "CCPLANE_TENANT_NAME";
const CONNECTIONS_VARIABLE: &str = "CCPLANE_TENANT_CONNECTIONS";
/// The user `nobody`, and another one.
const USER_IDS: [u32; 2] = [65_534, 65_533];

/// A process of an unprivileged user in its own user and network namespaces, with connections over
/// its loopback.
struct Tenant {
    child: Child,
    /// Closing it ends the process, even if this one is killed.
    _stdin: Option<ChildStdin>,
}

impl Tenant {
    fn start(user: u32, name: &str, connections: usize) -> Tenant {
        let mut command = Command::new("unshare");
        command
            .args(["--user", "--map-root-user", "--net"])
            // The test program is in a folder of root: it is run through a descriptor that stays
            // open.
            .args([
                "/proc/self/fd/3",
                "--exact",
                "shares::tenant",
                "--ignored",
                "--nocapture",
            ])
            .env(NAME_VARIABLE, name)
            .env(CONNECTIONS_VARIABLE, connections.to_string())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let program = std::fs::File::open("/proc/self/exe").expect("this program");
        let descriptor = std::os::fd::IntoRawFd::into_raw_fd(program);
        // SAFETY: the closure makes only async-signal-safe system calls between fork and exec.
        unsafe {
            command.pre_exec(move || {
                if libc::dup2(descriptor, 3) < 0 || libc::setgroups(0, std::ptr::null()) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                match libc::setgid(user) + libc::setuid(user) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
        let mut child = command.spawn().expect("unshare of util-linux");
        // SAFETY: the descriptor is the one opened above, and is closed once.
        unsafe { libc::close(descriptor) };
        let _stdin = child.stdin.take();
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let ready = lines.find(|line| {
            line.as_ref()
                .is_ok_and(|line| line.contains("tenant is ready"))
        });
        assert!(ready.is_some(), "the tenant ended: {:?}", child.wait());
        Tenant { child, _stdin }
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Opens connections over loopback with this congestion control. Returns both ends.
fn connect(name: &str, connections: usize) -> Vec<[TcpStream; 2]> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback interface");
    let address = listener.local_addr().expect("bound");
    let pair = |_| {
        let mut client = TcpStream::connect(address).expect("it listens");
        choose(&client, name).expect("registered, and allowed in a user namespace");
        client.write_all(&[1]).expect("connected");
        [client, listener.accept().expect("connected").0]
    };
    (0..connections).map(pair).collect()
}

/// Not a test: the body of a [`Tenant`].
#[test]
#[ignore = "child: a tenant of the other tests"]
fn tenant() {
    let (Ok(name), Ok(connections)) = (
        std::env::var(NAME_VARIABLE),
        std::env::var(CONNECTIONS_VARIABLE),
    ) else {
        return;
    };
    up("lo");
    let _connections = connect(&name, connections.parse().expect("a number"));
    println!("tenant is ready");
    let _end = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Brings an interface up.
fn up(name: &str) {
    let done = Command::new("ip")
        .args(["link", "set", name, "up"])
        .status();
    assert!(done.expect("iproute2 or busybox").success());
}

fn counters(direct: &Direct) -> AlgorithmCounters {
    direct.kernel.counters().next().expect("one").2
}

/// Returns true if an unprivileged user can create user namespaces.
fn user_namespaces(test: &str) -> bool {
    let allowed = [
        "/proc/sys/user/max_user_namespaces",
        "/proc/sys/kernel/unprivileged_userns_clone",
    ]
    .iter()
    .all(|path| !std::fs::read_to_string(path).is_ok_and(|value| value.trim() == "0"));
    if !allowed || Command::new("unshare").arg("--version").output().is_err() {
        eprintln!(
            "SKIPPED: {test}: needs unprivileged user namespaces and `unshare` of util-linux"
        );
        return false;
    }
    true
}

#[test]
fn a_namespace_that_fills_its_share_leaves_the_hosts_flows_steered() {
    const TEST: &str = "a_namespace_that_fills_its_share_leaves_the_hosts_flows_steered";
    if !can_run(TEST) || !user_namespaces(TEST) {
        return;
    }
    let _host = lock_host();
    let mut options = patient();
    options.flows = 64;
    // Only a process with CAP_NET_ADMIN may select the algorithm; the tenant has it in its own
    // namespaces.
    options.unrestricted = false;
    let mut direct = Direct::new("t_share", vec![program(1, WATCHER_PROGRAM)], 1, &options);
    let name = direct.kernel_name();
    let tenant = Tenant::start(USER_IDS[0], &name, 100);
    direct.turn_until("a quarter", |direct| direct.opened.len() >= 16);
    direct.turn_for(50);
    let full = counters(&direct);
    assert_eq!(
        (full.flows, full.without_slot, full.share_full),
        (100, 84, 84)
    );
    // A second pair of namespaces of the same user has no share of its own.
    let again = Tenant::start(USER_IDS[0], &name, 10);
    direct.turn_for(50);
    assert_eq!(counters(&direct).without_slot, 94);
    // Another user does.
    let other = Tenant::start(USER_IDS[1], &name, 10);
    direct.turn_for(50);
    assert_eq!(
        (counters(&direct).without_slot, counters(&direct).flows),
        (94, 120)
    );
    // The host gets the remaining slots.
    let host = connect(&name, 38);
    direct.turn_until("all flows of the host are steered", |direct| {
        direct.opened.len() == 16 + 10 + 38
    });
    let beyond = connect(&name, 1);
    direct.turn_for(50);
    let (all, share) = (counters(&direct), full.share_full + 10);
    assert_eq!(
        (all.without_slot, all.table_full, all.share_full),
        (95, 95, share)
    );
    // Slots released by a tenant are free for the host and for the tenant's share.
    drop((tenant, again, other, beyond));
    direct.turn_until("the tenants' flows end", |direct| {
        counters(direct).flows == 38
    });
    let later = Tenant::start(USER_IDS[0], &name, 16);
    direct.turn_until("the full share is available again", |direct| {
        direct.opened.len() == 64 + 16
    });
    assert_eq!(counters(&direct).without_slot, 0);
    drop((host, later));
}

#[test]
fn each_namespace_of_root_has_a_share_of_at_most_three_quarters_together() {
    const TEST: &str = "each_namespace_of_root_has_a_share_of_at_most_three_quarters_together";
    if !can_run(TEST) {
        return;
    }
    let _host = lock_host();
    let mut options = patient();
    options.flows = 16;
    let mut direct = Direct::new("t_shares", vec![program(1, WATCHER_PROGRAM)], 1, &options);
    let name = direct.kernel_name();
    let mut held = Vec::new();
    for (index, steered) in [4, 8, 12, 12].into_iter().enumerate() {
        let namespace = Namespace::create(&format!("ccplane-share{index}-{}", std::process::id()))
            .expect("as root");
        let flows = namespace.run(|| connect(&name, 6)).expect("inside");
        held.push((namespace, flows));
        direct.turn_for(50);
        assert_eq!(
            direct.opened.len(),
            steered,
            "after {} namespaces",
            index + 1
        );
    }
    let host = connect(&name, 4);
    direct.turn_until("the last quarter is for the host", |direct| {
        direct.opened.len() == 16
    });
    drop(host);
}
