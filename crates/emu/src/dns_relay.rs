//! DNS for a command behind a link: a relay to this host's name server, if that listens on loopback
//! only.
//!
//! A stub resolver (systemd-resolved, dnsmasq) has an address like 127.0.0.53, which refers to
//! another loopback interface inside the command's namespace. Other servers are reached through the
//! link directly.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::remote;

const DNS_PORT: u16 = 53;
/// Maximum length of a DNS message.
const MESSAGE_BYTES_MAX: usize = 65_535;
/// Maximum pending queries; a further one evicts the oldest.
const PENDING_QUERIES_MAX: usize = 64;
/// Maximum concurrent TCP connections.
const CONNECTIONS_MAX: usize = 16;
const IO_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which the relay checks for its end, ms.
const POLL_INTERVAL_MS: u16 = 100;

/// A DNS relay at `address`, until it is dropped.
#[derive(Debug)]
pub(crate) struct Relay {
    stop: Arc<AtomicBool>,
    /// Path of the resolv.conf for the command.
    pub(crate) resolv_conf: PathBuf,
}

impl Relay {
    /// Starts a relay at `address` if this host's name server is on loopback. `id` is part of the
    /// file name.
    pub(crate) fn start(
        resolv_conf: &str,
        address: Ipv4Addr,
        id: &str,
    ) -> io::Result<Option<Relay>> {
        let Some(server) = loopback_server(resolv_conf) else {
            return Ok(None);
        };
        let (server, here) = (
            SocketAddr::new(server, DNS_PORT),
            SocketAddr::from((address, DNS_PORT)),
        );
        let stop = Arc::new(AtomicBool::new(false));
        let file = remote::resolv_conf_path(id);
        let udp = UdpSocket::bind(here)?;
        let tcp = TcpListener::bind(here)?;
        tcp.set_nonblocking(true)?;
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&file, with_server(resolv_conf, here.ip()))?;
        let relay = Relay {
            stop: stop.clone(),
            resolv_conf: file,
        };
        let (datagrams_stop, name) = (stop.clone(), "ccplane-emu-dns");
        thread::Builder::new()
            .name(name.into())
            .spawn(move || relay_datagrams(&udp, server, &datagrams_stop))?;
        thread::Builder::new()
            .name(name.into())
            .spawn(move || relay_connections(&tcp, server, &stop))?;
        Ok(Some(relay))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = std::fs::remove_file(&self.resolv_conf);
    }
}

/// Returns the first name server, if it is on loopback.
fn loopback_server(resolv_conf: &str) -> Option<IpAddr> {
    let server = resolv_conf.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next())?
    })?;
    server.parse().ok().filter(IpAddr::is_loopback)
}

/// Returns the settings with another name server.
fn with_server(resolv_conf: &str, server: IpAddr) -> String {
    let others = resolv_conf
        .lines()
        .filter(|line| !line.trim_start().starts_with("nameserver"));
    let mut text: String = others.flat_map(|line| [line, "\n"]).collect();
    text += &format!("nameserver {server}\n");
    text
}

/// Relays datagrams. Each query has a socket of its own, which identifies the client of its answer.
fn relay_datagrams(here: &UdpSocket, server: SocketAddr, stop: &AtomicBool) {
    let mut asked: std::collections::VecDeque<(UdpSocket, SocketAddr)> =
        std::collections::VecDeque::new();
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    while !stop.load(Ordering::Relaxed) {
        let readable: Vec<bool> = {
            let sockets = std::iter::once(here).chain(asked.iter().map(|(socket, _)| socket));
            let mut polled: Vec<PollFd<'_>> = sockets
                .map(|s| PollFd::new(s.as_fd(), PollFlags::POLLIN))
                .collect();
            if poll(&mut polled, PollTimeout::from(POLL_INTERVAL_MS)).is_err() {
                continue;
            }
            polled.iter().map(|fd| fd.any().unwrap_or(false)).collect()
        };
        let mut answered = readable.iter().skip(1);
        asked.retain(|(socket, client)| {
            if !answered.next().copied().unwrap_or(false) {
                return true;
            }
            // An unanswered query is retried by its client.
            if let Ok(length) = socket.recv(&mut buffer) {
                let _ = here.send_to(&buffer[..length], client);
            }
            false
        });
        if readable[0]
            && let Ok((length, client)) = here.recv_from(&mut buffer)
            && let Ok(socket) = send_query(server, &buffer[..length])
        {
            if asked.len() == PENDING_QUERIES_MAX {
                asked.pop_front();
            }
            asked.push_back((socket, client));
        }
    }
}

