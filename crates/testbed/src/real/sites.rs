//! Sites behind gateways: the bundles of a scenario on real packets.
//!
//! A site is a namespace with its hosts and the device of its gateway, which runs in this process.
//! The gateway's UDP socket is in the namespace of its side of the bottleneck, next to the hosts
//! that are in no site. Each pair of sites has its own tunnel. A bundle is controlled by its own
//! algorithm or by the contender. If that is a native one, or if no bundle begins in the site, the
//! gateway only observes and does not limit.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use ccplane_algorithms::{Parameters, Registry};
use ccplane_bundle::SendboxConfig;
use ccplane_emu::Emulator;
use ccplane_gateway::config::GatewayConfig;
use ccplane_gateway::keys::PrivateKey;
use ccplane_gateway::{AlgorithmFactory, Gateway, GatewayListener, PeerReport};
use ccplane_host::{InterfaceStats, Namespace, interface_stats};
use ccplane_lab::Error;
use ccplane_lab::capacity::MTU;
use ccplane_lab::result::{BundleChange, BundleMetrics, BundleSample};
use ccplane_lab::scenario::{BundleClass, BundleSettings, Scenario};
use ccplane_lab::{Contender, read};
use ccplane_qdisc::QueueSpec;
use ccplane_qdisc::marking::dscp_of;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use super::hosts::{PathSide, network};
use super::layout::{Layout, SitePair};
use crate::error::BackendError;
use crate::traffic::{monotonic_ns, wait_until};

/// Bytes that the tunnel adds to each packet: headers of IPv4, UDP and WireGuard.
const TUNNEL_OVERHEAD_BYTES: u32 = 60;
/// Name of a gateway's device in its site.
const GATEWAY_DEVICE: &str = "gate0";
/// WireGuard's usual port, for the first pair; each further pair uses the next.
const GATEWAY_PORT: u16 = 51_820;
/// Algorithm of gateways whose bundle is not controlled: it uses the least CPU time.
const OBSERVER_ALGORITHM: &str = "autorate";
/// Time limit for the key exchange. WireGuard repeats its handshake after 5 s.
const KEY_EXCHANGE_TIMEOUT_NS: u64 = 12_000_000_000;
/// Interval at which completion of the key exchange is checked.
const KEY_POLL_INTERVAL_NS: u64 = 5_000_000;
/// Minimum time between two changes of mode. The gateway evaluates the mode every 10 ms.
const MODE_CHANGE_INTERVAL_NS_MIN: u64 = 1_000_000;
/// PCG stream that keys are drawn from.
const KEY_STREAM: u128 = 0x6b65_7973 << 32;

/// Running gateways and the samples of their bundles.
pub(crate) struct Sites {
    sites: Vec<TestSite>,
}

