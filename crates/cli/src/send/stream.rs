//! Encodes the sender's stream into the connection's send buffer.

use std::collections::VecDeque;
use std::io::Read;

use ccplane_udp::UdpHost;
use ccplane_units::{Duration, Time};

use super::source::SendSource;
use crate::exit::{Failure, FailureKind};
use crate::transfer::wire::{self, DATA_BYTES_MAX, DATA_HEADER_BYTES, Hash, Header};

/// Bytes per iteration of the main loop, as many as one round of sending takes. More would delay
/// ACKs while a disk is read.
const ROUND_BYTES: usize = 256 << 10;
/// Space below which a frame is built in a separate buffer.
const FRAME_ROOM_BYTES_MIN: usize = 64;
/// Interval of empty frames while a source pauses. The receiver drops a silent transfer.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// Encoder of the sender's stream.
pub(super) struct Stream {
    source: SendSource,
    /// Length of the file, if known.
    total: Option<u64>,
    /// Encoded bytes to send before anything else.
    pending: VecDeque<u8>,
    hasher: blake3::Hasher,
    /// Hash of the file, once it has been read completely.
    hash: Option<Hash>,
    /// Time of the last bytes passed to the connection.
    last_write: Time,
    /// Bytes of the file read so far.
    pub read: u64,
}

/// Result of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FillResult {
    /// More data may be available immediately.
    More,
    /// The send buffer is full, or the stream is over.
    Blocked,
    /// The source has nothing yet.
    Idle,
}

/// Result of one step.
enum SendStep {
    /// This many bytes were written.
    Wrote(usize),
    /// Bytes are pending.
    Pending,
    Idle,
    End,
}

impl Stream {
    /// Creates the stream of a source. Fails if its name is too long.
    pub fn new(source: SendSource, header: &Header, now: Time) -> Result<Stream, Failure> {
        let head = header.write().map_err(|why| {
            Failure::new(FailureKind::Usage, why)
                .hint("rename it, or send it through standard input with `-`")
        })?;
        Ok(Stream {
            source,
            total: header.bytes,
            pending: head.into(),
            hasher: blake3::Hasher::new(),
            hash: None,
            last_write: now,
            read: 0,
        })
    }

    /// Returns the length of the file, if known.
    pub fn total(&self) -> Option<u64> {
        self.total
    }

    /// Returns the hash of the bytes read so far.
    pub fn hash(&self) -> Hash {
        self.hash
            .unwrap_or_else(|| *self.hasher.finalize().as_bytes())
    }

    /// Returns true if the whole file has been read.
    pub fn is_complete(&self) -> bool {
        self.hash.is_some()
    }

    /// Fills the send buffer, with at most [`ROUND_BYTES`].
    pub fn fill(&mut self, host: &mut UdpHost, id: u64) -> Result<FillResult, Failure> {
        let (mut left, now) = (ROUND_BYTES, host.now());
        while left > 0 {
            let room = host.write_buffer(id);
            let most = room.len().min(left);
            if most == 0 {
                return Ok(FillResult::Blocked);
            }
            match self.encode_next(now, &mut room[..most])? {
                SendStep::Wrote(bytes) => {
                    self.last_write = now;
                    host.commit_write(id, bytes);
                    left -= bytes;
                }
                SendStep::Pending => {}
                SendStep::Idle => return Ok(FillResult::Idle),
                SendStep::End => {
                    host.finish(id);
                    return Ok(FillResult::Blocked);
                }
            }
        }
        Ok(FillResult::More)
    }

    /// Fills the send buffer before anything is sent, for at most `most`: a slow disk would delay
    /// the handshake.
    pub fn read_ahead(
        &mut self,
        host: &mut UdpHost,
        id: u64,
        timeout: Duration,
    ) -> Result<(), Failure> {
        let end = host.now() + timeout;
        while self.fill(host, id)? == FillResult::More && host.now() < end {}
        Ok(())
    }

