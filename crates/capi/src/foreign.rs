//! What comes from C, looked at before anything else does: structs that say their size, texts, and
//! the way back out of a call.

use std::ffi::{CStr, c_char, c_int};
use std::mem::{MaybeUninit, forget, offset_of};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::types::*;

/// A code of `ccplane.h` that is no success.
pub(crate) type Code = c_int;

/// No struct of any version is as large. One that says so was not set up.
const MOST: usize = 4096;

/// A struct of the header.
///
/// # Safety
/// It is `repr(C)`, its first field is a `usize`, it has no padding, and every pattern of bits is a
/// value.
pub(crate) unsafe trait Struct: Copy {
    /// Bytes without which it is of no use.
    const LEAST: usize;
}

/// A struct of this size has everything up to this field.
macro_rules! upto {
    ($kind:ident, $field:ident) => {
        offset_of!($kind, $field) + 8
    };
}

// SAFETY: as the trait asks; fields are 8 bytes each, `ccplane_outcome` has two of 4, and bytes
// stand at the end of `ccplane_error`.
unsafe impl Struct for ccplane_options {
    const LEAST: usize = upto!(ccplane_options, capabilities);
}
// SAFETY: as above.
unsafe impl Struct for ccplane_error {
    const LEAST: usize = upto!(ccplane_error, code);
}
// SAFETY: as above.
unsafe impl Struct for ccplane_flow_info {
    const LEAST: usize = upto!(ccplane_flow_info, mss);
}
// SAFETY: as above.
unsafe impl Struct for ccplane_transport {
    const LEAST: usize = upto!(ccplane_transport, ssthresh);
}
// SAFETY: as above.
unsafe impl Struct for ccplane_signals {
    const LEAST: usize = upto!(ccplane_signals, was_timeout);
}
// SAFETY: as above.
unsafe impl Struct for ccplane_outcome {
    const LEAST: usize = upto!(ccplane_outcome, ssthresh);
}
// SAFETY: as above.
unsafe impl Struct for ccplane_stats {
    const LEAST: usize = upto!(ccplane_stats, opened);
}

/// The size that a struct says, if it can be that.
///
/// # Safety
/// `of` is null, or a `usize` can be read there.
unsafe fn said<T: Struct>(of: *const T) -> Result<usize, Code> {
    if of.is_null() {
        return Err(CCPLANE_ENULL);
    }
    if !of.is_aligned() {
        return Err(CCPLANE_EVALUE);
    }
    // SAFETY: it is not null, and the caller says that its first field can be read.
    let size = unsafe { of.cast::<usize>().read() };
    if size < T::LEAST || size > MOST || size % 8 != 0 {
        return Err(CCPLANE_ESIZE);
    }
    Ok(size)
}

/// A struct as this library knows it. One of an older header is continued with zeros in `room`; one
/// of a newer header will do as long as what it has more is 0.
///
/// # Safety
/// `of` is null, or so many bytes can be read there as its first field says, for as long as the
/// reference lives.
#[inline(always)]
pub(crate) unsafe fn view<T: Struct>(of: *const T, room: &mut MaybeUninit<T>) -> Result<&T, Code> {
    // SAFETY: the caller's word.
    let size = unsafe { said(of) }?;
    if size == size_of::<T>() {
        // SAFETY: not null, aligned, as long as T by the caller's word; T takes every pattern of
        // bits.
        return Ok(unsafe { &*of });
    }
    // SAFETY: the caller's word.
    unsafe { other_size(of, size, room) }
}

/// # Safety
/// As [`view`], and `of` is not null.
#[cold]
unsafe fn other_size<T: Struct>(
    of: *const T,
    size: usize,
    room: &mut MaybeUninit<T>,
) -> Result<&T, Code> {
    // SAFETY: the caller's word: so many bytes can be read.
    let bytes = unsafe { std::slice::from_raw_parts(of.cast::<u8>(), size) };
    let (known, more) = bytes.split_at(size.min(size_of::<T>()));
    if more.iter().any(|byte| *byte != 0) {
        return Err(CCPLANE_ESIZE);
    }
    *room = MaybeUninit::zeroed();
    // SAFETY: `room` is as long as T, `known` no longer, and neither lies in the other: `room` is a
    // local of ours.
    unsafe {
        room.as_mut_ptr()
            .cast::<u8>()
            .copy_from_nonoverlapping(known.as_ptr(), known.len())
    };
    // SAFETY: all of it was written, and T takes every pattern of bits.
    Ok(unsafe { room.assume_init_ref() })
}

/// A struct that the caller wants filled.
pub(crate) struct Room<T> {
    to: *mut T,
    size: usize,
}

