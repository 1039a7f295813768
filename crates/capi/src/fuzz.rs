//! Fuzz harness of the functions of `ccplane.h` with arbitrary calls and structs. Checks that
//! nothing panics, that limits are enforced, and that only offered memory is written. Runs under
//! libFuzzer (`fuzz/fuzz_targets/capi.rs`), with AddressSanitizer on a nightly compiler, and, with
//! seeded random bytes, under `cargo test`.

mod libccp;

pub use libccp::libccp;

use std::ffi::{CStr, c_int};
use std::ptr::{null, null_mut};

use crate::*;

/// Size of a struct's buffer in words: larger than any size that is accepted.
const STRUCT_WORDS_MAX: usize = 520;
/// Value of memory that is not offered to the library.
const CANARY: u64 = 0x5a5a_5a5a_5a5a_5a5a;
/// Configured limits.
const CWND_BYTES_MIN: u64 = 3_000;
const CWND_BYTES_MAX: u64 = 1_000_000;
const RATE_BYTES_PER_SECOND_MAX: u64 = 10_000_000;

/// Algorithms with windows, rates and timers, and one that does not exist.
const ALGORITHMS: [&CStr; 6] = [
    c"reno",
    c"cubic:report=10ms",
    c"bbr",
    c"copa",
    c"nimbus",
    c"nobody",
];

/// Boundary values.
const BOUNDARY_VALUES: [u64; 8] = [
    0,
    1,
    1_448,
    14_480,
    u32::MAX as u64,
    1 << 40,
    u64::MAX - 1,
    u64::MAX,
];

/// Reader of the input bytes.
struct CallInput<'d>(std::slice::Iter<'d, u8>);

impl CallInput<'_> {
    fn byte(&mut self) -> Option<u8> {
        self.0.next().copied()
    }

    /// Returns a number; small and boundary values are more frequent than at random.
    fn number(&mut self) -> u64 {
        let (kind, low, high) = (self.small(), self.small(), self.small());
        match kind % 4 {
            0 => low,
            1 => BOUNDARY_VALUES[low as usize % BOUNDARY_VALUES.len()],
            _ => (low | high << 8) << (kind >> 2),
        }
    }

    fn small(&mut self) -> u64 {
        u64::from(self.byte().unwrap_or(0))
    }

    /// Returns memory that starts with a struct of `size` bytes, or claims to, and the number of
    /// words offered. The allocation ends where the struct claims to end, so that AddressSanitizer
    /// finds an access beyond it.
    fn memory(
        &mut self,
        size: usize,
        likely: impl Fn(usize, &mut Self) -> u64,
    ) -> (Vec<u64>, usize) {
        let said = match self.small() {
            0..=199 => size,
            200..=219 => size + 8,
            220..=239 => size - size.min(8 * (self.small() as usize % 16)),
            240..=249 => self.number() as usize,
            _ => 0,
        };
        let mut memory = vec![CANARY; said.div_ceil(8).clamp(1, STRUCT_WORDS_MAX)];
        for (word, value) in memory.iter_mut().enumerate().take(said.min(size) / 8) {
            *value = likely(word, self);
        }
        // Fields of a newer header, usually all zero.
        let newer = if self.small() < 200 { 0 } else { 1 };
        let offered = if said < STRUCT_WORDS_MAX * 8 {
            said / 8
        } else {
            0
        };
        memory
            .iter_mut()
            .take(offered)
            .skip(size / 8)
            .for_each(|word| *word = newer);
        memory[0] = said as u64;
        (memory, offered)
    }
}

