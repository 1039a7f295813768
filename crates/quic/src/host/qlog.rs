//! qlog of a connection with its windows, rates, RTTs and losses, as a JSON text sequence (RFC
//! 7464).
//!
//! The file follows draft-ietf-quic-qlog-main-schema. It contains `quic:recovery_metrics_updated`
//! of draft-ietf-quic-qlog-quic-events-14 with the metrics that changed, at most once per
//! millisecond. The extension field `ccplane_packets_lost` counts the packets lost since the
//! previous event, because no stack reports which ones were lost. The last event is
//! `quic:connection_closed` with the reason. A write error ends the file, not the connection.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use ccplane_units::Duration;
use serde_json::{Map, Value, json};

use super::QuicStats;

/// Minimum interval between records of a connection. A busy connection changes its window with
/// every ACK; logging each change would cost more than it is worth.
const RECORD_INTERVAL_MIN: Duration = Duration::from_millis(1);

/// End of a connection, in terms of the schema.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ConnectionClose {
    /// `local` or `remote`.
    pub initiator: Option<&'static str>,
    pub error: Option<CloseError>,
    /// Text from the stack or the peer.
    pub reason: String,
    pub trigger: Option<&'static str>,
}

/// Error code of a CONNECTION_CLOSE frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseError {
    /// RFC 9000, section 20.1.
    Transport(u64),
    Application(u64),
}

impl ConnectionClose {
    /// Describes a close by the local application.
    pub fn by_application(code: u32) -> ConnectionClose {
        ConnectionClose {
            initiator: Some("local"),
            error: Some(CloseError::Application(code.into())),
            trigger: Some("application"),
            ..ConnectionClose::default()
        }
    }

    /// Describes an end of which only the stack's text is known.
    #[cfg(any(test, feature = "host-runtime"))]
    pub fn for_reason(reason: &str) -> ConnectionClose {
        ConnectionClose {
            reason: reason.to_owned(),
            ..ConnectionClose::default()
        }
    }
}

impl CloseError {
    /// Returns the name of a transport error in the schema, which allows a numeric code only with
    /// the name "unknown".
    fn name(code: u64) -> &'static str {
        const ERROR_NAMES: [&str; 17] = [
            "no_error",
            "internal_error",
            "connection_refused",
            "flow_control_error",
            "stream_limit_error",
            "stream_state_error",
            "final_size_error",
            "frame_encoding_error",
            "transport_parameter_error",
            "connection_id_limit_error",
            "protocol_violation",
            "invalid_token",
            "application_error",
            "crypto_buffer_exceeded",
            "key_update_error",
            "aead_limit_reached",
            "no_viable_path",
        ];
        let name = usize::try_from(code)
            .ok()
            .and_then(|code| ERROR_NAMES.get(code));
        name.copied().unwrap_or("unknown")
    }
}

pub(super) struct Qlog {
    out: Option<BufWriter<File>>,
    start: Instant,
    last: Duration,
    last_stats: QuicStats,
}

impl Qlog {
    /// Creates the log of a connection if the host has a log directory. If that fails, the
    /// connection continues without a log.
    pub fn open(folder: Option<&Path>, id: u64, client: bool, begun: Instant) -> Qlog {
        let vantage = if client { "client" } else { "server" };
        let name = format!("{vantage}-{id}");
        let out = folder.and_then(|folder| {
            File::create(folder.join(format!("{name}.sqlog")))
                .inspect_err(|why| {
                    tracing::warn!(
                        "cannot write the qlog {name} in {}: {why}",
                        folder.display()
                    )
                })
                .ok()
        });
        let mut log = Qlog {
            out: out.map(BufWriter::new),
            start: begun,
            last: Duration::ZERO,
            last_stats: QuicStats::default(),
        };
        log.record(&json!({
            "file_schema": "urn:ietf:params:qlog:file:sequential",
            "serialization_format": "application/qlog+json-seq",
            "title": "ccplane",
            "trace": {
                "vantage_point": { "type": vantage },
                "event_schemas": ["urn:ietf:params:qlog:events:quic-14"],
                "common_fields": {
                    "time_format": "relative_to_epoch",
                    "reference_time": { "clock_type": "monotonic", "epoch": "unknown" },
                },
            },
        }));
        log
    }

    /// Returns true if the minimum interval has passed.
    pub fn is_due(&self, now: Instant) -> bool {
        let at = Duration::from(now.saturating_duration_since(self.start));
        self.out.is_some()
            && (at.saturating_sub(self.last) >= RECORD_INTERVAL_MIN || self.last == Duration::ZERO)
    }

