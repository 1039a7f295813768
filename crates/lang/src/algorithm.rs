//! Standalone algorithm in one program file: a header with its name, parameters and required
//! capabilities, and the program that controls the flow without an agent.
//!
//! ```
//! let text = "
//!     (algorithm mine
//!         (about \"a fifth less at a loss\")
//!         (needs cwnd recovery)
//!         (param back 0.8 0.1 0.95)
//!         (init Cwnd (* 10 Flow.mss)))
//!     (def)
//!     (when (> Ack.lost_pkts_sample 0) (:= Ssthresh (* Cwnd back)))
//!     (when true (:= Cwnd (+ Cwnd (/ (* Flow.mss Flow.mss) Cwnd))))";
//! let mine = ccplane_lang::ProgramFile::read(text)?;
//! assert_eq!((mine.name(), mine.parameters()[0].name.as_str()), ("mine", "back"));
//! let program = mine.program(&[("back", "0.7")]).expect("it is between 0.1 and 0.95");
//! assert!(program.contains("(const back 0.7)"));
//! # Ok::<(), ccplane_lang::Diagnostics>(())
//! ```

mod counted;

use ccplane_datapath::Capabilities;

pub use counted::{CountedClause, InstrumentedProgram};

use crate::diagnostics::{DiagnosticCode, Diagnostics, Problem, Problems, Span};
use crate::literal::{self, Literal};
use crate::reader::{Form, Forms, TokenKind};
use crate::tree::Ratio;
use crate::{Program, ProgramLimits, compile};

/// Maximum length of a name: with the prefix `ccp_` it is the name of a kernel congestion control,
/// limited to 15 characters.
const NAME_BYTES_MAX: usize = 11;

/// Variable that records whether the header's `(init …)` has run. It cannot collide with a name in
/// a text, as declared names contain no dot except those of reports and signals.
const INIT_DONE_VARIABLE: &str = "ccplane.begun";

/// Algorithm of one program file, which has compiled with its defaults.
#[derive(Clone, Debug)]
pub struct ProgramFile {
    source: String,
    name: String,
    description: String,
    needs: Capabilities,
    parameters: Vec<ProgramParameter>,
    /// Variables that are set once when a flow starts, and their values as written.
    init: Vec<(String, Span)>,
    header: Span,
    /// Position for the constants: after the word `def`.
    constants_offset: u32,
    /// Position for `init`: after the whole definition list.
    init_offset: u32,
}

/// Parameter of a program file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramParameter {
    /// Name of the parameter.
    pub name: String,
    /// Default value, as written.
    pub default: String,
    /// Minimum value, as written.
    pub min: String,
    /// Maximum value, as written.
    pub max: String,
    span: Span,
}

/// Error: a value that a parameter cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid value `{value}` for `{name}`: {expected}")]
pub struct BadValue {
    /// Name of the parameter.
    pub name: String,
    /// Given value.
    pub value: String,
    /// Expected values.
    pub expected: String,
}

impl ProgramFile {
    /// Parses a program file, and compiles it with the defaults of its parameters.
    pub fn read(source: &str) -> Result<ProgramFile, Diagnostics> {
        let mut problems = Problems::default();
        let masked = mask_strings(source, &mut problems);
        let forms = Forms::read(&masked, &mut problems);
        if !problems.is_empty() {
            return Err(problems.into_diagnostics(source));
        }
        let mut reader = AlgorithmReader {
            source,
            forms: &forms,
            problems: &mut problems,
        };
        let Some(read) = reader.text() else {
            return Err(problems.into_diagnostics(source));
        };
        if !problems.is_empty() {
            return Err(problems.into_diagnostics(source));
        }
        let program = read.compiled()?;
        let sets = program.code().required_capabilities();
        let steers = Capabilities::CWND.missing_from(sets).is_empty()
            || Capabilities::PACING.missing_from(sets).is_empty();
        if !steers && read.init.is_empty() {
            let what = "this algorithm never sets a window or a rate";
            problems.push(
                Problem::new(
                    DiagnosticCode::Value,
                    read.header,
                    what,
                    "no statement sets one",
                )
                .with_help("set one, for example (:= Cwnd (+ Cwnd Ack.bytes_acked))"),
            );
            return Err(problems.into_diagnostics(source));
        }
        Ok(read)
    }

    /// Returns true if a text starts with a header, valid or not; without one it may be a program
    /// for an agent.
    pub fn has_header(source: &str) -> bool {
        let lines = source.lines().map(str::trim_start);
        let first = lines
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .take(1);
        let mut opened = first.filter_map(|line| line.strip_prefix('('));
        opened.any(|line| line.trim_start().starts_with("algorithm"))
    }

