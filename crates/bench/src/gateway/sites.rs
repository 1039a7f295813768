//! Two sites in namespaces of their own, a wire between them, and what carries packets from one to
//! the other.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ccplane_algorithms::{Parameters, by_name};
use ccplane_gateway::config::{AlgorithmSpec, GatewayConfig};
use ccplane_gateway::keys::PrivateKey;
use ccplane_gateway::{AlgorithmFactory, Gateway, GatewayListener};
use ccplane_host::{Namespace, Offload, Tun};
use ccplane_testbed::wire;
use ccplane_udp::Socket;
use ccplane_units::Rate;

use super::bare::Bare;
use super::wireguard_go;
use crate::Error;

/// The sites' addresses in the tunnel, and on the wire.
pub const INNER: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 79, 0, 1), Ipv4Addr::new(10, 79, 0, 2)];
pub const OUTER: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 78, 0, 1), Ipv4Addr::new(10, 78, 0, 2)];
/// Where tunnels listen.
pub const PORT: u16 = 51_820;
/// The sites' private keys, which keep no secret.
pub const KEYS: [[u8; 32]; 2] = [[1; 32], [2; 32]];
/// Bytes of the longest packet in the tunnel.
pub const MTU: u32 = 1_420;
/// The wire's device at the first site.
pub const DEVICE: &str = "wire0";

/// Who carries the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Nobody: the wire itself.
    Wire,
    /// The gateway. It limits nothing, or this is the one rate that a limit can have.
    Gateway(Option<Rate>),
    /// A forwarder that neither seals nor queues.
    Bare,
    /// `wireguard-go`.
    WireguardGo,
}

/// Two sites that reach each other.
pub struct Sites {
    boxes: [Running; 2],
    pub spaces: [Namespace; 2],
    /// Where the sites' hosts are.
    pub hosts: [IpAddr; 2],
}

/// A box, and the tasks that are its own.
struct Running {
    tasks: Vec<PathBuf>,
    kind: Kind,
}

enum Kind {
    None,
    Gateway(Box<Gateway>),
    #[expect(dead_code, reason = "it runs while it is here")]
    Bare(Bare),
    Process(Child),
}

impl Sites {
    /// Over a pair of virtual devices.
    pub fn over_wire(who: Who) -> Result<Sites, Error> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let space =
            |end| Namespace::create(&format!("ccplane-{}-gate{number}{end}", std::process::id()));
        let spaces = [space('a')?, space('b')?];
        wire::pair([&spaces[0], &spaces[1]], [DEVICE, "wire1"], OUTER)?;
        Sites::between(who, spaces, OUTER.map(IpAddr::from))
    }

    /// Between two namespaces that reach each other at these addresses.
    pub fn between(who: Who, spaces: [Namespace; 2], outer: [IpAddr; 2]) -> Result<Sites, Error> {
        let keys = KEYS.map(PrivateKey::from_bytes);
        let ends = outer.map(|address| SocketAddr::new(address, PORT));
        // The second is called, and learns where the first is: a call that nobody hears is repeated
        // after 5 s only.
        let second = Running::start(who, 1, &spaces[1], ends, &keys)?;
        let first = Running::start(who, 0, &spaces[0], ends, &keys)?;
        let hosts = match who {
            Who::Wire => outer,
            _ => INNER.map(IpAddr::from),
        };
        let sites = Sites {
            boxes: [first, second],
            spaces,
            hosts,
        };
        sites.meet()?;
        Ok(sites)
    }

    /// The gateway of a site.
    pub fn gateway(&self, site: usize) -> Result<&Gateway, Error> {
        match &self.boxes[site].kind {
            Kind::Gateway(gateway) => Ok(gateway),
            _ => Err(Error::failed("a site without a gateway was asked for it")),
        }
    }

    /// A socket of a site's host, on any free port.
    pub fn udp(&self, site: usize) -> Result<UdpSocket, Error> {
        let address = SocketAddr::new(self.hosts[site], 0);
        let bound = self.spaces[site].run(|| UdpSocket::bind(address))?;
        bound.map_err(Error::because("open a socket in a site"))
    }

    /// A socket of each site's host, each connected to the other: then the kernel counts their
    /// packets, as of most programs.
    pub fn udp_pair(&self) -> Result<[UdpSocket; 2], Error> {
        let pair = [self.udp(0)?, self.udp(1)?];
        let failed = || Error::because("connect a socket of a site");
        for (from, to) in [(0, 1), (1, 0)] {
            let to = pair[to].local_addr().map_err(failed())?;
            pair[from].connect(to).map_err(failed())?;
        }
        Ok(pair)
    }

    /// CPU time that the boxes used so far, ns: all that their tasks do, the kernel's work on their
    /// behalf included.
    pub fn cpu_ns(&self) -> [u64; 2] {
        self.boxes.each_ref().map(Running::cpu_ns)
    }

    /// Waits until a packet comes through.
    fn meet(&self) -> Result<(), Error> {
        let [near, far] = self.udp_pair()?;
        let failed = || Error::because("carry a first packet between the sites");
        far.set_read_timeout(Some(Duration::from_millis(50)))
            .map_err(failed())?;
        let mut buffer = [0; 16];
        for _ in 0..200 {
            // Nothing can be sent before there is a route.
            let _ = near.send(b"hello");
            if far.recv(&mut buffer).is_ok() {
                return Ok(());
            }
        }
        Err(Error::failed(
            "no packet came from one site to the other within 10 s",
        ))
    }
}

