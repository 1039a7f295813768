//! The names of a program: its variables and constants, from `(def …)` and from binds.

use ccplane_datapath::{Var, VarKind, reg};

use crate::Limits;
use crate::check::not_whole;
use crate::diagnostics::{Code, Problem, Problems, Span};
use crate::literal::{self, Literal};
use crate::reader::{Form, Forms, Kind};
use crate::tree::{BUILTINS, Symbol, Type, builtin};

/// Most constants: far more than a program that fits can use. Names are searched one by one.
const MAX_CONSTS: usize = 256;

/// What a name stands for.
#[derive(Clone, Copy)]
pub(crate) enum Meaning {
    /// Readable; `writable` unless it is a signal.
    Reg {
        reg: u8,
        ty: Type,
        writable: bool,
    },
    Const(Literal),
}

/// Set where a problem was already noted and the caller only has to give up on this form.
#[derive(Debug)]
pub(crate) struct Noted;

pub(crate) struct Scope<'s> {
    source: &'s str,
    max_vars: usize,
    pub symbols: Vec<Symbol>,
    pub vars: Vec<Var>,
    consts: Vec<(Span, Literal)>,
}

/// A declaration as read, before registers are given out.
struct Declared {
    symbol: Symbol,
    var: Var,
}

impl<'s> Scope<'s> {
    /// Reads `(def …)`.
    pub fn read(forms: &Forms<'s>, def: u32, limits: &Limits, problems: &mut Problems) -> Scope<'s> {
        let mut scope = Scope {
            source: forms.source,
            max_vars: limits.max_vars,
            symbols: Vec::new(),
            vars: Vec::new(),
            consts: Vec::new(),
        };
        let mut declared: Vec<Declared> = Vec::with_capacity(16);
        let mut block: Option<Form> = None;
        for child in forms.children(def).skip(1) {
            let form = forms.get(child);
            let mut parts = forms.children(child);
            let head = parts.next().map_or("", |head| forms.text(forms.get(head)));
            match head {
                "Report" if parts.clone().all(|part| forms.get(part).kind == Kind::List) => {
                    if let Some(first) = block.replace(form) {
                        problems.push(
                            Problem::new(
                                Code::Syntax,
                                form.span,
                                "more than one (Report …) block",
                                "the second one",
                            )
                            .also(first.span, "the first one")
                            .help("move its variables into the first"),
                        );
                    }
                    for part in parts {
                        if problems.is_full() || declared.len() > limits.max_vars {
                            break;
                        }
                        declared.extend(scope.declare(forms, part, true, &declared, problems));
                    }
                }
                "const" if parts.clone().count() == 2 => {
                    let _ = scope.constant(forms, child, &declared, problems);
                }
                _ => declared.extend(scope.declare(forms, child, false, &declared, problems)),
            }
            if problems.is_full() {
                break;
            }
            if declared.len() > limits.max_vars || scope.consts.len() > MAX_CONSTS {
                let what = format!("more than the {} variables that the datapath takes", limits.max_vars);
                let what = if scope.consts.len() > MAX_CONSTS {
                    format!("more than {MAX_CONSTS} constants")
                } else {
                    what
                };
                problems.push(Problem::new(Code::Limit, form.span, what, "too many are declared here"));
                break;
            }
        }
        scope.allot(&declared);
        scope
    }

    /// Report variables come first, whatever the order of the text.
    fn allot(&mut self, declared: &[Declared]) {
        self.symbols.reserve(declared.len() + 4);
        self.vars.reserve(declared.len() + 4);
        for kind in [VarKind::Report, VarKind::Control] {
            for one in declared.iter().filter(|one| one.var.kind == kind).take(self.max_vars) {
                let reg = reg::VARS + self.vars.len() as u8;
                self.symbols.push(Symbol { reg, ..one.symbol });
                self.vars.push(one.var);
            }
        }
    }

    /// `([volatile] name literal)`
    fn declare(
        &self,
        forms: &Forms<'s>,
        list: u32,
        in_block: bool,
        before: &[Declared],
        problems: &mut Problems,
    ) -> Option<Declared> {
        let form = forms.get(list);
        let mut parts = forms.children(list).map(|part| forms.get(part));
        let mut name = parts.next();
        let volatile = name.is_some_and(|first| forms.text(first) == "volatile");
        if volatile {
            name = parts.next();
        }
        let (Some(name), Some(init), None) = (name, parts.next(), parts.next()) else {
            if forms.children(list).any(|part| forms.text(forms.get(part)) == "-") {
                let fix = "there are no negative numbers; (diff a b) is a difference that stops at 0";
                problems.push(Problem::new(Code::Value, form.span, "not an initial value", "below zero").help(fix));
                return None;
            }
            problems.push(
                Problem::new(
                    Code::Syntax,
                    form.span,
                    "not a declaration",
                    "expected a name and its initial value",
                )
                .help("write (name 0), (volatile name 0) or, for a constant, (const NAME 10ms)"),
            );
            return None;
        };
        let text = self.declarable(forms, name, problems).ok()?;
        let (report, span) = match text.strip_prefix("Report.") {
            Some(_) if in_block => {
                let fix = "inside (Report …) a name stands without `Report.`";
                problems.push(Problem::new(Code::Name, name.span, "`Report.` twice", "remove the prefix").help(fix));
                return None;
            }
            Some("") => {
                problems.push(Problem::new(
                    Code::Name,
                    name.span,
                    "a report variable without a name",
                    "a name must follow",
                ));
                return None;
            }
            Some(_) => (
                true,
                Span {
                    start: name.span.start + 7,
                    end: name.span.end,
                },
            ),
            None => (in_block, name.span),
        };
        let bare = &self.source[span.start as usize..span.end as usize];
        let twice = before
            .iter()
            .find(|one| one.symbol.report == report && self.name(&one.symbol) == bare)
            .map(|one| one.symbol.name);
        self.refuse_twice(name.span, twice, problems).ok()?;
        let (ty, init) = match self.initial(forms, init, problems).normal() {
            Literal::Num(value) => (Type::Num, value),
            Literal::Bool(value) => (Type::Bool, u64::from(value)),
            Literal::Ratio(_) => {
                problems.push(not_whole(init.span));
                (Type::Num, 0)
            }
        };
        let kind = if report { VarKind::Report } else { VarKind::Control };
        Some(Declared {
            symbol: Symbol {
                name: span,
                report,
                ty,
                open: false,
                reg: 0,
            },
            var: Var { kind, volatile, init },
        })
    }

    /// `(const NAME literal)`
    fn constant(
        &mut self,
        forms: &Forms<'s>,
        list: u32,
        before: &[Declared],
        problems: &mut Problems,
    ) -> Result<(), Noted> {
        let mut parts = forms.children(list).skip(1).map(|part| forms.get(part));
        let (Some(name), Some(value)) = (parts.next(), parts.next()) else {
            return Err(Noted);
        };
        let text = self.declarable(forms, name, problems)?;
        let twice = before
            .iter()
            .find(|one| !one.symbol.report && self.name(&one.symbol) == text)
            .map(|one| one.symbol.name);
        self.refuse_twice(name.span, twice, problems)?;
        let value = self.initial(forms, value, problems);
        self.consts.push((name.span, value));
        Ok(())
    }

    /// The text of a name that may be declared.
    fn declarable(&self, forms: &Forms<'s>, form: Form, problems: &mut Problems) -> Result<&'s str, Noted> {
        let text = forms.text(form);
        let problem = if form.kind != Kind::Word {
            Problem::new(Code::Syntax, form.span, "not a name", "expected a name")
                .help("names are made of A-Z a-z 0-9 . and _")
        } else if literal::parse(text).is_some() {
            Problem::new(
                Code::Name,
                form.span,
                format!("`{text}` cannot be a name"),
                "expected a name",
            )
            .help("names do not begin with a digit; true, false and +infinity are values")
        } else if text.starts_with("__") {
            Problem::new(
                Code::Name,
                form.span,
                format!("`{text}` is reserved"),
                "names may not begin with __",
            )
            .help(format!("call it {}", text.trim_start_matches('_')))
        } else if builtin(text).is_some_and(|builtin| builtin.ccp) {
            Problem::new(
                Code::Name,
                form.span,
                format!("`{text}` is built in"),
                "cannot be declared",
            )
            .help("choose another name; what is built in needs no declaration")
        } else {
            return Ok(text);
        };
        problems.push(problem);
        Err(Noted)
    }

    fn refuse_twice(&self, span: Span, declared: Option<Span>, problems: &mut Problems) -> Result<(), Noted> {
        let text = &self.source[span.start as usize..span.end as usize];
        let constant = self
            .consts
            .iter()
            .find(|(name, _)| self.text(*name) == text)
            .map(|(name, _)| *name);
        let Some(first) = declared.or(constant) else {
            return Ok(());
        };
        let what = format!("`{text}` is declared twice");
        problems.push(
            Problem::new(Code::Name, span, what, "again here")
                .also(first, "first here")
                .help("rename or remove one"),
        );
        Err(Noted)
    }

    /// An initial value: a literal or the name of a constant. Where it is wrong the name is declared all the same, so
    /// that its uses are not wrong as well.
    fn initial(&self, forms: &Forms<'s>, form: Form, problems: &mut Problems) -> Literal {
        let text = forms.text(form);
        let problem = match literal::parse(text).filter(|_| form.kind == Kind::Word) {
            Some(Ok(value)) => return value,
            Some(Err(why)) => Problem::new(Code::Value, form.span, why.what, "in this number").help(why.fix),
            None => {
                if let Some((_, value)) = self.consts.iter().find(|(name, _)| self.text(*name) == text) {
                    return *value;
                }
                Problem::new(Code::Value, form.span, "not an initial value", "expected a literal").help(
                    "a variable starts from a number, true, false, +infinity or a (const …) declared before it; \
                     set anything else with (:= …) in a (when …)",
                )
            }
        };
        problems.push(problem);
        Literal::Num(0)
    }

    fn text(&self, span: Span) -> &'s str {
        &self.source[span.start as usize..span.end as usize]
    }

    /// A variable's name, for a report variable without `Report.`
    pub fn name(&self, symbol: &Symbol) -> &'s str {
        self.text(symbol.name)
    }