fn send_query(server: SocketAddr, question: &[u8]) -> io::Result<UdpSocket> {
    let any: IpAddr = if server.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        std::net::Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(server)?;
    socket.send(question)?;
    Ok(socket)
}

/// Relays TCP connections, which carry long answers.
fn relay_connections(here: &TcpListener, server: SocketAddr, stop: &AtomicBool) {
    let open = Arc::new(AtomicUsize::new(0));
    while !stop.load(Ordering::Relaxed) {
        let mut polled = [PollFd::new(here.as_fd(), PollFlags::POLLIN)];
        let ready =
            poll(&mut polled, PollTimeout::from(POLL_INTERVAL_MS)).is_ok_and(|ready| ready > 0);
        if ready && let Ok((client, _)) = here.accept() {
            if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
                open.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let open = open.clone();
            thread::spawn(move || {
                // On an error the client sees its connection close.
                let _ = splice(&client, server);
                open.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }
}

fn splice(client: &TcpStream, server: SocketAddr) -> io::Result<()> {
    let server = TcpStream::connect_timeout(&server, IO_TIMEOUT)?;
    for stream in [client, &server] {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(IO_TIMEOUT))?;
        stream.set_write_timeout(Some(IO_TIMEOUT))?;
    }
    let copy = |mut from: &TcpStream, mut to: &TcpStream| -> io::Result<()> {
        io::copy(&mut from, &mut to)?;
        to.flush()?;
        to.shutdown(std::net::Shutdown::Write)
    };
    thread::scope(|scope| {
        let answers = scope.spawn(|| copy(&server, client));
        let questions = copy(client, &server);
        answers
            .join()
            .unwrap_or(Err(io::ErrorKind::Other.into()))
            .and(questions)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_on_loopback_needs_a_relay() {
        assert_eq!(loopback_server("# none\nsearch example.org\n"), None);
        assert_eq!(
            loopback_server("nameserver 192.0.2.1\nnameserver 127.0.0.1\n"),
            None
        );
        let text = "search example.org\nnameserver 127.0.0.53\noptions edns0\n";
        assert_eq!(
            loopback_server(text),
            Some("127.0.0.53".parse().expect("an address"))
        );
        let ours = with_server(text, "100.64.0.1".parse().expect("an address"));
        assert_eq!(
            ours,
            "search example.org\noptions edns0\nnameserver 100.64.0.1\n"
        );
    }

    #[test]
    fn dns_is_relayed_over_udp_and_tcp() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = server.local_addr().expect("it has one");
        let stream_server = TcpListener::bind(address).expect("the same port of TCP");
        let here: SocketAddr = "127.0.0.3:0".parse().expect("an address");
        let udp = UdpSocket::bind(here).expect("a port");
        let tcp = TcpListener::bind(here).expect("a port");
        tcp.set_nonblocking(true).expect("it can");
        let [udp_at, tcp_at] =
            [udp.local_addr(), tcp.local_addr()].map(|address| address.expect("it has one"));
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| relay_datagrams(&udp, address, &stop));
            scope.spawn(|| relay_connections(&tcp, address, &stop));
            let clients: Vec<UdpSocket> = (0..3)
                .map(|_| send_query(udp_at, b"who").expect("it is sent"))
                .collect();
            let mut room = [0; 16];
            for n in 0..clients.len() {
                let (length, from) = server.recv_from(&mut room).expect("a question");
                assert_eq!(&room[..length], b"who");
                server.send_to(&[n as u8], from).expect("an answer");
            }
            let mut answers: Vec<u8> = clients
                .iter()
                .map(|c| {
                    c.recv(&mut room).expect("its answer");
                    room[0]
                })
                .collect();
            answers.sort_unstable();
            assert_eq!(answers, [0, 1, 2]);

            let mut client = TcpStream::connect(tcp_at).expect("the relay");
            client.write_all(b"long question").expect("it is sent");
            client
                .shutdown(std::net::Shutdown::Write)
                .expect("it is open");
            let (mut asked, _) = stream_server.accept().expect("the relay's connection");
            let text = io::read_to_string(&mut asked).expect("the question");
            asked
                .write_all(text.to_uppercase().as_bytes())
                .expect("the answer");
            drop(asked);
            assert_eq!(
                io::read_to_string(&mut client).expect("the answer"),
                "LONG QUESTION"
            );
            stop.store(true, Ordering::Relaxed);
        });
    }
}
