//! Validation of data from C before anything else uses it: structs with a size field, strings, and
//! panics at the boundary.

use std::ffi::{CStr, c_char, c_int};
use std::mem::{MaybeUninit, forget, offset_of};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::types::*;

/// Error code of `ccplane.h`.
pub(crate) type ErrorCode = c_int;

/// Upper bound of a struct's size in any version, bytes. A larger size means that the struct was
/// not initialized.
const STRUCT_BYTES_MAX: usize = 4096;

/// Struct of the C header.
///
/// # Safety
///
/// The type is `repr(C)`, its first field is a `usize`, it has no padding, and every bit pattern is
/// valid.
pub(crate) unsafe trait Struct: Copy {
    /// Smallest useful size in bytes.
    const SIZE_BYTES_MIN: usize;
}

/// Size of a struct that ends with this field.
macro_rules! upto {
    ($kind:ident, $field:ident) => {
        offset_of!($kind, $field) + 8
    };
}

// SAFETY: the struct is `repr(C)` and starts with `size: usize`. Its other fields are 8-byte
// integers or pointers; `ccplane_outcome` has two 4-byte integers, and `ccplane_error` ends with a
// byte array whose length is a multiple of 8. There is no padding and all bit patterns are valid.
unsafe impl Struct for ccplane_options {
    const SIZE_BYTES_MIN: usize = upto!(ccplane_options, capabilities);
}
// SAFETY: see `ccplane_options`.
unsafe impl Struct for ccplane_error {
    const SIZE_BYTES_MIN: usize = upto!(ccplane_error, code);
}
// SAFETY: see `ccplane_options`.
unsafe impl Struct for ccplane_flow_info {
    const SIZE_BYTES_MIN: usize = upto!(ccplane_flow_info, mss);
}
// SAFETY: see `ccplane_options`.
unsafe impl Struct for ccplane_transport {
    const SIZE_BYTES_MIN: usize = upto!(ccplane_transport, ssthresh);
}
// SAFETY: see `ccplane_options`.
unsafe impl Struct for ccplane_signals {
    const SIZE_BYTES_MIN: usize = upto!(ccplane_signals, was_timeout);
}
// SAFETY: see `ccplane_options`.
unsafe impl Struct for ccplane_outcome {
    const SIZE_BYTES_MIN: usize = upto!(ccplane_outcome, ssthresh);
}
// SAFETY: see `ccplane_options`.
unsafe impl Struct for ccplane_stats {
    const SIZE_BYTES_MIN: usize = upto!(ccplane_stats, opened);
}

/// Returns the size stored in a struct, if it is plausible.
///
/// # Safety
///
/// `of` is null or valid for reading a `usize`.
unsafe fn declared_size<T: Struct>(of: *const T) -> Result<usize, ErrorCode> {
    if of.is_null() {
        return Err(CCPLANE_ENULL);
    }
    if !of.is_aligned() {
        return Err(CCPLANE_EVALUE);
    }
    // SAFETY: `of` is not null and aligned, and the caller guarantees that its first field is
    // readable.
    let size = unsafe { of.cast::<usize>().read() };
    if size < T::SIZE_BYTES_MIN || size > STRUCT_BYTES_MAX || size % 8 != 0 {
        return Err(CCPLANE_ESIZE);
    }
    Ok(size)
}

/// Returns a struct in this library's version. A struct of an older header is extended with zeros
/// in `room`; one of a newer header is accepted if its additional fields are 0.
///
/// # Safety
///
/// `of` is null, or valid for reading as many bytes as its first field states, for the lifetime of
/// the reference.
#[inline(always)]
pub(crate) unsafe fn view<T: Struct>(
    of: *const T,
    room: &mut MaybeUninit<T>,
) -> Result<&T, ErrorCode> {
    // SAFETY: the caller guarantees that `of` is null or that its first field is readable.
    let size = unsafe { declared_size(of) }?;
    if size == size_of::<T>() {
        // SAFETY: `of` is not null, aligned and, by the caller's guarantee, valid for `size` bytes,
        // which is the size of `T`; every bit pattern of `T` is valid (`Struct`).
        return Ok(unsafe { &*of });
    }
    // SAFETY: the caller guarantees that `of` is valid for `size` bytes; `said` has checked that it
    // is not null.
    unsafe { convert_size(of, size, room) }
}