    /// Name of the algorithm.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Description; empty if there is none.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Declared capabilities.
    pub fn needs(&self) -> Capabilities {
        self.needs
    }

    /// Parameters, in source order.
    pub fn parameters(&self) -> &[ProgramParameter] {
        &self.parameters
    }

    /// Returns true if it sets variables when a flow starts. Its program then has the variable
    /// `ccplane.begun`, which records that this is done.
    pub fn has_init(&self) -> bool {
        !self.init.is_empty()
    }

    /// Variable that records whether the initial values have been set.
    pub const INIT_DONE_VARIABLE: &str = INIT_DONE_VARIABLE;

    /// Returns the program's source with these parameter values, and the defaults of the others.
    pub fn program(&self, overrides: &[(&str, &str)]) -> Result<String, BadValue> {
        let mut values = Vec::with_capacity(self.parameters.len());
        for parameter in &self.parameters {
            let value = overrides
                .iter()
                .rev()
                .find(|(name, _)| *name == parameter.name);
            values.push(match value {
                Some((_, value)) => parameter.check(value)?,
                None => &parameter.default,
            });
        }
        Ok(self.splice(&values).text)
    }

    /// Returns the warnings about the program, at their positions in the original text. The warning
    /// about missing reports is dropped, as there is no agent to receive them.
    pub fn warnings(&self) -> Option<Diagnostics> {
        let woven = self.splice(&self.defaults());
        let found = compile(&woven.text, &ProgramLimits::default())
            .ok()?
            .warnings()?;
        let meant = |problem: &&Problem| problem.code() != DiagnosticCode::NeverReports;
        self.to_original_positions(&woven, found.problems().iter().filter(meant))
    }

    /// Compiles the program with its defaults. Problems are reported at their position in the
    /// original text.
    fn compiled(&self) -> Result<Program, Diagnostics> {
        let woven = self.splice(&self.defaults());
        compile(&woven.text, &ProgramLimits::default()).map_err(|found| {
            self.to_original_positions(&woven, found.problems().iter())
                .unwrap_or(found)
        })
    }

    fn defaults(&self) -> Vec<&str> {
        self.parameters
            .iter()
            .map(|parameter| parameter.default.as_str())
            .collect()
    }

    /// Moves problems of the program to the original text; `None` if there are none.
    fn to_original_positions<'p>(
        &self,
        woven: &SplicedSource,
        found: impl Iterator<Item = &'p Problem>,
    ) -> Option<Diagnostics> {
        let mut problems = Problems::default();
        for problem in found {
            problems.push(problem.clone().map_span(|span| woven.to_original(span)));
        }
        (!problems.is_empty()).then(|| problems.into_diagnostics(&self.source))
    }

    /// Replaces the header by spaces, so that lines and columns stay the same, and inserts its
    /// contents where a program declares them.
    fn splice(&self, values: &[&str]) -> SplicedSource {
        let (constants_at, init_at) = (self.constants_offset as usize, self.init_offset as usize);
        let mut woven = SplicedSource {
            text: String::with_capacity(self.source.len() + 256),
            parts: Vec::new(),
        };
        let header = self.header.start as usize..self.header.end as usize;
        woven.text += &self.source[..header.start];
        woven.text.extend(
            self.source[header.clone()]
                .bytes()
                .map(|byte| if byte == b'\n' { '\n' } else { ' ' }),
        );
        woven.text += &self.source[header.end..constants_at];
        for (parameter, value) in self.parameters.iter().zip(values) {
            woven.add(
                &format!(" (const {} {value})", parameter.name),
                parameter.span,
            );
        }
        if self.has_init() {
            woven.add(&format!(" ({INIT_DONE_VARIABLE} false)"), self.header);
        }
        woven.text += &self.source[constants_at..init_at];
        if self.has_init() {
            woven.add(
                &format!(" (when (! {INIT_DONE_VARIABLE}) (:= {INIT_DONE_VARIABLE} true)"),
                self.header,
            );
            for (variable, value) in &self.init {
                let text = &self.source[value.start as usize..value.end as usize];
                // A comment at its end would hide the inserted text.
                woven.add(&format!(" (:= {variable} {text}\n)"), *value);
            }
            woven.add(" (fallthrough))", self.header);
        }
        woven.text += &self.source[init_at..];
        woven
    }
}

