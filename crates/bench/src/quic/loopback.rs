//! noq on loopback: its own Cubic and ours in turns, both ends in one thread.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads a clock")]

use std::time::Instant;

use ccplane_algorithms::{Parameters, Registry};
use ccplane_link::identity::Identity;
use ccplane_quic::host::{HostOptions, Native, QuicCongestion, QuicHost};
use ccplane_quic::{OperatorLimits, QuicPlane, Stack};
use ccplane_testbed::cpu::process_ns;
use ccplane_units::{Duration, Rate};

use super::Options;
use crate::rounds::Turns;
use crate::{Error, Figures};

/// noq 1.4 ends connections on loopback with "too many gaps in stream buffer" where packets are
/// lost: neither is let that fast.
const LIMIT: Rate = Rate::from_bits_per_sec(2_000_000_000);
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Own,
    Ours,
}

struct Run {
    gbps: f64,
    cpu_s_per_gb: f64,
}

pub(super) fn run(
    options: &Options,
    registry: &Registry,
    figures: &mut Figures,
    step: &mut dyn FnMut(f64, &str) -> bool,
) -> Result<(), Error> {
    let rounds = options.rounds.0;
    let turns = Turns::take(rounds, &[Who::Own, Who::Ours], |round, who| {
        let goes_on = step(round as f64 / rounds as f64, "loopback");
        if goes_on {
            once(who, options.run.0, registry)
        } else {
            Err(ccplane_lab::Error::Interrupted.into())
        }
    })?;
    for (key, who) in [
        ("noq_loopback_gbps_own", Who::Own),
        ("noq_loopback_gbps", Who::Ours),
    ] {
        figures.add(key, turns.median(who, |run| run.gbps), "Gbit/s");
    }
    for (key, who) in [
        ("noq_cpu_s_per_gb_own", Who::Own),
        ("noq_cpu_s_per_gb", Who::Ours),
    ] {
        figures.add(key, turns.median(who, |run| run.cpu_s_per_gb), "s/GB");
    }
    figures
        .ratio(
            "noq_loopback_ratio",
            turns.ratio(Who::Ours, Who::Own, |run| run.gbps),
            "x noq's Cubic",
        )
        .at_least(0.97);
    figures
        .ratio(
            "noq_cpu_ratio",
            turns.ratio(Who::Ours, Who::Own, |run| run.cpu_s_per_gb),
            "x noq's Cubic",
        )
        .at_most(1.03);
    figures.note(format!(
        "loopback: one connection, both ends in one thread, {rounds} runs of {} each in turns, at most {LIMIT}: noq 1.4 ends faster ones \
         with \"too many gaps in stream buffer\" where packets are lost",
        options.run.0
    ));
    Ok(())
}

fn once(who: Who, length: Duration, registry: &Registry) -> Result<Run, Error> {
    let failed = |why: &dyn std::fmt::Display| Error::failed(why.to_string());
    let congestion = match who {
        Who::Own => QuicCongestion::Native(Native::Cubic),
        Who::Ours => {
            let cubic = registry
                .by_name("cubic", &Parameters::default())
                .map_err(|why| failed(&why))?;
            QuicCongestion::Steered(
                QuicPlane::in_process(Stack::Noq, cubic, OperatorLimits::default())
                    .map_err(|why| failed(&why))?,
            )
        }
    };
    let identity = Identity::new().map_err(|why| failed(&why))?;
    let options = |congestion| HostOptions {
        stack: Stack::Noq,
        local: ([127, 0, 0, 1], 0).into(),
        window: 8 << 20,
        idle_timeout: Some(Duration::from_secs(5)),
        max_rate: Some(LIMIT),
        qlog: None,
        dscp: 0,
        connections_max: 1,
        per_address: 1,
        congestion,
    };
    let server = QuicHost::listen(options(QuicCongestion::Native(Native::Cubic)), &identity)
        .map_err(|why| failed(&why))?;
    let client = QuicHost::bind(options(congestion), Some(identity.fingerprint()))
        .map_err(|why| failed(&why))?;
    let to = server.local();
    let mut hosts = [server, client];
    let id = hosts[1].connect(to).map_err(|why| failed(&why))?;
    let (mut arriving, mut received, mut begun) = (None, 0u64, None);
    let length = std::time::Duration::from_nanos(length.as_nanos());
    loop {
        if let Some(why) = hosts[1].failure(id) {
            return Err(failed(&format!("a connection on loopback ended: {why}")));
        }
        while hosts[1].write(id, &ZEROS) > 0 {}
        QuicHost::poll_all(&mut hosts, Duration::from_millis(10)).map_err(|why| failed(&why))?;
        arriving = arriving.or_else(|| hosts[0].accept());
        if let Some(id) = arriving {
            received += hosts[0].read(id, usize::MAX, |_| ()) as u64;
        }
        // From the first byte on: the handshake is not what is measured.
        let (at, cpu, before) = match begun {
            Some(begun) => begun,
            None if received > 0 => *begun.insert((Instant::now(), process_ns(), received)),
            None => continue,
        };
        let elapsed = at.elapsed();
        if elapsed >= length {
            let bytes = (received - before) as f64;
            return Ok(Run {
                gbps: bytes * 8.0 / elapsed.as_secs_f64() / 1e9,
                cpu_s_per_gb: (process_ns() - cpu) as f64 / bytes.max(1.0),
            });
        }
    }
}
