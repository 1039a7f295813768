//! The other ends of [`client`](super::client), to be run in processes of their own: our agent, and
//! the least that an agent could do.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use ccplane_agent::{Agent, AgentOptions};
use ccplane_datapath::{CommandTarget, Update};
use ccplane_link::{Datagram, Local, Spinner, ThreadClock, WaitStrategy, serve};
use ccplane_testbed::control_loop::{LoopAlgorithm, LoopError, PROGRAM};
use ccplane_wire::v1::{self, V1Message};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, UnixAddr, connect, recv, send};

/// Serves at `path` with the algorithm that is measured, until `stop`; `updates`: it answers
/// reports.
pub fn answer(
    path: &Path,
    updates: bool,
    stop: &AtomicBool,
    bound: impl FnOnce(),
) -> Result<(), LoopError> {
    let mut link = Datagram::bind(path)?;
    bound();
    let mut agent = Agent::new(AgentOptions::default());
    agent
        .add(LoopAlgorithm { updates })
        .map_err(io::Error::other)?;
    Ok(serve(
        &mut agent,
        &mut [&mut link],
        WaitStrategy::default(),
        stop,
    )?)
}

/// Serves datapaths in the kernel at `path` until `stop`.
pub fn serve_kernel(
    path: &Path,
    agent: &mut Agent,
    stop: &AtomicBool,
    bound: impl FnOnce(),
) -> Result<(), LoopError> {
    let mut link = Local::bind(path)?;
    bound();
    Ok(serve(
        agent,
        &mut [&mut link],
        WaitStrategy::default(),
        stop,
    )?)
}

/// Takes what comes at `path` and, where reports are to be answered, sends the same bytes back for
/// each: no agent can do less. It waits as ours does. It never ends.
pub fn bound(path: &Path, updates: bool, bound: impl FnOnce()) -> Result<(), LoopError> {
    let socket = UnixDatagram::bind(path)?;
    bound();
    let program = ccplane_lang::compile(PROGRAM, &ccplane_lang::ProgramLimits::default())
        .map_err(io::Error::other)?;
    let program = program.code();
    let mut install = Vec::new();
    v1::install(&mut install, 1, program).map_err(io::Error::other)?;
    let mut window = Vec::new();
    let target = CommandTarget::Cwnd;
    v1::update_fields(
        &mut window,
        1,
        Some(program),
        &[Update {
            target,
            value: 14_480,
        }],
    )
    .map_err(io::Error::other)?;

    let fd = socket.as_raw_fd();
    let (clock, mut spinner) = (ThreadClock::new(), Spinner::new(WaitStrategy::default()));
    let (mut buffer, mut start) = ([0; 4096], Vec::new());
    // Its only datapath.
    let (mut length, datapath) = socket.recv_from(&mut buffer)?;
    connect(
        fd,
        &UnixAddr::new(datapath.as_pathname().unwrap_or(path)).map_err(io::Error::from)?,
    )
    .map_err(io::Error::from)?;
    loop {
        let answer: &[u8] = match v1::messages(&buffer[..length]).next() {
            Some(Ok(V1Message::Measure { .. })) if updates => &window,
            Some(Ok(V1Message::Ready { .. })) => &install,
            Some(Ok(V1Message::Create { flow, .. })) => {
                start.clear();
                v1::change_program(&mut start, flow, 1, program, &[]).map_err(io::Error::other)?;
                &start
            }
            _ => &[],
        };
        if !answer.is_empty() {
            send(fd, answer, MsgFlags::empty()).map_err(io::Error::from)?;
        }
        let mut flags = MsgFlags::MSG_DONTWAIT;
        length = loop {
            match recv(fd, &mut buffer, flags) {
                Ok(length) => break length,
                Err(Errno::EAGAIN) if spinner.should_poll(false, clock.now()) => {}
                Err(Errno::EAGAIN) => flags = MsgFlags::empty(),
                Err(why) => return Err(io::Error::from(why).into()),
            }
        };
        spinner.should_poll(true, clock.now());
    }
}
