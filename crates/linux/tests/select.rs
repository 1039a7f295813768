//! Selection of connections by cgroup, addresses and percentage, and switching of live ones. Over
//! loopback, from processes in a cgroup of the test, so that no other connections are affected.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::common::*;
use ccplane_host::Namespace;
use ccplane_linux::default_control::{self, DefaultControl};
use ccplane_linux::select::{self, Selection};
use ccplane_linux::{Kernel, PinnedView, RegistrationOptions};
use nix::sys::socket::{getsockopt, sockopt};

const KERNEL_NAME: &str = "ccp_t_select";

/// A cgroup of the test. Dropping it removes the cgroup.
struct Cgroup(PathBuf);

impl Cgroup {
    fn create() -> Cgroup {
        let path = cgroup_root().join(format!("ccplane-test-{}", std::process::id()));
        std::fs::create_dir(&path).expect("as root");
        Cgroup(path)
    }

    /// Returns the congestion controls of connections to `addresses` that a process in the cgroup
    /// opens, and of their accepted ends.
    fn connect(&self, addresses: &[&str]) -> Vec<(String, String)> {
        let child = Command::new(std::env::current_exe().expect("this binary"))
            .args([
                "--exact",
                "select::process_in_the_cgroup",
                "--ignored",
                "--nocapture",
            ])
            .env("CCPLANE_TEST_CGROUP", &self.0)
            .env("CCPLANE_TEST_ADDRESSES", addresses.join(" "))
            .output()
            .expect("it starts");
        let text = String::from_utf8_lossy(&child.stdout).into_owned();
        let lines = text
            .lines()
            .filter_map(|line| line.strip_prefix("connected: "));
        let pairs = lines
            .filter_map(|line| line.split_once(' '))
            .map(|(c, a)| (c.to_owned(), a.to_owned()));
        let pairs: Vec<_> = pairs.collect();
        assert_eq!(
            pairs.len(),
            addresses.len(),
            "{text}{}",
            String::from_utf8_lossy(&child.stderr)
        );
        pairs
    }

    fn connect_one(&self, address: &str) -> (String, String) {
        self.connect(&[address]).remove(0)
    }

