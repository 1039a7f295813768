//! What is sent: head, bytes of a file or a pattern, and their hash, read where they are sent from.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ccplane_transport::udp::Host;
use ccplane_units::{Bytes, Duration};

use crate::exit::{Failure, Kind};
use crate::transfer::{HASH, HEAD, Head};

/// Bytes read in one round of the loop: what a round of sending takes at most. More would keep acknowledgements waiting while a disk
/// is read.
const ROUND: usize = 256 << 10;

/// The sender's stream, read where it is sent from.
pub(super) struct Source {
    from: From,
    /// Bytes of the file or pattern.
    pub bytes: u64,
    /// How far the stream is given: head, bytes, hash.
    position: u64,
    hasher: blake3::Hasher,
}

enum From {
    File(File, PathBuf),
    Pattern,
}

impl Source {
    /// Of a file, or of so many bytes of a pattern.
    pub fn open(file: Option<&Path>, bytes: Option<Bytes>) -> Result<Source, Failure> {
        let (from, bytes) = match (file, bytes) {
            (Some(path), _) => {
                let (file, bytes) = open(path)?;
                (From::File(file, path.to_owned()), bytes)
            }
            (None, bytes) => (From::Pattern, bytes.map_or(0, Bytes::get)),
        };
        Ok(Source {
            from,
            bytes,
            position: 0,
            hasher: blake3::Hasher::new(),
        })
    }

    /// Gives the connection what it has room for, up to [`ROUND`] bytes; whether there may be more.
    pub fn fill(&mut self, host: &mut Host, id: u64) -> Result<bool, Failure> {
        let mut left = ROUND;
        while left > 0 {
            let room = host.room(id);
            let most = room.len().min(left);
            if most == 0 {
                return Ok(false);
            }
            match self.next(&mut room[..most])? {
                0 => {
                    host.finish(id);
                    return Ok(false);
                }
                written => {
                    host.wrote(id, written);
                    left -= written;
                }
            }
        }
        Ok(true)
    }

    /// Gives the connection what it has room for, before it sends anything: for so long at most, as a slow disk would hold it up.
    pub fn read_ahead(&mut self, host: &mut Host, id: u64, most: Duration) -> Result<(), Failure> {
        let end = host.now() + most;
        while self.fill(host, id)? && host.now() < end {}
        Ok(())
    }

    /// Of the bytes that were read so far.
    pub fn hash(&self) -> [u8; HASH] {
        *self.hasher.finalize().as_bytes()
    }

    /// The next bytes of the stream; none at its end.
    fn next(&mut self, room: &mut [u8]) -> Result<usize, Failure> {
        let body = HEAD as u64;
        let given = if self.position < body {
            copy(&Head { bytes: self.bytes }.write(), self.position, room)
        } else if self.position < body + self.bytes {
            let at = self.position - body;
            let most = usize::try_from(self.bytes - at).unwrap_or(usize::MAX).min(room.len());
            let read = self.from.read(&mut room[..most], at, self.bytes)?;
            self.hasher.update(&room[..read]);
            read
        } else {
            copy(
                self.hasher.finalize().as_bytes(),
                self.position - body - self.bytes,
                room,
            )
        };
        self.position += given as u64;
        Ok(given)
    }
}

/// As much of `bytes` from `at` on as there is room for.
fn copy(bytes: &[u8], at: u64, room: &mut [u8]) -> usize {
    let rest = usize::try_from(at)
        .ok()
        .and_then(|at| bytes.get(at..))
        .unwrap_or_default();
    let length = rest.len().min(room.len());
    room[..length].copy_from_slice(&rest[..length]);
    length
}

impl From {
    fn read(&mut self, room: &mut [u8], at: u64, of: u64) -> Result<usize, Failure> {
        match self {
            From::File(file, path) => loop {
                match file.read(room) {
                    Ok(0) => {
                        let text = format!(
                            "{} became shorter while it was sent: {at} of {of} bytes",
                            path.display()
                        );
                        return Err(Failure::text(Kind::Failed, text));
                    }
                    Ok(read) => return Ok(read),
                    Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                    Err(why) => return Err(unreadable(path, &why)),
                }
            },
            From::Pattern => {
                // Each eight bytes say where they are, so that a hash of anything misplaced differs.
                let begun = (at.next_multiple_of(8) - at).min(room.len() as u64) as usize;
                let (first, rest) = room.split_at_mut(begun);
                first.copy_from_slice(&(at / 8).to_be_bytes()[(at % 8) as usize..][..begun]);
                for (number, piece) in (at.div_ceil(8)..).zip(rest.chunks_mut(8)) {
                    piece.copy_from_slice(&number.to_be_bytes()[..piece.len()]);
                }
                Ok(room.len())
            }
        }
    }
}

