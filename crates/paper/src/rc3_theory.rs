//! RC3's model of completion times (section 2 and figure 2): one flow, its share of a link, no
//! queue and no loss.
//!
//! A flow of N packets on a path of round-trip time R that has the rate A = (1 - u) C to spare
//! takes
//!
//! > RC3: 1.5 R + N/A  TCP: 1.5 R + k R + (N - i (2^k - 1))/A
//!
//! from asking for the connection to the receiver's having the last byte: a round trip for the
//! handshake, half of one for the last packet, and for TCP with an initial window of i packets the
//! k round trips of slow start until the window holds the rest, or fills the path. The authors'
//! published curve has these 1.5 R; it is reproduced to 0.013 percentage points.

/// Payload of a packet, and its size on the wire, bytes.
pub(super) const PAYLOAD: u64 = 1_460;
pub(super) const WIRE: u64 = 1_500;

/// Packets of the largest flow of the authors' sizes.
pub(super) const MOST_PACKETS: u64 = 2_107;

/// Packets of the initial window in RC3's simulations.
pub(super) const WINDOW: u64 = 4;

/// The theoretical reductions that the authors plotted for Internet-2 at 30 % load and 1 Gbit/s
/// (`baseline-result/improvements/wan-max-30-1Gbps` of their repository): packets, percent.
pub(super) const AUTHORS: [(u64, f64); 11] = [
    (1, 0.0),
    (2, 0.0),
    (3, 0.0),
    (5, 39.937_384_526),
    (7, 39.923_688_018_2),
    (40, 66.336_054_249_3),
    (72, 72.202_709_582_1),
    (137, 76.049_479_437_1),
    (267, 78.500_599_214_2),
    (1_187, 79.018_177_750_9),
    (2_107, 77.175_141_488_1),
];

/// Frequencies of the authors' eleven sizes, thousandths (inferred). They follow from the knots of
/// the data-mining table cut off at 2,107 packets. What lies between two knots counts at their
/// midpoint, as the sizes are such midpoints: 5 of 3 and 7; 137, 72 and 40 of 7 and 267; 1,187 of
/// 267 and 2,107. The sum is 950.
pub(super) const ELEVEN: [(u64, f64); 11] = [
    (1, 500.0),
    (2, 100.0),
    (3, 100.0),
    (5, 50.0),
    (7, 50.0),
    (40, 12.5),
    (72, 12.5),
    (137, 25.0),
    (267, 50.0),
    (1_187, 25.0),
    (2_107, 25.0),
];

/// A path as the model has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Path {
    /// A, bytes/s.
    pub spare: f64,
    /// R, s.
    pub rtt: f64,
}

impl Path {
    /// Of figure 2 and of the authors' curve: 1 Gbit/s, 30 % used, 40 ms.
    pub const WAN: Path = Path {
        spare: 0.7e9 / 8.0,
        rtt: 0.040,
    };

    /// Seconds that RC3 takes for so many packets.
    pub fn rc3(self, packets: u64) -> f64 {
        1.5 * self.rtt + self.seconds(packets)
    }

    /// Seconds that TCP takes that begins with a window of so many.
    pub fn tcp(self, packets: u64, initial_window: u64) -> f64 {
        let (mut window, mut sent, mut rounds) = (initial_window.max(1), 0, 0.0);
        while sent + window < packets && self.seconds(window) < self.rtt {
            sent += window;
            window *= 2;
            rounds += 1.0;
        }
        (1.5 + rounds) * self.rtt + self.seconds(packets - sent)
    }

    /// Percent of TCP's time that RC3 saves.
    pub fn saves(self, packets: u64) -> f64 {
        reduction(self.tcp(packets, WINDOW), self.rc3(packets))
    }

    fn seconds(self, packets: u64) -> f64 {
        (packets * WIRE) as f64 / self.spare
    }
}

/// Percent by which `now` is less than `before`.
pub(super) fn reduction(before: f64, now: f64) -> f64 {
    100.0 * (1.0 - now / before)
}

/// Means of completion times over flows, and over their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Means {
    flows: f64,
    times: f64,
    bytes: f64,
    weighted: f64,
}

impl Means {
    /// So many flows of this size take this long each.
    pub fn add(&mut self, flows: f64, bytes: f64, time: f64) {
        self.flows += flows;
        self.times += flows * time;
        self.bytes += flows * bytes;
        self.weighted += flows * bytes * time;
    }

    /// The mean time of a flow.
    pub fn over_flows(&self) -> Option<f64> {
        (self.flows > 0.0).then(|| self.times / self.flows)
    }

    /// The mean time of the flow that a byte belongs to.
    pub fn over_bytes(&self) -> Option<f64> {
        (self.bytes > 0.0).then(|| self.weighted / self.bytes)
    }
}

