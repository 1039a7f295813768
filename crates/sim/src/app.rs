//! What makes flows while a simulation runs: applications, woken at times of their choice and at
//! the end of their flows.

use std::any::Any;

use ccplane_units::Time;

use crate::event::Kind;
use crate::{Direction, FlowId, SimError, World};

/// An application, numbered in the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AppId(pub(crate) u32);

/// Why an application is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The time that it asked for has come.
    Time,
    /// The bytes of one write in this direction of one of its flows have arrived: once per write,
    /// in order.
    Received(FlowId, Direction),
    /// One of its flows was given up.
    Failed(FlowId),
}

/// An application. It may look at everything and add flows, its own ones by [`World::add_flow_of`].
pub trait App: Any + Send {
    /// The application is woken. It answers when it wants to be woken next for the
    /// [time](Cause::Time). Of several such answers the last counts. `None` leaves things as they
    /// are.
    fn wake(&mut self, now: Time, me: AppId, cause: Cause, world: &mut World) -> Option<Time>;
}

/// An application and its next event.
pub(crate) struct Installed {
    pub app: Option<Box<dyn App>>,
    pub next: Time,
}

impl std::fmt::Debug for Installed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Installed")
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl World {
    /// Adds an application, which is woken first at this time.
    pub fn add_app(&mut self, app: Box<dyn App>, first: Time) -> AppId {
        let id = self.apps.len() as u32;
        let first = first.max(self.now);
        self.apps.push(Installed {
            app: Some(app),
            next: first,
        });
        self.events.push(first, Kind::App, id);
        AppId(id)
    }

    /// An application, as what it is.
    pub fn app<A: App>(&self, id: AppId) -> Option<&A> {
        let app = self.apps.get(id.0 as usize)?.app.as_deref()?;
        (app as &dyn Any).downcast_ref()
    }

    /// Ends the run with an error: for applications, which have nobody else to tell.
    pub fn fail(&mut self, error: SimError) {
        self.failed.get_or_insert(error);
    }

    /// An application is woken.
    pub(crate) fn wake(&mut self, app: u32, cause: Cause) {
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
            installed.next = next.max(self.now);
            self.events.push(installed.next, Kind::App, app);
        }
    }
}
