//! The words of a scenario before they are one text: some replace others, and each knows where it
//! stands.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use ccplane_lab::scenario::{Problem, SourceText};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A text in which words stand.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub file: String,
    pub text: String,
}

impl Origin {
    /// The same for problems.
    pub fn source(&self) -> SourceText<'_> {
        SourceText {
            file: &self.file,
            text: &self.text,
        }
    }
}

/// Where something stands: in which of the origins, and there.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub origin: usize,
    pub span: Range<usize>,
}

/// A table's words.
pub(super) type Words = BTreeMap<String, Word>;

/// What stands at a name.
#[derive(Clone, Debug)]
pub(super) enum Word {
    /// A value as it is written, an empty table included.
    Value(String, Place),
    Table(Words),
    /// `[[workload]]`.
    List(Vec<Words>),
}

impl Word {
    /// A value's word; `text` begins at `offset` of its origin.
    pub fn read(value: &Spanned<DeValue<'_>>, text: &str, offset: usize, origin: usize) -> Word {
        let table = |table: &DeTable<'_>| read(table, text, offset, origin);
        match value.get_ref() {
            DeValue::Table(inner) if inner.iter().next().is_some() => Word::Table(table(inner)),
            DeValue::Array(all)
                if !all.is_empty() && all.iter().all(|one| one.get_ref().is_table()) =>
            {
                Word::List(
                    all.iter()
                        .filter_map(|one| one.get_ref().as_table())
                        .map(table)
                        .collect(),
                )
            }
            other => {
                let span = value.span();
                let written = match other {
                    DeValue::Table(_) => "{}",
                    _ => text.get(span.clone()).unwrap_or_default(),
                };
                let span = span.start + offset..span.end + offset;
                Word::Value(written.to_owned(), Place { origin, span })
            }
        }
    }
}

/// The words of a table.
pub(super) fn read(table: &DeTable<'_>, text: &str, offset: usize, origin: usize) -> Words {
    let word = |(key, value): (&Spanned<_>, _)| -> (String, Word) {
        let key: &std::borrow::Cow<'_, str> = key.get_ref();
        (
            key.clone().into_owned(),
            Word::read(value, text, offset, origin),
        )
    };
    table.iter().map(word).collect()
}

/// Puts a word at a path such as `topology.incast.senders`; of a list, an element is named by its
/// number from 1 or its `name`. What is wrong with the path otherwise.
pub(super) fn put(words: &mut Words, path: &str, word: Word) -> Result<(), String> {
    let (first, rest) = match path.split_once('.') {
        None => {
            words.insert(path.to_owned(), word);
            return Ok(());
        }
        Some(split) => split,
    };
    let inner = words
        .entry(first.to_owned())
        .or_insert_with(|| Word::Table(Words::new()));
    if matches!(inner, Word::Value(text, _) if text == "{}") {
        *inner = Word::Table(Words::new());
    }
    match inner {
        Word::Table(table) => put(table, rest, word),
        Word::Value(text, _) => Err(format!(
            "`{first}` is {text}, which has no words of its own"
        )),
        Word::List(all) => {
            let (which, rest) = rest.split_once('.').unwrap_or((rest, ""));
            let number = which.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
            let called = |words: &Words| matches!(words.get("name"), Some(Word::Value(text, _)) if text.trim_matches('"') == which);
            let at = number.or_else(|| all.iter().position(called));
            match at.and_then(|at| all.get_mut(at)) {
                Some(words) if !rest.is_empty() => put(words, rest, word),
                Some(_) => Err(format!("`{path}` is a whole `{first}`, not a word of it")),
                None => Err(format!(
                    "there is no `{first}` of this number or name: `{which}`"
                )),
            }
        }
    }
}

/// A recorded link in the place of every generated one.
pub(super) fn recorded(words: &mut Words, trace: &Path, at: &Place) {
    if words.remove("cellular").is_some() {
        let file = Word::Value(format!("{:?}", trace.display().to_string()), at.clone());
        words.insert("trace".to_owned(), file);
    }
    for word in words.values_mut() {
        match word {
            Word::Value(..) => {}
            Word::Table(inner) => recorded(inner, trace, at),
            Word::List(all) => all.iter_mut().for_each(|inner| recorded(inner, trace, at)),
        }
    }
}

/// The words of one over those of another: tables are merged, everything else is replaced.
pub(super) fn over(below: &mut Words, above: &Words) {
    for (key, word) in above {
        match (below.get_mut(key), word) {
            (Some(Word::Table(below)), Word::Table(above)) => over(below, above),
            _ => drop(below.insert(key.clone(), word.clone())),
        }
    }
}

