//! Second, slow implementation of the language: evaluates source form by form, following the
//! documentation, without code shared with the compiler.

use std::collections::HashMap;

/// Source as nested lists.
#[derive(Clone, Debug)]
pub enum Form {
    Atom(String),
    List(Vec<Form>),
}

/// Parses well-formed source without comments.
pub fn read(text: &str) -> Vec<Form> {
    let spaced = text.replace('(', " ( ").replace(')', " ) ");
    let mut stack = vec![Vec::new()];
    for token in spaced.split_whitespace() {
        match token {
            "(" => stack.push(Vec::new()),
            ")" => {
                let list = stack.pop().expect("balanced text");
                stack
                    .last_mut()
                    .expect("balanced text")
                    .push(Form::List(list));
            }
            atom => stack
                .last_mut()
                .expect("balanced text")
                .push(Form::Atom(atom.to_owned())),
        }
    }
    stack.pop().expect("balanced text")
}

/// Operation without a result. The datapath continues with a substitute value and counts a fault;
/// here the evaluation stops.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault;

struct DeclaredVariable {
    name: String,
    volatile: bool,
    init: u64,
}

/// Program with the state of one flow.
pub struct Machine {
    clauses: Vec<Vec<Form>>,
    declared: Vec<DeclaredVariable>,
    values: HashMap<String, u64>,
    reports: bool,
    resets: bool,
    continues: bool,
}

fn head(list: &[Form]) -> &str {
    match list.first() {
        Some(Form::Atom(head)) => head,
        other => panic!("no head: {other:?}"),
    }
}

fn list(form: &Form) -> &[Form] {
    match form {
        Form::List(list) => list,
        Form::Atom(atom) => panic!("not a list: {atom}"),
    }
}

fn atom(form: &Form) -> &str {
    match form {
        Form::Atom(atom) => atom,
        Form::List(list) => panic!("not an atom: {list:?}"),
    }
}

/// Parses a decimal or ratio into numerator and denominator.
fn fraction(text: &str) -> Option<(u128, u128)> {
    if let Some((num, den)) = text.split_once('/') {
        return Some((num.parse().ok()?, den.parse().ok()?));
    }
    let (whole, places) = text.split_once('.')?;
    let num: u128 = format!("{whole}{places}").parse().ok()?;
    Some((num, 10u128.pow(places.len() as u32)))
}

impl Machine {
    pub fn new(text: &str) -> Machine {
        let forms = read(text);
        let mut declared = Vec::new();
        for form in &list(&forms[0])[1..] {
            let parts = list(form);
            if head(parts) == "Report" {
                declared.extend(parts[1..].iter().map(|part| declare(list(part), "Report.")));
            } else {
                declared.push(declare(parts, ""));
            }
        }
        let values = declared
            .iter()
            .map(|one| (one.name.clone(), one.init))
            .collect();
        let clauses = forms[1..]
            .iter()
            .map(|form| list(form)[1..].to_vec())
            .collect();
        Machine {
            clauses,
            declared,
            values,
            reports: false,
            resets: false,
            continues: false,
        }
    }

    pub fn set(&mut self, name: &str, value: u64) {
        self.values.insert(name.to_owned(), value);
    }

    pub fn get(&self, name: &str) -> u64 {
        self.values.get(name).copied().unwrap_or(0)
    }

    /// Report variables in order.
    pub fn report(&self) -> Vec<u64> {
        let reported = self
            .declared
            .iter()
            .filter(|one| one.name.starts_with("Report."));
        reported.map(|one| self.get(&one.name)).collect()
    }

    /// Runs the clauses; returns true if a report is due.
    pub fn run(&mut self) -> Result<bool, Fault> {
        (self.reports, self.resets) = (false, false);
        for clause in self.clauses.clone() {
            if self.eval(&clause[0])? == 0 {
                continue;
            }
            self.continues = false;
            for statement in &clause[1..] {
                self.statement(list(statement))?;
            }
            if !self.continues {
                break;
            }
        }
        if self.resets && !self.reports {
            self.reset();
        }
        Ok(self.reports)
    }

    /// Resets the volatile variables.
    pub fn reset(&mut self) {
        for one in self.declared.iter().filter(|one| one.volatile) {
            self.values.insert(one.name.clone(), one.init);
        }
    }

    fn statement(&mut self, form: &[Form]) -> Result<(), Fault> {
        match (head(form), &form[1..]) {
            ("report", []) => self.reports = true,
            ("reset", []) => self.resets = true,
            ("fallthrough", []) => self.continues = true,
            ("do", statements) => {
                for statement in statements {
                    self.statement(list(statement))?;
                }
            }
            ("if", [cond, then, rest @ ..]) => {
                if self.eval(cond)? != 0 {
                    self.statement(list(then))?;
                } else if let [otherwise] = rest {
                    self.statement(list(otherwise))?;
                }
            }
            (":=", [target, value]) => {
                let target = atom(target);
                let value = self.bound(self.get(target), value)?;
                self.set(target, value);
            }
            other => panic!("no statement: {other:?}"),
        }
        Ok(())
    }

