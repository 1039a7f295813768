//! `ccplane measure`: one-way queueing delay to another host, or between two namespaces of this one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::{fs, io, thread};

use ccplane_lab::measure::{self as lab, Findings, Setup};
use ccplane_meter::packet::{HEADER, LONGEST};
use ccplane_meter::{Counters, Key, MeasureError, Measured, Plan, Service, measure, serve};
use ccplane_report::Provenance;
use ccplane_udp::{Stamping, UdpError};
use ccplane_units::{Duration, Rate};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::exit::{Failure, Kind};
use crate::interrupt;
use crate::run::command_line;

/// Where responders listen.
const PORT: u16 = 4791;
/// Most probes of one measurement, 64 bytes of memory each.
const MOST: u64 = 10_000_000;

/// Whom to measure to, and how.
#[derive(Args)]
#[command(group(clap::ArgGroup::new("whom").required(true).multiple(true).args(["host", "serve", "between", "make_key"])))]
pub struct MeasureArgs {
    /// The host where `ccplane measure --serve` runs, HOST or HOST:PORT. With --between the address to use there.
    #[arg(value_name = "HOST", conflicts_with = "serve")]
    host: Option<String>,
    /// Answer others' probes, until Ctrl-C.
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "0.0.0.0:4791")]
    serve: Option<SocketAddr>,
    /// Measure from the network namespace A of this host to its namespace B; both ends run here.
    #[arg(long, value_names = ["A", "B"], num_args = 2, conflicts_with = "serve")]
    between: Option<Vec<String>>,
    /// Probes a second, on average: gaps are drawn, so that nothing periodic is met always in the same phase.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Bytes of a probe and of its reply, without IP and UDP headers.
    #[arg(long, value_name = "BYTES", default_value_t = 128)]
    size: usize,
    /// For how long.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    duration: Duration,
    /// Whose time stamps: of the kernel's driver, or of the network interface where it gives them. This process's own are shown beside.
    #[arg(long, value_name = "WHOSE", default_value = "software")]
    stamps: Whose,
    /// The key that both ends share: a responder with one answers nobody else. --make-key makes one.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Make a file with a new key for --key of both ends, and do nothing else.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["host", "serve", "between", "key"])]
    make_key: Option<PathBuf>,
    /// With --serve: all replies together stay below this.
    #[arg(long, value_name = "RATE", default_value = "50mbit")]
    limit: Rate,
    /// Write a page with figures and pictures here.
    #[arg(long, value_name = "FILE", conflicts_with = "serve")]
    html: Option<PathBuf>,
    /// Write over a page that is there.
    #[arg(long, requires = "html")]
    force: bool,
}

/// Whose stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Whose {
    Software,
    Hardware,
}

/// Runs the command.
pub fn run(args: &MeasureArgs, json: bool) -> Result<(), Failure> {
    if let Some(path) = &args.make_key {
        Key::make(path).map_err(|e| Failure::new(Kind::Failed, e))?;
        if json {
            println!("{}", json!({ "key": path }));
        } else {
            println!("{}: a new key; copy it to the other side by a safe way", path.display());
        }
        return Ok(());
    }
    let key = args.key.as_deref().map(Key::read).transpose();
    let key = key.map_err(|e| Failure::new(Kind::Usage, e))?;
    check(args)?;
    let stop = interrupt::flag()?;
    if let Some(listen) = args.serve {
        return respond(args, listen, key, &stop, json);
    }
    if let Some(path) = args.html.as_deref().filter(|path| path.exists() && !args.force) {
        return Err(
            Failure::text(Kind::Usage, format!("{} is there already", path.display())).hint("--force writes over it"),
        );
    }
    // Before the load is our own.
    let provenance = Provenance::now(crate::build(), command_line(), false);
    let findings = match args.between.as_deref() {
        Some([from, to]) => between(args, (from, to), key, &stop)?,
        _ => {
            let to = resolve(args.host.as_deref().unwrap_or_default())?;
            let plan = plan(args, to, key);
            let measured = probe(&plan, &stop)?;
            let one_clock = local_address(to).is_some_and(|local| local.ip() == to.ip());
            let setup = setup(args, to, one_clock, interface_words(to));
            lab::evaluate(&measured, setup, interrupt::raised(&stop))
        }
    };
    if findings.tally.answered == 0 {
        let sent = findings.tally.sent;
        return Err(Failure::text(
            Kind::Failed,
            format!("none of {sent} probes to {} was answered", findings.setup.to),
        )
        .hint("the responder knows us, so its replies do not come through: is --size more than the path carries?"));
    }
    if let Some(path) = &args.html {
        write(path, &findings, &provenance)?;
    }
    if json {
        println!("{}", findings.json());
    } else {
        print!("{}", findings.text());
        if let Some(path) = &args.html {
            println!("{}", path.display());
        }
    }
    Ok(())
}

