use ccplane_qdisc::Limit;
use proptest::prelude::*;

use super::*;

const KEY_A: &str = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";
const KEY_B: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

fn parse(text: &str) -> Result<GatewayConfig, Problem> {
    GatewayConfig::parse(
        "site.toml",
        text,
        &|algorithm| match algorithm.name.as_str() {
            "bundler" | "copa" => Ok(()),
            other => Err(format!(
                "there is no algorithm `{other}`; available: bundler, copa"
            )),
        },
    )
}

/// Returns a configuration with extra lines for the site and the peer, followed by `behind`.
fn with(site: &str, peer: &str, behind: &str) -> String {
    format!(
        "[site]\nkey = \"a.key\"\nlisten = \"0.0.0.0:51820\"\n\
         addresses = [\"10.7.0.1/24\"]\n{site}\n\
         [[peer]]\nname = \"b\"\npublic_key = \"{KEY_A}\"\n\
         prefixes = [\"10.8.0.0/16\", \"10.7.0.2/32\"]\n{peer}\n{behind}\n"
    )
}

/// Returns a second peer with extra lines.
fn second(lines: &str) -> String {
    format!("[[peer]]\npublic_key = \"{KEY_B}\"\n{lines}\n")
}

#[test]
fn the_shortest_file_has_every_default() {
    let config = parse(&with("", "", "")).unwrap();
    assert_eq!(config.site.mtu, 1_420);
    let peer = &config.peers[0];
    assert_eq!(
        peer.address,
        Some("10.7.0.2".parse().unwrap()),
        "the prefix that is one address"
    );
    assert_eq!(
        (peer.algorithm.to_string().as_str(), peer.buffer),
        ("bundler", None)
    );
    assert_eq!(
        (peer.min_rate.to_string().as_str(), peer.max_rate),
        ("1mbit", None)
    );
    let [rest] = &config.classes[..] else {
        panic!("{:?}", config.classes)
    };
    assert_eq!((rest.name.as_str(), rest.weight), ("rest", 1));
}

#[test]
fn the_examples_are_read() {
    for text in [
        include_str!("../../../../examples/gateway/site-a.toml"),
        include_str!("../../../../examples/gateway/site-b.toml"),
    ] {
        let config = parse(text).unwrap();
        assert!(config.peers[0].address.is_some());
    }
}

#[test]
fn invalid_settings_are_reported_with_line_and_fix() {
    // The extra lines of the site start at line 5, those of the peer at line 10.
    for (site, peer, line, message, fix) in [
        ("mtu = 1000", "", 5, "too short", "at least 1280"),
        (
            "mtu = 70000",
            "",
            5,
            "do not fit into a datagram",
            "at most",
        ),
        (
            "device = \"a/b\"",
            "",
            5,
            "not a valid interface name",
            "1 to 15",
        ),
        ("colour = 1", "", 5, "no setting `colour`", "available:"),
        ("uplink_rate = \"fast\"", "", 5, "not a number", "96mbit"),
        ("copy_dscp = 1", "", 5, "a boolean", ""),
        (
            "",
            "[metrics]\nlisten = \"9465\"",
            11,
            "not an address and port",
            "127.0.0.1:9465",
        ),
        (
            "",
            "[metrics]\nlisten = \"[::1]:0\"",
            11,
            "no port",
            "127.0.0.1:9465",
        ),
        (
            "",
            "[metrics]\nport = 9465",
            11,
            "no setting `port`",
            "available:",
        ),
        (
            "",
            "endpoint = \"198.51.100.7\"",
            10,
            "no port",
            "198.51.100.7:51820",
        ),
        (
            "",
            "preshared_key = \"AAAAAAAAAAAAAAAAAAAAAA==\"",
            10,
            "has 16 bytes",
            "44 characters",
        ),
        (
            "",
            "preshared_key = \"secret\"",
            10,
            "not a base64",
            "wg genpsk",
        ),
        (
            "",
            "endpoint = \"[::1]:9\"",
            10,
            "IPv6 address, but",
            "[::]:51820",
        ),
        (
            "",
            "endpoint = \"10.8.3.3:9\"",
            10,
            "into the tunnel",
            "smaller ones",
        ),
        (
            "",
            "algorithm = \"bumbler\"",
            10,
            "no algorithm `bumbler`",
            "available: bundler",
        ),
        (
            "",
            "queue = \"droptail:1bdp\"",
            10,
            "needs the link's rate",
            "in packets or bytes",
        ),
        (
            "",
            "queue = \"tbf:rate=1mbit:burst=32kB:limit=100p\"",
            10,
            "a fixed rate",
            "use one of droptail, prio",
        ),
        ("", "buffer = \"20s\"", 10, "out of range", "150ms"),
        ("", "buffer = \"150ms\"", 10, "no maximum rate", "`max`"),
        (
            "",
            "max = \"100kbit\"",
            10,
            "is below `min` (1mbit)",
            "above `min`",
        ),
        (
            "",
            "min = \"2mbit\"\nmax = \"1mbit\"",
            11,
            "is below `min`",
            "above `min`",
        ),
        (
            "",
            "address = \"10.9.0.1\"",
            10,
            "none of the peer's prefixes",
            "10.9.0.1/32",
        ),
        (
            "",
            "address = \"fd00::1\"",
            10,
            "no address of the same family",
            "addresses",
        ),
    ] {
        let problem = parse(&with(site, peer, "")).unwrap_err();
        assert!(
            problem.message().contains(message),
            "{site}{peer}: {problem}"
        );
        assert_eq!(problem.line(), line, "{site}{peer}: {problem}");
        let said = problem.fix().unwrap_or_default();
        assert!(said.contains(fix), "{site}{peer}: {problem}: {said}");
    }
}