    pub fn find(&self, name: &str) -> Option<Meaning> {
        let (report, bare) = match name.strip_prefix("Report.") {
            Some(bare) => (true, bare),
            None => (false, name),
        };
        for symbol in &self.symbols {
            if symbol.report == report && self.name(symbol) == bare {
                return Some(Meaning::Reg {
                    reg: symbol.reg,
                    ty: symbol.ty,
                    writable: true,
                });
            }
        }
        if let Some(found) = builtin(name) {
            return Some(Meaning::Reg {
                reg: found.reg,
                ty: found.ty,
                writable: found.writable(),
            });
        }
        let constant = self.consts.iter().find(|(span, _)| self.text(*span) == name);
        constant.map(|(_, value)| Meaning::Const(*value))
    }

    /// Makes a local variable of every name that is bound and not known, in the order of the text. They are made before
    /// anything is read: a local holds what the call before left in it, so a line may read it above the one that sets it.
    pub fn find_locals(&mut self, forms: &Forms<'s>, problems: &mut Problems) {
        let mut opened = false;
        for (head, form) in forms.all() {
            let binds = opened && matches!(forms.text(form), ":=" | "bind");
            opened = form.kind == Kind::List;
            let Some(target) = forms.at(head + 1).filter(|target| binds && target.kind == Kind::Word) else {
                continue;
            };
            let name = forms.text(target);
            let reserved = name.starts_with("__") || name.starts_with("Report.");
            if reserved || literal::parse(name).is_some() || self.find(name).is_some() {
                continue;
            }
            if self.vars.len() >= self.max_vars {
                let what = format!("more than the {} variables that the datapath takes", self.max_vars);
                problems.push(
                    Problem::new(Code::Limit, target.span, what, "this one is too many")
                        .help("locals count too; use one name again where its old value is no longer needed"),
                );
                return;
            }
            let reg = reg::VARS + self.vars.len() as u8;
            self.symbols.push(Symbol {
                name: target.span,
                report: false,
                ty: Type::Num,
                open: true,
                reg,
            });
            self.vars.push(Var {
                kind: VarKind::Local,
                volatile: false,
                init: 0,
            });
        }
    }

