//! Results of an experiment that is code: compared with the paper's, tables, charts and deviations,
//! as a page, as text, and as JSON.

use std::fmt::Write;
use std::path::PathBuf;

use ccplane_report::chart::{self, Chart};
use ccplane_report::html::{self, escape};
use ccplane_report::{Page, Provenance, Table, TargetRange, provenance, wrap};
use serde_json::{Map, Value, json};

use super::{Experiment, Options, Outcome};
use ccplane_lab::Error;
use ccplane_lab::stats::Ratio;

/// Formats a value for a table with this number of decimals, or as a dash if it is missing.
pub(super) fn cell(value: Option<f64>, digits: usize) -> String {
    value.map_or("–".into(), |value| format!("{value:.digits$}"))
}

/// File of the page, in an experiment's folder.
pub(super) const PAGE: &str = "report.html";

/// File of all results, in an experiment's folder.
pub(super) const FIGURES: &str = "figures.json";

/// Key of the number of disturbed runs on real packets.
pub(super) const UNSOUND: &str = "unsound_runs";

/// Key of all attempts of runs on real packets with their disturbances: an object of lists, by
/// part.
pub(super) const ATTEMPTS: &str = "attempts";

/// Results, added in the order of the page.
#[derive(Default)]
pub(super) struct Findings {
    figures: Map<String, Value>,
    compared: Vec<Vec<String>>,
    tables: Vec<(String, Table)>,
    pictures: Vec<(String, String)>,
    remarks: Vec<String>,
    deviations: Vec<String>,
}

impl Findings {
    /// Adds the number of disturbed runs on real packets, and the number of all of them.
    pub fn disturbed(&mut self, unsound: usize, of: usize) {
        let before = self
            .figures
            .get(UNSOUND)
            .and_then(Value::as_u64)
            .unwrap_or(0);
        self.fact(UNSOUND, before + unsound as u64);
        if unsound > 0 {
            self.remark(format!(
                "{unsound} of {of} runs on real packets are not sound: this machine was busy, so that the emulator was late or others used \
                 a CPU. They say less than they could; the same command again repeats those that the machine disturbed, and keeps \
                 every attempt with its reason in `attempts`."
            ));
        }
    }

    /// Adds a result to the JSON only, with four decimals.
    pub fn figure(&mut self, key: impl Into<String>, value: Option<f64>) {
        let value = value.filter(|v| v.is_finite());
        let value = value.map_or(Value::Null, |v| json!((v * 1e4).round() / 1e4));
        self.figures.insert(key.into(), value);
    }

    /// Adds another value to the JSON only.
    pub fn fact(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        self.figures.insert(key.into(), value.into());
    }

    /// Adds a result next to the paper's value, which may be empty.
    pub fn compare(
        &mut self,
        key: &str,
        what: &str,
        value: Option<f64>,
        paper: &str,
        aim: impl Into<Option<TargetRange>>,
    ) {
        self.compare_within(key, what, value, None, paper, aim);
    }

    /// Adds a result with its confidence interval.
    pub fn compare_within(
        &mut self,
        key: &str,
        what: &str,
        value: Option<f64>,
        interval: Option<(f64, f64)>,
        paper: &str,
        aim: impl Into<Option<TargetRange>>,
    ) {
        // A ratio to zero is no result.
        let value = value.filter(|v| v.is_finite());
        self.figure(key, value);
        let mut ours = value.map_or("–".to_owned(), |v| format!("{v:.3}"));
        if let Some((low, high)) = interval {
            self.figure(format!("{key}_low"), Some(low));
            self.figure(format!("{key}_high"), Some(high));
            let _ = write!(ours, " ({low:.3} to {high:.3})");
        }
        let aim = aim.into();
        let verdict = aim.zip(value).map(|(aim, value)| aim.compare(value));
        let or_nothing =
            |text: Option<String>| text.unwrap_or_else(|| Table::EMPTY_CELL.to_owned());
        self.compared.push(vec![
            what.to_owned(),
            ours,
            if paper.is_empty() { "–" } else { paper }.to_owned(),
            or_nothing(aim.map(|aim| aim.to_string())),
            or_nothing(verdict.map(|verdict| verdict.to_string())),
        ]);
    }

    /// Adds a ratio or a mean over runs, judged by its whole interval. Without an interval, or with
    /// an end of the target inside it, the result is inconclusive.
    pub fn compare_ratio(
        &mut self,
        key: &str,
        what: &str,
        ratio: Option<Ratio>,
        paper: &str,
        aim: impl Into<Option<TargetRange>>,
    ) {
        let aim = aim.into();
        let interval = ratio.and_then(|ratio| ratio.interval);
        self.compare_within(
            key,
            what,
            ratio.map(|ratio| ratio.value),
            interval,
            paper,
            aim,
        );
        let Some(aim) = aim.filter(|_| ratio.is_some()) else {
            return;
        };
        let verdict = aim.compare_interval(interval).to_string();
        self.fact(format!("{key}_verdict"), verdict.clone());
        if let Some(shown) = self.compared.last_mut().and_then(|row| row.last_mut()) {
            *shown = verdict;
        }
    }