/// Text with inserted parts that stand for parts of the original.
struct SplicedSource {
    text: String,
    /// Position of an inserted part, and of the original part.
    parts: Vec<(Span, Span)>,
}

impl SplicedSource {
    fn add(&mut self, part: &str, stands_for: Span) {
        let start = self.text.len();
        self.text += part;
        self.parts
            .push((Span::new(start, self.text.len()), stands_for));
    }

    /// Maps a position to the original.
    fn to_original(&self, span: Span) -> Span {
        let mut before = 0;
        for (part, stands_for) in &self.parts {
            if span.start >= part.end {
                before += part.end - part.start;
            } else if span.end > part.start {
                return *stands_for;
            }
        }
        Span {
            start: span.start - before,
            end: span.end - before,
        }
    }
}

impl ProgramParameter {
    fn check<'v>(&self, value: &'v str) -> Result<&'v str, BadValue> {
        let bad = |expected: String| BadValue {
            name: self.name.clone(),
            value: value.to_owned(),
            expected,
        };
        let range = format!("must be between {} and {}", self.min, self.max);
        let given = magnitude(value).map_err(|why| bad(format!("{why}; {range}")))?;
        let same = literal::measure(value) == literal::measure(&self.default);
        let inside = [&self.min, &self.max].map(|bound| magnitude(bound));
        match inside {
            [Ok(least), Ok(most)] if same && at_most(least, given) && at_most(given, most) => {
                Ok(value)
            }
            _ => Err(bad(range)),
        }
    }
}

/// Parses a literal as a fraction.
fn magnitude(word: &str) -> Result<(u128, u128), &'static str> {
    match literal::parse(word) {
        Some(Ok(Literal::Num(n))) => Ok((n.into(), 1)),
        Some(Ok(Literal::Ratio(Ratio { num, den }))) => Ok((num.into(), den.into())),
        Some(Err(why)) => Err(why.what),
        Some(Ok(Literal::Bool(_))) | None => Err("not a number"),
    }
}

fn at_most((a, under_a): (u128, u128), (b, under_b): (u128, u128)) -> bool {
    // 64 bits times 32 bits.
    a * under_b <= b * under_a
}

/// Replaces the quoted strings, which occur only in a header, by words: `"it is"` becomes
/// `_it_is_`.
fn mask_strings(source: &str, problems: &mut Problems) -> String {
    let mut out = String::with_capacity(source.len());
    let (mut quoted, mut comment) = (None, false);
    for (at, c) in source.char_indices() {
        match c {
            '\n' => {
                comment = false;
                out.push('\n');
            }
            _ if comment => out.push(c),
            '#' if quoted.is_none() => {
                comment = true;
                out.push('#');
            }
            '"' => {
                quoted = match quoted {
                    None => Some(at),
                    Some(_) => None,
                };
                out.push('_');
            }
            _ if quoted.is_some() => out.extend(std::iter::repeat_n('_', c.len_utf8())),
            _ => out.push(c),
        }
    }
    if let Some(at) = quoted {
        let what = "unterminated string";
        problems.push(
            Problem::new(
                DiagnosticCode::Syntax,
                Span::new(at, at + 1),
                what,
                "starts here",
            )
            .with_help("close it with \""),
        );
    }
    out
}

struct AlgorithmReader<'a, 's> {
    source: &'s str,
    forms: &'a Forms<'a>,
    problems: &'a mut Problems,
}

