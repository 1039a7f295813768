"""Results of bundles from their samples (`bundles`) and changes of mode (`bundle_changes`).

Modes: 0 open, 1 delay control, 2 pass-through. Samples of a span are those with start <= time < end.

Most results are polars expressions for the samples of one bundle in one run:

    samples.filter(within(60, 120)).group_by("case", "seed").agg(passing=mode_share(PASS_THROUGH))
"""

import polars as pl

OPEN, DELAY, PASS_THROUGH = 0, 1, 2


def within(start_s, end_s):
    """Selects the samples of a span."""
    return (pl.col("time_ns") >= round(start_s * 1e9)) & (pl.col("time_ns") < round(end_s * 1e9))


def mode_share(mode):
    """Returns the share of the samples in a mode."""
    return (pl.col("mode") == mode).mean()


def sendbox_queue_ms(*modes):
    """Returns the mean queueing delay in the sendbox at its current rate while it is in one of the modes, ms.

    Samples without a rate limit do not count."""
    counted = pl.col("mode").is_in(modes) & (pl.col("limit_mbit") > 0)
    return (pl.col("waiting_bytes") * 8 / 1e3 / pl.col("limit_mbit")).filter(counted).mean()


def passing_queue_ms(samples):
    """Returns the mean over runs of the queueing delay in the sendbox in pass-through mode, ms."""
    return samples.group_by("run").agg(queue_ms=sendbox_queue_ms(PASS_THROUGH))["queue_ms"].mean()


def sendbox_queue_at_capacity_ms():
    """Returns the mean time that the sendbox's queue takes at the estimated capacity in pass-through mode, ms."""
    counted = (pl.col("mode") == PASS_THROUGH) & (pl.col("capacity_mbit") > 0)
    return (pl.col("waiting_bytes") * 8 / 1e3 / pl.col("capacity_mbit")).filter(counted).mean()


def quantile_of(values, share):
    """Returns the least value that a share of all values of an expression does not exceed, as `paper.quantile`."""
    index = ((values.len() * share).ceil().cast(pl.Int64) - 1).clip(0)
    return values.sort().get(index, null_on_oob=True)


def network_queue_ms(share):
    """Returns a quantile of the RTT above its minimum of ten seconds, the network's queueing delay, ms."""
    queue = (pl.col("rtt_ms") - pl.col("min_rtt_ms")).clip(0)
    return quantile_of(queue.filter(pl.col("min_rtt_ms") > 0), share)


def with_errors(samples):
    """Returns the samples in which the link's own RTT is known, with the errors of RTT and receive rate."""
    return samples.filter(pl.col("rtt_ms") > 0, pl.col("actual_rtt_ms") > 0).with_columns(
        rtt_error_ms=(pl.col("rtt_ms") - pl.col("actual_rtt_ms")).abs(),
        rate_error_mbit=(pl.col("received_mbit") - pl.col("actual_received_mbit")).abs())


def pass_through_spans(changes, end_s):
    """Returns the spans in pass-through mode, (start, end) in s, from the changes of one bundle in one run.

    `end_s` is the end of the run."""
    spans, since = [], None
    for time_s, mode in changes.select("time_s", "mode").rows() if len(changes) else []:
        if mode == "passing" and since is None:
            since = time_s
        elif mode != "passing" and since is not None:
            spans.append((since, time_s))
            since = None
    return spans + ([] if since is None else [(since, end_s)])


def detection_s(spans, start_s, stop_s):
    """Returns the time from the start of cross traffic to pass-through mode; without it, to the traffic's stop."""
    starts = [max(start, start_s) for start, end in spans if end > start_s and start < stop_s]
    return (starts[0] if starts else stop_s) - start_s


def resume_s(spans, stop_s, end_s, hold_s=5):
    """Returns the time from the stop of cross traffic to the end of pass-through mode.

    The mode has to stay another one for `hold_s`. If it never does, the time is that to the end of the run."""
    def holds(time_s):
        until = min(time_s + hold_s, end_s)
        return not any(start < until and end > time_s for start, end in spans)

    candidates = sorted(time_s for time_s in [stop_s, *(end for _, end in spans)] if time_s >= stop_s)
    return next((time_s for time_s in candidates if holds(time_s)), end_s) - stop_s


def false_exits(spans, start_s, stop_s):
    """Returns how often pass-through mode ended while cross traffic was there."""
    return sum(start_s < end < stop_s for _, end in spans)


def reactions(runs, changes, start_s, stop_s, end_s, hold_s=5):
    """Returns the runs, which have one bundle each, with detection_s, resume_s and false_exits.

    A run without changes of mode has no row in `changes`, and never was in pass-through mode."""
    found = []
    for run in runs["run"]:
        spans = pass_through_spans(changes.filter(run=run) if len(changes) else changes, end_s)
        found.append((detection_s(spans, start_s, stop_s), resume_s(spans, stop_s, end_s, hold_s),
                      false_exits(spans, start_s, stop_s)))
    columns = pl.DataFrame(
        found, schema={"detection_s": pl.Float64, "resume_s": pl.Float64, "false_exits": pl.Int64}, orient="row")
    return pl.concat([runs, columns], how="horizontal")
