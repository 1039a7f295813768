use std::net::Ipv4Addr;

use super::*;

const ADDRESS_A: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const ADDRESS_B: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

/// Two gateways with a tunnel between them.
struct Two {
    doors: [HandshakeDemux; 2],
    tunnels: [Tunnel; 2],
}

/// Builds an IPv4 packet of `bytes` bytes whose payload starts with `mark`.
fn packet(bytes: usize, mark: u8) -> Vec<u8> {
    let mut packet = vec![0; bytes];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(bytes as u16).to_be_bytes());
    packet[12..16].copy_from_slice(&[10, 7, 0, 1]);
    packet[20] = mark;
    packet
}

impl Two {
    fn new() -> Two {
        Two::with([None; 2])
    }

    fn with(secrets: [Option<PresharedKey>; 2]) -> Two {
        let keys = [1, 2].map(|n| PrivateKey::from_bytes([n; 32]));
        let doors = [
            HandshakeDemux::new(&keys[0], 7),
            HandshakeDemux::new(&keys[1], 9),
        ];
        let tunnels = [
            doors[0].tunnel(3, keys[1].public(), secrets[0], true),
            doors[1].tunnel(5, keys[0].public(), secrets[1], false),
        ];
        Two { doors, tunnels }
    }

    /// Returns two gateways with an established session.
    fn met() -> Two {
        let mut two = Two::new();
        two.handshake(false);
        two
    }

    /// Runs a handshake initiated by the first gateway, including the final keepalive.
    fn handshake(&mut self, again: bool) {
        let mut room = [0; 256];
        let [a, b] = &mut self.tunnels;
        let bytes = if again {
            a.rekey(&mut room)
        } else {
            a.initiate_handshake(&mut room)
        };
        let initiation = room[..bytes.expect("it calls")].to_vec();
        let DatagramKind::Handshake {
            answer,
            authentic: true,
        } = b.open(ADDRESS_A, &initiation, &mut room)
        else {
            panic!("no answer");
        };
        let response = room[..answer].to_vec();
        let DatagramKind::Handshake {
            answer,
            authentic: true,
        } = a.open(ADDRESS_B, &response, &mut room)
        else {
            panic!("no keepalive");
        };
        let keepalive = room[..answer].to_vec();
        assert_eq!(a.next_queued(&mut room), None);
        let opened = b.open(ADDRESS_A, &keepalive, &mut room);
        assert!(
            matches!(
                opened,
                DatagramKind::Packet {
                    bytes: 0,
                    source: None,
                    ..
                }
            ),
            "{opened:?}"
        );
    }

    fn seal(&mut self, from: usize, packet: &[u8]) -> (Vec<u8>, TunnelNumber) {
        let mut room = vec![0; packet.len() + 200];
        match self.tunnels[from].seal(packet, &mut room) {
            SealOutcome::Datagram { bytes, number } => (room[..bytes].to_vec(), number),
            SealOutcome::NoSession => panic!("no session"),
        }
    }

    fn open(&mut self, at: usize, datagram: &[u8]) -> (DatagramKind, Vec<u8>) {
        let mut room = vec![0; datagram.len().max(148)];
        let from = [ADDRESS_B, ADDRESS_A][at];
        let opened = self.tunnels[at].open(from, datagram, &mut room);
        if let DatagramKind::Packet { bytes, .. } = opened {
            room.truncate(bytes);
        }
        (opened, room)
    }
}

#[test]
fn without_a_session_one_packet_is_queued_and_one_initiation_sent() {
    let mut two = Two::new();
    let mut room = [0; 2048];
    let [a, _] = &mut two.tunnels;
    assert_eq!(a.seal(&packet(100, 0), &mut room), SealOutcome::NoSession);
    assert!(!a.is_established());
    assert_eq!(a.initiate_handshake(&mut room), Some(148));
    assert_eq!(
        a.initiate_handshake(&mut room),
        None,
        "a handshake is in progress"
    );
    assert_eq!(a.seal(&packet(100, 0), &mut room), SealOutcome::NoSession);
}

