//! Hosts whose stack fails.

use std::future::poll_fn;

use super::connection::AsyncConnection;
use super::*;
use crate::Stack;
use crate::host::{Native, QuicCongestion, QuicStats};

/// Stack whose connections panic when they open their stream.
enum BrokenStack {
    Client,
    EndedServer,
    PanickingServer,
}

struct BrokenConnection;

impl AsyncEndpoint for BrokenStack {
    fn connect(&self, _to: SocketAddr) -> StackFuture<NewConnection> {
        let opening = Box::pin(poll_fn(|_| panic!("a stack may panic")));
        Box::pin(ready(Ok((Box::new(BrokenConnection) as _, opening as _))))
    }

    fn poll_accept(
        &mut self,
        _context: &mut Context<'_>,
    ) -> Poll<Option<StackFuture<NewConnection>>> {
        match self {
            BrokenStack::Client => Poll::Pending,
            BrokenStack::EndedServer => Poll::Ready(None),
            BrokenStack::PanickingServer => panic!("a stack may panic"),
        }
    }

    fn wait_idle(&self) -> StackFuture<()> {
        Box::pin(ready(Ok(())))
    }
}

impl AsyncConnection for BrokenConnection {
    fn stats(&self) -> QuicStats {
        QuicStats::default()
    }

    fn close(&self, _code: u32) {}
}

fn host(stack: BrokenStack) -> Runtime {
    let options = HostOptions {
        stack: Stack::Quinn,
        local: ([127, 0, 0, 1], 0).into(),
        window: 1 << 20,
        idle_timeout: None,
        max_rate: None,
        qlog: None,
        connections_max: 1,
        per_address: 1,
        congestion: QuicCongestion::Native(Native::Cubic),
    };
    let client = matches!(stack, BrokenStack::Client);
    Runtime::start(&options, client, |_| Ok(Box::new(stack))).unwrap()
}

#[test]
fn a_connection_whose_stack_panics_has_failed_and_can_be_closed() {
    let mut host = host(BrokenStack::Client);
    let id = host.connect(([127, 0, 0, 1], 9).into()).unwrap();
    assert!(host.process().unwrap());
    let connection = host.connection_mut(id).unwrap();
    assert_eq!(connection.failure(), Some("the stack failed"));
    assert_eq!(connection.write(b"data"), 0);
    connection.close(false);
    assert!(host.process().is_ok() && host.connection_count() == 0);
}

#[test]
fn a_host_whose_stack_has_ended_reports_it() {
    for stack in [BrokenStack::EndedServer, BrokenStack::PanickingServer] {
        let mut host = host(stack);
        for _ in 0..2 {
            let why = host.process().unwrap_err().to_string();
            assert!(why.contains("quinn has ended"), "{why}");
        }
        assert!(host.connect(([127, 0, 0, 1], 9).into()).is_err());
    }
}
