//! Axes of a sweep: their values, and the quantity that a value with a unit is.

use std::ops::Range;

use ccplane_units::{Bytes, Duration, Rate};

use crate::TomlNode;

/// Axis of a sweep. It is a column of the table of runs.
#[derive(Clone, Debug)]
pub struct SweepAxis {
    /// Name as written in the file: a parameter, or the path of a setting.
    pub name: String,
    /// Name of the column without a unit: the last part of a path if no other axis has the same.
    pub column: String,
    /// Quantity of all values.
    pub quantity: AxisQuantity,
    /// Values in the order of the file.
    pub values: Vec<AxisValue>,
    pub(super) target: AxisTarget,
}

/// Use of an axis's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AxisTarget {
    /// Congestion control of the run.
    Contender,
    /// Setting of the scenario at this path.
    Setting(String),
    /// Text for placeholders in other values.
    Parameter,
    /// Name of a case.
    CaseName,
}

/// Quantity of an axis, which determines the unit of its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AxisQuantity {
    /// Words, or values of different quantities.
    Text,
    /// Numbers without a unit; a percentage is a share.
    Number,
    /// Rates, in Mbit/s.
    Rate,
    /// Times, in ms.
    Duration,
    /// Sizes, in bytes.
    Bytes,
}

impl AxisQuantity {
    /// Returns the suffix of a column's name.
    pub fn suffix(self) -> &'static str {
        match self {
            AxisQuantity::Text | AxisQuantity::Number => "",
            AxisQuantity::Rate => "_mbit",
            AxisQuantity::Duration => "_ms",
            AxisQuantity::Bytes => "_bytes",
        }
    }

    /// Returns the quantity that all values have.
    pub(super) fn of_all(values: &[AxisValue]) -> AxisQuantity {
        let known = [
            AxisQuantity::Number,
            AxisQuantity::Rate,
            AxisQuantity::Duration,
            AxisQuantity::Bytes,
        ];
        let fits = |quantity: &AxisQuantity| {
            !values.is_empty() && values.iter().all(|v| quantity.number(&v.text).is_some())
        };
        known.into_iter().find(fits).unwrap_or(AxisQuantity::Text)
    }

    /// Returns a value as a number in the column's unit; `None` for another quantity.
    pub fn number(self, text: &str) -> Option<f64> {
        // `1m` is a time and `1` is not a rate: only a number needs no unit.
        let has_unit = text.trim_end().ends_with(|c: char| c.is_alphabetic());
        match self {
            AxisQuantity::Text => None,
            AxisQuantity::Number => match text.strip_suffix('%') {
                Some(percent) => Some(percent.trim().parse::<f64>().ok()? / 100.0),
                None => text.parse().ok(),
            }
            .filter(|number: &f64| number.is_finite()),
            _ if !has_unit => None,
            AxisQuantity::Rate => {
                let rate: Rate = text.parse().ok()?;
                Some(rate.bytes_per_sec() as f64 * 8.0 / 1e6)
            }
            AxisQuantity::Duration => {
                let time: Duration = text.parse().ok()?;
                Some(time.as_nanos() as f64 / 1e6)
            }
            AxisQuantity::Bytes => {
                let bytes: Bytes = text.parse().ok()?;
                Some(bytes.get() as f64)
            }
        }
    }
}

/// Value of an axis.
#[derive(Clone, Debug)]
pub struct AxisValue {
    /// Text without quotes. A contender's parameters with placeholders are left out: the axes that
    /// fill them are columns of their own.
    pub text: String,
    pub(super) node: TomlNode,
    /// Bytes of the axis's name in the sweep file.
    pub(super) key_span: Range<usize>,
}

impl SweepAxis {
    /// Returns the names by which placeholders refer to the axis.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        [&*self.name, &*self.column].into_iter()
    }

    /// Returns true for the scenario's own contenders, which have no line in the sweep file.
    pub(super) fn is_implied(&self) -> bool {
        self.values.iter().all(|value| value.key_span.is_empty())
    }

    /// Returns the name of the column: with the unit of its values.
    pub fn column_name(&self) -> String {
        format!("{}{}", self.column, self.quantity.suffix())
    }
}

/// Returns a value's text without quotes.
pub(super) fn text_of(node: &TomlNode) -> String {
    let written = match node {
        TomlNode::Value(written, _) => written.clone(),
        TomlNode::Table(tree) => {
            let composed = tree.compose().text;
            format!("{{ {} }}", composed.trim_end().replace('\n', ", "))
        }
        TomlNode::List(trees) => {
            let tables = trees
                .iter()
                .map(|tree| text_of(&TomlNode::Table(tree.clone())));
            format!("[{}]", tables.collect::<Vec<_>>().join(", "))
        }
    };
    let parsed: Option<toml::Table> = toml::from_str(&format!("v = {written}")).ok();
    match parsed.as_ref().and_then(|table| table.get("v")) {
        Some(toml::Value::String(text)) => text.clone(),
        _ => written,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantity(texts: &[&str]) -> AxisQuantity {
        let value = |text: &&str| AxisValue {
            text: (*text).to_owned(),
            node: TomlNode::Table(crate::TomlTree::default()),
            key_span: 0..0,
        };
        AxisQuantity::of_all(&texts.iter().map(value).collect::<Vec<_>>())
    }

    #[test]
    fn a_quantity_is_common_to_all_values() {
        assert_eq!(quantity(&["0.5", "1"]), AxisQuantity::Number);
        assert_eq!(quantity(&["1%", "0.5%"]), AxisQuantity::Number);
        assert_eq!(quantity(&["10mbit", "1gbit"]), AxisQuantity::Rate);
        assert_eq!(quantity(&["10ms", "1s"]), AxisQuantity::Duration);
        assert_eq!(quantity(&["10kB", "1MB"]), AxisQuantity::Bytes);
        assert_eq!(quantity(&["10kB", "codel"]), AxisQuantity::Text);
        assert_eq!(quantity(&["10mbit", "10ms"]), AxisQuantity::Text);
        assert_eq!(quantity(&["nan"]), AxisQuantity::Text);
    }

    #[test]
    fn a_value_is_a_number_in_the_unit_of_its_column() {
        for (quantity, text, number) in [
            (AxisQuantity::Number, "1%", 0.01),
            (AxisQuantity::Rate, "1gbit", 1_000.0),
            (AxisQuantity::Duration, "20us", 0.02),
            (AxisQuantity::Bytes, "1MB", 1e6),
        ] {
            assert_eq!(quantity.number(text), Some(number), "{text}");
        }
    }
}
