//! Options of every host's transport, checked against the transport's limits.

use std::fmt::Display;
use std::ops::RangeInclusive;

use ccplane_units::Duration;
use toml::Spanned;

use crate::context::CheckContext;
use crate::file::{self, Q};
use crate::{Problem, Rc3, TransportOptions};

/// Checks the table of transport options.
pub(crate) fn options(
    context: &CheckContext,
    written: &file::Transport,
) -> Result<TransportOptions, Problem> {
    /// Largest payload that fits into a UDP datagram with its headers.
    const MSS_MAX: u16 = 65_000;
    /// Smallest MSS; less would be about the size of the headers.
    const MSS_MIN: u16 = 88;
    /// Maximum header size, above an IPv6 packet with all TCP options.
    const HEADER_BYTES_MAX: u16 = 500;
    let mss = within(
        context,
        written.mss.as_ref(),
        MSS_MIN..=MSS_MAX,
        ("the MSS in bytes", ", such as 1448"),
    )?;
    let (what, fix) = (
        "this option is for RC3's second loop, which is off",
        "add `rc3 = true`, or remove this line",
    );
    if let Some(place) = written.rc3_levels.as_ref().filter(|_| !written.rc3) {
        return Err(context.source.problem(place, what.to_owned(), "here", fix));
    }
    if let Some(place) = written.rc3_verify.as_ref().filter(|_| !written.rc3) {
        return Err(context.source.problem(place, what.to_owned(), "here", fix));
    }
    let levels = within(
        context,
        written.rc3_levels.as_ref(),
        1..=Rc3::LEVELS_MAX,
        ("the number of priority levels for the second loop", ""),
    )?;
    Ok(TransportOptions {
        rc3: written.rc3.then(|| Rc3 {
            levels,
            verify: written
                .rc3_verify
                .as_ref()
                .is_none_or(|verify| *verify.get_ref()),
        }),
        mss,
        header_bytes: within(
            context,
            written.header_bytes.as_ref(),
            0..=HEADER_BYTES_MAX,
            ("the header size in bytes", ", such as 52"),
        )?,
        ack_every: ack_every(context, written)?,
        ack_delay: written.ack_delay.as_ref().map(|delay| delay.get_ref().0),
        quick_acks: within(
            context,
            written.quick_acks.as_ref(),
            0..=u8::MAX,
            ("the number of quick acknowledgements", ""),
        )?,
        growth_limit: within(
            context,
            written.growth_limit.as_ref(),
            0..=u8::MAX,
            ("the growth limit in segments", "; 0 means no limit"),
        )?,
        ecn: written.ecn,
        pacing: written.pacing,
        pacing_quantum: written.pacing_quantum.as_ref().map(|time| time.get_ref().0),
        initial_window: within(
            context,
            written.initial_window.as_ref(),
            1..=u16::MAX,
            ("the initial window in segments", ", such as 10"),
        )?,
        jump_start: written.jump_start,
        restart_after_idle: written.restart_after_idle,
        initial_rto: timeout(context, written.initial_rto.as_ref())?,
        min_rto: written.min_rto.as_ref().map(|rto| rto.get_ref().0),
        proof_of_receipt: written.proof_of_receipt,
    })
}

/// Checks that a number, if set, is in this range.
fn within<T: TryFrom<u32> + PartialOrd + Display>(
    context: &CheckContext,
    written: Option<&Spanned<u32>>,
    range: RangeInclusive<T>,
    (what, example): (&str, &str),
) -> Result<Option<T>, Problem> {
    written
        .map(|written| context.source.number(what, written, range, example))
        .transpose()
}

/// Returns the acknowledgement frequency, which has two spellings.
fn ack_every(context: &CheckContext, written: &file::Transport) -> Result<Option<u8>, Problem> {
    if let (Some(_), Some(second)) = (&written.delayed_acks, &written.ack_every) {
        return Err(context.source.problem(
            second,
            "`delayed_acks` and `ack_every` set the same option",
            "second setting",
            "keep one: `delayed_acks = true` means `ack_every = 2`, `false` means 1",
        ));
    }
    if let Some(delayed) = &written.delayed_acks {
        return Ok(Some(if *delayed.get_ref() { 2 } else { 1 }));
    }
    within(
        context,
        written.ack_every.as_ref(),
        1..=u8::MAX,
        (
            "the number of segments per acknowledgement",
            "; 1 acknowledges every segment",
        ),
    )
}

/// Checks the initial timeout. Zero is rejected because every handshake would be retransmitted
/// immediately.
fn timeout(
    context: &CheckContext,
    written: Option<&Q<Duration>>,
) -> Result<Option<Duration>, Problem> {
    match written {
        Some(rto) if rto.get_ref().0 == Duration::ZERO => Err(context.source.problem(
            rto,
            "a retransmission timeout of zero resends everything immediately",
            "here",
            "use a timeout longer than the round-trip time, such as 1s",
        )),
        written => Ok(written.map(|rto| rto.get_ref().0)),
    }
}
