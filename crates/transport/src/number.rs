//! Numbers of segments: 32 bits that wrap, compared as RFC 1982 compares them.

/// The number of a segment. Numbers wrap, so that two compare only while less than 2^31 lies
/// between them, which is far more than any window holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Number(pub u32);

impl Number {
    /// The number `n` later.
    #[inline(always)]
    #[must_use]
    pub const fn plus(self, n: u32) -> Number {
        Number(self.0.wrapping_add(n))
    }

    /// The number `n` earlier.
    #[inline(always)]
    #[must_use]
    pub const fn minus(self, n: u32) -> Number {
        Number(self.0.wrapping_sub(n))
    }

    /// The number before.
    #[inline(always)]
    #[must_use]
    pub const fn previous(self) -> Number {
        Number(self.0.wrapping_sub(1))
    }

    /// Distance from `earlier` to here. More than 2^31 where `earlier` is in fact later.
    #[inline(always)]
    pub const fn since(self, earlier: Number) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Whether this one comes before `other`.
    #[inline(always)]
    pub const fn before(self, other: Number) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Whether `from <= self < to`.
    #[inline(always)]
    pub const fn within(self, from: Number, to: Number) -> bool {
        self.since(from) < to.since(from)
    }

    /// The later of the two.
    #[inline(always)]
    #[must_use]
    pub const fn later(self, other: Number) -> Number {
        if self.before(other) { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::Number;

    #[test]
    fn order_holds_across_the_wrap() {
        let last = Number(u32::MAX);
        assert!(last.before(last.plus(1)));
        assert!(!last.plus(1).before(last));
        assert_eq!(last.plus(3).since(last), 3);
        assert_eq!(last.later(Number(0)), Number(0));
        assert_eq!(Number(0).previous(), last);
        assert!(Number(1).within(last, Number(2)));
        assert!(!Number(2).within(last, Number(2)));
    }
}
