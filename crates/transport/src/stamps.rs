//! What a connection learns from the time stamps of both ends, where [`Config::stamps`](crate::Config::stamps) asks for them.
//!
//! Without more they are of the clock by which the connection is driven. A driver that knows better puts its own in their
//! place: [`Connection::handle_arrived`] takes the moment of arrival (t2 of data, t4 of an acknowledgement); t1 and t3 of what
//! leaves are in the [`Side`](crate::Side) that [`Connection::transmit`] fills; and t1 of an acknowledgement that comes in, where the true one was
//! only known once the data had left, in the `Side` that goes to [`Connection::handle_arrived`]. The stamps of a host have to be of one
//! clock, t1 with t4 and t2 with t3, which need not be the one that drives it. They count nanoseconds and may wrap.

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
    /// Takes the stamps of an exchange that ended now; false where they cannot be true.
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
        self.stamped().map_or_else(OneWay::default, |stamped| stamped.one_way)
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
