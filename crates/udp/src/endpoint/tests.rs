//! Endpoint tests without sockets: clients, forgeries and copies, with datagrams passed in memory.

use ccplane_link::identity::Identity;
use ccplane_transport::{Native, PEER_MSS_MIN};
use ccplane_units::Duration;

use super::*;
use crate::codec::VERSION;

const DATAGRAM_BYTES: usize = 1200;

fn at(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(100_000 + ms)
}

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last], 4000))
}

fn config() -> Arc<TransportConfig> {
    Arc::new(TransportConfig {
        mss: mss(DATAGRAM_BYTES, true, false),
        ..TransportConfig::default()
    })
}

/// Returns the TLS configurations of a server and of a client that trusts it, or none.
fn pair(tls: bool) -> [Option<Tls>; 2] {
    let identity = Identity::new().unwrap();
    let pair = || {
        [
            Tls::server(&identity, &[]).unwrap(),
            Tls::client(Some(identity.fingerprint()), None).unwrap(),
        ]
    };
    if tls { pair().map(Some) } else { [None, None] }
}

fn server(tls: Option<Tls>, most: usize) -> Endpoint {
    let mut endpoint = Endpoint::new(config(), DATAGRAM_BYTES, tls);
    endpoint.listen([9; 32], ListenLimits::connections(most));
    endpoint
}

/// Client with one connection that has written `bytes`.
struct Client {
    endpoint: Endpoint,
    connection: Connection,
    id: u64,
    control: Native,
}

impl Client {
    fn new(tls: &Option<Tls>, id: u64, bytes: u64) -> Client {
        let mut endpoint = Endpoint::new(config(), DATAGRAM_BYTES, tls.clone());
        assert_eq!(endpoint.connect(address(1), id), Ok(true));
        let mut connection = Connection::connect(&config(), at(0));
        connection.write(bytes);
        Client {
            endpoint,
            connection,
            id,
            control: Native::cubic(),
        }
    }

    /// Returns the next datagrams: the last handshake flight if it is due, then a segment.
    fn send_all(&mut self, now: Time) -> Vec<Vec<u8>> {
        let (mut side, mut datagrams, mut out) =
            (SideData::default(), Vec::new(), vec![0; DATAGRAM_BYTES]);
        let Some(segment) = self.connection.transmit(now, 0, &mut side) else {
            return datagrams;
        };
        if segment.has_flag(Segment::PROOF_FLAG) {
            self.endpoint.begin_flight(self.id, &segment);
            while let Some((length, _)) = self.endpoint.write_flight(self.id, &mut out) {
                datagrams.push(out[..length].to_vec());
            }
        }
        let prove = |side: &SideData| self.connection.prove(&segment, side);
        let fill = |payload: &mut [u8]| payload.fill(0x77);
        let (length, to) = self
            .endpoint
            .write(self.id, &segment, &mut side, &mut out, prove, fill)
            .unwrap();
        assert_eq!(to, address(1));
        datagrams.push(out[..length].to_vec());
        datagrams
    }

    fn send(&mut self, now: Time) -> Vec<u8> {
        self.send_all(now).pop().unwrap()
    }

    /// Processes a datagram from the server.
    fn take(&mut self, now: Time, datagram: &[u8]) -> Result<DatagramOutcome, DropReason> {
        let (mut side, mut datagram) = (SideData::default(), datagram.to_vec());
        let arrival = self.endpoint.receive(
            now,
            address(1),
            &mut datagram,
            &mut side,
            &mut [0; DATAGRAM_BYTES],
        )?;
        match &arrival {
            DatagramOutcome::Segment(id, segment, ..) => {
                assert_eq!(*id, self.id);
                self.connection
                    .handle(now, segment, &side, &mut self.control);
            }
            DatagramOutcome::HelloRequested(_) => self.connection.resend_open(),
            _ => {}
        }
        Ok(arrival)
    }
}

/// Returns the server's outcome for a datagram, and its answers.
fn hand(
    endpoint: &mut Endpoint,
    now: Time,
    from: SocketAddr,
    datagram: &[u8],
) -> Result<(DatagramOutcome, Vec<Vec<u8>>), DropReason> {
    let (mut datagram, mut out) = (datagram.to_vec(), vec![0; 3 * DATAGRAM_BYTES]);
    let arrival = endpoint.receive(now, from, &mut datagram, &mut SideData::default(), &mut out)?;
    let answers = match arrival {
        DatagramOutcome::Answer(length, each) => {
            out[..length].chunks(each).map(<[u8]>::to_vec).collect()
        }
        DatagramOutcome::Alert(length) => vec![out[..length].to_vec()],
        _ => Vec::new(),
    };
    Ok((arrival, answers))
}

