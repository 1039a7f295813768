//! Encoder of the sender's stream.
#![expect(clippy::disallowed_methods, reason = "keepalives use real time")]

use std::time::Instant;

use ccplane_units::Duration;

use super::source::SendSource;
use crate::exit::{Failure, FailureKind};
use crate::transfer::wire::{self, DATA_HEADER_BYTES, Hash, Header};

/// Bytes per iteration of the main loop, as many as one round of sending takes. More would delay
/// ACKs while a disk is read.
const ROUND_BYTES: usize = 256 << 10;
/// Bytes per read of the source, and per frame.
const READ_BYTES: usize = 64 << 10;
/// Interval of empty frames while a source pauses. The receiver drops a silent transfer.
const KEEPALIVE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);

/// Encoder of the sender's stream.
pub(super) struct Stream {
    source: SendSource,
    /// Set if the stream has a header and frames ([`wire`]); otherwise it is the file.
    framed: bool,
    /// Length of the file, if known.
    total: Option<u64>,
    /// Encoded bytes; those from `start` on are not written yet.
    buffer: Vec<u8>,
    start: usize,
    hasher: blake3::Hasher,
    /// Hash of the file, once it has been read completely.
    hash: Option<Hash>,
    /// Time of the last bytes passed to the connection.
    last_write: Instant,
    /// Bytes of the file read so far.
    pub read: u64,
}

/// Result of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FillResult {
    /// More data may be available immediately.
    More,
    /// The send buffer is full.
    Blocked,
    /// The source has nothing yet.
    Idle,
    /// Everything is written.
    Ended,
}

impl Stream {
    /// Creates the stream of a source. Fails if its name is too long.
    pub fn new(source: SendSource, header: &Header, framed: bool) -> Result<Stream, Failure> {
        let head = match framed {
            true => header.write().map_err(|why| {
                Failure::new(FailureKind::Usage, why)
                    .hint("rename it, or send it through standard input with `-`")
            })?,
            false => Vec::new(),
        };
        Ok(Stream {
            source,
            framed,
            total: header.bytes,
            buffer: head,
            start: 0,
            hasher: blake3::Hasher::new(),
            hash: None,
            last_write: Instant::now(),
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

    /// Returns the number of encoded bytes that are not written yet.
    pub fn unwritten(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Passes at most about [`ROUND_BYTES`] to `write`, which returns how many it has taken.
    pub fn fill(&mut self, mut write: impl FnMut(&[u8]) -> usize) -> Result<FillResult, Failure> {
        let (mut left, now) = (ROUND_BYTES, Instant::now());
        loop {
            let written = write(&self.buffer[self.start..]);
            self.start += written;
            if written > 0 {
                self.last_write = now;
            }
            left = left.saturating_sub(written);
            if self.unwritten() > 0 {
                return Ok(FillResult::Blocked);
            }
            if self.is_complete() {
                return Ok(FillResult::Ended);
            }
            if left == 0 {
                return Ok(FillResult::More);
            }
            if !self.encode_next(now)? {
                return Ok(FillResult::Idle);
            }
        }
    }

    /// Fills the send buffer before anything is sent, for at most `timeout`: a slow disk would
    /// delay the handshake.
    pub fn read_ahead(
        &mut self,
        timeout: Duration,
        mut write: impl FnMut(&[u8]) -> usize,
    ) -> Result<(), Failure> {
        let end = Instant::now() + timeout.to_std();
        while self.fill(&mut write)? == FillResult::More && Instant::now() < end {}
        Ok(())
    }

    /// Encodes the next bytes of the stream. Returns false if the source has nothing yet.
    fn encode_next(&mut self, now: Instant) -> Result<bool, Failure> {
        let head = if self.framed { DATA_HEADER_BYTES } else { 0 };
        self.start = 0;
        self.buffer.resize(head + READ_BYTES, 0);
        let length = self.source.read(&mut self.buffer[head..], self.read)?;
        self.buffer.truncate(head + length.unwrap_or(0));
        let Some(length) = length else {
            let is_due = self.framed && now.duration_since(self.last_write) >= KEEPALIVE_INTERVAL;
            self.buffer.clear();
            if is_due {
                self.buffer.extend(wire::data(0));
            }
            return Ok(is_due);
        };
        if length == 0 {
            let hash = self.hash();
            self.hash = Some(hash);
            self.buffer.clear();
            if self.framed {
                self.buffer.extend(wire::end(&hash));
            }
            return Ok(true);
        }
        self.hasher.update(&self.buffer[head..]);
        self.read += length as u64;
        if self.framed {
            self.buffer[..head].copy_from_slice(&wire::data(length as u32));
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{self, Write};
    use std::net::UdpSocket;
    use std::os::fd::OwnedFd;

    use ccplane_transport::{Native, Rc3, TransportConfig};
    use ccplane_udp::{DATAGRAM_BYTES_DEFAULT, Stamping, UdpCongestion, UdpHost, UdpOptions};
    use ccplane_units::Bytes;

    use super::*;
    use crate::transfer::host::TransferHost;
    use crate::transfer::wire::{Frames, HASH_BYTES, StreamEvent};

    fn pattern(bytes: u64, framed: bool) -> Stream {
        let (source, header) = SendSource::pattern(Bytes::new(bytes));
        Stream::new(source, &header, framed).unwrap()
    }

    /// Returns the whole stream, written in pieces of `room` bytes.
    fn written(stream: &mut Stream, room: usize) -> Vec<u8> {
        let mut all = Vec::new();
        let mut fill = || {
            stream.fill(|bytes| {
                let count = bytes.len().min(room);
                all.extend_from_slice(&bytes[..count]);
                count
            })
        };
        while fill().unwrap() != FillResult::Ended {}
        all
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
        for bytes in [200_000, 2_000_000] {
            let (mut host, id, peer) = connecting();
            let mut stream = pattern(bytes, true);
            stream
                .read_ahead(Duration::from_secs(10), |bytes| {
                    TransferHost::write(&mut host, id, bytes)
                })
                .unwrap();
            let known = host.connection(id).unwrap().pending();
            assert!(
                (bytes + HASH_BYTES as u64..bytes + 2_000).contains(&known),
                "{known}"
            );
            let nothing = peer.recv(&mut [0; 2000]).unwrap_err();
            assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
            UdpHost::poll(&mut host, Duration::ZERO).unwrap();
            peer.recv(&mut [0; 2000]).unwrap();
        }
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
        let mut stream = Stream::new(source, &header, true).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while writer.write_all(&[7; 1 << 16]).is_ok() {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
            });
            stream
                .read_ahead(Duration::from_millis(100), |bytes| {
                    TransferHost::write(&mut host, id, bytes)
                })
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
            let mut stream = pattern(bytes, true);
            let mut whole = vec![0; bytes as usize];
            assert_eq!(
                SendSource::pattern(Bytes::new(bytes))
                    .0
                    .read(&mut whole, 0)
                    .unwrap(),
                Some(whole.len())
            );
            for room in [1, 3, 17, 100, 1 << 17] {
                let mut again = pattern(bytes, true);
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
                let mut unframed = pattern(bytes, false);
                assert_eq!(written(&mut unframed, room), whole);
                assert_eq!(unframed.hash(), *blake3::hash(&whole).as_bytes());
            }
            written(&mut stream, 1 << 16);
            assert_eq!(stream.read, bytes);
        }
    }
}
