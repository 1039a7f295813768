//! Hosts whose stack fails.

use std::future::poll_fn;

use super::connection::AsyncConnection;
use super::*;
use crate::Stack;
use crate::host::{Native, QuicCongestion, QuicStats};

/// Connection whose stack panics when it opens the stream.
struct BrokenConnection;

impl AsyncConnection for BrokenConnection {
    fn stats(&self) -> QuicStats {
        QuicStats::default()
    }

    fn close(&self, _code: u32) {}
}

fn connect(_to: SocketAddr) -> StackFuture<Step> {
    let opening = Box::pin(poll_fn(|_| panic!("a stack may panic")));
    Box::pin(ready(Ok(Step::Connected(
        Box::new(BrokenConnection),
        opening,
    ))))
}

/// Creates a client, or a server whose stack runs `serve` once.
fn host(serve: Option<fn(HandshakeSender)>) -> Runtime {
    let options = HostOptions {
        stack: Stack::Quinn,
        local: ([127, 0, 0, 1], 0).into(),
        window: 1 << 20,
        idle_timeout: None,
        max_rate: None,
        qlog: None,
        dscp: 0,
        connections_max: 1,
        per_address: 1,
        congestion: QuicCongestion::Native(Native::Cubic),
    };
    let make = async |_, handshakes: HandshakeSender| {
        match serve {
            Some(serve) => {
                let _ = tokio::spawn(async move { serve(handshakes) }).await;
            }
            None => std::mem::forget(handshakes),
        }
        Ok(AsyncEndpoint {
            connect: serve.is_none().then(|| Box::new(connect) as _),
            idle: Box::pin(ready(())),
        })
    };
    Runtime::start(&options, make).unwrap()
}

#[test]
fn a_connection_whose_stack_panics_has_failed_and_can_be_closed() {
    let mut host = host(None);
    let id = host.connect(([127, 0, 0, 1], 9).into()).unwrap();
    assert!(host.process().unwrap());
    let connection = host.connection_mut(id).unwrap();
    assert_eq!(
        connection.status().failure.as_deref(),
        Some("the stack failed")
    );
    assert_eq!(connection.write(b"data"), 0);
    connection.close(false);
    assert!(host.process().is_ok() && host.connection_count() == 0);
}

#[test]
fn a_host_whose_stack_has_ended_reports_it() {
    let serve: [fn(HandshakeSender); 2] = [drop, |_handshakes| panic!("a stack may panic")];
    for serve in serve {
        let mut host = host(Some(serve));
        for _ in 0..2 {
            let why = host.process().unwrap_err().to_string();
            assert!(why.contains("quinn has ended"), "{why}");
        }
        assert!(host.connect(([127, 0, 0, 1], 9).into()).is_err());
    }
}