fn check(args: &MeasureArgs) -> Result<(), Failure> {
    let usage = |text: String, hint: String| Err(Failure::text(Kind::Usage, text).hint(hint));
    if !(HEADER..=LONGEST).contains(&args.size) {
        return usage(
            format!("--size {} is out of range", args.size),
            format!("{HEADER} to {LONGEST} bytes"),
        );
    }
    if args.duration < Duration::from_millis(100) || count(args) > MOST || args.duration > Duration::from_secs(86_400) {
        return usage(
            format!("--duration {} at --rate {} is out of range", args.duration, args.rate),
            format!("100ms to a day, and at most {MOST} probes"),
        );
    }
    if args.limit.bytes_per_sec() < 1000 {
        return usage("--limit is too low".to_owned(), "8kbit at least".to_owned());
    }
    Ok(())
}

fn count(args: &MeasureArgs) -> u64 {
    (args.duration.as_nanos() / 1_000_000).saturating_mul(u64::from(args.rate)) / 1000
}

fn stamping(args: &MeasureArgs) -> Stamping {
    match args.stamps {
        Whose::Software => Stamping::Software,
        Whose::Hardware => Stamping::Hardware,
    }
}

fn plan(args: &MeasureArgs, to: SocketAddr, key: Option<Key>) -> Plan {
    Plan {
        to,
        size: args.size,
        interval: Duration::from_nanos(1_000_000_000 / u64::from(args.rate)),
        count: count(args).max(1) as u32,
        key,
        stamping: stamping(args),
    }
}

fn setup(args: &MeasureArgs, to: SocketAddr, one_clock: bool, interface: String) -> Setup {
    Setup {
        to: to.to_string(),
        size: args.size,
        rate: f64::from(args.rate),
        one_clock,
        interface,
        command: command_line(),
    }
}

/// Measures with a bar on a terminal.
fn probe(plan: &Plan, stop: &AtomicBool) -> Result<Measured, Failure> {
    let style = ProgressStyle::with_template("{msg} [{bar:30}] {percent:>3}%  {eta} left");
    let bar = ProgressBar::new(u64::from(plan.count))
        .with_style(style.expect("a constant template is valid").progress_chars("=> "))
        .with_message(format!("probing {}", plan.to));
    let step = plan.count.div_ceil(200).max(1);
    let measured = measure(plan, stop, |sent| {
        // Drawing takes longer than a probe may be late.
        if sent.is_multiple_of(step) {
            bar.set_position(u64::from(sent));
        }
    });
    bar.finish_and_clear();
    measured.map_err(|why| failure(why, plan.key.is_some()))
}

/// Both ends in this process, each in its namespace.
fn between(
    args: &MeasureArgs,
    (from, to): (&str, &str),
    key: Option<Key>,
    stop: &AtomicBool,
) -> Result<Findings, Failure> {
    let host = |e: ccplane_host::Error| {
        let kind = match e {
            ccplane_host::Error::Permission { .. } => Kind::Unsupported,
            ccplane_host::Error::BadName { .. } => Kind::Usage,
            _ => Kind::Failed,
        };
        Failure::new(kind, e).hint("`ip netns list` names the namespaces of this host")
    };
    let theirs = match &args.host {
        Some(host) => vec![resolve(host)?.ip()],
        None => ccplane_host::inside(to, ccplane_host::addresses).map_err(host)?,
    };
    let reachable = ccplane_host::inside(from, || {
        let here = ccplane_host::addresses();
        let mut found = theirs.iter().filter(|ip| !here.contains(ip));
        found
            .find(|ip| local_address(SocketAddr::new(**ip, PORT)).is_some())
            .copied()
    });
    let address = reachable.map_err(host)?.ok_or_else(|| {
        Failure::text(Kind::Failed, format!("{from} has no route to {to}")).hint(format!(
            "addresses in {to}: {}; name one behind --between A B",
            words(&theirs)
        ))
    })?;
    let service = Service {
        listen: SocketAddr::new(address, 0),
        key: key.clone(),
        // Nobody else is meant to ask, and the plan is ours.
        limit: Rate::from_bits_per_sec(1_000_000_000_000),
        stamping: stamping(args),
    };
    let served = AtomicBool::new(false);
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let (service, done) = (&service, &served);
        let responder = scope.spawn(move || {
            ccplane_host::inside(to, move || {
                serve(service, done, |address| {
                    // The other end of the channel waits for nothing else.
                    let _ = tell.send(address);
                })
            })
        });
        let measured = match told.recv() {
            Ok(address) => {
                let plan = plan(args, address, key);
                ccplane_host::inside(from, || {
                    let measured = probe(&plan, stop)?;
                    let setup = setup(args, address, true, interface_words(address));
                    Ok(lab::evaluate(&measured, setup, interrupt::raised(stop)))
                })
                .map_err(host)
                .flatten()
            }
            // It failed, and says why below.
            Err(_) => Err(Failure::text(Kind::Failed, format!("nothing listens in {to}"))),
        };
        served.store(true, Ordering::Relaxed);
        let outcome = responder
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        outcome.map_err(host)?.map_err(|why| failure(why, false))?;
        measured
    })
}

