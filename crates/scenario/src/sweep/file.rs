//! Reader of a sweep file: its axes and cases, and the scenario that it refers to.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::axis::{AxisQuantity, AxisTarget, AxisValue, SweepAxis, text_of};
use super::placeholders::{names_in, without_filled_parameters};
use super::{
    SCENARIO_SOURCE, SWEEP_SOURCE, ScenarioFolder, Sweep, SweepSize, contender_node, contenders_of,
};
use crate::{
    Problem, Seeds, SourceLocation, SourceText, SpannedValue, TomlNode, TomlTree, TreeSource,
    read_file, shipped,
};

/// Documentation of the settings.
const REFERENCE: &str = "docs/sweeps.md";

/// Names that a column of the table of runs already has.
const RESERVED: [&str; 7] = [
    "run",
    "case",
    "contender",
    "algorithm",
    "seed",
    "error",
    "digest",
];

/// Settings of a scenario at the top of its file that are values. Another name without a point is a
/// parameter, unless its values are tables.
const SCENARIO_VALUES: [&str; 4] = ["duration", "until", "warm", "sample"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SweepFile {
    title: Option<String>,
    base: Option<Spanned<String>>,
    scenario: Spanned<toml::Value>,
    seeds: Option<SpannedValue<Seeds>>,
    repeats: Option<Spanned<u32>>,
    #[serde(rename = "quick")]
    _quick: Option<IgnoredAny>,
    #[serde(rename = "grid")]
    _grid: Option<IgnoredAny>,
    #[serde(rename = "case")]
    _case: Option<IgnoredAny>,
}

/// Setting in a table of the file: its path, the bytes of its name, and its value.
struct Entry<'t> {
    path: String,
    key_span: Range<usize>,
    value: &'t Spanned<DeValue<'t>>,
}

/// Parses and checks a sweep file, without its points.
pub(super) fn parse(
    source: SourceText<'_>,
    folder: &Path,
    size: SweepSize,
) -> Result<Sweep, Problem> {
    let file: SweepFile = source.parse(REFERENCE)?;
    let parsed =
        DeTable::parse(source.text).map_err(|error| source.syntax_problem(&error, REFERENCE))?;
    let table = parsed.get_ref();
    let mut sources = vec![TreeSource {
        file: source.file.to_owned(),
        text: source.text.to_owned(),
    }];
    let mut scenario_folder = ScenarioFolder::Folder(folder.to_owned());
    let written = table.iter().find(|(key, _)| key.get_ref() == "scenario");
    let inline = written.and_then(|(_, value)| value.get_ref().as_table());
    let inline = inline.map(|inline| TomlTree::new(inline, source.text, 0, SWEEP_SOURCE));
    let name = match (&file.base, &inline) {
        (Some(base), Some(_)) => Some((base.span(), base.get_ref().as_str())),
        (Some(base), None) => {
            let fix =
                "write what differs from the base as a table `[scenario]`, or only `scenario`";
            return Err(source.problem(base, "`scenario` names a file too", "here", fix));
        }
        (None, Some(_)) => None,
        (None, None) => match file.scenario.get_ref().as_str() {
            Some(name) => Some((file.scenario.span(), name)),
            None => {
                let fix = "name a file, such as `scenario = \"base.toml\"`, or write a table `[scenario]`";
                let message = "`scenario` is not a name";
                return Err(source.problem(&file.scenario, message, "here", fix));
            }
        },
    };
    let mut base_tree = TomlTree::default();
    if let Some((span, name)) = name {
        let base_source;
        (base_source, scenario_folder) = read_scenario(source, span, name, folder)?;
        let base = base_source.source();
        let base_table = DeTable::parse(base.text)
            .map_err(|error| base.syntax_problem(&error, "docs/scenarios.md"))?;
        base_tree = TomlTree::new(base_table.get_ref(), base.text, 0, SCENARIO_SOURCE);
        sources.push(base_source);
    }
    if let Some(inline) = &inline {
        base_tree.overlay(inline);
    }
    let mut axes = Vec::new();
    if let Some((_, grid)) = table.iter().find(|(key, _)| key.get_ref() == "grid") {
        let grid = expect_table(source, grid, "[grid]")?;
        for entry in entries(grid) {
            axes.push(grid_axis(source, &entry)?);
        }
    }
    if !axes.iter().any(|axis| axis.target == AxisTarget::Contender)
        && let Some((names, location)) = contenders_of(&base_tree)
    {
        axes.insert(0, contender_axis(&names, &location));
    }
    let mut grid_axes = axes.len();
    let mut cases = match table.iter().find(|(key, _)| key.get_ref() == "case") {
        Some((_, list)) => cases(source, list, &mut axes)?,
        None => vec![Vec::new()],
    };
    let implied = axes.first().filter(|axis| axis.is_implied()).cloned();
    if let Some(implied) = implied
        && replace_contenders(&implied, &mut axes, &mut cases)
    {
        grid_axes -= 1;
    }
    check_axes(source, &mut axes)?;
    if let Some(repeats) = file
        .repeats
        .as_ref()
        .filter(|repeats| *repeats.get_ref() == 0)
    {
        let fix = "every point needs at least one run";
        return Err(source.problem(repeats, "`repeats` is 0", "here", fix));
    }
    let base_seeds = base_tree.0.get("seeds").map(text_of);
    let base_seeds = base_seeds.and_then(|text| text.parse::<Seeds>().ok());
    let seeds = file.seeds.map(|seeds| seeds.get_ref().0).or(base_seeds);
    let mut content = SweepContent {
        axes,
        grid_axes,
        cases,
        base: base_tree,
        seeds: seeds.unwrap_or(Seeds::one(1)),
        repeats: file.repeats.map(Spanned::into_inner),
    };
    if let Some((_, quick)) = table.iter().find(|(key, _)| key.get_ref() == "quick") {
        // Also checked when it is not used.
        let quick = content.quick(source, &entries(expect_table(source, quick, "[quick]")?))?;
        if size == SweepSize::Quick {
            content = quick;
        }
    }
    Ok(Sweep {
        title: file.title,
        seeds: content.seeds,
        repeats: content.repeats,
        axes: content.axes,
        grid_axes: content.grid_axes,
        cases: content.cases,
        scenario_line: SourceLocation {
            source: SWEEP_SOURCE,
            span: source.first_line(&file.scenario),
        },
        sources,
        base: content.base,
        folder: scenario_folder,
        contender_folder: folder.to_owned(),
    })
}

