//! `ccplane emu graph`: draws a packet log as a page.

use std::path::{Path, PathBuf};

use ccplane_emu::{Capture, LoggedPacket, PathDirection, read_capture};
use ccplane_qdisc::DropReason;
use ccplane_report::chart::{Axis, Chart, ChartSeries, HoverData, live};
use ccplane_report::{Page, Table};
use ccplane_units::stats;

use crate::exit::{Failure, FailureKind};

/// Points along a line. Beyond the page's width in pixels, more add no detail.
const LINE_POINTS_MAX: u64 = 600;
/// Narrowest bin: a few packets at 10 Mbit/s.
const BIN_WIDTH_NS_MIN: u64 = 10_000_000;

/// Writes the page of a packet log and prints its path.
pub fn draw(log: &Path, out: Option<&Path>, json: bool) -> Result<u8, Failure> {
    let captured = read_capture(log).map_err(|e| Failure::new(FailureKind::Usage, e))?;
    let out = out.map_or_else(|| log.with_extension("html"), Path::to_path_buf);
    let name = log.file_name().unwrap_or_default().to_string_lossy();
    let ways = [PathDirection::Forward, PathDirection::Reverse]
        .map(|way| DirectionSummary::summarize(&captured, way));
    std::fs::write(&out, page(&name, &captured, &ways)).map_err(|e| {
        Failure::text(
            FailureKind::Failed,
            format!("the page {} cannot be written: {e}", out.display()),
        )
    })?;
    if json {
        println!("{}", object(&out, &ways));
    } else {
        println!("{}", out.display());
    }
    Ok(0)
}

/// Summary of one direction.
struct DirectionSummary {
    name: &'static str,
    direction: PathDirection,
    delivered: u64,
    delivered_bytes: u64,
    queue_drops: u64,
    losses: u64,
    /// Queueing delays of delivered packets, ms, ascending.
    queued_ms: Vec<f64>,
}

impl DirectionSummary {
    fn summarize(captured: &Capture, direction: PathDirection) -> DirectionSummary {
        let packets = || {
            captured
                .packets
                .iter()
                .filter(move |packet| packet.direction == direction)
        };
        let delivered = || packets().filter(|packet| packet.dropped.is_none());
        let count = |lost: bool| {
            let dropped = packets().filter_map(|packet| packet.dropped);
            dropped
                .filter(|reason| (*reason == DropReason::Lost) == lost)
                .count() as u64
        };
        let mut queued_ms: Vec<f64> = delivered()
            .map(|packet| packet.queued.as_secs_f64() * 1e3)
            .collect();
        queued_ms.sort_by(f64::total_cmp);
        DirectionSummary {
            name: match direction {
                PathDirection::Forward => "up",
                PathDirection::Reverse => "down",
            },
            direction,
            delivered: delivered().count() as u64,
            delivered_bytes: delivered().map(|packet| u64::from(packet.bytes)).sum(),
            queue_drops: count(false),
            losses: count(true),
            queued_ms,
        }
    }

    fn quantile(&self, share: f64) -> f64 {
        stats::nearest_index(&self.queued_ms, share).unwrap_or(0.0)
    }
}

fn object(out: &Path, ways: &[DirectionSummary; 2]) -> serde_json::Value {
    let way = |told: &DirectionSummary| {
        serde_json::json!({
            "delivered": told.delivered, "delivered_bytes": told.delivered_bytes,
            "queue_drops": told.queue_drops, "losses": told.losses,
            "queued_p50_ms": told.quantile(0.5), "queued_p95_ms": told.quantile(0.95),
            "queued_max_ms": told.quantile(1.0),
        })
    };
    serde_json::json!({ "page": PathBuf::from(out), "up": way(&ways[0]), "down": way(&ways[1]) })
}

fn page(name: &str, captured: &Capture, ways: &[DirectionSummary; 2]) -> String {
    let mut page = Page::new(
        &format!("ccplane emu: {name}"),
        "Effect of the link on every packet. Up is from the command to the host, down from the \
         host to the command.",
    );
    page.enable_live();
    let end_ns = captured
        .packets
        .iter()
        .map(|packet| packet.at.as_nanos())
        .max()
        .unwrap_or(0);
    let seconds = (end_ns as f64 / 1e9).max(1e-3);
    let bin_ns = (end_ns / LINE_POINTS_MAX).max(BIN_WIDTH_NS_MIN);
    page.add_section("Both directions", &table(captured, ways, seconds).to_html());
    for told in ways
        .iter()
        .filter(|told| told.delivered + told.queue_drops + told.losses > 0)
    {
        let link = &captured.links[told.direction as usize];
        let drawn = DirectionSeries::sample(captured, told.direction, bin_ns, end_ns);
        page.add_section(
            &format!("{}: {link}", told.name),
            &(format!(
                "<p class=\"note\">Bins of {} ms, with the throughput and the longest queueing \
                 delay of the packets that left the queue in each. Marks at the bottom: \
                 drops.<span class=\"interactive\"> Drag to zoom, double-click to \
                 reset.</span></p>",
                bin_ns / 1_000_000
            ) + &drawn.pictures(told.name, captured.rates[told.direction as usize], seconds)),
        );
    }
    page.finish("Written by <code>ccplane emu graph</code>.")
}

