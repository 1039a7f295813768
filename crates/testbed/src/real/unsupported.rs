//! Parts of a scenario that real packets do not support, each with its reason.

use std::collections::BTreeMap;

use ccplane_lab::Contender;
use ccplane_lab::capacity::MTU;
use ccplane_lab::scenario::plan::{Pairs, Plan};
use ccplane_lab::scenario::{
    EventChange, LinkSettings, Scenario, Topology, TransportOptions, Workload, WorkloadKind,
};
use ccplane_lab::transport::native;
use ccplane_qdisc::marking::LOW_CLASS_COUNT;
use ccplane_qdisc::{LineSpec, LossModel, QueueSpec, Size};
use ccplane_quic::Stack;
use ccplane_quic::host::Native;
use ccplane_units::{Bytes, Duration, Rate};
use ccplane_workload::{Carrier, NodeId, Pairs as FixedPairs, Workload as Sends};

use super::hosts::{HOSTS_PER_NETWORK_MAX, Hosts, NamespaceHost};
use super::layout::Layout;
use super::sites;
use crate::traffic;
use crate::transport_kind::TransportKind;
use crate::wire::queue_bytes;

/// The emulator forwards packets one by one; a core handles about this rate with full-sized
/// packets. Above it, the result would be a measurement of the machine.
const LINK_RATE_MAX: Rate = Rate::from_bits_per_sec(2_000_000_000);

/// Each long-lived flow takes some megabytes of socket buffers.
const LASTING_FLOWS_MAX: u64 = 1000;

/// Returns the layout of a supported scenario, or a sentence for each unsupported part.
pub(crate) fn supported_layout(
    scenario: &Scenario,
    over: TransportKind,
) -> Result<Layout, Vec<String>> {
    let mut parts: Vec<String> = Vec::new();
    match &scenario.topology {
        Topology::Dumbbell {
            pairs,
            bottleneck,
            reverse,
            access_rate: access,
        } => {
            if access.is_some() {
                parts.push("`access_rate`: the rate of access links cannot be limited".to_owned());
            }
            if *pairs as usize > HOSTS_PER_NETWORK_MAX {
                parts.push(format!(
                    "{pairs} pairs of hosts: the maximum is {HOSTS_PER_NETWORK_MAX}"
                ));
            }
            link(bottleneck, &mut parts);
            way(reverse, &mut parts);
            if let Some(burst) = bottleneck.tbf_burst {
                token_bucket(scenario, (bottleneck, reverse), burst, over, &mut parts);
            }
        }
        Topology::Incast { link: each, .. } => link(each, &mut parts),
        _ => {}
    }
    let layout = Layout::new(scenario).map_err(|why| parts.extend(why)).ok();
    if let Some(layout) = &layout {
        if let Topology::Graph { .. } = &scenario.topology {
            link(layout.forward(), &mut parts);
            way(&layout.links[1].1, &mut parts);
        }
        parts.extend(sites::unsupported(scenario, layout));
    }
    if !scenario.bundles.is_empty() && over != TransportKind::Tcp {
        parts.push("[[bundle]]: bundles need --datapath linux".to_owned());
    }
    if !scenario.routes.is_empty() || scenario.per_packet {
        parts.push("routing: custom routes are not supported".to_owned());
    }
    let carried = TransportOptions {
        // The second loop is part of ccplane's transport.
        rc3: scenario
            .transport
            .rc3
            .filter(|_| over == TransportKind::Udp),
        proof_of_receipt: scenario.transport.proof_of_receipt,
        // The kernel has a setting for it in each namespace.
        restart_after_idle: scenario
            .transport
            .restart_after_idle
            .filter(|_| over == TransportKind::Tcp),
        ..TransportOptions::default()
    };
    if scenario.transport != carried {
        parts.push("[transport]: the settings of real transports cannot be changed".to_owned());
    }
    parts.extend(receipt(scenario, over));
    if scenario.staleness.is_some() {
        parts.push("[steering]: the delay of reports cannot be set".to_owned());
    }
    if scenario.stamps.is_some() {
        parts.push("[stamps]: the errors of clocks cannot be set".to_owned());
    }
    let names: Vec<&str> = layout
        .iter()
        .flat_map(|layout| layout.links.each_ref().map(|(name, _)| &**name))
        .collect();
    if let [forward, _] = names[..] {
        let drawn = scenario.report.link.as_ref().map(|link| &*link.text);
        // Without [report] the bottleneck is drawn.
        if drawn.is_some_and(|drawn| drawn != forward) {
            parts.push(format!(
                "`link` in [report]: only the bottleneck, `{forward}`, can be observed"
            ));
        }
    }
    if !scenario.report.links.is_empty() {
        parts.push("`links` in [report]: only one link can be observed".to_owned());
    }
    for event in &scenario.events {
        match &event.change {
            EventChange::Route(_) => parts
                .push("an event that changes a route: custom routes are not supported".to_owned()),
            _ if !names.is_empty() && !names.contains(&event.link.text.as_str()) => {
                parts.push(format!(
                    "an event of the link `{}`: events can only change `{}`",
                    event.link.text,
                    names.join("` and `")
                ))
            }
            EventChange::Rate(rate) if *rate > LINK_RATE_MAX => parts.push(too_fast(*rate)),
            _ => {}
        }
    }
    scenario
        .workloads
        .iter()
        .for_each(|one| workload(scenario, one, over, &mut parts));
    algorithms(scenario, over, &mut parts);
    let mut named: Vec<String> = Vec::new();
    for part in parts {
        if !named.contains(&part) {
            named.push(part);
        }
    }
    layout.filter(|_| named.is_empty()).ok_or(named)
}