/// Content of a sweep that its table `[quick]` can replace.
#[derive(Clone)]
struct SweepContent {
    axes: Vec<SweepAxis>,
    grid_axes: usize,
    cases: Vec<Vec<Option<usize>>>,
    base: TomlTree,
    seeds: Seeds,
    repeats: Option<u32>,
}

impl SweepContent {
    /// Returns the content with the table `[quick]`: `seeds`, `repeats`, other values of an axis of
    /// the grid, the names of the cases of an axis that remain, and settings of the scenario.
    fn quick(&self, source: SourceText<'_>, quick: &[Entry<'_>]) -> Result<SweepContent, Problem> {
        let mut content = self.clone();
        for entry in quick {
            let node = TomlNode::new(entry.value, source.text, 0, SWEEP_SOURCE);
            let text = text_of(&node);
            let wrong = |message: String, fix: &str| {
                Err(source.problem(entry.value, message, "here", fix.to_owned()))
            };
            match entry.path.as_str() {
                "seeds" => match text.parse() {
                    Ok(seeds) => content.seeds = seeds,
                    Err(error) => return wrong(format!("{error}"), "such as `seeds = \"1..3\"`"),
                },
                "repeats" => match text.parse() {
                    Ok(repeats) if repeats > 0 => content.repeats = Some(repeats),
                    _ => {
                        return wrong(format!("{text} is no number of repeats"), "write 1 or more");
                    }
                },
                path => {
                    let grid = content.axes.iter_mut().take(self.grid_axes);
                    let name = if path == "contenders" {
                        "contender"
                    } else {
                        path
                    };
                    if let Some(axis) = grid.into_iter().find(|axis| axis.name == name) {
                        axis.values = grid_axis(source, entry)?.values;
                        continue;
                    }
                    let is_case =
                        |axis: &SweepAxis| axis.name == path && axis.target == AxisTarget::CaseName;
                    if let Some(index) = content.axes.iter().position(is_case) {
                        let names = entry.value.get_ref().as_array().into_iter();
                        let names = names.flat_map(|names| names.iter());
                        let names: Vec<&str> = names.filter_map(|n| n.get_ref().as_str()).collect();
                        if let Err(known) = content.keep_cases(index, &names) {
                            let fix = format!("list names of cases: {}", known.join(", "));
                            return wrong(format!("{text} are not names of cases"), &fix);
                        }
                        continue;
                    }
                    if let Err(reason) = content.base.set(path, node) {
                        let fix = "name an axis of the grid, or a setting of the scenario";
                        return Err(source.problem(entry.key_span.clone(), reason, "here", fix));
                    }
                }
            }
        }
        Ok(content)
    }

    /// Removes all cases but those with these names on an axis. The error lists the names that
    /// exist.
    fn keep_cases(&mut self, axis: usize, names: &[&str]) -> Result<(), Vec<String>> {
        let values = self.axes.get(axis).map_or(&[][..], |axis| &axis.values);
        let known: Vec<String> = values.iter().map(|value| value.text.clone()).collect();
        if names.is_empty() || names.iter().any(|name| !known.iter().any(|k| k == name)) {
            return Err(known);
        }
        let column = axis - self.grid_axes;
        let name = |case: &Vec<Option<usize>>| known.get(case.get(column).copied().flatten()?);
        self.cases
            .retain(|case| name(case).is_some_and(|name| names.contains(&name.as_str())));
        Ok(())
    }
}

