//! An endpoint against clients, strangers and copies, without a socket: datagrams are handed over in memory.

use ccplane_units::Duration;

use super::*;
use ccplane_transport::Native;

const SIZE: usize = 1200;

fn at(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(100_000 + ms)
}

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last], 4000))
}

fn config() -> Arc<Config> {
    Arc::new(Config {
        mss: mss(SIZE, true, false),
        ..Config::default()
    })
}

fn key(byte: Option<u8>) -> Option<Key> {
    byte.map(|byte| Key::from_bytes([byte; 32]))
}

fn server(key_byte: Option<u8>, most: usize) -> Endpoint {
    let mut endpoint = Endpoint::new(config(), SIZE, key(key_byte));
    endpoint.listen([9; 32], Limits::places(most));
    endpoint
}

/// A client with a connection of its own that has written `bytes`.
struct Client {
    endpoint: Endpoint,
    connection: Connection,
    id: u64,
    control: Native,
}

impl Client {
    fn new(key_byte: Option<u8>, id: u64, bytes: u64) -> Client {
        let mut endpoint = Endpoint::new(config(), SIZE, key(key_byte));
        assert!(endpoint.connect(address(1), id));
        let mut connection = Connection::connect(&config(), at(0));
        connection.write(bytes);
        Client {
            endpoint,
            connection,
            id,
            control: Native::cubic(),
        }
    }

    fn send(&mut self, now: Time) -> Option<Vec<u8>> {
        let mut side = Side::default();
        let segment = self.connection.transmit(now, 0, &mut side)?;
        let mut out = vec![0; SIZE];
        let fill = |payload: &mut [u8]| payload.fill(0x77);
        let (length, to) = self.endpoint.write(self.id, &segment, &mut side, &mut out, fill)?;
        assert_eq!(to, address(1));
        out.truncate(length);
        Some(out)
    }

    fn take(&mut self, now: Time, mut datagram: Vec<u8>) -> Result<(), Dropped> {
        let mut side = Side::default();
        match self
            .endpoint
            .receive(now, address(1), &mut datagram, &mut side, &mut [0; SIZE])?
        {
            Arrival::Segment(id, segment, _) => {
                assert_eq!(id, self.id);
                self.connection.handle(now, &segment, &side, &mut self.control);
                Ok(())
            }
            other => panic!("a client got {other:?}"),
        }
    }
}

fn hand(endpoint: &mut Endpoint, now: Time, from: SocketAddr, datagram: &[u8]) -> Result<(Arrival, Vec<u8>), Dropped> {
    let (mut datagram, mut out) = (datagram.to_vec(), vec![0; SIZE]);
    let arrival = endpoint.receive(now, from, &mut datagram, &mut Side::default(), &mut out)?;
    if let Arrival::Answer(length) = arrival {
        out.truncate(length);
    }
    Ok((arrival, out))
}

/// A client that was answered, and its first data.
fn opened(server: &mut Endpoint, client: &mut Client, from: SocketAddr) -> Vec<u8> {
    let hello = client.send(at(0)).unwrap();
    let (arrival, answer) = hand(server, at(1), from, &hello).unwrap();
    assert!(matches!(arrival, Arrival::Answer(_)));
    assert!(
        answer.len() < hello.len() / 4,
        "{} bytes for {}",
        answer.len(),
        hello.len()
    );
    assert_eq!(server.len(), 0, "no state for who has proved nothing");
    client.take(at(2), answer).unwrap();
    let first = client.send(at(2)).unwrap();
    assert_eq!(server.len(), 0);
    first
}