/// Runs a client up to the server's answer; returns its last handshake flight and first data.
fn opened(server: &mut Endpoint, client: &mut Client, from: SocketAddr) -> Vec<Vec<u8>> {
    let hello = client.send(at(0));
    let (_, answers) = hand(server, at(1), from, &hello).unwrap();
    let bytes: usize = answers.iter().map(Vec::len).sum();
    assert!(
        !answers.is_empty() && bytes < hello.len(),
        "{bytes} bytes for {}",
        hello.len()
    );
    assert_eq!(server.len(), 0, "no connection without a valid cookie");
    for answer in answers {
        client.take(at(2), &answer).unwrap();
    }
    let first = client.send_all(at(2));
    assert_eq!(server.len(), 0);
    first
}

/// Opens a connection between client and server; returns its identifier.
fn accepted(server: &mut Endpoint, client: &mut Client) -> u64 {
    let first = opened(server, client, address(5));
    let arrival = hand_all(server, at(3), address(5), &first).unwrap();
    let DatagramOutcome::Accepted { id, .. } = arrival else {
        panic!("{arrival:?}")
    };
    id
}

/// Delivers several datagrams and returns the outcome of the last.
fn hand_all(
    server: &mut Endpoint,
    now: Time,
    from: SocketAddr,
    datagrams: &[Vec<u8>],
) -> Result<DatagramOutcome, DropReason> {
    let mut last = Err(DropReason::UnknownConnection);
    for datagram in datagrams {
        last = hand(server, now, from, datagram).map(|(arrival, _)| arrival);
    }
    last
}

#[test]
fn state_comes_with_the_first_data_of_a_proved_address() {
    for tls in [false, true] {
        let [ours, theirs] = pair(tls);
        let (mut server, mut client) = (server(ours, 10), Client::new(&theirs, 77, 5000));
        let first = opened(&mut server, &mut client, address(5));
        assert_eq!(
            (first.len(), server.pending()),
            if tls { (2, 1) } else { (1, 0) },
            "the end of the handshake is sent first"
        );
        // From another address, or after the identifier has expired.
        assert!(hand_all(&mut server, at(3), address(6), &first).is_err());
        if !tls {
            assert!(hand_all(&mut server, at(60_000), address(5), &first).is_err());
        }
        assert_eq!(server.len(), 0);

        let arrival = hand_all(&mut server, at(3), address(5), &first).unwrap();
        let DatagramOutcome::Accepted {
            id, open, segment, ..
        } = arrival
        else {
            panic!("{arrival:?}")
        };
        assert_eq!(
            (server.len(), open.kind, segment.kind),
            (1, SegmentKind::Open, SegmentKind::Data)
        );
        assert_eq!((open.length, server.pending()), (config().mss, 0));

        // The reconstructed connection continues as if the server had kept its state.
        let mut connection = Connection::accept(&config(), at(3), &open).unwrap();
        let reply = connection
            .transmit(at(3), 0, &mut SideData::default())
            .unwrap();
        assert_eq!(reply.kind, SegmentKind::OpenReply);
        let mut control = Native::cubic();
        connection.handle(at(3), &segment, &SideData::default(), &mut control);
        assert_eq!(connection.readable(), u64::from(segment.length));

        // A retransmission is accepted as a segment; under TLS an exact copy is a replay.
        let again = hand_all(&mut server, at(4), address(5), &first);
        match tls {
            false => {
                assert!(matches!(again, Ok(DatagramOutcome::Segment(found, ..)) if found == id))
            }
            true => assert_eq!(again.unwrap_err(), DropReason::Replayed),
        }
        // A late copy does not reopen a closed connection.
        server.remove(at(5), id);
        assert!(hand_all(&mut server, at(6), address(5), &first).is_err());
        assert_eq!(server.len(), 0);
    }
}