/// Reads the scenario: a file, or one that is shipped with ccplane.
fn read_scenario(
    source: SourceText<'_>,
    written: Range<usize>,
    name: &str,
    folder: &Path,
) -> Result<(TreeSource, ScenarioFolder), Problem> {
    let path = folder.join(name);
    let error = match read_file(&path) {
        Ok(text) => {
            let own_folder = path.parent().unwrap_or(folder).to_owned();
            let file = TreeSource {
                file: path.display().to_string(),
                text,
            };
            return Ok((file, ScenarioFolder::Folder(own_folder)));
        }
        Err(error) => error,
    };
    if let Some(text) = shipped::text(name) {
        let file = TreeSource {
            file: name.to_owned(),
            text: text.to_owned(),
        };
        return Ok((file, ScenarioFolder::Shipped));
    }
    let near = shipped::near(name);
    let fix = match near.first() {
        Some(near) => format!("did you mean `{near}`?"),
        None => "relative paths start at the sweep's folder; `ccplane run 02-fairness` runs a \
                 shipped scenario, whose name is valid here too"
            .to_owned(),
    };
    let message = format!("the scenario {} cannot be read: {error}", path.display());
    Err(source.problem(written, message, "this scenario", fix))
}

fn expect_table<'t>(
    source: SourceText<'_>,
    value: &'t Spanned<DeValue<'t>>,
    name: &str,
) -> Result<&'t DeTable<'t>, Problem> {
    value.get_ref().as_table().ok_or_else(|| {
        let message = format!("`{name}` must be a table of settings");
        source.problem(value, message, "here", format!("see {REFERENCE}"))
    })
}

/// Returns the settings of a table in the order of the file. Nested tables are paths:
/// `topology.dumbbell.rate` may be written with or without quotes.
fn entries<'t>(table: &'t DeTable<'t>) -> Vec<Entry<'t>> {
    fn add<'t>(before: &str, table: &'t DeTable<'t>, all: &mut Vec<Entry<'t>>) {
        for (key, value) in table.iter() {
            let path = format!("{before}{}", key.get_ref());
            match value.get_ref().as_table() {
                Some(inner) => add(&format!("{path}."), inner, all),
                None => all.push(Entry {
                    path,
                    key_span: key.span(),
                    value,
                }),
            }
        }
    }
    let mut all = Vec::new();
    add("", table, &mut all);
    all.sort_by_key(|entry| entry.key_span.start);
    all
}

/// Returns the use of an axis with this name.
fn target(source: SourceText<'_>, entry: &Entry<'_>) -> Result<AxisTarget, Problem> {
    let path = entry.path.as_str();
    let first = entry.value.get_ref().as_array().and_then(|all| all.first());
    let is_list = entry.value.get_ref().is_array();
    // A list of tables, such as `bundle`, which may be empty.
    let is_table = first.map_or(is_list, |first| {
        first.get_ref().is_table() || first.get_ref().is_array()
    });
    match path {
        "contenders" => Ok(AxisTarget::Contender),
        "seeds" => Err(source.problem(
            entry.key_span.clone(),
            "`seeds` is not an axis of the grid",
            "here",
            "set `seeds` next to `scenario`: every point runs with every seed",
        )),
        _ if path.contains('.') || SCENARIO_VALUES.contains(&path) || is_table => {
            Ok(AxisTarget::Setting(path.to_owned()))
        }
        _ => Ok(AxisTarget::Parameter),
    }
}