#[test]
fn a_queue_with_a_fixed_rate_is_refused_with_a_list_of_the_others() {
    for text in QueueSpec::examples() {
        let queue: QueueSpec = text.parse().unwrap();
        match parse(&with("", &format!("queue = \"{text}\""), "")) {
            Ok(config) => {
                assert!(!queue.has_fixed_rate(), "{text}");
                assert_eq!(config.peers[0].queue, queue, "{text}");
            }
            Err(problem) if queue.has_fixed_rate() => {
                assert!(problem.message().contains("a fixed rate"), "{problem}");
                assert_eq!(
                    problem.fix(),
                    Some("use one of droptail, prio, ecn, sfq, codel, fq_codel, red, dualpi2")
                );
            }
            Err(problem) => {
                assert!(text.contains("bdp"), "{problem}");
                let message = problem.message();
                assert!(message.contains("needs the link's rate"), "{problem}");
            }
        }
    }
}

#[test]
fn each_class_has_a_queue_its_own_or_the_peer_s() {
    let classes = "[[class]]\nmatch = { dscp = 46 }\nlevel = 1\nqueue = \"fq_codel\"\n\
                   [[class]]\nlevel = 2\nweight = 3\n";
    let config = parse(&with(
        "",
        "queue = \"droptail:240kB\"\nbuffer = \"100ms\"\nmax = \"96mbit\"",
        classes,
    ))
    .unwrap();
    let class = |level, weight, queue: &str| ClassSpec {
        level,
        weight,
        queue: queue.parse().unwrap(),
    };
    let queues = config.queues(&config.peers[0]).classes;
    assert_eq!(
        queues,
        [class(1, 1, "fq_codel"), class(2, 3, "droptail:1.2MB")]
    );
}

#[test]
fn a_buffer_is_as_many_bytes_as_pass_in_its_time() {
    let limit = |site: &str, peer: &str| {
        let config = parse(&with(site, peer, "")).unwrap();
        let queue = config.peers[0].limited_queue(&config.site);
        queue.limit(None, Duration::ZERO, 1_420).unwrap()
    };
    let buffer = "buffer = \"150ms\"";
    assert_eq!(
        limit("", &format!("max = \"96mbit\"\n{buffer}")),
        Limit::Bytes(1_800_000)
    );
    let both = limit(
        "uplink_rate = \"48mbit\"",
        &format!("max = \"96mbit\"\n{buffer}\nqueue = \"fq_codel\""),
    );
    assert_eq!(both, Limit::Bytes(900_000));
    assert_eq!(limit("", "max = \"96mbit\""), Limit::Bytes(1_875_000));
}

