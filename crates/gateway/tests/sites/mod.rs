//! Test sites: network namespaces with a gateway each, on a network that can limit the rate, reduce
//! the MTU or translate addresses.
#![allow(dead_code, reason = "each test file uses a part of it")]

#[path = "../../../host/tests/common/mod.rs"]
mod host;
mod network;

use std::net::{IpAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ccplane_gateway::config::{AlgorithmSpec, GatewayConfig};
use ccplane_gateway::keys::PrivateKey;
use ccplane_gateway::{AlgorithmFactory, Gateway, GatewayReport};
use ccplane_host::{Namespace, Offload, Tun, has_ipv6};

pub use host::{ip_in, namespace};
pub use network::Network;

/// Factory of all built-in algorithms.
pub fn makes() -> AlgorithmFactory {
    Arc::new(|algorithm: &AlgorithmSpec| {
        ccplane_algorithms::by_name(&algorithm.name, &ccplane_algorithms::Parameters::new())
            .map_err(|why| why.to_string())
    })
}

pub fn parse(text: &str) -> GatewayConfig {
    GatewayConfig::parse("test.toml", text, &|_| Ok(()))
        .unwrap_or_else(|problem| panic!("{problem}\n{text}"))
}

/// Private key of site `n`.
pub fn key(n: usize) -> PrivateKey {
    PrivateKey::from_bytes([n as u8 + 1; 32])
}

/// `[site]` section of site `n`: tunnel addresses 10.7.0.`n + 1` and fd07::`n + 1`, device `gate0`.
pub fn site(n: usize) -> String {
    let last = n + 1;
    let v6 = if has_ipv6() {
        format!(", \"fd07::{last}/64\"")
    } else {
        String::new()
    };
    format!(
        "[site]\nkey = \"unused\"\nlisten = \"0.0.0.0:51820\"\ndevice = \"gate0\"\n\
         addresses = [\"10.7.0.{last}/24\"{v6}]\n"
    )
}

/// `[[peer]]` section for site `n` with this name, the network 10.8.`n + 1`.0/24 and algorithm
/// `bundler`.
pub fn peer(name: &str, n: usize) -> String {
    let last = n + 1;
    let v6 = if has_ipv6() {
        format!(", \"fd07::{last}/128\"")
    } else {
        String::new()
    };
    format!(
        "[[peer]]\nname = \"{name}\"\npublic_key = \"{}\"\n\
         prefixes = [\"10.7.0.{last}/32\", \"10.8.{last}.0/24\"{v6}]\nalgorithm = \"bundler\"\n",
        key(n).public()
    )
}

/// `endpoint` line for site `n` on the test network.
pub fn endpoint(n: usize) -> String {
    format!("endpoint = \"192.0.2.{}:51820\"\n", n + 1)
}

/// Running sites.
pub struct Sites {
    pub spaces: Vec<Namespace>,
    pub gateways: Vec<Option<Gateway>>,
    pub configs: Vec<String>,
    pub keys: Vec<PrivateKey>,
    pub network: Network,
    makes: AlgorithmFactory,
    dir: PathBuf,
}

impl Sites {
    /// Starts two sites, each with the peer `other`.
    pub fn new(test: &str) -> Option<Sites> {
        Sites::of(test, &two_configs(), makes())
    }

    /// Starts one site per configuration. Site 0 has the addresses 192.0.2.1 and fd01::1 on the
    /// network, the next ones follow.
    pub fn of(test: &str, configs: &[String], makes: AlgorithmFactory) -> Option<Sites> {
        let mut sites = Sites::quiet(test, configs, makes)?;
        // Sites with an endpoint start last: a lost initiation is retransmitted only after 5 s.
        for n in (0..configs.len()).rev() {
            sites.start(n);
        }
        Some(sites)
    }

    /// Creates the sites without starting them.
    pub fn quiet(test: &str, configs: &[String], makes: AlgorithmFactory) -> Option<Sites> {
        let spaces: Option<Vec<Namespace>> = (0..configs.len())
            .map(|n| namespace(&format!("{test}-{n}")))
            .collect();
        let spaces = spaces?;
        let end = |(n, space): (usize, &Namespace)| {
            let last = n + 1;
            let mut addresses: Vec<(IpAddr, u8)> =
                vec![(format!("192.0.2.{last}").parse().unwrap(), 24)];
            if has_ipv6() {
                addresses.push((format!("fd01::{last}").parse().unwrap(), 64));
            }
            let make = || Tun::create("under0", 1_500, &addresses, Offload::None);
            space.run(make).unwrap().unwrap()
        };
        let network = Network::between(spaces.iter().enumerate().map(end).collect());
        let dir =
            std::env::temp_dir().join(format!("ccplane-gateway-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Some(Sites {
            gateways: configs.iter().map(|_| None).collect(),
            keys: (0..configs.len()).map(key).collect(),
            configs: configs.to_vec(),
            spaces,
            network,
            makes,
            dir,
        })
    }

    pub fn socket(&self, n: usize) -> PathBuf {
        self.dir.join(format!("{n}.sock"))
    }

    pub fn start(&mut self, n: usize) {
        let (config, key, socket) = (
            parse(&self.configs[n]),
            self.keys[n].clone(),
            self.socket(n),
        );
        let makes = self.makes.clone();
        let start = || Gateway::start(config, &key, makes, false, &socket);
        self.gateways[n] = Some(self.spaces[n].run(start).unwrap().unwrap());
    }

    pub fn stop(&mut self, n: usize) {
        if let Some(gateway) = self.gateways[n].take() {
            self.spaces[n].run(|| gateway.stop()).unwrap().unwrap();
        }
    }

    pub fn report(&self, n: usize) -> GatewayReport {
        self.gateways[n].as_ref().unwrap().report()
    }

    /// Reloads site `n` and returns a description of the changes.
    pub fn reload(&self, n: usize, text: &str) -> Vec<String> {
        let config = parse(text);
        let gateway = self.gateways[n].as_ref().unwrap();
        let changes = self.spaces[n]
            .run(|| gateway.reload(config))
            .unwrap()
            .unwrap();
        changes.iter().map(ToString::to_string).collect()
    }

    /// Waits up to 15 s for a condition.
    #[expect(clippy::disallowed_methods, reason = "gateways run in real time")]
    pub fn until(&self, what: &str, holds: impl Fn(&Sites) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(15);
        while !holds(self) {
            let reports: Vec<GatewayReport> = self
                .gateways
                .iter()
                .flatten()
                .map(Gateway::report)
                .collect();
            assert!(
                Instant::now() < deadline,
                "timeout waiting for {what}: {reports:#?}"
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns whether site `n` has received feedback from a peer.
    pub fn is_measured(&self, n: usize, peer: usize) -> bool {
        // Any other reason means that there is feedback; on a busy host there may be a queue at
        // once.
        !matches!(
            self.report(n).peers[peer].reason,
            "plain" | "no_keys" | "no_address"
        )
    }

    /// Runs a function in site `n`'s namespace.
    pub fn inside<T: Send>(&self, n: usize, run: impl FnOnce() -> T + Send) -> T {
        self.spaces[n].run(run).unwrap()
    }

    /// Sends a datagram from the first site to the second and back.
    pub fn there_and_back(&self, message: &[u8]) {
        there_and_back(&self.udp(0, "10.7.0.1"), &self.udp(1, "10.7.0.2"), message);
    }

    /// Same over IPv6.
    pub fn there_and_back_v6(&self, message: &[u8]) {
        there_and_back(&self.udp(0, "fd07::1"), &self.udp(1, "fd07::2"), message);
    }

    /// Binds a socket in site `n`'s namespace.
    pub fn udp(&self, n: usize, address: &str) -> UdpSocket {
        let socket = self.spaces[n]
            .run(|| UdpSocket::bind((address, 0)).unwrap())
            .unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        socket
    }
}

impl Drop for Sites {
    fn drop(&mut self) {
        if !thread::panicking() {
            (0..self.gateways.len()).for_each(|n| self.stop(n));
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Configurations of two sites with each other as the peer `other`. Only the first one has an
/// endpoint; the second learns it from the handshake.
pub fn two_configs() -> [String; 2] {
    [
        site(0) + &peer("other", 1) + &endpoint(1),
        site(1) + &peer("other", 0),
    ]
}

/// Sends a datagram from one socket to the other and back.
pub fn there_and_back(a: &UdpSocket, b: &UdpSocket, message: &[u8]) {
    let mut buffer = vec![0; 70_000];
    a.send_to(message, b.local_addr().unwrap()).unwrap();
    let (bytes, from) = b.recv_from(&mut buffer).expect("it came");
    assert_eq!((&buffer[..bytes], from), (message, a.local_addr().unwrap()));
    b.send_to(message, from).unwrap();
    assert_eq!(
        a.recv(&mut buffer).expect("the packet is returned"),
        message.len()
    );
}
