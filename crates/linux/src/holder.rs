//! What holds a registration in the kernel, and its replacement while traffic runs: a program that was installed later is
//! interpreted for flows that live, and compiled for new ones once another object stands behind the same name.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use ccplane_datapath::Program;
use libbpf_rs::{Link, Object};

use crate::clock;
use crate::codegen;
use crate::error::LoadError;
use crate::layout::{PADS, Slot};
use crate::load::{self, AlgorithmSpec, KernelFeatures, Options, Pads};
use crate::memory::{Access, Shared};

/// An object and the pads that it has filled.
type Made = Result<([bool; PADS], Object), LoadError>;

/// The registration and the object behind it.
pub(crate) struct Holder {
    /// Before the object: without real links (before Linux 6.4) it stands on the object's descriptor. `None` after a
    /// replacement that failed half-way, which only such kernels have.
    link: Option<Link>,
    object: Object,
    /// What the next object has in its pads.
    pads: Pads,
    /// Pads that this object has filled.
    filled: [bool; PADS],
    spec: AlgorithmSpec,
    options: Options,
    features: KernelFeatures,
    under_way: Option<JoinHandle<Made>>,
    /// A program came since the object under way was begun.
    stale: bool,
}

impl Holder {
    pub fn new(
        link: Link,
        object: Object,
        pads: Pads,
        spec: &AlgorithmSpec,
        options: &Options,
        features: KernelFeatures,
    ) -> Holder {
        Holder {
            link: Some(link),
            object,
            filled: pads.each_ref().map(Option::is_some),
            pads,
            spec: spec.clone(),
            options: options.clone(),
            features,
            under_way: None,
            stale: false,
        }
    }

    /// True where a later program can be compiled: it fits a pad, and the registration can be replaced. A pinned one
    /// before Linux 6.4 cannot, as its pin is the old object.
    pub fn takes(&self, program: &Program) -> bool {
        (self.features.links || !self.options.pin) && codegen::compile(program).is_ok()
    }

    /// True where the object that new flows run has code in the pad of this place.
    pub fn has(&self, place: usize) -> bool {
        self.filled.get(place).is_some_and(|filled| *filled)
    }

    /// Has an object made with `program` in `pad`. Loading takes tens of milliseconds, in which the agent goes on.
    pub fn compile(&mut self, pad: usize, program: &Arc<Program>) {
        self.pads[pad] = Some(program.clone());
        self.stale = true;
        self.step();
    }

    /// Takes an object that is finished, and begins the next where one is due.
    pub fn step(&mut self) {
        if self.under_way.as_ref().is_some_and(JoinHandle::is_finished)
            && let Some(done) = self.under_way.take()
        {
            let made = done
                .join()
                .unwrap_or_else(|_| Err(LoadError::Mismatch("compiling panicked".to_owned())));
            if let Err(error) = made.and_then(|(filled, object)| self.replace(filled, object)) {
                tracing::warn!(name = self.spec.kernel_name, %error, "later programs stay in the interpreter");
            }
        }
        if self.stale && self.under_way.is_none() {
            self.stale = false;
            self.begin();
        }
    }

    /// The ring, and the table once more.
    pub fn bench_ends(&self) -> Result<(OwnedFd, Shared<Slot>), LoadError> {
        let table = load::map_fd(&self.object, "table")?;
        let table = Shared::map(table.as_fd(), self.options.flows as usize, Access::Write);
        Ok((
            load::map_fd(&self.object, "ring")?,
            table.map_err(LoadError::io("mapping the table"))?,
        ))
    }

    fn begin(&mut self) {
        let shared = match load::shared_maps(&self.object) {
            Ok(shared) => shared,
            Err(error) => return tracing::warn!(%error, "later programs stay in the interpreter"),
        };
        let (spec, pads, options, features) = (
            self.spec.clone(),
            self.pads.clone(),
            self.options.clone(),
            self.features,
        );
        self.under_way = Some(std::thread::spawn(move || {
            let object = load::build(&spec, &pads, &options, features, &shared)?;
            Ok((pads.each_ref().map(Option::is_some), object))
        }));
    }

    fn replace(&mut self, filled: [bool; PADS], mut object: Object) -> Result<(), LoadError> {
        let started = clock::now();
        match &mut self.link {
            Some(link) if self.features.links => load::replace(link, &mut object, self.features)?,
            link => {
                // Unregister, register: in between no socket can choose the name.
                *link = None;
                *link = Some(load::register(&mut object, &self.spec, self.features)?);
            }
        }
        self.object = object;
        self.filled = filled;
        let took_us = clock::now().since(started).as_micros();
        tracing::info!(
            name = self.spec.kernel_name,
            took_us,
            gap = !self.features.links,
            "later programs are compiled"
        );
        Ok(())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        if let Some(under_way) = self.under_way.take() {
            let _ = under_way.join();
        }
    }
}