    /// Adds a table. A heading of two lines has a line break.
    pub fn table(&mut self, title: impl Into<String>, headings: &[&str], rows: Vec<Vec<String>>) {
        self.tables
            .push((title.into(), Table::new(headings.iter().copied(), rows)));
    }

    /// Adds charts, one below the other, with a caption.
    pub fn picture(&mut self, caption: impl Into<String>, charts: &[Chart]) {
        let caption = caption.into();
        let picture = chart::inline(charts, &caption);
        self.pictures.push((caption, picture));
    }

    /// Adds a remark on the results, in sentences.
    pub fn remark(&mut self, text: impl Into<String>) {
        self.remarks.push(text.into());
    }

    /// Adds a deviation from the paper, in sentences.
    pub fn deviation(&mut self, text: impl Into<String>) {
        self.deviations.push(text.into());
    }

    /// Returns the results so far.
    #[cfg(test)]
    pub fn figures(&self) -> &Map<String, Value> {
        &self.figures
    }

    /// Writes `report.html` and `figures.json`, and returns everything as text.
    pub fn finish(mut self, experiment: &Experiment, options: &Options) -> Result<Outcome, Error> {
        if let Some((repeats, full)) = options.repeats.zip(experiment.repeats)
            && repeats < full
            && !options.quick
        {
            self.deviation(format!(
                "Every run on kernel TCP {repeats} times instead of {full}."
            ));
        }
        if options.any_build {
            let parts = options.parts();
            self.deviation(format!(
                "Of the parts in {}, {} were made by other builds of ccplane (--any-build).",
                parts.directory.display(),
                parts.of_other_builds()
            ));
        }
        let body = self.html(experiment);
        let attempts = options.parts().attempts().into_iter();
        let attempts: Map<String, Value> = attempts.map(|(part, all)| (part, json!(all))).collect();
        self.fact(ATTEMPTS, attempts);
        let page = write(options, experiment.title, &body, &mut self.figures)?;
        Ok(Outcome {
            text: self.text(),
            figures: self.figures,
            body,
            page,
        })
    }

    fn html(&self, experiment: &Experiment) -> String {
        let mut out = format!(
            "<section><h2>{}</h2><p class=\"note\">{}</p>",
            escape(experiment.title),
            escape(experiment.source)
        );
        if !self.compared.is_empty() {
            out += &self.comparison().to_html();
        }
        for (caption, picture) in &self.pictures {
            let _ = write!(
                out,
                "<figure>{picture}<figcaption class=\"note\">{}</figcaption></figure>",
                escape(caption)
            );
        }
        for (title, table) in &self.tables {
            let _ = write!(out, "<h3>{}</h3>{}", escape(title), table.to_html());
        }
        for remark in &self.remarks {
            let _ = write!(out, "<p>{}</p>", escape(remark));
        }
        if !self.deviations.is_empty() {
            out += "<h3>Where this deviates from the paper</h3>";
            out += &html::list(&self.deviations);
        }
        out + "</section>"
    }

    /// Returns the table of results next to the paper's values.
    fn comparison(&self) -> Table {
        Table::new(COMPARED, self.compared.clone())
    }

    fn text(&self) -> String {
        let mut out = String::new();
        if !self.compared.is_empty() {
            out += &self.comparison().to_text();
            out += "\n";
        }
        for (title, table) in &self.tables {
            let _ = writeln!(out, "{title}\n\n{}", table.to_text());
        }
        let mut words = self.remarks.join("\n");
        if !self.deviations.is_empty() {
            words += "\nWhere this deviates from the paper:\n";
        }
        for deviation in &self.deviations {
            let _ = writeln!(words, "- {deviation}");
        }
        out + &wrap(words.trim_start(), 100)
    }
}

const COMPARED: [&str; 5] = ["figure", "ours", "the paper's", "our aim", ""];

/// Writes the page around `body`, and the results, both with their provenance.
pub(super) fn write(
    options: &Options,
    title: &str,
    body: &str,
    figures: &mut Map<String, Value>,
) -> Result<PathBuf, Error> {
    let mut provenance = options.provenance.clone();
    provenance.quick = options.quick;
    let attempts = figures.get(ATTEMPTS).and_then(Value::as_object).into_iter();
    let attempts: usize = attempts
        .flat_map(Map::values)
        .filter_map(Value::as_array)
        .map(Vec::len)
        .sum();
    provenance.attempts = attempts.max(1);
    figures.insert(provenance::PROVENANCE_MEMBER.into(), provenance.to_json());
    let html = around(options, title, body, FIGURES, &provenance);
    let put = |name: &str, text: String| {
        let path = options.directory.join(name);
        let written = std::fs::write(&path, text);
        written.map_err(|source| Error::Part {
            path: path.clone(),
            source,
        })?;
        Ok(path)
    };
    let text = serde_json::to_string_pretty(figures).unwrap_or_default();
    put(FIGURES, text + "\n")?;
    put(PAGE, html)
}