fn value_of(source: SourceText<'_>, entry: &Entry<'_>, value: &Spanned<DeValue<'_>>) -> AxisValue {
    let node = TomlNode::new(value, source.text, 0, SWEEP_SOURCE);
    AxisValue {
        text: text_of(&node),
        node,
        key_span: entry.key_span.clone(),
    }
}

fn grid_axis(source: SourceText<'_>, entry: &Entry<'_>) -> Result<SweepAxis, Problem> {
    let target = target(source, entry)?;
    let values = entry.value.get_ref().as_array();
    let values = values.filter(|values| !values.is_empty()).ok_or_else(|| {
        source.problem(
            entry.value,
            format!("the axis `{}` has no list of values", entry.path),
            "here",
            "write a list such as `[\"10mbit\", \"100mbit\"]`; a single value belongs to the \
             scenario, or to a list of one",
        )
    })?;
    let values = values.iter().map(|value| value_of(source, entry, value));
    let mut axis = SweepAxis {
        name: entry.path.clone(),
        column: String::new(),
        quantity: AxisQuantity::Text,
        values: values.collect(),
        target,
    };
    if axis.target == AxisTarget::Contender {
        "contender".clone_into(&mut axis.name);
        check_contenders(source, &mut axis)?;
    }
    Ok(axis)
}

/// Checks that contenders are strings, and shortens their texts.
fn check_contenders(source: SourceText<'_>, axis: &mut SweepAxis) -> Result<(), Problem> {
    for value in &mut axis.values {
        match &value.node {
            TomlNode::Value(written, _) if written.starts_with(['"', '\'']) => {
                value.text = without_filled_parameters(&value.text);
            }
            _ => {
                return Err(source.problem(
                    value.key_span.clone(),
                    format!("the contender {} is not a string", value.text),
                    "in this list",
                    "write names such as `\"cubic\"` or `\"./mine.ccp:back={back}\"`",
                ));
            }
        }
    }
    Ok(())
}

/// Returns the axis of the scenario's own contenders.
fn contender_axis(names: &[String], location: &SourceLocation) -> SweepAxis {
    let value = |name: &String| AxisValue {
        text: name.clone(),
        node: contender_node(name, location.clone()),
        key_span: 0..0,
    };
    SweepAxis {
        name: "contender".to_owned(),
        column: String::new(),
        quantity: AxisQuantity::Text,
        values: names.iter().map(value).collect(),
        target: AxisTarget::Contender,
    }
}

