//! Pairs of virtual Ethernet devices between namespaces, in the kernel from end to end: what a
//! packet takes there is not the time of a thread that has to be woken, as the emulator's is.
//!
//! Made with `ip` and `tc` (iproute2): the devices go with their namespaces.

use std::io;
use std::net::Ipv4Addr;

use ccplane_host::Namespace;
use ccplane_lab::Error;
use ccplane_units::Rate;

use crate::ends::TrafficEnds;
use crate::error::BackendError;

/// The sender's address, in a private network of two (RFC 1918) that is nowhere but in the
/// namespaces, as those that follow.
pub const SENDER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
const NEAR_ROUTER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
const FAR_ROUTER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 5);
const RECEIVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 6);

/// The device at the sender's end, and the one at the receiver's.
pub const END_DEVICES: [&str; 2] = ["wire0", "wire3"];

/// Two namespaces and the devices between them; the first sends at this rate, or as fast as it can.
pub fn make(rate: Option<Rate>) -> Result<TrafficEnds, Error> {
    let made = rate.unwrap_or_default().bytes_per_sec();
    let ends = TrafficEnds {
        sender: namespace("wire-snd", made)?,
        receiver: namespace("wire-rcv", made)?,
        address: NEAR_ROUTER_ADDRESS.into(),
    };
    pair(
        [&ends.sender, &ends.receiver],
        ["wire0", "wire1"],
        [SENDER_ADDRESS, NEAR_ROUTER_ADDRESS],
    )?;
    if let Some(rate) = rate {
        // A bucket of a millisecond at 10 Gbit/s: smaller and the timer limits the rate, larger and
        // bursts pass the limit.
        tc(
            &ends.sender,
            "wire0",
            rate,
            &["burst", "1mb", "latency", "5ms"],
        )?;
    }
    Ok(ends)
}

/// A token bucket (TBF) and its queue, on a device of the router.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    /// At which it fills and lets pass.
    pub rate: Rate,
    /// Burst: bytes that leave at once after a pause. Below a frame nothing passes. Below what the
    /// rate brings while the kernel's timer is late, the rate is not reached. What fits in it does
    /// not wait, so a queue is shorter by it.
    pub burst: u64,
    /// Bytes that wait at most.
    pub queue: u64,
}

/// Two namespaces and a router between them, which limits what it forwards.
///
/// The limit is not at the sender's own device, where TCP counts what waits as its own queue and
/// stops at a few packets.
pub struct RoutedPair {
    /// Sender and receiver, on either side of the router.
    pub ends: TrafficEnds,
    /// It goes when this goes.
    _router: Namespace,
}

/// Makes them: a bucket on the way there, and where given on the way back.
pub fn routed(there: TokenBucket, back: Option<TokenBucket>) -> Result<RoutedPair, Error> {
    let rate = there.rate.bytes_per_sec();
    let ends = TrafficEnds {
        sender: namespace("wire-snd", rate)?,
        receiver: namespace("wire-rcv", rate)?,
        address: RECEIVER_ADDRESS.into(),
    };
    let router = namespace("wire-mid", rate)?;
    pair(
        [&ends.sender, &router],
        ["wire0", "wire1"],
        [SENDER_ADDRESS, NEAR_ROUTER_ADDRESS],
    )?;
    pair(
        [&router, &ends.receiver],
        ["wire2", "wire3"],
        [FAR_ROUTER_ADDRESS, RECEIVER_ADDRESS],
    )?;
    run(
        &ends.sender,
        "ip",
        &[
            "route",
            "add",
            "default",
            "via",
            &NEAR_ROUTER_ADDRESS.to_string(),
        ],
    )?;
    answer_at_once(
        &ends.receiver,
        "default",
        &["via", &FAR_ROUTER_ADDRESS.to_string()],
    )?;
    router
        .set_sysctl("net/ipv4/ip_forward", "1")
        .map_err(|error| BackendError::from_host(error, true))?;
    for (device, bucket) in [("wire2", Some(there)), ("wire1", back)] {
        if let Some(TokenBucket { rate, burst, queue }) = bucket {
            let (burst, queue) = (burst.to_string(), queue.to_string());
            tc(&router, device, rate, &["burst", &burst, "limit", &queue])?;
        }
    }
    Ok(RoutedPair {
        ends,
        _router: router,
    })
}

/// A route on which every packet is acknowledged at once. The datapath asks for that where there
/// are stamps, but of some thousand ACKs on a busy machine the kernel sends one 40 ms later all the
/// same, by the timer of delayed ACKs (docs/one-way-delay.md): for a sender that has one packet in
/// flight, as DX on a path that holds no more, five such stops in four seconds are a twentieth of
/// the link.
pub(crate) fn answer_at_once(inside: &Namespace, to: &str, way: &[&str]) -> Result<(), Error> {
    let mut arguments = vec!["route", "replace", to];
    arguments.extend(way);
    arguments.extend(["quickack", "1"]);
    run(inside, "ip", &arguments)
}

fn namespace(end: &str, rate: u64) -> Result<Namespace, Error> {
    let id = std::process::id();
    Namespace::create(&format!("ccplane-{id}-{end}-{rate}"))
        .map_err(|error| BackendError::from_host(error, true))
}

/// A pair of devices, one in each, with addresses.
pub fn pair(
    inside: [&Namespace; 2],
    devices: [&str; 2],
    addresses: [Ipv4Addr; 2],
) -> Result<(), Error> {
    let [near, far] = devices;
    let peer = inside[1].name();
    let make = [
        "link", "add", near, "type", "veth", "peer", "name", far, "netns", peer,
    ];
    run(inside[0], "ip", &make)?;
    for ((inside, device), address) in inside.into_iter().zip(devices).zip(addresses) {
        run(
            inside,
            "ip",
            &["addr", "add", &format!("{address}/30"), "dev", device],
        )?;
        run(inside, "ip", &["link", "set", device, "up"])?;
    }
    Ok(())
}

/// A token bucket of this rate on a device.
fn tc(inside: &Namespace, device: &str, rate: Rate, size: &[&str]) -> Result<(), Error> {
    let bits = format!("{}bit", rate.bytes_per_sec() * 8);
    let mut arguments = vec!["qdisc", "add", "dev", device, "root", "tbf", "rate", &bits];
    arguments.extend(size);
    run(inside, "tc", &arguments)
}

/// Runs a program of iproute2 in a namespace.
pub fn run(inside: &Namespace, program: &str, arguments: &[&str]) -> Result<(), Error> {
    let mut command = ccplane_host::system_program(program);
    command.args(arguments);
    let confined = inside
        .confine(&mut command)
        .map_err(|error| BackendError::from_host(error, true))?;
    let fail = |what: String| {
        let told = Error::traffic(
            "make a link between namespaces",
            "it needs `ip` and `tc` (iproute2)",
        );
        told(io::Error::other(what))
    };
    let output = confined
        .output()
        .map_err(|error| fail(format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(fail(format!(
        "`{program} {}`: {}",
        arguments.join(" "),
        said.trim()
    )))
}
