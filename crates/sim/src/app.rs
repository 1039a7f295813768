//! Applications: code that adds flows while a simulation runs. It is woken at chosen times and at
//! events of its flows.

use std::any::Any;

use ccplane_units::Time;

use crate::event::EventKind;
use crate::{DataDirection, FlowId, SimError, World};

/// Application, numbered in the order of addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AppId(pub(crate) u32);

/// Reason for which an application is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeReason {
    /// The requested time was reached.
    Timer,
    /// The bytes of one write in this direction of a flow have arrived. Reported once per write, in
    /// order.
    Received(FlowId, DataDirection),
    /// A flow failed.
    Failed(FlowId),
}

/// Application. It can inspect the whole simulation and add flows; [`World::add_app_flow`] adds its
/// own.
///
/// ```
/// use ccplane_sim::{App, AppId, FlowSpec, NodeId, WakeReason, World};
/// use ccplane_units::{Duration, Time};
///
/// /// Starts a flow of 100 kB every second.
/// struct Periodic {
///     from: NodeId,
///     to: NodeId,
/// }
///
/// impl App for Periodic {
///     fn wake(
///         &mut self,
///         now: Time,
///         me: AppId,
///         cause: WakeReason,
///         world: &mut World,
///     ) -> Option<Time> {
///         if cause != WakeReason::Timer {
///             return None;
///         }
///         let flow = FlowSpec::new(self.from, self.to).with_bytes(100_000).starting_at(now);
///         if let Err(error) = world.add_app_flow(me, flow) {
///             world.fail(error);
///         }
///         Some(now + Duration::from_secs(1))
///     }
/// }
/// ```
pub trait App: Any + Send {
    /// Wakes the application. Returns the time of its next [`WakeReason::Timer`], which replaces an
    /// earlier request; `None` keeps the earlier request.
    fn wake(&mut self, now: Time, me: AppId, cause: WakeReason, world: &mut World) -> Option<Time>;
}

/// Application with the time of its next wake-up.
pub(crate) struct InstalledApp {
    pub app: Option<Box<dyn App>>,
    pub next_wake: Time,
}

impl std::fmt::Debug for InstalledApp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Installed")
            .field("next", &self.next_wake)
            .finish_non_exhaustive()
    }
}

impl World {
    /// Adds an application, which is woken first at `first`.
    pub fn add_app(&mut self, app: Box<dyn App>, first: Time) -> AppId {
        let id = self.apps.len() as u32;
        let first = first.max(self.now);
        self.apps.push(InstalledApp {
            app: Some(app),
            next_wake: first,
        });
        self.events.push(first, EventKind::App, id);
        AppId(id)
    }

    /// Returns an application, downcast to its type.
    pub fn app<A: App>(&self, id: AppId) -> Option<&A> {
        let app = self.apps.get(id.0 as usize)?.app.as_deref()?;
        (app as &dyn Any).downcast_ref()
    }

    /// Ends the run with an error. Applications report errors this way.
    pub fn fail(&mut self, error: SimError) {
        self.error.get_or_insert(error);
    }

    /// Wakes an application and schedules its next wake-up.
    pub(crate) fn wake(&mut self, app: u32, cause: WakeReason) {
        let Some(mut woken) = self
            .apps
            .get_mut(app as usize)
            .and_then(|installed| installed.app.take())
        else {
            return;
        };
        let next = woken.wake(self.now, AppId(app), cause, self);
        let installed = &mut self.apps[app as usize];
        installed.app = Some(woken);
        if let Some(next) = next {
            installed.next_wake = next.max(self.now);
            self.events.push(installed.next_wake, EventKind::App, app);
        }
    }
}
