//! One connection over loopback: our transport's UDP driver, and the kernel's TCP.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use ccplane_testbed::Diag;
use ccplane_testbed::cpu::process_ns;
use ccplane_testbed::traffic::{self, TrafficPlan};
use ccplane_transport::{Native, TransportConfig};
use ccplane_udp::{Stamping, UdpCongestion, UdpHost, UdpOptions};
use ccplane_units::Duration;

use super::{DATAGRAM, RUN, Run};
use crate::Error;

/// Our own transport, a thread an end.
pub(super) fn over_udp(config: &TransportConfig) -> Result<Run, Error> {
    let options = || UdpOptions {
        local: SocketAddr::from(([127, 0, 0, 1], 0)),
        datagram_bytes: DATAGRAM,
        window: 4 << 20,
        tls: None,
        dscp: 0,
        config: config.clone(),
        stamping: Stamping::Software,
        link_rate: None,
        accept_congestion: Native::cubic(),
    };
    let mut server = UdpHost::bind(options())?;
    server.listen(1)?;
    let mut client = UdpHost::bind(options())?;
    let stop = AtomicBool::new(false);
    let wait = Duration::from_millis(10);
    thread::scope(|scope| {
        let to = server.local();
        let stopped = &stop;
        let receiving = scope.spawn(move || -> Result<u64, Error> {
            let (mut id, mut received) = (None, 0);
            while !stopped.load(Ordering::Relaxed) {
                server.poll(wait)?;
                id = id.or_else(|| server.accept());
                if let Some(id) = id {
                    let (first, second) = server.received(id);
                    let taken = first.len() + second.len();
                    server.consume(id, taken);
                    received += taken as u64;
                }
            }
            Ok(received)
        });
        let begun = (Instant::now(), process_ns());
        let mut run = || -> Result<(), Error> {
            let id = client.connect(to, UdpCongestion::Native(Native::cubic()))?;
            while begun.0.elapsed() < RUN.to_std() {
                let room = client.write_buffer(id).len();
                client.commit_write(id, room);
                client.poll(wait)?;
            }
            Ok(())
        };
        let sent = run();
        let (seconds, cpu) = (begun.0.elapsed().as_secs_f64(), process_ns() - begun.1);
        stop.store(true, Ordering::Relaxed);
        let received = receiving
            .join()
            .map_err(|_| Error::failed("the receiving end panicked"))??;
        sent.map(|()| run_of(received, seconds, cpu))
    })
}

/// The kernel's TCP, a thread an end.
pub(super) fn over_tcp() -> Result<Run, Error> {
    let fail = |why: std::io::Error| Error::failed(format!("TCP on loopback: {why}"));
    let plan = TrafficPlan {
        duration: RUN,
        sample_every: Duration::from_millis(200),
    };
    let congestion = if traffic::exists("cubic") {
        "cubic"
    } else {
        "reno"
    };
    let buffer = 4 << 20;
    let listener = traffic::listen(IpAddr::from([127, 0, 0, 1]), buffer).map_err(fail)?;
    let to = listener.local_addr().map_err(fail)?;
    let senders = vec![traffic::connect(to, congestion, buffer).map_err(fail)?];
    let receivers = traffic::accept(&listener, &senders).map_err(fail)?;
    let diag = Diag::open().map_err(fail)?;
    let cpu = process_ns();
    let done = traffic::transfer(senders, receivers, diag, &plan, |_, _| true).map_err(fail)?;
    let cpu = process_ns() - cpu;
    let received = done
        .flows
        .first()
        .and_then(|flow| flow.last())
        .map_or(0, |sample| sample.received);
    Ok(run_of(received, done.elapsed_ns as f64 / 1e9, cpu))
}

fn run_of(bytes: u64, seconds: f64, cpu_ns: u64) -> Run {
    Run {
        gbps: bytes as f64 * 8.0 / seconds / 1e9,
        cpu_s_per_gb: cpu_ns as f64 / bytes as f64,
    }
}
