//! `ccplane measure`, and `ccplane send` with stamps, over loopback and between namespaces with a token bucket between them.
#![expect(clippy::disallowed_methods, reason = "tests in real time")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use std::{fs, thread};

use serde_json::Value;

fn ccplane(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccplane"));
    command.args(arguments).env_remove("CCPLANE_LOG");
    command
}

fn run(command: &mut Command) -> Output {
    command.output().expect("the program starts")
}

fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).replace(['│', '\n'], " ");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", said(output));
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stdout)))
}

/// A process that listens, and ends with the test.
struct Listening {
    child: Child,
    address: String,
}

impl Listening {
    fn start(command: &mut Command) -> Listening {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = loop {
            let line = lines.next().expect("it says where it listens").unwrap();
            if let Some(address) = line.strip_prefix("listening on ") {
                let (address, _) = address.split_once(';').unwrap_or((address, ""));
                break address.to_owned();
            }
        };
        // What it says later goes nowhere, and must not block it.
        thread::spawn(move || lines.for_each(drop));
        Listening { child, address }
    }

    /// Ends it as Ctrl-C does; what it printed.
    fn end(mut self) -> String {
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(self.child.id() as i32),
            nix::sys::signal::SIGINT,
        )
        .unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut self.child.stdout.take().unwrap(), &mut text).unwrap();
        assert!(self.child.wait().unwrap().success());
        text
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn responder(more: &[&str]) -> Listening {
    Listening::start(&mut ccplane(&[&["measure", "--serve", "127.0.0.1:0"], more].concat()))
}

#[test]
fn loopback_has_no_queue_and_the_kernel_sees_less_noise_than_user_space() {
    let responder = responder(&[]);
    let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("measure-{}.html", std::process::id()));
    let html = page.display().to_string();
    let arguments = ["-j", "measure", &responder.address, "--duration", "1s", "--html", &html];
    let found = json(&run(&mut ccplane(&arguments)));
    assert_eq!(
        (&found["sent"], &found["answered"]),
        (&1000.into(), &1000.into()),
        "{found}"
    );
    assert_eq!(
        (&found["stamps"]["here"], &found["stamps"]["there"]),
        (&"kernel".into(), &"kernel".into())
    );
    assert_eq!(found["interface"], "lo has no stamps of its own");
    for way in ["there", "back"] {
        let of = |from: &Value, key: &str| from[key].as_f64().unwrap();
        let (kernel, user) = (of(&found[way], "p50_us"), of(&found[way]["user"], "p50_us"));
        assert!(
            kernel < 50.0 && kernel <= user,
            "{way}: {kernel} by the kernel, {user} by user space"
        );
        assert_eq!(found[way]["lost"], 0);
        assert!(of(&found[way], "samples") > 990.0);
    }
    assert!(found["headroom_us"].as_f64().unwrap() >= 1.0);
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains("<svg") && text.contains("lo has no stamps of its own"));
    // It is not written over without being asked to.
    let again = run(&mut ccplane(&arguments));
    assert_eq!(again.status.code(), Some(2));
    assert!(said(&again).contains("is there already"), "{}", said(&again));
    fs::remove_file(&page).unwrap();
    assert!(responder.end().starts_with("1000 probes answered"), "what it did");
}

#[test]
fn an_interrupt_prints_what_was_measured() {
    let responder = responder(&[]);
    let mut child = ccplane(&["-j", "measure", &responder.address, "--duration", "60s"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_secs(1));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), nix::sys::signal::SIGINT).unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut text).unwrap();
    assert!(child.wait().unwrap().success());
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["interrupted"], true);
    assert!(found["answered"].as_u64().unwrap() > 100, "{found}");
}

#[test]
fn mistakes_are_said_and_have_their_exit_codes() {
    let cases: [(&[&str], i32, &str); 7] = [
        (&["measure"], 2, "required"),
        (&["measure", "192.0.2.1", "--size", "20"], 2, "96 to 9000"),
        (&["measure", "192.0.2.1", "--duration", "1ms"], 2, "out of range"),
        (&["measure", "no such name"], 2, "is no address"),
        (
            &["measure", "--between", "ccplane-none-a", "../b"],
            2,
            "is no name for a network namespace",
        ),
        (
            &["measure", "--between", "a", "ccplane-none-b"],
            1,
            "enter the network namespace",
        ),
        (&["measure", "127.0.0.1:9"], 1, "no answer from 127.0.0.1:9"),
    ];
    for (arguments, code, text) in cases {
        let output = run(&mut ccplane(arguments));
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(text), "{arguments:?}: {}", said(&output));
    }
}

