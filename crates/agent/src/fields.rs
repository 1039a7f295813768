//! Reports as structs: names and their order are checked when the algorithm is added.

/// Struct into which a report is read. Its fields are the program's report variables, with the same
/// names and order.
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
/// let programs = Programs::new().with_report::<Round>(
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
/// In `on_report`, `report.read::<Round>()` returns the struct, or `None` if another program of the
/// algorithm made the report. A mismatch of names is an error when the algorithm is added to its
/// agent, before any flow opens.
pub trait Fields: Sized + 'static {
    /// Names of the fields, in order.
    const NAMES: &'static [&'static str];

    /// Reads the struct; `None` if the number of values does not match.
    fn read(values: &[u64]) -> Option<Self>;
}