#[test]
fn invalid_networks_and_keys_are_reported() {
    let good = with("", "", "");
    for (from, to, message) in [
        ("10.8.0.0/16", "10.8.0.1/16", "host bits set"),
        (KEY_A, "AAAA", "not a public key"),
        ("10.7.0.2/32", "10.7.0.1/32", "this site's own address"),
        ("10.8.0.0/16", "10.7.0.2/32", "belongs to this peer"),
        (
            "\"10.7.0.1/24\"",
            "\"10.7.0.1/24\", \"10.7.0.1/16\"",
            "duplicate address",
        ),
        ("\"10.7.0.1/24\"", "", "has no address"),
        ("0.0.0.0:51820", "0.0.0.0:0", "no port"),
        ("0.0.0.0:51820", "51820", "not an address and port"),
        ("key = \"a.key\"\n", "", "`key` is missing"),
    ] {
        let problem = parse(&good.replacen(from, to, 1)).unwrap_err();
        assert!(problem.message().contains(message), "{to}: {problem}");
        assert!(problem.fix().is_some(), "{to}: {problem}");
    }
    let alone = parse(good.split("[[peer]]").next().unwrap()).unwrap_err();
    assert!(alone.message().contains("has no peer"), "{alone}");
}

#[test]
fn peers_do_not_share_a_name_a_key_or_a_network() {
    for (lines, message) in [
        ("prefixes = [\"10.8.0.0/16\"]", "belongs to another peer"),
        (
            "prefixes = [\"10.9.0.0/16\"]\nname = \"b\"",
            "duplicate peer name `b`, first used on line ",
        ),
        ("prefixes = []", "has no prefixes"),
    ] {
        let problem = parse(&with("", "", &second(lines))).unwrap_err();
        assert!(problem.message().contains(message), "{lines}: {problem}");
    }
    let twice = second("prefixes = [\"10.9.0.0/16\"]").replace(KEY_B, KEY_A);
    assert!(
        parse(&with("", "", &twice))
            .unwrap_err()
            .message()
            .contains(&format!(
                "duplicate public key `{KEY_A}`, first used on line "
            ))
    );
    // Nested prefixes are allowed: the longest match wins.
    let nested = parse(&with("", "", &second("prefixes = [\"10.8.9.0/24\"]"))).unwrap();
    assert_eq!(nested.peers[1].name, "AAAAAAAA");
    // Refused if a nested prefix captures the tunnel address of another peer.
    let taken = with(
        "",
        "address = \"10.8.9.9\"",
        &second("prefixes = [\"10.8.9.0/24\"]"),
    );
    assert!(
        parse(&taken)
            .unwrap_err()
            .message()
            .contains("longer prefix of `AAAAAAAA`")
    );
}

#[test]
fn classes_end_with_one_that_takes_the_rest() {
    let classes = |behind: &str| parse(&with("", "", behind));
    let one =
        classes("[[class]]\nmatch = { dscp = [\"EF\", 10], port = \"5000-5199\" }\nlevel = 3")
            .unwrap();
    let names: Vec<&str> = one
        .classes
        .iter()
        .map(|class| class.name.as_str())
        .collect();
    assert_eq!(names, ["class1", "rest"]);
    assert_eq!(one.classes[1].level, 3);
    for (text, message) in [
        (
            "[[class]]\n[[class]]\nmatch = { dscp = 1 }",
            "takes all remaining packets",
        ),
        ("[[class]]\nmatch = {}", "has no condition"),
        ("[[class]]\nweight = 0", "weight 0"),
        ("[[class]]\nweight = 2000000", "the weight is too large"),
        ("[[class]]\nmatch = { dscp = 64 }", "no codepoint"),
        (
            "[[class]]\nmatch = { port = [1, \"x\"] }",
            "the port is not a number",
        ),
        ("[[class]]\nmatch = { proto = \"tpc\" }", "no protocol"),
        ("[[class]]\nmatch = { colour = 1 }", "no setting `colour`"),
        (
            "[[class]]\nname = \"rest\"\nmatch = { dscp = 1 }",
            "the class `rest` has a `match`",
        ),
        (
            "[[class]]\nname = \"x\"\nmatch = { dscp = 1 }\n[[class]]\nname = \"x\"",
            "duplicate class name",
        ),
    ] {
        let problem = classes(text).unwrap_err();
        assert!(problem.message().contains(message), "{text}: {problem}");
        assert!(problem.line() > 10, "{text}: {problem}");
    }
}

