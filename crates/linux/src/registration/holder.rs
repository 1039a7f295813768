//! Holds a registration in the kernel, and replaces its object while traffic runs. A program
//! installed later is interpreted for live flows, and runs compiled for new flows once a new object
//! is registered under the same name.
//!
//! A thread compiles and replaces for as long as the registration is held. It keeps the
//! capabilities of the thread that loaded, which the agent's thread may have dropped, and runs at
//! normal priority rather than the agent's.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

use ccplane_datapath::Program;
use libbpf_rs::{Link, Object};

use crate::clock;
use crate::codegen;
use crate::cost::{Cost, run_times};
use crate::error::LoadError;
use crate::map::layout::FlowSlot;
use crate::map::memory::{Access, SharedMemory};
use crate::registration::load::{self, AlgorithmSpec, KernelFeatures, Pads, RegistrationOptions};

/// A held registration, and the channel to the thread that compiles its programs.
pub(crate) struct Holder {
    registration: Arc<Registration>,
    /// Programs for the pads of the next object.
    pads: Pads,
    /// `None` if the thread could not be started.
    compiler: Option<Compiler>,
}

/// Shared memory from the datapath's side, for the bench.
pub(crate) struct BenchMemory {
    pub ring: OwnedFd,
    pub plane: OwnedFd,
    /// A second mapping of the table.
    pub table: SharedMemory<FlowSlot>,
}

/// The compiling thread, which ends when its channel is closed.
struct Compiler {
    requests: mpsc::Sender<Pads>,
    thread: JoinHandle<()>,
}

/// State shared by the agent's thread and the compiling thread.
struct Registration {
    held: Mutex<HeldRegistration>,
    /// Bit per pad: filled in the object that new flows run.
    filled_pads: AtomicU32,
    spec: AlgorithmSpec,
    options: RegistrationOptions,
    features: KernelFeatures,
}

/// The registration and its object.
struct HeldRegistration {
    /// Dropped before the object: before Linux 6.4 (no links) it uses the object's descriptor.
    /// `None` after a replacement that failed halfway, which is possible only on such kernels.
    link: Option<Link>,
    object: Object,
}

impl Holder {
    pub fn new(
        link: Link,
        object: Object,
        pads: Pads,
        spec: &AlgorithmSpec,
        options: &RegistrationOptions,
        features: KernelFeatures,
    ) -> Holder {
        let held = HeldRegistration {
            link: Some(link),
            object,
        };
        let registration = Arc::new(Registration {
            held: Mutex::new(held),
            filled_pads: AtomicU32::new(filled(&pads)),
            spec: spec.clone(),
            options: options.clone(),
            features,
        });
        let compiler = Compiler::start(&registration);
        if let Err(error) = &compiler {
            tracing::warn!(%error, "cannot create the compiler thread; later programs stay in the \
                interpreter");
        }
        Holder {
            registration,
            pads,
            compiler: compiler.ok(),
        }
    }

    /// Returns true if `program` can be compiled later: it fits a pad, and the registration can be
    /// replaced. A pinned registration before Linux 6.4 cannot, since its pin is the old object.
    pub fn can_compile(&self, program: &Program) -> bool {
        let Registration {
            features, options, ..
        } = &*self.registration;
        let replaceable = features.links || !options.pin;
        replaceable && self.compiler.is_some() && codegen::compile(program).is_ok()
    }

    /// Returns the kernel's statistics of the object that new flows run.
    pub fn run_times(&self) -> Vec<Cost> {
        run_times(&self.registration.held().object)
    }

    /// Returns true if the object that new flows run has code in pad `place`.
    pub fn is_compiled(&self, pad: usize) -> bool {
        let filled = self.registration.filled_pads.load(Acquire);
        filled
            .checked_shr(pad as u32)
            .is_some_and(|bits| bits & 1 == 1)
    }

    /// Requests an object with `program` in `pad`. Loading takes tens of milliseconds, during which
    /// the agent continues.
    pub fn compile(&mut self, pad: usize, program: &Arc<Program>) {
        self.pads[pad] = Some(program.clone());
        if let Some(compiler) = &self.compiler
            && compiler.requests.send(self.pads.clone()).is_err()
        {
            tracing::warn!("the compiler thread has ended; later programs stay in the interpreter");
        }
    }

    pub fn bench_memory(&self) -> Result<BenchMemory, LoadError> {
        let held = self.registration.held();
        let table = load::map_fd(&held.object, "table")?;
        let table = SharedMemory::map(
            table.as_fd(),
            self.registration.options.flows as usize,
            Access::Write,
        );
        Ok(BenchMemory {
            ring: load::map_fd(&held.object, "ring")?,
            plane: load::map_fd(&held.object, ".data.plane")?,
            table: table.map_err(LoadError::io("mapping the table"))?,
        })
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        if let Some(Compiler {
            requests: orders,
            thread,
        }) = self.compiler.take()
        {
            drop(orders);
            let _ = thread.join();
        }
    }
}

impl Compiler {
    fn start(registration: &Arc<Registration>) -> std::io::Result<Compiler> {
        let (orders, taken) = mpsc::channel();
        let registration = Arc::clone(registration);
        let thread = std::thread::Builder::new()
            .name("ccplane-compile".into())
            .spawn(move || {
                if let Err(error) = crate::privilege::keep_capabilities(&[]) {
                    tracing::warn!(%error, "the compiler thread keeps the capabilities of its \
                        process");
                }
                registration.serve(&taken);
            })?;
        Ok(Compiler {
            requests: orders,
            thread,
        })
    }
}

impl Registration {
    /// Compiles until the channel is closed.
    fn serve(&self, orders: &mpsc::Receiver<Pads>) {
        while let Ok(order) = orders.recv() {
            // Each order contains the programs of all earlier ones.
            let pads = orders.try_iter().last().unwrap_or(order);
            if let Err(error) = self.compile(&pads) {
                tracing::warn!(
                    name = self.spec.kernel_name, %error,
                    "later programs stay in the interpreter"
                );
            }
        }
    }

    fn compile(&self, pads: &Pads) -> Result<(), LoadError> {
        let shared = load::shared_maps(&self.held().object)?;
        let object = load::build(&self.spec, pads, &self.options, self.features, &shared)?;
        self.replace(object)?;
        self.filled_pads.store(filled(pads), Release);
        Ok(())
    }

    fn replace(&self, mut object: Object) -> Result<(), LoadError> {
        let started = clock::now();
        let mut held = self.held();
        match &mut held.link {
            Some(link) if self.features.links => load::replace(link, &mut object, self.features)?,
            link => {
                // Unregister, then register: between the two no socket can select the name.
                *link = None;
                *link = Some(load::register(&mut object, &self.spec, self.features)?);
            }
        }
        held.object = object;
        let took_us = clock::now().since(started).as_micros();
        tracing::info!(
            name = self.spec.kernel_name,
            took_us,
            gap = !self.features.links,
            "later programs are compiled"
        );
        Ok(())
    }

    fn held(&self) -> MutexGuard<'_, HeldRegistration> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn filled(pads: &Pads) -> u32 {
    let bits = pads
        .iter()
        .enumerate()
        .map(|(pad, program)| u32::from(program.is_some()) << pad);
    bits.sum()
}
