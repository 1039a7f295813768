//! Two hosts on a switch, and floods of forged datagrams to one of them. Needs root.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use ccplane_host::headers::{IPV4_HEADER_BYTES, UDP_HEADER_BYTES, write_udp_headers};
use ccplane_host::{Namespace, Wire};

#[path = "../../../host/tests/common/mod.rs"]
pub mod host;
use host::{ip_in, namespace};

/// Addresses of the sending and the receiving host.
pub const SENDER: [u8; 4] = [172, 16, 0, 1];
pub const RECEIVER: [u8; 4] = [172, 16, 0, 2];

/// Source addresses of a flood.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Origin {
    /// Unused addresses of the switch's network: answers wait for ARP.
    OnLink,
    /// Addresses behind a router.
    OffLink,
    /// The attacker's own address.
    Own,
}

/// Returns the settings of a measurement. `CCPLANE_FLOOD=50,20000,4` means 50 Mbit/s, 20,000
/// datagrams per second, and runs of four seconds.
pub fn settings(default: [u64; 3]) -> [u64; 3] {
    let Ok(text) = std::env::var("CCPLANE_FLOOD") else {
        return default;
    };
    let numbers: Vec<u64> = text
        .split(',')
        .map(|number| number.parse().unwrap())
        .collect();
    numbers.try_into().unwrap()
}

/// Creates the namespaces of the switch, the sender and the receiver; `None` if this host does not
/// support them.
pub fn network(test: &str) -> Option<[Namespace; 3]> {
    let space = |name: &str| namespace(&format!("{test}{name}"));
    let spaces = [space("")?, space("1")?, space("2")?];
    let [switch, ..] = &spaces;
    ip_in(switch, "link add br0 type bridge");
    ip_in(switch, "link set br0 up");
    ip_in(switch, "addr add 172.16.0.254/16 dev br0");
    ip_in(switch, "addr add 172.16.0.253/16 dev br0");
    for (n, end) in spaces.iter().enumerate().skip(1) {
        let name = end.name();
        ip_in(
            switch,
            &format!("link add port{n} type veth peer name eth0 netns {name}"),
        );
        ip_in(switch, &format!("link set port{n} master br0"));
        ip_in(switch, &format!("link set port{n} up"));
        ip_in(end, &format!("link set eth0 address 02:00:00:00:00:0{n}"));
        ip_in(end, "link set eth0 up");
        ip_in(end, &format!("addr add 172.16.0.{n}/16 dev eth0"));
        ip_in(end, "route add default via 172.16.0.254");
    }
    Some(spaces)
}

/// Returns an IP packet without its Ethernet header, after an empty header of the packet socket.
fn frame(origin: Origin, n: u64, to_port: u16, datagram: &[u8]) -> Vec<u8> {
    let random = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let [low, high] = [random as u8, (random >> 8) as u8];
    let source = match origin {
        Origin::OnLink => [172, 16, 1 + low % 255, high],
        Origin::OffLink => [198, 18, low, high],
        Origin::Own => [172, 16, 0, 253],
    };
    let mut packet = vec![0; IPV4_HEADER_BYTES + UDP_HEADER_BYTES];
    packet.extend(datagram);
    let port = 1_024 + (random % 60_000) as u16;
    let (from, to) = ((source, port).into(), (RECEIVER, to_port).into());
    write_udp_headers(&mut packet, from, to).expect("both addresses are of one family");
    [vec![0; 10], packet].concat()
}

/// Sends the datagrams cyclically to a port of the receiver, `rate` per second.
pub fn flood(
    switch: &Namespace,
    origin: Origin,
    (to_port, datagrams): (u16, &[Vec<u8>]),
    rate: u64,
    stop: &AtomicBool,
) {
    switch.enter().unwrap();
    let wire = Wire::open("port2").unwrap();
    let (begin, mut sent) = (Instant::now(), 0);
    let mut datagrams = datagrams.iter().cycle();
    while !stop.load(Relaxed) {
        let due = begin.elapsed().as_micros() as u64 * rate / 1_000_000;
        while sent < due
            && let Some(datagram) = datagrams.next()
        {
            let link = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 9, 8, 0];
            let _ = wire.write(&link, [&frame(origin, sent, to_port, datagram), &[]]);
            sent += 1;
        }
        thread::sleep(std::time::Duration::from_millis(1));
    }
}
