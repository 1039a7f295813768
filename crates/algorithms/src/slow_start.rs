//! Slow start: which side grows the window, and how it ends before the first loss.
//!
//! The exits are clauses of the datapath program because they examine single ACKs. With one report
//! per RTT, an agent could not see an ACK train and would see a delay increase one RTT late.

/// Side that grows the window in slow start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlowStart {
    /// The program, exact to the byte and never beyond ssthresh.
    #[default]
    Datapath,
    /// The agent, report by report. The window may overshoot ssthresh by the data acknowledged
    /// before the agent's next action.
    Agent,
}

/// Condition that ends slow start before the first loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlowStartExit {
    /// HyStart as in Linux 4.20 and later, with Linux' minimum growth of 5 % per RTT from the exit
    /// to the first loss. Matches native Cubic, so it is the one to compare with it.
    #[default]
    Linux,
    /// HyStart++, RFC 9406.
    Rfc9406,
    /// No exit before the first loss.
    Off,
}

impl SlowStart {
    pub(crate) const WORDS: [(&str, SlowStart); 2] = [
        ("datapath", SlowStart::Datapath),
        ("agent", SlowStart::Agent),
    ];
}

impl SlowStartExit {
    pub(crate) const WORDS: [(&str, SlowStartExit); 3] = [
        ("linux", SlowStartExit::Linux),
        ("rfc9406", SlowStartExit::Rfc9406),
        ("off", SlowStartExit::Off),
    ];

    /// Variables that the clauses add to the window program.
    pub(crate) fn declarations(self) -> &'static str {
        match self {
            SlowStartExit::Linux => LINUX_DECLARATIONS,
            SlowStartExit::Rfc9406 => RFC9406_DECLARATIONS,
            SlowStartExit::Off => "",
        }
    }

    /// Divisor of the growth in slow start: CSS_GROWTH_DIVISOR in the conservative slow start of
    /// RFC 9406, otherwise 1.
    pub(crate) fn divisor(self) -> &'static str {
        match self {
            SlowStartExit::Rfc9406 => "(+ 1 (* 3 (min css_rounds 1)))",
            SlowStartExit::Linux | SlowStartExit::Off => "1",
        }
    }

    /// Clauses that run before the window grows. They end slow start with `(:= Ssthresh Cwnd)`.
    pub(crate) fn clauses(self) -> &'static str {
        match self {
            SlowStartExit::Linux => LINUX_CLAUSES,
            SlowStartExit::Rfc9406 => RFC9406_CLAUSES,
            SlowStartExit::Off => "",
        }
    }
}

const LINUX_DECLARATIONS: &str = "
    (round_size 0) (round_acked 0) (round_start 0) (last_ack 0) (round_rtt +infinity) (samples 0)
    (train 0) (fresh false) (sampled false) (near false)";

/// `hystart_update` of Linux' tcp_cubic.c, with its constants and order:
///
/// - HyStart runs from a window of 16 segments (`hystart_low_window`).
/// - ACKs at most 2000 µs apart form a train (`hystart_ack_delta_us`). A train longer than the
///   minimum RTT fills the pipe. Up to 1000 µs are added for segmentation offload
///   (`hystart_ack_delay`: 4 * 65536 bytes at slow start's pacing rate of 2 * cwnd/srtt). Without
///   pacing, half of that length suffices. Pacing alone stretches the train to half an RTT.
/// - The delay has increased once a round has more than 8 samples (`HYSTART_MIN_SAMPLES`) and their
///   minimum exceeds the minimum RTT by an eighth, clamped to 4 to 16 ms (`HYSTART_DELAY_MIN`,
///   `_MAX`).
///
/// A round ends when more is acknowledged than was in flight at its start. In congestion avoidance,
/// the clause costs one comparison.
///
/// A timer run sees the RTT of the last ACK again, so a sample counts only if packets were
/// acknowledged.
const LINUX_CLAUSES: &str = "
(when (< Cwnd Ssthresh)
    (:= round_acked (+ round_acked Ack.bytes_acked))
    (:= fresh (> round_acked round_size))
    (:= round_size (if fresh Flow.bytes_in_flight))
    (:= round_acked (if fresh 0))
    (:= round_start (if fresh Ack.now))
    (:= last_ack (if fresh Ack.now))
    (:= round_rtt (if fresh +infinity))
    (:= samples (if fresh 0))
    (:= sampled (&& (< Flow.rtt_sample_us +infinity) \
        (> (+ Ack.packets_acked Ack.packets_misordered) 0)
                    (>= Cwnd (* 16 Flow.mss))))
    (:= samples (if sampled (+ samples 1)))
    (:= round_rtt (if sampled (min round_rtt Flow.rtt_sample_us)))
    (:= train (+ Flow.min_rtt_us (min 1000 (/ (* 131072 Flow.srtt_us) Cwnd))))
    (:= train (if (! Flow.paced) (/ train 2)))
    (:= near (&& sampled (<= (diff Ack.now last_ack) 2000)))
    (:= last_ack (if near Ack.now))
    (if (&& near (> (diff Ack.now round_start) train)) (:= Ssthresh Cwnd))
    (if (&& (> samples 8) (> round_rtt (+ Flow.min_rtt_us \
        (max 4000 (min 16000 (/ Flow.min_rtt_us 8))))))
        (:= Ssthresh Cwnd))
    (fallthrough))";

const RFC9406_DECLARATIONS: &str = "
    (round_size 0) (round_acked 0) (round_rtt +infinity) (last_round_rtt +infinity) (samples 0)
    (css_rounds 0) (css_rtt +infinity) (fresh false) (sampled false) (slower false)";

/// RFC 9406, section 4.2, with the constants of 4.3: MIN_RTT_THRESH 4 ms, MAX_RTT_THRESH 16 ms,
/// MIN_RTT_DIVISOR 8, N_RTT_SAMPLE 8, CSS_GROWTH_DIVISOR 4, CSS_ROUNDS 5. `css_rounds` counts the
/// rounds of conservative slow start and is 0 outside of it. Applies only to the initial slow
/// start, while ssthresh is unlimited. The per-ACK limit L is omitted because the transport is
/// ACK-clocked.
const RFC9406_CLAUSES: &str = "
(when (> Ssthresh +infinity)
    (:= round_acked (+ round_acked Ack.bytes_acked))
    (:= fresh (> round_acked round_size))
    (:= round_size (if fresh Flow.bytes_in_flight))
    (:= round_acked (if fresh 0))
    (:= last_round_rtt (if fresh round_rtt))
    (:= round_rtt (if fresh +infinity))
    (:= samples (if fresh 0))
    (:= css_rounds (if (&& fresh (> css_rounds 0)) (+ css_rounds 1)))
    (:= sampled (&& (< Flow.rtt_sample_us +infinity) \
        (> (+ Ack.packets_acked Ack.packets_misordered) 0)))
    (:= samples (if sampled (+ samples 1)))
    (:= round_rtt (if sampled (min round_rtt Flow.rtt_sample_us)))
    (:= slower (&& (>= samples 8) (< last_round_rtt +infinity)
                   (>= round_rtt (+ last_round_rtt (max 4000 (min 16000 (/ last_round_rtt 8)))))))
    (:= css_rtt (if (&& slower (== css_rounds 0)) round_rtt))
    (:= css_rounds (if (&& slower (== css_rounds 0)) 1))
    (:= css_rounds (if (&& (>= samples 8) (< round_rtt css_rtt)) 0))
    (if (> css_rounds 5) (:= Ssthresh Cwnd))
    (fallthrough))
(when (<= Ssthresh +infinity)
    (:= css_rounds 0)
    (fallthrough))";