impl<T: Struct> Room<T> {
    /// # Safety
    /// `to` is null, or so many bytes can be read and written there as its first field says, until
    /// [`Room::fill`].
    #[inline(always)]
    pub unsafe fn at(to: *mut T) -> Result<Room<T>, Code> {
        // SAFETY: the caller's word.
        let size = unsafe { said(to.cast_const()) }?;
        Ok(Room { to, size })
    }

    /// Fills as much of it as there is. Its size stays as the caller said it.
    #[inline(always)]
    pub fn fill(self, value: &T) {
        let copy = |bytes: usize| {
            let from = (&raw const *value).cast::<u8>();
            // SAFETY: by the word given to `at` and the checks there, `size` bytes can be written
            // at `to`; `value` has as many, and is a local of ours. The first field is left out on
            // both sides.
            unsafe {
                let to = self.to.cast::<u8>().add(size_of::<usize>());
                to.copy_from_nonoverlapping(
                    from.add(size_of::<usize>()),
                    bytes - size_of::<usize>(),
                );
            }
        };
        // A length that the compiler knows takes a few moves, and no call.
        if self.size == size_of::<T>() {
            copy(size_of::<T>());
        } else {
            copy(self.size.min(size_of::<T>()));
        }
    }
}

/// A text, or nothing where it is null.
///
/// # Safety
/// `text` is null, or a text that ends with a 0 and lives as long as the reference.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<Option<&'a str>, Code> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's word.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| CCPLANE_EVALUE)
}

/// Runs a call. A panic becomes a value here, and never reaches C.
#[inline(always)]
pub(crate) fn guarded<T>(body: impl FnOnce() -> T, panicked: T) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(payload) => {
            // Its own drop could panic again.
            forget(payload);
            panicked
        }
    }
}

/// The code of a call.
#[inline(always)]
pub(crate) fn call(body: impl FnOnce() -> Result<(), Code>) -> c_int {
    match guarded(body, Err(CCPLANE_EPANIC)) {
        Ok(()) => CCPLANE_OK,
        Err(code) => code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transport(size: usize) -> ccplane_transport {
        ccplane_transport {
            size,
            now_ns: 1,
            cwnd: 2,
            rate: 3,
            ssthresh: 4,
        }
    }

    fn seen<T: Struct>(of: *const T) -> Result<T, Code> {
        let mut room = MaybeUninit::uninit();
        // SAFETY: the tests say sizes that are there.
        unsafe { view(of, &mut room) }.copied()
    }

    #[test]
    fn a_size_that_cannot_be_is_refused() {
        let whole = size_of::<ccplane_transport>();
        assert_eq!(
            seen(std::ptr::null::<ccplane_transport>()).err(),
            Some(CCPLANE_ENULL)
        );
        for size in [0, 1, 8, whole - 8, whole + 1, usize::MAX, MOST + 8] {
            assert_eq!(seen(&transport(size)).err(), Some(CCPLANE_ESIZE), "{size}");
        }
        assert_eq!(seen(&transport(whole)).unwrap().ssthresh, 4);
    }

    #[test]
    fn an_older_struct_is_continued_with_zeros_and_a_newer_one_taken_where_it_asks_for_nothing_new()
    {
        let short = ccplane_signals::LEAST;
        let mut signals = [7_u64; size_of::<ccplane_signals>() / 8 + 1];
        signals[0] = short as u64;
        let seen_as = |signals: &[u64]| seen(signals.as_ptr().cast::<ccplane_signals>());
        let read = seen_as(&signals).unwrap();
        assert_eq!((read.was_timeout, read.srtt_us, read.paced), (7, 0, 0));
        signals[0] = size_of_val(&signals) as u64;
        assert_eq!(seen_as(&signals).err(), Some(CCPLANE_ESIZE));
        *signals.last_mut().unwrap() = 0;
        assert_eq!(seen_as(&signals).unwrap().paced, 7);
    }

    #[test]
    fn what_does_not_fit_is_not_written() {
        let mut stats = [1_u64; 5];
        stats[0] = 24;
        // SAFETY: 24 of 40 bytes.
        let room = unsafe { Room::at(stats.as_mut_ptr().cast::<ccplane_stats>()) }.unwrap();
        room.fill(&ccplane_stats {
            size: 0,
            opened: 9,
            closed: 9,
            reports: 9,
            fallbacks: 9,
        });
        assert_eq!(stats, [24, 9, 9, 1, 1]);
    }

    #[test]
    fn a_panic_becomes_a_code() {
        assert_eq!(call(|| panic!("in a call")), CCPLANE_EPANIC);
    }
}