/// Reads `[[case]]` tables. Their settings become axes; each case has one value of them, or none.
/// Cases with the same `axis` are alternatives; those with different ones are combined.
fn cases(
    source: SourceText<'_>,
    list: &Spanned<DeValue<'_>>,
    axes: &mut Vec<SweepAxis>,
) -> Result<Vec<Vec<Option<usize>>>, Problem> {
    let grid_axes = axes.len();
    let Some(tables) = list.get_ref().as_array().filter(|list| !list.is_empty()) else {
        let fix = "write each case as a table `[[case]]`";
        return Err(source.problem(list, "`case` is not a list of tables", "here", fix));
    };
    let mut groups: Vec<(String, Vec<CaseRow>)> = Vec::new();
    for table in tables {
        let entries = entries(expect_table(source, table, "[[case]]")?);
        let group = case_axis(source, &entries, axes.get(..grid_axes).unwrap_or_default())?;
        let mut row = CaseRow::new();
        for entry in entries.iter().filter(|entry| entry.path != "axis") {
            let (name, target) = match entry.path.as_str() {
                "name" => (group.clone(), AxisTarget::CaseName),
                "contenders" => {
                    let fix = "a case has one contender: write `contender = \"cubic\"`, or list \
                               the contenders in [grid]";
                    let message = "`contenders` is a list of the grid";
                    return Err(source.problem(entry.key_span.clone(), message, "here", fix));
                }
                "contender" => ("contender".to_owned(), AxisTarget::Contender),
                path => (path.to_owned(), target(source, entry)?),
            };
            let twice = |what: String, fix: &str| {
                Err(source.problem(entry.key_span.clone(), what, "here", fix.to_owned()))
            };
            if entry.path == group {
                let what = format!("`{group}` is a setting and the axis of its case");
                return twice(what, "choose another name for the axis");
            }
            let mut grid = axes.iter().take(grid_axes);
            // The scenario's own contenders are an axis without a line in this file.
            if grid.any(|axis| axis.name == name && !axis.is_implied()) {
                let what = format!("`{name}` is an axis of the grid and a setting of a case");
                return twice(what, "remove it from one of them");
            }
            let own = axes.iter().skip(grid_axes);
            let known = own.clone().position(|axis| axis.name == name);
            let column = known.unwrap_or(own.count());
            let mut others = groups.iter().filter(|(axis, _)| *axis != group);
            if let Some((other, _)) =
                others.find(|(_, rows)| rows.iter().any(|row| row.contains_key(&column)))
            {
                let what = format!("cases of the axes `{other}` and `{group}` set `{name}`");
                return twice(what, "set it in the cases of one axis");
            }
            if known.is_none() {
                axes.push(SweepAxis {
                    name,
                    column: String::new(),
                    quantity: AxisQuantity::Text,
                    values: Vec::new(),
                    target,
                });
            }
            let Some(axis) = axes.get_mut(grid_axes + column) else {
                continue;
            };
            let value = value_of(source, entry, entry.value);
            let existing = axis.values.iter().position(|v| v.text == value.text);
            row.insert(column, existing.unwrap_or(axis.values.len()));
            if existing.is_none() {
                axis.values.push(value);
            }
        }
        match groups.iter_mut().find(|(axis, _)| *axis == group) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((group, vec![row])),
        }
    }
    for axis in axes.iter_mut().skip(grid_axes) {
        if axis.target == AxisTarget::Contender {
            check_contenders(source, axis)?;
        }
    }
    let mut combined = vec![CaseRow::new()];
    for (_, rows) in &groups {
        let with = |before: &CaseRow| {
            let together =
                |row: &CaseRow| before.iter().chain(row).map(|(c, v)| (*c, *v)).collect();
            rows.iter().map(together).collect::<Vec<CaseRow>>()
        };
        combined = combined.iter().flat_map(with).collect();
    }
    let columns = axes.len() - grid_axes;
    let dense = |row: CaseRow| (0..columns).map(|n| row.get(&n).copied()).collect();
    Ok(combined.into_iter().map(dense).collect())
}

/// If cases set contenders, removes the axis of the scenario's own contenders, with which the other
/// cases run. Returns true if it was removed.
fn replace_contenders(
    implied: &SweepAxis,
    axes: &mut Vec<SweepAxis>,
    cases: &mut Vec<Vec<Option<usize>>>,
) -> bool {
    let is_contender = |axis: &SweepAxis| axis.target == AxisTarget::Contender;
    let Some(index) = axes.iter().skip(1).position(is_contender) else {
        return false;
    };
    axes.remove(0);
    let axes_count = axes.len();
    let Some(axis) = axes.get_mut(index) else {
        return true;
    };
    let mut index_of = |value: &AxisValue| {
        let same = |other: &AxisValue| text_of(&other.node) == text_of(&value.node);
        let known = axis.values.iter().position(same);
        if known.is_none() {
            axis.values.push(value.clone());
        }
        known.unwrap_or(axis.values.len() - 1)
    };
    let columns = cases.first().map_or(0, Vec::len);
    let column = (index + columns).saturating_sub(axes_count);
    let mut expanded = Vec::new();
    for case in cases.iter() {
        let values = match case.get(column).copied().flatten() {
            Some(own) => vec![own],
            None => implied.values.iter().map(&mut index_of).collect(),
        };
        for value in values {
            let mut case = case.clone();
            if let Some(cell) = case.get_mut(column) {
                *cell = Some(value);
            }
            expanded.push(case);
        }
    }
    *cases = expanded;
    true
}

/// Values of a case: for each of its axes, counted from the first of all cases, the index of the
/// value.
type CaseRow = BTreeMap<usize, usize>;

