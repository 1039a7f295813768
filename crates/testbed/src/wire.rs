//! Pairs of veth devices between namespaces. Packets stay in the kernel from end to end, so their
//! delay does not include the wake-up of a thread as with the emulator.
//!
//! Created with `ip` and `tc` (iproute2). The devices are removed with their namespaces.

use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::Duration as StdDuration;

use ccplane_emu::{DEVICE_NAME, Emulator};
use ccplane_host::Namespace;
use ccplane_lab::Error;
use ccplane_lab::capacity::MTU;
use ccplane_units::Rate;

use crate::ends::TrafficEnds;
use crate::error::BackendError;

/// Address of the sender, in a private network (RFC 1918) that exists only in the namespaces, like
/// the following ones.
pub const SENDER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
const NEAR_ROUTER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
const FAR_ROUTER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 5);
const RECEIVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 6);

/// Devices of the sender and of the receiver.
pub const END_DEVICES: [&str; 2] = ["wire0", "wire3"];

/// Creates two namespaces and the devices between them. The sender is limited to `rate`, if given.
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
        // A bucket of 1 MB, about a millisecond at 10 Gbit/s: with a smaller one the timer limits
        // the rate, with a larger one bursts exceed the limit.
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
    /// Fill rate, and so the average rate of departures.
    pub rate: Rate,
    /// Burst: bytes that may leave at once after a pause. With less than a frame nothing passes. It
    /// must exceed what arrives at this rate while the kernel's timer is late, or the rate is not
    /// reached. Packets that fit in the bucket do not wait, so the queue is shorter by that much.
    pub burst: u64,
    /// Limit of the queue, bytes.
    pub queue: u64,
}

/// Two namespaces and a rate-limiting router between them.
///
/// The limit is not on the sender's own device, because TCP Small Queues would count the waiting
/// packets as the sender's and stop at a few.
pub struct RoutedPair {
    /// Sender and receiver, on either side of the router.
    pub ends: TrafficEnds,
    /// Kept because the namespace is removed on drop.
    _router: Namespace,
}

/// Creates the namespaces, with a bucket in the forward direction and optionally one in the reverse
/// direction.
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
        if let Some(bucket) = bucket {
            add_bucket(&router, device, bucket)?;
        }
    }
    Ok(RoutedPair {
        ends,
        _router: router,
    })
}

/// Adds a route with `quickack`. The datapath requests immediate ACKs for stamped packets, but on a
/// busy machine about one in a thousand ACKs is still sent 40 ms late by the delayed-ACK timer
/// (docs/one-way-delay.md). For a sender with one packet in flight, such as DX on a path that holds
/// no more, five such delays in four seconds cost 5 % of the link.
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

/// Creates a pair of devices, one in each namespace, with addresses.
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

/// Adds a token bucket of this rate to a device.
fn tc(inside: &Namespace, device: &str, rate: Rate, size: &[&str]) -> Result<(), Error> {
    let bits = format!("{}bit", rate.bytes_per_sec() * 8);
    let mut arguments = vec!["qdisc", "add", "dev", device, "root", "tbf", "rate", &bits];
    arguments.extend(size);
    run(inside, "tc", &arguments)
}

fn add_bucket(inside: &Namespace, device: &str, bucket: TokenBucket) -> Result<(), Error> {
    let (burst, queue) = (bucket.burst.to_string(), bucket.queue.to_string());
    let size = ["burst", &burst, "limit", &queue];
    tc(inside, device, bucket.rate, &size)
}

/// Devices of the bridge of a [`BridgedPair`], on the sender's and on the receiver's side.
pub(crate) const BRIDGE_DEVICES: [&str; 2] = ["near0", "far0"];
const BRIDGE: &str = "bridge0";

/// Bytes of an Ethernet header, which a queue of the kernel counts as part of the packet.
const ETHERNET_HEADER_BYTES: u64 = 14;

/// Two namespaces and a rate-limiting bridge between them. The ends have the emulator's device name
/// and addresses, so that hosts are set up as behind the emulator.
///
/// The limit is not on the sender's own device, see [`RoutedPair`].
pub(crate) struct BridgedPair {
    /// Sender and receiver, on either side of the bridge.
    pub ends: TrafficEnds,
    /// Namespace of the bridge.
    pub bridge: Namespace,
}

/// Creates the namespaces, with a bucket in the forward direction. Rate and queue are those of
/// full-sized IP packets.
pub(crate) fn bridged(bucket: TokenBucket) -> Result<BridgedPair, Error> {
    ccplane_host::remove_stale_names();
    let rate = bucket.rate.bytes_per_sec();
    let pair = BridgedPair {
        ends: TrafficEnds {
            sender: namespace("tbf-snd", rate)?,
            receiver: namespace("tbf-rcv", rate)?,
            address: Emulator::ADDRESSES[1],
        },
        bridge: namespace("tbf-mid", rate)?,
    };
    let ends = [&pair.ends.sender, &pair.ends.receiver];
    for ((end, device), address) in ends
        .into_iter()
        .zip(BRIDGE_DEVICES)
        .zip(Emulator::ADDRESSES)
    {
        for arguments in end_commands(device, pair.bridge.name(), address) {
            run_words(end, "ip", &arguments)?;
        }
    }
    for arguments in bridge_commands() {
        run_words(&pair.bridge, "ip", &arguments)?;
    }
    await_forwarding(&pair.ends)?;
    let rate = with_ethernet_headers(bucket.rate);
    add_bucket(
        &pair.bridge,
        BRIDGE_DEVICES[1],
        TokenBucket { rate, ..bucket },
    )?;
    Ok(pair)
}

