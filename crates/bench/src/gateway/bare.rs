//! A forwarder between a TUN device and UDP that does nothing else: no seal, no queue, no
//! measurement. What it costs is the kernel's part of a gateway's work, and little more.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use ccplane_host::{FRAME_BYTES_MAX, Frame, Head, Joiner, Tun};
use ccplane_udp::{DATAGRAM_BYTES_MAX, DatagramMarks, Inbox, Socket};
use nix::poll::{PollFd, PollFlags, poll};

use crate::Error;

/// A stop is seen within so many ms.
const LOOK: u16 = 50;

/// It runs, a thread a direction, until it is dropped.
pub struct Bare {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Bare {
    /// Starts it, in the calling thread's namespace.
    pub fn start(tun: Tun, socket: Socket, to: SocketAddr) -> Result<Bare, Error> {
        let failed = || Error::because("start a forwarder");
        let tun = Arc::new(tun);
        let back = socket.try_clone().map_err(failed())?;
        let mut bare = Bare {
            stop: Arc::default(),
            threads: Vec::new(),
        };
        let (stop, device) = (Arc::clone(&bare.stop), Arc::clone(&tun));
        let send = thread::Builder::new().spawn(move || send(&stop, &device, &socket, to));
        bare.threads.push(send.map_err(failed())?);
        let stop = Arc::clone(&bare.stop);
        let receive = thread::Builder::new().spawn(move || receive(&stop, &tun, &back));
        bare.threads.push(receive.map_err(failed())?);
        Ok(bare)
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // Where it failed nothing came through, which the measurement says.
            let _ = thread.join();
        }
    }
}

fn wait(fd: BorrowedFd<'_>, events: PollFlags) {
    let _ = poll(&mut [PollFd::new(fd, events)], LOOK);
}

/// Each frame leaves in one call, cut into its packets by whoever sends it.
fn send(stop: &AtomicBool, tun: &Tun, socket: &Socket, to: SocketAddr) -> io::Result<()> {
    let mut frame = vec![0; FRAME_BYTES_MAX].into_boxed_slice();
    let mut batch = vec![0; FRAME_BYTES_MAX + DATAGRAM_BYTES_MAX].into_boxed_slice();
    while !stop.load(Ordering::Relaxed) {
        wait(tun.as_fd(), PollFlags::POLLIN);
        while let Some(length) = tun.read(&mut frame)? {
            let bytes = &frame[..length];
            let Ok(of) = Frame::parse(bytes) else {
                continue;
            };
            let mut end = 0;
            for index in 0..of.packets() {
                let mut head = Head::default();
                let Ok([first, rest]) = of.write_packet(bytes, index, false, &mut head) else {
                    continue;
                };
                for piece in [first, rest] {
                    batch[end..end + piece.len()].copy_from_slice(piece);
                    end += piece.len();
                }
            }
            // With headers of its own for each packet, a frame may be longer than a datagram.
            let size = usize::from(of.bytes(0));
            let most = (DATAGRAM_BYTES_MAX / size).min(socket.batch_max()) * size;
            for run in batch[..end].chunks(most.max(size)) {
                match socket.send(to, run, size, DatagramMarks::default()) {
                    Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
                        wait(socket.as_fd(), PollFlags::POLLOUT);
                        let _ = socket.send(to, run, size, DatagramMarks::default());
                    }
                    // Lost, as on a wire.
                    _ => {}
                }
            }
        }
    }
    Ok(())
}

fn receive(stop: &AtomicBool, tun: &Tun, socket: &Socket) -> io::Result<()> {
    let mut inbox = Inbox::new();
    let mut joiner = Joiner::new(tun.supports_udp_segmentation());
    // What the device does not take is lost.
    let write = |joiner: &mut Joiner| {
        if let Some(frame) = joiner.finish() {
            let _ = tun.write([frame, &[]]);
        }
    };
    while !stop.load(Ordering::Relaxed) {
        wait(socket.as_fd(), PollFlags::POLLIN);
        socket.receive(&mut inbox)?.for_each(|_, _, packet| {
            if !joiner.add(packet).unwrap_or(true) {
                write(&mut joiner);
                let _ = joiner.add(packet);
            }
        });
        write(&mut joiner);
    }
    Ok(())
}
