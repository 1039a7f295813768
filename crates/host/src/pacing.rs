//! Pacing of a socket by the kernel.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;

/// Enables pacing of a TCP socket at its congestion control's rate, limited to `most` bytes/s
/// (`SO_MAX_PACING_RATE`, socket(7)). An `fq` qdisc paces if there is one, else TCP's own timer.
/// Unless the congestion control sets a rate, it is 1.2 times the window per round trip, and twice
/// the window in slow start (`tcp_update_pacing_rate`).
pub fn pace(socket: &impl AsFd, max_rate: u64) -> io::Result<()> {
    let (value, size) = (
        (&raw const max_rate).cast(),
        size_of::<u64>() as libc::socklen_t,
    );
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads eight bytes at `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            descriptor,
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            value,
            size,
        )
    };
    Ok(Errno::result(result).map(drop)?)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the kernel paces in real time")]
    fn the_pacing_rate_is_kept_and_files_have_none() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut sender =
            TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (mut receiver, _) = listener.accept().expect("it is connected");
        pace(&sender, 5_000_000).expect("a TCP socket");
        let start = Instant::now();
        let writer = thread::spawn(move || sender.write_all(&vec![0; 2_000_000]));
        let mut all = Vec::new();
        receiver.read_to_end(&mut all).expect("connected");
        writer.join().expect("no panic").expect("connected");
        assert_eq!(all.len(), 2_000_000);
        // 0.4 s, less the initial burst.
        assert!(
            start.elapsed() > Duration::from_millis(200),
            "{:?}",
            start.elapsed()
        );
        let file = std::fs::File::open("/dev/null").expect("every host has it");
        assert!(pace(&file, 1).is_err());
    }
}
