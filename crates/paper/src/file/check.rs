//! From the file to the paper: every name against what there is, every cell of the grid as a
//! scenario.

use std::path::Path;

use ccplane_lab::scenario::{
    Problem, Scenario, SourceLocation, SourceText, TomlNode, TomlTree, TreeSource,
};
use ccplane_units::{Bytes, Duration, Rate};
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Value};

use super::measure::{Measure, Unread};
use super::names::Names;
use super::written::{self, File, Text, key_of};
use super::{Choice, Dim, Except, Meant, Paper, Put};
use crate::Datapath;

/// What explains the settings.
const REFERENCE: &str = "docs/papers.md";

/// Names that an axis cannot have.
const TAKEN: [&str; 4] = ["contender", "on", "delay", "time"];

/// More repeats than anybody waits for.
const MOST_REPEATS: u32 = 1_000;

pub(super) struct Context<'t> {
    pub(super) source: SourceText<'t>,
    folder: &'t Path,
}

impl Context<'_> {
    pub(super) fn problem<T>(
        &self,
        at: &Spanned<T>,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> Problem {
        self.source.problem(at.span(), what, "here", fix)
    }

    pub(super) fn place<T>(&self, at: &Spanned<T>) -> SourceLocation {
        SourceLocation {
            source: 0,
            span: at.span(),
        }
    }

    /// What replaces a word.
    pub(super) fn word(&self, value: &Spanned<Value>) -> Result<TomlNode, Problem> {
        let slice = self.source.text.get(value.span()).unwrap_or_default();
        let read =
            DeValue::parse(slice).map_err(|error| self.source.syntax_problem(&error, REFERENCE))?;
        Ok(TomlNode::new(&read, slice, value.span().start, 0))
    }

    pub(super) fn puts(&self, set: &written::Set) -> Result<Vec<Put>, Problem> {
        let one = |(path, value): (&Text, &Spanned<Value>)| -> Result<Put, Problem> {
            Ok(Put {
                path: path.get_ref().clone(),
                at: self.place(path),
                word: self.word(value)?,
            })
        };
        set.iter().map(one).collect()
    }

    pub(super) fn measure(&self, text: &Text) -> Result<Measure, Problem> {
        Measure::read(text.get_ref()).map_err(|error| match error {
            Unread::Unknown(name) => {
                let known = Measure::names();
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                self.source
                    .unknown_name(text.span(), "measure", &name, &known)
            }
            Unread::Argument(fix) => {
                self.problem(text, format!("`{}` is no measure", text.get_ref()), fix)
            }
        })
    }

    pub(super) fn datapath(&self, text: &Text) -> Result<Datapath, Problem> {
        match text.get_ref().as_str() {
            "sim" => Ok(Datapath::Sim),
            "linux" => Ok(Datapath::Linux),
            other => {
                Err(self
                    .source
                    .unknown_name(text.span(), "place to run", other, &["sim", "linux"]))
            }
        }
    }

    pub(super) fn repeats(
        &self,
        text: Option<&Spanned<u32>>,
        own: usize,
    ) -> Result<usize, Problem> {
        match text {
            None => Ok(own),
            Some(n) if (1..=MOST_REPEATS).contains(n.get_ref()) => Ok(*n.get_ref() as usize),
            Some(n) => Err(self.problem(
                n,
                format!("{} repeats", n.get_ref()),
                format!("give 1 to {MOST_REPEATS}"),
            )),
        }
    }
}

