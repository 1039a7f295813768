//! Hosts whose stack fails.

use std::future::{Ready, ready};
use std::time::Duration;

use tokio::io::{Empty, Sink};

use super::pipe::StatsReader;
use super::serve::{Sending, StackConnection};
use super::*;
use crate::Stack;
use crate::host::{Native, QuicCongestion};

/// Stack whose connections panic when they open their stream, or that has already ended.
struct Broken {
    ended: bool,
}

struct Panics;

impl StackEndpoint for Broken {
    type Link = Panics;

    fn connect(&self, _to: SocketAddr) -> impl Future<Output = Result<Panics, String>> + 'static {
        ready(Ok(Panics))
    }

    async fn accept(&mut self) -> Option<impl Future<Output = Result<Panics, String>> + 'static> {
        if !self.ended {
            std::future::pending::<()>().await;
        }
        None::<Ready<Result<Panics, String>>>
    }

    async fn wait_idle(&mut self) {}
}

impl StackConnection for Panics {
    type Sending = Sink;
    type Receiving = Empty;

    async fn stream(&mut self, _client: bool) -> Result<(Sink, Empty), String> {
        panic!("a stack may panic")
    }

    fn stats_reader(&self) -> StatsReader {
        Arc::new(QuicStats::default)
    }

    fn close(&self, _code: u32) {}
}

impl Sending for Sink {
    async fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }
}

fn host(ended: bool) -> Runtime {
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
    Runtime::start(&options, true, move |_| Ok(Broken { ended })).unwrap()
}

/// Polls for up to ten seconds.
fn eventually(mut is: impl FnMut() -> bool) -> bool {
    (0..2_000).any(|_| {
        thread::sleep(Duration::from_millis(5));
        is()
    })
}

#[test]
fn a_connection_whose_stack_panics_has_failed_and_can_be_closed() {
    let mut host = host(false);
    let id = host.connect(([127, 0, 0, 1], 9).into()).unwrap();
    assert!(eventually(
        || host.process().is_ok() && host.failure(id).is_some()
    ));
    host.close(id, false);
    assert!(host.process().is_ok() && host.connection_count() == 0);
}

#[test]
fn a_host_whose_stack_has_ended_says_so() {
    let mut host = host(true);
    assert!(eventually(|| host.process().is_err()));
    let why = host.process().unwrap_err().to_string();
    assert!(why.contains("quinn has ended"), "{why}");
    assert!(host.connect(([127, 0, 0, 1], 9).into()).is_err());
}