struct TestSite {
    name: String,
    namespace: Namespace,
    /// `None` after it has been stopped.
    gateway: Option<Gateway>,
    /// Start of the gateway's clock, `CLOCK_MONOTONIC` nanoseconds like all times here.
    epoch_ns: u64,
    /// Index of the bundle that begins in the site.
    bundle: Option<usize>,
    /// Current mode, and the time of its start.
    mode: (&'static str, u64),
    samples: Vec<BundleSample>,
    changes: Vec<(u64, &'static str, &'static str)>,
}

/// Result of all sites.
pub(crate) struct SitesResult {
    /// Metrics of the bundles, in the scenario's order.
    pub metrics: Vec<BundleMetrics>,
    pub samples: Vec<Vec<BundleSample>>,
    /// Effects of the gateways on packets other than shaping.
    pub side_effects: Vec<String>,
}

/// Returns a sentence for each setting of a bundle that real packets do not support.
pub(super) fn unsupported(scenario: &Scenario, layout: &Layout) -> Vec<String> {
    let mut parts = Vec::new();
    for bundle in &scenario.bundles {
        let title = bundle.title();
        if bundle.overhead != 0 && bundle.overhead != TUNNEL_OVERHEAD_BYTES {
            parts.push(format!(
                "an overhead of {} bytes of {title}: the real tunnel's overhead is \
                 {TUNNEL_OVERHEAD_BYTES}",
                bundle.overhead
            ));
        }
        if bundle.by_hash {
            parts.push(format!(
                "`by_hash` of {title}: real tunnels number their packets instead"
            ));
        }
        let mut queues = bundle.classes.iter().map(|class| class.queue);
        let has_bands = |queue| matches!(queue, Some(QueueSpec::Prio { .. }));
        if scenario.workloads.iter().any(|workload| workload.band > 0)
            && (has_bands(bundle.queue) || queues.any(has_bands))
        {
            parts.push(format!(
                "a `prio` queue of {title}: real gateways read bands only for classes; use `class`"
            ));
        }
    }
    let bare = PrivateKey::from_bytes([1; 32]);
    let ends = [
        SocketAddr::from(([10, 77, 0, 1], GATEWAY_PORT)),
        SocketAddr::from(([10, 77, 0, 2], GATEWAY_PORT)),
    ];
    for (number, pair) in layout.pairs.iter().enumerate() {
        for side in PathSide::SIDES {
            let bundle = pair.bundles[side.index()].and_then(|bundle| scenario.bundles.get(bundle));
            parts.extend(config(number, side, ends, &bare, bundle, OBSERVER_ALGORITHM).err());
        }
    }
    parts
}

/// Returns the configuration of the gateway at this side of a pair. `peer`: key of the other
/// gateway.
fn config(
    pair: usize,
    side: PathSide,
    ends: [SocketAddr; 2],
    peer: &PrivateKey,
    bundle: Option<&BundleSettings>,
    algorithm: &str,
) -> Result<GatewayConfig, String> {
    let [own, far] = [side, side.opposite()].map(PathSide::index);
    // The right gateway learns the left one's endpoint from its handshake.
    let endpoint = match side {
        PathSide::Left => format!("endpoint = \"{}\"\n", ends[far]),
        PathSide::Right => String::new(),
    };
    let mut limits = String::new();
    let rates = bundle.map(|bundle| [("min", bundle.min_rate), ("max", bundle.max_rate)]);
    for (word, rate) in rates.into_iter().flatten() {
        limits += &rate.map_or(String::new(), |rate| format!("{word} = \"{rate}\"\n"));
    }
    // `copy_dscp`: as in the simulator, packets keep their band on the link.
    let text = format!(
        "[site]\nkey = \"none\"\nlisten = \"{}\"\ndevice = \"{GATEWAY_DEVICE}\"\n\
         addresses = [\"172.16.{pair}.{}/30\"]\nmtu = {}\ncopy_dscp = true\n\
         [[peer]]\nname = \"other\"\npublic_key = \"{}\"\n\
         {endpoint}prefixes = [\"172.16.{pair}.{}/32\", \"{}\"]\n\
         algorithm = {algorithm:?}\nqueue = \"{}\"\n{limits}{}",
        ends[own],
        own + 1,
        MTU - TUNNEL_OVERHEAD_BYTES,
        peer.public(),
        far + 1,
        network(SitePair::spaces(pair)[far]),
        bundle
            .and_then(|bundle| bundle.queue)
            .unwrap_or(SendboxConfig::QUEUE),
        bundle.map_or(String::new(), |bundle| classes(&bundle.classes)),
    );
    GatewayConfig::parse("a site", &text, &|_| Ok(())).map_err(|problem| problem.to_string())
}

/// Returns the tables of a bundle's classes. Packets are in the class whose index is their band;
/// the last class takes all others.
fn classes(classes: &[BundleClass]) -> String {
    let mut text = String::new();
    for (class, band) in classes.iter().zip(0_u8..) {
        text += &format!(
            "[[class]]\nlevel = {}\nweight = {}\n",
            class.level, class.weight
        );
        if usize::from(band) + 1 < classes.len() {
            text += &format!("match = {{ dscp = {} }}\n", dscp_of(band));
        }
        if let Some(queue) = class.queue {
            text += &format!("queue = \"{queue}\"\n");
        }
    }
    text
}

/// Returns the algorithm that controls a bundle, its parameters, and whether it only observes.
fn steers<'c>(
    bundle: Option<&'c BundleSettings>,
    contender: Option<&'c Contender>,
) -> (&'c str, &'c [(String, String)], bool) {
    let who = bundle.and_then(|bundle| bundle.algorithm.as_ref().or(contender));
    match who {
        Some(Contender::Ccplane { name, parameters }) => (
            name,
            parameters,
            bundle.is_none_or(|bundle| bundle.observe_only),
        ),
        // A site refuses algorithms of agents in other processes before it is created.
        Some(Contender::Native { .. } | Contender::Remote { .. }) | None => {
            (OBSERVER_ALGORITHM, &[], true)
        }
    }
}

