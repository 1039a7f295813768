//! Connection controlled by an agent: implements [`CongestionControl`] for a datapath flow.

use ccplane_datapath::{Capabilities, Outcome, SteeredFlow};
use ccplane_units::Time;

use crate::control::{CongestionControl, ControlEvent};

/// Capabilities that a connection offers to an agent on any host. With
/// [`Config::stamps`](crate::TransportConfig::stamps) also [`Capabilities::ONE_WAY_DELAY`].
pub const CAPABILITIES: Capabilities = Capabilities::CWND
    .union(Capabilities::PACING)
    .union(Capabilities::RTT)
    .union(Capabilities::DELIVERY_RATE)
    .union(Capabilities::ECN)
    .union(Capabilities::TIMERS)
    .union(Capabilities::RECOVERY)
    .union(Capabilities::KEEPS_WINDOW);

impl<F: SteeredFlow> CongestionControl for F {
    const STEERED: bool = true;

    #[inline(always)]
    fn on_event(&mut self, event: &ControlEvent<'_>) -> Outcome {
        self.on_ack(&event.transport(), &event.signals())
    }

    #[inline]
    fn next_deadline(&self) -> Option<Time> {
        SteeredFlow::next_deadline(self)
    }

    fn on_deadline(&mut self, event: &ControlEvent<'_>) -> Outcome {
        SteeredFlow::on_deadline(self, &event.transport())
    }
}
