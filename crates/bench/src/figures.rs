//! Results of a benchmark: numbers with targets and references, as a table and as JSON.

use ccplane_lab::stats::Ratio;
use ccplane_report::{Provenance, Table, TargetRange, Verdict, provenance};
use serde_json::{Map, Value};

/// What a benchmark found.
#[derive(Debug, Default)]
pub struct Figures {
    rows: Vec<Figure>,
    notes: Vec<String>,
    facts: Map<String, Value>,
}

/// A number, its target, and the reference that it is compared with.
#[derive(Debug)]
pub struct Figure {
    key: String,
    value: f64,
    unit: &'static str,
    target: Option<TargetRange>,
    /// Of one that was measured in turns with another: its interval, where there is one.
    in_turns: Option<Option<(f64, f64)>>,
    reference: &'static str,
}

impl Figure {
    /// Sets an upper bound as the target.
    pub fn at_most(&mut self, most: f64) -> &mut Figure {
        self.target(TargetRange::AtMost(most))
    }

    /// Sets a lower bound as the target.
    pub fn at_least(&mut self, least: f64) -> &mut Figure {
        self.target(TargetRange::AtLeast(least))
    }

    /// Sets the target.
    pub fn target(&mut self, target: TargetRange) -> &mut Figure {
        self.target = Some(target);
        self
    }

    /// It is a ratio to what ran in turns with it, and judged by all of this interval, whose ends
    /// are figures, too. Without one nothing is decided.
    pub fn in_turns(&mut self, interval: Option<(f64, f64)>) -> &mut Figure {
        self.in_turns = Some(interval);
        self
    }

    /// The reference that it stands beside, in words, or what it is of.
    pub fn beside(&mut self, reference: &'static str) -> &mut Figure {
        self.reference = reference;
        self
    }

    fn interval(&self) -> Option<(f64, f64)> {
        self.in_turns.flatten()
    }

    fn verdict(&self) -> Option<Verdict> {
        let target = self.target?;
        Some(match self.in_turns {
            Some(interval) => target.compare_interval(interval),
            None => target.compare(self.value),
        })
    }
}

impl Figures {
    /// Adds a figure: its key in the JSON object, its value and unit. `x native` and the like are
    /// units of ratios.
    pub fn add(&mut self, key: impl Into<String>, value: f64, unit: &'static str) -> &mut Figure {
        self.rows.push(Figure {
            key: key.into(),
            value,
            unit,
            target: None,
            in_turns: None,
            reference: "",
        });
        let last = self.rows.len() - 1;
        &mut self.rows[last]
    }

    /// Adds a ratio to what ran in turns with it, with its interval.
    pub fn ratio(
        &mut self,
        key: impl Into<String>,
        ratio: Option<Ratio>,
        unit: &'static str,
    ) -> &mut Figure {
        let (value, interval) =
            ratio.map_or((f64::NAN, None), |ratio| (ratio.value, ratio.interval));
        self.add(key, value, unit).in_turns(interval)
    }

    /// The value of a figure.
    pub fn get(&self, key: &str) -> Option<f64> {
        self.rows
            .iter()
            .find(|row| row.key == key)
            .map(|row| row.value)
    }

    /// Puts figures in the order of their keys.
    pub fn sort(&mut self) {
        self.rows.sort_by(|a, b| a.key.cmp(&b.key));
    }

    /// Adds anything else, for scripts.
    pub fn fact(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        self.facts.insert(key.into(), value.into());
    }

    /// Adds a sentence on how the figures came about.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// One object: figures and facts by their keys, references, notes, and where they come from.
    pub fn to_json(&self, provenance: &Provenance) -> Value {
        let round = |v: f64| (v * 1e4).round() / 1e4;
        let mut object: Map<String, Value> = self
            .rows
            .iter()
            .map(|r| (r.key.clone(), round(r.value).into()))
            .collect();
        let references: Map<String, Value> = self
            .rows
            .iter()
            .filter(|r| !r.reference.is_empty())
            .map(|r| (r.key.clone(), r.reference.into()))
            .collect();
        for row in self.rows.iter() {
            if let Some((low, high)) = row.interval() {
                object.insert(format!("{}_low", row.key), round(low).into());
                object.insert(format!("{}_high", row.key), round(high).into());
            }
            // Of one that has no interval the value says it.
            if let Some(verdict) = row.verdict().filter(|_| row.unit.starts_with("x ")) {
                object.insert(format!("{}_verdict", row.key), verdict.to_string().into());
            }
        }
        object.extend(self.facts.clone());
        object.insert("references".into(), references.into());
        object.insert("notes".into(), self.notes.clone().into());
        object.insert(provenance::PROVENANCE_MEMBER.into(), provenance.to_json());
        Value::Object(object)
    }

    /// For a person: a row a figure, and the notes.
    pub fn to_table(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|r| {
                let between = |(low, high)| format!(" ({} to {})", number(low), number(high));
                vec![
                    r.key.clone(),
                    number(r.value) + &r.interval().map_or(String::new(), between),
                    r.unit.to_owned(),
                    r.target.map_or(String::new(), |target| target.to_string()),
                    match r.verdict() {
                        Some(Verdict::Missed) => "MISSED".to_owned(),
                        verdict => verdict.map_or(String::new(), |verdict| verdict.to_string()),
                    },
                    r.reference.to_owned(),
                ]
            })
            .collect();
        let columns = ["metric", "measured", "unit", "target", "", "reference"];
        let mut text = Table::new(columns, rows).to_text();
        for note in &self.notes {
            text.push_str(note);
            text.push('\n');
        }
        text
    }
}

/// Four significant digits, without an exponent.
fn number(v: f64) -> String {
    match v.abs() {
        x if x >= 1000.0 => format!("{v:.0}"),
        x if x >= 100.0 => format!("{v:.1}"),
        x if x >= 10.0 => format!("{v:.2}"),
        _ => format!("{v:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use ccplane_report::provenance::Build;

    use super::*;

    #[test]
    fn metrics_have_a_provenance_and_a_verdict() {
        let mut metrics = Figures::default();
        metrics.add("ns", 12.0, "ns").at_most(10.0);
        let mut ratio = |key, interval| {
            metrics
                .add(key, 1.0, "x native")
                .in_turns(interval)
                .at_least(0.95);
        };
        ratio("wide", Some((0.9, 1.1)));
        ratio("single", None);
        ratio("close", Some((0.98, 1.1)));
        let provenance = Provenance::now(Build::default(), "ccplane bench x".to_owned(), false);
        let json = metrics.to_json(&provenance);
        assert_eq!(
            (&json["ns"], &json["wide_low"]),
            (&12.0.into(), &0.9.into())
        );
        let verdicts =
            ["wide", "single", "close"].map(|key| json[format!("{key}_verdict")].clone());
        assert_eq!(verdicts, ["inconclusive", "inconclusive", "met"]);
        for member in [
            "commit", "kernel", "cpu", "cores", "command", "day", "quick", "attempts", "load",
        ] {
            assert!(!json["provenance"][member].is_null(), "{member}");
        }
        assert!(json["provenance"].get("dirty").is_some());
        assert!(metrics.to_table().contains("MISSED"));
    }
}
