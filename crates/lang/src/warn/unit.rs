//! Units of values, and their arithmetic.

use crate::literal::Measure;

/// Maximum exponent; higher powers are not meaningful quantities.
const UNIT_EXPONENT_MAX: i8 = 4;

/// Inferred unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Unknown, for example a variable that the agent sets.
    Unknown,
    /// A plain number: it takes the unit of the value that it is added to or compared with.
    Bare,
    Known(Quantity),
}

/// Powers of bytes and seconds. The value counts them in steps of 10^`scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quantity {
    bytes: i8,
    seconds: i8,
    /// `None` after a power of ten that may have been a conversion.
    scale: Option<i8>,
    /// A number of packets. A product with anything else is a plain number.
    packets: bool,
}

const fn quantity(bytes: i8, seconds: i8, scale: i8) -> Unit {
    Unit::Known(Quantity {
        bytes,
        seconds,
        scale: Some(scale),
        packets: false,
    })
}

pub(super) const BYTES: Unit = quantity(1, 0, 0);
pub(super) const BYTES_PER_SECOND: Unit = quantity(1, -1, 0);
pub(super) const MICROSECONDS: Unit = quantity(0, 1, -6);
pub(super) const NANOSECONDS: Unit = quantity(0, 1, -9);
pub(super) const PACKETS: Unit = Unit::Known(Quantity {
    bytes: 0,
    seconds: 0,
    scale: Some(0),
    packets: true,
});

impl From<Measure> for Unit {
    /// Unit in which a literal with a unit is computed.
    fn from(measure: Measure) -> Unit {
        match measure {
            Measure::Time => MICROSECONDS,
            Measure::Rate => BYTES_PER_SECOND,
            Measure::Size => BYTES,
        }
    }
}

impl Unit {
    /// Unit of a product, or of a quotient if `sign` is -1.
    pub fn times(self, other: Unit, sign: i8) -> Unit {
        let Some((a, b)) = self.quantity().zip(other.quantity()) else {
            return Unit::Unknown;
        };
        let power = |a: i8, b: i8| a + sign * b;
        let (bytes, seconds) = (power(a.bytes, b.bytes), power(a.seconds, b.seconds));
        if bytes.abs() > UNIT_EXPONENT_MAX || seconds.abs() > UNIT_EXPONENT_MAX {
            return Unit::Unknown;
        }
        if (self, other) == (Unit::Bare, Unit::Bare) {
            return Unit::Bare;
        }
        Unit::Known(Quantity {
            bytes,
            seconds,
            scale: a.scale.zip(b.scale).map(|(a, b)| power(a, b)),
            // A multiple of packets is packets.
            packets: (a.packets && other == Unit::Bare)
                || (sign == 1 && b.packets && self == Unit::Bare),
        })
    }

    fn quantity(self) -> Option<Quantity> {
        match self {
            Unit::Unknown => None,
            Unit::Bare => Some(Quantity {
                bytes: 0,
                seconds: 0,
                scale: Some(0),
                packets: false,
            }),
            Unit::Known(quantity) => Some(quantity),
        }
    }

    /// Unit after a factor or divisor of a thousand or more: it may have been a conversion, and a
    /// rate may have become an amount per fraction of a second.
    pub fn converted(self) -> Unit {
        match self {
            Unit::Known(quantity) if quantity.seconds != 0 => Unit::Unknown,
            Unit::Known(quantity) => Unit::Known(Quantity {
                scale: None,
                ..quantity
            }),
            other => other,
        }
    }

    /// Unit of two values that are added or compared; `None` if they do not fit.
    pub fn unify(self, other: Unit) -> Option<Unit> {
        let (a, b) = match (self, other) {
            (Unit::Known(a), Unit::Known(b)) => (a, b),
            (Unit::Known(_), _) => return Some(self),
            (_, Unit::Known(_)) => return Some(other),
            (Unit::Bare, Unit::Bare) => return Some(Unit::Bare),
            _ => return Some(Unit::Unknown),
        };
        let scales = a.scale.zip(b.scale).is_none_or(|(a, b)| a == b);
        let fits = (a.bytes, a.seconds) == (b.bytes, b.seconds) && scales;
        // A number in a product may have stood for any quantity: `(/ (* 131072 Flow.srtt_us) Cwnd)`
        // is a time.
        if !(fits || a.is_plain() && b.is_plain()) {
            return Some(Unit::Unknown);
        }
        fits.then_some(Unit::Known(Quantity {
            scale: a.scale.or(b.scale),
            packets: a.packets || b.packets,
            ..a
        }))
    }
}

impl Quantity {
    /// Returns true for a number, a size, a time or a rate.
    fn is_plain(self) -> bool {
        matches!((self.bytes, self.seconds), (0, 0 | 1) | (1, 0 | -1))
    }

    /// Name of the unit for messages, after "in".
    pub fn name(self) -> &'static str {
        let scale = self.scale;
        match (self.bytes, self.seconds, scale) {
            (0, 0, _) if self.packets => "packets",
            (0, 0, _) => "a ratio",
            (0, 1, Some(-6)) => "µs",
            (0, 1, Some(-9)) => "ns",
            (0, 1, Some(0)) => "seconds",
            (0, 1, _) => "a time",
            (1, 0, Some(-6)) => "millionths of a byte",
            (1, 0, Some(-9)) => "billionths of a byte",
            (1, 0, _) => "bytes",
            (1, -1, Some(6)) => "bytes/µs",
            (1, -1, Some(9)) => "bytes/ns",
            (1, -1, _) => "bytes/s",
            _ => "another unit",
        }
    }

    /// Returns how to convert a value in this unit to `wanted`, if known.
    pub fn conversion_to(self, wanted: Quantity) -> Option<&'static str> {
        let steps = self.scale.zip(wanted.scale).map(|(from, to)| to - from);
        match (self.bytes, self.seconds) == (wanted.bytes, wanted.seconds) {
            true => match steps? {
                3 => Some("divide it by 1000"),
                6 => Some("divide it by 1000000"),
                9 => Some("divide it by 1000000000"),
                -3 => Some("multiply it by 1000"),
                -6 => Some("multiply by 1000000 before the division"),
                -9 => Some("multiply by 1000000000 before the division"),
                _ => None,
            },
            false if self.packets && wanted.bytes == 1 && wanted.seconds == 0 => {
                Some("multiply it by Flow.mss")
            }
            false if wanted.packets && self.bytes == 1 && self.seconds == 0 => {
                Some("divide it by Flow.mss")
            }
            false => None,
        }
    }
}
