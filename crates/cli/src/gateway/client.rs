//! `ccplane gateway status`, `events`, `pass` and `control`: requests to a running gateway.

use std::io;
use std::path::Path;

use ccplane_gateway::status::{ErrorReply, StatusRequest, request};
use serde_json::Value;

use crate::exit::{Failure, FailureKind};

/// Shows the gateway's status.
pub fn status(socket: &Path, json: bool) -> Result<(), Failure> {
    let report = request_one(socket, &StatusRequest::Status)?;
    if json {
        println!("{report}");
    } else {
        show(&report);
    }
    Ok(())
}

/// Shows the gateway's events.
pub fn events(socket: &Path, follow: bool, json: bool) -> Result<(), Failure> {
    let question = StatusRequest::Events { after: 0, follow };
    request_each(socket, &question, |event| {
        if json {
            println!("{event}");
        } else {
            let at = event["at"].as_f64().unwrap_or_default();
            println!(
                "{at:12.3} s  {:12} {:10} {}",
                text(&event["peer"]),
                text(&event["what"]),
                text(&event["text"])
            );
        }
    })
}

/// Lets a peer's traffic pass without a limit, or controls it again.
pub fn set_mode(socket: &Path, peer: &str, pass: bool, json: bool) -> Result<(), Failure> {
    let question = StatusRequest::ByHand {
        peer: peer.to_owned(),
        pass,
    };
    let report = request_one(socket, &question)?;
    if json {
        println!("{report}");
    } else if let Some(shown) =
        peers(&report).find(|shown| shown["name"] == peer || shown["public_key"] == peer)
    {
        println!("{}: {}", text(&shown["name"]), text(&shown["why"]));
    }
    Ok(())
}

/// Returns the reply to a request that has one line.
fn request_one(socket: &Path, question: &StatusRequest) -> Result<Value, Failure> {
    let mut answer = None;
    request_each(socket, question, |line| answer = Some(line))?;
    answer.ok_or_else(|| {
        Failure::text(
            FailureKind::Failed,
            "the gateway closed the connection without an answer",
        )
    })
}

/// Calls `take` for every line of a reply.
fn request_each(
    socket: &Path,
    question: &StatusRequest,
    mut take: impl FnMut(Value),
) -> Result<(), Failure> {
    let mut refused = None;
    let asked = request(socket, question, |line| {
        if let Ok(ErrorReply { error }) = serde_json::from_str(line) {
            refused = Some(error);
            return false;
        }
        serde_json::from_str(line).map(&mut take).is_ok()
    });
    asked.map_err(|why| connect_failure(socket, &why))?;
    match refused {
        None => Ok(()),
        Some(error) => Err(match error.split_once("; ") {
            Some((what, hint)) => Failure::text(FailureKind::Usage, what).hint(hint),
            None => Failure::text(FailureKind::Usage, error),
        }),
    }
}

fn connect_failure(socket: &Path, why: &io::Error) -> Failure {
    let failure = Failure::text(
        FailureKind::Failed,
        format!("no gateway answers at {}: {why}", socket.display()),
    );
    match why.kind() {
        io::ErrorKind::PermissionDenied => {
            failure.hint("run this as root or as the gateway's user")
        }
        _ => failure.hint(
            "start one with `ccplane gateway run FILE`, or give its socket in \
             CCPLANE_GATEWAY_SOCKET",
        ),
    }
}

