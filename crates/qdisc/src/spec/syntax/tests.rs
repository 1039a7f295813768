use ccplane_units::{Duration, Rate};
use proptest::prelude::*;

use super::*;
use crate::{AnyQdisc, Ecn, Limit, Packet};

fn limit(text: &str, mbit: u64, ms: u64) -> Result<Limit, QueueSpecError> {
    let rate = (mbit > 0).then_some(Rate::from_bits_per_sec(mbit * 1_000_000));
    text.parse::<QueueSpec>()?
        .limit(rate, Duration::from_millis(ms), 1_500)
}

#[test]
fn sizes_are_read_as_people_write_them() {
    // 96 Mbit/s × 20 ms are 160 packets of 1500 bytes.
    assert_eq!(limit("droptail:1bdp", 96, 20), Ok(Limit::Bytes(240_000)));
    assert_eq!(limit("droptail:0.5bdp", 96, 20), Ok(Limit::Bytes(120_000)));
    assert_eq!(
        limit("droptail:1.125bdp", 96, 20),
        Ok(Limit::Bytes(270_000))
    );
    assert_eq!(limit("droptail:160p", 0, 0), Ok(Limit::Packets(160)));
    assert_eq!(limit("droptail:240kB", 0, 0), Ok(Limit::Bytes(240_000)));
    assert_eq!(limit("droptail:64k", 0, 0), Ok(Limit::Bytes(65_536)));
    assert_eq!(limit("droptail:inf", 0, 0), Ok(Limit::Unlimited));
}

#[test]
fn the_limit_of_fair_queues_has_any_unit() {
    assert_eq!(limit("sfq", 96, 20), Ok(Limit::Packets(127)));
    assert_eq!(
        limit("sfq:limit=1.875MB", 96, 20),
        Ok(Limit::Bytes(1_875_000))
    );
    assert_eq!(limit("sfq:limit=1bdp", 96, 20), Ok(Limit::Bytes(240_000)));
    assert_eq!(
        limit("fq_codel:limit=1.875MB", 96, 20),
        Ok(Limit::Bytes(1_875_000))
    );
    // A bare number, as `tc` writes the limit; the other sizes have units.
    assert_eq!(limit("sfq:limit=1000", 96, 20), Ok(Limit::Packets(1_000)));
}

#[test]
fn a_limit_is_told_in_packets_and_bytes() {
    let told = |text| limit(text, 96, 20).expect("large enough").describe(1_500);
    assert_eq!(told("droptail:1bdp"), "240000 bytes (160 packets of 1500)");
    assert_eq!(told("droptail:10p"), "10 packets (15000 bytes)");
    assert_eq!(told("droptail:inf"), "no limit");
}

#[test]
fn a_queue_that_holds_no_packet_is_refused() {
    let too_small = |bytes, bdp| {
        Err(QueueSpecError::TooSmall {
            bytes,
            mtu: 1_500,
            bdp,
        })
    };
    let rate = Rate::from_bits_per_sec(96_000_000);
    assert_eq!(limit("droptail:1bdp", 96, 0), too_small(0, Some(rate)));
    assert_eq!(limit("droptail:0p", 96, 20), too_small(0, None));
    assert_eq!(limit("droptail:1499B", 96, 20), too_small(1_499, None));
    assert_eq!(limit("droptail:1bdp", 0, 20), Err(QueueSpecError::NoRate));
    let text = limit("droptail:1bdp", 96, 0)
        .expect_err("0 bytes")
        .to_string();
    assert!(
        text.contains("less than one packet of 1500 bytes")
            && text.contains("check the rate and the delay")
    );
    assert!(text.contains("mean rate of 96mbit"), "{text}");
    // The trace has one opportunity at 1 ms and the next after 136 years.
    let trace = crate::Trace::parse(include_str!("../../../../../tests/cases/12-slow.trace"))
        .expect("a trace");
    let queue: QueueSpec = "droptail:1bdp".parse().expect("a queue");
    let refused = queue
        .limit(Some(trace.mean_rate()), Duration::from_millis(20), 1_500)
        .expect_err("no packet fits");
    assert!(
        refused.to_string().contains("mean rate below 8bit/s"),
        "{refused}"
    );
}

