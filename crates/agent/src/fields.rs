//! Reports as structs: names and their number are checked when the algorithm is added.

/// What a report is read into: a struct with the program's report variables, with their names and
/// in their order.
///
/// ```
/// use ccplane_agent::{Fields, Programs};
///
/// #[derive(Fields)]
/// struct Round {
///     acked: u64,
///     lost: bool,
/// }
///
/// let programs = Programs::new().reporting::<Round>(
///     "fold",
///     "(def (Report (volatile acked 0) (volatile lost false)))
///      (when true
///          (:= Report.acked (+ Report.acked Ack.bytes_acked))
///          (:= Report.lost (|| Report.lost (> Ack.lost_pkts_sample 0)))
///          (fallthrough))
///      (when (> Micros Flow.srtt_us) (report) (:= Micros 0))",
/// );
/// # assert_eq!(Round::NAMES, ["acked", "lost"]);
/// # let round = Round::read(&[7, 1]).expect("two fields");
/// # assert!(round.acked == 7 && round.lost);
/// # drop(programs);
/// ```
///
/// In `on_report`, `report.read::<Round>()` is then the struct, or `None` where another program of
/// the algorithm reported. A name that the program does not have is an error when the algorithm is
/// added to its agent, before there is a flow.
pub trait Fields: Sized + 'static {
    /// The names, in order.
    const NAMES: &'static [&'static str];

    /// The struct, of so many values; `None` for more or fewer.
    fn read(values: &[u64]) -> Option<Self>;
}
