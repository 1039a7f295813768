//! UDP receiver that conceals losses.

use std::net::UdpSocket;
use std::sync::Arc;

use ccplane_transport::{
    Connection, Native, Segment, SegmentKind, SequenceNumber, SideData, TransportConfig,
};
use ccplane_udp::endpoint::{DatagramOutcome, Endpoint, ListenLimits, mss};
use ccplane_udp::{DATAGRAM_BYTES_DEFAULT, Tls};
use ccplane_units::{Duration, Time};

/// One of this many datagrams to the receiver is dropped.
pub const LOST_SEGMENT: u64 = 50;

/// Receiver that acknowledges everything up to the highest segment received, including lost ones.
pub struct Liar {
    pub socket: UdpSocket,
    endpoint: Endpoint,
    config: Arc<TransportConfig>,
    pub connection: Option<(u64, Connection)>,
    control: Native,
    furthest: SequenceNumber,
    pub datagrams: u64,
    now: Time,
}

impl Liar {
    pub fn new(tls: Tls) -> Liar {
        let config = Arc::new(TransportConfig {
            mss: mss(DATAGRAM_BYTES_DEFAULT, true, false),
            discard: true,
            ..TransportConfig::default()
        });
        let mut endpoint = Endpoint::new(config.clone(), DATAGRAM_BYTES_DEFAULT, Some(tls));
        endpoint.listen([7; 32], ListenLimits::connections(1));
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
            furthest: SequenceNumber(0),
            datagrams: 0,
            now: Time::ZERO + Duration::from_secs(100),
        }
    }

    pub fn receive(&mut self) {
        let (mut datagram, mut answer, mut side) = ([0; 2048], [0; 2048], SideData::default());
        let Ok((length, from)) = self.socket.recv_from(&mut datagram) else {
            return;
        };
        self.now += Duration::from_micros(10);
        let bytes = &mut datagram[..length];
        let arrival = self
            .endpoint
            .receive(self.now, from, bytes, &mut side, &mut answer);
        let (segment, proof) = match arrival {
            Ok(DatagramOutcome::Answer(length, each)) => {
                for part in answer[..length].chunks(each) {
                    self.socket.send_to(part, from).expect("a reply is sent");
                }
                return;
            }
            Ok(DatagramOutcome::Accepted {
                id,
                open,
                segment,
                proof,
                ..
            }) => {
                let mut connection =
                    Connection::accept(&self.config, self.now, &open).expect("a connection");
                connection.transmit(self.now, 0, &mut SideData::default());
                self.connection = Some((id, connection));
                (segment, proof)
            }
            Ok(DatagramOutcome::Segment(_, segment, proof, _)) => (segment, proof),
            _ => return,
        };
        let Some((_, connection)) = &mut self.connection else {
            return;
        };
        self.datagrams += 1;
        if segment.kind == SegmentKind::Data {
            self.furthest = self.furthest.max(segment.number.wrapping_add(1));
        }
        if !self.datagrams.is_multiple_of(LOST_SEGMENT) {
            connection.handle_with_proof(
                (self.now, self.now),
                &segment,
                &side,
                &proof,
                &mut self.control,
            );
        }
    }

    pub fn acknowledge(&mut self) {
        let Some((id, connection)) = &mut self.connection else {
            return;
        };
        let mut side = SideData::default();
        while let Some(mut segment) = connection.transmit(self.now, 0, &mut side) {
            let proof = connection.prove(&segment, &side);
            if segment.kind == SegmentKind::Ack {
                segment.ack = self.furthest;
                segment.window = 1 << 24;
                segment.flags &= !Segment::SIDE_FLAG;
            }
            let mut out = [0; 2048];
            let written =
                self.endpoint
                    .write(*id, &segment, &mut side, &mut out, |_| proof, |_| ());
            if let Some((length, to)) = written {
                let _ = self.socket.send_to(&out[..length], to);
            }
            side = SideData::default();
        }
    }
}