#[test]
fn migration_requires_identifiers_and_keys() {
    for tls in [false, true] {
        let [ours, theirs] = pair(tls);
        let (mut server, mut client) = (server(ours, 10), Client::new(&theirs, 77, 50_000));
        let id = accepted(&mut server, &mut client);

        // Forged resets: wrong identifiers; correct ones from another address; correct ones without
        // the keys.
        let mut abort = Segment::default();
        abort.kind = SegmentKind::Abort;
        let forged = |to: u64, from: Option<ClientAddress>, cover: Cover| {
            let mut out = vec![0; 100];
            let envelope = Envelope { to, from, cover };
            let head = envelope.write(&mut out).unwrap();
            let header = crate::codec::write(
                &abort,
                &mut SideData::default(),
                &mut out[head..],
                80,
                |_| Proof::default(),
            )
            .unwrap();
            out.truncate(head + header + 16);
            out
        };
        let source = ClientAddress { id: 78, mss: 1000 };
        let cover = Cover::Plain;
        assert!(hand(&mut server, at(4), address(5), &forged(id ^ 1, None, cover)).is_err());
        assert_eq!(
            hand(&mut server, at(4), address(6), &forged(id, None, cover)).unwrap_err(),
            DropReason::AddressMismatch
        );
        assert_eq!(
            hand(
                &mut server,
                at(4),
                address(5),
                &forged(id, Some(source), cover)
            )
            .unwrap_err(),
            DropReason::UnknownConnection
        );
        if tls {
            let plain = hand(&mut server, at(4), address(5), &forged(id, None, cover));
            assert_eq!(plain.unwrap_err(), DropReason::NotEncrypted);
            let (phase, number) = (false, 9);
            let sealed = forged(id, None, Cover::Sealed { phase, number });
            let sealed = hand(&mut server, at(4), address(5), &sealed).unwrap_err();
            assert!(
                matches!(sealed, DropReason::Forged | DropReason::Replayed),
                "{sealed:?}"
            );
            let late = hand(
                &mut server,
                at(4),
                address(5),
                &forged(id, None, Cover::SealedHandshake),
            );
            assert_eq!(late.unwrap_err(), DropReason::UnknownConnection);
        } else {
            let mut plain = forged(id, None, cover);
            plain.truncate(plain.len() - 16);
            assert!(
                matches!(
                    hand(&mut server, at(4), address(5), &plain),
                    Ok((DatagramOutcome::Segment(..), _))
                ),
                "both identifiers match the peer"
            );
        }
        assert_eq!(server.len(), 1);
    }
}

#[test]
fn tls_mismatches_are_dropped_with_the_reason() {
    for (ours, why) in [
        (true, DropReason::NotEncrypted),
        (false, DropReason::Encrypted),
    ] {
        let [server_tls, _] = pair(ours);
        let [_, client_tls] = pair(!ours);
        let (mut server, mut client) = (server(server_tls, 10), Client::new(&client_tls, 77, 5000));
        let hello = client.send(at(0));
        assert_eq!(
            hand(&mut server, at(1), address(5), &hello).unwrap_err(),
            why
        );
        assert_eq!((server.len(), server.counters().total()), (0, 1));
    }
}

#[test]
fn a_server_of_another_fingerprint_is_refused() {
    let ([ours, _], [_, theirs]) = (pair(true), pair(true));
    let (mut server, mut client) = (server(ours, 10), Client::new(&theirs, 77, 5000));
    let (_, answers) = hand(&mut server, at(1), address(5), &client.send(at(0))).unwrap();
    let arrival = client.take(at(2), &answers[0]).unwrap();
    assert!(
        matches!(arrival, DatagramOutcome::HandshakeFailed(77)),
        "{arrival:?}"
    );
    assert_eq!(
        client.endpoint.handshake_error(77),
        Some(&HandshakeError::Fingerprint)
    );
}

#[test]
fn unknown_clients_get_the_reason() {
    let (here, there, other) = (
        Identity::new().unwrap(),
        Identity::new().unwrap(),
        Identity::new().unwrap(),
    );
    for (own, known, why) in [
        (Some(&there), &there, None),
        (Some(&other), &there, Some(HandshakeError::Unknown)),
        (None, &there, Some(HandshakeError::Nameless)),
    ] {
        let mut server = server(
            Some(Tls::server(&here, &[known.fingerprint()]).unwrap()),
            10,
        );
        let client_tls = Some(Tls::client(Some(here.fingerprint()), own).unwrap());
        let mut client = Client::new(&client_tls, 77, 5000);
        let first = opened(&mut server, &mut client, address(5));
        let (arrival, answers) = hand(&mut server, at(3), address(5), &first[0]).unwrap();
        let Some(why) = why else {
            assert!(matches!(arrival, DatagramOutcome::Nothing), "{arrival:?}");
            let last = hand(&mut server, at(3), address(5), &first[1]).unwrap().0;
            assert!(matches!(last, DatagramOutcome::Accepted { .. }), "{last:?}");
            continue;
        };
        let told = client.take(at(4), &answers[0]).unwrap();
        assert!(
            matches!(told, DatagramOutcome::HandshakeFailed(77)),
            "{told:?}"
        );
        assert_eq!(client.endpoint.handshake_error(77), Some(&why));
        assert_eq!((server.len(), server.pending()), (0, 0));
        assert_eq!(
            hand(&mut server, at(5), address(5), &first[1]).unwrap_err(),
            DropReason::UnknownConnection
        );
    }
}

#[test]
fn an_answer_is_at_most_three_times_its_hello() {
    for tls in [false, true] {
        let [ours, theirs] = pair(tls);
        let mut server = server(ours, 10);
        let hello = Client::new(&theirs, 77, 5000).send(at(0));
        assert_eq!(hello.len(), DATAGRAM_BYTES, "a hello fills the datagram");
        let mut answered = 0;
        for length in 0..hello.len() {
            if let Ok((_, answers)) = hand(&mut server, at(1), address(5), &hello[..length]) {
                let bytes: usize = answers.iter().map(Vec::len).sum();
                let most = if tls {
                    ANTI_AMPLIFICATION_FACTOR * length
                } else {
                    length
                };
                assert!(bytes <= most, "{bytes} bytes for {length}");
                assert!(answers.iter().all(|answer| answer.len() <= length));
                answered += 1;
            }
        }
        assert!(answered > 500);
    }
}

