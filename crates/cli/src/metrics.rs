//! Prometheus endpoint: metrics of algorithms (`attach`) or of a gateway over HTTP, in Prometheus
//! text format (0.0.4) or, on request, OpenMetrics 1.0.

mod algorithms;
mod connections;
mod format;
mod gateway;
mod server;

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

pub use algorithms::{AlgorithmStats, StampStats, registry as of_algorithms};
pub use connections::{AgentStats, ConnectionStats, add as add_connections};
pub use format::Format;
pub use gateway::registry as of_gateway;
pub use server::{MetricsReply, serve};

/// Label names and values of a series.
type Labels = Vec<(&'static str, String)>;

/// Adds a gauge, one value per series.
fn gauge(
    registry: &mut Registry,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (Labels, f64)>,
) {
    let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
    for (labels, value) in values {
        family.get_or_create(&labels).set(value);
    }
    registry.register(name, help, family);
}

/// Adds a counter, one value per series. The encoder appends `_total` to its name.
fn counter(
    registry: &mut Registry,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (Labels, u64)>,
) {
    let family = Family::<Labels, Counter>::default();
    for (labels, value) in values {
        family.get_or_create(&labels).inc_by(value);
    }
    registry.register(name, help, family);
}

/// Encodes the metrics. `unread`: failed scrapes.
fn text(mut registry: Registry, unread: u64, format: Format) -> String {
    let scrapes = Counter::<u64>::default();
    scrapes.inc_by(unread);
    let help = "Failed scrapes: the values could not be read";
    registry.register("unread_scrapes", help, scrapes);
    let dropped = Counter::<u64>::default();
    dropped.inc_by(crate::log::dropped());
    let help = "Log lines dropped because standard error was not read in time";
    registry.register("log_dropped_lines", help, dropped);
    let mut text = String::new();
    encode(&mut text, &registry).expect("writing to a String cannot fail");
    match format {
        Format::OpenMetrics => text,
        Format::Text => format::to_text(&text),
    }
}

/// Checks a scrape with `promtool check metrics`, if it is installed or was unpacked by
/// `scripts/setup test`.
#[cfg(test)]
fn promtool(registry: Registry) {
    use std::io::Write as _;
    use std::path::Path;
    use std::process::{Command, Stdio};

    let unpacked =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/prometheus/usr/bin/promtool");
    let mut command = Command::new(if unpacked.exists() {
        unpacked
    } else {
        "promtool".into()
    });
    command
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        let skipped = "SKIPPED: no promtool; `scripts/setup test` unpacks it";
        assert!(
            std::env::var_os("CCPLANE_NO_SKIP").is_none_or(|value| value != "1"),
            "{skipped}"
        );
        eprintln!("{skipped}");
        return;
    };
    let text = text(registry, 0, Format::Text);
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(text.as_bytes())
        .expect("promtool reads its input");
    let output = child.wait_with_output().expect("promtool exits");
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.trim().is_empty(),
        "{said}\n{text}"
    );
}