/// By how many percent RC3's means are below TCP's by the model, over flows and over bytes, for
/// sizes (packets) of such weights.
pub(super) fn expected(
    path: Path,
    sizes: impl Iterator<Item = (u64, f64)>,
) -> (Option<f64>, Option<f64>) {
    let (mut tcp, mut rc3) = (Means::default(), Means::default());
    for (packets, weight) in sizes {
        tcp.add(weight, packets as f64, path.tcp(packets, WINDOW));
        rc3.add(weight, packets as f64, path.rc3(packets));
    }
    let saved = |of: fn(&Means) -> Option<f64>| Some(reduction(of(&tcp)?, of(&rc3)?));
    (saved(Means::over_flows), saved(Means::over_bytes))
}

/// Every whole number of packets of the table `datamining-rc3`, with its share: the straight lines
/// between the knots.
pub(super) fn continuous() -> impl Iterator<Item = (u64, f64)> {
    const KNOTS: [(u64, f64); 6] = [
        (1, 0.5),
        (2, 0.6),
        (3, 0.7),
        (7, 0.8),
        (267, 0.9),
        (2_107, 0.95),
    ];
    let between = KNOTS.into_iter().zip(KNOTS.into_iter().skip(1));
    let steps = between.flat_map(|((from, below), (to, share))| {
        let each = (share - below) / (to - from) as f64;
        (from + 1..=to).map(move |packets| (packets, each))
    });
    KNOTS.into_iter().take(1).chain(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authors_curve_is_that_of_the_formula() {
        for (packets, percent) in AUTHORS {
            let ours = Path::WAN.saves(packets);
            assert!(
                (ours - percent).abs() < 0.02,
                "{packets} packets: {ours} and {percent}"
            );
        }
    }

    /// Completion times by hand: 137 packets leave in windows of 4, 8, 16, 32, 64 and the rest, 13.
    #[test]
    fn rounds_of_slow_start_are_counted() {
        let tcp = Path::WAN.tcp(137, 4);
        assert!(
            (tcp - (1.5 + 5.0) * 0.040 - 13.0 * 1_500.0 / 87.5e6).abs() < 1e-12,
            "{tcp}"
        );
        // The whole flow fits a window: nothing but 1.5 round trips and the packets themselves, as
        // under RC3.
        assert_eq!(Path::WAN.tcp(4, 4), Path::WAN.rc3(4));
        // A window of 2,389 packets fills the path: 4,096 are no longer waited for.
        let long = Path::WAN.tcp(100_000, 4);
        let sent = 4 * ((1 << 10) - 1);
        assert!(
            (long - 11.5 * 0.040 - ((100_000 - sent) * 1_500) as f64 / 87.5e6).abs() < 1e-9,
            "{long}"
        );
    }

    /// Larger initial windows are between TCP and RC3 (figure 2).
    #[test]
    fn larger_windows_save_less() {
        for (packets, ten, fifty) in [
            (7, 39.9, 39.9),
            (40, 22.2, 66.3),
            (267, 26.1, 52.7),
            (2_107, 15.8, 36.0),
        ] {
            let saves =
                |window| reduction(Path::WAN.tcp(packets, 4), Path::WAN.tcp(packets, window));
            assert!(
                (saves(10) - ten).abs() < 0.06,
                "{packets} packets, 10: {}",
                saves(10)
            );
            assert!(
                (saves(50) - fifty).abs() < 0.06,
                "{packets} packets, 50: {}",
                saves(50)
            );
            assert!(Path::WAN.saves(packets) >= saves(50));
        }
    }

    #[test]
    fn means_of_the_two_distributions() {
        let (flows, bytes) = expected(Path::WAN, continuous());
        assert!(
            (flows.unwrap() - 37.08).abs() < 0.01 && (bytes.unwrap() - 77.17).abs() < 0.01,
            "{flows:?} {bytes:?}"
        );
        let mean: f64 = continuous()
            .map(|(packets, share)| packets as f64 * share)
            .sum::<f64>()
            / 0.95;
        assert!((mean - 78.6).abs() < 0.05, "{mean}");
        let (flows, bytes) = expected(Path::WAN, ELEVEN.into_iter());
        assert!(
            (flows.unwrap() - 40.44).abs() < 0.01 && (bytes.unwrap() - 77.59).abs() < 0.01,
            "{flows:?} {bytes:?}"
        );
        let both = AUTHORS
            .iter()
            .zip(ELEVEN)
            .all(|((one, _), (other, _))| *one == other);
        assert!(both && ELEVEN.iter().map(|(_, share)| share).sum::<f64>() == 950.0);
        assert_eq!(expected(Path::WAN, std::iter::empty()), (None, None));
    }
}