fn open(path: &Path) -> Result<(File, u64), Failure> {
    let file = File::open(path).map_err(|why| unreadable(path, &why))?;
    let about = file.metadata().map_err(|why| unreadable(path, &why))?;
    if !about.is_file() {
        return Err(
            Failure::text(Kind::Usage, format!("{} is no regular file", path.display()))
                .hint("the receiver is told the length first; --bytes sends a pattern"),
        );
    }
    Ok((file, about.len()))
}

fn unreadable(path: &Path, why: &io::Error) -> Failure {
    Failure::text(Kind::Failed, format!("{} cannot be read: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::UdpSocket;
    use std::os::fd::OwnedFd;

    use ccplane_transport::udp::{Congestion, DATAGRAM, Options, Stamping};
    use ccplane_transport::{Config, Native, Tail};

    use super::*;

    fn whole(mut source: Source, room: usize) -> Vec<u8> {
        let (mut stream, mut room) = (Vec::new(), vec![0; room]);
        loop {
            match source.next(&mut room).unwrap() {
                0 => return stream,
                given => stream.extend_from_slice(&room[..given]),
            }
        }
    }

    fn pattern(bytes: u64) -> Source {
        Source {
            from: From::Pattern,
            bytes,
            position: 0,
            hasher: blake3::Hasher::new(),
        }
    }

    /// A connection with a window of 16 MiB whose hello has not left, and the socket that it is for.
    fn connecting() -> (Host, u64, UdpSocket) {
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.set_nonblocking(true).unwrap();
        let options = Options {
            local: "127.0.0.1:0".parse().unwrap(),
            datagram: DATAGRAM,
            window: 16 << 20,
            key: None,
            dscp: 0,
            config: Config {
                tail: Some(Tail::default()),
                ..Config::default()
            },
            stamping: Stamping::Off,
            link: None,
            accepted: Native::cubic(),
        };
        let mut host = Host::bind(options).unwrap();
        let to = peer.local_addr().unwrap();
        let id = host.connect(to, Congestion::Native(Native::cubic())).unwrap();
        (host, id, peer)
    }

    #[test]
    fn the_end_of_the_stream_is_known_before_anything_is_sent() {
        let (mut host, id, peer) = connecting();
        let mut source = pattern(200_000);
        source.read_ahead(&mut host, id, Duration::from_millis(100)).unwrap();
        let known = host.connection(id).unwrap().pending();
        assert_eq!(known, (HEAD + 200_000 + HASH) as u64);
        let nothing = peer.recv(&mut [0; 2000]).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        host.turn(Duration::ZERO).unwrap();
        peer.recv(&mut [0; 2000]).unwrap();
    }

    /// At most 64 kB, which is what a pipe holds, in 20 ms: the window would take five seconds.
    #[test]
    fn a_slow_disk_does_not_hold_the_hello_up() {
        let (mut host, id, _peer) = connecting();
        let (slow, mut disk) = io::pipe().unwrap();
        let mut source = Source {
            from: From::File(File::from(OwnedFd::from(slow)), "slow".into()),
            ..pattern(1 << 30)
        };
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while disk.write_all(&[7; 1 << 16]).is_ok() {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
            });
            source.read_ahead(&mut host, id, Duration::from_millis(100)).unwrap();
            // Its other end is closed, and the disk stops.
            drop(source);
        });
        let known = host.connection(id).unwrap().pending();
        assert!((ROUND as u64..8 << 20).contains(&known), "{known}");
    }

    #[test]
    fn a_stream_is_head_bytes_and_hash_however_it_is_cut() {
        for bytes in [0, 1, 7, 8, 1000] {
            let stream = whole(pattern(bytes), 4096);
            assert_eq!(stream.len(), HEAD + bytes as usize + HASH);
            let body = &stream[HEAD..HEAD + bytes as usize];
            assert_eq!(stream[HEAD + bytes as usize..], blake3::hash(body).as_bytes()[..]);
            for room in [1, 3, 17, 100] {
                assert_eq!(whole(pattern(bytes), room), stream, "{bytes} bytes in pieces of {room}");
            }
        }
    }
}