#[test]
fn after_256_handshakes_unknown_clients_need_a_cookie() {
    let [ours, theirs] = pair(true);
    let mut server = server(ours, 10);
    let hello = Client::new(&theirs, 77, 5000).send(at(0));
    let forged = |n: usize| SocketAddr::from(([198, 51, (n / 200) as u8, (n % 200) as u8], 4000));
    let took = allocation_counter::measure(|| {
        for n in 0..PENDING_HANDSHAKES_MAX {
            let (_, answers) = hand(&mut server, at(1), forged(n), &hello).unwrap();
            assert!(answers[0].len() > 500);
        }
    });
    assert_eq!(server.pending(), PENDING_HANDSHAKES_MAX);
    let each = took.bytes_current / PENDING_HANDSHAKES_MAX as i64;
    assert!(
        (1_000..8_500).contains(&each),
        "a handshake takes {each} bytes of memory"
    );

    // The next client gets a small stateless answer.
    let mut client = Client::new(&theirs, 78, 5000);
    let hello = client.send(at(1));
    let (_, answers) = hand(&mut server, at(2), address(5), &hello).unwrap();
    assert!(answers.len() == 1 && answers[0].len() < 60, "{answers:?}");
    assert_eq!(server.pending(), PENDING_HANDSHAKES_MAX);
    let arrival = client.take(at(3), &answers[0]).unwrap();
    assert!(
        matches!(arrival, DatagramOutcome::HelloRequested(78)),
        "{arrival:?}"
    );

    // With the cookie the handshake continues, but only from the client's address.
    let hello = client.send(at(3));
    assert_eq!(
        hand(&mut server, at(4), address(6), &hello).unwrap_err(),
        DropReason::UnknownConnection
    );
    let (_, answers) = hand(&mut server, at(4), address(5), &hello).unwrap();
    client.take(at(5), &answers[0]).unwrap();
    let first = client.send_all(at(5));
    let arrival = hand_all(&mut server, at(6), address(5), &first).unwrap();
    assert!(
        matches!(arrival, DatagramOutcome::Accepted { .. }),
        "{arrival:?}"
    );

    // Abandoned handshakes have expired.
    let mut late = Client::new(&theirs, 79, 5000);
    let (_, answers) = hand(&mut server, at(20_000), address(7), &late.send(at(20_000))).unwrap();
    assert!(answers[0].len() > 500);
    assert_eq!(server.pending(), 1);
}

#[test]
fn one_address_cannot_take_all_the_places_of_those_that_are_proved() {
    let [ours, theirs] = pair(true);
    let mut server = server(ours.map(Tls::with_retry), 10);
    let begun = (1..100).filter(|&id| {
        let mut client = Client::new(&theirs, id, 5000);
        let (_, answers) = hand(&mut server, at(1), address(5), &client.send(at(0))).unwrap();
        client.take(at(2), &answers[0]).unwrap();
        hand(&mut server, at(3), address(5), &client.send(at(2))).is_ok()
    });
    let begun = begun.count();
    assert_eq!((begun, server.pending()), (16, 16));
    let mut other = Client::new(&theirs, 200, 5000);
    let (_, answers) = hand(&mut server, at(4), address(6), &other.send(at(0))).unwrap();
    other.take(at(5), &answers[0]).unwrap();
    assert!(hand(&mut server, at(6), address(6), &other.send(at(5))).is_ok());
}

#[test]
fn many_addresses_with_handshakes_that_do_not_end_keep_no_newcomer_out() {
    let [ours, theirs] = pair(true);
    let mut server = server(ours.map(Tls::with_retry), 10);
    let mut begin = |host: u8, id: u64| {
        let mut client = Client::new(&theirs, id, 5000);
        let (_, answers) = hand(&mut server, at(1), address(host), &client.send(at(0))).unwrap();
        client.take(at(2), &answers[0]).unwrap();
        let answered = hand(&mut server, at(3), address(host), &client.send(at(2)));
        (
            answered.map(|(_, answers)| (client, answers)),
            server.pending(),
        )
    };
    for host in 10..30 {
        for id in 0..16 {
            begin(host, 1_000 + u64::from(host) * 16 + id)
                .0
                .expect("a handshake");
        }
    }
    let (answered, pending) = begin(5, 7);
    assert_eq!(
        pending, PENDING_HANDSHAKES_MAX,
        "the memory for handshakes is bounded"
    );
    let (mut client, answers) = answered.expect("a new client gets a reply");
    for answer in &answers {
        client.take(at(4), answer).unwrap();
    }
    let mut ended = client.send_all(at(5)).into_iter();
    assert!(
        ended.any(|datagram| matches!(
            hand(&mut server, at(6), address(5), &datagram),
            Ok((DatagramOutcome::Accepted { .. }, _))
        )),
        "the new client's handshake completes"
    );
}

