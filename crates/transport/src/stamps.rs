//! What a connection learns from the time stamps of both ends, where [`Config::stamps`](crate::Config::stamps) asks for them.

use ccplane_datapath::{OneWay, Signals, Stamps};
use ccplane_units::Time;

use crate::connection::Connection;

/// The stamps of the last exchange, and what all of them say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stamped {
    pub last: Option<Stamps>,
    pub one_way: OneWay,
}

impl Stamped {
    /// Takes the stamps of an exchange; false where they cannot be true.
    pub fn take(&mut self, stamps: Stamps) -> bool {
        self.last = Some(stamps);
        self.one_way.sample(&stamps)
    }
}

impl Connection {
    /// The four stamps of the last exchange.
    pub fn stamps(&self) -> Option<Stamps> {
        self.repair.as_ref().and_then(|repair| repair.stamps.last)
    }

    /// What the stamps say of queues on the way to the peer.
    pub fn one_way(&self) -> OneWay {
        self.repair
            .as_ref()
            .map_or_else(OneWay::default, |repair| repair.stamps.one_way)
    }

    /// The signals that come from stamps; `fresh`: this event brought some.
    #[inline(always)]
    pub(crate) fn write_stamps(&self, now: Time, fresh: bool, signals: &mut Signals) {
        if let Some(repair) = self.repair.as_ref().filter(|_| self.config.stamps) {
            repair.stamps.one_way.write(now, fresh, self.srtt(), signals);
        }
    }
}