impl Sites {
    /// Returns no sites.
    pub fn none() -> Sites {
        Sites { sites: Vec::new() }
    }

    /// Creates the sites of a layout behind a new emulator and waits until they have keys.
    /// `contender` controls the bundles that name no algorithm.
    pub fn start(
        emulator: &Emulator,
        layout: &Layout,
        scenario: &Scenario,
        contender: Option<&Contender>,
        registry: &Registry,
        seed: u64,
    ) -> Result<Sites, Error> {
        let mut sites = Sites::none();
        let mut random = Pcg64::new(u128::from(seed), KEY_STREAM);
        let mut key = || {
            let mut bytes = [0; 32];
            random.fill_bytes(&mut bytes);
            // Derived from the run's seed. The key protects only traffic inside this process.
            PrivateKey::from_bytes(bytes)
        };
        for (number, pair) in layout.pairs.iter().enumerate() {
            let port = GATEWAY_PORT + number as u16;
            let ends = [emulator.sender_addr(), emulator.receiver_addr()]
                .map(|end| SocketAddr::new(end, port));
            let keys = [key(), key()];
            let mut made = Vec::new();
            // The responder starts first: a lost handshake is repeated only after 5 s.
            for side in [PathSide::Right, PathSide::Left] {
                let bundle = pair.bundles[side.index()];
                let of = bundle.and_then(|bundle| scenario.bundles.get(bundle));
                let (name, parameters, observe) = steers(of, contender);
                let far = side.opposite().index();
                let config = config(number, side, ends, &keys[far], of, name)
                    .map_err(|why| broken(io::Error::other(why)))?;
                let makes = once(registry, name, &read(parameters))?;
                let below = side.namespace(emulator);
                let namespace =
                    Namespace::create(&format!("{}-site{number}", below.name())).map_err(host)?;
                let bind = || GatewayListener::bind(ends[side.index()]);
                let socket = below.run(bind).map_err(host)?.map_err(broken)?;
                let key = keys[side.index()].clone();
                let start =
                    move || Gateway::start_with_listener(socket, config, &key, makes, observe);
                let gateway = namespace.run(start).map_err(host)?;
                let gateway = gateway.map_err(|why| broken(io::Error::other(why)))?;
                let epoch_ns = monotonic_ns().saturating_sub(ns(gateway.report().uptime));
                made.push(TestSite {
                    name: pair.names[side.index()].clone(),
                    namespace,
                    gateway: Some(gateway),
                    epoch_ns,
                    bundle,
                    mode: ("open", epoch_ns),
                    samples: Vec::new(),
                    changes: Vec::new(),
                });
            }
            made.reverse();
            sites.sites.append(&mut made);
        }
        sites.await_keys()?;
        Ok(sites)
    }

    fn await_keys(&self) -> Result<(), Error> {
        let deadline = monotonic_ns() + KEY_EXCHANGE_TIMEOUT_NS;
        while !self.sites.iter().all(TestSite::has_keys) {
            let now = monotonic_ns();
            if now >= deadline {
                return Err(Error::traffic(
                    "agree on keys between two sites",
                    "with a loss near 100%, no handshake succeeds",
                )(io::ErrorKind::TimedOut.into()));
            }
            wait_until(now + KEY_POLL_INTERVAL_NS);
        }
        Ok(())
    }

    /// Returns the namespaces of the sites, in the order of their spaces.
    pub fn namespaces(&self) -> Vec<Namespace> {
        self.sites
            .iter()
            .map(|site| site.namespace.clone())
            .collect()
    }

    /// Samples every bundle.
    pub fn sample(&mut self) {
        for site in self.sites.iter_mut().filter(|site| site.bundle.is_some()) {
            site.sample();
        }
    }

