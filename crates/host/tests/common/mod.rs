//! Helpers of tests in namespaces, also for other crates.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::fmt::Display;
use std::process::{Command, Stdio};

use ccplane_host::Namespace;

/// Reports a test as skipped. Panics if `CCPLANE_NO_SKIP` is set.
#[track_caller]
pub fn skip(test: &str, reason: impl Display) {
    assert!(
        std::env::var_os("CCPLANE_NO_SKIP").is_none(),
        "{test} cannot run: {reason}"
    );
    eprintln!("SKIPPED: {test}: {reason}");
}

/// Returns true if the process is root; otherwise skips the test.
pub fn is_root(test: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        skip(test, "needs root");
    }
    root
}

/// Creates a namespace for a test, or skips the test if not permitted.
pub fn namespace(test: &str) -> Option<Namespace> {
    Namespace::create(&format!("ccplane-{}-{test}", std::process::id()))
        .map_err(|reason| skip(test, reason))
        .ok()
}

/// Runs `ip` with arguments that are separated by spaces.
pub fn ip(arguments: &str) {
    run_ip(Command::new("ip").args(arguments.split_whitespace()));
}

/// Runs `ip` in a namespace.
pub fn ip_in(space: &Namespace, arguments: &str) {
    let mut command = Command::new("ip");
    command.args(arguments.split_whitespace());
    run_ip(space.enter_on_spawn(&mut command).expect("a namespace"));
}

fn run_ip(command: &mut Command) {
    let status = command.status().expect("iproute2 is installed");
    assert!(status.success(), "{command:?}");
}

/// Two namespaces with a router between them, which are deleted on drop. The ends have the
/// addresses 10.`subnet`.1.1 and 10.`subnet`.2.1.
pub struct RoutedPath {
    /// Names of the sender's namespace, the router and the receiver's namespace.
    pub names: [String; 3],
}

impl RoutedPath {
    pub fn new(name: &str, subnet: u8) -> RoutedPath {
        let path = RoutedPath {
            names: ["a", "r", "b"].map(|end| format!("ccplane-{name}-{end}")),
        };
        path.delete();
        let router = &path.names[1];
        for name in &path.names {
            ip(&format!("netns add {name}"));
        }
        for (end, namespace, number) in [("a", &path.names[0], 1), ("b", &path.names[2], 2)] {
            let network = format!("10.{subnet}.{number}");
            ip(&format!(
                "-n {router} link add side-{end} type veth peer name end-{end} netns {namespace}"
            ));
            ip(&format!(
                "-n {namespace} address add {network}.1/24 dev end-{end}"
            ));
            ip(&format!(
                "-n {router} address add {network}.2/24 dev side-{end}"
            ));
            ip(&format!("-n {namespace} link set end-{end} up"));
            ip(&format!("-n {router} link set side-{end} up"));
            ip(&format!("-n {namespace} route add default via {network}.2"));
        }
        let sysctl = "/proc/sys/net/ipv4/ip_forward";
        path.run_on_router(&["sh", "-c", &format!("echo 1 > {sysctl}")]);
        path
    }

    /// Makes the router drop ICMP, and thereby oversized packets without an error.
    pub fn drop_icmp(&self) {
        let rules = "add table ip hole; \
                     add chain ip hole out { type filter hook output priority 0; }; \
                     add rule ip hole out ip protocol icmp drop";
        self.run_on_router(&["nft", rules]);
    }

    /// Sets the MTU of the router's link to the receiver.
    pub fn set_mtu(&self, mtu: usize) {
        ip(&format!("-n {} link set side-b mtu {mtu}", self.names[1]));
    }

    /// Runs a command on the router.
    pub fn run_on_router(&self, command: &[&str]) {
        run_ip(
            Command::new("ip")
                .args(["netns", "exec", &self.names[1]])
                .args(command),
        );
    }

    fn delete(&self) {
        for name in &self.names {
            let _ = Command::new("ip")
                .args(["netns", "delete", name])
                .stderr(Stdio::null())
                .status();
        }
    }
}

impl Drop for RoutedPath {
    fn drop(&mut self) {
        self.delete();
    }
}
