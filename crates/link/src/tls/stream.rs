//! A non-blocking TLS connection that receives frames and sends packets, used by both ends.

use std::io::{self, BufRead, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use ccplane_units::Duration;
use ccplane_wire::framed::{self, Frame, FrameDecoder};
use ccplane_wire::{WireError, v2};
use nix::poll::PollFlags;
use nix::sys::socket::{setsockopt, sockopt};
use rustls::Connection;
use rustls::pki_types::CertificateDer;

/// Read size, bytes.
pub(super) const CHUNK_BYTES: usize = 64 << 10;
/// Read size if several keys are connected, bytes. With a larger one, a single connection could
/// cause more work before the next is served; a smaller one costs more system calls.
pub(super) const SHARED_CHUNK_BYTES: usize = 16 << 10;
/// TCP user timeout and keepalive time. A shorter one would close connections during brief network
/// outages; a longer one would let an agent control flows of dead hosts.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(15);

/// Overhead of a TLS 1.3 record, bytes: header, content type and tag (RFC 8446, section 5.2).
const RECORD_OVERHEAD_BYTES: usize = 5 + 1 + 16;
/// Maximum content of a record, bytes (RFC 8446, section 5.1).
const RECORD_CONTENT_BYTES_MAX: usize = 1 << 14;

pub(super) struct Stream {
    socket: TcpStream,
    tls: Connection,
    frames: FrameDecoder,
    /// Bytes queued and not sent yet, including the record overhead.
    unsent: usize,
}

/// Cause for closing a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum TlsCloseReason {
    #[error("it closed the connection")]
    Gone,
    #[error("it sent an invalid message: {0}")]
    Garbage(#[from] WireError),
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    #[error("the connection failed: {0}")]
    Failed(#[from] io::Error),
    #[error("it closed the connection: {0}")]
    Goodbye(String),
    /// Closed by this end, which sends the reason.
    #[error("{0}")]
    Local(String),
}

impl Stream {
    /// Creates a stream over a connected socket.
    pub fn new(socket: TcpStream, mut tls: Connection) -> io::Result<Stream> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let seconds = (TCP_USER_TIMEOUT.as_nanos() / 1_000_000_000) as u32;
        setsockopt(&socket, sockopt::TcpUserTimeout, &(seconds * 1000))?;
        setsockopt(&socket, sockopt::KeepAlive, &true)?;
        setsockopt(&socket, sockopt::TcpKeepIdle, &(seconds / 3))?;
        setsockopt(&socket, sockopt::TcpKeepInterval, &(seconds / 3))?;
        // Callers bound the queue themselves.
        tls.set_buffer_limit(None);
        Ok(Stream {
            socket,
            tls,
            frames: FrameDecoder::new(),
            unsent: 0,
        })
    }

    pub fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Returns the peer's certificate after the handshake.
    pub fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.tls.peer_certificates()?.first()
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Reads at most one chunk of the size of `buffer` and passes each complete frame to `sink`.
    /// Returns the number of bytes, 0 if nothing has arrived.
    pub fn read(
        &mut self,
        buffer: &mut [u8],
        sink: &mut dyn FnMut(Frame<'_>) -> Result<(), TlsCloseReason>,
    ) -> Result<usize, TlsCloseReason> {
        loop {
            match self.socket.read(buffer) {
                Ok(0) => return Err(TlsCloseReason::Gone),
                Ok(length) => {
                    self.decrypt(&buffer[..length], sink)?;
                    return Ok(length);
                }
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) if is_gone(&why) => return Err(TlsCloseReason::Gone),
                Err(why) => return Err(why.into()),
            }
        }
    }

    /// Returns the socket and the events to poll: writability if bytes are queued, readability if
    /// `reads`.
    pub fn watch(&self, reads: bool) -> (BorrowedFd<'_>, PollFlags) {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLIN, reads);
        flags.set(PollFlags::POLLOUT, self.has_unsent());
        (self.as_fd(), flags)
    }

    fn decrypt(
        &mut self,
        mut bytes: &[u8],
        sink: &mut dyn FnMut(Frame<'_>) -> Result<(), TlsCloseReason>,
    ) -> Result<(), TlsCloseReason> {
        while !bytes.is_empty() {
            if self.tls.read_tls(&mut bytes)? == 0 {
                // The peer has sent a close_notify alert.
                return Err(TlsCloseReason::Gone);
            }
            let state = match self.tls.process_new_packets() {
                Ok(state) => state,
                Err(why) => {
                    // Send the TLS alert so that the peer learns the cause.
                    let _ = self.flush();
                    return Err(why.into());
                }
            };
            let mut left = state.plaintext_bytes_to_read();
            while left > 0 {
                let mut reader = self.tls.reader();
                let chunk = reader.fill_buf()?;
                let length = chunk.len();
                self.frames.push(chunk);
                reader.consume(length);
                left = left.saturating_sub(length.max(1));
                while let Some(frame) = self.frames.next()? {
                    match frame {
                        Frame::Goodbye(words) => {
                            return Err(TlsCloseReason::Goodbye(printable(words)));
                        }
                        frame => sink(frame)?,
                    }
                }
            }
            if state.peer_has_closed() {
                return Err(TlsCloseReason::Gone);
            }
        }
        if self.tls.wants_write() {
            self.flush()?;
        }
        Ok(())
    }

    /// Returns whether queued bytes wait for socket buffer space.
    pub fn has_unsent(&self) -> bool {
        self.tls.wants_write()
    }

    /// Returns the number of queued bytes.
    pub fn unsent(&self) -> usize {
        self.unsent
    }

    /// Queues a packet for the next flush.
    pub fn queue_packet(&mut self, packet: &v2::PacketWriter) -> Result<(), TlsCloseReason> {
        let bytes = packet.as_bytes();
        let length = framed::encode_length(bytes);
        // A single write, so that the packet becomes one TLS record if it fits.
        let parts = [IoSlice::new(&length), IoSlice::new(bytes)];
        let taken = self.tls.writer().write_vectored(&parts)?;
        debug_assert_eq!(taken, length.len() + bytes.len(), "there is no limit");
        self.unsent += as_records(taken);
        Ok(())
    }

    /// Queues a complete frame.
    pub fn queue_frame(&mut self, frame: &[u8]) -> Result<(), TlsCloseReason> {
        self.tls.writer().write_all(frame)?;
        self.unsent += as_records(frame.len());
        Ok(())
    }

    /// Sends queued bytes. Returns false if some remain because the socket is full.
    pub fn flush(&mut self) -> Result<bool, TlsCloseReason> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(0) => return Err(TlsCloseReason::Gone),
                Ok(sent) => self.unsent = self.unsent.saturating_sub(sent),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) if is_gone(&why) => return Err(TlsCloseReason::Gone),
                Err(why) => return Err(why.into()),
            }
        }
        self.unsent = 0;
        Ok(true)
    }

    /// Ends the connection. If this end closes it, sends the reason if there is room.
    pub fn close(mut self, why: &TlsCloseReason) {
        let words = match why {
            TlsCloseReason::Local(why) => why.clone(),
            TlsCloseReason::Garbage(why) => why.to_string(),
            TlsCloseReason::Gone
            | TlsCloseReason::Tls(_)
            | TlsCloseReason::Failed(_)
            | TlsCloseReason::Goodbye(_) => return,
        };
        let said = self.queue_frame(&framed::encode_goodbye(&words));
        self.tls.send_close_notify();
        // Ignore errors: the peer may already be gone.
        let _ = said.and_then(|()| self.flush());
    }
}

/// Returns the length of the TLS records for this many bytes.
fn as_records(bytes: usize) -> usize {
    bytes + bytes.div_ceil(RECORD_CONTENT_BYTES_MAX) * RECORD_OVERHEAD_BYTES
}

/// Replaces control characters in a peer's message, for the log.
fn printable(words: &str) -> String {
    words
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

fn is_gone(why: &io::Error) -> bool {
    matches!(
        why.kind(),
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
    )
}
