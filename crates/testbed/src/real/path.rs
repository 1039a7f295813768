//! The two ends of a path, and the state of the link between them.

use ccplane_emu::{EmuHandle, Emulator};
use ccplane_host::Namespace;
use ccplane_units::{Duration, Rate};

use super::accounting::UnloadedTimes;
use super::hosts::PathSide;
use crate::ends::TrafficEnds;

/// A path between two namespaces, in each of which the device to the other is
/// [`DEVICE_NAME`](ccplane_emu::DEVICE_NAME).
pub(crate) struct RealPath<'p> {
    /// By [`PathSide`].
    pub namespaces: [&'p Namespace; 2],
    /// Handle that changes the link during a run; `None` if nothing can change it.
    pub control: Option<EmuHandle>,
    pub(super) unloaded: UnloadedTimes,
}

impl RealPath<'_> {
    /// Returns a path without delay whose forward direction has this rate. It cannot be changed.
    pub fn fixed(ends: &TrafficEnds, rate: Option<Rate>) -> RealPath<'_> {
        RealPath {
            namespaces: [&ends.sender, &ends.receiver],
            control: None,
            unloaded: UnloadedTimes {
                rtt: Duration::ZERO,
                rates: [rate, None],
            },
        }
    }
}

impl<'p> From<&'p Emulator> for RealPath<'p> {
    fn from(emulator: &'p Emulator) -> RealPath<'p> {
        let control = emulator.control();
        let [left, right] = PathSide::SIDES.map(|side| control.link_config(side.direction()));
        RealPath {
            namespaces: [emulator.sender_ns(), emulator.receiver_ns()],
            control: Some(control),
            unloaded: UnloadedTimes {
                rtt: left.delay + right.delay,
                rates: [left.line.mean_rate(), right.line.mean_rate()],
            },
        }
    }
}
