//! Encodes the sender's stream into the connection's send buffer.
#![expect(clippy::disallowed_methods, reason = "keepalives use real time")]

use std::collections::VecDeque;
use std::io::Read;
use std::time::Instant;

use ccplane_units::Duration;

use super::source::SendSource;
use crate::exit::{Failure, FailureKind};
use crate::transfer::wire::{self, DATA_BYTES_MAX, DATA_HEADER_BYTES, Hash, Header};

/// Bytes per iteration of the main loop, as many as one round of sending takes. More would delay
/// ACKs while a disk is read.
const ROUND_BYTES: usize = 256 << 10;
/// Space below which a frame is built in a separate buffer.
const FRAME_ROOM_BYTES_MIN: usize = 64;
/// Interval of empty frames while a source pauses. The receiver drops a silent transfer.
const KEEPALIVE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);

/// Send buffer of a connection.
pub(super) trait SendBuffer {
    /// Returns a contiguous buffer for the next bytes; empty if there is no space.
    fn write_buffer(&mut self) -> &mut [u8];
    /// Sends the first `bytes` bytes of [`write_buffer`](SendBuffer::write_buffer).
    fn commit_write(&mut self, bytes: usize);
    /// Ends the stream.
    fn finish(&mut self);
}

/// Encoder of the sender's stream.
pub(super) struct Stream {
    source: SendSource,
    /// Set if the stream has a header and frames ([`wire`]); otherwise it is the file.
    framed: bool,
    /// Length of the file, if known.
    total: Option<u64>,
    /// Encoded bytes to send before anything else.
    pending: VecDeque<u8>,
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
    pub fn new(source: SendSource, header: &Header, framed: bool) -> Result<Stream, Failure> {
        let mut stream = Stream {
            source,
            framed,
            total: header.bytes,
            pending: VecDeque::new(),
            hasher: blake3::Hasher::new(),
            hash: None,
            last_write: Instant::now(),
            read: 0,
        };
        if framed {
            let head = header.write().map_err(|why| {
                Failure::new(FailureKind::Usage, why)
                    .hint("rename it, or send it through standard input with `-`")
            })?;
            stream.pending = head.into();
        }
        Ok(stream)
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
    pub fn fill(&mut self, out: &mut (impl SendBuffer + ?Sized)) -> Result<FillResult, Failure> {
        let (mut left, now) = (ROUND_BYTES, Instant::now());
        while left > 0 {
            let room = out.write_buffer();
            let most = room.len().min(left);
            if most == 0 {
                return Ok(FillResult::Blocked);
            }
            match self.encode_next(now, &mut room[..most])? {
                SendStep::Wrote(bytes) => {
                    self.last_write = now;
                    out.commit_write(bytes);
                    left -= bytes;
                }
                SendStep::Pending => {}
                SendStep::Idle => return Ok(FillResult::Idle),
                SendStep::End => {
                    out.finish();
                    return Ok(FillResult::Blocked);
                }
            }
        }
        Ok(FillResult::More)
    }

    /// Fills the send buffer before anything is sent, for at most `timeout`: a slow disk would
    /// delay the handshake.
    pub fn read_ahead(
        &mut self,
        out: &mut (impl SendBuffer + ?Sized),
        timeout: Duration,
    ) -> Result<(), Failure> {
        let end = Instant::now() + timeout.to_std();
        while self.fill(out)? == FillResult::More && Instant::now() < end {}
        Ok(())
    }

    /// Encodes the next bytes of the stream.
    fn encode_next(&mut self, now: Instant, room: &mut [u8]) -> Result<SendStep, Failure> {
        if !self.pending.is_empty() {
            return Ok(SendStep::Wrote(self.pending.read(room).unwrap_or(0)));
        }
        if self.hash.is_some() {
            return Ok(SendStep::End);
        }
        if !self.framed {
            return self.copy_next(room);
        }
        let mut small = [0; FRAME_ROOM_BYTES_MIN];
        let is_small = room.len() < FRAME_ROOM_BYTES_MIN;
        let frame = if is_small { &mut small[..] } else { room };
        let most = (frame.len() - DATA_HEADER_BYTES).min(DATA_BYTES_MAX);
        let data = &mut frame[DATA_HEADER_BYTES..DATA_HEADER_BYTES + most];
        let Some(length) = self.source.read(data, self.read)? else {
            if now.duration_since(self.last_write) < KEEPALIVE_INTERVAL {
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

    /// Copies the next bytes of the file.
    fn copy_next(&mut self, room: &mut [u8]) -> Result<SendStep, Failure> {
        Ok(match self.source.read(room, self.read)? {
            None => SendStep::Idle,
            Some(0) => {
                self.hash = Some(*self.hasher.finalize().as_bytes());
                SendStep::End
            }
            Some(length) => {
                self.hasher.update(&room[..length]);
                self.read += length as u64;
                SendStep::Wrote(length)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{self, Write};
    use std::os::fd::OwnedFd;

    use ccplane_units::Bytes;

    use super::*;
    use crate::transfer::wire::{Frames, HASH_BYTES, StreamEvent};

    /// Send buffer of 16 MiB, and the number of bytes in it.
    struct FixedBuffer(Vec<u8>, usize);

    impl FixedBuffer {
        fn new() -> FixedBuffer {
            FixedBuffer(vec![0; 16 << 20], 0)
        }
    }

    impl SendBuffer for FixedBuffer {
        fn write_buffer(&mut self) -> &mut [u8] {
            &mut self.0[self.1..]
        }

        fn commit_write(&mut self, bytes: usize) {
            self.1 += bytes;
        }

        fn finish(&mut self) {}
    }

    fn pattern(bytes: u64, framed: bool) -> Stream {
        let (source, header) = SendSource::pattern(Bytes::new(bytes));
        Stream::new(source, &header, framed).unwrap()
    }

    /// Returns the whole stream, written in pieces of `room` bytes.
    fn written(stream: &mut Stream, room: usize) -> Vec<u8> {
        let (mut all, mut room) = (Vec::new(), vec![0; room]);
        loop {
            match stream.encode_next(Instant::now(), &mut room).unwrap() {
                SendStep::Wrote(bytes) => all.extend_from_slice(&room[..bytes]),
                SendStep::Pending => {}
                SendStep::Idle | SendStep::End => return all,
            }
        }
    }

    #[test]
    fn the_end_of_the_stream_is_known_before_anything_is_sent() {
        let mut buffer = FixedBuffer::new();
        let mut stream = pattern(200_000, true);
        stream
            .read_ahead(&mut buffer, Duration::from_millis(100))
            .unwrap();
        let known = buffer.1;
        assert!((200_000 + HASH_BYTES..202_000).contains(&known), "{known}");
    }

    /// The pipe delivers at most 64 kB, its capacity, per 20 ms: filling the window would take five
    /// seconds.
    #[test]
    fn a_slow_source_does_not_hold_the_hello_up() {
        let mut buffer = FixedBuffer::new();
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
                .read_ahead(&mut buffer, Duration::from_millis(100))
                .unwrap();
            // Closes the pipe, which ends the writer.
            drop(stream);
        });
        assert!(buffer.1 < 8 << 20, "{}", buffer.1);
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
