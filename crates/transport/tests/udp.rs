//! The UDP driver over loopback: two hosts, each on its thread, and whoever else sends to them.
#![cfg(feature = "udp")]

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ccplane_transport::crypto::Key;
use ccplane_transport::udp::{Congestion, DATAGRAM, Host, Options};
use ccplane_transport::{Config, Failure, Native, State, Stats};
use ccplane_units::Duration;

fn options(key: Option<u8>) -> Options {
    Options {
        local: "127.0.0.1:0".parse().unwrap(),
        datagram: DATAGRAM,
        window: 4 << 20,
        key: key.map(|byte| Key::from_bytes([byte; 32])),
        dscp: 0,
        config: Config {
            idle_timeout: Duration::from_secs(5),
            open_retries: 1,
            ..Config::default()
        },
        accepted: Native::cubic(),
    }
}

const WAIT: Duration = Duration::from_millis(20);

fn byte(seed: u8, at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 ^ seed
}

/// A listening host, on a thread of its own, that says back how many bytes came and whether they were right.
struct Server {
    address: SocketAddr,
    stop: std::sync::Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<Host>>,
}

impl Server {
    fn start(options: Options) -> Server {
        let mut host = Host::bind(options).unwrap();
        host.listen(8).unwrap();
        let address = host.local();
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            let mut live: Vec<(u64, u64, bool)> = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                host.turn(WAIT).unwrap();
                while let Some(id) = host.accepted() {
                    live.push((id, 0, false));
                }
                live.retain_mut(|(id, at, answered)| {
                    let (first, second) = host.arrived(*id);
                    let pieces = [first.to_vec(), second.to_vec()].concat();
                    for (index, found) in pieces.iter().enumerate() {
                        let place = *at + index as u64;
                        // The first byte says which stream it is.
                        assert!(place == 0 || *found == byte(0, place), "byte {place} is wrong");
                    }
                    *at += pieces.len() as u64;
                    host.take(*id, pieces.len());
                    let connection = host.connection(*id).unwrap();
                    let (ended, over) = (connection.received_all(), connection.failure().is_some());
                    if ended && !*answered {
                        host.room(*id)[..8].copy_from_slice(&at.to_be_bytes());
                        host.wrote(*id, 8);
                        host.finish(*id);
                        *answered = true;
                    }
                    let gone = over || host.connection(*id).unwrap().sent_all();
                    if gone {
                        host.remove(*id);
                    }
                    !gone
                });
            }
            host
        });
        Server {
            address,
            stop,
            thread: Some(thread),
        }
    }

    fn end(mut self) -> Host {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

/// Sends so many bytes, and waits for the answer.
fn send(host: &mut Host, to: SocketAddr, bytes: u64, congestion: Congestion) -> Result<Stats, Failure> {
    let id = host.connect(to, congestion).unwrap();
    let (mut at, mut answer) = (0, Vec::new());
    loop {
        while at < bytes {
            let room = host.room(id);
            let part = room.len().min((bytes - at) as usize);
            if part == 0 {
                break;
            }
            for (index, place) in room[..part].iter_mut().enumerate() {
                *place = byte(0, at + index as u64);
            }
            host.wrote(id, part);
            at += part as u64;
        }
        if at == bytes {
            host.finish(id);
        }
        host.turn(WAIT).unwrap();
        let (first, second) = host.arrived(id);
        answer.extend([first, second].concat());
        host.take(id, answer.len());
        let connection = host.connection(id).unwrap();
        if let Some(why) = connection.failure() {
            host.remove(id);
            return Err(why);
        }
        if connection.received_all() {
            assert_eq!(answer, bytes.to_be_bytes());
            assert!(matches!(connection.state(), State::Open | State::Draining));
            let stats = connection.stats();
            host.turn(Duration::ZERO).unwrap();
            host.remove(id);
            return Ok(stats);
        }
    }
}

fn cubic() -> Congestion {
    Congestion::Native(Native::cubic())
}

#[test]
fn streams_of_many_lengths_arrive_with_and_without_a_key() {
    for key in [None, Some(7)] {
        let server = Server::start(options(key));
        let mut client = Host::bind(options(key)).unwrap();
        for bytes in [0, 1, 1000, 1400, 1401, 100_000, 20_000_000] {
            let stats = send(&mut client, server.address, bytes, cubic()).unwrap();
            assert_eq!(stats.acked, bytes, "{bytes} bytes, key {key:?}");
            assert!(stats.srtt > Duration::ZERO);
        }
        let host = server.end();
        assert_eq!(
            (
                host.counters().malformed,
                host.counters().forged,
                host.counters().mismatched
            ),
            (0, 0, 0)
        );
    }
}
