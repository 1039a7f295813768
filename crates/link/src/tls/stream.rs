//! A connection: TLS over a socket that never blocks, frames in and packets out. Both ends use it.

use std::io::{self, BufRead, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use ccplane_units::Duration;
use ccplane_wire::framed::{self, Frame, Frames};
use ccplane_wire::{WireError, v2};
use nix::poll::PollFlags;
use nix::sys::socket::{setsockopt, sockopt};
use rustls::Connection;
use rustls::pki_types::CertificateDer;

/// Bytes read at once.
pub(super) const CHUNK: usize = 64 << 10;
/// Bytes read at once where others wait. A larger chunk would let one connection cause more work
/// before the next has its turn; a smaller one costs a system call for less.
pub(super) const SHARED_CHUNK: usize = 16 << 10;
/// How long what was sent may stay unacknowledged, and how long a silent connection is believed in.
/// Shorter would end connections that a network's hiccup holds up; longer would keep an agent
/// steering flows of hosts that are gone.
const BELIEVED: Duration = Duration::from_secs(15);

/// What TLS 1.3 adds to a record: its header, the type of its content and a tag (RFC 8446, section
/// 5.2).
const RECORD: usize = 5 + 1 + 16;
/// Bytes of a record's content at most (section 5.1).
const CONTENT: usize = 1 << 14;

/// One connection.
pub(super) struct Stream {
    socket: TcpStream,
    tls: Connection,
    frames: Frames,
    /// Bytes that were given and are not sent, as records.
    unsent: usize,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Closed {
    #[error("it closed the connection")]
    Gone,
    #[error("it sent what is no message: {0}")]
    Garbage(#[from] WireError),
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    #[error("the connection failed: {0}")]
    Failed(#[from] io::Error),
    #[error("it said: {0}")]
    Goodbye(String),
    /// This end closes it, and says so.
    #[error("{0}")]
    Ours(String),
}

impl Stream {
    /// Over a connected socket.
    pub fn new(socket: TcpStream, mut tls: Connection) -> io::Result<Stream> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let seconds = (BELIEVED.as_nanos() / 1_000_000_000) as u32;
        setsockopt(&socket, sockopt::TcpUserTimeout, &(seconds * 1000))?;
        setsockopt(&socket, sockopt::KeepAlive, &true)?;
        setsockopt(&socket, sockopt::TcpKeepIdle, &(seconds / 3))?;
        setsockopt(&socket, sockopt::TcpKeepInterval, &(seconds / 3))?;
        // What waits is bounded by who sends.
        tls.set_buffer_limit(None);
        Ok(Stream {
            socket,
            tls,
            frames: Frames::new(),
            unsent: 0,
        })
    }

    pub fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// The other end's certificate, once the handshake is done.
    pub fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.tls.peer_certificates()?.first()
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Reads one chunk of at most the size of `buffer` and passes each frame to `sink`. Returns its
    /// bytes, 0 where nothing has arrived.
    pub fn read(
        &mut self,
        buffer: &mut [u8],
        sink: &mut dyn FnMut(Frame<'_>) -> Result<(), Closed>,
    ) -> Result<usize, Closed> {
        loop {
            match self.socket.read(buffer) {
                Ok(0) => return Err(Closed::Gone),
                Ok(length) => {
                    self.decrypt(&buffer[..length], sink)?;
                    return Ok(length);
                }
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) if is_gone(&why) => return Err(Closed::Gone),
                Err(why) => return Err(why.into()),
            }
        }
    }

    /// The socket and what to wait for: room, where something is unsent, and data, where `reads`.
    pub fn watch(&self, reads: bool) -> (BorrowedFd<'_>, PollFlags) {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLIN, reads);
        flags.set(PollFlags::POLLOUT, self.waits());
        (self.as_fd(), flags)
    }

    fn decrypt(
        &mut self,
        mut bytes: &[u8],
        sink: &mut dyn FnMut(Frame<'_>) -> Result<(), Closed>,
    ) -> Result<(), Closed> {
        while !bytes.is_empty() {
            if self.tls.read_tls(&mut bytes)? == 0 {
                // It has said that it closes.
                return Err(Closed::Gone);
            }
            let state = match self.tls.process_new_packets() {
                Ok(state) => state,
                Err(why) => {
                    // Its alert tells the other end why.
                    let _ = self.flush();
                    return Err(why.into());
                }
            };
            let mut left = state.plaintext_bytes_to_read();
            while left > 0 {
                let mut reader = self.tls.reader();
                let chunk = reader.fill_buf()?;
                let length = chunk.len();
                self.frames.give(chunk);
                reader.consume(length);
                left = left.saturating_sub(length.max(1));
                while let Some(frame) = self.frames.next()? {
                    match frame {
                        Frame::Goodbye(words) => return Err(Closed::Goodbye(printable(words))),
                        frame => sink(frame)?,
                    }
                }
            }
            if state.peer_has_closed() {
                return Err(Closed::Gone);
            }
        }
        if self.tls.wants_write() {
            self.flush()?;
        }
        Ok(())
    }

    /// True while something that was given waits for room.
    pub fn waits(&self) -> bool {
        self.tls.wants_write()
    }

    /// Bytes that were given and are not sent.
    pub fn unsent(&self) -> usize {
        self.unsent
    }

    /// Takes a packet; it goes with the next flush.
    pub fn packet(&mut self, packet: &v2::Packet) -> Result<(), Closed> {
        let bytes = packet.as_bytes();
        let length = framed::length(bytes);
        // One call: one TLS record where it fits.
        let parts = [IoSlice::new(&length), IoSlice::new(bytes)];
        let taken = self.tls.writer().write_vectored(&parts)?;
        debug_assert_eq!(taken, length.len() + bytes.len(), "there is no limit");
        self.unsent += as_records(taken);
        Ok(())
    }

    /// Takes a whole frame.
    pub fn frame(&mut self, frame: &[u8]) -> Result<(), Closed> {
        self.tls.writer().write_all(frame)?;
        self.unsent += as_records(frame.len());
        Ok(())
    }

    /// Sends what was taken; false if something is left for lack of room.
    pub fn flush(&mut self) -> Result<bool, Closed> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(0) => return Err(Closed::Gone),
                Ok(sent) => self.unsent = self.unsent.saturating_sub(sent),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) if is_gone(&why) => return Err(Closed::Gone),
                Err(why) => return Err(why.into()),
            }
        }
        self.unsent = 0;
        Ok(true)
    }

    /// Ends the connection. Where it is this end that closes it, the other is told why, as far as
    /// there is room.
    pub fn end(mut self, why: &Closed) {
        let words = match why {
            Closed::Ours(why) => why.clone(),
            Closed::Garbage(why) => why.to_string(),
            Closed::Gone | Closed::Tls(_) | Closed::Failed(_) | Closed::Goodbye(_) => return,
        };
        let said = self.frame(&framed::goodbye(&words));
        self.tls.send_close_notify();
        // Where it is gone already it needs not be told.
        let _ = said.and_then(|()| self.flush());
    }
}

/// Bytes of the records that so many bytes become.
fn as_records(bytes: usize) -> usize {
    bytes + bytes.div_ceil(CONTENT) * RECORD
}

/// Words of somebody else, for a log.
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