#[test]
fn packets_without_a_session_are_not_queued() {
    let mut two = Two::new();
    let mut room = [0; 2048];
    let [a, _] = &mut two.tunnels;
    a.established = true;
    assert_eq!(a.seal(&packet(100, 0), &mut room), SealOutcome::NoSession);
    assert!(!a.is_established());
    // Fails if a packet was queued for the handshake.
    two.handshake(false);
}

#[test]
fn packets_round_trip_with_their_counter() {
    let mut two = Two::met();
    let mut last = [None::<u64>; 2];
    for n in 0..20_u8 {
        for from in [0, 1] {
            let sent = packet(100 + usize::from(n) * 60, n);
            let (datagram, number) = two.seal(from, &sent);
            assert_eq!(datagram.len(), sent.len() + DATA_OVERHEAD_BYTES);
            let (opened, received) = two.open(1 - from, &datagram);
            let DatagramKind::Packet {
                number: same,
                source,
                ..
            } = opened
            else {
                panic!("{opened:?}")
            };
            assert_eq!((same, received), (number, sent));
            assert_eq!(source, Some(IpAddr::V4(Ipv4Addr::new(10, 7, 0, 1))));
            assert!(
                last[from].is_none_or(|before| number.counter == before + 1),
                "counters without gaps"
            );
            last[from] = Some(number.counter);
        }
    }
}

#[test]
fn datagrams_are_demultiplexed_to_their_peer() {
    let mut two = Two::new();
    let mut room = [0; 256];
    let bytes = two.tunnels[0].initiate_handshake(&mut room).unwrap();
    let initiation = room[..bytes].to_vec();
    let caller = PrivateKey::from_bytes([1; 32]).public();
    assert_eq!(
        two.doors[1].identify(ADDRESS_A, &initiation, &mut room),
        Recipient::Peer(caller)
    );
    assert_eq!(
        two.doors[0].identify(ADDRESS_A, &initiation, &mut room),
        Recipient::Unknown,
        "the datagram is for the other peer"
    );
    two.handshake(true);
    let (datagram, _) = two.seal(0, &packet(60, 1));
    assert_eq!(two.doors[1].recipient(&datagram), Recipient::Index(5));
    assert_eq!(
        two.doors[0].recipient(&datagram),
        Recipient::Unknown,
        "a session of another gateway, or before a restart"
    );
    let (datagram, _) = two.seal(1, &packet(60, 1));
    assert_eq!(two.doors[0].recipient(&datagram), Recipient::Index(3));
}

#[test]
fn new_keys_are_a_new_session_that_counts_from_the_start() {
    let mut two = Two::met();
    let (_, first) = two.seal(0, &packet(60, 1));
    let (late, before) = two.seal(0, &packet(60, 2));
    assert_eq!(
        (before.session, before.counter),
        (first.session, first.counter + 1)
    );
    two.handshake(true);
    let (datagram, after) = two.seal(0, &packet(60, 3));
    assert_ne!(after.session, before.session);
    assert!(after.counter < before.counter, "{after:?}");
    let (opened, _) = two.open(1, &datagram);
    assert!(matches!(opened, DatagramKind::Packet { number, .. } if number == after));
    // A packet of the old session, in flight during the rekey, is still accepted.
    let (opened, received) = two.open(1, &late);
    assert!(
        matches!(opened, DatagramKind::Packet { number, .. } if number == before),
        "{opened:?}"
    );
    assert_eq!(received[20], 2);
}

#[test]
fn reordered_packets_are_accepted_once() {
    let mut two = Two::met();
    let sealed: Vec<_> = (0..200_u8).map(|n| two.seal(0, &packet(60, n))).collect();
    for (datagram, number) in sealed.iter().rev() {
        let (opened, _) = two.open(1, datagram);
        assert!(
            matches!(opened, DatagramKind::Packet { number: same, .. } if same == *number),
            "{opened:?}"
        );
    }
    for (datagram, _) in &sealed {
        assert_eq!(
            two.open(1, datagram).0,
            DatagramKind::Refused(Refusal::Replayed)
        );
    }
}