    /// Encodes the next bytes of the stream.
    fn encode_next(&mut self, now: Time, room: &mut [u8]) -> Result<SendStep, Failure> {
        if !self.pending.is_empty() {
            return Ok(SendStep::Wrote(self.pending.read(room).unwrap_or(0)));
        }
        if self.hash.is_some() {
            return Ok(SendStep::End);
        }
        let mut small = [0; FRAME_ROOM_BYTES_MIN];
        let is_small = room.len() < FRAME_ROOM_BYTES_MIN;
        let frame = if is_small { &mut small[..] } else { room };
        let most = (frame.len() - DATA_HEADER_BYTES).min(DATA_BYTES_MAX);
        let data = &mut frame[DATA_HEADER_BYTES..DATA_HEADER_BYTES + most];
        let Some(length) = self.source.read(data, self.read)? else {
            if now.since(self.last_write) < KEEPALIVE_INTERVAL {
                return Ok(SendStep::Idle);
            }
            self.pending.extend(wire::data(0));
            return Ok(SendStep::Pending);
        };
        if length == 0 {
            let hash = *self.hasher.finalize().as_bytes();
            self.hash = Some(hash);
            self.pending.extend(wire::end(&hash));
            return Ok(SendStep::Pending);
        }
        self.hasher.update(&data[..length]);
        self.read += length as u64;
        frame[..DATA_HEADER_BYTES].copy_from_slice(&wire::data(length as u32));
        if is_small {
            self.pending.extend(&small[..DATA_HEADER_BYTES + length]);
            return Ok(SendStep::Pending);
        }
        Ok(SendStep::Wrote(DATA_HEADER_BYTES + length))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{self, Write};
    use std::net::UdpSocket;
    use std::os::fd::OwnedFd;

    use ccplane_transport::{Native, Rc3, TransportConfig};
    use ccplane_udp::{DATAGRAM_BYTES_DEFAULT, Stamping, UdpCongestion, UdpOptions};
    use ccplane_units::Bytes;

    use super::*;
    use crate::transfer::wire::{Frames, HASH_BYTES, StreamEvent};

    fn pattern(bytes: u64) -> Stream {
        let (source, header) = SendSource::pattern(Bytes::new(bytes));
        Stream::new(source, &header, Time::ZERO).unwrap()
    }

    /// Returns the whole stream, written in pieces of `room` bytes.
    fn written(stream: &mut Stream, room: usize) -> Vec<u8> {
        let (mut all, mut room) = (Vec::new(), vec![0; room]);
        loop {
            match stream.encode_next(Time::ZERO, &mut room).unwrap() {
                SendStep::Wrote(bytes) => all.extend_from_slice(&room[..bytes]),
                SendStep::Pending => {}
                SendStep::Idle | SendStep::End => return all,
            }
        }
    }

    /// Returns a connection with a window of 16 MiB whose hello has not been sent, and the peer's
    /// socket.
    fn connecting() -> (UdpHost, u64, UdpSocket) {
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.set_nonblocking(true).unwrap();
        let options = UdpOptions {
            local: "127.0.0.1:0".parse().unwrap(),
            datagram_bytes: DATAGRAM_BYTES_DEFAULT,
            window: 16 << 20,
            tls: None,
            dscp: 0,
            config: TransportConfig {
                rc3: Some(Rc3::default()),
                ..TransportConfig::default()
            },
            stamping: Stamping::Off,
            link_rate: None,
            accept_congestion: Native::cubic(),
        };
        let mut host = UdpHost::bind(options).unwrap();
        let to = peer.local_addr().unwrap();
        let id = host
            .connect(to, UdpCongestion::Native(Native::cubic()))
            .unwrap();
        (host, id, peer)
    }

    #[test]
    fn the_end_of_the_stream_is_known_before_anything_is_sent() {
        let (mut host, id, peer) = connecting();
        let mut stream = pattern(200_000);
        stream
            .read_ahead(&mut host, id, Duration::from_millis(100))
            .unwrap();
        let known = host.connection(id).unwrap().pending();
        assert!(
            (200_000 + HASH_BYTES as u64..202_000).contains(&known),
            "{known}"
        );
        let nothing = peer.recv(&mut [0; 2000]).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        host.poll(Duration::ZERO).unwrap();
        peer.recv(&mut [0; 2000]).unwrap();
    }

    /// The pipe delivers at most 64 kB, its capacity, per 20 ms: filling the window would take five
    /// seconds.
    #[test]
    fn a_slow_source_does_not_hold_the_hello_up() {
        let (mut host, id, _peer) = connecting();
        let (slow, mut writer) = io::pipe().unwrap();
        let source = SendSource::Pipe(File::from(OwnedFd::from(slow)), "pipe".into());
        let header = Header {
            name: Vec::new(),
            bytes: None,
            executable: false,
        };
        let mut stream = Stream::new(source, &header, host.now()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while writer.write_all(&[7; 1 << 16]).is_ok() {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
            });
            stream
                .read_ahead(&mut host, id, Duration::from_millis(100))
                .unwrap();
            // Closes the pipe, which ends the writer.
            drop(stream);
        });
        let known = host.connection(id).unwrap().pending();
        assert!(known < 8 << 20, "{known}");
    }

    #[test]
    fn a_stream_is_the_same_in_any_pieces() {
        for bytes in [0, 1, 7, 8, 1000, 100_000] {
            let mut stream = pattern(bytes);
            let mut whole = vec![0; bytes as usize];
            assert_eq!(
                SendSource::pattern(Bytes::new(bytes))
                    .0
                    .read(&mut whole, 0)
                    .unwrap(),
                Some(whole.len())
            );
            for room in [1, 3, 17, 100, 1 << 17] {
                let mut again = pattern(bytes);
                let sent = written(&mut again, room);
                let (mut frames, mut rest, mut data, mut end) =
                    (Frames::default(), &sent[..], Vec::new(), None);
                while let Some(event) = frames.next(&mut rest).unwrap() {
                    match event {
                        StreamEvent::Header(header) => assert_eq!(header.bytes, Some(bytes)),
                        StreamEvent::Data(more) => data.extend_from_slice(more),
                        StreamEvent::End(hash) => end = Some(hash),
                    }
                }
                assert_eq!(data, whole, "{bytes} bytes in pieces of {room}");
                assert_eq!(end, Some(again.hash()));
                assert_eq!(end, Some(*blake3::hash(&whole).as_bytes()));
            }
            written(&mut stream, 1 << 16);
            assert_eq!(stream.read, bytes);
        }
    }
}
