//! Parser for quantities: a number and a unit, in iproute2's notation.
//!
//! Numbers are parsed exactly, as decimals without floating point: `Display` followed by `FromStr`
//! returns the same value.

use core::fmt;
use core::str::FromStr;

use crate::{Bytes, Duration, Packets, Probability, Rate, Time};

/// Error from parsing a quantity: the reason, and the expected form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseError {
    reason: &'static str,
    expected: &'static str,
}

impl ParseError {
    /// Returns the reason.
    pub const fn reason(self) -> &'static str {
        self.reason
    }

    /// Returns the expected form.
    pub const fn expected(self) -> &'static str {
        self.expected
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.reason, self.expected)
    }
}

impl core::error::Error for ParseError {}

const RATE_HINT: &str =
    "write a rate as 96mbit, 1.5gbit or 100kbit (bits/s), or as 12MB/s (bytes/s)";
const BPS_HINT: &str = "write 10mbit for ten megabits per second, 10MB/s for ten megabytes";
const DURATION_HINT: &str = "write a time as 20ms, 1.5s, 10us, 100ns or 2m";
const BYTES_HINT: &str = "write a size as 1500b, 150kB or 2MB (powers of 1000), or as 64k, 64KiB \
                          or 1MiB (powers of 1024)";
const PACKETS_HINT: &str = "write a number of packets as 160p";
const PROBABILITY_HINT: &str = "write a probability as 0.01%, 0.0001 or 1e-4, between 0 and 1";
const PERCENT_HINT: &str = "write 1% for one in a hundred, 100% for always";

/// Decimal number `digits / 10^places`.
#[derive(Clone, Copy)]
struct Decimal {
    digits: u128,
    places: u32,
}

/// Maximum number of digits: enough for every u64 with nine decimals, and few enough that no
/// product below overflows.
const DIGITS_MAX: usize = 29;

impl Decimal {
    /// Splits `text` into its number and its unit.
    fn split<'t>(text: &'t str, expected: &'static str) -> Result<(Decimal, &'t str), ParseError> {
        let fail = |reason| Err(ParseError { reason, expected });
        let text = text.trim();
        match text.as_bytes().first() {
            None => return fail("the value is empty"),
            Some(b'-') => return fail("a quantity cannot be negative"),
            _ => {}
        }
        let lower = |word: &str| {
            text.get(..word.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(word))
        };
        if lower("nan") || lower("inf") || lower("+inf") {
            return fail("not a finite number");
        }
        let (mut digits, mut places, mut count, mut point) = (0u128, 0, 0, false);
        let mut end = 0;
        for byte in text.bytes() {
            match byte {
                b'0'..=b'9' => {
                    // Leading zeros do not count.
                    count += usize::from(count > 0 || byte != b'0');
                    if count > DIGITS_MAX {
                        return fail("too many digits");
                    }
                    digits = digits * 10 + u128::from(byte - b'0');
                    places += u32::from(point);
                }
                b'.' if !point => point = true,
                _ => break,
            }
            end += 1;
        }
        if !text.as_bytes()[..end].iter().any(u8::is_ascii_digit) {
            return fail("not a number");
        }
        if places > DIGITS_MAX as u32 {
            return fail("too many digits");
        }
        Ok((Decimal { digits, places }, text[end..].trim_start()))
    }

    /// Multiplies by `num / den` and rounds down; `None` if the result does not fit.
    fn scaled(self, num: u64, den: u64) -> Option<u64> {
        let product = self.digits.checked_mul(u128::from(num))?;
        u64::try_from(product / u128::from(den) / 10u128.pow(self.places)).ok()
    }
}

/// Parses a number with one of `units`, given as name and value `num / den`.
fn parse_quantity(
    text: &str,
    units: &[(&str, u64, u64)],
    any_case: bool,
    expected: &'static str,
) -> Result<u64, ParseError> {
    let fail = |reason| ParseError { reason, expected };
    let (number, unit) = Decimal::split(text, expected)?;
    if unit.is_empty() {
        return Err(fail("a number without a unit"));
    }
    let same = |name: &str| {
        if any_case {
            name.eq_ignore_ascii_case(unit)
        } else {
            name == unit
        }
    };
    let (_, num, den) = units
        .iter()
        .find(|(name, ..)| same(name))
        .ok_or(fail("unknown unit"))?;
    let value = number.scaled(*num, *den).ok_or(fail("too large"))?;
    if value == 0 && number.digits != 0 {
        return Err(fail("too small: it rounds to zero"));
    }
    Ok(value)
}