#[test]
fn state_comes_with_the_first_data_of_a_proved_address() {
    for key in [None, Some(3)] {
        let (mut server, mut client) = (server(key, 10), Client::new(key, 77, 5000));
        let first = opened(&mut server, &mut client, address(5));
        // Not from elsewhere, and not later than the identifier is good for.
        assert_eq!(
            hand(&mut server, at(3), address(6), &first).unwrap_err(),
            Dropped::Unknown
        );
        assert_eq!(
            hand(&mut server, at(60_000), address(5), &first).unwrap_err(),
            Dropped::Unknown
        );
        assert_eq!(server.len(), 0);

        let (arrival, _) = hand(&mut server, at(3), address(5), &first).unwrap();
        let Arrival::Accepted { id, open, segment, .. } = arrival else {
            panic!("{arrival:?}")
        };
        assert_eq!((server.len(), open.kind, segment.kind), (1, Kind::Open, Kind::Data));
        assert_eq!(open.length, config().mss);

        // The connection made anew goes on as if it had never been forgotten.
        let mut connection = Connection::accept(&config(), at(3), &open).unwrap();
        let reply = connection.transmit(at(3), 0, &mut Side::default()).unwrap();
        assert_eq!(reply.kind, Kind::OpenReply);
        let mut control = Native::cubic();
        connection.handle(at(3), &segment, &Side::default(), &mut control);
        assert_eq!(connection.readable(), u64::from(segment.length));

        // More data of it is a segment, an exact copy is not under a key.
        let again = hand(&mut server, at(4), address(5), &first);
        match key {
            None => assert!(matches!(again, Ok((Arrival::Segment(found, ..), _)) if found == id)),
            Some(_) => assert_eq!(again.unwrap_err(), Dropped::Replayed),
        }
        // What ended does not begin again by a copy that comes late.
        server.remove(at(5), id);
        assert_eq!(
            hand(&mut server, at(6), address(5), &first).unwrap_err(),
            Dropped::Unknown
        );
    }
}

#[test]
fn nobody_moves_a_connection_without_its_identifiers_and_its_key() {
    for key in [None, Some(3)] {
        let (mut server, mut client) = (server(key, 10), Client::new(key, 77, 50_000));
        let first = opened(&mut server, &mut client, address(5));
        let (arrival, _) = hand(&mut server, at(3), address(5), &first).unwrap();
        let Arrival::Accepted { id, .. } = arrival else {
            panic!("{arrival:?}")
        };

        // A reset by somebody who guesses: of wrong identifiers, of right ones but from elsewhere, of right ones without the key.
        let mut abort = Segment::default();
        abort.kind = Kind::Abort;
        let forged = |to: u64, from: Option<Source>| {
            let mut out = vec![0; 100];
            let envelope = Envelope { to, from, number: None };
            let head = envelope.write(&mut out).unwrap();
            let header = crate::codec::write(&abort, &mut Side::default(), &mut out[head..], 80).unwrap();
            out.truncate(head + header);
            out
        };
        let source = Source { id: 78, mss: 1000 };
        assert_eq!(
            hand(&mut server, at(4), address(5), &forged(id ^ 1, None)).unwrap_err(),
            Dropped::Unknown
        );
        assert_eq!(
            hand(&mut server, at(4), address(6), &forged(id, None)).unwrap_err(),
            Dropped::Moved
        );
        assert_eq!(
            hand(&mut server, at(4), address(5), &forged(id, Some(source))).unwrap_err(),
            Dropped::Unknown
        );
        let right = hand(&mut server, at(4), address(5), &forged(id, None));
        match key {
            None => assert!(
                matches!(right, Ok((Arrival::Segment(..), _))),
                "who knows both identifiers is the peer"
            ),
            Some(_) => assert_eq!(right.unwrap_err(), Dropped::Plain),
        }
        assert_eq!(server.len(), 1);
    }
}

#[test]
fn another_key_or_none_is_dropped_and_counted_by_its_name() {
    for (ours, theirs, why) in [
        (Some(1), Some(2), Dropped::Forged),
        (Some(1), None, Dropped::Plain),
        (None, Some(2), Dropped::Sealed),
    ] {
        let (mut server, mut client) = (server(ours, 10), Client::new(theirs, 77, 5000));
        let hello = client.send(at(0)).unwrap();
        assert_eq!(hand(&mut server, at(1), address(5), &hello).unwrap_err(), why);
        assert_eq!((server.len(), server.counters().total()), (0, 1));
    }
}