impl AlgorithmReader<'_, '_> {
    fn text(&mut self) -> Option<ProgramFile> {
        let mut top = self.forms.top_level();
        let head = |at: u32| {
            self.forms
                .children(at)
                .next()
                .map(|word| self.forms.get(word))
        };
        let header = top
            .next()
            .filter(|at| head(*at).is_some_and(|word| self.forms.text(word) == "algorithm"));
        let Some(header) = header else {
            let first = self.forms.at(0).map_or(Span::new(0, 0), |form| form.span);
            let what = "an algorithm file must start with a header";
            let first = Span {
                end: first.start + u32::from(first.end > first.start),
                ..first
            };
            self.problems.push(
                Problem::new(DiagnosticCode::Syntax, first, what, "here")
                    .with_help("write (algorithm NAME (needs cwnd)) before the program"),
            );
            return None;
        };
        let span = self.forms.get(header).span;
        let def = top
            .next()
            .filter(|at| head(*at).is_some_and(|word| self.forms.text(word) == "def"));
        let Some(def) = def else {
            let what = "the header must be followed by the program, which starts with (def …)";
            self.problems.push(
                Problem::new(DiagnosticCode::Syntax, span, what, "no (def …) follows")
                    .with_help("write (def) if it has no variables"),
            );
            return None;
        };
        let word = head(def)?;
        let mut read = ProgramFile {
            source: self.source.to_owned(),
            name: String::new(),
            description: String::new(),
            needs: Capabilities::default(),
            parameters: Vec::new(),
            init: Vec::new(),
            header: span,
            constants_offset: word.span.end,
            init_offset: self.forms.get(def).span.end,
        };
        let mut parts = self.forms.children(header).skip(1);
        match parts.next().map(|name| self.forms.get(name)) {
            Some(name) if self.is_name(name) => self.forms.text(name).clone_into(&mut read.name),
            other => {
                let at = other.map_or(span, |form| form.span);
                let help = format!(
                    "a name has at most {NAME_BYTES_MAX} characters of a-z, 0-9 and _, as in \
                     (algorithm mine …)"
                );
                self.problems.push(
                    Problem::new(
                        DiagnosticCode::Name,
                        at,
                        "the algorithm has no valid name",
                        "here",
                    )
                    .with_help(help),
                );
            }
        }
        for part in parts {
            self.read_item(part, &mut read);
        }
        Some(read)
    }

    fn is_name(&self, form: Form) -> bool {
        let text = self.forms.text(form);
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        form.kind == TokenKind::Word
            && text.len() <= NAME_BYTES_MAX
            && text.chars().all(allowed)
            && text.starts_with(|c: char| c.is_ascii_lowercase())
    }

    fn read_item(&mut self, at: u32, read: &mut ProgramFile) {
        let form = self.forms.get(at);
        let words: Vec<Form> = self
            .forms
            .children(at)
            .map(|word| self.forms.get(word))
            .collect();
        let texts: Vec<&str> = words.iter().map(|word| self.forms.text(*word)).collect();
        let span = form.span;
        match texts.as_slice() {
            ["about", text] if text.starts_with('_') && text.len() >= 2 => {
                let inside = words[1].span.start as usize + 1..words[1].span.end as usize - 1;
                self.source[inside].clone_into(&mut read.description);
            }
            ["needs", names @ ..] if !names.is_empty() => {
                for (name, word) in names.iter().zip(&words[1..]) {
                    match Capabilities::from_keyword(name) {
                        Some(one) => read.needs = read.needs.union(one),
                        None => {
                            let known: Vec<&str> = Capabilities::keywords().collect();
                            let help = format!("available: {}", known.join(", "));
                            self.problems.push(
                                Problem::new(
                                    DiagnosticCode::UnknownName,
                                    word.span,
                                    format!("unknown capability `{name}`"),
                                    "unknown",
                                )
                                .with_help(help),
                            );
                        }
                    }
                }
            }
            ["param", name, default, least, most] => {
                let parameter = ProgramParameter {
                    name: (*name).to_owned(),
                    default: (*default).to_owned(),
                    min: (*least).to_owned(),
                    max: (*most).to_owned(),
                    span,
                };
                if let Err(bad) = parameter.check(default) {
                    self.problems.push(
                        Problem::new(
                            DiagnosticCode::Value,
                            words[2].span,
                            format!("the default of `{name}` is out of range"),
                            "here",
                        )
                        .with_help(bad.expected),
                    );
                }
                if read.parameters.iter().any(|other| other.name == *name) {
                    self.problems.push(Problem::new(
                        DiagnosticCode::Name,
                        words[1].span,
                        format!("duplicate parameter `{name}`"),
                        "here",
                    ));
                }
                read.parameters.push(parameter);
            }
            ["init", variable @ ("Cwnd" | "Rate" | "Ssthresh"), _, ..] if words.len() >= 3 => {
                let value = self.forms.children(at).nth(2);
                let value = value.map_or(span, |value| self.forms.get(value).span);
                if self.forms.children(at).count() == 3 {
                    read.init.push(((*variable).to_owned(), value));
                } else {
                    self.problems.push(Problem::new(
                        DiagnosticCode::Syntax,
                        span,
                        "expected one variable and one value",
                        "too many operands",
                    ));
                }
            }
            _ => {
                let help = "a header can contain (about \"…\"), (needs cwnd …), (param NAME \
                    DEFAULT MIN MAX) and (init Cwnd VALUE)";
                self.problems.push(
                    Problem::new(
                        DiagnosticCode::Syntax,
                        span,
                        "unknown part of the header",
                        "here",
                    )
                    .with_help(help),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