#[test]
fn key_files_are_relative_to_the_configuration_and_differ_from_peers() {
    let dir = std::env::temp_dir().join(format!("ccplane-gateway-config-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("site.toml");
    let knows = |_: &AlgorithmSpec| Ok(());
    std::fs::write(&file, with("", "", "")).unwrap();
    let missing = GatewayConfig::read(&file, &knows).unwrap_err().to_string();
    assert!(
        missing.contains("site.toml:2:") && missing.contains("there is no key file"),
        "{missing}"
    );
    let _ = std::fs::remove_file(dir.join("a.key"));
    let key = PrivateKey::make(&dir.join("a.key")).unwrap();
    let (_, read) = GatewayConfig::read(&file, &knows).unwrap();
    assert_eq!(read.public(), key.public());
    std::fs::write(
        &file,
        with("", "", "").replace(KEY_A, &key.public().to_string()),
    )
    .unwrap();
    let own = GatewayConfig::read(&file, &knows).unwrap_err().to_string();
    assert!(
        own.contains("site.toml:8:") && own.contains("this site's own"),
        "{own}"
    );
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn preshared_keys_require_a_private_file_and_are_not_printed() {
    let dir =
        std::env::temp_dir().join(format!("ccplane-gateway-preshared-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("site.toml");
    let _ = std::fs::remove_file(dir.join("a.key"));
    PrivateKey::make(&dir.join("a.key")).unwrap();
    let knows = |_: &AlgorithmSpec| Ok(());
    let mode =
        |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    std::fs::write(&file, with("", "", "")).unwrap();
    mode(0o644);
    assert!(
        GatewayConfig::read(&file, &knows).is_ok(),
        "without a secret"
    );
    std::fs::write(&file, with("", &format!("preshared_key = \"{KEY_B}\""), "")).unwrap();
    let exposed = GatewayConfig::read(&file, &knows).unwrap_err().to_string();
    assert!(
        exposed.contains("site.toml:8:") && exposed.contains("0644"),
        "{exposed}"
    );
    assert!(!exposed.contains(KEY_B), "{exposed}");
    mode(0o600);
    let (config, _) = GatewayConfig::read(&file, &knows).unwrap();
    assert!(config.to_string().contains(KEY_B));
    assert!(
        !config.without_secrets().to_string().contains(KEY_B)
            && !format!("{config:?}").contains(KEY_B)
    );
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_reload_changes_what_differs_and_nothing_else() {
    let before = parse(&with(
        "",
        "",
        &second("prefixes = [\"10.9.0.0/16\"]\nname = \"c\""),
    ))
    .unwrap();
    assert_eq!(changes(&before, &before), []);
    let mut after = before.clone();
    after.peers.reverse();
    assert_eq!(
        changes(&before, &after),
        [],
        "the order of peers means nothing"
    );
    after.peers.retain(|peer| peer.name == "b");
    after.peers[0].queue = "fq_codel".parse().unwrap();
    after.peers[0].max_rate = Some(Rate::from_bits_per_sec(50_000_000));
    after.peers[0].preshared_key = Some(PresharedKey::from_bytes([7; 32]));
    let new = PeerConfig {
        name: "d".into(),
        public_key: PublicKey::from_bytes([4; 32]),
        ..before.peers[1].clone()
    };
    after.peers.push(new.clone());
    after.classes[0].weight = 2;
    after.site.mtu = 1_400;
    after.site.copy_dscp = true;
    after.metrics = Some(SocketAddr::from(([127, 0, 0, 1], 9_465)));
    let said: Vec<String> = changes(&before, &after)
        .iter()
        .map(ConfigChange::to_string)
        .collect();
    assert_eq!(
        said,
        [
            "`mtu` of the site changed, which requires a restart",
            "`listen` of the metrics changed, which requires a restart",
            "peer `c` removed",
            "peer `b` changed: preshared_key, queue, max",
            "peer `d` added",
            "classes changed",
            "copy_dscp changed",
        ]
    );
}

fn any_config() -> impl Strategy<Value = GatewayConfig> {
    let peer = (
        (any::<bool>(), any::<bool>(), 0..4_u8, 1..60_000_u16),
        (
            0..5_usize,
            1..10_000_u64,
            1..1_000_u64,
            proptest::option::of(1_000..100_000_u64),
        ),
    );
    let class = (
        0..4_u8,
        1..100_u32,
        0..64_u8,
        1..65_535_u16,
        any::<[bool; 4]>(),
        0..6_usize,
    );
    (
        proptest::collection::vec(peer, 1..4),
        proptest::collection::vec(class, 0..4),
        (
            1_280..9_000_u32,
            proptest::option::of(1..u64::MAX / 2_000),
            "[a-z ]{1,8}\\.key",
            any::<bool>(),
            proptest::option::of(1..=u16::MAX),
        ),
    )
        .prop_map(
            |(peers, classes, (mtu, uplink, key, copy_dscp, metrics))| GatewayConfig {
                site: SiteConfig {
                    key: key.into(),
                    listen: "[::]:51820".parse().unwrap(),
                    device: "gw-0.a".into(),
                    addresses: vec![
                        "10.7.0.1/24".parse().unwrap(),
                        "fd07::1/64".parse().unwrap(),
                    ],
                    mtu,
                    uplink_rate: uplink.map(Rate::from_bytes_per_sec),
                    copy_dscp,
                },
                metrics: metrics.map(|port| SocketAddr::from(([127, 0, 0, 1], port))),
                peers: peers
                    .into_iter()
                    .enumerate()
                    .map(|(n, given)| peer_of(n as u8, given))
                    .collect(),
                classes: classes_of(classes),
            },
        )
}

type GivenPeer = ((bool, bool, u8, u16), (usize, u64, u64, Option<u64>));

fn peer_of(
    n: u8,
    ((endpoint, v6, parameters, port), (queue, buffer, min, max)): GivenPeer,
) -> PeerConfig {
    let queues = [
        "sfq",
        "fq_codel:limit=200p",
        "droptail:240kB",
        "codel:ecn",
        "prio:3:100p",
    ];
    let far = if v6 {
        format!("fd08:{n}::2")
    } else {
        format!("10.{}.0.2", 100 + n)
    };
    PeerConfig {
        name: format!("site \"{n}\"").replace(' ', "-"),
        public_key: PublicKey::from_bytes([n; 32]),
        preshared_key: v6.then(|| PresharedKey::from_bytes([n; 32])),
        endpoint: endpoint.then(|| format!("host-{n}.example:{port}").parse().unwrap()),
        prefixes: vec![
            format!("10.{}.0.0/16", 100 + n).parse().unwrap(),
            format!("fd08:{n}::/32").parse().unwrap(),
        ],
        address: Some(far.parse().unwrap()),
        algorithm: AlgorithmSpec {
            name: "copa".into(),
            parameters: (0..parameters)
                .map(|p| (format!("p{p}"), format!("{p}.5ms")))
                .collect(),
        },
        queue: queues[queue].parse().unwrap(),
        buffer: max.map(|_| Duration::from_millis(buffer)),
        min_rate: Rate::from_bytes_per_sec(min),
        max_rate: max.map(Rate::from_bytes_per_sec),
    }
}

fn classes_of(given: Vec<(u8, u32, u8, u16, [bool; 4], usize)>) -> Vec<ClassConfig> {
    let mut all: Vec<ClassConfig> = given
        .into_iter()
        .enumerate()
        .map(
            |(n, (level, weight, dscp, port, with, queue))| ClassConfig {
                name: format!("class \\ {n}"),
                matches: Some(Match {
                    dscp: vec![Dscp(dscp)],
                    prefixes: if with[0] {
                        vec!["10.0.0.0/8".parse().unwrap(), "::/0".parse().unwrap()]
                    } else {
                        vec![]
                    },
                    ports: if with[1] {
                        vec![Ports(port..=65_535), Ports(port..=port)]
                    } else {
                        vec![]
                    },
                    protocols: if with[2] {
                        vec![Protocol(dscp), Protocol(6)]
                    } else {
                        vec![]
                    },
                }),
                level,
                weight,
                queue: (queue < 2).then(|| ["sfq", "fq_codel"][queue].parse().unwrap()),
            },
        )
        .collect();
    all.push(ClassConfig {
        name: "last".into(),
        matches: None,
        level: 1,
        weight: 1,
        queue: None,
    });
    all
}

proptest! {
    #[test]
    fn configurations_round_trip(config in any_config()) {
        let text = config.to_string();
        match parse(&text) {
            Ok(again) => prop_assert_eq!(again, config),
            Err(problem) => prop_assert!(false, "{}\n{}", problem, text),
        }
    }

    #[test]
    fn no_text_can_panic(
        text in "(\\[site\\]|\\[\\[peer\\]\\]|[a-z_]{1,8}|[=\"\\[\\]{}0-9./: \n]){0,60}",
    ) {
        let _ = parse(&text);
    }
}