/// Returns the axis of a case.
fn case_axis(
    source: SourceText<'_>,
    entries: &[Entry<'_>],
    grid: &[SweepAxis],
) -> Result<String, Problem> {
    let Some(entry) = entries.iter().find(|entry| entry.path == "axis") else {
        return Ok("case".to_owned());
    };
    let name = entry.value.get_ref().as_str();
    let wrong = |message: String, fix: &str| {
        Err(source.problem(entry.value, message, "here", fix.to_owned()))
    };
    match name {
        None | Some("") => wrong(
            "the axis of a case is no name".to_owned(),
            "write a name such as `axis = \"path\"`",
        ),
        Some(name) if name != "case" && RESERVED.contains(&name) => wrong(
            format!("an axis cannot have the name `{name}`"),
            "choose another name: the table of runs has this column already",
        ),
        Some(name) if grid.iter().any(|axis| axis.name == name) => wrong(
            format!("`{name}` is an axis of the grid"),
            "choose another name for the axis of these cases",
        ),
        Some(name) => Ok(name.to_owned()),
    }
}

/// Gives every axis its column, and checks names and parameters.
fn check_axes(source: SourceText<'_>, axes: &mut [SweepAxis]) -> Result<(), Problem> {
    let last = |name: &str| name.rsplit('.').next().unwrap_or(name).to_owned();
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    for axis in axes.iter() {
        *uses.entry(last(&axis.name)).or_default() += 1;
    }
    for axis in axes.iter_mut() {
        let short = last(&axis.name);
        let is_unique = uses.get(&short) == Some(&1) && !RESERVED.contains(&short.as_str());
        axis.column = match axis.target {
            AxisTarget::Setting(_) if is_unique => short,
            _ => axis.name.clone(),
        };
        axis.quantity = match axis.target {
            AxisTarget::Contender => AxisQuantity::Text,
            // `48m` is a name, not a time.
            AxisTarget::CaseName => match AxisQuantity::of_all(&axis.values) {
                AxisQuantity::Number => AxisQuantity::Number,
                _ => AxisQuantity::Text,
            },
            _ => AxisQuantity::of_all(&axis.values),
        };
    }
    let used: Vec<String> = axes
        .iter()
        .flat_map(|axis| &axis.values)
        .flat_map(|value| names_in(&value.node))
        .map(str::to_owned)
        .collect();
    let names: Vec<&str> = axes.iter().flat_map(SweepAxis::names).collect();
    for value in axes.iter().flat_map(|axis| &axis.values) {
        let unknown = |name: &&str| !names.contains(name);
        if let Some(name) = names_in(&value.node).into_iter().find(unknown) {
            return Err(unknown_placeholder(source, name, &value.key_span, &names));
        }
    }
    for axis in axes.iter() {
        let span = axis
            .values
            .first()
            .map_or(0..0, |value| value.key_span.clone());
        let is_reserved = RESERVED.contains(&axis.name.as_str());
        if axis.target == AxisTarget::Parameter && is_reserved {
            let message = format!("an axis cannot have the name `{}`", axis.name);
            let fix = "choose another name: the table of runs has this column already";
            return Err(source.problem(span, message, "here", fix));
        }
        if axis.target == AxisTarget::Parameter && !used.contains(&axis.name) {
            let near = crate::suggestions(&axis.name, SCENARIO_VALUES);
            let fix = match near.first() {
                Some(near) => format!("did you mean the setting `{near}`?"),
                None => format!(
                    "name a setting by its path, such as `topology.dumbbell.rate`, or use the \
                     parameter in a contender: `./mine.ccp:{0}={{{0}}}`",
                    axis.name
                ),
            };
            let message = format!("nothing uses the axis `{}`", axis.name);
            return Err(source.problem(span, message, "unused", fix));
        }
        for (index, value) in axis.values.iter().enumerate() {
            let same = |other: &AxisValue| text_of(&other.node) == text_of(&value.node);
            if axis.values.iter().take(index).any(same) {
                let message = format!("the axis `{}` lists {} twice", axis.name, value.text);
                return Err(source.problem(span, message, "here", "remove one of them"));
            }
        }
    }
    Ok(())
}

/// Returns the problem of a placeholder without an axis. `known` are the names of all axes.
pub(super) fn unknown_placeholder(
    source: SourceText<'_>,
    name: &str,
    span: &Range<usize>,
    known: &[&str],
) -> Problem {
    let fix = match crate::suggestions(name, known.iter().copied()).first() {
        Some(near) => format!("did you mean `{{{near}}}`?"),
        None => format!("add `{name} = [...]` to the grid"),
    };
    let message = format!("the grid has no value for the placeholder `{{{name}}}`");
    source.problem(span.clone(), message, "used here", fix)
}
