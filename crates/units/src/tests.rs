//! Tests of parsing, formatting and round trips.

use proptest::prelude::*;

use crate::{Bytes, Duration, Packets, ParseError, Probability, Rate, Time};

fn rate(text: &str) -> Result<u64, ParseError> {
    text.parse::<Rate>().map(Rate::bytes_per_sec)
}

fn nanos(text: &str) -> Result<u64, ParseError> {
    text.parse::<Duration>().map(Duration::as_nanos)
}

fn bytes(text: &str) -> Result<u64, ParseError> {
    text.parse::<Bytes>().map(Bytes::get)
}

fn parts(text: &str) -> Result<u64, ParseError> {
    text.parse::<Probability>().map(Probability::parts)
}

#[test]
fn rates_are_read_as_tc_reads_them() {
    assert_eq!(rate("96mbit"), Ok(12_000_000));
    assert_eq!(rate("1.5gbit"), Ok(187_500_000));
    assert_eq!(rate("100kbit"), Ok(12_500));
    // Notations of web pages and published tables.
    assert_eq!(rate("10 Mbit/s"), Ok(1_250_000));
    assert_eq!(rate("1.5 Gbit/s"), rate("1500mbit"));
    assert_eq!(rate("8bit"), Ok(1));
    assert_eq!(rate("1tbit"), Ok(125_000_000_000));
    assert_eq!(rate("12MB/s"), Ok(12_000_000));
    assert_eq!(rate("1 KiB/s"), Ok(1_024));
    assert_eq!(rate("1kibit"), Ok(128));
    assert_eq!(rate("96Mbit"), Ok(12_000_000));
    assert_eq!(rate(" 96 mbit "), Ok(12_000_000));
}

#[test]
fn times_are_read() {
    assert_eq!(nanos("20ms"), Ok(20_000_000));
    assert_eq!(nanos("10us"), Ok(10_000));
    assert_eq!(nanos("10µs"), Ok(10_000));
    assert_eq!(nanos("1.5s"), Ok(1_500_000_000));
    assert_eq!(nanos("100ns"), Ok(100));
    assert_eq!(nanos("2m"), Ok(120_000_000_000));
    assert_eq!(nanos("0ms"), Ok(0));
    assert_eq!(nanos(".5ms"), Ok(500_000));
}

#[test]
fn sizes_and_counts_are_read() {
    assert_eq!(bytes("64k"), Ok(65_536));
    assert_eq!(bytes("150kB"), Ok(150_000));
    assert_eq!(bytes("1500b"), Ok(1_500));
    assert_eq!(bytes("1MiB"), Ok(1 << 20));
    assert_eq!("160p".parse::<Packets>(), Ok(Packets::new(160)));
    assert_eq!("160".parse::<Packets>(), Ok(Packets::new(160)));
    assert_eq!("160pkt".parse::<Packets>(), Ok(Packets::new(160)));
}

#[test]
fn probabilities_are_read_to_the_nearest_part() {
    assert_eq!(parts("0.01%"), Ok(429_497));
    assert_eq!(parts("1e-4"), Ok(429_497));
    assert_eq!(parts("0.0001"), Ok(429_497));
    assert_eq!(parts("0"), Ok(0));
    assert_eq!(parts("0%"), Ok(0));
    assert_eq!(parts("100%"), Ok(1 << 32));
    assert_eq!(parts("50%"), Ok(1 << 31));
    assert_eq!(parts("0.5"), Ok(1 << 31));
    assert_eq!(parts("1e0"), Ok(1 << 32));
    for ambiguous in ["1", "1.0", "01", "5", "100", "1.0001"] {
        let why = parts(ambiguous).expect_err(ambiguous).to_string();
        assert!(
            why.contains("without a %") && why.contains("1%") && why.contains("100%"),
            "{ambiguous}: {why}"
        );
    }
}