#[test]
fn a_key_keeps_others_out() {
    let key = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("measure-{}.key", std::process::id()));
    let path = key.display().to_string();
    assert!(run(&mut ccplane(&["measure", "--make-key", &path])).status.success());
    let responder = responder(&["--key", &path]);
    let without = run(&mut ccplane(&["measure", &responder.address, "--duration", "200ms"]));
    assert_eq!(without.status.code(), Some(1));
    assert!(said(&without).contains("without a --key"), "{}", said(&without));
    let found = json(&run(&mut ccplane(&[
        "-j",
        "measure",
        &responder.address,
        "--duration",
        "200ms",
        "--key",
        &path,
    ])));
    assert_eq!(found["answered"], 200);
    fs::remove_file(&key).unwrap();
    let told = responder.end();
    assert!(told.contains("dropped: 4 that were not the meter's"), "{told}");
}

/// Two namespaces, and between them a third with a token bucket towards the second; removed on every way out. The bucket is not the sender's own:
/// the kernel stamps what leaves behind the sender's queue.
struct Namespaces {
    a: String,
    router: String,
    b: String,
}

/// Of the bottleneck, and its buffer.
const RATE_MBIT: u64 = 50;
const BUFFER: u64 = 200_000;

impl Namespaces {
    /// `None` where this process may not make them.
    fn make(test: &str) -> Option<Namespaces> {
        let id = std::process::id();
        let name = |end: &str| format!("ccplane-m{end}-{test}-{id}");
        let names = Namespaces {
            a: name("a"),
            router: name("r"),
            b: name("b"),
        };
        let all = [names.a.as_str(), names.router.as_str(), names.b.as_str()];
        let root = nix::unistd::geteuid().is_root();
        if !root || !all.iter().all(|name| ip(&["netns", "add", name])) {
            assert!(
                std::env::var_os("CCPLANE_NO_SKIP").is_none(),
                "no namespaces: run as root, with iproute2"
            );
            eprintln!("SKIPPED: {test}: namespaces take root and iproute2");
            return None;
        }
        let [a, router, b] = all;
        for (end, device, net) in [(a, "to-a", "10.99.1"), (b, "to-b", "10.99.2")] {
            assert!(ip(&[
                "-n", router, "link", "add", device, "type", "veth", "peer", "name", "link0", "netns", end
            ]));
            for (name, device, host) in [(router, device, 1), (end, "link0", 2)] {
                assert!(ip(&[
                    "-n",
                    name,
                    "addr",
                    "add",
                    &format!("{net}.{host}/24"),
                    "dev",
                    device
                ]));
                assert!(ip(&["-n", name, "link", "set", device, "up"]));
            }
            assert!(ip(&["-n", end, "link", "set", "lo", "up"]));
            assert!(ip(&["-n", end, "route", "add", "default", "via", &format!("{net}.1")]));
        }
        assert!(ip(&["netns", "exec", router, "sysctl", "-qw", "net.ipv4.ip_forward=1"]));
        // One packet of a burst, so that what waits waits in the queue.
        let shaped = format!(
            "netns exec {router} tc qdisc add dev to-b root tbf rate {RATE_MBIT}mbit burst 1600 limit {BUFFER}"
        );
        assert!(ip(&shaped.split(' ').collect::<Vec<_>>()));
        Some(names)
    }

    fn inside(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", name, env!("CARGO_BIN_EXE_ccplane")])
            .args(arguments)
            .env("XDG_CONFIG_HOME", env!("CARGO_TARGET_TMPDIR"));
        command
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in [&self.a, &self.router, &self.b] {
            ip(&["netns", "delete", name]);
        }
    }
}

