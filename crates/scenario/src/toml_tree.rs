//! TOML document as a tree of values that can be replaced. Every value keeps its location in the
//! file that it was written in.
//!
//! A sweep replaces values of a scenario's tree. [`TomlTree::compose`] prints the tree as one text,
//! which the scenario's own reader checks, and [`ComposedText::locate`] moves a problem of that
//! text to the file of the user.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::{Problem, SourceText};

/// File in which values of a tree are written.
#[derive(Clone, Debug)]
pub struct TreeSource {
    /// Name of the file in problems.
    pub file: String,
    /// Text of the file.
    pub text: String,
}

impl TreeSource {
    /// Returns the file as the source of problems.
    pub fn source(&self) -> SourceText<'_> {
        SourceText {
            file: &self.file,
            text: &self.text,
        }
    }
}

/// Location of a value: the index of its [`TreeSource`], and its bytes there.
#[derive(Clone, Debug)]
pub struct SourceLocation {
    /// Index in the list of sources.
    pub source: usize,
    /// Bytes of the value.
    pub span: Range<usize>,
}

/// Settings of a table by name.
#[derive(Clone, Debug, Default)]
pub struct TomlTree(pub BTreeMap<String, TomlNode>);

/// Setting of a [`TomlTree`].
#[derive(Clone, Debug)]
pub enum TomlNode {
    /// Value as written, including an empty table.
    Value(String, SourceLocation),
    /// Table with settings.
    Table(TomlTree),
    /// List of tables: `[[workload]]`.
    List(Vec<TomlTree>),
}

impl TomlNode {
    /// Creates the node of a parsed value. `text` contains the value, and starts at `offset` of the
    /// source.
    pub fn new(value: &Spanned<DeValue<'_>>, text: &str, offset: usize, source: usize) -> TomlNode {
        let table = |table: &DeTable<'_>| TomlTree::new(table, text, offset, source);
        let is_filled = |value: &DeValue<'_>| {
            value
                .as_table()
                .is_some_and(|table| table.iter().next().is_some())
        };
        match value.get_ref() {
            DeValue::Table(inner) if is_filled(value.get_ref()) => TomlNode::Table(table(inner)),
            DeValue::Array(all)
                if !all.is_empty() && all.iter().all(|one| one.get_ref().is_table()) =>
            {
                let tables = all.iter().filter_map(|one| one.get_ref().as_table());
                TomlNode::List(tables.map(table).collect())
            }
            other => {
                let span = value.span();
                let written = match other {
                    DeValue::Table(_) => "{}",
                    _ => text.get(span.clone()).unwrap_or_default(),
                };
                let span = span.start + offset..span.end + offset;
                TomlNode::Value(written.to_owned(), SourceLocation { source, span })
            }
        }
    }
}

impl TomlTree {
    /// Creates the tree of a parsed table. `text` contains the table, and starts at `offset` of the
    /// source.
    pub fn new(table: &DeTable<'_>, text: &str, offset: usize, source: usize) -> TomlTree {
        let setting = |(key, value): (&Spanned<_>, _)| -> (String, TomlNode) {
            let key: &std::borrow::Cow<'_, str> = key.get_ref();
            (
                key.clone().into_owned(),
                TomlNode::new(value, text, offset, source),
            )
        };
        TomlTree(table.iter().map(setting).collect())
    }

    /// Sets the node at a path such as `topology.incast.senders`. An element of a list is named by
    /// its number, counted from 1, or by its `name`. Returns the reason if there is no such path.
    pub fn set(&mut self, path: &str, node: TomlNode) -> Result<(), String> {
        let Some((first, rest)) = path.split_once('.') else {
            self.0.insert(path.to_owned(), node);
            return Ok(());
        };
        let inner = self.0.entry(first.to_owned());
        let inner = inner.or_insert_with(|| TomlNode::Table(TomlTree::default()));
        if matches!(inner, TomlNode::Value(text, _) if text == "{}") {
            *inner = TomlNode::Table(TomlTree::default());
        }
        match inner {
            TomlNode::Table(table) => table.set(rest, node),
            TomlNode::Value(text, _) => Err(format!("`{first}` is {text}, which has no settings")),
            TomlNode::List(all) => {
                let (which, rest) = rest.split_once('.').unwrap_or((rest, ""));
                let number = which.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
                let has_name = |tree: &TomlTree| {
                    let name = tree.0.get("name");
                    matches!(name, Some(TomlNode::Value(text, _)) if text.trim_matches('"') == which)
                };
                let index = number.or_else(|| all.iter().position(has_name));
                match index.and_then(|index| all.get_mut(index)) {
                    Some(tree) if !rest.is_empty() => tree.set(rest, node),
                    Some(_) => Err(format!(
                        "`{path}` is a whole `{first}`, not a setting of it"
                    )),
                    None => Err(format!(
                        "there is no `{first}` with this number or name: `{which}`"
                    )),
                }
            }
        }
    }