/// Runs the calls in `data`.
pub fn capi(data: &[u8]) {
    let mut input = CallInput(data.iter());
    let algorithm = ALGORITHMS[input.small() as usize % ALGORITHMS.len()];
    let options = ccplane_options {
        size: size_of::<ccplane_options>(),
        algorithm: algorithm.as_ptr(),
        agent: null(),
        capabilities: 255,
        flags: CCPLANE_SAME_THREAD,
        min_cwnd: CWND_BYTES_MIN,
        max_cwnd: CWND_BYTES_MAX,
        max_rate: RATE_BYTES_PER_SECOND_MAX,
        fallback_after_ns: 0,
    };
    // SAFETY: `options` is a live local with a correct size, and `error` may be null.
    let datapath = unsafe { ccplane_open(&options, null_mut()) };
    assert_eq!(datapath.is_null(), algorithm == c"nobody");
    let (mut flows, mut opened, mut closed, mut now) = (Vec::new(), 0, 0, 0_u64);
    while let (Some(what), Some(which)) = (input.byte(), input.byte()) {
        // Time stands still, advances, and sometimes runs backwards.
        now = match which {
            0 => input.number(),
            1 => now.saturating_sub(1_000_000),
            _ => now.saturating_add(1_000 << (which % 24)),
        };
        let flow = match which % 16 {
            0 => input.number(),
            _ => flows
                .get(usize::from(which) % flows.len().max(1))
                .copied()
                .unwrap_or(7),
        };
        let known = flows.contains(&flow);
        match what {
            0..=29 => opened += u64::from(open_flow(datapath, now, &mut input, &mut flows)),
            30..=199 => on_ack(datapath, flow, known, now, what < 190, &mut input),
            200..=219 => told(unsafe_turn(datapath, now), datapath),
            220..=229 => {
                // SAFETY: `datapath` is null or from `ccplane_open`.
                let code = unsafe {
                    ccplane_flow_close(datapath, now, flow, input.number(), input.number())
                };
                told(code, datapath);
                if code == CCPLANE_OK {
                    assert!(known, "a flow was closed that was not open");
                    flows.retain(|open| *open != flow);
                    closed += 1;
                }
            }
            230..=239 => {
                // SAFETY: `datapath` is null or from `ccplane_open`.
                let due = unsafe { ccplane_next_deadline(datapath, flow) };
                assert!(known || flow == 0 || due == u64::MAX);
            }
            240..=247 => count(datapath, (opened, closed), &mut input),
            248..=251 => {
                // SAFETY: `datapath` is null or from `ccplane_open`.
                let fd = unsafe { ccplane_fd(datapath) };
                assert!([CCPLANE_ENOFD, CCPLANE_ENULL].contains(&fd));
            }
            // SAFETY: `datapath` is null or from `ccplane_open`, and the other pointers may be
            // null.
            _ => unsafe {
                assert_eq!(
                    ccplane_on_ack(null_mut(), flow, null(), null(), null_mut()),
                    CCPLANE_ENULL
                );
                assert_eq!(
                    ccplane_on_ack(datapath, flow, null(), null(), null_mut()),
                    CCPLANE_ENULL
                );
                assert!(ccplane_flow_open(datapath, now, null(), null_mut()) < 0);
                assert!(!CStr::from_ptr(ccplane_strerror(input.number() as c_int)).is_empty());
            },
        }
    }
    if !datapath.is_null() {
        // SAFETY: `datapath` is from `ccplane_open`; a handle stays valid after it is closed.
        unsafe {
            assert_eq!(ccplane_close(datapath), CCPLANE_OK);
            assert_eq!(ccplane_close(datapath), CCPLANE_ECLOSED);
            assert_eq!(ccplane_turn(datapath, now), CCPLANE_ECLOSED);
        }
    }
}

/// Checks that an error code is plausible.
fn told(code: c_int, datapath: *const ccplane_datapath) {
    assert!((CCPLANE_EFULL..=CCPLANE_OK).contains(&code), "{code}");
    assert_eq!(datapath.is_null(), code == CCPLANE_ENULL, "{code}");
}

fn unsafe_turn(datapath: *mut ccplane_datapath, now: u64) -> c_int {
    // SAFETY: `datapath` is null or from `ccplane_open`.
    unsafe { ccplane_turn(datapath, now) }
}