/// Returns the commands of `ip` that create an end's device and its counterpart at the bridge.
/// Segments are sent one by one: the bucket would treat a super-packet as one packet.
fn end_commands(device: &str, bridge: &str, address: IpAddr) -> [String; 4] {
    [
        format!("link add {DEVICE_NAME} type veth peer name {device} netns {bridge}"),
        format!("addr add {address}/30 dev {DEVICE_NAME}"),
        format!("link set {DEVICE_NAME} gso_max_segs 1"),
        format!("link set {DEVICE_NAME} up"),
    ]
}

fn bridge_commands() -> Vec<String> {
    let mut all = vec![format!("link add {BRIDGE} type bridge")];
    all.push(format!("link set {BRIDGE} up"));
    for device in BRIDGE_DEVICES {
        // In this order a port forwards at once if it has a carrier by then.
        all.push(format!("link set {device} up"));
        all.push(format!("link set {device} master {BRIDGE}"));
    }
    all
}

/// Longest time until a new bridge forwards: the kernel may notice the carrier of a port a second
/// late, and repeats an unanswered ARP request after a second.
const FORWARDING_TIMEOUT: StdDuration = StdDuration::from_secs(10);
const PROBE_INTERVAL: StdDuration = StdDuration::from_millis(10);

/// Sends datagrams until one arrives. Otherwise the handshake of a flow could wait for the bridge,
/// and lose a second of the run.
fn await_forwarding(ends: &TrafficEnds) -> Result<(), Error> {
    let fail = || Error::traffic("send through a new bridge", "");
    let bind = |inside: &Namespace, address: IpAddr| {
        let bound = inside.run(|| UdpSocket::bind((address, 0)));
        let bound = bound.map_err(|error| BackendError::from_host(error, true))?;
        bound.map_err(fail())
    };
    let receiver = bind(&ends.receiver, ends.address)?;
    let sender = bind(&ends.sender, Ipv4Addr::UNSPECIFIED.into())?;
    let to = receiver.local_addr().map_err(fail())?;
    let timeout = receiver.set_read_timeout(Some(PROBE_INTERVAL));
    timeout.map_err(fail())?;
    for _ in 0..FORWARDING_TIMEOUT.as_millis() / PROBE_INTERVAL.as_millis() {
        // A queue of unresolved addresses that is full is no reason to give up.
        let _ = sender.send_to(b"probe", to);
        match receiver.recv(&mut [0; 8]) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(fail()(error)),
        }
    }
    Err(fail()(io::ErrorKind::TimedOut.into()))
}

/// Converts a rate of full-sized IP packets to the rate of their frames, which the kernel counts.
fn with_ethernet_headers(rate: Rate) -> Rate {
    let (mtu, frame) = (u128::from(MTU), u128::from(queue_bytes(1)));
    let bytes = u128::from(rate.bytes_per_sec()) * frame / mtu;
    Rate::from_bytes_per_sec(u64::try_from(bytes).unwrap_or(u64::MAX))
}

/// Returns the bytes of a queue of so many packets, as the kernel counts them.
pub(crate) fn queue_bytes(packets: u64) -> u64 {
    packets.saturating_mul(u64::from(MTU) + ETHERNET_HEADER_BYTES)
}

/// Runs a program of iproute2 whose arguments contain no spaces.
fn run_words(inside: &Namespace, program: &str, arguments: &str) -> Result<(), Error> {
    let words: Vec<&str> = arguments.split(' ').collect();
    run(inside, program, &words)
}

/// Runs a program of iproute2 in a namespace.
pub fn run(inside: &Namespace, program: &str, arguments: &[&str]) -> Result<(), Error> {
    let mut command = ccplane_host::system_program(program);
    command.args(arguments);
    let confined = inside
        .enter_on_spawn(&mut command)
        .map_err(|error| BackendError::from_host(error, true))?;
    let fail = |what: String| {
        let told = Error::traffic(
            "create a link between namespaces",
            "install `ip` and `tc` (iproute2)",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_for_the_rate_and_the_queue_of_ip_packets() {
        let rate = with_ethernet_headers(Rate::from_bits_per_sec(1_000_000_000));
        assert_eq!(rate.bytes_per_sec(), 125_000_000 * 1_514 / 1_500);
        assert_eq!(queue_bytes(250), 378_500);
        let most = with_ethernet_headers(Rate::from_bytes_per_sec(u64::MAX));
        assert_eq!(most.bytes_per_sec(), u64::MAX);
    }

    #[test]
    fn the_ends_send_single_segments_over_a_bridge() {
        let address = Emulator::ADDRESSES[0];
        assert_eq!(
            end_commands("near0", "ccplane-1-mid", address),
            [
                "link add link0 type veth peer name near0 netns ccplane-1-mid",
                "addr add 10.77.0.1/30 dev link0",
                "link set link0 gso_max_segs 1",
                "link set link0 up"
            ]
        );
        assert_eq!(
            bridge_commands(),
            [
                "link add bridge0 type bridge",
                "link set bridge0 up",
                "link set near0 up",
                "link set near0 master bridge0",
                "link set far0 up",
                "link set far0 master bridge0"
            ]
        );
    }
}