#[test]
fn what_is_not_a_queue_is_refused() {
    for text in [
        "",
        "droptail",
        "droptail:",
        "droptail:160",
        "droptail:bdp",
        "droptail:-1bdp",
        "droptail:1.bdp",
        "droptail:1.0001bdp",
        "droptail:1e9bdp",
        "droptail:9999999999999bdp",
        "droptail:1xp",
        "droptail:infinite",
        "fq_codle:1bdp",
        "1bdp",
        "droptail:1bdp:2",
        "droptail: 1bdp",
    ] {
        let error = text.parse::<QueueSpec>();
        assert!(
            matches!(error, Err(QueueSpecError::Syntax { .. })),
            "{text}: {error:?}"
        );
    }
}

/// Defines `variant`, the name of a specification's variant, and `VARIANTS`, all names. A variant
/// missing from the list does not compile.
macro_rules! variants {
    ($($name:ident),* $(,)?) => {
        fn variant(spec: &QueueSpec) -> &'static str {
            match spec { $(QueueSpec::$name { .. } => stringify!($name),)* }
        }

        const VARIANTS: &[&str] = &[$(stringify!($name)),*];
    };
}

variants! {
    DropTail, Prio, Ecn, Sfq, Codel, FqCodel, Red, DualPi2, Tbf, Policer, Rcp,
}

#[test]
fn the_examples_cover_every_variant() {
    for name in VARIANTS {
        let covered = QueueSpec::examples()
            .any(|text| text.parse().is_ok_and(|spec| variant(&spec) == *name));
        assert!(covered, "no example of QueueSpec::{name} in QUEUES");
    }
}

/// Settings with the values that users write, each kind's limit also in bandwidth-delay products.
const WRITTEN: &[&str] = &[
    "droptail:1bdp",
    "droptail:0.125bdp",
    "prio:3:1bdp",
    "prio:5:shared:1bdp",
    "ecn:65p",
    "ecn:65p:1bdp",
    "sfq",
    "sfq:limit=1000p:depth=100:flows=20:divisor=64:quantum=300",
    "sfq:limit=1875000B:depth=1000",
    "sfq:limit=0.5bdp",
    "codel",
    "codel:target=100ms:interval=5ms:limit=2000p",
    "codel:target=1ms:interval=20ms:ecn:limit=1bdp",
    "fq_codel",
    "fq_codel:noecn:limit=1000p:flows=16:quantum=300",
    "fq_codel:target=100ms:interval=5ms:limit=1875000B",
    "fq_codel:limit=1bdp",
    "red:min=30p:max=90p",
    "red:min=0.5bdp:max=1bdp:limit=3bdp:probability=10%:weight=1%:ecn",
    "dualpi2",
    "dualpi2:limit=1bdp:target=20ms:tupdate=15ms:alpha=0.2:beta=4:coupling_factor=3:\
     step_thresh=800us:range=400us:classic_protection=20",
    "tbf:rate=96mbit:burst=32kB:limit=1bdp",
    "policer:rate=50mbit:burst=250kB",
    "policer:rate=50mbit:burst=250kB:limit=1bdp",
    "rcp",
    "rcp:limit=2bdp:alpha=0.5:beta=1:init=100",
];

/// Checks that a text is read, printed unchanged, and builds the queue of its kind.
fn check_round_trip(text: &str) -> QueueSpec {
    let spec: QueueSpec = text.parse().expect(text);
    assert_eq!(spec.to_string(), text);
    let built: AnyQdisc<Plain> = build(&spec).expect(text);
    let expected = match variant(&spec) {
        "Ecn" => "EcnStep",
        name => name,
    };
    assert_eq!(format!("{built:?}").split('(').next(), Some(expected));
    spec
}

