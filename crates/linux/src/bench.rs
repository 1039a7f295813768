//! Bulk TCP over loopback with a chosen congestion control: what a registration costs per ACK, beside the kernel's own.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use ccplane_units::Duration;

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Throughput {
    /// What the receivers read.
    pub bits_per_second: f64,
    /// Busy time of all CPUs, the agent's included, per second of the run. On a host that does other work it counts too.
    pub cpus: f64,
    /// Of that, what this process itself was charged with.
    pub own_cpus: f64,
}

/// `flows` connections send as fast as they can for `length`, after a tenth of it as a warm-up.
pub fn loopback(congestion_control: &str, flows: usize, length: Duration) -> std::io::Result<Throughput> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    let mut pairs = Vec::with_capacity(flows);
    for _ in 0..flows {
        let sender = TcpStream::connect(address)?;
        choose(&sender, congestion_control)?;
        pairs.push((sender, listener.accept()?.0));
    }
    let stop = AtomicBool::new(false);
    let received = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for (mut sender, mut receiver) in pairs {
            let (stop, received) = (&stop, &received);
            scope.spawn(move || {
                let chunk = vec![0; 1 << 17];
                while !stop.load(Relaxed) && sender.write_all(&chunk).is_ok() {}
            });
            scope.spawn(move || {
                let mut buffer = vec![0; 1 << 18];
                // Ends when its sender does.
                while let Ok(n @ 1..) = receiver.read(&mut buffer) {
                    received.fetch_add(n as u64, Relaxed);
                }
            });
        }
        std::thread::sleep((length / 10).to_std());
        let (started, cpus, own, bytes) = (Instant::now(), busy(), own(), received.load(Relaxed));
        std::thread::sleep(length.to_std());
        let seconds = started.elapsed().as_secs_f64();
        let outcome = Throughput {
            bits_per_second: (received.load(Relaxed) - bytes) as f64 * 8.0 / seconds,
            cpus: (busy() - cpus) / seconds,
            own_cpus: (self::own() - own) / seconds,
        };
        stop.store(true, Relaxed);
        Ok(outcome)
    })
}

/// Makes a socket use a congestion control of the kernel's or of [`crate::Kernel`].
pub fn choose(socket: &impl AsRawFd, name: &str) -> std::io::Result<()> {
    // SAFETY: the name and its length are valid for the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            name.len() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Seconds that all CPUs together were not idle.
fn busy() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let ticks: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal: all but idle and iowait; guest is part of user.
    let busy = ticks.iter().take(8).enumerate().filter(|(n, _)| !matches!(n, 3 | 4));
    busy.map(|(_, ticks)| *ticks).sum::<u64>() as f64 / 100.0
}

fn own() -> f64 {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF);
    let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 * 1e-6;
    usage
        .map(|usage| seconds(usage.user_time()) + seconds(usage.system_time()))
        .unwrap_or(0.0)
}