impl Running {
    fn start(
        who: Who,
        site: usize,
        space: &Namespace,
        ends: [SocketAddr; 2],
        keys: &[PrivateKey; 2],
    ) -> Result<Running, Error> {
        let before = tasks("self");
        let kind = match who {
            Who::Wire => Kind::None,
            Who::Gateway(limit) => {
                Kind::Gateway(Box::new(space.run(|| gateway(site, ends, keys, limit))??))
            }
            Who::Bare => Kind::Bare(space.run(|| bare(site, ends))??),
            Who::WireguardGo => Kind::Process(wireguard_go::start(site, space, ends, keys)?),
        };
        let tasks = match &kind {
            // Those of a process come and go.
            Kind::Process(_) => Vec::new(),
            _ => tasks("self")
                .into_iter()
                .filter(|task| !before.contains(task))
                .collect(),
        };
        Ok(Running { tasks, kind })
    }

    fn cpu_ns(&self) -> u64 {
        match &self.kind {
            Kind::Process(child) => tasks(&child.id().to_string())
                .iter()
                .map(|task| task_ns(task))
                .sum(),
            _ => self.tasks.iter().map(|task| task_ns(task)).sum(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Kind::Process(child) = &mut self.kind {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The tasks of a process.
fn tasks(process: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(format!("/proc/{process}/task"));
    all.into_iter()
        .flatten()
        .filter_map(|task| Some(task.ok()?.path()))
        .collect()
}

/// Time on a CPU; 0 of a task that has ended.
fn task_ns(task: &Path) -> u64 {
    let text = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
    text.split_whitespace()
        .next()
        .and_then(|ns| ns.parse().ok())
        .unwrap_or(0)
}

/// A gateway's configuration.
pub fn config(
    site: usize,
    ends: [SocketAddr; 2],
    keys: &[PrivateKey; 2],
    limit: Option<Rate>,
) -> String {
    let far = 1 - site;
    let endpoint = match site {
        0 => format!("endpoint = \"{}\"\n", ends[far]),
        _ => String::new(),
    };
    let bounds = limit.map_or(String::new(), |rate| {
        let rate = format!("{}bit", rate.bytes_per_sec() * 8);
        format!("min = \"{rate}\"\nmax = \"{rate}\"\n")
    });
    format!(
        "[site]\nkey = \"site.key\"\nlisten = \"{}\"\ndevice = \"gate0\"\nmtu = {MTU}\naddresses = [\"{}/24\"]\n\
         [[peer]]\nname = \"far\"\npublic_key = \"{}\"\nprefixes = [\"{}/32\"]\nalgorithm = \"bundler\"\n{endpoint}{bounds}",
        ends[site],
        INNER[site],
        keys[far].public(),
        INNER[far],
    )
}

fn gateway(
    site: usize,
    ends: [SocketAddr; 2],
    keys: &[PrivateKey; 2],
    limit: Option<Rate>,
) -> Result<Gateway, Error> {
    let config = GatewayConfig::parse("bench", &config(site, ends, keys, limit), &|_| Ok(()))
        .map_err(|problem| {
            Error::failed(format!("the benchmark's own configuration: {problem}"))
        })?;
    let makes: AlgorithmFactory = Arc::new(|algorithm: &AlgorithmSpec| {
        by_name(&algorithm.name, &Parameters::new()).map_err(|why| why.to_string())
    });
    let listener =
        GatewayListener::bind(ends[site]).map_err(Error::because("bind a gateway's sockets"))?;
    Ok(Gateway::start_with_listener(
        listener,
        config,
        &keys[site],
        makes,
        limit.is_none(),
    )?)
}

fn bare(site: usize, ends: [SocketAddr; 2]) -> Result<Bare, Error> {
    let tun = Tun::create(
        "gate0",
        MTU,
        &[(INNER[site].into(), 24)],
        Offload::Segmentation,
    )?;
    let socket = Socket::bind(ends[site]).map_err(Error::because("bind a forwarder's socket"))?;
    Bare::start(tun, socket, ends[1 - site])
}

/// Whether there is a program of this name to start.
pub fn is_installed(program: &str) -> bool {
    let asked = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    asked.is_ok()
}
