//! A pair of virtual Ethernet devices between two namespaces, one of which may send no faster than a rate.
//!
//! Made with `ip` and `tc` (iproute2): the devices go with their namespaces.

use std::io;
use std::net::IpAddr;
use std::process::Command;

use ccplane_tun::Namespace;
use ccplane_units::Rate;

use crate::bench_kernel::Ends;
use crate::error::Error;

/// A private network of two (RFC 1918) that is nowhere but in the two namespaces.
const SENDER: &str = "10.78.0.1/30";
const RECEIVER: &str = "10.78.0.2/30";

/// Two namespaces and the devices between them; the first sends at this rate, or as fast as it can.
pub(super) fn make(rate: Option<Rate>) -> Result<Ends, Error> {
    let id = std::process::id();
    let namespace = |end: &str| {
        Namespace::create(&format!(
            "ccplane-{id}-{end}-{}",
            rate.unwrap_or_default().bytes_per_sec()
        ))
        .map_err(|error| Error::from_tun(error, true))
    };
    let ends = Ends {
        sender: namespace("wire-snd")?,
        receiver: namespace("wire-rcv")?,
        address: IpAddr::from([10, 78, 0, 2]),
    };
    let peer = ends.receiver.name().to_owned();
    let steps: [(&Namespace, &str, &[&str]); 5] = [
        (
            &ends.sender,
            "ip",
            &[
                "link", "add", "wire0", "type", "veth", "peer", "name", "wire1", "netns", &peer,
            ],
        ),
        (&ends.sender, "ip", &["addr", "add", SENDER, "dev", "wire0"]),
        (&ends.receiver, "ip", &["addr", "add", RECEIVER, "dev", "wire1"]),
        (&ends.receiver, "ip", &["link", "set", "wire1", "up"]),
        (&ends.sender, "ip", &["link", "set", "wire0", "up"]),
    ];
    for (inside, program, arguments) in steps {
        run(inside, program, arguments)?;
    }
    if let Some(rate) = rate {
        let bits = format!("{}bit", rate.bytes_per_sec() * 8);
        // A bucket of a millisecond at 10 Gbit/s: smaller and the timer limits the rate, larger and bursts pass the limit.
        let limit = [
            "qdisc", "add", "dev", "wire0", "root", "tbf", "rate", &bits, "burst", "1mb", "latency", "5ms",
        ];
        run(&ends.sender, "tc", &limit)?;
    }
    Ok(ends)
}

fn run(inside: &Namespace, program: &str, arguments: &[&str]) -> Result<(), Error> {
    let mut command = Command::new(program);
    command.args(arguments);
    let confined = inside
        .confine(&mut command)
        .map_err(|error| Error::from_tun(error, true))?;
    let fail = |what: String| {
        let told = Error::traffic(
            "make a link between two namespaces",
            "it needs `ip` and `tc` (iproute2)",
        );
        told(io::Error::other(what))
    };
    let output = confined.output().map_err(|error| fail(format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(fail(format!("`{program} {}`: {}", arguments.join(" "), said.trim())))
}