fn show(report: &Value) {
    let uptime = report["uptime"].as_f64().unwrap_or_default();
    println!(
        "listening on {}, interface {}, for {uptime:.0} s",
        text(&report["listen"]),
        text(&report["device"])
    );
    for peer in peers(report) {
        let number = |name: &str| peer[name].as_f64().unwrap_or_default();
        let mbit = |name: &str| number(name) / 1e6;
        println!("\n{}  {}", text(&peer["name"]), text(&peer["why"]));
        let endpoint = peer["endpoint"].as_str().unwrap_or("unknown address");
        println!(
            "  at {endpoint}, {}, {}, in this mode for {:.0} s",
            handshake(peer),
            longest_packet(peer),
            number("since_seconds")
        );
        let limit = peer["rate"].as_f64();
        let limit = limit.map_or("no limit".to_owned(), |rate| {
            format!("limit {:.1} Mbit/s", rate / 1e6)
        });
        println!(
            "  {limit}, sending {:.1}, arriving {:.1} Mbit/s",
            mbit("sent"),
            mbit("received")
        );
        println!(
            "  {}, local queue {:.0} packets, {:.0} bytes",
            round_trip(peer),
            number("queue_packets"),
            number("queue_bytes")
        );
        let classes = peer["classes"].as_array().map_or(&[][..], Vec::as_slice);
        for class in classes.iter().filter(|_| classes.len() > 1) {
            let count = |name: &str| class[name].as_u64().unwrap_or_default();
            println!(
                "  class {}: queue {} packets, {} bytes; {} sent, {} dropped",
                text(&class["name"]),
                count("queue_packets"),
                count("queue_bytes"),
                count("sent_packets"),
                count("dropped_packets")
            );
        }
        let counts = &peer["counts"];
        let count = |name: &str| counts[name].as_u64().unwrap_or_default();
        println!(
            "  packets: {} sent, {} dropped here, {} lost, {} out of order; {} received",
            count("sent_packets"),
            count("dropped_packets"),
            count("missing_packets"),
            count("out_of_order_packets"),
            count("received_packets")
        );
    }
}

/// Describes the age of the keys.
fn handshake(peer: &Value) -> String {
    match peer["keys_age_seconds"].as_f64() {
        Some(age) => format!("handshake {age:.0} s ago"),
        None => "no handshake yet".to_owned(),
    }
}

/// Describes the longest packet and whether the peer has confirmed that it arrives.
fn longest_packet(peer: &Value) -> String {
    let known = match (
        text(&peer["mtu_search"]),
        peer["mtu_confirmed"] == peer["mtu"],
    ) {
        ("complete", true) => "confirmed",
        ("searching", true) => "confirmed; probing longer ones",
        ("searching" | "complete", false) => "not confirmed yet",
        _ => "not confirmed by the peer",
    };
    format!("packets of up to {} bytes ({known})", peer["mtu"])
}

/// Describes the RTT. Zero means unknown.
fn round_trip(peer: &Value) -> String {
    let known = |name: &str| peer[name].as_f64().filter(|ms| *ms > 0.0);
    match (known("rtt"), known("min_rtt")) {
        (Some(rtt), Some(least)) => format!("RTT {rtt:.1} ms, minimum {least:.1}"),
        _ => "RTT unknown".to_owned(),
    }
}

fn peers(report: &Value) -> impl Iterator<Item = &Value> {
    report["peers"].as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_peer_is_described_in_plain_words() {
        let peer = json!({
            "keys_age_seconds": 4.2, "rtt": 51.06, "min_rtt": 40.4,
            "mtu": 1_240, "mtu_confirmed": 1_240, "mtu_search": "complete",
        });
        assert_eq!(handshake(&peer), "handshake 4 s ago");
        assert_eq!(round_trip(&peer), "RTT 51.1 ms, minimum 40.4");
        assert_eq!(
            longest_packet(&peer),
            "packets of up to 1240 bytes (confirmed)"
        );
        let unknown = json!({
            "keys_age_seconds": null, "rtt": 0.0, "min_rtt": 0.0,
            "mtu": 1_420, "mtu_confirmed": null, "mtu_search": "unconfirmed",
        });
        assert_eq!(
            longest_packet(&unknown),
            "packets of up to 1420 bytes (not confirmed by the peer)"
        );
        assert_eq!(handshake(&unknown), "no handshake yet");
        assert_eq!(round_trip(&unknown), "RTT unknown");
    }
}