#[test]
fn a_hello_is_never_smaller_than_its_answer() {
    for key in [None, Some(3)] {
        let (mut server, mut client) = (server(key, 10), Client::new(key, 77, 5000));
        let hello = client.send(at(0)).unwrap();
        assert_eq!(hello.len(), SIZE, "a hello fills a datagram");
        for length in 0..hello.len() {
            if let Ok((_, answer)) = hand(&mut server, at(1), address(5), &hello[..length]) {
                assert!(answer.len() <= length, "{} bytes for {length}", answer.len());
            }
        }
    }
}

#[test]
fn there_are_only_so_many_connections_and_a_client_answers_nobody() {
    let mut server = server(None, 1);
    let mut first = Client::new(None, 77, 5000);
    let mut second = Client::new(None, 78, 5000);
    let data = opened(&mut server, &mut first, address(5));
    let late = opened(&mut server, &mut second, address(6));
    assert!(hand(&mut server, at(3), address(5), &data).is_ok());
    assert_eq!(hand(&mut server, at(3), address(6), &late).unwrap_err(), Dropped::Full);
    let hello = Client::new(None, 79, 1).send(at(3)).unwrap();
    assert_eq!(hand(&mut server, at(3), address(7), &hello).unwrap_err(), Dropped::Full);
    assert_eq!(
        hand(&mut first.endpoint, at(3), address(7), &hello).unwrap_err(),
        Dropped::Deaf
    );
}

#[test]
fn garbage_of_any_kind_makes_no_connection() {
    let mut server = server(None, 10);
    let mut random = 1u64;
    for _ in 0..20_000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let length = (random >> 40) as usize % 100;
        let mut datagram: Vec<u8> = (0..length).map(|i| (random >> (i % 57)) as u8).collect();
        if let Some(first) = datagram.first_mut() {
            *first = 0x10 | *first & 3;
        }
        let _ = hand(&mut server, at(random % 1000), address(5), &datagram);
    }
    assert_eq!(server.len(), 0);
    assert!(server.counters().total() > 19_000);
}

#[test]
fn a_hello_from_port_0_is_dropped_and_not_answered() {
    let (mut server, mut client) = (server(None, 10), Client::new(None, 77, 5000));
    let hello = client.send(at(0)).unwrap();
    let nowhere = SocketAddr::from(([192, 0, 2, 5], 0));
    assert_eq!(
        hand(&mut server, at(1), nowhere, &hello).unwrap_err(),
        Dropped::Portless
    );
    assert_eq!(server.counters().unknown, 1);
}

#[test]
fn an_address_that_has_its_share_is_refused_and_another_one_is_not() {
    let limits = Limits {
        places: 64,
        memory: 256_000_000,
        address: Some((2, 40_000_000)),
    };
    let mut server = Endpoint::new(config(), SIZE, None);
    server.listen([9; 32], limits);
    for id in 1..=2 {
        let mut client = Client::new(None, id, 5000);
        let hello = client.send(at(0)).unwrap();
        let (_, answer) = hand(&mut server, at(1), address(5), &hello).unwrap();
        client.take(at(2), answer).unwrap();
        let first = client.send(at(2)).unwrap();
        let (arrival, _) = hand(&mut server, at(3), address(5), &first).unwrap();
        assert!(matches!(arrival, Arrival::Accepted { .. }), "{arrival:?}");
    }
    let hello = Client::new(None, 3, 5000).send(at(0)).unwrap();
    assert_eq!(hand(&mut server, at(4), address(5), &hello).unwrap_err(), Dropped::Full);
    assert!(hand(&mut server, at(4), address(6), &hello).is_ok());
}

