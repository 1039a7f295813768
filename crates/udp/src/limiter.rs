//! Token buckets for datagrams of unverified senders: one for all, and one per source.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;

use ccplane_units::{Duration, Time};

/// Number of slots of a [`SourceLimiter`]. At 32 bytes each they take 128 KiB.
const SLOTS: usize = 4096;
/// Slots in which a source may be stored (set associativity). If all are in use, a new source
/// replaces the one that is least ahead.
const WAYS: usize = 4;

/// Token bucket, implemented as the generic cell rate algorithm (ITU-T I.371).
#[derive(Clone, Copy, Debug)]
pub struct GcraBucket {
    interval: Duration,
    /// Largest lead of the theoretical arrival time over the current time.
    tolerance: Duration,
    /// Theoretical arrival time of the next datagram.
    next: Time,
}

impl GcraBucket {
    /// Returns a full bucket of `burst` tokens that gains `rate` tokens per second.
    pub fn new(rate: u64, burst: u64) -> GcraBucket {
        let interval = Duration::from_nanos(1_000_000_000 / rate.max(1));
        GcraBucket {
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

/// One token bucket per source, which is an IPv4 address or an IPv6 /64.
///
/// Memory is bounded and allocated once. The hash is keyed, so no peer can choose which sources
/// share slots. A replaced source starts again with a full bucket. Forged sources evade a
/// per-source limit anyway, so a [`GcraBucket`] for all sources has to follow it.
#[derive(Debug)]
pub struct SourceLimiter {
    hasher: RandomState,
    empty: GcraBucket,
    slots: Box<[BucketSlot]>,
}

#[derive(Clone, Copy, Debug)]
struct BucketSlot {
    source: Option<IpAddr>,
    /// Theoretical arrival time, as in [`GcraBucket`].
    next: Time,
}

impl SourceLimiter {
    /// Returns a limiter that gives each source `burst` tokens, and `rate` more per second.
    pub fn new(rate: u64, burst: u64) -> SourceLimiter {
        let slot = BucketSlot {
            source: None,
            next: Time::ZERO,
        };
        SourceLimiter {
            hasher: RandomState::new(),
            empty: GcraBucket::new(rate, burst),
            slots: vec![slot; SLOTS].into_boxed_slice(),
        }
    }

    /// Takes a token of the source of `address`, if there is one.
    pub fn admit(&mut self, now: Time, address: IpAddr) -> bool {
        let source = source_of(address);
        let first = self.hasher.hash_one(source) as usize % (SLOTS / WAYS) * WAYS;
        let set = &mut self.slots[first..first + WAYS];
        let found = set.iter().position(|slot| slot.source == Some(source));
        // The source that is least ahead loses the least by being replaced.
        let least = || (0..WAYS).min_by_key(|way| set[*way].next).unwrap_or(0);
        let slot = match found {
            Some(way) => &mut set[way],
            None => {
                let way = least();
                set[way] = BucketSlot {
                    source: Some(source),
                    next: Time::ZERO,
                };
                &mut set[way]
            }
        };
        let mut bucket = GcraBucket {
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
        let mut bucket = GcraBucket::new(10, 5);
        let burst = (0..20).filter(|_| bucket.admit(at(1_000))).count();
        assert_eq!(burst, 5);
        let later = (1_001..=2_000).filter(|ms| bucket.admit(at(*ms))).count();
        assert_eq!(later, 10);
        let burst = (0..20).filter(|_| bucket.admit(at(60_000))).count();
        assert_eq!(burst, 5, "a bucket holds at most its burst");
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
        // All slots are ahead by at least one token, so a replaced source gets another burst.
        assert!(admitted < 2 * SLOTS as u32, "{admitted}");
    }
}
