//! A receiver over UDP that conceals losses, under TLS: the sender gives it up.
#![expect(clippy::disallowed_methods, reason = "a test in real time")]

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ccplane_link::identity::Identity;
use ccplane_transport::{Config, Connection, Failure, Kind, Native, Number, Segment, Side, State};
use ccplane_udp::endpoint::{Arrival, Endpoint, Limits, mss};
use ccplane_udp::{Congestion, DATAGRAM, Host, Options, Stamping, Tls};
use ccplane_units::{Duration, Time};

/// One datagram in so many is lost on the way to the receiver.
const LOST: u64 = 50;

/// A receiver that acknowledges everything up to the last segment that came, whatever was lost before it.
struct Liar {
    socket: UdpSocket,
    endpoint: Endpoint,
    config: Arc<Config>,
    connection: Option<(u64, Connection)>,
    control: Native,
    furthest: Number,
    datagrams: u64,
    now: Time,
}

impl Liar {
    fn new(tls: Tls) -> Liar {
        let config = Arc::new(Config {
            mss: mss(DATAGRAM, true, false),
            discard: true,
            ..Config::default()
        });
        let mut endpoint = Endpoint::new(config.clone(), DATAGRAM, Some(tls));
        endpoint.listen([7; 32], Limits::connections(1));
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket
            .set_read_timeout(Some(std::time::Duration::from_millis(20)))
            .expect("a timeout");
        Liar {
            socket,
            endpoint,
            config,
            connection: None,
            control: Native::cubic(),
            furthest: Number(0),
            datagrams: 0,
            now: Time::ZERO + Duration::from_secs(100),
        }
    }

    fn receive(&mut self) {
        let (mut datagram, mut answer, mut side) = ([0; 2048], [0; 2048], Side::default());
        let Ok((length, from)) = self.socket.recv_from(&mut datagram) else {
            return;
        };
        self.now += Duration::from_micros(10);
        let bytes = &mut datagram[..length];
        let arrival = self.endpoint.receive(self.now, from, bytes, &mut side, &mut answer);
        let (segment, proof) = match arrival {
            Ok(Arrival::Answer(length, each)) => {
                for part in answer[..length].chunks(each) {
                    self.socket.send_to(part, from).expect("an answer leaves");
                }
                return;
            }
            Ok(Arrival::Accepted {
                id,
                open,
                segment,
                proof,
                ..
            }) => {
                let mut connection = Connection::accept(&self.config, self.now, &open).expect("a connection");
                connection.transmit(self.now, 0, &mut Side::default());
                self.connection = Some((id, connection));
                (segment, proof)
            }
            Ok(Arrival::Segment(_, segment, proof, _)) => (segment, proof),
            _ => return,
        };
        let Some((_, connection)) = &mut self.connection else {
            return;
        };
        self.datagrams += 1;
        if segment.kind == Kind::Data {
            self.furthest = self.furthest.later(segment.number.plus(1));
        }
        if !self.datagrams.is_multiple_of(LOST) {
            connection.handle_proved((self.now, self.now), &segment, &side, &proof, &mut self.control);
        }
    }

    fn acknowledge(&mut self) {
        let Some((id, connection)) = &mut self.connection else {
            return;
        };
        let mut side = Side::default();
        while let Some(mut segment) = connection.transmit(self.now, 0, &mut side) {
            let proof = connection.prove(&segment, &side);
            if segment.kind == Kind::Ack {
                segment.ack = self.furthest;
                segment.window = 1 << 24;
                segment.flags &= !Segment::SIDE;
            }
            let mut out = [0; 2048];
            let written = self
                .endpoint
                .write(*id, &segment, &mut side, &mut out, |_| proof, |_| ());
            if let Some((length, to)) = written {
                let _ = self.socket.send_to(&out[..length], to);
            }
            side = Side::default();
        }
    }
}

#[test]
fn a_receiver_that_conceals_losses_is_disconnected_with_the_reason() {
    let identity = Identity::new().expect("a certificate");
    let mut liar = Liar::new(Tls::server(&identity, &[]).expect("a configuration"));
    let to = liar.socket.local_addr().expect("an address");
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let thread = thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            liar.receive();
            liar.acknowledge();
        }
        liar
    });
    let mut host = Host::bind(Options {
        local: "127.0.0.1:0".parse().expect("an address"),
        datagram: DATAGRAM,
        window: 4 << 20,
        tls: Some(Tls::client(Some(identity.fingerprint()), None).expect("a configuration")),
        dscp: 0,
        config: Config {
            idle_timeout: Duration::from_secs(5),
            ..Config::default()
        },
        stamping: Stamping::Off,
        link: None,
        accepted: Native::cubic(),
    })
    .expect("a host");
    let id = host
        .connect(to, Congestion::Native(Native::cubic()))
        .expect("a connection");
    let failure = loop {
        let room = host.room(id).len();
        host.wrote(id, room);
        host.turn(Duration::from_millis(10)).expect("the socket works");
        let connection = host.connection(id).expect("it is there");
        // Without a proof the sender goes on for as long as it is lied to.
        assert!(connection.stats().acked < 100_000_000, "{:?}", connection.stats());
        if let Some(why) = connection.failure() {
            break why;
        }
    };
    assert_eq!(failure, Failure::FalseReceipt);
    let text = failure.to_string();
    assert!(text.contains("acknowledged data that it did not get"), "{text}");
    // The receiver is told that it is over.
    host.turn(Duration::ZERO).expect("the socket works");
    let deadline = std::time::Duration::from_millis(100);
    thread::sleep(deadline);
    stop.store(true, Ordering::Relaxed);
    let liar = thread.join().expect("it ends");
    let (_, connection) = liar.connection.expect("a connection");
    assert!(liar.datagrams >= LOST);
    assert_eq!(
        (connection.state(), connection.failure()),
        (State::Closed, Some(Failure::Reset))
    );
}