/// Returns the page around `body`. `results` is the name of the file with the results.
pub(super) fn around(
    options: &Options,
    title: &str,
    body: &str,
    results: &str,
    provenance: &Provenance,
) -> String {
    let subtitle = "A published experiment, run again: our results next to the paper's.";
    let mut page = Page::new(title, subtitle);
    page.add(body);
    let note = format!("The results are in <code>{results}</code>, next to this page.");
    page.add_reproduce_section(&options.command, &note);
    page.set_provenance(&provenance.to_line());
    page.finish("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccplane_report::provenance::{Build, Provenance};

    use ccplane_lab::parts::{Disturbed, Parts};

    #[test]
    fn a_figure_is_judged_by_its_aim() {
        let mut findings = Findings::default();
        findings.compare("a", "one", Some(0.97), "", TargetRange::AtLeast(0.95));
        findings.compare("b", "two", Some(1.2), "1.1", TargetRange::AtMost(1.15));
        findings.compare("c", "three", None, "", TargetRange::Within(0.9, 1.1));
        findings.compare_within("d", "four", Some(1.0), Some((0.9, 1.123_456)), "", None);
        let verdicts: Vec<&str> = findings
            .compared
            .iter()
            .map(|row| row[4].as_str())
            .collect();
        assert_eq!(verdicts, ["met", "missed", "–", "–"]);
        assert_eq!(findings.figures["c"], Value::Null);
        assert_eq!(findings.figures["d_high"], 1.1235);
        assert_eq!(findings.compared[3][1], "1.000 (0.900 to 1.123)");
        assert_eq!(findings.compared[0][2], "–");
    }

    #[test]
    fn a_ratio_of_kernel_runs_is_met_missed_or_inconclusive() {
        let mut findings = Findings::default();
        let ratio = |value, interval| Some(Ratio { value, interval });
        let aim = TargetRange::AtLeast(0.95);
        findings.compare_ratio("a", "", ratio(1.0, Some((0.96, 1.1))), "", aim);
        findings.compare_ratio("b", "", ratio(0.96, Some((0.9, 1.0))), "", aim);
        findings.compare_ratio("c", "", ratio(0.8, Some((0.7, 0.9))), "", aim);
        findings.compare_ratio("d", "", ratio(1.0, None), "", aim);
        findings.compare_ratio("e", "", None, "", aim);
        let verdicts: Vec<&str> = findings
            .compared
            .iter()
            .map(|row| row[4].as_str())
            .collect();
        assert_eq!(
            verdicts,
            ["met", "inconclusive", "missed", "inconclusive", "–"]
        );
        assert_eq!(findings.figures["b_verdict"], "inconclusive");
    }

    #[test]
    fn the_file_of_figures_says_where_they_come_from_and_how_often_it_was_tried() {
        let directory =
            std::env::temp_dir().join(format!("ccplane-provenance-{}", std::process::id()));
        let provenance = Provenance::now(Build::default(), "ccplane paper x".to_owned(), false);
        let options = Options {
            quick: true,
            datapath: None,
            threads: 1,
            repeats: None,
            any_build: false,
            trace: None,
            directory: directory.clone(),
            force: false,
            command: "ccplane paper x".to_owned(),
            provenance,
        };
        std::fs::create_dir_all(&directory).unwrap();
        let judge = |sound: &bool| match sound {
            true => Disturbed::none(),
            false => Disturbed::from(&vec!["the machine was busy".to_owned()]),
        };
        let part = |again, sound| {
            let parts = Parts {
                again,
                ..options.parts()
            };
            parts.part("a.json", "key", judge, || Ok(sound)).unwrap()
        };
        part(false, false);
        part(true, true);
        let outcome = Findings::default()
            .finish(&super::super::CODE[0], &options)
            .unwrap();
        let text = std::fs::read_to_string(directory.join(FIGURES)).unwrap();
        let written: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(written["provenance"], outcome.figures["provenance"]);
        assert_eq!(
            (
                &written["provenance"]["attempts"],
                &written["provenance"]["quick"]
            ),
            (&json!(2), &json!(true))
        );
        assert_eq!(
            written["attempts"]["a"][0]["disturbed"]
                .as_array()
                .map(Vec::len),
            Some(1)
        );
        let page = std::fs::read_to_string(directory.join("report.html")).unwrap();
        assert!(page.contains("commit unknown") && page.contains("2 attempts"));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn text_that_is_no_html_stays_text() {
        let mut findings = Findings::default();
        findings.table("a < b", &["x\n<y>"], vec![vec!["1 & 2".into()]]);
        findings.deviation("<script>");
        let html = findings.html(&super::super::CODE[0]);
        assert!(
            html.contains("1 &amp; 2")
                && html.contains("&lt;script&gt;")
                && !html.contains("<script>")
        );
        assert!(html.contains("x<small>&lt;y&gt;</small>"));
    }
}