/// The path drops what is longer than 1,020 bytes: of the hellos of all sizes the one of 996 is the longest that is answered.
#[test]
fn the_longest_hello_that_is_answered_says_what_the_path_carries() {
    for key_byte in [None, Some(7)] {
        let mut server = server(key_byte, 4);
        let mut client = Client::new(key_byte, 5, 10_000);
        client.send(at(0)).unwrap();
        client.connection.on_timeout(at(1000), &mut client.control);
        let again = client.connection.transmit(at(1000), 0, &mut Side::default()).unwrap();
        let mut answers = Vec::new();
        for step in 1..=sizes(SIZE).count() {
            let mut hello = again;
            hello.transmission = step as u8;
            let mut out = vec![0; SIZE];
            let written = client.endpoint.write(5, &hello, &mut Side::default(), &mut out, |_| ());
            let (length, _) = written.unwrap();
            assert_eq!(length, sizes(SIZE).nth(step - 1).unwrap());
            if length <= 1020 {
                answers.push(hand(&mut server, at(1010), address(2), &out[..length]).unwrap().1);
            }
        }
        assert!(answers.len() >= 2);
        client.take(at(1020), answers.remove(0)).unwrap();
        assert_eq!(client.endpoint.size(5), Some(996));
        assert_eq!(client.connection.mss(), u64::from(config().mss) - (SIZE as u64 - 996));
        let first = client.send(at(1020)).unwrap();
        assert!(first.len() <= 996);
        let (arrival, _) = hand(&mut server, at(1030), address(2), &first).unwrap();
        let Arrival::Accepted { open, .. } = arrival else {
            panic!("{arrival:?}")
        };
        assert_eq!(
            u64::from(open.length),
            client.connection.mss(),
            "it sends no more to the client"
        );
    }
}

#[test]
fn a_probe_has_the_size_that_is_tried_and_its_answer_is_small() {
    for key in [None, Some(3)] {
        let (mut server, mut client) = (server(key, 10), Client::new(key, 77, 5000));
        let first = opened(&mut server, &mut client, address(5));
        let (arrival, _) = hand(&mut server, at(3), address(5), &first).unwrap();
        let Arrival::Accepted { id, .. } = arrival else {
            panic!("{arrival:?}")
        };
        // The connection has smaller datagrams meanwhile: probes have not.
        client.endpoint.resize(client.id, 600);
        let mut probe = Segment::default();
        (probe.kind, probe.length) = (Kind::PathProbe, SIZE as u16);
        let mut out = vec![0; SIZE];
        let written = client
            .endpoint
            .write(client.id, &probe, &mut Side::default(), &mut out, |_| ());
        assert_eq!(written, Some((SIZE, address(1))));
        let (arrival, _) = hand(&mut server, at(4), address(5), &out).unwrap();
        assert!(
            matches!(arrival, Arrival::Segment(found, segment, _) if found == id && segment.kind == Kind::PathProbe)
        );
        let mut reply = Segment::default();
        (reply.kind, reply.length) = (Kind::PathReply, SIZE as u16);
        let mut out = vec![0; SIZE];
        let (length, _) = server
            .write(id, &reply, &mut Side::default(), &mut out, |_| ())
            .unwrap();
        assert!(length < 100, "{length}");
        let (mut datagram, mut side) = (out[..length].to_vec(), Side::default());
        let arrival = client
            .endpoint
            .receive(at(5), address(1), &mut datagram, &mut side, &mut [0; SIZE]);
        assert!(matches!(arrival, Ok(Arrival::Segment(_, segment, _)) if segment.length == SIZE as u16));
        // Neither is anything to the connection itself.
        let before = client.connection.stats();
        client
            .connection
            .handle(at(5), &reply, &Side::default(), &mut client.control);
        assert_eq!(client.connection.stats(), before);
    }
}

#[test]
fn a_client_that_takes_less_gets_less() {
    let (mut server, client) = (server(None, 10), Client::new(None, 77, 5000));
    let narrow = Arc::new(Config {
        mss: config().mss - 200,
        ..(*config()).clone()
    });
    let mut endpoint = Endpoint::new(narrow.clone(), SIZE, None);
    assert!(endpoint.connect(address(1), 78));
    let mut connection = Connection::connect(&narrow, at(0));
    connection.write(5000);
    let mut client = Client {
        endpoint,
        connection,
        id: 78,
        ..client
    };
    let first = opened(&mut server, &mut client, address(5));
    let (arrival, _) = hand(&mut server, at(3), address(5), &first).unwrap();
    let Arrival::Accepted { id, .. } = arrival else {
        panic!("{arrival:?}")
    };
    assert_eq!((server.size(id), server.most(id)), (Some(SIZE - 200), Some(SIZE - 200)));
}