#[test]
fn every_queue_is_read_and_printed() {
    for text in WRITTEN {
        check_round_trip(text);
    }
}

#[test]
fn every_example_is_of_its_kind() {
    for queue in QUEUES {
        for text in queue.examples {
            check_round_trip(text);
            assert_eq!(text.split(':').next(), Some(queue.name));
        }
    }
}

#[test]
fn a_new_limit_changes_nothing_else() {
    for text in QueueSpec::examples() {
        let spec: QueueSpec = text.parse().expect(text);
        let limited = spec.with_limit(Size::Bytes(99_000));
        let limit = limited.limit(None, Duration::ZERO, 1_500);
        assert_eq!(limit, Ok(Limit::Bytes(99_000)), "{text}");
        assert_eq!(limited.with_limit(spec.limit_size()), spec, "{text}");
    }
}

#[test]
fn every_hint_is_valid() {
    for queue in QUEUES {
        for text in queue.hint.split('`').skip(1).step_by(2) {
            assert!(text.parse::<QueueSpec>().is_ok(), "{text}");
            assert_eq!(text.split(':').next(), Some(queue.name));
        }
    }
}

#[test]
fn default_values_are_accepted_and_not_printed() {
    assert_eq!(
        "codel:target=5ms:noecn"
            .parse::<QueueSpec>()
            .map(|spec| spec.to_string()),
        Ok("codel".into())
    );
}

#[derive(Debug)]
struct Plain;

impl Packet for Plain {
    fn bytes(&self) -> u32 {
        1_500
    }

    fn ecn(&self) -> Ecn {
        Ecn::Ect0
    }
}

fn build(spec: &QueueSpec) -> Result<AnyQdisc<Plain>, QueueSpecError> {
    let rate = Rate::from_bits_per_sec(96_000_000);
    spec.build(Some(rate), Duration::from_millis(20), 1_500, 1)
}

