//! What makes flows while a simulation runs: applications, woken at times of their choice and at the end of their flows.

use std::any::Any;

use ccplane_units::Time;

use crate::{Direction, FlowId, World};

/// An application, numbered in the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AppId(pub(crate) u32);

/// Why an application is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The time that it asked for has come.
    Time,
    /// Everything that was written so far in this direction of one of its flows has arrived, in order.
    Received(FlowId, Direction),
    /// One of its flows was given up.
    Failed(FlowId),
}

/// An application. It may look at everything and add flows, its own ones by [`World::add_flow_of`].
pub trait App: Any + Send {
    /// It is woken; it answers when it wants to be woken next for the [time](Cause::Time). Of several such answers the
    /// last counts; `None` leaves things as they are.
    fn wake(&mut self, now: Time, me: AppId, cause: Cause, world: &mut World) -> Option<Time>;
}
