"""Evaluates runs of several contenders that took turns, round by round, over loopback."""

import math

import numpy as np
import polars as pl
import scipy.stats

from paper import Estimate


def median_ratio(pairs):
    """Returns the median of the ratios of a round, with a 95 % bootstrap interval over rounds."""
    logs = np.array([math.log(one / other) for one, other in pairs if one > 0 and other > 0])
    if not len(logs):
        return None
    centre = math.exp(np.median(logs))
    if len(logs) < 2:
        return Estimate(centre)
    resampled = scipy.stats.bootstrap((logs,), np.median, method="percentile", rng=np.random.default_rng(1))
    return Estimate(centre, *map(math.exp, resampled.confidence_interval))


class Turns:
    """Runs over one path, and the samples of their goodput and CPU use."""

    def __init__(self, paper, place="loopback"):
        self.all = paper.runs("linux").filter(place=place)
        self.runs, self.matched = (self.all.filter(condition) for condition in (
            pl.col("matched").is_null(), pl.col("matched").is_not_null()))
        self.samples = paper.series("samples", "linux")

    def of(self, flows, contender):
        """Returns the runs of a contender, one per round."""
        return self.runs.filter(flows=flows, contender=contender).sort("round")

    def ratio(self, flows, ours, base, column="goodput_gbit"):
        """Returns a contender's value divided by the other's of the same round."""
        return median_ratio(zip(self.of(flows, ours)[column], self.of(flows, base)[column]))

    def matched_ratio(self, flows, ours):
        """Returns a contender's goodput divided by that of the runs next to as much computation."""
        beside = self.matched.filter(flows=flows, matched=ours).sort("round")
        return median_ratio(zip(self.of(flows, ours)["goodput_gbit"], beside["goodput_gbit"]))

    def sampled(self, flows, contender, column="goodput_gbit"):
        """Returns mean and standard deviation over all samples of a second: `goodput_gbit`, or `cpu_percent`."""
        return spread(self.samples.filter(pl.col("run").is_in(self.of(flows, contender)["run"].to_list()))[column])

    def spread(self, flows, contender, column):
        """Returns mean and standard deviation over runs."""
        return spread(self.of(flows, contender)[column])

    def describe(self, paper):
        """Adds the number of rounds, and flows that fell back to the datapath's own algorithm."""
        rounds = self.runs["round"].max() + 1
        paper.remarks.append(f"{rounds} rounds in turns; ratios are medians over the rounds.")
        if fallbacks := self.all["fallbacks"].sum():
            paper.remarks.append(f"{fallbacks} flows fell back to the datapath's own NewReno: these runs count.")


def spread(values):
    """Returns mean and standard deviation; the latter is 0 for a single value."""
    return (values.mean(), values.std() or 0.0) if len(values) else (None, None)


def plus_minus(pair, digits=1):
    """Returns mean and standard deviation as text."""
    return None if pair[0] is None else f"{pair[0]:.{digits}f} ± {pair[1]:.{digits}f}"
