//! Token buckets for datagrams of strangers: one for all, and one per source.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;

use ccplane_units::{Duration, Time};

/// Slots of a [`SourceLimiter`]. With 32 bytes each it takes 128 KiB.
const SLOTS: usize = 4096;
/// Slots that a source may use. A source that finds all of them in use replaces the least used.
const WAYS: usize = 4;

/// Token bucket, as the generic cell rate algorithm (ITU-T I.371).
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    interval: Duration,
    /// Longest time that the theoretical arrival time may be ahead.
    tolerance: Duration,
    /// Theoretical arrival time of the next datagram.
    next: Time,
}

impl Bucket {
    /// Returns a full bucket of `burst` tokens that gets `rate` tokens per second.
    pub fn new(rate: u64, burst: u64) -> Bucket {
        let interval = Duration::from_nanos(1_000_000_000 / rate.max(1));
        Bucket {
            interval,
            tolerance: interval * burst.saturating_sub(1),
            next: Time::ZERO,
        }
    }

    /// Takes a token, if there is one.
    pub fn admit(&mut self, now: Time) -> bool {
        let next = self.next.max(now);
        if next.since(now) > self.tolerance {
            return false;
        }
        self.next = next + self.interval;
        true
    }
}

/// A token bucket per source: an IPv4 address, or an IPv6 /64.
///
/// Memory is bounded and allocated once. The hash is keyed, so that no peer chooses which sources
/// share slots. A source that is replaced starts with a full bucket: forged sources evade a limiter
/// per source anyway, and need a [`Bucket`] for all behind it.
#[derive(Debug)]
pub struct SourceLimiter {
    hasher: RandomState,
    empty: Bucket,
    slots: Box<[Slot]>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    source: Option<IpAddr>,
    /// Theoretical arrival time, as in [`Bucket`].
    next: Time,
}

impl SourceLimiter {
    /// Returns a limiter that gives each source `burst` tokens, and `rate` more per second.
    pub fn new(rate: u64, burst: u64) -> SourceLimiter {
        let slot = Slot {
            source: None,
            next: Time::ZERO,
        };
        SourceLimiter {
            hasher: RandomState::new(),
            empty: Bucket::new(rate, burst),
            slots: vec![slot; SLOTS].into_boxed_slice(),
        }
    }

    /// Takes a token of the source of `address`, if there is one.
    pub fn admit(&mut self, now: Time, address: IpAddr) -> bool {
        let source = source_of(address);
        let first = self.hasher.hash_one(source) as usize % (SLOTS / WAYS) * WAYS;
        let set = &mut self.slots[first..first + WAYS];
        let found = set.iter().position(|slot| slot.source == Some(source));
        // The slot that is ahead the least loses the least.
        let least = || (0..WAYS).min_by_key(|way| set[*way].next).unwrap_or(0);
        let slot = match found {
            Some(way) => &mut set[way],
            None => {
                let way = least();
                set[way] = Slot {
                    source: Some(source),
                    next: Time::ZERO,
                };
                &mut set[way]
            }
        };
        let mut bucket = Bucket {
            next: slot.next,
            ..self.empty
        };
        let admitted = bucket.admit(now);
        slot.next = bucket.next;
        admitted
    }
}

/// Returns the host or network behind an address: an IPv6 host has a whole /64.
pub fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) & !u128::from(u64::MAX)).into()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_bucket_admits_a_burst_and_then_its_rate() {
        let mut bucket = Bucket::new(10, 5);
        let burst = (0..20).filter(|_| bucket.admit(at(1_000))).count();
        assert_eq!(burst, 5);
        let later = (1_001..=2_000).filter(|ms| bucket.admit(at(*ms))).count();
        assert_eq!(later, 10);
        let burst = (0..20).filter(|_| bucket.admit(at(60_000))).count();
        assert_eq!(burst, 5, "a bucket holds no more than its burst");
    }

    #[test]
    fn a_source_that_is_out_of_tokens_leaves_those_of_others() {
        let mut limiter = SourceLimiter::new(1, 3);
        let loud = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let admitted = (0..100).filter(|_| limiter.admit(at(5), loud)).count();
        assert_eq!(admitted, 3);
        assert!(limiter.admit(at(5), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2))));
    }

    #[test]
    fn a_network_of_64_bits_and_a_mapped_address_are_one_source() {
        let mut limiter = SourceLimiter::new(1, 3);
        let host = |n: u128| IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | n));
        let admitted = (0..1_000)
            .filter(|n| limiter.admit(at(5), host(*n)))
            .count();
        assert_eq!(admitted, 3);
        assert!(limiter.admit(at(5), host(1 << 64)), "another network");
        let v4 = Ipv4Addr::new(192, 0, 2, 1);
        assert_eq!(source_of(v4.to_ipv6_mapped().into()), IpAddr::V4(v4));
    }

    #[test]
    fn forged_sources_take_no_more_memory_and_a_busy_source_keeps_its_count() {
        let mut limiter = SourceLimiter::new(1, 3);
        let loud = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let mut admitted = 0;
        for n in 0..20 * SLOTS as u32 {
            limiter.admit(at(5), IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + n)));
            admitted += u32::from(limiter.admit(at(5), loud));
        }
        assert_eq!(limiter.slots.len(), SLOTS);
        // All slots are ahead by one token or more: a replaced source gets another burst.
        assert!(admitted < 2 * SLOTS as u32, "{admitted}");
    }
}