/// Checks a whole file.
pub(super) fn paper(file: &str, text: &str, folder: &Path) -> Result<Paper, Problem> {
    let source = SourceText { file, text };
    let context = Context { source, folder };
    let syntax = |error: toml::de::Error| source.syntax_problem(&error, REFERENCE);
    let written: File = toml::from_str(text).map_err(syntax)?;
    let raw = DeTable::parse(text).map_err(syntax)?;
    let name = written.name.get_ref();
    if name.is_empty()
        || !name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
    {
        let what = format!("`{name}` is no name of a paper");
        return Err(context.problem(
            &written.name,
            what,
            "use letters, digits, `-` and `_`: results have a folder of this name",
        ));
    }
    let (words, origins) = scenario(&context, &written, raw.get_ref())?;
    let places = written.on.iter().flatten().map(|on| context.datapath(on));
    let mut on: Vec<Datapath> = places.collect::<Result<_, _>>()?;
    if on.is_empty() {
        on.push(Datapath::Sim);
    }
    let mut dims = written
        .grid
        .iter()
        .map(|grid| axis(&context, grid))
        .collect::<Result<Vec<_>, _>>()?;
    if let Some((n, twice)) = dims
        .iter()
        .enumerate()
        .find(|(n, dim)| dims[..*n].iter().any(|d| d.name == dim.name))
    {
        let at = written
            .grid
            .get(n)
            .map_or(0..0, |grid| grid.get_ref().name.span());
        return Err(source.problem(
            at,
            format!("there are two axes `{}`", twice.name),
            "the second",
            "give each a name of its own",
        ));
    }
    let (contenders, algorithms) = contenders(&context, &written, &words)?;
    dims.push(contenders);
    dims.push(Dim {
        name: "on".to_owned(),
        heading: "on".to_owned(),
        values: on
            .iter()
            .map(|on| named(&on.to_string(), on.label()))
            .collect(),
    });
    let names = Names {
        context: &context,
        dims: &dims,
    };
    let repeats = context.repeats(written.repeats.as_ref(), 1)?;
    let figures = written.figure.iter().map(|figure| names.figure(figure));
    let tables = written.table.iter().map(|table| names.table(table));
    let charts = written.chart.iter().map(|chart| names.chart(chart));
    let paper = Paper {
        name: written.name.get_ref().clone(),
        title: written.title.clone(),
        source: written.source.clone(),
        takes: written.takes.clone(),
        repeats: (
            repeats,
            context.repeats(written.quick.repeats.as_ref(), repeats)?,
        ),
        whole: SourceLocation {
            source: 0,
            span: written
                .scenario
                .as_ref()
                .map_or(0..0, |scenario| source.first_line(scenario)),
        },
        excepts: excepts(&context, &written, &names)?,
        quick: context.puts(&written.quick.set)?,
        quick_only: names.only(&written.quick.only)?,
        figures: figures.collect::<Result<_, _>>()?,
        tables: tables.collect::<Result<_, _>>()?,
        charts: charts.collect::<Result<_, _>>()?,
        folder: folder.to_owned(),
        remarks: written.remarks.clone(),
        deviations: written.deviations.clone(),
        on,
        origins,
        words,
        dims,
        algorithms,
    };
    cells(&context, &paper, &written)?;
    Ok(paper)
}

/// The words of the scenario: those of the file that it is based on, and the paper's own over them.
fn scenario(
    context: &Context,
    written: &File,
    raw: &DeTable<'_>,
) -> Result<(TomlTree, Vec<TreeSource>), Problem> {
    let source = context.source;
    let mut origins = vec![TreeSource {
        file: source.file.to_owned(),
        text: source.text.to_owned(),
    }];
    let mut below = TomlTree::default();
    if let Some(base) = &written.base {
        let path = context.folder.join(base.get_ref());
        let (file, text) = match std::fs::read_to_string(&path) {
            Ok(text) => (path.display().to_string(), text),
            Err(error) => {
                let shipped = Scenario::shipped(base.get_ref()).ok();
                shipped.map(|scenario| (scenario.file, scenario.text)).ok_or_else(|| {
                    context.problem(
                        base,
                        format!("{} cannot be read: {error}", path.display()),
                        "name a scenario's file (a relative path counts from the paper's folder), or one that comes with ccplane, such as \
                         `02-fairness`",
                    )
                })?
            }
        };
        let other = SourceText {
            file: &file,
            text: &text,
        };
        let table = DeTable::parse(&text)
            .map_err(|error| other.syntax_problem(&error, "docs/scenarios.md"))?;
        below = TomlTree::new(table.get_ref(), &text, 0, 1);
        // Who is compared, and what it is called, the paper says.
        for own in ["contenders", "title"] {
            below.0.remove(own);
        }
        origins.push(TreeSource { file, text });
    }
    let own = raw.iter().find(|(key, _)| key.get_ref() == "scenario");
    if let Some(table) = own.and_then(|(_, value)| value.get_ref().as_table()) {
        below.overlay(&TomlTree::new(table, source.text, 0, 0));
    } else if written.base.is_none() {
        return Err(source.problem(
            written.name.span(),
            "there is nothing to run",
            "no scenario",
            "add `[scenario]` with the words of a scenario file, or `base = \"scenario.toml\"`",
        ));
    }
    if let Some(TomlNode::Value(_, place)) = below.0.get("contenders") {
        return Err(source.problem(
            place.span.clone(),
            "a paper's contenders have tables of their own",
            "here",
            "write a `[[contender]]` with `algorithm = …` for each",
        ));
    }
    Ok((below, origins))
}