#[test]
fn a_handshake_in_small_datagrams_in_any_order_comes_to_its_end() {
    let here = Identity::new().unwrap();
    let there = Identity::new().unwrap();
    let narrow = || {
        let config = TransportConfig {
            mss: mss(HELLO_BYTES_MIN, true, false),
            ..TransportConfig::default()
        };
        Arc::new(config)
    };
    let server_tls = Tls::server(&here, &[there.fingerprint()]).unwrap();
    let mut server = Endpoint::new(narrow(), HELLO_BYTES_MIN, Some(server_tls));
    server.listen([9; 32], ListenLimits::connections(1));
    let client_tls = Tls::client(Some(here.fingerprint()), Some(&there)).unwrap();
    let mut client = Client::new(&None, 77, 5000);
    client.endpoint = Endpoint::new(narrow(), HELLO_BYTES_MIN, Some(client_tls));
    assert_eq!(client.endpoint.connect(address(1), 77), Ok(true));
    client.connection = Connection::connect(&narrow(), at(0));
    client.connection.write(5000);

    let hello = client.send(at(0));
    let (_, answers) = hand(&mut server, at(1), address(5), &hello).unwrap();
    assert!(answers.len() >= 2, "{} datagrams", answers.len());
    // Later datagrams cannot be opened before the first; they are retransmitted.
    for answer in answers.iter().rev() {
        let _ = client.take(at(2), answer);
    }
    let (_, answers) = hand(&mut server, at(3), address(5), &hello).unwrap();
    let last = answers
        .iter()
        .rev()
        .map(|answer| client.take(at(4), answer));
    assert!(
        last.last().unwrap().is_ok()
            && client.connection.state() == ccplane_transport::ConnectionState::ValidatingAddress,
        "the client gets a reply"
    );
    let mut first = client.send_all(at(5));
    let data = first.pop().unwrap();
    assert!(!first.is_empty(), "the certificate arrives before data");
    // Truncated datagrams are rejected; the order does not matter.
    for datagram in first.iter().rev() {
        assert!(
            hand(
                &mut server,
                at(6),
                address(5),
                &datagram[..datagram.len() - 1]
            )
            .is_err()
        );
        assert!(matches!(
            hand(&mut server, at(6), address(5), datagram).unwrap().0,
            DatagramOutcome::Nothing
        ));
    }
    let arrival = hand(&mut server, at(6), address(5), &data).unwrap().0;
    assert!(
        matches!(arrival, DatagramOutcome::Accepted { .. }),
        "{arrival:?}"
    );
}

/// A driver's answer buffer is much smaller than the largest hello.
#[test]
fn hellos_of_all_sizes_are_answered_into_a_small_buffer() {
    for size in [HELLO_BYTES_MIN, 600, 1472, 9000, 65_507] {
        let [ours, theirs] = pair(true);
        let mut server = Endpoint::new(config(), size, ours);
        server.listen([9; 32], ListenLimits::connections(1));
        let mut client = Endpoint::new(config(), size, theirs);
        assert_eq!(client.connect(address(1), 7), Ok(true));
        let mut connection = Connection::connect(&config(), at(0));
        let open = connection
            .transmit(at(0), 0, &mut SideData::default())
            .unwrap();
        let (mut hello, mut out, mut side) = (vec![0; size], [0; 2048], SideData::default());
        assert_eq!(
            client
                .write(
                    7,
                    &open,
                    &mut side,
                    &mut hello,
                    |_| Proof::default(),
                    |_| ()
                )
                .unwrap()
                .0,
            size
        );
        let arrival = server.receive(at(1), address(5), &mut hello, &mut side, &mut out);
        let Ok(DatagramOutcome::Answer(length, each)) = arrival else {
            panic!("{arrival:?}")
        };
        let answers = out[..length].chunks_mut(each);
        let last = answers
            .map(|answer| client.receive(at(2), address(1), answer, &mut side, &mut []))
            .last();
        assert!(
            matches!(last, Some(Ok(DatagramOutcome::Segment(7, ..)))),
            "{size}: {last:?}"
        );
    }
}

#[test]
fn connections_are_limited_and_clients_accept_none() {
    let mut server = server(None, 1);
    let mut first = Client::new(&None, 77, 5000);
    let mut second = Client::new(&None, 78, 5000);
    let data = opened(&mut server, &mut first, address(5));
    let late = opened(&mut server, &mut second, address(6));
    assert!(hand_all(&mut server, at(3), address(5), &data).is_ok());
    assert_eq!(
        hand_all(&mut server, at(3), address(6), &late).unwrap_err(),
        DropReason::TooManyConnections
    );
    let hello = Client::new(&None, 79, 1).send(at(3));
    assert_eq!(
        hand(&mut server, at(3), address(7), &hello).unwrap_err(),
        DropReason::TooManyConnections
    );
    assert_eq!(
        hand(&mut first.endpoint, at(3), address(7), &hello).unwrap_err(),
        DropReason::NotListening
    );
}

