//! Handle of a datapath for C: a pointer that is checked on every call.
//!
//! It is never freed, so that a call with a closed handle is an error and not undefined behaviour;
//! about 24 bytes per opened datapath are leaked. Only one call at a time may use it. A concurrent
//! call from a second thread is rejected, not delayed.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::caller_memory::ErrorCode;
use crate::plane::CPlane;
use crate::types::*;

/// Handle of a datapath. Only one thread at a time may use it.
#[allow(non_camel_case_types, reason = "the name in C")]
pub struct ccplane_datapath {
    state: AtomicU32,
    plane: UnsafeCell<Option<Box<CPlane>>>,
}

const STATE_READY: u32 = 0x6363_7001;
const STATE_BUSY: u32 = 0x6363_7002;
const STATE_CLOSED: u32 = 0x6363_7003;

// SAFETY: `plane` is accessed only by the call that changed `state` from READY to BUSY, which one
// thread does at a time. `CPlane` is `Send`, as asserted below.
unsafe impl Sync for ccplane_datapath {}
const _: () = {
    const fn sent<T: Send>() {}
    sent::<CPlane>();
};

/// Keeps all handles reachable for leak checkers.
static ALL_HANDLES: Mutex<Vec<&'static ccplane_datapath>> = Mutex::new(Vec::new());

impl ccplane_datapath {
    /// Leaks a new handle.
    pub(crate) fn new(plane: CPlane) -> *mut ccplane_datapath {
        let handle: &'static ccplane_datapath = Box::leak(Box::new(ccplane_datapath {
            state: AtomicU32::new(STATE_READY),
            plane: UnsafeCell::new(Some(Box::new(plane))),
        }));
        ALL_HANDLES
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(handle);
        (&raw const *handle).cast_mut()
    }
}

/// Exclusive access to a datapath during a call.
pub(crate) struct EnteredHandle {
    handle: &'static ccplane_datapath,
    /// Not a reference: as an argument of [`EnteredHandle::close`] it would have to outlive that
    /// call, which removes the plane.
    plane: NonNull<CPlane>,
}

impl EnteredHandle {
    /// Enters a call.
    ///
    /// # Safety
    ///
    /// `handle` is null or was returned by [`ccplane_datapath::new`].
    #[inline(always)]
    pub unsafe fn enter(handle: *const ccplane_datapath) -> Result<EnteredHandle, ErrorCode> {
        // SAFETY: the caller guarantees that a non-null handle was leaked by `new`; no exclusive
        // reference to it is ever created.
        let handle: &'static ccplane_datapath = unsafe { handle.as_ref() }.ok_or(CCPLANE_ENULL)?;
        let taken = handle.state.compare_exchange(
            STATE_READY,
            STATE_BUSY,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        match taken {
            Ok(_) => {}
            Err(STATE_BUSY) => return Err(CCPLANE_EBUSY),
            Err(_) => return Err(CCPLANE_ECLOSED),
        }
        // SAFETY: this call changed the state to BUSY and has exclusive access until `drop` or
        // `close`.
        let plane = unsafe { &mut *handle.plane.get() };
        match plane.as_deref_mut() {
            Some(plane) => Ok(EnteredHandle {
                handle,
                plane: NonNull::from(plane),
            }),
            // Unreachable: the plane is removed only together with a change to CLOSED.
            None => Err(CCPLANE_ECLOSED),
        }
    }

    /// Closes the datapath permanently.
    pub fn close(self) -> Box<CPlane> {
        let handle = self.handle;
        std::mem::forget(self);
        // SAFETY: this call changed the state to BUSY and has exclusive access; `self` is consumed,
        // so no reference to the plane exists.
        let plane = unsafe { &mut *handle.plane.get() }.take();
        handle.state.store(STATE_CLOSED, Ordering::Release);
        plane.expect("the lock was taken")
    }
}

impl Drop for EnteredHandle {
    #[inline(always)]
    fn drop(&mut self) {
        self.handle.state.store(STATE_READY, Ordering::Release);
    }
}

impl Deref for EnteredHandle {
    type Target = CPlane;

    fn deref(&self) -> &CPlane {
        // SAFETY: `enter` created the pointer from a plane to which this call has exclusive access
        // until `self` is dropped.
        unsafe { self.plane.as_ref() }
    }
}

impl DerefMut for EnteredHandle {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut CPlane {
        // SAFETY: see `deref`; `self` is borrowed exclusively.
        unsafe { self.plane.as_mut() }
    }
}
