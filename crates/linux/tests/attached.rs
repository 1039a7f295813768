//! Attachments of timestamps, and their clean-up: when devices vanish, when the attaching process
//! ends or is killed, and wherever `detach` is called.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::direct::{program, spec};
use crate::common::stamped::*;
use crate::common::*;
use ccplane_host::{FRAME_BYTES_MAX, Namespace, Offload, Tun};
use ccplane_linux::stamp::{self, StampCounters, StampPrograms};
use ccplane_linux::{Kernel, LoadError};

/// Returns the number of loaded programs of stamp.bpf.c.
fn ours_loaded() -> usize {
    let names = ["depart_ether", "arrive_ether", "depart_ip", "arrive_ip"];
    libbpf_rs::query::ProgInfoIter::default()
        .filter(|info| {
            names
                .iter()
                .any(|name| info.name.to_string_lossy() == *name)
        })
        .count()
}

#[test]
fn flows_continue_without_stamps() {
    const TEST: &str = "flows_continue_without_stamps";
    if !can_run(TEST) {
        return;
    }
    let _host = lock_host();
    let mut bed = Bed::new("t_gone", [true, true]);
    let flow = bed.send();
    bed.direct
        .turn_until("it runs", |direct| direct.reports.len() > 200);
    assert!(bed.valid(0) > 100);
    // Simulates the kill of the attaching process.
    let emulator = bed.emulator;
    drop(bed.stamps);
    bed.direct.turn_for(200);
    let from = bed.direct.reports.len();
    bed.direct.turn_until("the flow continues", |direct| {
        direct.reports.len() > from + 200
    });
    let late = &bed.direct.reports[from..];
    assert!(
        late.iter()
            .all(|(.., fields)| fields[VALID_FIELD] == 0 && fields[QUEUE_DELAY_FIELD] == UNKNOWN_NS)
    );
    flow.stop.store(true, Ordering::Relaxed);
    bed.direct
        .turn_until("the transfer ends", |_| flow.thread.is_finished());
    flow.thread.join().expect("the flow ended without an error");
    emulator.finish().expect("it ends");
}

/// A second, preferred path between the two ends of a bed. Dropping it removes the path and its
/// devices.
struct Detour {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Detour {
    const DETOUR_DEVICE: &str = "detour0";

    fn start(bed: &Bed) -> Detour {
        let create = |namespace: &Namespace, other_end: IpAddr| {
            let made =
                namespace.run(|| Tun::create(Detour::DETOUR_DEVICE, 1500, &[], Offload::None));
            let route = [
                "route",
                "add",
                &other_end.to_string(),
                "dev",
                Detour::DETOUR_DEVICE,
            ];
            let mut command = Command::new("ip");
            command.args(route);
            let ended = namespace
                .enter_on_spawn(&mut command)
                .expect("a namespace")
                .status();
            assert!(
                ended.expect("iproute2 or busybox is installed").success(),
                "{route:?}"
            );
            made.expect("inside").expect("as root")
        };
        let near = create(bed.emulator.sender_ns(), bed.emulator.receiver_addr());
        let far = create(bed.emulator.receiver_ns(), bed.emulator.sender_addr());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let body = move || {
            let mut frame = vec![0; FRAME_BYTES_MAX];
            while !stopped.load(Ordering::Relaxed) {
                for (from, to) in [(&near, &far), (&far, &near)] {
                    while let Some(length) = from.read(&mut frame).expect("our device") {
                        to.write([&frame[..length], &[]]).expect("our device");
                    }
                }
                pause(5);
            }
        };
        Detour {
            stop,
            thread: Some(std::thread::spawn(body)),
        }
    }
}

impl Drop for Detour {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn a_flow_outlives_the_devices_that_stamp() {
    const TEST: &str = "a_flow_outlives_the_devices_that_stamp";
    if !can_run(TEST) {
        return;
    }
    let _host = lock_host();
    let mut bed = Bed::without("t_vanish");
    let detour = Detour::start(&bed);
    let namespaces = [bed.emulator.sender_ns(), bed.emulator.receiver_ns()].map(Namespace::clone);
    for namespace in &namespaces {
        bed.stamp(namespace, Detour::DETOUR_DEVICE);
    }
    bed.stamp_sockets();
    let flow = bed.send();
    bed.direct
        .turn_until("it runs", |direct| direct.reports.len() > 200);
    assert!(bed.valid(0) > 100, "{:?}", bed.stamps.counters());
    assert_eq!(bed.stamps.counters().unstamped, 0);

