//! Reader: parses parentheses and atoms into forms and drops comments, without recursion.
//!
//! The forms are in one flat list in source order; each has the index of the next form on its own
//! level. A whole program thus takes one allocation, and the depth is bounded here, so that all
//! later passes may recurse. The reader is written by hand because the grammar is this small, and
//! because a program compiles in about 2 µs this way.

use crate::diagnostics::{DiagnosticCode, Problem, Problems, Span};

/// Maximum nesting depth. Published programs stay below 10, and no program within the instruction
/// limit needs 256; without a limit a hostile text could exhaust the stack.
const NESTING_DEPTH_MAX: usize = 256;

/// Maximum source length, bytes: far above any program that fits a datapath, small enough to refuse
/// a wrong file at once.
pub(crate) const SOURCE_BYTES_MAX: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// `( … )`, followed by its children.
    List,
    /// Name, number or `+infinity`.
    Word,
    /// Operator made of signs, such as `:=`.
    Sign,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub kind: TokenKind,
    pub span: Span,
    /// Index of the form after this one and all its children.
    pub next_sibling: u32,
}

/// Forms of a whole text.
pub(crate) struct Forms<'s> {
    pub source: &'s str,
    list: Vec<Form>,
}

impl<'s> Forms<'s> {
    /// Reads all of `source`; errors in parentheses or characters go to `problems`.
    pub fn read(source: &'s str, problems: &mut Problems) -> Forms<'s> {
        let mut forms = Forms {
            source,
            list: Vec::with_capacity(source.len() / 4 + 8),
        };
        if source.len() > SOURCE_BYTES_MAX {
            problems.push(Problem::new(
                DiagnosticCode::Limit,
                Span::new(0, 0),
                "the program is too long",
                "the limit is 1 MiB",
            ));
            return forms;
        }
        forms.fill(problems);
        forms
    }

    fn fill(&mut self, problems: &mut Problems) {
        let bytes = self.source.as_bytes();
        let mut open: Vec<u32> = Vec::with_capacity(16);
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let class = BYTE_CLASSES[usize::from(byte)];
            let start = at;
            at += 1;
            let kind = match class {
                CharClass::Space => continue,
                CharClass::Comment => {
                    while bytes.get(at).is_some_and(|&b| b != b'\n') {
                        at += 1;
                    }
                    continue;
                }
                CharClass::Open => {
                    if open.len() == NESTING_DEPTH_MAX {
                        let what = format!("nested more than {NESTING_DEPTH_MAX} levels deep");
                        problems.push(
                            Problem::new(
                                DiagnosticCode::Limit,
                                Span::new(start, at),
                                what,
                                "one level too many",
                            )
                            .with_help("name intermediate values with (:= name …)"),
                        );
                        break;
                    }
                    open.push(self.list.len() as u32);
                    TokenKind::List
                }
                CharClass::Close => {
                    match open.pop() {
                        Some(list) => self.close(list, at),
                        None => self.surplus(Span::new(start, at), problems),
                    }
                    continue;
                }
                CharClass::Word => {
                    at = word_end(bytes, start);
                    TokenKind::Word
                }
                CharClass::Sign => {
                    let (end, kind) = sign_end(bytes, start);
                    at = end;
                    kind
                }
                CharClass::Other => {
                    let end = start
                        + self.source[start..]
                            .chars()
                            .next()
                            .map_or(1, char::len_utf8);
                    at = end;
                    problems.push(
                        Problem::new(
                            DiagnosticCode::Syntax,
                            Span::new(start, end),
                            "unexpected character",
                            "not valid here",
                        )
                        .with_help("names consist of A-Z a-z 0-9 . and _; a comment starts with #"),
                    );
                    continue;
                }
            };
            let next = self.list.len() as u32 + 1;
            self.list.push(Form {
                kind,
                span: Span::new(start, at),
                next_sibling: next,
            });
        }
        self.report_unclosed(&open, problems);
    }

    #[cold]
    fn surplus(&self, span: Span, problems: &mut Problems) {
        let problem = Problem::new(DiagnosticCode::Syntax, span, "unmatched `)`", "no open `(`");
        problems.push(problem.with_help("remove it, or look for an extra `)` before it"));
    }

    fn close(&mut self, list: u32, end: usize) {
        let next = self.list.len() as u32;
        let form = &mut self.list[list as usize];
        form.span.end = end as u32;
        form.next_sibling = next;
    }