    /// Stops all gateways and returns the measurements since the start of the run. Shares and
    /// delays exclude the time before `warm`.
    pub fn finish(mut self, scenario: &Scenario, started_ns: u64) -> Result<SitesResult, Error> {
        let mut ended = SitesResult {
            metrics: vec![BundleMetrics::default(); scenario.bundles.len()],
            samples: vec![Vec::new(); scenario.bundles.len()],
            side_effects: Vec::new(),
        };
        for site in &mut self.sites {
            ended.side_effects.extend(site.side_effects()?);
            if let Some((number, bundle)) = site
                .bundle
                .and_then(|number| Some((number, scenario.bundles.get(number)?)))
            {
                let warm_ns = scenario.warm_up.as_nanos();
                let (metrics, samples) = site.bundle_result(bundle.title(), started_ns, warm_ns);
                (ended.metrics[number], ended.samples[number]) = (metrics, samples);
            }
            site.stop()?;
        }
        Ok(ended)
    }
}

impl TestSite {
    /// Returns the gateway's report of its only peer, and the time of the report.
    fn peer(&self) -> Option<(u64, PeerReport)> {
        let report = self.gateway.as_ref()?.report();
        Some((
            self.epoch_ns + ns(report.uptime),
            report.peers.into_iter().next()?,
        ))
    }

    fn has_keys(&self) -> bool {
        self.peer()
            .is_some_and(|(_, peer)| peer.keys_age_seconds.is_some())
    }

    fn sample(&mut self) {
        let Some((at_ns, peer)) = self.peer() else {
            return;
        };
        let since_ns = at_ns.saturating_sub(ns(peer.since_seconds));
        let (mode, before_ns) = self.mode;
        if mode != peer.mode || since_ns > before_ns + MODE_CHANGE_INTERVAL_NS_MIN {
            self.mode = (peer.mode, since_ns);
            self.changes.push((since_ns, peer.mode, peer.reason));
        }
        let gauge = |name: &str| peer.gauges.get(name).copied().unwrap_or_default();
        self.samples.push(BundleSample {
            at_ns,
            mode: match peer.mode {
                "delay" => 1,
                "passing" => 2,
                _ => 0,
            },
            limit_mbit: peer.rate.map_or(0.0, |rate| rate as f64 / 1e6),
            received_mbit: peer.received as f64 / 1e6,
            waiting_bytes: peer.queue_bytes,
            rtt_ms: peer.rtt,
            min_rtt_ms: peer.min_rtt,
            eta: gauge("eta"),
            capacity_mbit: gauge("capacity") * 8.0 / 1e6,
            cross_mbit: gauge("cross") * 8.0 / 1e6,
            ..BundleSample::default()
        });
    }

    /// Returns the metrics and the samples of the bundle, with times relative to the start of the
    /// run.
    fn bundle_result(
        &mut self,
        name: String,
        started_ns: u64,
        warm_ns: u64,
    ) -> (BundleMetrics, Vec<BundleSample>) {
        self.sample();
        let mut samples = std::mem::take(&mut self.samples);
        samples.retain(|sample| sample.at_ns >= started_ns);
        samples
            .iter_mut()
            .for_each(|sample| sample.at_ns -= started_ns);
        let counted = samples.partition_point(|sample| sample.at_ns < warm_ns);
        let changes = self.changes.iter().map(|(at_ns, to, why)| BundleChange {
            at_s: at_ns.saturating_sub(started_ns) as f64 / 1e9,
            to: (*to).to_owned(),
            why: (*why).to_owned(),
        });
        let counts = self.peer().map(|(_, peer)| peer.counts).unwrap_or_default();
        let count = |what: &str| counts.get(what).copied().unwrap_or_default();
        let metrics = BundleMetrics {
            name,
            arrived: count("arrived_packets"),
            missing: count("missing_packets"),
            dropped: count("dropped_packets"),
            out_of_order_share: count("out_of_order_packets") as f64
                / count("arrived_packets").max(1) as f64,
            changes: changes.collect(),
            ..BundleMetrics::default()
        }
        .with_samples(&samples[counted..]);
        (metrics, samples)
    }

