//! One-way delay from the time stamps of both ends.
//! [`Config::stamps`](crate::TransportConfig::stamps) enables them.
//!
//! By default stamps are taken from the clock that drives the connection. A driver may replace each
//! by a more precise one. [`Connection::handle_at`] takes the arrival time: t2 of data, t4 of an
//! acknowledgement. [`Connection::transmit`] puts t1 and t3 into the [`Side`](crate::SideData) of
//! outgoing segments. If the driver learns t1 only after sending the data, it corrects t1 in the
//! `Side` of the acknowledgement that it passes to [`Connection::handle_at`]. All stamps of a host
//! must come from one clock: t1 and t4 from the clock of one host, t2 and t3 from the clock of the
//! other. That clock need not drive the connection. Stamps count nanoseconds and may wrap.

use ccplane_datapath::{ExchangeStamps, OneWay, Signals};
use ccplane_units::Time;

use crate::connection::Connection;

/// Stamps of the last exchange and the estimate over all exchanges.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastExchange {
    pub last: ExchangeStamps,
    pub one_way: OneWay,
}

impl LastExchange {
    /// Adds the stamps of an exchange that ended now. Returns false if they are implausible.
    pub fn add_exchange(&mut self, now: Time, stamps: ExchangeStamps) -> bool {
        self.last = stamps;
        self.one_way.sample(now, &stamps)
    }
}

impl Connection {
    fn last_exchange(&self) -> Option<&LastExchange> {
        self.repair.as_ref()?.stamps.as_deref()
    }

    /// Returns the four stamps of the last exchange.
    pub fn stamps(&self) -> Option<ExchangeStamps> {
        self.last_exchange().map(|stamped| stamped.last)
    }

    /// Returns the queueing-delay estimate of the path to the peer.
    pub fn one_way(&self) -> OneWay {
        self.last_exchange()
            .map_or_else(OneWay::default, |stamped| stamped.one_way)
    }

    /// Writes the signals derived from stamps; `fresh`: this event carried new stamps.
    #[inline(always)]
    pub(crate) fn write_stamps(&self, now: Time, fresh: bool, signals: &mut Signals) {
        if self.config.stamps
            && let Some(stamped) = self.last_exchange()
        {
            stamped.one_way.write(now, fresh, self.srtt(), signals);
        }
    }
}
