//! Compares the one-way delay from timestamps (`bpf/one_way.h`) in the running kernel with the
//! reference, `OneWay` of `ccplane-datapath`, on the same exchanges.

use ccplane_datapath::{ExchangeStamps, OneWay, Signals};
use ccplane_units::splitmix::SplitMix64;
use ccplane_units::{Duration, Time};
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, ProgramInput};

use crate::testing;

const OBJECT: &[u8] = include_bytes!("../../bpf/prebuilt/one_way.bpf.o");
/// `EXCHANGES` in `bpf/one_way.bpf.c`.
const BATCH_EXCHANGES: usize = 64;
const UNKNOWN_NS: u64 = 0xffff_ffff;

/// `struct exchange` as words.
type ExchangeWords = [u64; 12];

/// A connection's exchanges in time order: clocks with arbitrary offset and drift, queues in both
/// directions, gaps of up to two windows, clock steps, and occasional impossible timestamps.
struct Exchanges {
    rng: SplitMix64,
    now: u64,
    offset: u64,
}

impl Exchanges {
    fn next(&mut self) -> ExchangeStamps {
        let [pause, there, back, kind] = [(); 4].map(|()| self.rng.next_u64());
        self.now += match pause % 64 {
            0 => pause % 12_000_000_000,
            1..8 => pause % 1_000_000_000,
            _ => pause % 1_000_000,
        };
        if kind.is_multiple_of(512) {
            self.offset = self.rng.next_u64();
        }
        self.offset = self.offset.wrapping_add(pause % 1_000 * 100 / 1_000_000);
        let hold = kind >> 32 & 0xfffff;
        let delay = |random: u64| {
            5_000
                + if random.is_multiple_of(4) {
                    0
                } else {
                    random % 400_000_000
                }
        };
        let [there, back] = [delay(there), delay(back)];
        let t2 = self.now + there;
        let t4 = t2 + hold + back;
        let peer = |t: u64| Time::from_nanos(t.wrapping_add(self.offset));
        let mut stamps = ExchangeStamps {
            t1: Time::from_nanos(self.now),
            t2: peer(t2),
            t3: peer(t2 + hold),
            t4: Time::from_nanos(t4),
        };
        if kind.is_multiple_of(37) {
            // The answer left later than it arrived.
            stamps.t3 = peer(t4 + kind % 1_000_000_000);
        }
        self.now = t4;
        stamps
    }
}

fn map<'a>(object: &'a Object, name: &str) -> impl MapCore + use<'a> {
    object
        .maps()
        .find(|map| map.name() == name)
        .expect("the object has this map")
}

#[test]
fn kernel_stamps_match_the_reference() {
    if let Some(missing) = testing::missing_requirement() {
        return testing::skip("kernel_stamps_match_the_reference", &missing);
    }
    let open = ObjectBuilder::default()
        .open_memory(OBJECT)
        .expect("it is an object");
    let object = open.load().expect("the verifier takes it");
    let probe = object.progs_mut().next().expect("its program");
    let (exchanges, connection) = (map(&object, "exchanges"), map(&object, "connection"));
    let empty = vec![0; connection.value_size() as usize];
    let (mut dropped, mut valid) = (0, 0);
    for seed in 0..40u64 {
        connection
            .update(&0u32.to_ne_bytes(), &empty, MapFlags::ANY)
            .expect("its entry");
        let mut reference = OneWay::default();
        let mut source = Exchanges {
            rng: SplitMix64(seed),
            now: 1 + seed * 1_234_567_891,
            offset: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        };
        for batch in 0..16u32 {
            let mut expected = Vec::new();
            for n in 0..BATCH_EXCHANGES as u32 {
                let s = source.next();
                let nanos = |t: Time| t.as_nanos() as u32;
                let forward = nanos(s.t2).wrapping_sub(nanos(s.t1));
                let back = nanos(s.t4).wrapping_sub(nanos(s.t3));
                let later = source.rng.next_u64();
                let now = s.t4 + Duration::from_nanos(later % 2_000_000);
                let rtt = Duration::from_nanos(later >> 32 & 0xf_ffff);
                let words: ExchangeWords = [
                    s.t4.as_nanos(),
                    now.as_nanos(),
                    rtt.as_nanos(),
                    u64::from(forward) | u64::from(back) << 32,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                ];
                let bytes = words.map(u64::to_ne_bytes).concat();
                exchanges
                    .update(&n.to_ne_bytes(), &bytes, MapFlags::ANY)
                    .expect("an entry");

                let taken = reference.sample(s.t4, &s);
                let mut signals = Signals::default();
                reference.write(now, taken, rtt, &mut signals);
                let known = |ns: u64| if ns == 0 { UNKNOWN_NS } else { ns };
                valid += signals.queue_delay_valid;
                expected.push([
                    u64::from(taken),
                    u64::from(reference.dropped()),
                    known(signals.owd_ns),
                    known(signals.rtt_ns),
                    known(signals.min_owd_ns),
                    known(signals.min_rtt_ns),
                    if signals.queue_delay_valid == 1 {
                        signals.queue_delay_ns
                    } else {
                        UNKNOWN_NS
                    },
                    signals.queue_delay_valid,
                ]);
            }
            probe
                .test_run(ProgramInput::default())
                .expect("the probe runs");
            for (n, expected) in (0u32..).zip(&expected) {
                let value = exchanges
                    .lookup(&n.to_ne_bytes(), MapFlags::ANY)
                    .expect("a map")
                    .expect("an entry");
                let words: Vec<u64> = value
                    .chunks_exact(8)
                    .map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")))
                    .collect();
                assert_eq!(
                    &words[4..],
                    expected,
                    "seed {seed}, exchange {}",
                    batch * BATCH_EXCHANGES as u32 + n
                );
            }
        }
        dropped += reference.dropped();
    }
    // Both valid and impossible exchanges occurred.
    assert!(
        dropped > 500 && valid > 5_000,
        "{dropped} dropped, {valid} valid"
    );
}
