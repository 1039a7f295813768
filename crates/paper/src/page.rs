//! Page of an experiment, or of several.

use std::path::PathBuf;

use ccplane_lab::Error;
use ccplane_report::{Page, Provenance, provenance};
use serde_json::{Map, Value};

use super::Options;

/// File of the page, in an experiment's folder.
pub(super) const PAGE: &str = "report.html";

/// File of all results, in an experiment's folder.
pub(super) const RESULTS: &str = "results.json";

/// Key of the number of disturbed runs on real packets.
pub(super) const UNSOUND: &str = "unsound_runs";

/// Writes the page around `body`, and the results, both with their provenance.
pub(super) fn write(
    options: &Options,
    title: &str,
    body: &str,
    results: &mut Map<String, Value>,
) -> Result<PathBuf, Error> {
    let mut provenance = options.provenance.clone();
    provenance.quick = options.quick;
    results.insert(provenance::PROVENANCE_MEMBER.into(), provenance.to_json());
    let html = around(options, title, body, &provenance);
    let put = |name: &str, text: String| {
        let path = options.directory.join(name);
        let written = std::fs::write(&path, text);
        written.map_err(|source| Error::Part {
            path: path.clone(),
            source,
        })?;
        Ok(path)
    };
    let text = serde_json::to_string_pretty(results).unwrap_or_default();
    put(RESULTS, text + "\n")?;
    put(PAGE, html)
}

/// Returns the page around `body`.
pub(super) fn around(
    options: &Options,
    title: &str,
    body: &str,
    provenance: &Provenance,
) -> String {
    let subtitle = "A published experiment, run again: our results next to the paper's.";
    let mut page = Page::new(title, subtitle);
    page.add(body);
    let note = format!("The results are in <code>{RESULTS}</code>, next to this page.");
    page.add_reproduce_section(&options.command, &note);
    page.set_provenance(&provenance.to_line());
    page.finish("")
}