#[test]
fn what_is_wrong_is_said_with_what_would_be_right() {
    let reason = |error: Result<u64, ParseError>| error.expect_err("an error").reason();
    assert_eq!(reason(rate("96")), "a number without a unit");
    assert_eq!(reason(rate("0mbit")), "a rate of zero sends nothing");
    assert_eq!(reason(rate("1bit")), "too small: it rounds to zero");
    assert_eq!(reason(rate("-1mbit")), "a quantity cannot be negative");
    assert_eq!(reason(rate("nanmbit")), "not a finite number");
    assert_eq!(reason(rate("infinity")), "not a finite number");
    assert_eq!(reason(rate("mbit")), "not a number");
    assert_eq!(reason(rate(".mbit")), "not a number");
    assert_eq!(reason(rate("")), "the value is empty");
    assert_eq!(reason(rate("1.2.3mbit")), "unknown unit");
    assert_eq!(reason(rate("96mhz")), "unknown unit");
    for both in ["10Mbps", "10 mbps", "1bps", "10Mb/s", "5GIBPS"] {
        let why = both.parse::<Rate>().expect_err("two readings").to_string();
        assert!(
            why.contains("10mbit") && why.contains("10MB/s"),
            "{both}: {why}"
        );
    }
    assert_eq!(reason(rate("99999999999999999999tbit")), "too large");
    assert_eq!(reason(rate(&"9".repeat(1000))), "too many digits");
    assert_eq!(reason(nanos("20")), "a number without a unit");
    assert_eq!(reason(nanos("0.1ns")), "too small: it rounds to zero");
    assert_eq!(reason(bytes("1kb")), "unknown unit");
    assert_eq!(reason(parts("101%")), "a probability is at most 1");
    assert_eq!(reason(parts("2e3")), "a probability is at most 1");
    assert_eq!(
        reason(parts("1e-12")),
        "too small: the smallest probability is 2.4e-10"
    );
    assert_eq!(reason(parts("1e-99999999999")), "unknown unit");
    assert_eq!(reason(parts("1e-2147483648")), "unknown unit");
    let hint = "a number without a unit; write a rate as 96mbit, 1.5gbit or 100kbit (bits/s), or \
                as 12MB/s (bytes/s)";
    assert_eq!(
        "96".parse::<Rate>().map_err(|error| error.to_string()),
        Err(hint.to_owned())
    );
}

#[test]
fn quantities_are_printed_in_their_largest_unit() {
    let shown = |rate: &str| rate.parse::<Rate>().map(|rate| rate.to_string());
    assert_eq!(shown("96mbit"), Ok("96mbit".to_owned()));
    assert_eq!(shown("12MB/s"), Ok("96mbit".to_owned()));
    assert_eq!(shown("1500kbit"), Ok("1.5mbit".to_owned()));
    assert_eq!(Rate::from_bytes_per_sec(0).to_string(), "0bit");
    assert_eq!(Duration::from_millis(20).to_string(), "20ms");
    assert_eq!(Duration::from_micros(1_500).to_string(), "1.5ms");
    assert_eq!(Duration::ZERO.to_string(), "0ms");
    assert_eq!(format!("{:.1}", Duration::from_micros(1_549)), "1.5ms");
    assert_eq!(
        format!("{:.2}", Rate::from_bytes_per_sec(12_345_678)),
        "98.77mbit"
    );
    assert_eq!(Bytes::new(65_536).to_string(), "64KiB");
    assert_eq!(Bytes::new(150_000).to_string(), "150kB");
    assert_eq!(Bytes::new(1_514).to_string(), "1.514kB");
    assert_eq!(Probability::from_parts(429_497).to_string(), "0.01%");
    assert_eq!(Time::from_micros(1_500).to_string(), "1.5ms");
}

#[test]
fn a_probability_hits_as_often_as_it_says() {
    assert!(!Probability::NEVER.hits(0));
    assert!(Probability::ALWAYS.hits(u32::MAX));
    let half = Probability::from_parts(1 << 31);
    assert!(half.hits((1 << 31) - 1) && !half.hits(1 << 31));
}

proptest! {
    #[test]
    fn printing_then_reading_gives_the_same(
        value: u64,
        parts in 0..=1u64 << 32,
        shift in 0..64u32,
    ) {
        let value = value >> shift;
        prop_assert_eq!(
            Duration::from_nanos(value).to_string().parse(),
            Ok(Duration::from_nanos(value))
        );
        prop_assert_eq!(
            Time::from_nanos(value).to_string().parse(),
            Ok(Time::from_nanos(value))
        );
        prop_assert_eq!(Bytes::new(value).to_string().parse(), Ok(Bytes::new(value)));
        prop_assert_eq!(
            Packets::new(value).to_string().parse(),
            Ok(Packets::new(value))
        );
        let probability = Probability::from_parts(parts);
        prop_assert_eq!(probability.to_string().parse(), Ok(probability));
        if value != 0 {
            prop_assert_eq!(
                Rate::from_bytes_per_sec(value).to_string().parse(),
                Ok(Rate::from_bytes_per_sec(value))
            );
        }
    }

    #[test]
    fn no_text_makes_reading_panic(text in "[-+.eE%0-9 a-zµ]{0,40}|\\PC{0,20}") {
        let _ = (rate(&text), nanos(&text), bytes(&text), parts(&text), text.parse::<Packets>());
    }
}

#[test]
fn a_rate_is_an_amount_over_a_time() {
    let of = |bytes, ms| {
        Rate::from_bytes_over(Bytes::new(bytes), Duration::from_millis(ms)).bytes_per_sec()
    };
    assert_eq!((of(1_500, 1), of(0, 1), of(1, 3)), (1_500_000, 0, 333));
    assert_eq!((of(7, 0), of(u64::MAX, 1)), (u64::MAX, u64::MAX));
    // Inverse of `bytes_in`.
    let rate = Rate::from_bytes_per_sec(12_000_000);
    let time = Duration::from_millis(50);
    assert_eq!(Rate::from_bytes_over(rate.bytes_in(time), time), rate);
}