#[test]
fn a_flood_of_garbage_harms_no_tunnel() {
    let mut two = Two::met();
    let (good, number) = two.seal(0, &packet(600, 9));
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut byte = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as u8
    };
    let mut room = [0; 2048];
    for n in 0..20_000_usize {
        // Random bytes, or a valid datagram with some bytes changed or truncated.
        let datagram: Vec<u8> = match n % 4 {
            0 => (0..n % 300).map(|_| byte()).collect(),
            1 => [
                vec![byte() % 5, 0, 0, 0],
                (0..[60, 88, 144, 300][n / 4 % 4]).map(|_| byte()).collect(),
            ]
            .concat(),
            2 => {
                let mut bad = good.clone();
                let at = n * 31 % bad.len();
                bad[at] ^= byte() | 1;
                bad
            }
            _ => good[..n % good.len()].to_vec(),
        };
        two.doors[1].identify(ADDRESS_A, &datagram, &mut room);
        two.doors[1].recipient(&datagram);
        let (opened, _) = two.open(1, &datagram);
        assert!(
            matches!(opened, DatagramKind::Refused(_)),
            "{n}: {opened:?} of {} bytes",
            datagram.len()
        );
    }
    let (opened, _) = two.open(1, &good);
    assert!(
        matches!(opened, DatagramKind::Packet { number: same, .. } if same == number),
        "{opened:?}"
    );
}

#[test]
fn floods_of_initiations_require_a_cookie() {
    let two = Two::new();
    let [mut a, mut b] = two.tunnels;
    let mut room = [0; 256];
    let mut cookie = None;
    for _ in 0..2 * HANDSHAKES_PER_SECOND_MAX {
        let bytes = a.rekey(&mut room).unwrap();
        let initiation = room[..bytes].to_vec();
        if let Recipient::Answer(bytes) = two.doors[1].identify(ADDRESS_A, &initiation, &mut room) {
            cookie = Some(room[..bytes].to_vec());
            break;
        }
    }
    let cookie = cookie.expect("the flood gets no cookie");
    assert!(matches!(
        a.open(ADDRESS_B, &cookie, &mut room),
        DatagramKind::Handshake {
            answer: 0,
            authentic: false
        }
    ));
    let bytes = a.rekey(&mut room).unwrap();
    let initiation = room[..bytes].to_vec();
    assert!(matches!(
        two.doors[1].identify(ADDRESS_A, &initiation, &mut room),
        Recipient::Peer(_)
    ));
    assert!(matches!(
        b.open(ADDRESS_A, &initiation, &mut room),
        DatagramKind::Handshake {
            authentic: true,
            ..
        }
    ));
    // The limiter for known peers requires no cookie.
    let bytes = a.rekey(&mut room).unwrap();
    let initiation = room[..bytes].to_vec();
    assert!(matches!(
        two.doors[1].identify_unlimited(ADDRESS_B, &initiation, &mut room),
        Recipient::Peer(_)
    ));
    // A cookie is bound to the source address.
    let bytes = a.rekey(&mut room).unwrap();
    let initiation = room[..bytes].to_vec();
    assert!(matches!(
        two.doors[1].identify(ADDRESS_B, &initiation, &mut room),
        Recipient::Answer(_)
    ));
}

#[test]
fn the_timer_initiates_handshakes_with_kept_peers() {
    let mut two = Two::new();
    let mut room = [0; 256];
    let [a, b] = &mut two.tunnels;
    assert_eq!(
        a.tick(&mut room),
        Some((148, None)),
        "the endpoint is known"
    );
    assert_eq!(b.tick(&mut room), None, "waits for an initiation");
}