/// A scenario's text, and where its parts come from.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub text: String,
    places: Vec<(Range<usize>, Place)>,
}

impl Told {
    /// The text of these words.
    pub fn of(words: &Words) -> Told {
        let mut told = Told::default();
        told.values("", words);
        told.lists("", words);
        told
    }

    fn values(&mut self, before: &str, words: &Words) {
        for (key, word) in words {
            let key = format!("{before}{}", quoted(key));
            match word {
                Word::Value(written, place) => {
                    let begin = self.text.len();
                    self.text += &format!("{key} = {written}\n");
                    self.places.push((begin..self.text.len(), place.clone()));
                }
                Word::Table(table) => self.values(&format!("{key}."), table),
                Word::List(_) => {}
            }
        }
    }

    fn lists(&mut self, before: &str, words: &Words) {
        for (key, word) in words {
            let path = format!("{before}{}", quoted(key));
            match word {
                Word::Value(..) => {}
                Word::Table(table) => self.lists(&format!("{path}."), table),
                Word::List(all) => {
                    for one in all {
                        self.text += &format!("[[{path}]]\n");
                        self.values("", one);
                        self.lists(&format!("{path}."), one);
                    }
                }
            }
        }
    }

    /// What is wrong with the text, told of the file in which the wrong word stands; `whole` is
    /// marked where none is.
    pub fn problem(&self, problem: &Problem, origins: &[Origin], whole: &Place) -> Problem {
        let at = problem.span();
        let found = self
            .places
            .iter()
            .find(|(span, _)| span.start <= at.start && at.start < span.end);
        let place = found
            .filter(|_| !at.is_empty())
            .map_or(whole, |(_, place)| place);
        let source = origins
            .get(place.origin)
            .map(Origin::source)
            .unwrap_or(SourceText { file: "", text: "" });
        source.problem(
            place.span.clone(),
            problem.message(),
            problem.label(),
            problem.fix().unwrap_or_default(),
        )
    }
}

fn quoted(key: &str) -> String {
    if !key.is_empty()
        && key
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    {
        key.to_owned()
    } else {
        format!("{key:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Words {
        read(DeTable::parse(text).unwrap().get_ref(), text, 0, 0)
    }

    #[test]
    fn words_are_replaced_and_told_as_one_text() {
        let mut all = words(
            "duration = \"1s\"\n[topology.incast]\nsenders = 3\n[[workload]]\nbulk = {}\n[[workload]]\nname = \"web\"\n",
        );
        let value = |text: &str| {
            Word::Value(
                text.to_owned(),
                Place {
                    origin: 0,
                    span: 0..0,
                },
            )
        };
        put(&mut all, "topology.incast.senders", value("10")).unwrap();
        put(&mut all, "workload.1.bulk.spread", value("\"1ms\"")).unwrap();
        put(&mut all, "workload.web.start", value("\"2s\"")).unwrap();
        put(&mut all, "transport.ecn", value("true")).unwrap();
        assert!(
            put(&mut all, "duration.x", value("1")).is_err()
                && put(&mut all, "workload.3.x", value("1")).is_err()
        );
        let told = Told::of(&all).text;
        assert_eq!(
            told,
            "duration = \"1s\"\ntopology.incast.senders = 10\ntransport.ecn = true\n[[workload]]\nbulk.spread = \"1ms\"\n\
             [[workload]]\nname = \"web\"\nstart = \"2s\"\n"
        );
        assert_eq!(Told::of(&words(&told)).text, told, "it is what it says");
    }

    #[test]
    fn a_recorded_link_takes_the_place_of_generated_ones() {
        let text = "topology.dumbbell = { rtt = \"40ms\", cellular = { mean = \"5mbit\" } }\n\
                    link = [{ from = \"a\", cellular = {} }, { from = \"b\", rate = \"1mbit\" }]\n";
        let mut all = words(text);
        recorded(
            &mut all,
            Path::new("/tmp/a b.trace"),
            &Place {
                origin: 0,
                span: 0..0,
            },
        );
        assert_eq!(
            Told::of(&all).text,
            "topology.dumbbell.rtt = \"40ms\"\ntopology.dumbbell.trace = \"/tmp/a b.trace\"\n[[link]]\nfrom = \"a\"\n\
             trace = \"/tmp/a b.trace\"\n[[link]]\nfrom = \"b\"\nrate = \"1mbit\"\n"
        );
    }
}
