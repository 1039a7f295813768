//! Runs a command behind an emulated link whose other end is this host.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::thread;

use ccplane_host::{Masquerade, Namespace, Tun};
use ccplane_qdisc::Limit;
use ccplane_units::Duration;
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use crate::dns_relay::Relay;
use crate::emulator::DEVICE_NAME;
use crate::path::{self, DeviceEnd, EmuReport, EmulatedPath};
use crate::remote::ControlSocket;
use crate::{EmuConfig, Error, PathDirection};

/// Environment variable with this host's address, set for the command.
pub const HOST_VARIABLE: &str = "CCPLANE_HOST";

/// Time for packets in flight to arrive after the command has ended, so that the peer learns of the
/// end. With less than a round trip the peer waits for the lost packets; a higher value only delays
/// the end under load.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Options of [`shell`]. By default the command reaches only this host, by its address in
/// [`ShellInfo::host_address`]; names of other hosts do not resolve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShellOptions {
    /// Gives the command access through the link to everything that this host reaches: network
    /// address translation (IPv4, with nftables) replaces the source address of its packets by this
    /// host's, and names resolve as on this host.
    pub nat: bool,
}

/// Description of the link when the command starts.
#[derive(Clone, Debug)]
pub struct ShellInfo {
    /// Name of the emulation, for [`remote::request`](crate::remote::request).
    pub id: String,
    /// Namespace of the command.
    pub namespace: String,
    /// Address of the host for the command, also in its variable `CCPLANE_HOST`. Inside another
    /// link it is the host at the end of the outermost link.
    pub host_address: IpAddr,
    /// This link is inside another one.
    pub nested: bool,
    /// Address of the command for this host.
    pub command_address: IpAddr,
    /// Capacities of the queues, from the command to the host first.
    pub limits: [Limit; 2],
}

/// Result of a command behind a link.
#[derive(Debug)]
pub struct ShellReport {
    /// Exit status of the command.
    pub status: ExitStatus,
    /// Report of the emulation; forward is from the command to the host.
    pub report: EmuReport,
}

impl ShellReport {
    /// Returns the exit code to pass on: the command's own, or 128 plus the number of the signal
    /// that ended it, as in a shell.
    pub fn exit_code(&self) -> u8 {
        let code = self
            .status
            .code()
            .or(self.status.signal().map(|signal| 128 + signal));
        code.and_then(|code| u8::try_from(code).ok())
            .unwrap_or(u8::MAX)
    }
}

/// Runs `command` in a namespace of its own whose only route is the emulated link to this host;
/// forward is from the command to the host. It reaches nothing beyond unless `options` permits.
/// Inside another link the command reaches that link's host through both (IPv4, with nftables).
/// `ready` is called when the link is up, just before the command starts.
///
/// Terminal signals belong to the command: Ctrl-C reaches it, and this function continues until it
/// ends. SIGTERM and SIGHUP are forwarded to it. Its background processes end with it. If this
/// process is killed, so is the command, and the kernel removes the link.
pub fn shell(
    config: &EmuConfig,
    options: ShellOptions,
    command: &mut Command,
    ready: impl FnOnce(&ShellInfo),
) -> Result<ShellReport, Error> {
    path::limits(config)?;
    let signals = Signals::block()?;
    ccplane_host::remove_stale_names();
    let id = std::process::id().to_string();
    let namespace = Namespace::create(&format!("ccplane-{id}-cmd"))?;
    let [inside, host] = free_addresses(std::process::id())?;
    let host_device = format!("ccplane-{id}");
    let offload = path::offload(config);
    let devices = [
        namespace.run(|| {
            let tun = Tun::create(
                DEVICE_NAME,
                config.mtu,
                &[(inside.into(), PREFIX_LENGTH)],
                offload,
            )?;
            ccplane_host::add_default_route(DEVICE_NAME, inside.into())?;
            Ok::<Tun, ccplane_host::Error>(tun)
        })??,
        Tun::create(
            &host_device,
            config.mtu,
            &[(host.into(), PREFIX_LENGTH)],
            offload,
        )?,
    ];
    let ends = [
        DeviceEnd {
            namespace: Some(namespace.clone()),
            device: DEVICE_NAME.into(),
        },
        DeviceEnd {
            namespace: None,
            device: host_device,
        },
    ];
    // A nested link needs forwarding here. If it cannot be enabled, the nested link reports it.
    let _ = namespace.set_sysctl("net/ipv4/ip_forward", "1");
    // The host behind all links is reached through the outer link, which knows only this
    // namespace's address.
    let outer = outer_host();
    let external_access = match options.nat || outer.is_some() {
        true => Some(ExternalAccess::open(&id, host, options.nat)?),
        false => None,
    };
    let known_host = outer.unwrap_or(host);
    let path = EmulatedPath::start(config, ends, devices)?;
    let remote = ControlSocket::serve(&id, path.control())?;
    ready(&ShellInfo {
        id,
        namespace: namespace.name().into(),
        host_address: known_host.into(),
        nested: outer.is_some(),
        command_address: inside.into(),
        limits: [
            path.limit(PathDirection::Forward),
            path.limit(PathDirection::Reverse),
        ],
    });
    command.env(HOST_VARIABLE, known_host.to_string());
    namespace.enter_on_spawn(ccplane_host::die_with_parent(command))?;
    if let Some(relay) = external_access
        .as_ref()
        .and_then(|external_access| external_access.dns_relay.as_ref())
    {
        ccplane_host::bind_mount_over(command, &relay.resolv_conf, RESOLV_CONF.as_ref())
            .map_err(resolver_error)?;
    }
    let status = run_command(command, &signals)?;
    drop(remote);
    namespace.end_processes(TERMINATION_TIMEOUT);
    path.drain(DRAIN_TIMEOUT);
    drop(external_access);
    let report = path.finish()?;
    Ok(ShellReport { status, report })
}

