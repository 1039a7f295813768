//! A CCP datapath without traffic. It sends the messages of a real datapath at the rate the caller
//! asks for.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ccplane_link::{Spinner, ThreadClock};
use ccplane_wire::v1;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, UnixAddr, recv, sendto};

use super::answer::ALGORITHM_NAME;
use super::{LoopError, fresh_path};

/// Silence of the agent after which it is considered dead.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// A CCP datapath without traffic.
pub struct IdleDatapath {
    socket: UnixDatagram,
    path: PathBuf,
    agent: UnixAddr,
    /// Number that the agent gave its program.
    program: u32,
    out: Vec<u8>,
    buffer: Vec<u8>,
}

impl IdleDatapath {
    /// Announces the datapath, installs the agent's program and opens `flows` flows.
    pub fn new(agent: &Path, flows: u32) -> Result<IdleDatapath, LoopError> {
        let path = fresh_path("datapath");
        let socket = UnixDatagram::bind(&path)?;
        socket.set_read_timeout(Some(SILENCE_TIMEOUT))?;
        let agent = UnixAddr::new(agent).map_err(io::Error::from)?;
        let mut datapath = IdleDatapath {
            socket,
            path,
            agent,
            program: 1,
            out: Vec::new(),
            buffer: vec![0; 65_536],
        };
        v1::ready(&mut datapath.out, 1);
        datapath.send_all()?;
        datapath.wait_for(|message| matches!(message, v1::V1Message::Install(_)))?;
        let zero = ([0, 0, 0, 0], 0).into();
        let create = v1::Create {
            init_cwnd: 14_480,
            mss: 1448,
            source: zero,
            destination: zero,
            algorithm: ALGORITHM_NAME,
        };
        for flow in 1..=flows {
            v1::create(&mut datapath.out, flow, &create).map_err(io::Error::other)?;
            datapath.send_all()?;
            let mut program = 1;
            datapath.wait_for(|message| match message {
                v1::V1Message::ChangeProgram {
                    program: number, ..
                } => {
                    program = *number;
                    true
                }
                _ => false,
            })?;
            datapath.program = program;
        }
        Ok(datapath)
    }

    /// Adds a report of `flow` to the next datagram.
    pub fn add_report(&mut self, flow: u32) {
        // Six fields always fit.
        let _ = v1::measure(
            &mut self.out,
            flow,
            self.program,
            &[1448, 0, 0, 0, 20_000, 10],
        );
    }

    /// Sends `count` reports of `flow` as one datagram.
    pub fn report(&mut self, flow: u32, count: usize) -> Result<(), LoopError> {
        (0..count).for_each(|_| self.add_report(flow));
        self.send_all().map(|_| ())
    }

    /// Sends the added reports as one datagram. Reads updates while the socket is full and returns
    /// their number.
    pub fn send_all(&mut self) -> Result<u64, LoopError> {
        let mut updates = 0;
        let start = Instant::now();
        loop {
            match sendto(
                self.socket.as_raw_fd(),
                &self.out,
                &self.agent,
                MsgFlags::MSG_DONTWAIT,
            ) {
                Ok(_) => break,
                Err(Errno::EAGAIN) if start.elapsed() < SILENCE_TIMEOUT => {
                    updates += self.take_updates()?;
                    thread::yield_now();
                }
                Err(why) => return Err(io::Error::from(why).into()),
            }
        }
        self.out.clear();
        Ok(updates)
    }

    /// Reads all datagrams that are waiting and returns the number of updates in them.
    pub fn take_updates(&mut self) -> Result<u64, LoopError> {
        let mut updates = 0;
        loop {
            match recv(
                self.socket.as_raw_fd(),
                &mut self.buffer,
                MsgFlags::MSG_DONTWAIT,
            ) {
                Ok(length) => {
                    let messages = v1::messages(&self.buffer[..length]);
                    updates += messages
                        .filter(|m| matches!(m, Ok(v1::V1Message::UpdateField { .. })))
                        .count() as u64;
                }
                Err(Errno::EAGAIN) => return Ok(updates),
                Err(why) => return Err(io::Error::from(why).into()),
            }
        }
    }

    /// Polls for an update, then sleeps, like the agent.
    pub fn wait_for_update(
        &mut self,
        clock: ThreadClock,
        spinner: &mut Spinner,
    ) -> Result<(), LoopError> {
        while self.take_updates()? == 0 {
            if !spinner.should_poll(false, clock.now()) {
                self.wait_for(|message| matches!(message, v1::V1Message::UpdateField { .. }))?;
                break;
            }
        }
        spinner.should_poll(true, clock.now());
        Ok(())
    }

    /// Receives datagrams until one has an update. `sleeps`: with blocking calls; otherwise it
    /// polls.
    pub fn take_update(&mut self, sleeps: bool) -> Result<(), LoopError> {
        if sleeps {
            return self.wait_for(|message| matches!(message, v1::V1Message::UpdateField { .. }));
        }
        let start = Instant::now();
        while self.take_updates()? == 0 {
            if start.elapsed() > SILENCE_TIMEOUT {
                return Err(LoopError::AgentTimeout);
            }
        }
        Ok(())
    }

    /// Blocks until a wanted message arrives.
    fn wait_for(
        &mut self,
        mut wanted: impl FnMut(&v1::V1Message<'_>) -> bool,
    ) -> Result<(), LoopError> {
        loop {
            let length = self
                .socket
                .recv(&mut self.buffer)
                .map_err(|_| LoopError::AgentTimeout)?;
            if v1::messages(&self.buffer[..length])
                .flatten()
                .any(|message| wanted(&message))
            {
                return Ok(());
            }
        }
    }
}

impl Drop for IdleDatapath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
