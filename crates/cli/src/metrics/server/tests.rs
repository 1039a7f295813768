use std::io::{Read, Write};
use std::net::TcpStream;

use super::*;
use crate::metrics::{AlgorithmStats, of_algorithms};

fn figures() -> MetricsSource {
    Ok(of_algorithms(&[AlgorithmStats {
        algorithm: "ccp_x".into(),
        fallbacks: 2,
        ..Default::default()
    }]))
}

fn start(answer: impl Fn() -> MetricsSource + Send + 'static) -> SocketAddr {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    serve(address, move |to: MetricsReply| drop(to.send(answer()))).unwrap()
}

/// Returns everything received for `request` until either side closes the connection.
fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    // The server may close before it has read everything.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

const GET_REQUEST: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

#[test]
fn a_scrape_returns_the_current_values() {
    let address = start(figures);
    let answer = exchange(address, GET_REQUEST);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(
        answer.contains("ccplane_fallbacks_total{algorithm=\"ccp_x\"} 2"),
        "{answer}"
    );
    assert!(serve(address, |_| ()).is_err(), "the port is taken");
}

#[test]
fn scrapes_get_the_requested_format_and_browsers_a_page() {
    let address = start(figures);
    let answer = exchange(address, GET_REQUEST);
    assert!(
        answer.contains("content-type: text/plain; version=0.0.4"),
        "{answer}"
    );
    assert!(
        answer.contains("# TYPE ccplane_fallbacks_total counter"),
        "{answer}"
    );
    let request = "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text;version=1.0.0\r\n\r\n";
    let answer = exchange(address, request.as_bytes());
    assert!(
        answer.contains("content-type: application/openmetrics-text"),
        "{answer}"
    );
    assert!(answer.ends_with("# EOF\n"), "{answer}");
    let answer = exchange(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("href=\"/metrics\""),
        "{answer}"
    );
    assert!(exchange(address, b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 404"));
}

#[test]
fn requests_with_a_body_are_rejected_and_the_next_one_is_served() {
    let address = start(figures);
    for header in [
        "Content-Length: 100000000000000",
        "Content-Length: 5",
        "Transfer-Encoding: chunked",
    ] {
        for method in ["GET", "POST"] {
            let request = format!("{method} /metrics HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n");
            let answer = exchange(address, request.as_bytes());
            assert!(answer.starts_with("HTTP/1.1 413"), "{header}: {answer}");
        }
    }
    assert!(exchange(address, GET_REQUEST).starts_with("HTTP/1.1 200"));
}

#[test]
fn an_endless_header_is_rejected() {
    let address = start(figures);
    let mut request = b"GET /metrics HTTP/1.1\r\nX: ".to_vec();
    request.resize(1 << 20, b'a');
    let answer = exchange(address, &request);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
        "{answer}"
    );
    assert!(exchange(address, GET_REQUEST).starts_with("HTTP/1.1 200"));
}

#[test]
fn idle_connections_release_their_slots() {
    let address = start(figures);
    let idle: Vec<_> = (0..3 * CONNECTIONS_MAX)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    assert!(exchange(address, GET_REQUEST).starts_with("HTTP/1.1 200"));
    drop(idle);
}

#[test]
fn failed_scrapes_return_an_error_and_are_counted() {
    let failing = Cell::new(true);
    let address = start(move || match failing.replace(false) {
        true => Err("too many open files".to_owned()),
        false => figures(),
    });
    let answer = exchange(address, GET_REQUEST);
    assert!(
        answer.starts_with("HTTP/1.1 503") && answer.contains("too many open files"),
        "{answer}"
    );
    let answer = exchange(address, GET_REQUEST);
    assert!(
        answer.contains("ccplane_unread_scrapes_total 1"),
        "{answer}"
    );
}