/// Converts a struct of another version's size.
///
/// # Safety
///
/// Same as [`view`], and `of` is not null.
#[cold]
unsafe fn convert_size<T: Struct>(
    of: *const T,
    size: usize,
    room: &mut MaybeUninit<T>,
) -> Result<&T, ErrorCode> {
    // SAFETY: the caller guarantees that `of` is valid for reading `size` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(of.cast::<u8>(), size) };
    let (known, more) = bytes.split_at(size.min(size_of::<T>()));
    if more.iter().any(|byte| *byte != 0) {
        return Err(CCPLANE_ESIZE);
    }
    *room = MaybeUninit::zeroed();
    // SAFETY: `room` has the size of `T`, `known` is at most as long, and they do not overlap
    // because `room` is a local of the calling function.
    unsafe {
        room.as_mut_ptr()
            .cast::<u8>()
            .copy_from_nonoverlapping(known.as_ptr(), known.len())
    };
    // SAFETY: all bytes were initialized, and every bit pattern of `T` is valid (`Struct`).
    Ok(unsafe { room.assume_init_ref() })
}

/// Output struct of the caller.
pub(crate) struct OutStruct<T> {
    to: *mut T,
    size: usize,
}

impl<T: Struct> OutStruct<T> {
    /// Prepares an output struct.
    ///
    /// # Safety
    ///
    /// `to` is null, or valid for reading and writing as many bytes as its first field states,
    /// until [`OutStruct::fill`].
    #[inline(always)]
    pub unsafe fn at(to: *mut T) -> Result<OutStruct<T>, ErrorCode> {
        // SAFETY: the caller guarantees that `to` is null or that its first field is readable.
        let size = unsafe { declared_size(to.cast_const()) }?;
        Ok(OutStruct { to, size })
    }

    /// Copies `value` up to the size of the caller's struct, except for its size field.
    #[inline(always)]
    pub fn fill(self, value: &T) {
        let copy = |bytes: usize| {
            let from = (&raw const *value).cast::<u8>();
            // SAFETY: the caller of `at` guarantees that `to` is valid for `size` bytes, and
            // `bytes` exceeds neither `size` nor the size of `value`, which is a local and cannot
            // overlap. The first field is skipped on both sides.
            unsafe {
                let to = self.to.cast::<u8>().add(size_of::<usize>());
                to.copy_from_nonoverlapping(
                    from.add(size_of::<usize>()),
                    bytes - size_of::<usize>(),
                );
            }
        };
        // A constant length compiles to a few moves instead of a call to memcpy.
        if self.size == size_of::<T>() {
            copy(size_of::<T>());
        } else {
            copy(self.size.min(size_of::<T>()));
        }
    }
}

/// Converts a C string; `None` if it is null.
///
/// # Safety
///
/// `text` is null, or a string that ends with a null byte and lives as long as the reference.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<Option<&'a str>, ErrorCode> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: `text` is not null; the caller guarantees a terminated string that lives long enough.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| CCPLANE_EVALUE)
}

/// Runs a call and returns `panicked` if it panics, since a panic must not unwind into C.
#[inline(always)]
pub(crate) fn catch_panic<T>(body: impl FnOnce() -> T, panicked: T) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(payload) => {
            // Dropping the payload could panic again.
            forget(payload);
            panicked
        }
    }
}

/// Runs a call and returns its error code.
#[inline(always)]
pub(crate) fn call(body: impl FnOnce() -> Result<(), ErrorCode>) -> c_int {
    match catch_panic(body, Err(CCPLANE_EPANIC)) {
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

    fn seen<T: Struct>(of: *const T) -> Result<T, ErrorCode> {
        let mut room = MaybeUninit::uninit();
        // SAFETY: the tests pass null, implausible sizes, or sizes of memory that exists.
        unsafe { view(of, &mut room) }.copied()
    }

    #[test]
    fn invalid_sizes_are_refused() {
        let whole = size_of::<ccplane_transport>();
        assert_eq!(
            seen(std::ptr::null::<ccplane_transport>()).err(),
            Some(CCPLANE_ENULL)
        );
        for size in [
            0,
            1,
            8,
            whole - 8,
            whole + 1,
            usize::MAX,
            STRUCT_BYTES_MAX + 8,
        ] {
            assert_eq!(seen(&transport(size)).err(), Some(CCPLANE_ESIZE), "{size}");
        }
        assert_eq!(seen(&transport(whole)).unwrap().ssthresh, 4);
    }

    #[test]
    fn an_older_struct_is_continued_with_zeros_and_a_newer_one_taken_where_it_asks_for_nothing_new()
    {
        let short = ccplane_signals::SIZE_BYTES_MIN;
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
    fn oversized_output_is_not_written() {
        let mut stats = [1_u64; 5];
        stats[0] = 24;
        // SAFETY: 24 of the array's 40 bytes are offered.
        let room = unsafe { OutStruct::at(stats.as_mut_ptr().cast::<ccplane_stats>()) }.unwrap();
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
    fn panics_become_error_codes() {
        assert_eq!(call(|| panic!("in a call")), CCPLANE_EPANIC);
    }
}