const KILO: u64 = 1_000;
const MEGA: u64 = KILO * KILO;
const GIGA: u64 = MEGA * KILO;
const TERA: u64 = GIGA * KILO;
const KIBI: u64 = 1 << 10;
const MEBI: u64 = 1 << 20;
const GIBI: u64 = 1 << 30;
const TEBI: u64 = 1 << 40;

impl FromStr for Rate {
    type Err = ParseError;

    /// Parses `96mbit`, `1.5gbit`, `10 Mbit/s` or `12MB/s`. `bit` units are bits/s, as in tc, and
    /// `B/s` units bytes/s, with the prefixes `k m g t` (1000) and `ki mi gi ti` (1024) in any
    /// case. `bps` is an error, because it means bytes/s in tc and bits/s everywhere else. Rounds
    /// down to whole bytes/s; zero is an error.
    fn from_str(text: &str) -> Result<Rate, ParseError> {
        const UNITS: [(&str, u64, u64); 23] = [
            ("bit", 1, 8),
            ("bit/s", 1, 8),
            ("kbit/s", KILO, 8),
            ("mbit/s", MEGA, 8),
            ("gbit/s", GIGA, 8),
            ("tbit/s", TERA, 8),
            ("kbit", KILO, 8),
            ("mbit", MEGA, 8),
            ("gbit", GIGA, 8),
            ("tbit", TERA, 8),
            ("kibit", KIBI, 8),
            ("mibit", MEBI, 8),
            ("gibit", GIBI, 8),
            ("tibit", TEBI, 8),
            ("b/s", 1, 1),
            ("kb/s", KILO, 1),
            ("mb/s", MEGA, 1),
            ("gb/s", GIGA, 1),
            ("tb/s", TERA, 1),
            ("kib/s", KIBI, 1),
            ("mib/s", MEBI, 1),
            ("gib/s", GIBI, 1),
            ("tib/s", TEBI, 1),
        ];
        let trimmed = text.trim_end();
        let ends = |end: &str| {
            let at = trimmed
                .len()
                .checked_sub(end.len())
                .and_then(|at| trimmed.get(at..));
            at.is_some_and(|last| last.eq_ignore_ascii_case(end))
        };
        if ends("bps") {
            return Err(ParseError {
                reason: "`bps` is ambiguous: bytes per second in tc, bits per second elsewhere",
                expected: BPS_HINT,
            });
        }
        // A lower-case `b` is ambiguous between bit and byte.
        if ends("b/s") && !trimmed.ends_with("B/s") {
            return Err(ParseError {
                reason: "a lower-case `b` is ambiguous: it may mean bits or bytes",
                expected: BPS_HINT,
            });
        }
        match parse_quantity(text, &UNITS, true, RATE_HINT)? {
            0 => Err(ParseError {
                reason: "a rate of zero sends nothing",
                expected: RATE_HINT,
            }),
            bytes => Ok(Rate::from_bytes_per_sec(bytes)),
        }
    }
}

impl FromStr for Duration {
    type Err = ParseError;

    /// Parses `20ms`, `1.5s`, `10us`, `100ns` or `2m`. Rounds down to whole nanoseconds.
    fn from_str(text: &str) -> Result<Duration, ParseError> {
        const UNITS: [(&str, u64, u64); 8] = [
            ("ns", 1, 1),
            ("us", KILO, 1),
            ("µs", KILO, 1),
            ("ms", MEGA, 1),
            ("s", GIGA, 1),
            ("m", 60 * GIGA, 1),
            ("min", 60 * GIGA, 1),
            ("h", 3600 * GIGA, 1),
        ];
        parse_quantity(text, &UNITS, false, DURATION_HINT).map(Duration::from_nanos)
    }
}