    /// Describes packets that were lost for other reasons than the queues and the link.
    fn side_effects(&self) -> Result<Vec<String>, Error> {
        let Some(report) = self.gateway.as_ref().map(Gateway::report) else {
            return Ok(Vec::new());
        };
        let stats = self
            .namespace
            .run(|| interface_stats(GATEWAY_DEVICE))
            .map_err(host)?;
        let InterfaceStats { tx_dropped, .. } = stats.map_err(host)?;
        let of_peer = |what: &str| {
            report
                .peers
                .first()
                .and_then(|peer| peer.counts.get(what))
                .copied()
                .unwrap_or_default()
        };
        let all = [
            (tx_dropped, "were dropped because the gateway was too slow"),
            (
                report.packets_without_memory,
                "were dropped because the gateway had no memory",
            ),
            (report.packets_refused, "were rejected by the site's device"),
            (
                of_peer("unreachable_packets"),
                "were dropped after waiting too long for keys",
            ),
            (of_peer("too_long"), "were too long for the path"),
        ];
        let told = all.into_iter().filter(|(packets, _)| *packets > 0);
        Ok(told
            .map(|(packets, what)| format!("site {}: {packets} packets {what}", self.name))
            .collect())
    }

    /// Stops the gateway in the namespace of its device. Returns the error of a gateway that has
    /// failed.
    fn stop(&mut self) -> Result<(), Error> {
        let Some(gateway) = self.gateway.take() else {
            return Ok(());
        };
        let stopped = self.namespace.run(move || gateway.stop()).map_err(host)?;
        stopped.map_err(|why| broken(io::Error::other(why)))
    }
}

impl Drop for TestSite {
    fn drop(&mut self) {
        // The error is ignored: the caller dropped the site without asking for its result.
        let _ = self.stop();
    }
}

/// Creates the algorithm now, so that errors appear before the run.
fn once(
    registry: &Registry,
    name: &str,
    parameters: &Parameters,
) -> Result<AlgorithmFactory, Error> {
    let made = Mutex::new(Some(registry.by_name(name, parameters)?));
    Ok(Arc::new(move |_| {
        let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
        made.take().ok_or_else(|| {
            "internal error: an algorithm was requested twice for one site".to_owned()
        })
    }))
}

fn host(error: ccplane_host::Error) -> Error {
    BackendError::from_host(error, false)
}

fn broken(why: io::Error) -> Error {
    Error::traffic("run a site's gateway", "")(why)
}

/// Converts a gateway's seconds to nanoseconds.
fn ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn classes_of_a_bundle_are_selected_by_the_dscp_of_their_band() {
        let nodes = ["near", "far"].map(|name| format!("{{ name = \"{name}\", switch = true }}"));
        let scenario = |bundle: &str| {
            let text = format!(
                "contenders = [\"bundler\"]\nduration = \"1s\"\n\
                 node = [{}, {{ name = \"server\" }}, {{ name = \"client\" }}]\n\
                 link = [{{ from = \"server\", to = \"near\" }}, {{ from = \"near\", to = \"far\", \
                 rate = \"24mbit\", delay = \"10ms\" }}, {{ from = \"far\", to = \"client\" }}]\n\
                 bundle = [{{ from = \"near\", to = \"far\", {bundle} }}]\n\
                 [[workload]]\nfrom = \"server\"\nto = \"client\"\nband = 1\nbulk = {{}}\n",
                nodes.join(", ")
            );
            Scenario::parse("test.toml", &text, Path::new(".")).unwrap()
        };
        let refused = |scenario: &Scenario| unsupported(scenario, &Layout::new(scenario).unwrap());
        let three = scenario(
            "class = [{}, { level = 1, weight = 3, queue = \"fq_codel\" }, { level = 1 }]",
        );
        assert_eq!(refused(&three), Vec::<String>::new());
        let key = PrivateKey::from_bytes([1; 32]);
        let ends = [1, 2].map(|end| SocketAddr::from(([10, 77, 0, end], GATEWAY_PORT)));
        let bundle = Some(&three.bundles[0]);
        let config = config(0, PathSide::Left, ends, &key, bundle, "bundler").unwrap();
        let found: Vec<_> = config
            .classes
            .iter()
            .map(|class| {
                let dscp = class.matches.as_ref().map(|matches| matches.dscp[0].0);
                (dscp, class.level, class.weight, class.queue.is_some())
            })
            .collect();
        assert_eq!(
            found,
            [
                (Some(0), 0, 1, false),
                (Some(1), 1, 3, true),
                (None, 1, 1, false)
            ]
        );
        assert!(config.site.copy_dscp);
        let parts = refused(&scenario("queue = \"prio:2:100p\""));
        assert!(
            parts.len() == 1 && parts[0].starts_with("a `prio` queue of near -> far"),
            "{parts:?}"
        );
    }
}