    drop(detour);
    // The data is retransmitted over the remaining link, whose devices do not stamp.
    let from = bed.direct.reports.len();
    bed.direct.turn_until("the flow continues", |direct| {
        direct.reports.len() > from + 100
    });
    let from = bed.direct.reports.len();
    let between = bed.stamps.counters();
    bed.direct.turn_until("the flow continues", |direct| {
        direct.reports.len() > from + 100
    });
    let late = &bed.direct.reports[from..];
    assert!(
        late.iter()
            .all(|(.., fields)| fields[VALID_FIELD] == 0 && fields[QUEUE_DELAY_FIELD] == UNKNOWN_NS)
    );
    let after = bed.stamps.counters();
    assert_eq!(
        (after.departed, after.samples),
        (between.departed, between.samples)
    );
    assert!(after.unstamped > between.unstamped + 50, "{after:?}");
    bed.end(flow);
    // There is nothing to restore, which must do no harm.
    drop(bed.stamps);
    eventually(EVENT_TIMEOUT, "no ccplane program is left", || {
        ours_loaded() == 0
    });
}

/// Runs an ignored test of this binary in a process of its own, until it prints `word`.
fn spawn(test: &str, variable: (&str, &str), word: &str) -> Child {
    let mut child = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env(variable.0, variable.1)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut said = std::io::BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    while line.trim() != word {
        line.clear();
        let read = std::io::BufRead::read_line(&mut said, &mut line).expect("text");
        assert!(read > 0, "it ended");
    }
    child
}

/// Not a test: a process that stamps on an emulated link until it is killed.
#[test]
#[ignore = "child: the process that is killed"]
fn stamping_process() {
    if std::env::var_os("CCPLANE_TEST_STAMPS").is_none() {
        return;
    }
    let mut bed = Bed::new("t_kill", [true, true]);
    let _flow = bed.send();
    bed.direct
        .turn_until("it runs", |direct| direct.reports.len() > 200);
    println!("\nstamping");
    bed.direct.turn_for(60_000);
}

#[test]
fn a_killed_process_leaves_nothing() {
    const TEST: &str = "a_killed_process_leaves_nothing";
    if !can_run(TEST) {
        return;
    }
    let _host = lock_host();
    assert_eq!(ours_loaded(), 0);
    let mut child = spawn(
        "attached::stamping_process",
        ("CCPLANE_TEST_STAMPS", "1"),
        "stamping",
    );
    assert_eq!(ours_loaded(), 4);
    child.kill().expect("our child");
    child.wait().expect("our child");
    eventually(EVENT_TIMEOUT, "no ccplane program is left", || {
        ours_loaded() == 0
    });
    ccplane_host::remove_stale_names();
    drop(
        Kernel::load(
            &[spec("t_kill", vec![program(7, STAMP_PROGRAM)])],
            &patient(),
        )
        .expect("the name is free"),
    );
}

/// Congestion control of the pinned timestamps. No registration reads them; only their effects are
/// tested.
const PINNED_CONTROL: &str = "reno";

/// Attaches to the loopback device and the sockets of a namespace.
fn attach(name: &str, namespace: &Namespace) -> StampPrograms {
    let mut stamps = StampPrograms::load_pinned(name).unwrap_or_else(|error| panic!("{error}"));
    stamps
        .add_namespace(namespace)
        .unwrap_or_else(|error| panic!("{error}"));
    stamps
        .attach_sockets(None)
        .unwrap_or_else(|error| panic!("{error}"));
    let attached = namespace
        .run(|| stamps.attach_device("lo"))
        .expect("inside");
    attached.unwrap_or_else(|error| panic!("{error}"));
    stamps
}

/// A namespace whose loopback device stamps. Dropping it removes its pins.
struct Place(Namespace);

impl Place {
    fn create(what: &str) -> Place {
        Place(
            Namespace::create(&format!("ccplane-{what}-{}", std::process::id())).expect("as root"),
        )
    }

    /// Returns the segment limit of the loopback device.
    fn limit(&self) -> u32 {
        let ask = || {
            Command::new("ip")
                .args(["-d", "link", "show", "lo"])
                .output()
        };
        let shown = self.0.run(ask).expect("inside").expect("ip runs").stdout;
        let shown = String::from_utf8_lossy(&shown).into_owned();
        let mut words = shown.split_whitespace();
        let number = words
            .find(|word| *word == "gso_max_segs")
            .and_then(|_| words.next());
        let number = number.and_then(|number| number.parse().ok());
        number.unwrap_or_else(|| {
            panic!(
                "`ip` of iproute2 shows it, that of busybox does not: \
            {shown}"
            )
        })
    }

    fn attach(&self) -> StampPrograms {
        attach(PINNED_CONTROL, &self.0)
    }

