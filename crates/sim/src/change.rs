//! Changes of a network at run time.

use ccplane_network::{NetworkChange, NetworkError, Routing};
use ccplane_units::Time;

use crate::{SimError, World};

impl World {
    /// Returns an error if the change cannot be applied.
    pub(crate) fn check_change(&self, change: &NetworkChange) -> Result<(), SimError> {
        match change {
            NetworkChange::Line(link, line) => {
                self.check_link(*link)?;
                match line.mean_rate() {
                    Some(rate) if rate.bytes_per_sec() == 0 => {
                        Err(NetworkError::ZeroRate(self.network.link_name(*link)).into())
                    }
                    _ => Ok(()),
                }
            }
            NetworkChange::Delay(link, _)
            | NetworkChange::Loss(link, _)
            | NetworkChange::Down(link)
            | NetworkChange::Up(link) => self.check_link(*link),
            NetworkChange::Route(at, to, link) => Ok(self.network.check_route(*at, *to, *link)?),
        }
    }

    pub(crate) fn change(&mut self, now: Time, change: NetworkChange) -> Result<(), SimError> {
        match change {
            NetworkChange::Line(link, line) => {
                self.links.set_line(now, link.0, line, &mut self.events)
            }
            NetworkChange::Delay(link, delay) => {
                self.links.set_delay(now, link.0, delay, &mut self.events)
            }
            NetworkChange::Loss(link, loss) => self.links.set_loss(link.0, loss, self.options.seed),
            NetworkChange::Down(link) => {
                self.links.set_up(link.0, false);
                self.find_routes()?;
            }
            NetworkChange::Up(link) => {
                self.links.set_up(link.0, true);
                self.find_routes()?;
            }
            NetworkChange::Route(at, to, link) => {
                self.network.reroute(at, to, link);
                self.find_routes()?;
            }
        }
        Ok(())
    }

    fn find_routes(&mut self) -> Result<(), SimError> {
        let links = &self.links;
        self.routing = Routing::new(&self.network, |link| links.is_up(link))?;
        Ok(())
    }
}
