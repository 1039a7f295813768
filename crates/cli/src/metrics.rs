//! The Prometheus endpoint: figures of algorithms (`attach`) or of a gateway, as text (OpenMetrics 1.0) over HTTP.

mod algorithms;
mod connections;
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
pub use gateway::registry as of_gateway;
pub use server::{Answer, serve};

/// Names and values of a series.
type Labels = Vec<(&'static str, String)>;

/// Adds a value that goes up and down, once for each series.
fn gauge(registry: &mut Registry, name: &str, help: &str, values: impl IntoIterator<Item = (Labels, f64)>) {
    let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
    for (labels, value) in values {
        family.get_or_create(&labels).set(value);
    }
    registry.register(name, help, family);
}

/// Adds a count, once for each series. Its name gets `_total` behind.
fn counter(registry: &mut Registry, name: &str, help: &str, values: impl IntoIterator<Item = (Labels, u64)>) {
    let family = Family::<Labels, Counter>::default();
    for (labels, value) in values {
        family.get_or_create(&labels).inc_by(value);
    }
    registry.register(name, help, family);
}

/// The text of these figures. `unread`: scrapes that found none.
fn text(mut registry: Registry, unread: u64) -> String {
    let scrapes = Counter::<u64>::default();
    scrapes.inc_by(unread);
    let help = "Scrapes for which the figures could not be read";
    registry.register("unread_scrapes", help, scrapes);
    let dropped = Counter::<u64>::default();
    dropped.inc_by(crate::log::dropped());
    let help = "Lines of the log that nobody read in time";
    registry.register("log_dropped_lines", help, dropped);
    let mut text = String::new();
    encode(&mut text, &registry).expect("a String takes everything that is written to it");
    text
}