#[test]
fn a_full_server_counts_late_datagrams_as_unknown() {
    let [ours, theirs] = pair(true);
    let (mut server, mut client) = (server(ours, 1), Client::new(&theirs, 77, 5000));
    let first = opened(&mut server, &mut client, address(5));
    assert!(hand_all(&mut server, at(3), address(5), &first).is_ok());
    let envelope = Envelope {
        to: 5,
        from: Some(ClientAddress { id: 78, mss: 1000 }),
        cover: Cover::Sealed {
            phase: false,
            number: 9,
        },
    };
    let mut late = [0; 100];
    envelope.write(&mut late).unwrap();
    assert_eq!(
        hand(&mut server, at(4), address(6), &late).unwrap_err(),
        DropReason::UnknownConnection
    );
}

#[test]
fn garbage_of_any_kind_makes_no_connection() {
    for tls in [false, true] {
        let mut server = server(pair(tls)[0].clone(), 10);
        let mut random = 1u64;
        for _ in 0..20_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let length = (random >> 40) as usize % if tls { 800 } else { 100 };
            let mut datagram: Vec<u8> = (0..length).map(|i| (random >> (i % 57)) as u8).collect();
            if let Some(first) = datagram.first_mut() {
                *first = VERSION << 4 | *first & 15;
            }
            let _ = hand(&mut server, at(random % 1000), address(5), &datagram);
        }
        assert_eq!((server.len(), server.pending()), (0, 0));
        assert!(server.counters().total() > 19_000);
    }
}

#[test]
fn a_hello_from_port_0_is_dropped_and_not_answered() {
    let (mut server, mut client) = (server(None, 10), Client::new(&None, 77, 5000));
    let hello = client.send(at(0));
    let nowhere = SocketAddr::from(([192, 0, 2, 5], 0));
    assert_eq!(
        hand(&mut server, at(1), nowhere, &hello).unwrap_err(),
        DropReason::SourcePortZero
    );
    assert_eq!(server.counters().unknown, 1);
}

#[test]
fn a_datagram_of_version_1_is_dropped_and_says_which_version_to_use() {
    let mut server = server(pair(true)[0].clone(), 10);
    let why = hand(&mut server, at(1), address(5), &[0x13; 1200]).unwrap_err();
    assert_eq!(why, DropReason::Malformed(CodecError::Version(1)));
    assert!(why.to_string().contains("instead of 3"), "{why}");
}

#[test]
fn an_address_that_has_its_share_is_refused_and_another_one_is_not() {
    let limits = ListenLimits {
        connections: 64,
        per_address: 2,
    };
    let mut server = Endpoint::new(config(), DATAGRAM_BYTES, None);
    server.listen([9; 32], limits);
    for id in 1..=2 {
        let mut client = Client::new(&None, id, 5000);
        let first = opened_beside(&mut server, &mut client);
        let arrival = hand_all(&mut server, at(3), address(5), &first).unwrap();
        assert!(
            matches!(arrival, DatagramOutcome::Accepted { .. }),
            "{arrival:?}"
        );
    }
    let hello = Client::new(&None, 3, 5000).send(at(0));
    assert_eq!(
        hand(&mut server, at(4), address(5), &hello).unwrap_err(),
        DropReason::TooManyConnections
    );
    assert!(hand(&mut server, at(4), address(6), &hello).is_ok());
}

/// Like [`opened`], for a server that already has connections.
fn opened_beside(server: &mut Endpoint, client: &mut Client) -> Vec<Vec<u8>> {
    let (_, answers) = hand(server, at(1), address(5), &client.send(at(0))).unwrap();
    client.take(at(2), &answers[0]).unwrap();
    client.send_all(at(2))
}