    /// Reports the outermost open parenthesis, where a person starts to look, rather than the
    /// innermost, where the parser stops.
    fn report_unclosed(&mut self, open: &[u32], problems: &mut Problems) {
        let end = self.source.len();
        for &list in open.iter().rev() {
            self.close(list, end);
        }
        if let (Some(&outer), true) = (open.first(), problems.is_empty()) {
            let start = self.list[outer as usize].span.start as usize;
            let missing = open.len();
            let what = format!("{missing} `)` missing at the end of the program");
            let mut problem = Problem::new(
                DiagnosticCode::Syntax,
                Span::new(start, start + 1),
                what,
                "this `(` is not closed",
            )
            .with_help(format!("close it with {}", ")".repeat(missing.min(8))));
            if let Some(clause) = self.nested_clause(outer) {
                problem = problem.with_secondary_label(clause, "is it missing before this clause?");
            }
            problems.push(problem);
        }
    }

    /// Returns the first `(when` inside the list, where none is allowed.
    fn nested_clause(&self, list: u32) -> Option<Span> {
        let inside = list as usize + 2..self.list.len();
        let when = |&at: &usize| {
            self.text(self.list[at]) == "when" && self.list[at - 1].kind == TokenKind::List
        };
        inside.into_iter().find(when).map(|at| Span {
            start: self.list[at - 1].span.start,
            end: self.list[at].span.end,
        })
    }

    pub fn get(&self, index: u32) -> Form {
        self.list[index as usize]
    }

    /// All forms with their indices, in source order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Form)> {
        (0..).zip(self.list.iter().copied())
    }

    pub fn at(&self, index: u32) -> Option<Form> {
        self.list.get(index as usize).copied()
    }

    pub fn text(&self, form: Form) -> &'s str {
        &self.source[form.span.start as usize..form.span.end as usize]
    }

    /// Forms on the outermost level.
    pub fn top_level(&self) -> Children<'_> {
        Children {
            list: &self.list,
            at: 0,
            end: self.list.len() as u32,
        }
    }

    /// Forms inside a list.
    pub fn children(&self, list: u32) -> Children<'_> {
        let form = self.get(list);
        let at = if form.kind == TokenKind::List {
            list + 1
        } else {
            form.next_sibling
        };
        Children {
            list: &self.list,
            at,
            end: form.next_sibling,
        }
    }
}

/// Indices of the forms on one level.
#[derive(Clone)]
pub(crate) struct Children<'f> {
    list: &'f [Form],
    at: u32,
    end: u32,
}

impl Iterator for Children<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.at >= self.end {
            return None;
        }
        let index = self.at;
        self.at = self.list[index as usize].next_sibling;
        Some(index)
    }
}

#[derive(Clone, Copy)]
enum CharClass {
    Space,
    Comment,
    Open,
    Close,
    Word,
    Sign,
    Other,
}

const BYTE_CLASSES: [CharClass; 256] = {
    let mut table = [CharClass::Other; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            b' ' | b'\t' | b'\r' | b'\n' => CharClass::Space,
            b'#' => CharClass::Comment,
            b'(' => CharClass::Open,
            b')' => CharClass::Close,
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' => CharClass::Word,
            b'+' | b'-' | b'*' | b'/' | b'<' | b'>' | b'=' | b'!' | b'&' | b'|' | b':' | b'%'
            | b'^' | b'~' => CharClass::Sign,
            _ => CharClass::Other,
        };
        byte += 1;
    }
    table
};

fn is_word(byte: Option<&u8>) -> bool {
    byte.is_some_and(|&b| matches!(BYTE_CLASSES[usize::from(b)], CharClass::Word))
}

/// End of a word; a number may continue as a ratio, `7/8`.
fn word_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while is_word(bytes.get(at)) {
        at += 1;
    }
    let digits = |range: core::ops::Range<usize>| {
        bytes
            .get(range)
            .is_some_and(|d| d.iter().all(u8::is_ascii_digit))
    };
    if bytes.get(at) == Some(&b'/')
        && bytes.get(at + 1).is_some_and(u8::is_ascii_digit)
        && digits(start..at)
    {
        at += 1;
        while is_word(bytes.get(at)) {
            at += 1;
        }
    }
    at
}

/// End of a sign. It ends where a name may begin: CCP reads `(+a b)` as `(+ a b)`.
fn sign_end(bytes: &[u8], start: usize) -> (usize, TokenKind) {
    let rest = &bytes[start..];
    let longer = |text: &[u8]| rest.starts_with(text) && !is_word(rest.get(text.len()));
    if longer(b"+infinity") {
        return (start + 9, TokenKind::Word);
    }
    if longer(b"!if") {
        return (start + 3, TokenKind::Sign);
    }
    let mut at = start + 1;
    while bytes
        .get(at)
        .is_some_and(|&b| matches!(BYTE_CLASSES[usize::from(b)], CharClass::Sign))
    {
        at += 1;
    }
    (at, TokenKind::Sign)
}
