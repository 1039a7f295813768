//! Changes of a network at run time.

use ccplane_qdisc::{DelayModel, LineSpec, LossModel};
use ccplane_units::Time;

use crate::network::{LinkId, NodeId, Route};
use crate::routing::{self, Routing};
use crate::{SimError, World};

/// Change of the network.
#[derive(Clone, Debug)]
pub enum Change {
    /// Replaces the line of a link. Queued packets are replanned; bytes already transmitted stay
    /// transmitted.
    Line(LinkId, LineSpec),
    /// Replaces the delay of a link for packets that have not left the queue. It causes no
    /// reordering.
    Delay(LinkId, DelayModel),
    /// Replaces the random loss of a link.
    Loss(LinkId, LossModel),
    /// Takes a link down: packets sent to it are lost, and routes avoid it where possible. Packets
    /// on the link still arrive.
    Down(LinkId),
    /// Brings a link up.
    Up(LinkId),
    /// Routes packets at the first node over this link if they are for the second, a host.
    Route(NodeId, NodeId, LinkId),
}

impl Change {
    pub(crate) fn link(&self) -> Option<LinkId> {
        match self {
            Change::Line(link, _) | Change::Delay(link, _) | Change::Loss(link, _) => Some(*link),
            Change::Down(link) | Change::Up(link) => Some(*link),
            Change::Route(..) => None,
        }
    }

    pub(crate) fn check(&self, world: &World) -> Result<(), SimError> {
        match self {
            Change::Line(link, line) => {
                world.known_link(*link)?;
                match line.mean_rate() {
                    Some(rate) if rate.bytes_per_sec() == 0 => {
                        Err(SimError::ZeroRate(world.network.link_name(*link)))
                    }
                    _ => Ok(()),
                }
            }
            Change::Delay(link, _)
            | Change::Loss(link, _)
            | Change::Down(link)
            | Change::Up(link) => world.known_link(*link),
            Change::Route(at, to, link) => {
                let mut network = world.network.clone();
                network.route(*at, *to, *link);
                routing::check(&network)?;
                Routing::new(&network, |_| true).map(drop)
            }
        }
    }
}

impl World {
    pub(crate) fn change(&mut self, now: Time, change: Change) -> Result<(), SimError> {
        match change {
            Change::Line(link, line) => self.links.set_line(now, link.0, line, &mut self.events),
            Change::Delay(link, delay) => {
                self.links.set_delay(now, link.0, delay, &mut self.events)
            }
            Change::Loss(link, loss) => self.links.set_loss(link.0, loss, self.options.seed),
            Change::Down(link) => {
                self.links.set_up(link.0, false);
                self.find_routes()?;
            }
            Change::Up(link) => {
                self.links.set_up(link.0, true);
                self.find_routes()?;
            }
            Change::Route(at, to, link) => {
                self.network
                    .routes
                    .retain(|route| (route.at, route.to) != (at.0, to.0));
                self.network.routes.push(Route {
                    at: at.0,
                    to: to.0,
                    link: link.0,
                });
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
