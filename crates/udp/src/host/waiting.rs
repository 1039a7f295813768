//! Idle wait of a [`UdpHost`]: for its socket, its agent, or the next deadline.

use std::os::fd::AsFd;

use ccplane_agent::datapath::Datapath;
use ccplane_link::Pollable;
use ccplane_units::{Duration, Time};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::UdpHost;
use crate::error::UdpError;

impl UdpHost {
    /// Waits up to `longest` for the next event. Does not allocate, since a host that keeps up
    /// calls it on every turn.
    pub(super) fn wait(&mut self, longest: Duration) -> Result<(), UdpError> {
        let longest = self.time_to_deadline(longest);
        let handshakes = self.watched_handshakes();
        let (socket, link) = self.poll_fds();
        let count = 1 + usize::from(handshakes.is_some()) + usize::from(link.is_some());
        let is_watched = handshakes.is_some();
        let (second, third) = match (handshakes, link) {
            (Some(handshakes), Some(link)) => (handshakes, link),
            (Some(only), None) | (None, Some(only)) => (only, socket.clone()),
            (None, None) => (socket.clone(), socket.clone()),
        };
        let mut fds = [socket, second, third];
        let fds = &mut fds[..count];
        if poll(fds, longest)? {
            let (drained, readable) = (nothing_came(&fds[0]), is_watched && !nothing_came(&fds[1]));
            self.drained = drained;
            self.note_handshakes(readable);
        }
        Ok(())
    }

    /// Waits for the next event of several hosts on one thread.
    pub(super) fn wait_all(hosts: &mut [UdpHost], longest: Duration) -> Result<(), UdpError> {
        let longest = hosts
            .iter_mut()
            .fold(longest, |longest, host| host.time_to_deadline(longest));
        let (mut fds, links): (Vec<_>, Vec<_>) = hosts.iter().map(UdpHost::poll_fds).unzip();
        let handshakes: Vec<_> = hosts.iter().map(UdpHost::watched_handshakes).collect();
        let is_watched: Vec<bool> = handshakes.iter().map(Option::is_some).collect();
        fds.extend(handshakes.into_iter().flatten());
        fds.extend(links.into_iter().flatten());
        if poll(&mut fds, longest)? {
            let silent: Vec<bool> = fds.iter().map(nothing_came).collect();
            let (drained, others) = silent.split_at(hosts.len());
            let mut others = others.iter();
            for ((host, drained), is_watched) in hosts.iter_mut().zip(drained).zip(is_watched) {
                host.drained = *drained;
                host.note_handshakes(is_watched && others.next() == Some(&false));
            }
        }
        Ok(())
    }

    /// Returns the time until the next deadline, at most `longest`.
    fn time_to_deadline(&mut self, longest: Duration) -> Duration {
        // Unread transmit timestamps would end the wait at once.
        let now = self.read_departures();
        let mut due = now + longest;
        for (id, flow) in &mut self.flows {
            due = due.min(flow.next_deadline(now, *id, &mut self.steering));
        }
        due = due.min(self.classes.queue_limit.next_check().unwrap_or(Time::MAX));
        let steering = self.steering.as_ref();
        due = due.min(
            steering
                .and_then(Datapath::next_deadline)
                .unwrap_or(Time::MAX),
        );
        let paused = self
            .handshakes
            .as_ref()
            .and_then(|handshakes| handshakes.paused_until(now));
        due = due.min(paused.unwrap_or(Time::MAX));
        due.since(now)
    }

    /// Returns the socket of hellos, unless reading is paused.
    fn watched_handshakes(&self) -> Option<PollFd<'_>> {
        let handshakes = self.handshakes.as_ref()?;
        let is_paused = handshakes.paused_until(self.now()).is_some();
        (!is_paused).then(|| PollFd::new(handshakes.socket.as_fd(), PollFlags::POLLIN))
    }

    fn note_handshakes(&mut self, readable: bool) {
        if let Some(handshakes) = &mut self.handshakes {
            handshakes.is_readable |= readable;
        }
    }

    /// Returns the descriptors that end a wait: the socket, and the channel to an agent if it has
    /// one.
    fn poll_fds(&self) -> (PollFd<'_>, Option<PollFd<'_>>) {
        let room = if self.blocked {
            PollFlags::POLLOUT
        } else {
            PollFlags::empty()
        };
        let link = self
            .steering
            .as_ref()
            .and_then(|steering| steering.channel().as_fd());
        let link = link.map(|link| PollFd::new(link, PollFlags::POLLIN));
        (
            PollFd::new(self.socket.as_fd(), PollFlags::POLLIN | room),
            link,
        )
    }
}

/// Polls. Returns false if a signal ended the wait, in which case the results are invalid.
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

/// Returns true if the socket was reported only writable, or not at all.
fn nothing_came(socket: &PollFd<'_>) -> bool {
    socket
        .revents()
        .is_some_and(|events| PollFlags::POLLOUT.contains(events))
}