fn words(addresses: &[IpAddr]) -> String {
    match addresses {
        [] => "none".to_owned(),
        some => some.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

fn respond(
    args: &MeasureArgs,
    listen: SocketAddr,
    key: Option<Key>,
    stop: &AtomicBool,
    json: bool,
) -> Result<(), Failure> {
    let service = Service {
        listen,
        key,
        limit: args.limit,
        stamping: stamping(args),
    };
    let keyed = service.key.is_some();
    let counters = serve(&service, stop, |address| {
        if json {
            eprintln!("{}", json!({ "listening": address.to_string() }));
        } else {
            eprintln!("listening on {address}");
        }
    })
    .map_err(|why| failure(why, keyed))?;
    let Counters {
        answered,
        hellos,
        garbage,
        unknown,
        limited,
        full,
        unsent,
    } = counters;
    if json {
        println!(
            "{}",
            json!({
                "answered": answered, "hellos": hellos, "garbage": garbage, "unknown": unknown, "limited": limited, "full": full, "unsent": unsent,
            })
        );
    } else {
        println!(
            "{answered} probes answered, {hellos} hellos; dropped: {garbage} that were not the meter's or of another key, {unknown} of \
             unknown clients, {limited} beyond --limit, {full} of one client too many; {unsent} answers that could not be sent"
        );
    }
    Ok(())
}

fn failure(why: MeasureError, keyed: bool) -> Failure {
    let stamps = matches!(&why, MeasureError::Socket(UdpError::Stamps(_)));
    let silent = matches!(&why, MeasureError::NoAnswer { .. });
    let failure = Failure::new(if stamps { Kind::Unsupported } else { Kind::Failed }, why);
    if silent {
        let key = if keyed {
            "with the same --key"
        } else {
            "without a --key, as you gave none"
        };
        failure.hint(format!(
            "is `ccplane measure --serve` running there, {key}? does the path carry UDP?"
        ))
    } else {
        failure
    }
}

fn resolve(host: &str) -> Result<SocketAddr, Failure> {
    let bad = |why: &dyn std::fmt::Display| {
        Failure::text(Kind::Usage, format!("`{host}` is no address: {why}"))
            .hint("HOST or HOST:PORT, such as 192.0.2.1")
    };
    if let Ok(ip) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, PORT));
    }
    let with_port: Result<Vec<SocketAddr>, io::Error> = if host.contains(':') {
        host.to_socket_addrs().map(Iterator::collect)
    } else {
        (host, PORT).to_socket_addrs().map(Iterator::collect)
    };
    let found = with_port.map_err(|e| bad(&e))?;
    found.first().copied().ok_or_else(|| bad(&"the name has no address"))
}

/// The address from which packets to `to` leave; `None` without a route.
fn local_address(to: SocketAddr) -> Option<SocketAddr> {
    let any: IpAddr = if to.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    // Sends nothing: it only asks for the route.
    socket.connect(to).ok()?;
    socket.local_addr().ok()
}

/// What the interface towards `to` can stamp.
fn interface_words(to: SocketAddr) -> String {
    let found = local_address(to).and_then(|local| ccplane_host::interface_of(local.ip()));
    let Some((name, can)) = found.and_then(|name| {
        let can = ccplane_host::timestamping(&name).ok()?;
        Some((name, can))
    }) else {
        return "what the network interface can stamp is not known".to_owned();
    };
    let hardware = can.sends_hardware && can.receives_hardware;
    let mut text = match (hardware, can.hardware_on) {
        (false, _) => format!("{name} has no stamps of its own"),
        (true, false) => {
            format!(
                "{name} could stamp by itself, and is not set to (`hwstamp_ctl -i {name} -t 1 -r 1`, then --stamps hardware)"
            )
        }
        (true, true) => format!("{name} stamps by itself (--stamps hardware)"),
    };
    if !can.sends_software {
        text += ", and its driver does not stamp what leaves";
    }
    text
}

fn write(path: &Path, findings: &Findings, provenance: &Provenance) -> Result<(), Failure> {
    fs::write(path, lab::page(findings, provenance))
        .map_err(|why| Failure::text(Kind::Failed, format!("{} cannot be written: {why}", path.display())))
}
