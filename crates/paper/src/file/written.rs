//! A paper as it stands in its file, before anything is checked against anything else.
//! docs/papers.md is the reference.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::{Spanned, Value};

/// A text with its place.
pub(super) type Text = Spanned<String>;

/// Of a grid's axis, only these of its values, by their keys.
pub(super) type Only = BTreeMap<Text, Spanned<OneOrMore>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub name: Text,
    pub title: String,
    pub source: String,
    #[serde(default)]
    pub takes: String,
    pub on: Option<Vec<Text>>,
    pub repeats: Option<Spanned<u32>>,
    /// A scenario file that the words of `scenario` are put over.
    pub base: Option<Text>,
    /// Read by its own reader, which keeps the places of all its words.
    pub scenario: Option<Spanned<Value>>,
    #[serde(default)]
    pub contender: Vec<Contender>,
    #[serde(default)]
    pub grid: Vec<Spanned<Grid>>,
    #[serde(default)]
    pub except: Vec<Spanned<Except>>,
    #[serde(default)]
    pub quick: Quick,
    #[serde(default)]
    pub figure: Vec<Spanned<Figure>>,
    #[serde(default)]
    pub table: Vec<Spanned<Table>>,
    #[serde(default)]
    pub chart: Vec<Spanned<Chart>>,
    #[serde(default)]
    pub remarks: Vec<String>,
    #[serde(default)]
    pub deviations: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Contender {
    pub algorithm: Text,
    pub key: Option<Text>,
    pub label: Option<String>,
    #[serde(default)]
    pub set: Set,
}

/// Words of the scenario and what takes their place.
pub(super) type Set = BTreeMap<Text, Spanned<Value>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Grid {
    pub name: Text,
    pub heading: Option<String>,
    /// The word that each of `values` replaces; without it the value only stands where a contender
    /// names it.
    pub sets: Option<Text>,
    pub values: Option<Vec<Spanned<Value>>>,
    pub cells: Option<Vec<Cell>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cell {
    pub key: Text,
    pub label: Option<String>,
    /// Where it stands on a chart's axis.
    pub x: Option<f64>,
    #[serde(default)]
    pub set: Set,
}

/// Where axes cross: other words, or nothing.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Except {
    #[serde(default)]
    pub only: Only,
    #[serde(default)]
    pub set: Set,
    #[serde(default)]
    pub skip: bool,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Quick {
    #[serde(default)]
    pub set: Set,
    #[serde(default)]
    pub only: Only,
    pub repeats: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Figure {
    pub key: Text,
    pub what: Option<Text>,
    pub value: Text,
    pub of: Option<Text>,
    pub over: Option<Text>,
    pub on: Option<Text>,
    pub over_on: Option<Text>,
    #[serde(default)]
    pub only: Only,
    #[serde(default)]
    pub paper: String,
    pub at_least: Option<Spanned<f64>>,
    pub at_most: Option<Spanned<f64>>,
    pub judge: Option<Text>,
    pub margin: Option<Spanned<f64>>,
    /// Of several values: the largest, the least, the mean, or what all have together.
    pub take: Option<Text>,
    /// Measures that it is taken of beside `value`.
    #[serde(default)]
    pub also: Vec<Text>,
    /// A ratio as percent `less` or `more`.
    pub percent: Option<Text>,
    pub times: Option<f64>,
    /// Two values that are both below this count as equal.
    pub least: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    pub title: Text,
    pub rows: Vec<Text>,
    pub across: Option<Text>,
    pub columns: Vec<Column>,
    #[serde(default)]
    pub only: Only,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Column {
    pub heading: Option<String>,
    pub value: Text,
    #[serde(default = "two")]
    pub digits: usize,
    #[serde(default = "one")]
    pub times: f64,
    pub on: Option<Text>,
    pub of: Option<Text>,
    pub over: Option<Text>,
    pub over_on: Option<Text>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Chart {
    pub caption: Text,
    #[serde(default = "untitled")]
    pub title: Text,
    pub x: Text,
    pub x_label: Option<String>,
    #[serde(default)]
    pub log: bool,
    pub value: Option<Text>,
    #[serde(default = "one")]
    pub times: f64,
    pub y_from: Option<f64>,
    pub y_to: Option<f64>,
    pub lines: Option<Text>,
    #[serde(default)]
    pub only: Only,
}

/// One text, or several.
pub(super) struct OneOrMore(pub Vec<String>);

impl<'de> Deserialize<'de> for OneOrMore {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<OneOrMore, D::Error> {
        let text = |value: &Value| {
            key_of(value).ok_or_else(|| serde::de::Error::custom("give a key, or a list of keys"))
        };
        match Value::deserialize(deserializer)? {
            Value::Array(all) => all
                .iter()
                .map(text)
                .collect::<Result<_, _>>()
                .map(OneOrMore),
            one => text(&one).map(|one| OneOrMore(vec![one])),
        }
    }
}

/// What a value is called in keys and labels; none of a list or table.
pub(super) fn key_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(choice) => Some(choice.to_string()),
        _ => None,
    }
}

fn one() -> f64 {
    1.0
}

fn two() -> usize {
    2
}

fn untitled() -> Text {
    Spanned::new(0..0, String::new())
}
