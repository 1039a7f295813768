//! Connection of a [`Noq`](super::Noq) host with its one bidirectional stream.
#![expect(clippy::disallowed_methods, reason = "the time of a close")]

use std::net::IpAddr;
use std::time::Instant;

use noq_proto::{
    Connection as State, ConnectionError, ConnectionHandle, Dir, Event, PathId, ReadError,
    StreamEvent, StreamId, VarInt,
};

use crate::host::qlog::{CloseError, ConnectionClose, Qlog};
use crate::host::{Connection, ConnectionStatus, QuicStats, code};

pub(super) struct NoqConnection {
    pub handle: ConnectionHandle,
    pub state: State,
    /// True for the client, which opens the stream.
    is_client: bool,
    status: ConnectionStatus,
    stream: Option<StreamId>,
    finished: bool,
    /// Closed by the application; kept until the peer is notified.
    pub removed: bool,
    /// Host or network of the peer, for accepted connections.
    pub source: Option<IpAddr>,
    /// The peer's address was validated before the handshake.
    pub address_verified: bool,
    qlog: Qlog,
}

impl From<&ConnectionError> for ConnectionClose {
    fn from(error: &ConnectionError) -> ConnectionClose {
        let (initiator, error, reason, trigger) = match error {
            ConnectionError::TransportError(error) => (
                "local",
                Some(CloseError::Transport(error.code.into())),
                error.reason.clone(),
                "error",
            ),
            ConnectionError::ConnectionClosed(frame) => (
                "remote",
                Some(CloseError::Transport(frame.error_code.into())),
                String::from_utf8_lossy(&frame.reason).into_owned(),
                "error",
            ),
            ConnectionError::ApplicationClosed(frame) => (
                "remote",
                Some(CloseError::Application(frame.error_code.into_inner())),
                String::from_utf8_lossy(&frame.reason).into_owned(),
                "application",
            ),
            ConnectionError::Reset => ("remote", None, String::new(), "stateless_reset"),
            ConnectionError::TimedOut => ("local", None, String::new(), "idle_timeout"),
            ConnectionError::VersionMismatch => ("local", None, String::new(), "version_mismatch"),
            ConnectionError::LocallyClosed => ("local", None, String::new(), "application"),
            ConnectionError::CidsExhausted => ("local", None, error.to_string(), "error"),
        };
        ConnectionClose {
            initiator: Some(initiator),
            error,
            reason,
            trigger: Some(trigger),
        }
    }
}

impl NoqConnection {
    pub fn new(
        handle: ConnectionHandle,
        state: State,
        is_client: bool,
        qlog: Qlog,
    ) -> NoqConnection {
        NoqConnection {
            handle,
            state,
            is_client,
            status: ConnectionStatus::default(),
            stream: None,
            finished: false,
            removed: false,
            source: None,
            address_verified: false,
            qlog,
        }
    }

    /// Returns true while the address of a connecting peer may be forged.
    pub fn is_unverified(&self) -> bool {
        self.source.is_some() && !self.address_verified && !self.status.connected
    }

    /// Processes noq's events.
    pub fn process_events(&mut self, now: Instant) {
        while let Some(event) = self.state.poll() {
            match event {
                Event::Connected => self.status.connected = true,
                Event::ConnectionLost { reason } => {
                    self.qlog.close(now, &ConnectionClose::from(&reason));
                    self.status.failure = self
                        .status
                        .failure
                        .take()
                        .or_else(|| Some(reason.to_string()))
                }
                Event::Stream(StreamEvent::Finished { id }) if Some(id) == self.stream => {
                    self.status.sent_all = true
                }
                _ => {}
            }
        }
    }

    /// Returns the stream, once it can be opened or accepted.
    fn stream(&mut self) -> Option<StreamId> {
        if self.stream.is_none() && self.status.connected {
            let mut streams = self.state.streams();
            self.stream = if self.is_client {
                streams.open(Dir::Bi)
            } else {
                streams.accept(Dir::Bi)
            };
        }
        self.stream
    }

    /// Logs changed metrics, if there is a log.
    pub fn log_metrics(&mut self, now: Instant) {
        if self.qlog.is_due(now) {
            let stats = self.stats();
            self.qlog.record_metrics(now, &stats);
        }
    }
}

impl Connection for NoqConnection {
    fn write(&mut self, bytes: &[u8]) -> usize {
        let Some(stream) = self.stream() else {
            return 0;
        };
        // On an error the stream is blocked, or its end is reported by an event.
        self.state.send_stream(stream).write(bytes).unwrap_or(0)
    }

    fn finish(&mut self) {
        if let Some(stream) = self.stream()
            && !self.finished
        {
            // On an error the peer has stopped the stream, which an event reports.
            let _ = self.state.send_stream(stream).finish();
            self.finished = true;
        }
    }

    fn read(&mut self, most: usize, take: &mut dyn FnMut(&[u8])) -> usize {
        let Some(stream) = self.stream() else {
            return 0;
        };
        let mut receiving = self.state.recv_stream(stream);
        let Ok(mut chunks) = receiving.read(true) else {
            return 0;
        };
        let mut count = 0;
        while count < most {
            match chunks.next(most - count) {
                Ok(Some(chunk)) => {
                    take(&chunk.bytes);
                    count += chunk.bytes.len();
                }
                Ok(None) => {
                    self.status.read_all = true;
                    break;
                }
                Err(ReadError::Blocked | ReadError::Reset(_)) => break,
            }
        }
        // The result can be ignored, since transmission is polled on every turn.
        let _ = chunks.finalize();
        count
    }

    fn status(&self) -> &ConnectionStatus {
        &self.status
    }

    fn close(&mut self, graceful: bool) {
        let now = Instant::now();
        self.removed = true;
        if !self.state.is_closed() {
            self.qlog
                .close(now, &ConnectionClose::by_application(code(graceful)));
            self.state
                .close(now, VarInt::from_u32(code(graceful)), Default::default());
        }
    }

    fn stats(&mut self) -> QuicStats {
        let metrics = self
            .state
            .congestion_state(PathId::ZERO)
            .map(|state| state.metrics())
            .unwrap_or_default();
        let mtu = self.state.current_mtu();
        let Some(path) = self.state.path_stats(PathId::ZERO) else {
            return QuicStats::default();
        };
        QuicStats {
            srtt: path.rtt.into(),
            cwnd: metrics.congestion_window,
            ssthresh: metrics.ssthresh,
            pacing_rate: metrics.pacing_rate,
            mtu,
            sent: path.sent_packets,
            lost: path.lost_packets - path.lost_plpmtud_probes.min(path.lost_packets),
        }
    }
}
