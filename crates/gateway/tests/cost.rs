//! Measures the cost of a tunnel: `cargo test --release -p ccplane-gateway --test cost -- --ignored
//! --nocapture`.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use ccplane_gateway::keys::PrivateKey;
use ccplane_gateway::tunnel::{DatagramKind, HandshakeDemux, SealOutcome, Tunnel};

const BYTES: usize = 1_420;
const PACKETS: u32 = 200_000;
const FROM_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn met() -> [Tunnel; 2] {
    let keys = [1, 2].map(|n| PrivateKey::from_bytes([n; 32]));
    let mut a = HandshakeDemux::new(&keys[0], 1).tunnel(0, keys[1].public(), None, true);
    let mut b = HandshakeDemux::new(&keys[1], 2).tunnel(0, keys[0].public(), None, false);
    let (mut room, mut other) = ([0; 256], [0; 256]);
    let bytes = a.initiate_handshake(&mut room).expect("it calls");
    let DatagramKind::Handshake { answer, .. } = b.open(FROM_ADDRESS, &room[..bytes], &mut other)
    else {
        panic!("no answer")
    };
    let DatagramKind::Handshake { answer, .. } = a.open(FROM_ADDRESS, &other[..answer], &mut room)
    else {
        panic!("no keepalive")
    };
    b.open(FROM_ADDRESS, &room[..answer], &mut other);
    [a, b]
}

#[test]
#[ignore = "measures: CPU time per packet"]
#[expect(clippy::disallowed_methods, reason = "a measurement")]
fn a_packet_of_1420_bytes_is_sealed_and_opened() {
    let [mut a, mut b] = met();
    let mut packet = vec![0; BYTES];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(BYTES as u16).to_be_bytes());
    let mut sealed: Vec<Vec<u8>> = vec![vec![0; BYTES + 64]; PACKETS as usize];
    let start = Instant::now();
    for room in &mut sealed {
        let SealOutcome::Datagram { bytes, .. } = a.seal(&packet, room) else {
            panic!("no session")
        };
        room.truncate(bytes);
    }
    let seal = start.elapsed() / PACKETS;
    let mut room = vec![0; 2_048];
    let start = Instant::now();
    for datagram in &sealed {
        let opened = b.open(FROM_ADDRESS, datagram, &mut room);
        assert!(
            matches!(opened, DatagramKind::Packet { bytes: BYTES, .. }),
            "{opened:?}"
        );
    }
    let open = start.elapsed() / PACKETS;
    println!(
        "seal {} ns, open {} ns per packet of {BYTES} bytes",
        seal.as_nanos(),
        open.as_nanos()
    );
}
