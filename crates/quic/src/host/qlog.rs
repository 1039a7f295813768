//! A qlog of a connection: its windows, rates, RTTs and losses, as a JSON text sequence (RFC 7464).
//!
//! The file follows draft-ietf-quic-qlog-main-schema and has one event of
//! draft-ietf-quic-qlog-quic-events-14, `quic:recovery_metrics_updated`, with the metrics that changed,
//! at most once a millisecond. Its extension field `ccplane_packets_lost` counts the packets lost since
//! the event before: no stack reports which ones. A write error ends the file, not the connection.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use ccplane_units::Duration;
use serde_json::{Map, Value, json};

use super::Stats;

/// Between two records of a connection. A busy one changes its window with each acknowledgement: more records would cost more than they tell.
const EVERY: Duration = Duration::from_millis(1);

/// The log of one connection.
pub(super) struct Qlog {
    out: Option<BufWriter<File>>,
    begun: Instant,
    last: Duration,
    seen: Stats,
}

impl Qlog {
    /// The log of a host's connection, where the host has a folder for logs. A connection goes on without its log.
    pub fn of(folder: Option<&Path>, id: u64, client: bool, begun: Instant) -> Option<Qlog> {
        let folder = folder?;
        let name = format!("{}-{id}", if client { "client" } else { "server" });
        Qlog::create(folder, &name, client, begun)
            .inspect_err(|why| tracing::warn!("no qlog {name} in {}: {why}", folder.display()))
            .ok()
    }

    /// A file of its own in the folder.
    fn create(folder: &Path, name: &str, client: bool, begun: Instant) -> io::Result<Qlog> {
        let mut log = Qlog {
            out: Some(BufWriter::new(File::create(folder.join(format!("{name}.sqlog")))?)),
            begun,
            last: Duration::ZERO,
            seen: Stats::default(),
        };
        let vantage = if client { "client" } else { "server" };
        log.record(&json!({
            "file_schema": "urn:ietf:params:qlog:file:sequential",
            "serialization_format": "application/qlog+json-seq",
            "title": "ccplane",
            "trace": {
                "vantage_point": { "type": vantage },
                "event_schemas": ["urn:ietf:params:qlog:events:quic-14"],
                "common_fields": { "time_format": "relative_to_epoch", "reference_time": { "clock_type": "monotonic", "epoch": "unknown" } },
            },
        }));
        Ok(log)
    }

    /// Whether it is time for another look.
    pub fn is_due(&self, now: Instant) -> bool {
        let at = Duration::from(now.saturating_duration_since(self.begun));
        self.out.is_some() && (at.saturating_sub(self.last) >= EVERY || self.last == Duration::ZERO)
    }

    /// Notes what changed since the last look.
    pub fn note(&mut self, now: Instant, stats: &Stats) {
        let at = Duration::from(now.saturating_duration_since(self.begun));
        self.last = at;
        let ms = |time: Duration| time.as_nanos() as f64 / 1e6;
        let (seen, mut data) = (self.seen, Map::new());
        let mut changed = |key: &str, differs: bool, value: Value| {
            if differs {
                data.insert(key.to_owned(), value);
            }
        };
        changed("smoothed_rtt", stats.srtt != seen.srtt, ms(stats.srtt).into());
        changed("congestion_window", stats.cwnd != seen.cwnd, stats.cwnd.into());
        let known = |ssthresh: Option<u64>| ssthresh.filter(|bytes| *bytes != u64::MAX);
        let ssthresh = known(stats.ssthresh);
        changed(
            "ssthresh",
            ssthresh.is_some() && ssthresh != known(seen.ssthresh),
            ssthresh.into(),
        );
        let rate = stats.pacing_rate;
        // Bits a second.
        changed(
            "pacing_rate",
            rate.is_some() && rate != seen.pacing_rate,
            rate.map(|rate| rate.saturating_mul(8)).into(),
        );
        let lost = stats.lost.saturating_sub(seen.lost);
        changed("ccplane_packets_lost", lost > 0, lost.into());
        if !data.is_empty() {
            self.record(&json!({ "time": ms(at), "name": "quic:recovery_metrics_updated", "data": data }));
        }
        self.seen = *stats;
    }

    fn record(&mut self, record: &Value) {
        let Some(out) = &mut self.out else { return };
        if writeln!(out, "\u{1e}{record}").is_err() {
            self.out = None;
        }
    }
}
