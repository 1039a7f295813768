//! The two formats of a scrape, and the negotiation between them.

use std::borrow::Cow;
use std::fmt::Write;

/// Format of a scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text format 0.0.4, which every scraper supports.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    /// Chooses a format from the `Accept` headers of a request: OpenMetrics if it is listed with a
    /// weight not below plain text.
    pub fn negotiate<'a>(accept: impl IntoIterator<Item = &'a str>) -> Format {
        let (mut text, mut openmetrics) = (0.0, 0.0);
        for range in accept.into_iter().flat_map(|value| value.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let weight = parts
                .find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")))
                .map_or(1.0, |q| q.parse::<f64>().unwrap_or(0.0));
            match kind.as_str() {
                "application/openmetrics-text" => openmetrics = weight.max(openmetrics),
                "text/plain" => text = weight.max(text),
                _ => {}
            }
        }
        if openmetrics > 0.0 && openmetrics >= text {
            Format::OpenMetrics
        } else {
            Format::Text
        }
    }

    /// Value of the `Content-Type` header.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Translates OpenMetrics to text format 0.0.4, where a family has the name of its samples, an info
/// is a gauge, and neither units nor an end marker exist.
pub(super) fn to_text(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let mut help = "";
    for line in openmetrics.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|typed| typed.split_once(' '))
        {
            let (name, kind): (Cow<'_, str>, &str) = match kind {
                "counter" => (format!("{name}_total").into(), kind),
                "info" => (format!("{name}_info").into(), "gauge"),
                "stateset" => (name.into(), "gauge"),
                "unknown" => (name.into(), "untyped"),
                _ => (name.into(), kind),
            };
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        } else if !line.starts_with("# UNIT ") && line != "# EOF" {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_the_default_format() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for (accept, expected) in [
            (prometheus, Format::OpenMetrics),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("*/*", Format::Text),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Format::Text),
            ("application/openmetrics-text;q=0", Format::Text),
            (
                "text/plain, application/openmetrics-text;q=0.5",
                Format::Text,
            ),
        ] {
            assert_eq!(Format::negotiate([accept]), expected, "{accept}");
        }
        assert_eq!(Format::negotiate([]), Format::Text);
        assert_eq!(
            Format::negotiate(["*/*", "application/openmetrics-text"]),
            Format::OpenMetrics
        );
    }

    #[test]
    fn text_families_are_named_as_their_samples() {
        let openmetrics = "# HELP a_bytes Bytes.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\n\
                           a_bytes_total{x=\"1\"} 2\n\
                           # HELP b What runs.\n# TYPE b info\nb_info{v=\"1\"} 1\n# EOF\n";
        let expected = "# HELP a_bytes_total Bytes.\n# TYPE a_bytes_total counter\n\
                        a_bytes_total{x=\"1\"} 2\n\
                        # HELP b_info What runs.\n# TYPE b_info gauge\nb_info{v=\"1\"} 1\n";
        assert_eq!(to_text(openmetrics), expected);
    }
}
