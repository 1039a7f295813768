//! What a connection learns from the time stamps of both ends. They are on with
//! [`Config::stamps`](crate::Config::stamps).
//!
//! By default stamps are taken from the clock that drives the connection. A driver may replace each
//! by a better one. [`Connection::handle_arrived`] takes the time of arrival: t2 of data, t4 of an
//! acknowledgement. [`Connection::transmit`] puts t1 and t3 of what leaves into the
//! [`Side`](crate::Side). Where t1 is known only after the data has left, the driver corrects it in
//! the `Side` of the acknowledgement that it passes to [`Connection::handle_arrived`]. All stamps
//! of a host must come from one clock: t1 and t4 of the one, t2 and t3 of the other. It need not be
//! the clock that drives the connection. Stamps count nanoseconds and may wrap.

use ccplane_datapath::{OneWay, Signals, Stamps};
use ccplane_units::Time;

use crate::connection::Connection;

/// The stamps of the last exchange, and what all of them say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stamped {
    pub last: Stamps,
    pub one_way: OneWay,
}

impl Stamped {
    /// Takes the stamps of an exchange that ended now. Returns false where they cannot be true.
    pub fn take(&mut self, now: Time, stamps: Stamps) -> bool {
        self.last = stamps;
        self.one_way.sample(now, &stamps)
    }
}

impl Connection {
    fn stamped(&self) -> Option<&Stamped> {
        self.repair.as_ref()?.stamps.as_deref()
    }

    /// The four stamps of the last exchange.
    pub fn stamps(&self) -> Option<Stamps> {
        self.stamped().map(|stamped| stamped.last)
    }

    /// What the stamps say of queues on the way to the peer.
    pub fn one_way(&self) -> OneWay {
        self.stamped()
            .map_or_else(OneWay::default, |stamped| stamped.one_way)
    }

    /// The signals that come from stamps; `fresh`: this event brought some.
    #[inline(always)]
    pub(crate) fn write_stamps(&self, now: Time, fresh: bool, signals: &mut Signals) {
        if self.config.stamps
            && let Some(stamped) = self.stamped()
        {
            stamped.one_way.write(now, fresh, self.srtt(), signals);
        }
    }
}