fn named(key: &str, label: &str) -> Choice {
    Choice {
        key: key.to_owned(),
        label: label.to_owned(),
        x: None,
        puts: Vec::new(),
    }
}

/// Position of a value on an axis: a number, or a quantity in Mbit/s, ms, bytes or %, by its kind.
pub(super) fn coordinate(value: &Value) -> Option<f64> {
    let quantity = |text: &str| {
        let rate = text
            .parse::<Rate>()
            .map(|rate| rate.bytes_per_sec() as f64 * 8.0 / 1e6);
        let time = text
            .parse::<Duration>()
            .map(|time| time.as_secs_f64() * 1e3);
        let size = text.parse::<Bytes>().map(|size| size.get() as f64);
        let share = text
            .strip_suffix('%')
            .and_then(|share| share.trim().parse::<f64>().ok());
        rate.ok().or(time.ok()).or(size.ok()).or(share)
    };
    match value {
        Value::String(text) => quantity(text),
        Value::Integer(number) => Some(*number as f64),
        _ => value.as_float(),
    }
}

/// An axis of the grid.
fn axis(context: &Context, at: &Spanned<written::Grid>) -> Result<Dim, Problem> {
    let grid = at.get_ref();
    let name = grid.name.get_ref().clone();
    if TAKEN.contains(&name.as_str()) || name.is_empty() || name.contains(['{', '}']) {
        return Err(context.problem(
            &grid.name,
            format!("an axis cannot be called `{name}`"),
            "give it another name",
        ));
    }
    let values: Vec<Choice> = match (&grid.values, &grid.cells) {
        (Some(values), None) => {
            let one = |value: &Spanned<Value>| -> Result<Choice, Problem> {
                let Some(key) = key_of(value.get_ref()) else {
                    return Err(context.problem(
                        value,
                        "a list or table has no key",
                        "write `cells`, each with a `key` and what it sets",
                    ));
                };
                let puts = grid.sets.as_ref().map(|path| -> Result<Put, Problem> {
                    Ok(Put {
                        path: path.get_ref().clone(),
                        at: context.place(path),
                        word: context.word(value)?,
                    })
                });
                Ok(Choice {
                    x: coordinate(value.get_ref()),
                    puts: puts.transpose()?.into_iter().collect(),
                    ..named(&key, &key)
                })
            };
            values.iter().map(one).collect::<Result<_, _>>()?
        }
        (None, Some(cells)) => {
            if let Some(sets) = &grid.sets {
                return Err(context.problem(
                    sets,
                    "`sets` is for plain `values`",
                    "give each of `cells` its own `set = { … }`",
                ));
            }
            let one = |cell: &written::Cell| -> Result<Choice, Problem> {
                let key = cell.key.get_ref();
                Ok(Choice {
                    x: cell.x,
                    puts: context.puts(&cell.set)?,
                    ..named(key, cell.label.as_ref().unwrap_or(key))
                })
            };
            cells.iter().map(one).collect::<Result<_, Problem>>()?
        }
        _ => {
            return Err(context.problem(
                &grid.name,
                format!("the axis `{name}` has either `values` or `cells`"),
                "give `sets = \"topology.dumbbell.rate\"` and `values = [\"10mbit\", \"100mbit\"]`, or `cells` with a `key` and a `set` each",
            ));
        }
    };
    distinct(context, &grid.name, &values)?;
    Ok(Dim {
        heading: grid.heading.clone().unwrap_or_else(|| name.clone()),
        name,
        values,
    })
}

/// That there is a value, and that every value has a key of its own.
fn distinct<T>(context: &Context, at: &Spanned<T>, values: &[Choice]) -> Result<(), Problem> {
    if values.is_empty() {
        return Err(context.problem(at, "there is no value", "give at least one"));
    }
    for (n, value) in values.iter().enumerate() {
        if values[..n].iter().any(|other| other.key == value.key) {
            return Err(context.problem(
                at,
                format!("the key `{}` comes twice", value.key),
                "give each a `key` of its own",
            ));
        }
    }
    Ok(())
}