    /// Evaluates the right-hand side of `:=`; `old` is the variable's current value.
    fn bound(&self, old: u64, form: &Form) -> Result<u64, Fault> {
        let Form::List(parts) = form else {
            return self.eval(form);
        };
        match (head(parts), &parts[1..]) {
            ("if", [cond, value]) => {
                let value = self.eval(value)?;
                Ok(if self.eval(cond)? != 0 { value } else { old })
            }
            ("!if", [cond, value]) => {
                let value = self.eval(value)?;
                Ok(if self.eval(cond)? == 0 { value } else { old })
            }
            ("ewma", [weight, value]) => {
                let new = self.eval(value)?;
                let (num, den) = match weight {
                    Form::Atom(text) => match fraction(text) {
                        Some(ratio) => ratio,
                        None => (self.eval(weight)?.into(), 10),
                    },
                    Form::List(_) => (self.eval(weight)?.into(), 10),
                };
                if num > den {
                    return Err(Fault);
                }
                let mean = (num * u128::from(old) + (den - num) * u128::from(new)) / den;
                Ok(if old == 0 { new } else { mean as u64 })
            }
            _ => self.eval(form),
        }
    }

    fn eval(&self, form: &Form) -> Result<u64, Fault> {
        let parts = match form {
            Form::Atom(text) => return Ok(self.atom(text)),
            Form::List(parts) => parts,
        };
        let operator = head(parts);
        if operator == "*" {
            return self.product(&parts[1..]);
        }
        let mut operands = Vec::new();
        for part in &parts[1..] {
            operands.push(self.eval(part)?);
        }
        let truth = |truth: bool| Ok(u64::from(truth));
        match (operator, operands.as_slice()) {
            ("+", all) => all
                .iter()
                .try_fold(0u64, |sum, &x| sum.checked_add(x))
                .ok_or(Fault),
            ("max", all) => all.iter().copied().max().ok_or(Fault),
            ("min", all) => all.iter().copied().min().ok_or(Fault),
            ("&&", all) => truth(all.iter().all(|&x| x != 0)),
            ("||", all) => truth(all.iter().any(|&x| x != 0)),
            ("-", &[a, b]) => a.checked_sub(b).ok_or(Fault),
            ("diff", &[a, b]) => Ok(a.saturating_sub(b)),
            ("/", &[a, b]) => a.checked_div(b).ok_or(Fault),
            (">", [a, b]) => truth(a > b),
            (">=", [a, b]) => truth(a >= b),
            ("<", [a, b]) => truth(a < b),
            ("<=", [a, b]) => truth(a <= b),
            ("==", [a, b]) => truth(a == b),
            ("!=", [a, b]) => truth(a != b),
            ("!", &[a]) => truth(a == 0),
            ("if", &[cond, a, b]) => Ok(if cond != 0 { a } else { b }),
            other => panic!("no operation: {other:?}"),
        }
    }

    /// Decimal factors apply once, to the product of the others.
    fn product(&self, factors: &[Form]) -> Result<u64, Fault> {
        let (mut whole, mut num, mut den) = (1u64, 1u128, 1u128);
        for factor in factors {
            match factor {
                Form::Atom(text) if fraction(text).is_some() => {
                    let (n, d) = fraction(text).expect("checked above");
                    (num, den) = (num * n, den * d);
                }
                _ => whole = whole.checked_mul(self.eval(factor)?).ok_or(Fault)?,
            }
        }
        Ok(u64::try_from(u128::from(whole) * num / den).unwrap_or(u64::MAX))
    }

    fn atom(&self, text: &str) -> u64 {
        match text {
            "true" => 1,
            "false" => 0,
            "+infinity" => 0xffff_ffff,
            _ => text.parse().unwrap_or_else(|_| self.get(text)),
        }
    }
}

fn declare(parts: &[Form], prefix: &str) -> DeclaredVariable {
    let volatile = head(parts) == "volatile";
    let [name, init] = &parts[usize::from(volatile)..] else {
        panic!("not a declaration: {parts:?}")
    };
    let init = match atom(init) {
        "true" => 1,
        "false" => 0,
        "+infinity" => 0xffff_ffff,
        number => number.parse().expect("a number"),
    };
    DeclaredVariable {
        name: format!("{prefix}{}", atom(name)),
        volatile,
        init,
    }
}