/// The path drops datagrams longer than 1,020 bytes, so the hello of 996 bytes is the largest that
/// is answered.
#[test]
fn the_longest_hello_that_is_answered_says_what_the_path_carries() {
    for (tls, retry) in [(false, false), (true, false), (true, true)] {
        let [ours, theirs] = pair(tls);
        let ours = if retry {
            ours.map(Tls::with_retry)
        } else {
            ours
        };
        let mut server = server(ours, 4);
        let mut client = Client::new(&theirs, 5, 10_000);
        client.send(at(0));
        client.connection.on_timeout(at(1000), &mut client.control);
        let again = client
            .connection
            .transmit(at(1000), 0, &mut SideData::default())
            .unwrap();
        let mut answers = Vec::new();
        for step in 1..=hello_sizes(DATAGRAM_BYTES).count() {
            let mut hello = again;
            hello.transmission = step as u8;
            let mut out = vec![0; DATAGRAM_BYTES];
            let written = client.endpoint.write(
                5,
                &hello,
                &mut SideData::default(),
                &mut out,
                |_| Proof::default(),
                |_| (),
            );
            let (length, _) = written.unwrap();
            assert_eq!(length, hello_sizes(DATAGRAM_BYTES).nth(step - 1).unwrap());
            if length <= 1020 {
                answers.push(
                    hand(&mut server, at(1010), address(2), &out[..length])
                        .unwrap()
                        .1,
                );
            }
        }
        assert!(answers.len() >= 2);
        client.take(at(1020), &answers.remove(0)[0]).unwrap();
        assert_eq!(client.endpoint.size(5), Some(996));
        if retry {
            let hello = client.send(at(1030));
            assert_eq!(
                hello.len(),
                996,
                "the cookie is returned in a datagram that fits the path"
            );
            let (_, answers) = hand(&mut server, at(1040), address(2), &hello).unwrap();
            client.take(at(1050), &answers[0]).unwrap();
            assert_eq!(client.endpoint.size(5), Some(996));
        }
        assert_eq!(
            client.endpoint.size_max(5),
            Some(DATAGRAM_BYTES),
            "the path MTU may grow"
        );
        assert_eq!(
            client.connection.mss(),
            u64::from(config().mss) - (DATAGRAM_BYTES as u64 - 996)
        );
        let first = client.send_all(at(1060));
        assert!(first.iter().all(|datagram| datagram.len() <= 996));
        let arrival = hand_all(&mut server, at(1070), address(2), &first).unwrap();
        let DatagramOutcome::Accepted { open, .. } = arrival else {
            panic!("{arrival:?}")
        };
        assert_eq!(
            u64::from(open.length),
            client.connection.mss(),
            "nothing more is sent to the client"
        );
    }
}

/// Frequent key updates in both directions with reordered, lost and duplicated packets: every new
/// packet can be opened.
#[test]
fn keys_are_renewed_while_packets_come_in_any_order() {
    let [ours, theirs] = pair(true);
    let renewing = |tls: Option<Tls>| tls.map(|tls| tls.with_rekey_after(20));
    let (mut server, mut client) = (
        server(renewing(ours), 4),
        Client::new(&renewing(theirs), 77, 5000),
    );
    let id = accepted(&mut server, &mut client);
    let (mut random, mut late, mut opened) = (7u64, Vec::new(), 0);
    for n in 0..2_000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mut data = Segment::default();
        (data.kind, data.length, data.transmission) = (SegmentKind::Data, 100, 1);
        let mut out = vec![0; DATAGRAM_BYTES];
        let to_server = random >> 63 == 0;
        let (endpoint, by) = if to_server {
            (&mut client.endpoint, 77)
        } else {
            (&mut server, id)
        };
        let fill = |payload: &mut [u8]| payload.fill(n as u8);
        let (length, _) = endpoint
            .write(
                by,
                &data,
                &mut SideData::default(),
                &mut out,
                |_| Proof::default(),
                fill,
            )
            .unwrap();
        out.truncate(length);
        match random >> 60 & 7 {
            0 => continue,
            1 | 2 => late.insert(late.len().saturating_sub(1), (to_server, out)),
            _ => late.push((to_server, out)),
        }
        while late.len() > 3 {
            let (to_server, mut datagram) = late.remove(0);
            let copy = datagram.clone();
            let (endpoint, from) = if to_server {
                (&mut server, address(5))
            } else {
                (&mut client.endpoint, address(1))
            };
            let arrival = endpoint.receive(
                at(9),
                from,
                &mut datagram,
                &mut SideData::default(),
                &mut [0; DATAGRAM_BYTES],
            );
            assert!(
                matches!(arrival, Ok(DatagramOutcome::Segment(..))),
                "{arrival:?} at {n}"
            );
            let again = endpoint.receive(
                at(9),
                from,
                &mut copy.clone(),
                &mut SideData::default(),
                &mut [0; DATAGRAM_BYTES],
            );
            assert_eq!(again.unwrap_err(), DropReason::Replayed);
            opened += 1;
        }
    }
    let (here, there) = (client.endpoint.key_updates(77), server.key_updates(id));
    assert!(
        opened > 1_500 && here > 30 && here.abs_diff(there) <= 1,
        "{opened} {here} {there}"
    );
}

