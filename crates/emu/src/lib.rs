//! The emulator: the links of [`ccplane_qdisc`] under real packets, in real time.
//!
//! [`Emulator`] joins two network namespaces by a pair of TUN devices and carries every packet between them through a
//! queue, a line and a delay of your choice. It audits itself: every packet's lateness against its plan, its own
//! drops and the kernel's are in the [`EmuReport`], and a run beyond the stated [`Bounds`] is not [`Audit::ok`].
#![forbid(unsafe_code)]

mod audit;
pub mod bench;
mod clock;
mod config;
mod control;
mod direction;
mod driver;
mod emulator;
mod error;
mod log;
mod path;
pub mod remote;
mod shell;
mod store;

pub use audit::{Audit, Bounds};
pub use ccplane_qdisc as qdisc;
pub use config::{Config, LinkConfig, Timing};
pub use control::{Control, Progress, Way};
pub use emulator::Emulator;
pub use error::Error;
pub use log::{Fate, LinkLog, Record};
pub use path::EmuReport;
pub use shell::{HOST_VARIABLE, ShellInfo, ShellReport, shell};
