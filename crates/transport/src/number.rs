//! Segment numbers: 32 bits that wrap, compared by serial number arithmetic (RFC 1982).

/// Segment number. Numbers wrap: a comparison is valid only for numbers less than 2^31 apart, which
/// is far more than any window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct SequenceNumber(pub u32);

impl SequenceNumber {
    /// Returns the number `n` later.
    #[inline(always)]
    #[must_use]
    pub const fn wrapping_add(self, n: u32) -> SequenceNumber {
        SequenceNumber(self.0.wrapping_add(n))
    }

    /// Returns the number `n` earlier.
    #[inline(always)]
    #[must_use]
    pub const fn wrapping_sub(self, n: u32) -> SequenceNumber {
        SequenceNumber(self.0.wrapping_sub(n))
    }

    /// Returns the preceding number.
    #[inline(always)]
    #[must_use]
    pub const fn previous(self) -> SequenceNumber {
        SequenceNumber(self.0.wrapping_sub(1))
    }

    /// Distance from `earlier` to this number; above 2^31 if `earlier` is in fact later.
    #[inline(always)]
    pub const fn since(self, earlier: SequenceNumber) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Returns true if this number precedes `other`.
    #[inline(always)]
    pub const fn is_before(self, other: SequenceNumber) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Returns true if `from <= self < to`.
    #[inline(always)]
    pub const fn is_within(self, from: SequenceNumber, to: SequenceNumber) -> bool {
        self.since(from) < to.since(from)
    }

    /// Returns the later of two numbers.
    #[inline(always)]
    #[must_use]
    pub const fn max(self, other: SequenceNumber) -> SequenceNumber {
        if self.is_before(other) { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::SequenceNumber;

    #[test]
    fn order_holds_across_the_wrap() {
        let last = SequenceNumber(u32::MAX);
        assert!(last.is_before(last.wrapping_add(1)));
        assert!(!last.wrapping_add(1).is_before(last));
        assert_eq!(last.wrapping_add(3).since(last), 3);
        assert_eq!(last.max(SequenceNumber(0)), SequenceNumber(0));
        assert_eq!(SequenceNumber(0).previous(), last);
        assert!(SequenceNumber(1).is_within(last, SequenceNumber(2)));
        assert!(!SequenceNumber(2).is_within(last, SequenceNumber(2)));
    }
}