fn table(captured: &Capture, ways: &[DirectionSummary; 2], seconds: f64) -> Table {
    let headings = [
        "direction",
        "packets",
        "throughput\nMbit/s",
        "dropped by the queue",
        "lost at random",
        "p50\nms",
        "p95\nms",
        "max\nms",
    ];
    let row = |told: &DirectionSummary| {
        vec![
            format!("{}: {}", told.name, captured.links[told.direction as usize]),
            told.delivered.to_string(),
            format!("{:.2}", told.delivered_bytes as f64 * 8.0 / 1e6 / seconds),
            told.queue_drops.to_string(),
            told.losses.to_string(),
            format!("{:.2}", told.quantile(0.5)),
            format!("{:.2}", told.quantile(0.95)),
            format!("{:.2}", told.quantile(1.0)),
        ]
    };
    Table::new(headings, ways.iter().map(row).collect())
}

/// Time series of one direction.
struct DirectionSeries {
    bin_s: f64,
    mbit: Vec<f64>,
    /// Longest queueing delay per bin, ms; `None` in bins without departures.
    queued_ms: Vec<Option<f64>>,
    /// Times of queue drops and of random losses, s.
    dropped: [Vec<f64>; 2],
}

impl DirectionSeries {
    fn sample(
        captured: &Capture,
        direction: PathDirection,
        bin_ns: u64,
        end_ns: u64,
    ) -> DirectionSeries {
        let bins = (end_ns / bin_ns + 1) as usize;
        let mut drawn = DirectionSeries {
            bin_s: bin_ns as f64 / 1e9,
            mbit: vec![0.0; bins],
            queued_ms: vec![None; bins],
            dropped: [Vec::new(), Vec::new()],
        };
        for packet in captured
            .packets
            .iter()
            .filter(|packet| packet.direction == direction)
        {
            let LoggedPacket {
                at, queued, bytes, ..
            } = packet;
            match packet.dropped {
                Some(reason) => {
                    let dropped = at.as_secs_f64() - packet.early.as_secs_f64();
                    drawn.dropped[usize::from(reason == DropReason::Lost)].push(dropped.max(0.0));
                }
                None => {
                    let bin = (at.as_nanos() / bin_ns) as usize;
                    if let (Some(mbit), Some(longest)) =
                        (drawn.mbit.get_mut(bin), drawn.queued_ms.get_mut(bin))
                    {
                        *mbit += f64::from(*bytes) * 8.0 / 1e6 / drawn.bin_s;
                        let ms = queued.as_secs_f64() * 1e3;
                        *longest = Some(longest.map_or(ms, |other: f64| other.max(ms)));
                    }
                }
            }
        }
        drawn
    }

    fn pictures(&self, name: &str, rate: Option<ccplane_units::Rate>, seconds: f64) -> String {
        let middle = |bin: usize| (bin as f64 + 0.5) * self.bin_s;
        let most =
            |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max).max(1e-3) * 1.05;
        let rate = rate.map(|rate| rate.bits_per_sec() as f64 / 1e6);
        let mbit = self
            .mbit
            .iter()
            .enumerate()
            .map(|(bin, mbit)| (middle(bin), *mbit));
        let top = most(&mut self.mbit.iter().copied().chain(rate));
        let throughput = Chart {
            title: format!("{name}: throughput, Mbit/s"),
            x: Axis::linear("time, s").with_range(0.0, seconds),
            y: Axis::linear("").with_range(0.0, top),
            lines: vec![ChartSeries::named("throughput", 0, mbit)],
            guides: rate
                .map(|rate| (rate, "link".to_owned()))
                .into_iter()
                .collect(),
        };
        let top = most(&mut self.queued_ms.iter().flatten().copied());
        let queued = self
            .queued_ms
            .iter()
            .enumerate()
            .map(|(bin, ms)| (middle(bin), *ms));
        let mut lines = vec![ChartSeries {
            points: queued.collect(),
            ..ChartSeries::named("queueing delay", 1, [])
        }];
        let kinds = [("dropped by the queue", 3), ("lost at random", 2)];
        for (at, (what, colour)) in self.dropped.iter().zip(kinds) {
            if !at.is_empty() {
                // Strokes closer than a pixel merge into one.
                let apart = seconds / LINE_POINTS_MAX as f64 / 2.0;
                lines.push(ChartSeries::strokes(what, colour, at, apart, top * 0.06));
            }
        }
        let delay = Chart {
            title: format!("{name}: queueing delay, ms"),
            x: Axis::linear("time, s").with_range(0.0, seconds),
            y: Axis::linear("").with_range(0.0, top),
            lines,
            guides: Vec::new(),
        };
        let reading = |unit: &'static str| HoverData {
            digits: (3, 2),
            units: ("s", unit),
            zoom_group: "time",
            ..HoverData::default()
        };
        format!(
            "<div class=\"row\">{}</div><div class=\"row\">{}</div>",
            live(&throughput, &reading("Mbit/s")),
            live(&delay, &reading("ms"))
        )
    }
}