    fn selection(&self) -> Selection {
        Selection {
            cgroup: Some(self.0.clone()),
            to: None,
            ports: None,
            system: false,
            percent: 100,
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = select::detach(Some(KERNEL_NAME));
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Not a test: a process that enters the cgroup, connects to itself and prints the congestion
/// control of each end.
#[test]
#[ignore = "child: the process in the cgroup"]
fn process_in_the_cgroup() {
    let (Ok(cgroup), Ok(addresses)) = (
        std::env::var("CCPLANE_TEST_CGROUP"),
        std::env::var("CCPLANE_TEST_ADDRESSES"),
    ) else {
        return;
    };
    std::fs::write(PathBuf::from(cgroup).join("cgroup.procs"), "0").expect("as root");
    // The test harness has started this line.
    println!();
    for address in addresses.split(' ') {
        let listener = listen(address);
        let connected = connect_to(&listener);
        let (accepted, _) = listener.accept().expect("it is connected");
        println!(
            "connected: {} {}",
            control_of(&connected),
            control_of(&accepted)
        );
    }
}

fn control_of(socket: &impl AsFd) -> String {
    getsockopt(socket, sockopt::TcpCongestion)
        .expect("a TCP socket")
        .to_string_lossy()
        .into_owned()
}

/// Returns the expected result if both ends have `control`.
fn both(control: &str) -> (String, String) {
    (control.to_owned(), control.to_owned())
}

/// Selects [`KERNEL_NAME`] for these connections.
fn steer(selection: &Selection) {
    select::attach(KERNEL_NAME, selection).unwrap_or_else(|e| panic!("{e}"));
}

fn registered() -> Kernel {
    load(&agent_of("t_select", 1000), &RegistrationOptions::default())
}

fn native_control() -> String {
    control_of(&listen("127.0.0.1"))
}

fn listen(address: &str) -> TcpListener {
    TcpListener::bind((address, 0)).expect("an address of loopback")
}

fn connect_to(listener: &TcpListener) -> TcpStream {
    TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens")
}

#[test]
fn connections_are_chosen_by_cgroup_address_and_share() {
    if !can_run("connections_are_chosen_by_cgroup_address_and_share") {
        return;
    }
    let _host = lock_host();
    let _kernel = registered();
    let cgroup = Cgroup::create();
    let (ours, native) = (both(KERNEL_NAME), both(&native_control()));
    assert_eq!(
        cgroup.connect_one("127.0.0.1"),
        native,
        "no connection is selected yet"
    );

    steer(&cgroup.selection());
    assert!(select::chosen().iter().any(|name| name == KERNEL_NAME));
    assert_eq!(cgroup.connect_one("127.0.0.1"), ours, "both ends");
    let listener = listen("127.0.0.1");
    let elsewhere = connect_to(&listener);
    assert_eq!(
        control_of(&elsewhere),
        native.0,
        "this process is in another cgroup"
    );

    // A second selection of the same name replaces the first.
    let to = |prefix: &str| Selection {
        to: Some(prefix.parse().expect("a prefix")),
        ..cgroup.selection()
    };
    steer(&to("127.0.0.2"));
    let seen = cgroup.connect(&["127.0.0.1", "127.0.0.2"]);
    let one_way = (KERNEL_NAME.to_owned(), native.1.clone());
    assert_eq!(
        seen,
        [native.clone(), one_way],
        "one address only; the peer of the other end is 127.0.0.1"
    );
    steer(&to("127.0.0.0/30"));
    let seen = cgroup.connect(&["127.0.0.3", "127.0.0.4"]);
    let other_way = (native.0.clone(), KERNEL_NAME.to_owned());
    assert_eq!(seen, [ours.clone(), other_way], "a prefix");

    let half = Selection {
        percent: 50,
        ..cgroup.selection()
    };
    steer(&half);
    let connected = cgroup.connect(&["127.0.0.1"; 200]);
    let chosen = connected
        .iter()
        .filter(|(connected, _)| connected == KERNEL_NAME)
        .count();
    // Eight standard deviations of 7.
    assert!((44..=156).contains(&chosen), "{chosen} of 200 at 50 %");

    assert_eq!(
        select::detach(Some(KERNEL_NAME)).unwrap_or_else(|e| panic!("{e}")),
        [KERNEL_NAME]
    );
    assert_eq!(
        cgroup.connect_one("127.0.0.1"),
        native,
        "no connection is selected any more"
    );
    assert!(select::chosen().iter().all(|name| name != KERNEL_NAME));

    // The whole system, at an address that only this test uses.
    let system = Selection {
        cgroup: None,
        system: true,
        ..to("127.7.7.7")
    };
    steer(&system);
    let listener = listen("127.7.7.7");
    let everywhere = connect_to(&listener);
    assert_eq!(
        control_of(&everywhere),
        KERNEL_NAME,
        "this process is not in a cgroup of the test"
    );
}

#[test]
fn ipv6_is_chosen_like_ipv4() {
    const TEST: &str = "ipv6_is_chosen_like_ipv4";
    if !can_run(TEST) || !has_ipv6(TEST) {
        return;
    }
    let _host = lock_host();
    let _kernel = registered();
    let cgroup = Cgroup::create();
    let (ours, native) = (both(KERNEL_NAME), both(&native_control()));
    let addresses = ["::1", "::ffff:127.0.0.1"];
    for (to, expected) in [
        ("::/0", [&ours, &ours]),
        ("::1", [&ours, &native]),
        ("127.0.0.0/8", [&native, &ours]),
        ("2001:db8::/32", [&native, &native]),
    ] {
        let selection = Selection {
            to: Some(to.parse().expect("a prefix")),
            ..cgroup.selection()
        };
        steer(&selection);
        assert_eq!(
            cgroup.connect(&addresses).iter().collect::<Vec<_>>(),
            expected,
            "{to}"
        );
    }
}

#[test]
fn live_connections_move_in_every_namespace() {
    if !can_run("live_connections_move_in_every_namespace") {
        return;
    }
    let _host = lock_host();
    let _kernel = registered();
    let native = native_control();
    let namespace =
        Namespace::create(&format!("ccplane-select-{}", std::process::id())).expect("as root");
    let connect = || {
        let listener = listen("127.0.0.1");
        choose(&listener, KERNEL_NAME).expect("it is registered");
        let connected = connect_to(&listener);
        choose(&connected, KERNEL_NAME).expect("it is registered");
        let (accepted, _) = listener.accept().expect("it is connected");
        (listener, connected, accepted)
    };
    let here = connect();
    let there = namespace.run(connect).expect("a namespace");
    let all = |sockets: &(TcpListener, TcpStream, TcpStream)| {
        [
            control_of(&sockets.0),
            control_of(&sockets.1),
            control_of(&sockets.2),
        ]
    };
    assert_eq!(all(&here), [KERNEL_NAME; 3]);
    assert_eq!(all(&there), [KERNEL_NAME; 3]);

    let moved =
        select::switch_flows(Some("ccp_another"), &native).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(moved, 0, "only registrations of the given name");
    let moved = select::switch_flows(Some(KERNEL_NAME), &native).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(moved, 6);
    assert_eq!(all(&here), [native.as_str(); 3]);
    assert_eq!(all(&there), [native.as_str(); 3]);

    let error = select::switch_flows(Some(KERNEL_NAME), "nonesuch").expect_err("there is none");
    assert!(matches!(error, select::SelectError::Unknown(_)), "{error}");
}

/// The kernel keeps a default beyond its registration. Detaching replaces it; an orphan is found
/// and bound to the next registration of its name.
#[test]
fn a_default_does_not_outlive_its_registration() {
    if !can_run("a_default_does_not_outlive_its_registration") {
        return;
    }
    let _host = lock_host();
    let name = format!("ccplane-default-{}", std::process::id());
    let namespace = Namespace::create(&name).expect("as root");
    let options = RegistrationOptions {
        unrestricted: true,
        ..RegistrationOptions::default()
    };
    let register = |pin| {
        load(
            &agent_of("t_select", 1000),
            &RegistrationOptions {
                pin,
                ..options.clone()
            },
        )
    };
    let set = || {
        namespace
            .set_sysctl("net/ipv4/tcp_congestion_control", KERNEL_NAME)
            .expect("it is registered");
    };
    let default = || {
        let here = |default: &DefaultControl| default.namespace_description().contains(&name);
        default_control::defaults()
            .into_iter()
            .find(here)
            .expect("it has a name")
    };

    let kernel = register(true);
    let _detached = DetachOnDrop(KERNEL_NAME);
    set();
    assert_eq!(
        (default().control.as_str(), default().orphaned),
        (KERNEL_NAME, false)
    );
    drop(kernel);
    ccplane_linux::detach(Some(KERNEL_NAME)).expect("as root");
    assert_eq!(default().control, native_control());

    // A registration without pins ends with its process.
    let kernel = register(false);
    set();
    drop(kernel);
    eventually(
        Duration::from_secs(5),
        "the registration is removed",
        || default().orphaned,
    );
    let _kernel = register(true);
    default_control::rebind(KERNEL_NAME).expect("as root");
    let connection = || {
        let listener = listen("127.0.0.1");
        let connected = connect_to(&listener);
        (listener, connected)
    };
    let _sockets = namespace.run(connection).expect("a namespace");
    let steered = PinnedView::open(KERNEL_NAME)
        .expect("it is pinned")
        .flows()
        .count();
    assert!(steered > 0, "new sockets run the new registration");
    assert!(!default().orphaned);
    let restored = default_control::restore(Some(KERNEL_NAME), Some("reno")).expect("as root");
    assert_eq!(restored.len(), 1, "{restored:?}");
    assert_eq!(default().control, "reno");
}