/// Returns a sentence for each workload between hosts that cannot reach each other. A host reaches
/// the other side of the bottleneck; a host of a site reaches the bundle's other site.
pub(crate) fn unreachable_pairs(layout: &Layout, plan: &Plan) -> Vec<String> {
    let hosts = layout.hosts(&plan.network);
    let name = |node: NodeId| plan.network.name(node);
    let apart = |(from, to): &(NodeId, NodeId)| {
        let ends = hosts.get(*from).zip(hosts.get(*to));
        ends.is_some_and(|(from, to)| !from.can_reach(to))
    };
    let mut parts = Vec::new();
    for workload in &plan.workloads {
        let found = match &workload.pairs {
            Pairs::Fixed(FixedPairs::List(pairs)) => pairs.iter().copied().find(apart),
            Pairs::Fixed(FixedPairs::AllToAll { from, to }) => every(&hosts, from, to),
            Pairs::Permutation(all) => every(&hosts, all, all),
        };
        if let Some((from, to)) = found {
            parts.push(format!(
                "`{}`, in which `{}` sends to `{}`: hosts only reach the other side of the \
                 bottleneck, or the other site of their bundle",
                workload.name,
                name(from),
                name(to)
            ));
        }
    }
    parts
}

/// Returns two hosts that cannot reach each other. Hosts of the same space are equivalent.
fn every(hosts: &Hosts, from: &[NodeId], to: &[NodeId]) -> Option<(NodeId, NodeId)> {
    let one_each = |nodes: &[NodeId]| {
        let mut spaces: BTreeMap<usize, (NodeId, NamespaceHost)> = BTreeMap::new();
        for node in nodes {
            if let Some(host) = hosts.get(*node) {
                spaces.entry(host.space).or_insert((*node, host));
            }
        }
        spaces.into_values().collect::<Vec<_>>()
    };
    let to = one_each(to);
    let mut pairs = one_each(from)
        .into_iter()
        .flat_map(|from| to.iter().map(move |to| (from, *to)));
    pairs
        .find(|((_, from), (_, to))| !from.can_reach(*to))
        .map(|((from, _), (to, _))| (from, to))
}

/// Returns a sentence if receivers of real packets cannot do what the scenario requests.
fn receipt(scenario: &Scenario, over: TransportKind) -> Option<String> {
    if !scenario.conceal_losses.is_empty() {
        let why = "`conceal_losses`: real receivers only acknowledge data that arrived; use \
            --datapath sim";
        return Some(why.to_owned());
    }
    let why = match (over, scenario.transport.proof_of_receipt) {
        (TransportKind::Udp, Some(false)) => {
            "false`: receivers over UDP always prove receipt; remove the line"
        }
        (TransportKind::Tcp, Some(true)) => {
            "true`: the kernel's TCP has no proof of receipt; remove the line, or use --datapath \
             sim or udp"
        }
        (TransportKind::Quic(_), Some(true)) => {
            "true`: QUIC has its own check, skipped packet numbers; remove the line, or use \
             --datapath sim or udp"
        }
        _ => return None,
    };
    Some(format!("`proof_of_receipt = {why}"))
}

