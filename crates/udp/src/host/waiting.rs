//! How a [`Host`] waits where there is nothing to do: for its socket, for its agent, until something is due.

use std::os::fd::AsFd;

use ccplane_agent::datapath::{Datapath, Way};
use ccplane_units::{Duration, Time};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::Host;
use crate::error::UdpError;

impl Host {
    /// Waits for the next event, `longest` at most. Allocates nothing: it ends every turn of a host that keeps up.
    pub(super) fn wait(&mut self, longest: Duration) -> Result<(), UdpError> {
        let longest = self.idle(longest);
        let (socket, link) = self.watched();
        let count = 1 + usize::from(link.is_some());
        let mut fds = [socket.clone(), link.unwrap_or(socket)];
        let fds = &mut fds[..count];
        if poll(fds, longest)? {
            self.drained = nothing_came(&fds[0]);
        }
        Ok(())
    }

    /// The same for several that share a thread.
    pub(super) fn wait_all(hosts: &mut [Host], longest: Duration) -> Result<(), UdpError> {
        let longest = hosts.iter_mut().fold(longest, |longest, host| host.idle(longest));
        let (mut fds, links): (Vec<_>, Vec<_>) = hosts.iter().map(Host::watched).unzip();
        fds.extend(links.into_iter().flatten());
        if poll(&mut fds, longest)? {
            let drained: Vec<bool> = fds.iter().take(hosts.len()).map(nothing_came).collect();
            for (host, drained) in hosts.iter_mut().zip(drained) {
                host.drained = drained;
            }
        }
        Ok(())
    }

    /// How long nothing is due, `longest` at most.
    fn idle(&mut self, longest: Duration) -> Duration {
        // What the kernel has to say of departures would end the wait at once.
        let now = self.read_departures();
        let mut due = now + longest;
        for (id, flow) in &mut self.flows {
            due = due.min(flow.next(now, *id, &mut self.steering));
        }
        due = due.min(self.classes.ahead.look().unwrap_or(Time::MAX));
        let steering = self.steering.as_ref();
        due = due.min(steering.and_then(Datapath::next_deadline).unwrap_or(Time::MAX));
        due.since(now)
    }

    /// What ends a wait: the socket, and the link to an agent where it has one.
    fn watched(&self) -> (PollFd<'_>, Option<PollFd<'_>>) {
        let room = if self.blocked {
            PollFlags::POLLOUT
        } else {
            PollFlags::empty()
        };
        let link = self.steering.as_ref().and_then(|steering| steering.way().as_fd());
        let link = link.map(|link| PollFd::new(link, PollFlags::POLLIN));
        (PollFd::new(self.socket.as_fd(), PollFlags::POLLIN | room), link)
    }
}

/// False when a signal ended it, after which nothing is known.
fn poll(fds: &mut [PollFd<'_>], longest: Duration) -> Result<bool, UdpError> {
    match ppoll(fds, Some(TimeSpec::from_duration(longest.to_std())), None) {
        Ok(_) => Ok(true),
        Err(Errno::EINTR) => Ok(false),
        Err(why) => Err(UdpError::Socket {
            what: "wait",
            why: why.into(),
        }),
    }
}

/// Whether a socket told of room to write, or of nothing at all.
fn nothing_came(socket: &PollFd<'_>) -> bool {
    socket
        .revents()
        .is_some_and(|events| PollFlags::POLLOUT.contains(events))
}