#[test]
fn the_reason_says_what_to_write() {
    for (text, why) in [
        ("fq_codle", "did you mean `fq_codel`?"),
        ("blue", "choose one of `droptail`, `prio`"),
        ("droptail:160", "needs a unit"),
        ("droptail", "write `droptail:1bdp`"),
        ("prio:0:1bdp", "`0` is not a number from 1 to 255"),
        ("prio:3:common:1bdp", "write `prio:3:1bdp`"),
        ("codel:targte=5ms", "did you mean `target`?"),
        ("codel:target=5", "`target=5`"),
        ("codel:target", "`target` has no value; write `target=…`"),
        ("codel:ecn=1", "`ecn` takes no value"),
        ("codel:target=5ms:target=6ms", "`target` is given twice"),
        ("codel:target=0ms", "above zero"),
        ("fq_codel:interval=0ms", "above zero"),
        ("fq_codel:flows=0", "from 1 to 65536"),
        ("sfq:limit=many", "`limit=many`"),
        ("red", "it needs min and max"),
        ("red:min=1p:max=5p:probability=0", "may be zero"),
        ("red:min=1p:max=5p:probability=1", "without a %"),
        ("red:min=1p:max=5p:probability=1.5", "without a %"),
        ("red:min=1p:max=5p:probability=150%", "at most 1"),
        ("dualpi2:alpha=0", "above zero"),
        ("dualpi2:classic_protection=101", "from 0 to 100"),
        ("tbf:rate=1mbit", "rate, burst and limit"),
        ("policer:rate=1mbit", "rate and burst"),
        (
            "tbf:rate=0mbit:burst=2kB:limit=9p",
            "a rate of zero sends nothing",
        ),
        ("rcp:init=0", "from 1 to 100"),
    ] {
        let error = text.parse::<QueueSpec>().expect_err(text).to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn what_cannot_work_on_the_link_is_refused() {
    let error = |text: &str| {
        let spec: QueueSpec = text.parse().expect(text);
        let refused = build(&spec).expect_err(text);
        let rate = Rate::from_bits_per_sec(96_000_000);
        let checked = spec.check(Some(rate), Duration::from_millis(20), 1_500);
        assert_eq!(checked, Err(refused.clone()), "{text}");
        refused.to_string()
    };
    assert!(error("tbf:rate=1mbit:burst=1kB:limit=9p").contains("make the burst larger"));
    assert!(error("policer:rate=1mbit:burst=1kB").contains("make the burst larger"));
    assert!(error("red:min=3p:max=9kB").contains("different units"));
    assert!(error("red:min=9p:max=3p").contains("not below"));
    assert!(error("prio:3:100B").contains("less than one packet"));
    assert!(error("codel:limit=0p").contains("less than one packet"));
    assert!(error("sfq:limit=0p").contains("less than one packet"));
    assert!(error("sfq:limit=1kB").contains("less than one packet"));
    let spec: QueueSpec = "rcp:limit=9p".parse().expect("a queue");
    let unlimited = spec.build::<Plain>(None, Duration::ZERO, 1_500, 1);
    assert_eq!(unlimited.err(), Some(QueueSpecError::NoRate));
}

#[test]
fn a_fifo_is_known_by_its_limits() {
    let limits = |text: &str| {
        let rate = Some(Rate::from_bits_per_sec(96_000_000));
        let spec: QueueSpec = text.parse().expect(text);
        let limits = spec
            .fifo_limit(rate, Duration::from_millis(20), 1_500)
            .expect(text);
        limits.map(|fifo| (fifo.limit, fifo.mark_above))
    };
    assert_eq!(
        limits("droptail:1bdp"),
        Some((Limit::Bytes(240_000), Limit::Unlimited))
    );
    assert_eq!(
        limits("ecn:65p:100p"),
        Some((Limit::Packets(100), Limit::Packets(65)))
    );
    assert_eq!(limits("codel"), None);
}

/// Generates texts that resemble queue specifications.
fn likely() -> impl Strategy<Value = String> {
    let names: Vec<_> = QUEUES.iter().map(|queue| queue.name).collect();
    let setting = prop_oneof![
        "[a-z_]{1,12}=[0-9.]{0,4}[a-zA-Z%]{0,4}",
        "(target|interval|limit|min|max|rate|burst|alpha|flows|quantum|probability)\
         =[0-9]{1,4}(ms|p|kB|bdp|mbit|%|)",
        "(ecn|noecn|shared|[0-9]{1,3}p?|[0-9.]{1,5}bdp)",
    ];
    (
        proptest::sample::select(names),
        proptest::collection::vec(setting, 0..5),
    )
        .prop_map(|(name, settings)| {
            std::iter::once(name.to_string())
                .chain(settings)
                .collect::<Vec<_>>()
                .join(":")
        })
}

proptest! {
    #[test]
    fn whatever_is_written_what_is_understood_is_printed_and_can_be_built(
        text in prop_oneof![likely(), any::<String>()],
    ) {
        if let Ok(spec) = text.parse::<QueueSpec>() {
            prop_assert_eq!(spec.to_string().parse::<QueueSpec>(), Ok(spec));
            match build(&spec) {
                Ok(_) => {}
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }

    #[test]
    fn what_is_printed_is_read_again(size in prop_oneof![
        any::<u32>().prop_map(|n| Size::Packets(n.into())),
        any::<u32>().prop_map(|n| Size::Bytes(n.into())),
        (0_u64..=1_000_000_000).prop_map(Size::MilliBdp),
        Just(Size::Unlimited),
    ]) {
        let spec = QueueSpec::DropTail(size);
        prop_assert_eq!(spec.to_string().parse(), Ok(spec));
    }
}
