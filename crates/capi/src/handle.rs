//! What C has of a datapath: a pointer that is checked at every call.
//!
//! It is never freed, so that a call with a closed one is an error rather than undefined: some 24
//! bytes stay for each datapath that was opened. One call at a time has it. A second thread is
//! refused rather than made to wait.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::foreign::Code;
use crate::plane::Plane;
use crate::types::*;

/// A datapath. One thread at a time may call for it.
#[allow(non_camel_case_types, reason = "the name of C")]
pub struct ccplane_datapath {
    state: AtomicU32,
    plane: UnsafeCell<Option<Box<Plane>>>,
}

const READY: u32 = 0x6363_7001;
const BUSY: u32 = 0x6363_7002;
const CLOSED: u32 = 0x6363_7003;

// SAFETY: `plane` is touched only by who took `state` from READY to BUSY, which one thread does at
// a time; what is in it may move between threads.
unsafe impl Sync for ccplane_datapath {}
const _: () = {
    const fn sent<T: Send>() {}
    sent::<Plane>();
};

/// So that tools that look for leaks see that somebody knows of them.
static ALL: Mutex<Vec<&'static ccplane_datapath>> = Mutex::new(Vec::new());

impl ccplane_datapath {
    /// A new one.
    pub(crate) fn new(plane: Plane) -> *mut ccplane_datapath {
        let handle: &'static ccplane_datapath = Box::leak(Box::new(ccplane_datapath {
            state: AtomicU32::new(READY),
            plane: UnsafeCell::new(Some(Box::new(plane))),
        }));
        ALL.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(handle);
        (&raw const *handle).cast_mut()
    }
}

/// A datapath for the time of a call.
pub(crate) struct Entered {
    handle: &'static ccplane_datapath,
    /// Not a reference: as an argument of [`Entered::close`] it would have to outlive that call,
    /// which takes the plane away.
    plane: NonNull<Plane>,
}

impl Entered {
    /// Enters a call.
    ///
    /// # Safety
    /// `handle` is null, or [`ccplane_datapath::new`] gave it.
    #[inline(always)]
    pub unsafe fn enter(handle: *const ccplane_datapath) -> Result<Entered, Code> {
        // SAFETY: where it is not null it was leaked by `new`, and nothing takes `&mut` of it.
        let handle: &'static ccplane_datapath = unsafe { handle.as_ref() }.ok_or(CCPLANE_ENULL)?;
        let taken =
            handle
                .state
                .compare_exchange(READY, BUSY, Ordering::Acquire, Ordering::Relaxed);
        match taken {
            Ok(_) => {}
            Err(BUSY) => return Err(CCPLANE_EBUSY),
            Err(_) => return Err(CCPLANE_ECLOSED),
        }
        // SAFETY: whoever made it BUSY has it alone, until `drop` or `close`.
        let plane = unsafe { &mut *handle.plane.get() };
        match plane.as_deref_mut() {
            Some(plane) => Ok(Entered {
                handle,
                plane: NonNull::from(plane),
            }),
            // Not reached: it is taken out only with CLOSED.
            None => Err(CCPLANE_ECLOSED),
        }
    }

    /// Ends it for ever.
    pub fn close(self) -> Box<Plane> {
        let handle = self.handle;
        std::mem::forget(self);
        // SAFETY: this call made it BUSY and has it alone; no reference to the plane lives.
        let plane = unsafe { &mut *handle.plane.get() }.take();
        handle.state.store(CLOSED, Ordering::Release);
        plane.expect("it was entered")
    }
}

impl Drop for Entered {
    #[inline(always)]
    fn drop(&mut self) {
        self.handle.state.store(READY, Ordering::Release);
    }
}

impl Deref for Entered {
    type Target = Plane;

    fn deref(&self) -> &Plane {
        // SAFETY: `enter` made it of a plane that this call has alone until `self` ends.
        unsafe { self.plane.as_ref() }
    }
}

impl DerefMut for Entered {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Plane {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { self.plane.as_mut() }
    }
}