fn contenders(
    context: &Context,
    written: &File,
    words: &TomlTree,
) -> Result<(Dim, Vec<(String, SourceLocation)>), Problem> {
    let mut values = Vec::new();
    for contender in &written.contender {
        let text = contender.algorithm.get_ref();
        let plain = || {
            text.replace(
                |c: char| !c.is_ascii_alphanumeric() && !"_+-".contains(c),
                "_",
            )
        };
        let key = contender
            .key
            .as_ref()
            .map_or_else(plain, |key| key.get_ref().clone());
        values.push(Choice {
            puts: context.puts(&contender.set)?,
            ..named(&key, contender.label.as_ref().unwrap_or(text))
        });
    }
    let algorithms = written
        .contender
        .iter()
        .map(|c| (c.algorithm.get_ref().clone(), context.place(&c.algorithm)));
    if let Some(first) = written.contender.first() {
        distinct(context, &first.algorithm, &values)?;
    } else {
        let own = |words: &TomlTree| words.0.contains_key("algorithm");
        if !matches!(words.0.get("workload"), Some(TomlNode::List(all)) if all.iter().all(own)) {
            return Err(context.source.problem(
                written.name.span(),
                "nobody is compared",
                "no contender",
                "add `[[contender]]` with `algorithm = \"cubic\"`, or give every workload its own `algorithm`",
            ));
        }
        values.push(named("all", "all"));
    }
    let dim = Dim {
        name: "contender".to_owned(),
        heading: "under".to_owned(),
        values,
    };
    Ok((dim, algorithms.collect()))
}

/// Where axes cross and something else holds.
fn excepts(context: &Context, written: &File, names: &Names) -> Result<Vec<Except>, Problem> {
    let one = |at: &Spanned<written::Except>| -> Result<Except, Problem> {
        let except = at.get_ref();
        let wrong = |what: &str, fix: &str| {
            let span = context.source.first_line(at);
            Err(context.source.problem(span, what, "here", fix))
        };
        if except.only.is_empty() {
            let fix = "say where, as `only = { contender = \"dctcp\", rate = \"1gbit\" }`";
            return wrong("an exception that holds everywhere is none", fix);
        }
        match (except.skip, except.set.is_empty()) {
            (false, true) => wrong(
                "nothing is different here",
                "give `set = { … }`, or `skip = true` for what is not run",
            ),
            (true, false) => wrong("what is not run needs no words", "remove `skip` or `set`"),
            (skip, _) => Ok(Except {
                only: names.only(&except.only)?,
                puts: context.puts(&except.set)?,
                skip,
            }),
        }
    };
    written.except.iter().map(one).collect()
}

/// Makes the scenario of every cell once, and looks whether every measure is one of its runs, where
/// it is shown.
fn cells(context: &Context, paper: &Paper, written: &File) -> Result<(), Problem> {
    let figures = paper
        .figures
        .iter()
        .zip(&written.figure)
        .flat_map(|(figure, at)| {
            let at = at.get_ref();
            std::iter::once(&at.value)
                .chain(&at.also)
                .map(|value| (&figure.meant, value))
        });
    let tables = paper.tables.iter().zip(&written.table);
    let columns = tables.flat_map(|(table, at)| {
        at.get_ref()
            .columns
            .iter()
            .map(|c| (&table.meant, &c.value))
    });
    let charts = paper.charts.iter().zip(&written.chart);
    let lines =
        charts.filter_map(|(chart, at)| Some((&chart.pictures, at.get_ref().value.as_ref()?)));
    let values: Vec<(&Meant, &Text)> = figures.chain(columns).chain(lines).collect();
    for quick in [false, true] {
        let points = paper.points(quick, |on| Some(&on) == paper.on.first());
        if points.is_empty() {
            return Err(context.problem(
                &written.name,
                "nothing is run: every cell is skipped",
                "let an `[[except]]` with `skip` hold for fewer of them",
            ));
        }
        for point in points {
            let scenario = paper.scenario(&point, quick, None)?;
            for (_, value) in values.iter().filter(|(meant, _)| meant.allows(&point)) {
                if let Some((what, fix)) = context.measure(value)?.unfit(&scenario) {
                    return Err(context.problem(value, what, fix));
                }
            }
        }
    }
    Ok(())
}