const RESOLV_CONF: &str = "/etc/resolv.conf";

fn resolver_error(source: io::Error) -> Error {
    Error::System {
        what: "mount a resolv.conf with this host's name server",
        source,
    }
}

/// Returns the host behind the outer link if this process is inside one, as the variable and the
/// device indicate.
fn outer_host() -> Option<Ipv4Addr> {
    let host = std::env::var(HOST_VARIABLE).ok()?.parse().ok()?;
    let inside = getifaddrs()
        .ok()?
        .any(|interface| interface.interface_name == DEVICE_NAME);
    inside.then_some(host)
}

/// Access beyond this host.
#[derive(Debug)]
struct ExternalAccess {
    dns_relay: Option<Relay>,
    _masquerade: Masquerade,
}

impl ExternalAccess {
    /// Enables access for the network of `host`, this host's address on the link; with `names` also
    /// DNS.
    fn open(id: &str, host: Ipv4Addr, names: bool) -> Result<ExternalAccess, Error> {
        let network = Ipv4Addr::from(u32::from(host) & !3);
        let translated = Masquerade::start(&format!("ccplane-{id}"), network, PREFIX_LENGTH)?;
        let relay = if names {
            // Without a resolv.conf there is no name server to relay to.
            let settings = std::fs::read_to_string(RESOLV_CONF).unwrap_or_default();
            Relay::start(&settings, host, id).map_err(resolver_error)?
        } else {
            None
        };
        Ok(ExternalAccess {
            dns_relay: relay,
            _masquerade: translated,
        })
    }
}

/// Starts the command and waits for its end, forwarding signals to it.
fn run_command(command: &mut Command, signals: &Signals) -> Result<ExitStatus, Error> {
    let mut child = command.spawn().map_err(|source| Error::Command {
        program: command.get_program().to_string_lossy().into_owned(),
        source,
    })?;
    let pid = Pid::from_raw(child.id() as i32);
    let (ended, alive) = UnixStream::pair().map_err(wait_error)?;
    thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            let status = child.wait();
            drop(ended);
            status
        });
        let passed = signals.forward(pid, &alive);
        if passed.is_err() {
            // Without signal forwarding the command could not be stopped.
            let _ = kill(pid, Signal::SIGKILL);
        }
        let status = waiting
            .join()
            .map_err(|_| Error::Panicked)?
            .map_err(wait_error)?;
        passed.map(|()| status).map_err(wait_error)
    })
}

/// Signals meant for the command, blocked in this thread and its children until dropped.
struct Signals {
    signal_fd: SignalFd,
    previous_mask: SigSet,
}

impl Signals {
    fn block() -> Result<Signals, Error> {
        let mut signals = SigSet::empty();
        for signal in [
            Signal::SIGINT,
            Signal::SIGQUIT,
            Signal::SIGTERM,
            Signal::SIGHUP,
        ] {
            signals.add(signal);
        }
        let arrived =
            SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
                .map_err(|e| wait_error(e.into()))?;
        let before = signals
            .thread_swap_mask(SigmaskHow::SIG_BLOCK)
            .map_err(|e| wait_error(e.into()))?;
        Ok(Signals {
            signal_fd: arrived,
            previous_mask: before,
        })
    }

    /// Forwards signals until `alive` closes. A terminal sends SIGINT and SIGQUIT to the command
    /// itself; other signals reach only this process.
    fn forward(&self, command: Pid, alive: &UnixStream) -> io::Result<()> {
        loop {
            let mut polled = [
                PollFd::new(self.signal_fd.as_fd(), PollFlags::POLLIN),
                PollFd::new(alive.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut polled, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
            if polled[1].any().unwrap_or(false) {
                return Ok(());
            }
            if let Some(info) = self.signal_fd.read_signal()?
                && let Some(signal) = [Signal::SIGTERM, Signal::SIGHUP]
                    .into_iter()
                    .find(|signal| *signal as u32 == info.ssi_signo)
            {
                // It may have ended in between.
                let _ = kill(command, signal);
            }
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // A signal that arrived after the command's end is discarded.
        while let Ok(Some(_)) = self.signal_fd.read_signal() {}
        let _ = self.previous_mask.thread_set_mask();
    }
}

fn wait_error(source: io::Error) -> Error {
    Error::System {
        what: "wait for the command",
        source,
    }
}

const PREFIX_LENGTH: u8 = 30;

/// Time for the command's background processes to end before they are killed.
const TERMINATION_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(500);

/// Returns two addresses of 100.64.0.0/10 (RFC 6598) that this host does not use: the command's and
/// the host's. The search starts at `seed`, so that emulations started at the same time choose
/// different ones.
fn free_addresses(seed: u32) -> Result<[Ipv4Addr; 2], Error> {
    const FIRST_ADDRESS: u32 = u32::from_be_bytes([100, 64, 0, 0]);
    const ADDRESS_PAIRS: u32 = 1 << 20;
    let listed = |source| Error::System {
        what: "find unused addresses for the link",
        source,
    };
    let used: Vec<u32> = getifaddrs()
        .map_err(|e| listed(e.into()))?
        .filter_map(|interface| Some(u32::from(interface.address?.as_sockaddr_in()?.ip())))
        .collect();
    let first_address = (0..ADDRESS_PAIRS)
        .map(|n| FIRST_ADDRESS + 4 * (seed.wrapping_add(n) % ADDRESS_PAIRS))
        .find(|first_address| used.iter().all(|address| address & !3 != *first_address))
        .ok_or_else(|| listed(io::ErrorKind::AddrInUse.into()))?;
    Ok([first_address + 2, first_address + 1].map(Ipv4Addr::from))
}