    /// Sends a few packets through the device.
    fn exchange(&self) {
        let exchange = || {
            let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
            let mut stream = connect(listener.local_addr().expect("bound"), PINNED_CONTROL);
            let (mut accepted, _) = listener.accept().expect("the socket is connected");
            let mut back = [0; 1000];
            for _ in 0..20 {
                stream.write_all(&back).expect("connected");
                accepted.read_exact(&mut back).expect("connected");
            }
        };
        self.0.run(exchange).expect("inside");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.0.run(|| stamp::detach(Some(PINNED_CONTROL)));
    }
}

fn counters() -> StampCounters {
    let observed = stamp::observe().expect("bpffs");
    assert_eq!(
        observed.iter().map(|o| o.name()).collect::<Vec<_>>(),
        [PINNED_CONTROL]
    );
    observed[0].counters()
}

#[test]
fn pinned_stamps_outlive_their_process_until_they_are_detached() {
    const TEST: &str = "pinned_stamps_outlive_their_process_until_they_are_detached";
    if !can_run(TEST) {
        return;
    }
    let _host = lock_host();
    let place = Place::create("pin");
    let before = place.limit();
    // Not kept: removed with the value, and the device is restored.
    drop(place.attach());
    assert_eq!(place.limit(), before);
    assert!(stamp::attached().is_empty());

    place.attach().leave_attached();
    assert_eq!(place.limit(), 1);
    assert_eq!(counters(), StampCounters::default());
    place.exchange();
    let first = counters();
    assert!(first.agreed == 2 && first.departed > 20, "{first:?}");

    // Others do not take them over, and removing others leaves them in place.
    assert!(matches!(
        StampPrograms::load_pinned(PINNED_CONTROL),
        Err(LoadError::Attached { .. })
    ));
    let mut other =
        StampPrograms::load(&["ccp_other"], false).unwrap_or_else(|error| panic!("{error}"));
    match place.0.run(|| other.attach_device("lo")).expect("inside") {
        // Filters (before Linux 6.6): one set. Links coexist, and the first stamps.
        Ok(()) | Err(LoadError::Stamped(_)) => {}
        Err(error) => panic!("{error}"),
    }
    drop(other);
    place.exchange();
    let second = counters();
    assert!(
        second.agreed == 4 && second.departed > first.departed + 20,
        "{first:?}, {second:?}"
    );
    assert_eq!(place.limit(), 1);

    assert_eq!(
        stamp::detach(Some("ccp_other")).expect("there is none"),
        [""; 0]
    );
    let inside = place
        .0
        .run(|| stamp::detach(Some(PINNED_CONTROL)))
        .expect("inside");
    assert_eq!(inside.expect("it works"), [PINNED_CONTROL]);
    assert_eq!(place.limit(), before);
    eventually(EVENT_TIMEOUT, "no ccplane program is left", || {
        ours_loaded() == 0
    });
    assert!(stamp::observe().expect("bpffs").is_empty());
}

#[test]
fn stamps_are_detached_where_they_are() {
    const TEST: &str = "stamps_are_detached_where_they_are";
    if !can_run(TEST) {
        return;
    }
    let _host = lock_host();
    let place = Place::create("where");
    let before = place.limit();
    // From another namespace, where the index belongs to another device.
    place.attach().leave_attached();
    assert_eq!(stamp::detach(None).expect("it is found"), [PINNED_CONTROL]);
    assert_eq!(place.limit(), before);

    // If the namespace cannot be found, neither it nor the note of its device is given up.
    place.attach().leave_attached();
    std::fs::remove_file(format!("/run/netns/{}", place.0.name())).expect("its name");
    assert!(matches!(
        stamp::detach(None),
        Err(LoadError::Elsewhere { .. })
    ));
    assert_eq!(place.limit(), 1);
    place.exchange();
    assert!(counters().departed > 20, "{:?}", counters());
    let inside = place.0.run(|| stamp::detach(None)).expect("inside");
    assert_eq!(inside.expect("it works"), [PINNED_CONTROL]);
    assert_eq!(place.limit(), before);

    // A namespace that no longer exists took its device with it, within a moment.
    let gone = Namespace::create(&format!("ccplane-gone-{}", std::process::id())).expect("as root");
    attach(PINNED_CONTROL, &gone).leave_attached();
    drop(gone);
    eventually(
        EVENT_TIMEOUT,
        "the rest is removed",
        || match stamp::detach(None) {
            Ok(names) => names == [PINNED_CONTROL],
            // Before Linux 6.6 nothing shows that the device is gone, and the error states what to
            // do.
            Err(LoadError::Elsewhere { path, .. }) => {
                !path.join("depart-0").exists() && std::fs::remove_dir_all(path).is_ok()
            }
            Err(error) => panic!("{error}"),
        },
    );
    assert!(stamp::attached().is_empty());
}

#[test]
fn an_unreachable_device_does_not_prevent_restoring_others() {
    const TEST: &str = "an_unreachable_device_does_not_prevent_restoring_others";
    if !can_run(TEST) {
        return;
    }
    let _host = lock_host();
    let [first, lost, last] = ["first", "lost", "last"].map(Place::create);
    let before = [&first, &last].map(Place::limit);
    // In the middle, by name and by time, so that one of the others is processed after it in either
    // order.
    attach("a_first", &first.0).leave_attached();
    lost.attach().leave_attached();
    attach("z_last", &last.0).leave_attached();
    std::fs::remove_file(format!("/run/netns/{}", lost.0.name())).expect("its name");
    let refused = stamp::detach(None);
    assert!(
        matches!(&refused, Err(LoadError::Elsewhere { name, .. }) if name == PINNED_CONTROL),
        "{refused:?}"
    );
    assert_eq!([&first, &last].map(Place::limit), before);
    assert_eq!(stamp::attached(), [PINNED_CONTROL]);
    assert_eq!(lost.limit(), 1);
    // Nothing of the others is left to be refused.
    assert_eq!(
        stamp::detach(Some("a_first")).expect("there is none"),
        [""; 0]
    );
    let inside = lost.0.run(|| stamp::detach(None)).expect("inside");
    assert_eq!(inside.expect("it is found"), [PINNED_CONTROL]);
    eventually(EVENT_TIMEOUT, "no ccplane program is left", || {
        ours_loaded() == 0
    });
}

#[test]
fn records_of_another_version_are_ignored() {
    const TEST: &str = "records_of_another_version_are_ignored";
    if !can_run(TEST) {
        return;
    }
    let _host = lock_host();
    let pins = std::path::Path::new("/sys/fs/bpf/ccplane/stamps");
    // The first versions had no layouts in the path.
    for (what, layout) in [("other", "0"), ("first", "")] {
        let place = Place::create(what);
        place.attach().leave_attached();
        let ours = std::fs::read_dir(pins).expect("bpffs").flatten().next();
        let ours = ours.expect("a pin of this layout").path();
        if layout.is_empty() {
            std::fs::rename(ours.join(PINNED_CONTROL), pins.join(PINNED_CONTROL)).expect("as root");
        } else {
            std::fs::rename(ours, pins.join(layout)).expect("as root");
        }
        assert_eq!(stamp::attached(), [PINNED_CONTROL]);
        assert!(stamp::observe().expect("bpffs").is_empty());
        let limit = place.limit();
        // The links are removed; the unknown notes are left.
        assert_eq!(
            stamp::detach(Some(PINNED_CONTROL)).expect("as root"),
            [PINNED_CONTROL]
        );
        assert_eq!(place.limit(), limit);
        assert!(stamp::attached().is_empty() && !pins.exists());
        // Before Linux 6.6 there are filters, which stay as long as the device.
        drop(place);
        eventually(EVENT_TIMEOUT, "no ccplane program is left", || {
            ours_loaded() == 0
        });
    }
}

/// Not a test: a process that is killed while it is attaching.
#[test]
#[ignore = "child: the process that is killed"]
fn attaching_process() {
    let Some(namespace) = std::env::var_os("CCPLANE_TEST_NAMESPACE") else {
        return;
    };
    let mut stamps =
        StampPrograms::load_pinned(PINNED_CONTROL).unwrap_or_else(|error| panic!("{error}"));
    let attach = || stamps.attach_device("lo");
    let attached =
        ccplane_host::run_in_namespace(&namespace.to_string_lossy(), attach).expect("inside");
    attached.unwrap_or_else(|error| panic!("{error}"));
    println!("\nattached");
    pause(60_000);
}

#[test]
fn changes_of_a_killed_process_are_undone() {
    const TEST: &str = "changes_of_a_killed_process_are_undone";
    if !can_run(TEST) {
        return;
    }
    let _host = lock_host();
    let place = Place::create("half");
    let before = place.limit();
    let mut child = spawn(
        "attached::attaching_process",
        ("CCPLANE_TEST_NAMESPACE", place.0.name()),
        "attached",
    );
    child.kill().expect("our child");
    child.wait().expect("our child");
    assert_eq!(place.limit(), 1);
    assert!(matches!(
        StampPrograms::load_pinned(PINNED_CONTROL),
        Err(LoadError::Attached { .. })
    ));
    assert_eq!(stamp::detach(None).expect("it is found"), [PINNED_CONTROL]);
    assert_eq!(place.limit(), before);
    eventually(EVENT_TIMEOUT, "no ccplane program is left", || {
        ours_loaded() == 0
    });
}