    /// Records the metrics that have changed.
    pub fn record_metrics(&mut self, now: Instant, stats: &QuicStats) {
        let at = Duration::from(now.saturating_duration_since(self.start));
        self.last = at;
        let ms = |time: Duration| time.as_nanos() as f64 / 1e6;
        let (seen, mut data) = (self.last_stats, Map::new());
        let mut changed = |key: &str, differs: bool, value: Value| {
            if differs {
                data.insert(key.to_owned(), value);
            }
        };
        changed(
            "smoothed_rtt",
            stats.srtt != seen.srtt,
            ms(stats.srtt).into(),
        );
        changed(
            "congestion_window",
            stats.cwnd != seen.cwnd,
            stats.cwnd.into(),
        );
        let known = |ssthresh: Option<u64>| ssthresh.filter(|bytes| *bytes != u64::MAX);
        let ssthresh = known(stats.ssthresh);
        changed(
            "ssthresh",
            ssthresh.is_some() && ssthresh != known(seen.ssthresh),
            ssthresh.into(),
        );
        let rate = stats.pacing_rate;
        // Bits per second.
        changed(
            "pacing_rate",
            rate.is_some() && rate != seen.pacing_rate,
            rate.map(|rate| rate.saturating_mul(8)).into(),
        );
        let lost = stats.lost.saturating_sub(seen.lost);
        changed("ccplane_packets_lost", lost > 0, lost.into());
        if !data.is_empty() {
            self.record(
                &json!({ "time": ms(at), "name": "quic:recovery_metrics_updated", "data": data }),
            );
        }
        self.last_stats = *stats;
    }

    /// Records the end of the connection and closes the file. Later calls have no effect.
    pub fn close(&mut self, now: Instant, closed: &ConnectionClose) {
        if self.out.is_none() {
            return;
        }
        let mut data = Map::new();
        let mut set = |key: &str, value: Value| drop(data.insert(key.to_owned(), value));
        if let Some(initiator) = closed.initiator {
            set("initiator", initiator.into());
        }
        match closed.error {
            Some(CloseError::Transport(code)) => {
                let name = CloseError::name(code);
                set("connection_error", name.into());
                if name == "unknown" {
                    set("error_code", code.into());
                }
            }
            // The schema has no names for ccplane's application errors.
            Some(CloseError::Application(code)) => {
                set("application_error", "unknown".into());
                set("error_code", code.into());
            }
            None => {}
        }
        if !closed.reason.is_empty() {
            set("reason", closed.reason.as_str().into());
        }
        if let Some(trigger) = closed.trigger {
            set("trigger", trigger.into());
        }
        let at = Duration::from(now.saturating_duration_since(self.start));
        let ms = at.as_nanos() as f64 / 1e6;
        self.record(&json!({ "time": ms, "name": "quic:connection_closed", "data": data }));
        self.out = None;
    }

    fn record(&mut self, record: &Value) {
        let Some(out) = &mut self.out else { return };
        if writeln!(out, "\u{1e}{record}").is_err() {
            self.out = None;
        }
    }
}

#[cfg(test)]
#[path = "../../../../tests/qlog/typed.rs"]
mod typed;

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "an arbitrary time origin")]

    use super::typed::typed_by_the_qlog_crate;
    use super::*;

    fn data(closed: &ConnectionClose) -> Value {
        let folder = std::env::temp_dir().join(format!("ccplane-qlog-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let begun = Instant::now();
        let mut log = Qlog::open(Some(&folder), 1, true, begun);
        log.record_metrics(
            begun,
            &QuicStats {
                cwnd: 12_000,
                ..QuicStats::default()
            },
        );
        log.close(begun, closed);
        let path = folder.join("client-1.sqlog");
        typed_by_the_qlog_crate(&path, 2);
        let text = std::fs::read_to_string(&path).expect("UTF-8");
        let _ = std::fs::remove_dir_all(&folder);
        let last = text.split('\u{1e}').next_back().expect("a record");
        let last: Value = serde_json::from_str(last).expect("JSON");
        assert_eq!(last["name"], "quic:connection_closed");
        last["data"].clone()
    }

    #[test]
    fn the_last_event_has_the_reason_of_the_end() {
        // noq's error for an ACK of a packet number that it skipped (RFC 9000, section 21.4).
        let false_receipt = noq_proto::TransportError::new(
            noq_proto::TransportErrorCode::PROTOCOL_VIOLATION,
            "unsent packet acked".to_owned(),
        );
        let closed =
            ConnectionClose::from(&noq_proto::ConnectionError::TransportError(false_receipt));
        let expected = json!({
            "initiator": "local", "connection_error": "protocol_violation",
            "reason": "unsent packet acked", "trigger": "error",
        });
        assert_eq!(data(&closed), expected);
        let refused = noq_proto::TransportError::new(
            noq_proto::TransportErrorCode::crypto(42),
            String::new(),
        );
        let closed = ConnectionClose::from(&noq_proto::ConnectionError::TransportError(refused));
        let expected = json!({
            "initiator": "local", "connection_error": "unknown", "error_code": 0x12a,
            "trigger": "error",
        });
        assert_eq!(data(&closed), expected);
        let closed = ConnectionClose::from(&noq_proto::ConnectionError::TimedOut);
        assert_eq!(
            data(&closed),
            json!({ "initiator": "local", "trigger": "idle_timeout" })
        );
        let closed = ConnectionClose::from(&noq_proto::ConnectionError::Reset);
        assert_eq!(
            data(&closed),
            json!({ "initiator": "remote", "trigger": "stateless_reset" })
        );
        let expected = json!({
            "initiator": "local", "application_error": "unknown", "error_code": 1,
            "trigger": "application",
        });
        assert_eq!(data(&ConnectionClose::by_application(1)), expected);
        assert_eq!(
            data(&ConnectionClose::for_reason("it failed")),
            json!({ "reason": "it failed" })
        );
    }
}