impl FromStr for Time {
    type Err = ParseError;

    /// Parses a time since the driver's epoch, in the notation of [`Duration`].
    fn from_str(text: &str) -> Result<Time, ParseError> {
        text.parse::<Duration>().map(|since| Time::ZERO + since)
    }
}

impl FromStr for Bytes {
    type Err = ParseError;

    /// Parses `1500b`; `64k`, `1m` (powers of 1024, as in tc); `150kB`, `2MB` (powers of 1000);
    /// `64KiB`, `1MiB`.
    fn from_str(text: &str) -> Result<Bytes, ParseError> {
        const UNITS: [(&str, u64, u64); 19] = [
            ("b", 1, 1),
            ("B", 1, 1),
            ("k", KIBI, 1),
            ("m", MEBI, 1),
            ("g", GIBI, 1),
            ("K", KIBI, 1),
            ("M", MEBI, 1),
            ("G", GIBI, 1),
            ("kB", KILO, 1),
            ("MB", MEGA, 1),
            ("GB", GIGA, 1),
            ("TB", TERA, 1),
            ("KiB", KIBI, 1),
            ("kiB", KIBI, 1),
            ("MiB", MEBI, 1),
            ("GiB", GIBI, 1),
            ("TiB", TEBI, 1),
            ("bytes", 1, 1),
            ("byte", 1, 1),
        ];
        parse_quantity(text, &UNITS, false, BYTES_HINT).map(Bytes::new)
    }
}

impl FromStr for Packets {
    type Err = ParseError;

    /// Parses `160p`, `160pkt`, `160 packets` or a bare number.
    fn from_str(text: &str) -> Result<Packets, ParseError> {
        let fail = |reason| ParseError {
            reason,
            expected: PACKETS_HINT,
        };
        let (number, unit) = Decimal::split(text, PACKETS_HINT)?;
        if !matches!(unit, "" | "p" | "pkt" | "pkts" | "packet" | "packets") {
            return Err(fail("unknown unit"));
        }
        if number.places != 0 {
            return Err(fail("the number of packets is not whole"));
        }
        number
            .scaled(1, 1)
            .map(Packets::new)
            .ok_or(fail("too large"))
    }
}

impl FromStr for Probability {
    type Err = ParseError;

    /// Parses `0.01%`, `0.0001` or `1e-4` and rounds to the nearest multiple of 2^-32. A number of
    /// 1 or more needs a `%`, because a bare `1` could mean 1 % or 100 %.
    fn from_str(text: &str) -> Result<Probability, ParseError> {
        let fail = |reason| ParseError {
            reason,
            expected: PROBABILITY_HINT,
        };
        let (number, unit) = Decimal::split(text, PROBABILITY_HINT)?;
        let places = match unit {
            "" => 0,
            "%" => 2,
            _ => {
                let exponent = unit
                    .strip_prefix(['e', 'E'])
                    .and_then(|e| e.parse::<i32>().ok())
                    .ok_or(fail("unknown unit"))?;
                exponent.checked_neg().ok_or(fail("unknown unit"))?
            }
        };
        let places = i64::from(number.places) + i64::from(places);
        if unit.is_empty() && number.digits >= 10u128.pow(number.places) {
            return Err(ParseError {
                reason: "a number of 1 or more without a % is ambiguous",
                expected: PERCENT_HINT,
            });
        }
        let too_small = fail("too small: the smallest probability is 2.4e-10");
        let den = match places {
            ..0 => return Err(fail("a probability is at most 1")),
            0..=37 => 10u128.pow(places as u32),
            _ if number.digits == 0 => 1,
            _ => return Err(too_small),
        };
        if number.digits > den {
            return Err(fail("a probability is at most 1"));
        }
        match round_div(number.digits << 32, den) {
            0 if number.digits != 0 => Err(too_small),
            parts => Ok(Probability::from_parts(parts as u64)),
        }
    }
}

/// Divides and rounds to the nearest integer.
pub(crate) fn round_div(num: u128, den: u128) -> u128 {
    num / den + u128::from(num % den * 2 >= den)
}