fn too_fast(rate: Rate) -> String {
    format!(
        "a rate of {rate}: the emulator supports up to {LINK_RATE_MAX}, because above that the \
         result would depend on this machine's speed"
    )
}

fn link(link: &LinkSettings, parts: &mut Vec<String>) {
    if let LineSpec::Unlimited = link.line {
        parts.push("a bottleneck without a rate".to_owned());
    }
    way(link, parts);
}

/// Checks a bottleneck that is a token bucket of the kernel, which has a rate and a queue only.
fn token_bucket(
    scenario: &Scenario,
    (there, back): (&LinkSettings, &LinkSettings),
    burst: Bytes,
    over: TransportKind,
    parts: &mut Vec<String>,
) {
    let mut refuse = |reason: &str| parts.push(format!("`tbf_burst`: {reason}"));
    if over != TransportKind::Tcp {
        refuse("the kernel's token bucket needs --datapath linux");
    }
    if burst.get() < queue_bytes(1) {
        refuse("the burst is smaller than a packet with its Ethernet header, 1514 bytes");
    }
    if !matches!(there.line, LineSpec::Constant(_)) {
        refuse("a token bucket has a constant rate; use `rate`");
    }
    if there.delay + back.delay != Duration::ZERO || there.jitter != Duration::ZERO {
        refuse("virtual devices add no delay; set `rtt = \"0ms\"`, without `jitter`");
    }
    if there.loss != LossModel::NONE {
        refuse("a token bucket loses no packets at random; remove `loss`");
    }
    if !matches!(
        there.queue,
        QueueSpec::DropTail(Size::Packets(_) | Size::Bytes(_))
    ) {
        refuse("its queue is a FIFO of packets or bytes, such as `queue = \"droptail:250p\"`");
    }
    if !matches!(back.line, LineSpec::Unlimited) {
        refuse("the reverse direction has no limit; remove `reverse`");
    }
    if !scenario.events.is_empty() {
        refuse("it cannot be changed during a run; remove [[event]]");
    }
}

/// Checks one direction of the link.
fn way(link: &LinkSettings, parts: &mut Vec<String>) {
    if link.strip_classes {
        parts.push("`strip_classes`: the emulated link cannot remove markings".to_owned());
    }
    if let Some(rate) = link.line.mean_rate().filter(|rate| *rate > LINK_RATE_MAX) {
        parts.push(too_fast(rate));
    }
}

/// Returns a sentence if a workload's packets cannot be sent in its band.
fn band(scenario: &Scenario, workload: &Workload, over: TransportKind) -> Option<String> {
    let datagrams = matches!(
        workload.kind,
        WorkloadKind::Generated(Sends::Paced {
            carrier: Carrier::Datagrams { .. },
            ..
        })
    );
    let why = match over {
        _ if workload.band == 0 => return None,
        _ if workload.band > LOW_CLASS_COUNT => {
            format!("real packets have DSCPs for the bands 0 to {LOW_CLASS_COUNT}")
        }
        // The sockets of datagrams are independent of the transport.
        _ if datagrams => return None,
        TransportKind::Udp if scenario.transport.rc3.is_some() => {
            "the second loop uses the DSCPs of the lower bands for its own packets".to_owned()
        }
        TransportKind::Quic(stack @ (Stack::Quinn | Stack::S2n)) => format!(
            "{}'s driver sets only the ECN bits of its packets; use --datapath quic, linux or udp",
            stack.name()
        ),
        _ => return None,
    };
    Some(format!("`band` of `{}`: {why}", workload.name))
}

fn workload(
    scenario: &Scenario,
    workload: &Workload,
    over: TransportKind,
    parts: &mut Vec<String>,
) {
    parts.extend(band(scenario, workload, over));
    match &workload.kind {
        WorkloadKind::Generated(Sends::Paced {
            carrier: Carrier::Datagrams { bytes, .. },
            ..
        }) if !(super::socket::DATAGRAM_HEADER_BYTES..=MTU).contains(bytes) => parts.push(format!(
            "datagrams of {bytes} bytes in `{}`: the size must be {} to {MTU}, including headers",
            workload.name,
            super::socket::DATAGRAM_HEADER_BYTES
        )),
        WorkloadKind::Generated(Sends::Bulk {
            flows, bytes: None, ..
        }) => {
            let Topology::Dumbbell { pairs, .. } = scenario.topology else {
                return;
            };
            let count = u64::from(*flows) * u64::from(pairs);
            if workload.from.is_empty() && workload.to.is_empty() && count > LASTING_FLOWS_MAX {
                parts.push(format!(
                    "{count} endless flows in `{}`: the maximum is {LASTING_FLOWS_MAX}, because \
                     each needs some megabytes of socket buffers",
                    workload.name
                ));
            }
        }
        _ => {}
    }
}

