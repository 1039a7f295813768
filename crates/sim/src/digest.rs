//! Digest of a run: a hash that changes when any recorded value changes.

/// FNV-1a with 64 bits over little-endian numbers (Fowler, Noll and Vo; draft-eastlake-fnv).
#[derive(Clone, Copy, Debug)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    /// Adds a number.
    pub fn add(&mut self, value: u64) {
        for byte in value.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// Returns the hash of all numbers so far.
    pub fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Digest;

    #[test]
    fn is_fnv_1a() {
        // The published vector "foobar" has six bytes, so the reference for eight is computed
        // independently.
        let mut digest = Digest::default();
        digest.add(u64::from_le_bytes(*b"foobar12"));
        let reference = b"foobar12"
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(1_099_511_628_211)
            });
        assert_eq!(digest.value(), reference);
    }
}