#[test]
fn keepalive_initiates_at_once_and_limits_silence() {
    let [_, mut other] = Two::new().tunnels;
    let mut room = [0; 256];
    // Without keepalive, a tunnel never initiates a handshake by itself.
    assert_eq!(other.tick(&mut room), None);
    other.set_keepalive(true);
    assert!(matches!(other.tick(&mut room), Some((148, None))));
    let mut two = Two::met();
    let mut ticks = || {
        (0..KEEPALIVE_TICKS)
            .filter_map(|_| two.tunnels[0].tick(&mut room))
            .collect::<Vec<_>>()
    };
    let sent = ticks();
    assert!(
        matches!(sent[..], [(DATA_OVERHEAD_BYTES, Some(_))]),
        "{sent:?}"
    );
    let sent = ticks();
    assert!(
        matches!(sent[..], [(DATA_OVERHEAD_BYTES, Some(_))]),
        "{sent:?}"
    );
    two.tunnels[0].set_keepalive(false);
    assert_eq!(
        (0..2 * KEEPALIVE_TICKS).find_map(|_| two.tunnels[0].tick(&mut room)),
        None
    );
}

#[test]
fn the_responder_rekeys_if_the_initiator_does_not() {
    let at = |seconds| is_overdue(Some(Duration::from_secs(seconds)));
    assert!(
        !is_overdue(None),
        "packets without a session start a handshake"
    );
    assert_eq!(
        [0, 120, 134, 136, 179].map(at),
        [false, false, false, true, true]
    );
    let mut two = Two::met();
    let mut room = [0; 256];
    assert_eq!(two.tunnels[1].tick(&mut room), None, "fresh keys");
}

#[test]
fn a_preshared_key_is_the_same_at_both_ends_or_both_name_the_fault() {
    let [ours, theirs] = [1, 2].map(|n| PresharedKey::from_bytes([n; 32]));
    Two::with([Some(ours); 2]).handshake(false);
    for secrets in [
        [Some(ours), None],
        [None, Some(ours)],
        [Some(ours), Some(theirs)],
    ] {
        let mut two = Two::with(secrets);
        let mut room = [0; 256];
        let [a, b] = &mut two.tunnels;
        // `boringtun` keeps eight sessions; ten responses wrap around once.
        for n in 1..=10 {
            let bytes = a.rekey(&mut room).expect("it calls");
            let initiation = room[..bytes].to_vec();
            let DatagramKind::Handshake { answer, .. } = b.open(ADDRESS_A, &initiation, &mut room)
            else {
                panic!("no answer");
            };
            let response = room[..answer].to_vec();
            let opened = a.open(ADDRESS_B, &response, &mut room);
            assert!(matches!(opened, DatagramKind::Refused(_)), "{secrets:?}");
            assert!(!a.is_established() && !b.is_established());
            assert_eq!((a.age(), b.age()), (None, None), "{n}");
            assert_eq!(a.fault(), Some(HandshakeFault::AnswerRejected));
            let ignored = (n >= UNCONFIRMED_RESPONSES_MAX).then_some(HandshakeFault::AnswerIgnored);
            assert_eq!(b.fault(), ignored, "{n}");
        }
        assert!(b.tick(&mut room).is_none() && !b.is_established());
    }
}

#[test]
fn agreed_keys_end_a_fault() {
    let mut two = Two::new();
    let mut room = [0; 256];
    for _ in 0..UNCONFIRMED_RESPONSES_MAX {
        let [a, b] = &mut two.tunnels;
        let bytes = a.rekey(&mut room).expect("it calls");
        let initiation = room[..bytes].to_vec();
        b.open(ADDRESS_A, &initiation, &mut room);
    }
    assert_eq!(two.tunnels[1].fault(), Some(HandshakeFault::AnswerIgnored));
    two.handshake(true);
    assert_eq!(two.tunnels[1].fault(), None);
}