    /// Adds the settings of another tree. Tables are merged; other settings replace those of the
    /// same name.
    pub fn overlay(&mut self, above: &TomlTree) {
        for (key, node) in &above.0 {
            match (self.0.get_mut(key), node) {
                (Some(TomlNode::Table(below)), TomlNode::Table(above)) => below.overlay(above),
                _ => drop(self.0.insert(key.clone(), node.clone())),
            }
        }
    }

    /// Prints the tree: equal trees give equal texts.
    pub fn compose(&self) -> ComposedText {
        let mut composed = ComposedText::default();
        composed.add_values("", self);
        composed.add_lists("", self);
        composed
    }
}

/// Text of a [`TomlTree`] with the locations of its values.
#[derive(Debug, Default)]
pub struct ComposedText {
    /// The text.
    pub text: String,
    /// Bytes of the text, and the location of their value.
    locations: Vec<(Range<usize>, SourceLocation)>,
}

impl ComposedText {
    fn add_values(&mut self, before: &str, tree: &TomlTree) {
        for (key, node) in &tree.0 {
            let key = format!("{before}{}", quoted(key));
            match node {
                TomlNode::Value(written, location) => {
                    let start = self.text.len();
                    self.text += &format!("{key} = {written}\n");
                    self.locations
                        .push((start..self.text.len(), location.clone()));
                }
                TomlNode::Table(table) => self.add_values(&format!("{key}."), table),
                TomlNode::List(_) => {}
            }
        }
    }

    fn add_lists(&mut self, before: &str, tree: &TomlTree) {
        for (key, node) in &tree.0 {
            let path = format!("{before}{}", quoted(key));
            match node {
                TomlNode::Value(..) => {}
                TomlNode::Table(table) => self.add_lists(&format!("{path}."), table),
                TomlNode::List(all) => {
                    for one in all {
                        self.text += &format!("[[{path}]]\n");
                        self.add_values("", one);
                        self.add_lists(&format!("{path}."), one);
                    }
                }
            }
        }
    }

    /// Moves a problem of the text to the source of its value. A problem of no value is reported at
    /// `fallback`.
    pub fn locate(
        &self,
        problem: &Problem,
        sources: &[TreeSource],
        fallback: &SourceLocation,
    ) -> Problem {
        let at = problem.span();
        let contains = |span: &Range<usize>| span.start <= at.start && at.start < span.end;
        let found = self.locations.iter().find(|(span, _)| contains(span));
        let location = found
            .filter(|_| !at.is_empty())
            .map_or(fallback, |(_, location)| location);
        let empty = SourceText { file: "", text: "" };
        let source = sources
            .get(location.source)
            .map_or(empty, TreeSource::source);
        source.problem(
            location.span.clone(),
            problem.message(),
            problem.label(),
            problem.fix().unwrap_or_default(),
        )
    }
}

fn quoted(key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(is_bare) {
        key.to_owned()
    } else {
        format!("{key:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> TomlTree {
        TomlTree::new(DeTable::parse(text).unwrap().get_ref(), text, 0, 0)
    }

    fn value(text: &str) -> TomlNode {
        let location = SourceLocation {
            source: 0,
            span: 0..0,
        };
        TomlNode::Value(text.to_owned(), location)
    }

    #[test]
    fn replaced_values_are_part_of_the_text() {
        let mut all = tree(
            "duration = \"1s\"\n[topology.incast]\nsenders = 3\n[[workload]]\nbulk = {}\n\
             [[workload]]\nname = \"web\"\n",
        );
        all.set("topology.incast.senders", value("10")).unwrap();
        all.set("workload.1.bulk.spread", value("\"1ms\"")).unwrap();
        all.set("workload.web.start", value("\"2s\"")).unwrap();
        all.set("transport.ecn", value("true")).unwrap();
        let reason = all.set("duration.x", value("1")).unwrap_err();
        assert_eq!(reason, "`duration` is \"1s\", which has no settings");
        let reason = all.set("workload.3.x", value("1")).unwrap_err();
        assert_eq!(
            reason,
            "there is no `workload` with this number or name: `3`"
        );
        let text = all.compose().text;
        assert_eq!(
            text,
            "duration = \"1s\"\ntopology.incast.senders = 10\ntransport.ecn = true\n[[workload]]\n\
             bulk.spread = \"1ms\"\n[[workload]]\nname = \"web\"\nstart = \"2s\"\n"
        );
        assert_eq!(tree(&text).compose().text, text);
    }

    #[test]
    fn an_overlay_merges_tables() {
        let mut below = tree("a.b = 1\na.c = 2\nd = [1]\n");
        below.overlay(&tree("a.b = 3\nd = [2]\n"));
        assert_eq!(below.compose().text, "a.b = 3\na.c = 2\nd = [2]\n");
    }
}
