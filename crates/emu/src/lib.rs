//! The emulator: the links of [`ccplane_qdisc`] applied to real packets in real time.
//!
//! [`Emulator`] joins two network namespaces by a pair of TUN devices and passes every packet
//! between them through a configurable queue, line and delay. It audits itself: the [`EmuReport`]
//! has the lateness of the packets, the emulator's own drops and the kernel's, and a run beyond the
//! configured [`Bounds`] is not [`Audit::passed`]. [`shell`] runs a command behind such a path to
//! this host, [`InterfaceBridge`] joins two interfaces by one, and [`remote`] changes one from
//! another process.
//!
//! ```no_run
//! use ccplane_emu::qdisc::{LineSpec, QueueSpec};
//! use ccplane_emu::{EmuConfig, Emulator, LinkConfig, PathDirection};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let link = LinkConfig {
//!     line: LineSpec::Constant("96mbit".parse()?),
//!     delay: "10ms".parse()?,
//!     queue: QueueSpec::ONE_BDP,
//!     ..LinkConfig::default()
//! };
//! let emulator = Emulator::start(EmuConfig {
//!     forward: link.clone(),
//!     reverse: link,
//!     ..EmuConfig::default()
//! })?;
//! let receiver = emulator.receiver_ns();
//! let listener = receiver.run(|| std::net::TcpListener::bind(("10.77.0.2", 5001)))??;
//! // … traffic from emulator.sender_ns() …
//! emulator.control().set_delay(PathDirection::Forward, "30ms".parse()?)?;
//! let report = emulator.finish()?;
//! assert!(report.audit.passed);
//! for packet in report.forward.records() {
//!     println!("{:?} {:?}", packet.arrived, packet.sojourn());
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod audit;
mod bridge;
mod capture;
mod clock;
mod config;
mod control;
mod device;
mod direction;
mod dns_relay;
mod driver;
mod emulator;
mod error;
mod link;
mod log;
mod path;
pub mod remote;
mod shell;
mod wait;

pub use audit::{Audit, Bounds};
pub use bridge::InterfaceBridge;
pub use capture::{Capture, CaptureReport, LoggedPacket, read as read_capture};
pub use ccplane_qdisc as qdisc;
pub use config::{EmuConfig, Gso, LinkConfig, Timing};
pub use control::{DirectionStats, EmuHandle, PathDirection};
pub use emulator::{DEVICE_NAME, Emulator};
pub use error::Error;
pub use log::{Fate, LinkLog, PacketRecord};
pub use path::EmuReport;
pub use shell::{HOST_VARIABLE, ShellInfo, ShellOptions, ShellReport, shell};