/// Opens a flow. Returns true on success.
fn open_flow(
    datapath: *mut ccplane_datapath,
    now: u64,
    input: &mut CallInput<'_>,
    flows: &mut Vec<u64>,
) -> bool {
    let size = size_of::<ccplane_flow_info>();
    let (memory, _) = input.memory(size, |word, input| match word {
        // Addresses are static strings or null.
        7 => [c"192.0.2.1:1", c"", c"[::1]:9", c"nonsense"][input.small() as usize % 4].as_ptr()
            as u64,
        8 => 0,
        1 => 1_448,
        _ => input.number(),
    });
    let mut flow = 0;
    // SAFETY: `memory` covers any size that is accepted, and its strings are null-terminated or
    // null.
    let code = unsafe { ccplane_flow_open(datapath, now, memory.as_ptr().cast(), &mut flow) };
    assert_ne!(code, CCPLANE_EPANIC);
    assert_eq!(code == CCPLANE_OK, flow != 0);
    if flow != 0 {
        assert!(!flows.contains(&flow), "two flows have the same number");
        flows.push(flow);
    }
    flow != 0
}

/// Processes an ACK or a deadline.
fn on_ack(
    datapath: *mut ccplane_datapath,
    flow: u64,
    known: bool,
    now: u64,
    ack: bool,
    input: &mut CallInput<'_>,
) {
    let (transport, _) = input.memory(size_of::<ccplane_transport>(), |word, input| match word {
        1 => now,
        _ => input.number(),
    });
    let (signals, _) = input.memory(size_of::<ccplane_signals>(), |_, input| input.number());
    let (mut outcome, offered) = input.memory(size_of::<ccplane_outcome>(), |_, _| CANARY);
    let before = outcome.clone();
    // SAFETY: all buffers cover any size that is accepted.
    let code = unsafe {
        let (transport, outcome) = (transport.as_ptr().cast(), outcome.as_mut_ptr().cast());
        if ack {
            ccplane_on_ack(datapath, flow, transport, signals.as_ptr().cast(), outcome)
        } else {
            ccplane_on_deadline(datapath, flow, transport, outcome)
        }
    };
    assert!((CCPLANE_EFULL..=CCPLANE_OK).contains(&code), "{code}");
    if code != CCPLANE_OK {
        return assert_eq!(outcome, before, "a call that failed wrote something");
    }
    assert!(known, "a flow that is not open has an outcome");
    assert_eq!(outcome[0], before[0], "a size was overwritten");
    let (written, rest) = outcome.split_at(offered.min(size_of::<ccplane_outcome>() / 8));
    assert_eq!(
        rest,
        &before[written.len()..],
        "more was written than offered"
    );
    let flags = written[1] as u32;
    let (cwnd, rate) = (written[2], written[3]);
    assert!(
        flags & CCPLANE_CWND == 0 || (CWND_BYTES_MIN..=CWND_BYTES_MAX).contains(&cwnd),
        "cwnd {cwnd}"
    );
    assert!(
        flags & CCPLANE_RATE == 0 || rate <= RATE_BYTES_PER_SECOND_MAX,
        "rate {rate}"
    );
}

fn count(datapath: *mut ccplane_datapath, expected: (u64, u64), input: &mut CallInput<'_>) {
    let (mut stats, offered) = input.memory(size_of::<ccplane_stats>(), |_, _| CANARY);
    let before = stats.clone();
    // SAFETY: `stats` covers any size that is accepted.
    let code = unsafe { ccplane_get_stats(datapath, stats.as_mut_ptr().cast()) };
    assert_ne!(code, CCPLANE_EPANIC);
    assert_eq!(
        stats[offered..],
        before[offered..],
        "more was written than offered"
    );
    if code == CCPLANE_OK {
        assert_eq!(stats[1], expected.0, "flows opened");
        assert!(offered < 3 || stats[2] == expected.1, "flows closed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzz_seeds_are_handled() {
        capi(include_bytes!("../../../fuzz/seeds/capi/the-end-of-time"));
    }

    #[test]
    fn ten_thousand_random_callers_do_no_harm() {
        each_random_caller(&capi);
    }

    #[test]
    fn ten_thousand_random_agents_do_no_harm() {
        each_random_caller(&libccp);
    }

    fn each_random_caller(call: &dyn Fn(&[u8])) {
        let mut state = 1_u64;
        let mut data = Vec::new();
        // A caller takes a few tenths of a second under Miri.
        let callers = if cfg!(miri) { 20 } else { 10_000 };
        for _ in 0..callers {
            data.clear();
            // Marsaglia's xorshift; any deterministic generator would do.
            for _ in 0..400 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                data.push(state as u8);
            }
            call(&data);
        }
    }
}
