//! A socket that the kernel paces.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;

/// Has TCP pace the socket at its congestion control's rate, and never above so many bytes/s
/// (`SO_MAX_PACING_RATE`, socket(7)): where no `fq` does it on the way, TCP's own timer. What the
/// congestion control asks for is 1.2 times the window a round trip, twice in slow start, unless it
/// says otherwise (`tcp_update_pacing_rate`).
pub fn pace(socket: &impl AsFd, most: u64) -> io::Result<()> {
    let (value, size) = (
        (&raw const most).cast(),
        size_of::<u64>() as libc::socklen_t,
    );
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads the eight bytes that `value` points to, which live for the call.
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
    fn no_more_leaves_than_was_allowed_and_a_file_has_no_pace() {
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
        // 0.4 s, less what leaves at once in the beginning.
        assert!(
            start.elapsed() > Duration::from_millis(200),
            "{:?}",
            start.elapsed()
        );
        let file = std::fs::File::open("/dev/null").expect("every host has it");
        assert!(pace(&file, 1).is_err());
    }
}