fn ip(arguments: &[&str]) -> bool {
    Command::new("ip")
        .args(arguments)
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Somebody fills the bucket's queue, as it is full whatever is taken from it: then each probe that is not dropped waits for all of it.
#[test]
fn a_standing_queue_is_measured_and_only_in_its_direction() {
    let Some(names) = Namespaces::make("queue") else { return };
    let (a, b) = (names.a.clone(), names.b.clone());
    let measured = |duration: &str| {
        json(&run(&mut ccplane(&[
            "-j",
            "measure",
            "--between",
            &a,
            &b,
            "--duration",
            duration,
            "--rate",
            "500",
        ])))
    };
    let idle = measured("2s");
    let of = |found: &Value, way: &str, key: &str| found[way][key].as_f64().unwrap();
    assert_eq!(
        (idle["one_clock"].as_bool(), idle["answered"].as_u64()),
        (Some(true), Some(1000)),
        "{idle}"
    );
    assert!(of(&idle, "there", "p50_us") < 100.0, "{idle}");

    // A stream of 1,000-byte datagrams at twice the rate, for the second half of a measurement, so that the empty path is seen first.
    let from = names.a.clone();
    let flood = thread::spawn(move || {
        ccplane_host::inside(&from, || {
            thread::sleep(Duration::from_millis(1_500));
            let socket = std::net::UdpSocket::bind("10.99.1.2:0").unwrap();
            let gap = Duration::from_nanos(1_042 * 8 * 1_000 / (2 * RATE_MBIT));
            let begun = std::time::Instant::now();
            let mut sent = 0u32;
            while begun.elapsed() < Duration::from_secs(4) {
                let _ = socket.send_to(&[0; 1_000], "10.99.2.2:9");
                sent += 1;
                while begun.elapsed() < gap * sent {
                    thread::sleep(Duration::from_micros(100));
                }
            }
        })
        .unwrap();
    });
    let busy = measured("5s");
    flood.join().unwrap();
    // A frame of 1,056 bytes (Ethernet 14, IP 20, UDP 8), so many in the buffer; the probes' own are small.
    let full_us = BUFFER as f64 * 8.0 / RATE_MBIT as f64;
    let p90 = of(&busy, "there", "p90_us");
    assert!((p90 / full_us - 1.0).abs() < 0.1, "{p90} µs of {full_us} µs: {busy}");
    assert!(
        of(&busy, "back", "p90_us") < 500.0,
        "nothing waits on the way back: {busy}"
    );
    assert_eq!(busy["back"]["lost"], 0);
    eprintln!("idle {} µs, full {p90} µs of {full_us}", of(&idle, "there", "p50_us"));
}

/// Real packets, a real queue: what Cubic fills DX leaves empty, and the receiver was told nothing.
#[test]
fn dx_on_the_transport_keeps_the_queue_short_where_cubic_fills_it() {
    let Some(names) = Namespaces::make("dx") else { return };
    let sink = PathBuf::from("/dev/null").display().to_string();
    let receiver = Listening::start(&mut names.inside(&names.b, &["recv", "--listen", "10.99.2.2:0", "--out", &sink]));
    let send = |alg: &str, stamps: &str| {
        let arguments = [
            "-j",
            "send",
            &receiver.address,
            "--bytes",
            "12MB",
            "--alg",
            alg,
            "--stamps",
            stamps,
            "--insecure",
        ];
        json(&run(&mut names.inside(&names.a, &arguments)))
    };
    let of = |done: &Value, key: &str| done[key].as_f64().unwrap_or_else(|| panic!("{key}: {done}"));
    // A pause of the machine only adds, and is not in all of them: the least of three tells what is wrong in each, too high or too low.
    let mut sends = [(); 3].map(|()| send("native:cubic", "software"));
    sends.sort_by(|a, b| of(a, "queue_delay_p99_us").total_cmp(&of(b, "queue_delay_p99_us")));
    let [cubic, ..] = sends;
    let full_us = BUFFER as f64 * 8.0 / RATE_MBIT as f64;
    let p99 = of(&cubic, "queue_delay_p99_us");
    assert!(
        (0.9..1.1).contains(&(p99 / full_us)),
        "Cubic fills the buffer: {p99} µs of {full_us}"
    );
    assert!(of(&cubic, "queue_delay_samples") > 8_000.0);
    if !String::from_utf8_lossy(&run(&mut ccplane(&["algorithms"])).stdout).contains("dx") {
        return eprintln!("SKIPPED: dx_on_the_transport: no algorithm of that name");
    }
    let dx = send("dx", "auto");
    let (ours, theirs) = (of(&dx, "queue_delay_p50_us"), of(&cubic, "queue_delay_p50_us"));
    eprintln!(
        "queue: DX {ours} µs (p99 {}), Cubic {theirs} µs (p99 {p99}); goodput {} and {} Mbit/s",
        of(&dx, "queue_delay_p99_us"),
        of(&dx, "goodput_mbit"),
        of(&cubic, "goodput_mbit")
    );
    assert!(ours * 5.0 < theirs, "DX {ours} µs, Cubic {theirs} µs");
    // A window of one or two packets waits for both processes to be scheduled: on a busy machine that, and not the link, is what
    // limits it.
    assert!(of(&dx, "goodput_mbit") > 0.15 * of(&cubic, "goodput_mbit"));
}