    /// Gives a local the type of the first value that it is bound to; false where the type was settled before.
    pub fn settle(&mut self, reg: u8, ty: Type) -> bool {
        let symbol = self.symbols.iter_mut().find(|symbol| symbol.reg == reg && symbol.open);
        symbol.map(|symbol| (symbol.ty, symbol.open) = (ty, false)).is_some()
    }

    /// What can be set and has nearly this name.
    pub fn nearest_writable(&self, name: &str) -> Option<String> {
        let declared = self
            .symbols
            .iter()
            .zip(&self.vars)
            .filter(|(_, var)| var.kind != VarKind::Local);
        let declared = declared.map(|(symbol, _)| self.full_name(symbol));
        let builtins = BUILTINS
            .iter()
            .filter(|builtin| builtin.writable())
            .map(|builtin| builtin.name.to_owned());
        let known: Vec<String> = declared.chain(builtins).collect();
        nearest(name, known.iter().map(String::as_str)).map(str::to_owned)
    }

    fn full_name(&self, symbol: &Symbol) -> String {
        let prefix = if symbol.report { "Report." } else { "" };
        format!("{prefix}{}", self.name(symbol))
    }

    /// The known name that `wrong` was probably meant to be.
    pub fn nearest(&self, wrong: &str) -> Option<String> {
        let own = self.symbols.iter().map(|symbol| self.full_name(symbol));
        let consts = self.consts.iter().map(|(span, _)| self.text(*span).to_owned());
        let literals = ["true", "false", "+infinity"].map(str::to_owned);
        let known: Vec<String> = own
            .chain(consts)
            .chain(literals)
            .chain(BUILTINS.iter().map(|b| b.name.to_owned()))
            .collect();
        nearest(wrong, known.iter().map(String::as_str)).map(str::to_owned)
    }
}

/// The candidate closest to `wrong`, if one is close: by edits, or equal after the last `.`
pub(crate) fn nearest<'c>(wrong: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
    let wrong_tail = wrong.rsplit('.').next().unwrap_or(wrong);
    // Short names are close to everything.
    let allowed = (wrong.len() / 4).min(3);
    candidates
        .map(|candidate| {
            let tail = candidate.rsplit('.').next().unwrap_or(candidate);
            let by_tail = if tail.eq_ignore_ascii_case(wrong_tail) {
                0
            } else {
                usize::MAX
            };
            (edits(wrong, candidate).min(by_tail), candidate)
        })
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance, case ignored. Long words are not worth comparing.
fn edits(a: &str, b: &str) -> usize {
    const LONGEST: usize = 40;
    if a.len() > LONGEST || b.len() > LONGEST {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replace = diagonal + usize::from(!x.eq_ignore_ascii_case(&y));
            diagonal = row[j + 1];
            row[j + 1] = replace.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