#[test]
fn a_probe_has_the_size_that_is_tried_and_its_answer_is_small() {
    for tls in [false, true] {
        let [ours, theirs] = pair(tls);
        let (mut server, mut client) = (server(ours, 10), Client::new(&theirs, 77, 5000));
        let id = accepted(&mut server, &mut client);
        // The connection uses smaller datagrams meanwhile; probes do not.
        client.endpoint.set_size(client.id, 600);
        let mut probe = Segment::default();
        (probe.kind, probe.length) = (SegmentKind::PathProbe, DATAGRAM_BYTES as u16);
        let mut out = vec![0; DATAGRAM_BYTES];
        let written = client.endpoint.write(
            client.id,
            &probe,
            &mut SideData::default(),
            &mut out,
            |_| Proof::default(),
            |_| (),
        );
        assert_eq!(written, Some((DATAGRAM_BYTES, address(1))));
        let (arrival, _) = hand(&mut server, at(4), address(5), &out).unwrap();
        assert!(matches!(
            arrival,
            DatagramOutcome::Segment(found, segment, ..)
                if found == id && segment.kind == SegmentKind::PathProbe
        ));
        let mut reply = Segment::default();
        (reply.kind, reply.length) = (SegmentKind::PathReply, DATAGRAM_BYTES as u16);
        let mut out = vec![0; DATAGRAM_BYTES];
        let (length, _) = server
            .write(
                id,
                &reply,
                &mut SideData::default(),
                &mut out,
                |_| Proof::default(),
                |_| (),
            )
            .unwrap();
        assert!(length < 100, "{length}");
        let (mut datagram, mut side) = (out[..length].to_vec(), SideData::default());
        let arrival = client.endpoint.receive(
            at(5),
            address(1),
            &mut datagram,
            &mut side,
            &mut [0; DATAGRAM_BYTES],
        );
        assert!(matches!(
            arrival,
            Ok(DatagramOutcome::Segment(_, segment, ..))
                if segment.length == DATAGRAM_BYTES as u16
        ));
        // The connection itself ignores path probes and replies.
        let before = client.connection.stats();
        client
            .connection
            .handle(at(5), &reply, &SideData::default(), &mut client.control);
        assert_eq!(client.connection.stats(), before);
    }
}

#[test]
fn the_client_limit_is_respected() {
    let (mut server, client) = (server(None, 10), Client::new(&None, 77, 5000));
    let narrow = Arc::new(TransportConfig {
        mss: config().mss - 200,
        ..(*config()).clone()
    });
    let mut endpoint = Endpoint::new(narrow.clone(), DATAGRAM_BYTES, None);
    assert_eq!(endpoint.connect(address(1), 78), Ok(true));
    let mut connection = Connection::connect(&narrow, at(0));
    connection.write(5000);
    let mut client = Client {
        endpoint,
        connection,
        id: 78,
        ..client
    };
    let id = accepted(&mut server, &mut client);
    assert_eq!(
        (server.size(id), server.size_max(id)),
        (Some(DATAGRAM_BYTES - 200), Some(DATAGRAM_BYTES - 200))
    );
}

#[test]
fn the_server_limit_is_respected() {
    let narrow = Arc::new(TransportConfig {
        mss: config().mss - 200,
        ..(*config()).clone()
    });
    let mut server = Endpoint::new(narrow, DATAGRAM_BYTES, None);
    server.listen([9; 32], ListenLimits::connections(1));
    let mut client = Client::new(&None, 77, 5000);
    opened(&mut server, &mut client, address(5));
    let id = client.id;
    let sizes = (client.endpoint.size(id), client.endpoint.size_max(id));
    assert_eq!(
        sizes,
        (Some(DATAGRAM_BYTES - 200), Some(DATAGRAM_BYTES - 200))
    );
}

/// Segments have at least 48 bytes even if the peer announces a smaller MSS; datagrams must have
/// room for them.
#[test]
fn tiny_client_limits_are_raised_to_the_minimum() {
    let tiny = Arc::new(TransportConfig {
        mss: 1,
        ..(*config()).clone()
    });
    let mut server = server(None, 10);
    let mut client = Client::new(&None, 77, 5000);
    client.endpoint = Endpoint::new(tiny.clone(), DATAGRAM_BYTES, None);
    assert_eq!(client.endpoint.connect(address(1), 77), Ok(true));
    client.connection = Connection::connect(&tiny, at(0));
    client.connection.write(5000);
    let first = opened(&mut server, &mut client, address(5));
    let arrival = hand_all(&mut server, at(3), address(5), &first).unwrap();
    let DatagramOutcome::Accepted {
        id, open, segment, ..
    } = arrival
    else {
        panic!("{arrival:?}")
    };
    let mut connection = Connection::accept(&config(), at(3), &open).unwrap();
    connection.transmit(at(3), 0, &mut SideData::default());
    connection.handle(at(3), &segment, &SideData::default(), &mut Native::cubic());
    connection.write(5000);
    let data = connection
        .transmit(at(3), 0, &mut SideData::default())
        .unwrap();
    assert_eq!((data.kind, data.length), (SegmentKind::Data, PEER_MSS_MIN));
    let written = server.write(
        id,
        &data,
        &mut SideData::default(),
        &mut [0; DATAGRAM_BYTES],
        |_| Proof::default(),
        |_| (),
    );
    assert!(written.is_some());
}
