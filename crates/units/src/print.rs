//! Formatter for quantities: in the largest unit in which the value is at least one, exactly, or
//! with the requested number of decimals (`{:.1}`).

use core::fmt;

use crate::parse::round_div;
use crate::{Bytes, Duration, Packets, Probability, Rate, Time};

/// Writes `value / one` and the unit.
fn write_decimal(f: &mut fmt::Formatter<'_>, value: u128, one: u128, unit: &str) -> fmt::Result {
    let Some(places) = f.precision() else {
        write!(f, "{}", value / one)?;
        write_fraction(f, value % one, one)?;
        return f.write_str(unit);
    };
    let scale = 10u128.pow(places.min(9) as u32);
    let rounded = round_div(value * scale, one);
    write!(f, "{}", rounded / scale)?;
    if scale > 1 {
        let width = places.min(9);
        write!(f, ".{:0width$}", rounded % scale)?;
    }
    f.write_str(unit)
}

/// Writes the decimals of `rest / one`, if any. `one` is a power of ten.
fn write_fraction(f: &mut fmt::Formatter<'_>, mut rest: u128, mut one: u128) -> fmt::Result {
    if rest != 0 {
        f.write_str(".")?;
    }
    while rest != 0 {
        one /= 10;
        write!(f, "{}", rest / one)?;
        rest %= one;
    }
    Ok(())
}

/// Returns the largest of `units` not above `value`, or else the last.
fn largest_unit<'u>(value: u128, units: &[(u128, &'u str)]) -> (u128, &'u str) {
    let fits = units.iter().find(|(one, _)| value >= *one);
    fits.or(units.last()).copied().unwrap_or((1, ""))
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = u128::from(self.bytes_per_sec()) * 8;
        let units = [
            (1_000_000_000_000, "tbit"),
            (1_000_000_000, "gbit"),
            (1_000_000, "mbit"),
            (1_000, "kbit"),
            (1, "bit"),
        ];
        let (one, unit) = largest_unit(bits, &units);
        write_decimal(f, bits, one, unit)
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = u128::from(self.as_nanos());
        let (one, unit) = match ns {
            0 => (1_000_000, "ms"),
            _ => largest_unit(
                ns,
                &[
                    (1_000_000_000, "s"),
                    (1_000_000, "ms"),
                    (1_000, "us"),
                    (1, "ns"),
                ],
            ),
        };
        write_decimal(f, ns, one, unit)
    }
}

impl fmt::Display for Time {
    /// Writes the duration since the driver's epoch.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.since(Time::ZERO).fmt(f)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = u128::from(self.get());
        let binary = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match binary
            .into_iter()
            .find(|(one, _)| bytes != 0 && bytes.is_multiple_of(*one))
        {
            Some((one, unit)) if f.precision().is_none() => write!(f, "{}{unit}", bytes / one),
            _ => {
                let (one, unit) = largest_unit(
                    bytes,
                    &[
                        (1_000_000_000, "GB"),
                        (1_000_000, "MB"),
                        (1_000, "kB"),
                        (1, "B"),
                    ],
                );
                write_decimal(f, bytes, one, unit)
            }
        }
    }
}

impl fmt::Display for Packets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}p", self.get())
    }
}

impl fmt::Display for Probability {
    /// Writes per cent with the fewest decimals that identify the value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = u128::from(self.parts());
        let rounded = |scale: u128| round_div(parts * scale, 1 << 32);
        // Eight decimals of a per cent are finer than 2^-33, so the search always succeeds.
        let scale = (0..=8)
            .map(|places| 10u128.pow(places + 2))
            .find(|&scale| round_div(rounded(scale) << 32, scale) == parts)
            .unwrap_or(10_000_000_000);
        write_decimal(f, rounded(scale), scale / 100, "%")
    }
}
