//! Numbers in source: whole, decimal, ratios, with units.
//!
//! A unit makes a number whole in the unit in which the language computes: times in µs, rates in
//! bytes/s, sizes in bytes.

use ccplane_datapath::INFINITY;
use ccplane_units::{Bytes, Duration, Rate};

use crate::tree::Ratio;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Literal {
    Num(u64),
    Bool(bool),
    /// Written with a point or as a ratio, so that 1.0 as a weight differs from CCP's 1, which is
    /// 1/10.
    Ratio(Ratio),
}

impl Literal {
    /// Converts a whole ratio to a number.
    pub fn normal(self) -> Literal {
        match self {
            Literal::Ratio(Ratio { num, den: 1 }) => Literal::Num(u64::from(num)),
            other => other,
        }
    }
}

/// Reason why a word that starts with a digit is not a number, with the fix.
pub(crate) struct BadLiteral {
    pub what: &'static str,
    pub fix: String,
}

fn bad(what: &'static str, fix: impl Into<String>) -> BadLiteral {
    BadLiteral {
        what,
        fix: fix.into(),
    }
}

/// Parses `word` as a literal; `None` if it is a name.
pub(crate) fn parse(word: &str) -> Option<Result<Literal, BadLiteral>> {
    let first = word.as_bytes().first()?;
    if first.is_ascii_digit()
        || (*first == b'.' && word.as_bytes().get(1).is_some_and(u8::is_ascii_digit))
    {
        return Some(number(word));
    }
    match word {
        "true" => Some(Ok(Literal::Bool(true))),
        "false" => Some(Ok(Literal::Bool(false))),
        "+infinity" => Some(Ok(Literal::Num(INFINITY))),
        _ => None,
    }
}

/// Quantity of a literal with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// In µs.
    Time,
    /// In bytes/s.
    Rate,
    /// In bytes.
    Size,
}

/// Quantity of `word`; `None` for a name or a number without a unit.
pub(crate) fn measure(word: &str) -> Option<Measure> {
    let begins = word
        .as_bytes()
        .first()
        .is_some_and(|b| b.is_ascii_digit() || *b == b'.');
    let bare = word
        .bytes()
        .all(|b| b.is_ascii_digit() || b == b'.' || b == b'/');
    if !begins || bare {
        return None;
    }
    if word.parse::<Duration>().is_ok() {
        return Some(Measure::Time);
    }
    if word.parse::<Rate>().is_ok() {
        return Some(Measure::Rate);
    }
    word.parse::<Bytes>().is_ok().then_some(Measure::Size)
}

fn number(word: &str) -> Result<Literal, BadLiteral> {
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    if digits == word.len() {
        return whole(word).map(Literal::Num);
    }
    if let Some((num, den)) = word.split_once('/') {
        return ratio(u128::from(whole(num)?), u128::from(whole(den)?));
    }
    let unit = word
        .bytes()
        .position(|b| !(b.is_ascii_digit() || b == b'.'))
        .unwrap_or(word.len());
    if unit == word.len() {
        return decimal(word);
    }
    with_unit(word, &word[unit..]).map(Literal::Num)
}

fn whole(digits: &str) -> Result<u64, BadLiteral> {
    if !digits.bytes().all(|b| b.is_ascii_digit()) || digits.is_empty() {
        return Err(bad(
            "not a number",
            "a ratio has two whole numbers, as in 7/8",
        ));
    }
    digits.parse().map_err(|_| {
        bad(
            "this number does not fit in 64 bits",
            "the largest is 18446744073709551615; CCP's +infinity is 4294967295",
        )
    })
}

fn ratio(num: u128, den: u128) -> Result<Literal, BadLiteral> {
    if den == 0 {
        return Err(bad(
            "division by zero",
            "a ratio needs a denominator above 0",
        ));
    }
    Ratio::new(num, den).map(Literal::Ratio).ok_or_else(|| {
        bad(
            "too many digits for a ratio",
            "use at most 9 significant digits: both terms of the ratio must fit in 32 bits",
        )
    })
}

fn decimal(word: &str) -> Result<Literal, BadLiteral> {
    let (before, after) = word.split_once('.').unwrap_or((word, ""));
    if after.contains('.') {
        return Err(bad("not a number", "a decimal has one point, as in 1.25"));
    }
    if after.is_empty() {
        return Err(bad(
            "not a number",
            format!("write digits after the point ({before}.0), or write {before}"),
        ));
    }
    let after = after.trim_end_matches('0');
    let mut num: u128 = 0;
    for byte in before.bytes().chain(after.bytes()) {
        num = num
            .checked_mul(10)
            .and_then(|n| n.checked_add(u128::from(byte - b'0')))
            .ok_or_else(|| bad("this number does not fit in 64 bits", "use fewer digits"))?;
    }
    let den = u32::try_from(after.len())
        .ok()
        .and_then(|places| 10u128.checked_pow(places));
    ratio(
        num,
        den.ok_or_else(|| {
            bad(
                "too many digits for a ratio",
                "use at most 9 significant digits",
            )
        })?,
    )
}

fn with_unit(word: &str, unit: &str) -> Result<u64, BadLiteral> {
    if unit == "m" {
        return Err(bad(
            "the unit m is ambiguous",
            "write seconds (120s) or mebibytes (1MiB)",
        ));
    }
    if let Ok(time) = word.parse::<Duration>() {
        if time.as_nanos() % 1_000 != 0 {
            return Err(bad(
                "times in a program must be whole microseconds",
                "round it to µs",
            ));
        }
        return Ok(time.as_micros());
    }
    if let Ok(rate) = word.parse::<Rate>() {
        return Ok(rate.bytes_per_sec());
    }
    if unit.to_ascii_lowercase().ends_with("bps") {
        return Err(bad(
            "bps is ambiguous: usually bits per second, but bytes per second in tc",
            "write 10mbit for ten megabits per second, 80mbit for ten megabytes",
        ));
    }
    match word.parse::<Bytes>() {
        Ok(bytes) => Ok(bytes.get()),
        Err(_) => Err(bad(
            "neither a name nor a number with a unit",
            "times end in us, ms or s; rates in kbit, mbit or gbit (bits/s); sizes in b, kB, MB, \
             KiB or MiB; names do not begin with a digit",
        )),
    }
}