/// Adds algorithms that do not exist, and those that cannot run in the same run.
fn algorithms(scenario: &Scenario, over: TransportKind, parts: &mut Vec<String>) {
    let own: Vec<&Contender> = scenario
        .workloads
        .iter()
        .filter_map(|w| w.algorithm.as_ref())
        .collect();
    let hosts = scenario.bundle_host_algorithm();
    for contender in scenario
        .contenders
        .iter()
        .chain(own.iter().copied())
        .chain(hosts)
    {
        let Contender::Native { name } = contender else {
            continue;
        };
        match over {
            TransportKind::Tcp if !traffic::exists(name) => parts.push(format!(
                "native:{name}: this kernel has no such congestion control; available: {}",
                traffic::available().join(", ")
            )),
            TransportKind::Udp if native(name).is_err() => {
                parts.push(format!(
                    "native:{name}: ccplane's transport has no such congestion control"
                ));
            }
            TransportKind::Quic(stack) => {
                if let Err(why) = Native::by_name(stack, name) {
                    parts.push(why.to_string());
                }
            }
            _ => {}
        }
    }
    let named = |contender: &Contender| match contender {
        Contender::Ccplane { name, .. } | Contender::Remote { name, .. } => Some(name.clone()),
        Contender::Native { .. } => None,
    };
    // Algorithms that run together: every workload's own and one of the contenders, or, if the
    // contenders control bundles, the congestion control of the hosts.
    let contenders = match scenario.bundle_host_algorithm() {
        Some(hosts) => std::slice::from_ref(hosts),
        None => &scenario.contenders,
    };
    let differ =
        |a: &Contender, b: &Contender| a != b && named(a).is_some() && named(a) == named(b);
    for (place, one) in own.iter().copied().enumerate() {
        let others = contenders.iter().chain(own.iter().skip(place + 1).copied());
        for other in others.filter(|other| differ(one, other)) {
            parts.push(format!(
                "`{one}` next to `{other}`: one run cannot use an algorithm with different \
                 parameters{}",
                if one.agent() == other.agent() {
                    ""
                } else {
                    " or agents"
                }
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ccplane_lab::Backend;

    use super::*;

    fn unsupported(scenario: &Scenario, over: TransportKind) -> Vec<String> {
        supported_layout(scenario, over).err().unwrap_or_default()
    }

    fn shipped(name: &str) -> Scenario {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        let files = std::fs::read_dir(&folder).unwrap();
        let path = files
            .map(|file| file.unwrap().path())
            .find(|path| {
                let file = path.file_name().unwrap().to_string_lossy().into_owned();
                file.starts_with(name) && file.ends_with(".toml")
            })
            .unwrap();
        Scenario::read(&path).unwrap()
    }

    #[test]
    fn thirteen_shipped_scenarios_are_supported() {
        for name in [
            "01", "02", "03", "04", "05", "06", "14", "15", "16", "17", "18", "20", "21",
        ] {
            assert_eq!(
                unsupported(&shipped(name), TransportKind::Tcp),
                Vec::<String>::new(),
                "{name}"
            );
        }
        for (name, reason) in [
            ("07", "a rate of 10gbit"),
            ("08", "a rate of 10gbit"),
            ("09", "one bottleneck"),
            ("10", "one bottleneck"),
            ("11", "one bottleneck"),
            ("12", "one bottleneck"),
            ("13", "one bottleneck"),
            ("19", "one bottleneck"),
        ] {
            let parts = unsupported(&shipped(name), TransportKind::Tcp);
            assert!(
                parts.iter().any(|part| part.contains(reason)),
                "{name}: {parts:?}"
            );
        }
    }

    fn read(text: &str) -> Scenario {
        Scenario::parse("test.toml", text, Path::new(".")).unwrap()
    }

    #[test]
    fn unsupported_parts_are_named_once() {
        let parts = unsupported(
            &read(
                "contenders = [\"native:no_such\", \"copa\"]\nduration = \"1s\"\n\
                 [topology.dumbbell]\nrate = \"4gbit\"\nrtt = \"20ms\"\naccess_rate = \"10gbit\"\n\
                 [transport]\npacing = false\n\
                 [[workload]]\nbulk = {}\n[[workload]]\nbulk = {}\nalgorithm = \"copa:delta=0.1\"\n\
                 [[workload]]\nband = 5\ndatagrams = { rate = \"1mbit\", bytes = 20 }\n\
                 [[event]]\nat = \"100ms\"\nlink = \"left1->left\"\nup = false\n",
            ),
            TransportKind::Tcp,
        );
        let expected = [
            "`access_rate`",
            "a rate of 4gbit",
            "[transport]",
            "an event of the link `left1->left`",
            "`band` of `paced-3`",
            "datagrams of 20 bytes",
            "native:no_such",
            "`copa:delta=0.1` next to `copa`",
        ];
        assert_eq!(parts.len(), expected.len(), "{parts:#?}");
        for (part, begin) in parts.iter().zip(expected) {
            assert!(part.starts_with(begin), "{part}");
        }
    }

    #[test]
    fn packets_are_marked_as_far_as_their_transport_can() {
        let reason = |lines: &str, traffic: &str, over| {
            let parts = unsupported(
                &read(&format!(
                    "contenders = [\"native:cubic\"]\nduration = \"1s\"\n\
                     [topology.dumbbell]\nrate = \"10mbit\"\nrtt = \"20ms\"\n{lines}\n\
                     [[workload]]\nname = \"low\"\n{traffic}\n[[workload]]\nbulk = {{}}\n"
                )),
                over,
            );
            assert!(parts.len() <= 1, "{parts:?}");
            parts.into_iter().next().unwrap_or_default()
        };
        let quic = TransportKind::Quic;
        let all = [TransportKind::Tcp, TransportKind::Udp, quic(Stack::Noq)];
        let bulk = "band = 4\nbulk = {}";
        for over in all {
            assert_eq!(reason("", bulk, over), "", "{over:?}");
            let beyond = reason("", "band = 5\nbulk = {}", over);
            assert!(beyond.contains("the bands 0 to 4"), "{over:?}: {beyond}");
        }
        for stack in [Stack::Quinn, Stack::S2n] {
            let driver = reason("", bulk, quic(stack));
            let begin = format!("`band` of `low`: {}'s driver", stack.name());
            assert!(driver.starts_with(&begin), "{driver}");
            let datagrams = "band = 4\ndatagrams = { rate = \"1mbit\" }";
            assert_eq!(reason("", datagrams, quic(stack)), "", "{stack:?}");
        }
        let second_loop = "[transport]\nrc3 = true";
        let shared = reason(second_loop, bulk, TransportKind::Udp);
        assert!(shared.contains("the second loop uses"), "{shared}");
        let none = reason(second_loop, "band = 0\nbulk = {}", TransportKind::Udp);
        assert_eq!(none, "");
    }

    #[test]
    fn a_token_bucket_of_the_kernel_has_only_a_rate_and_a_queue() {
        let with = |lines: &str, over| {
            let scenario = read(&format!(
                "contenders = [\"native:cubic\"]\nduration = \"1s\"\n[topology.dumbbell]\n\
                 rate = \"1gbit\"\ntbf_burst = \"16kB\"\n{lines}\n[[workload]]\nbulk = {{}}\n"
            ));
            unsupported(&scenario, over)
        };
        let plain = "rtt = \"0ms\"\nqueue = \"droptail:250p\"";
        assert_eq!(with(plain, TransportKind::Tcp), Vec::<String>::new());
        for (lines, over, reason) in [
            (
                plain.to_owned(),
                TransportKind::Udp,
                "needs --datapath linux",
            ),
            (
                plain.replace("0ms", "1ms"),
                TransportKind::Tcp,
                "set `rtt = \"0ms\"`",
            ),
            (
                plain.replace("droptail:250p", "ecn:20p:250p"),
                TransportKind::Tcp,
                "its queue is a FIFO",
            ),
            (
                format!("{plain}\nloss = \"1%\""),
                TransportKind::Tcp,
                "remove `loss`",
            ),
            (
                format!("{plain}\nreverse = {{ rate = \"1gbit\", queue = \"droptail:250p\" }}"),
                TransportKind::Tcp,
                "remove `reverse`",
            ),
            (
                format!(
                    "{plain}\n[[event]]\nat = \"500ms\"\nlink = \"bottleneck\"\nrate = \"1mbit\""
                ),
                TransportKind::Tcp,
                "remove [[event]]",
            ),
        ] {
            let parts = with(&lines, over);
            assert!(
                parts.len() == 1 && parts[0].contains(reason),
                "{lines}: {parts:?}"
            );
        }
        let scenario = read(&format!(
            "contenders = [\"native:cubic\"]\nduration = \"1s\"\n[topology.dumbbell]\n\
             rate = \"1gbit\"\ntbf_burst = \"16kB\"\n{plain}\n[[workload]]\nbulk = {{}}\n"
        ));
        let small = read(
            "contenders = [\"native:cubic\"]\nduration = \"1s\"\n[topology.dumbbell]\n\
             rate = \"1gbit\"\ntbf_burst = \"1kB\"\nrtt = \"0ms\"\nqueue = \"droptail:250p\"\n\
             [[workload]]\nbulk = {}\n",
        );
        let parts = unsupported(&small, TransportKind::Tcp);
        assert!(
            parts.len() == 1 && parts[0].contains("smaller than a packet"),
            "{parts:?}"
        );
        let layout = Layout::new(&scenario).unwrap();
        let bucket = layout.token_bucket().unwrap();
        assert_eq!((bucket.burst, bucket.queue), (16_000, 250 * 1_514));
        let simulated = ccplane_lab::Sim::default()
            .prepare(&scenario, &ccplane_algorithms::Registry::builtin())
            .map(drop);
        let refused = simulated.unwrap_err().to_string();
        assert!(
            refused.contains("unsupported in the simulator"),
            "{refused}"
        );
    }

    #[test]
    fn only_the_kernels_restart_after_idle_can_be_set() {
        let scenario = read(
            "contenders = [\"native:cubic\"]\nduration = \"1s\"\n[topology.dumbbell]\n\
             rate = \"10mbit\"\nrtt = \"20ms\"\n\
             [transport]\nrestart_after_idle = false\n[[workload]]\nbulk = {}\n",
        );
        let none = Vec::<String>::new();
        assert_eq!(unsupported(&scenario, TransportKind::Tcp), none);
        assert_eq!(unsupported(&scenario, TransportKind::Udp).len(), 1);
    }

    #[test]
    fn only_ccplanes_transport_has_a_second_loop() {
        let scenario = read(
            "contenders = [\"native:cubic\"]\nduration = \"1s\"\n[topology.dumbbell]\n\
             rate = \"10mbit\"\nrtt = \"20ms\"\n\
             [transport]\nrc3 = true\n[[workload]]\nbulk = {}\n",
        );
        assert_eq!(unsupported(&scenario, TransportKind::Tcp).len(), 1);
        assert_eq!(
            unsupported(&scenario, TransportKind::Udp),
            Vec::<String>::new()
        );
    }

    #[test]
    fn receivers_of_real_packets_are_as_their_transport_has_them() {
        let refused = |line: &str, over| {
            unsupported(
                &read(&format!(
                    "contenders = [\"native:cubic\"]\nduration = \"1s\"\n[topology.dumbbell]\n\
                     rate = \"10mbit\"\n\
                     rtt = \"20ms\"\n[transport]\n{line}\n[[workload]]\nbulk = {{}}\n"
                )),
                over,
            )
        };
        let quic = TransportKind::Quic(ccplane_quic::Stack::Noq);
        let none = Vec::<String>::new();
        for (line, over, reason) in [
            (
                "proof_of_receipt = true",
                TransportKind::Tcp,
                "the kernel's TCP has no proof of receipt",
            ),
            ("proof_of_receipt = true", quic, "QUIC has its own check"),
            (
                "proof_of_receipt = false",
                TransportKind::Udp,
                "always prove receipt",
            ),
            (
                "conceal_losses = \"right1\"",
                TransportKind::Tcp,
                "use --datapath sim",
            ),
            (
                "conceal_losses = \"right1\"",
                TransportKind::Udp,
                "use --datapath sim",
            ),
        ] {
            let parts = refused(line, over);
            assert!(
                parts.len() == 1 && parts[0].contains(reason),
                "{line}: {parts:?}"
            );
        }
        assert_eq!(refused("proof_of_receipt = true", TransportKind::Udp), none);
        assert_eq!(
            refused("proof_of_receipt = false", TransportKind::Tcp),
            none
        );
        assert_eq!(refused("proof_of_receipt = false", quic), none);
    }
}
