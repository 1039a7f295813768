"""Distances between the distributions of several runs, with their intervals.

A side is a list of runs, and a run a list of values. A distance is that of Kolmogorov and Smirnov: the largest
vertical gap between two empirical distribution functions, 0 (equal) to 1 (disjoint). Consecutive values of one run are
not independent, so there are no p-values.
"""

import itertools
import random

import numpy as np
import scipy.stats

from paper import Estimate, mean

# Most combinations of runs over which a distance is averaged; of more, this many are drawn.
CHOICES_MAX = 200


def ks(ours, native):
    """Returns the distance between two lists of values, None if one is empty."""
    if not len(ours) or not len(native):
        return None
    return float(scipy.stats.ks_2samp(ours, native, method="asymp").statistic)


def gap_from(ours, native, least):
    """Returns the largest gap between the two distribution functions at values of at least `least`."""
    points = np.unique([least, *(value for value in (*ours, *native) if value > least)])
    shares = (np.searchsorted(np.sort(side), points, side="right") / len(side) for side in (ours, native))
    return float(np.max(np.abs(np.subtract(*shares))))


def pooled(runs):
    return [value for run in runs for value in run]


def choices(runs, count, seed):
    """Returns the choices of `count` runs, all of them for at most 12 runs."""
    if len(runs) <= 12:
        return list(itertools.combinations(runs, count))
    draw = random.Random(seed)
    return [tuple(draw.sample(runs, count)) for _ in range(CHOICES_MAX)]


def distance(ours, native):
    """Returns the mean distance between equally many runs of both sides, at most half of the native ones."""
    count = min(len(ours), len(native), max(len(native) // 2, 1))
    pairs = list(itertools.product(choices(ours, count, 2), choices(native, count, 3)))
    if len(pairs) > CHOICES_MAX:
        pairs = random.Random(4).sample(pairs, CHOICES_MAX)
    return mean([ks(pooled(one), pooled(other)) for one, other in pairs])


def distance_within(runs):
    """Returns the mean distance between two halves of the runs of one side."""
    numbers, count = list(range(len(runs))), max(len(runs) // 2, 1)
    distances = []
    for half in choices(numbers, count, 5):
        rest = [number for number in numbers if number not in half][:count]
        distances.append(ks(pooled(runs[n] for n in half), pooled(runs[n] for n in rest)))
    return mean(distances)


def jackknife_variance(without):
    """Returns the variance of a statistic, given its values with one observation left out at a time."""
    centre, count = mean(without), len(without)
    return sum((one - centre) ** 2 for one in without) * (count - 1) / count


def jackknife(ours, native, statistic):
    """Returns a statistic of both sides with its 95 % interval, which leaves out one run at a time.

    Efron and Tibshirani 1993, chapter 11. A bootstrap can draw the same run for both halves of a side, which makes
    them look alike. A side with one run gives no interval."""
    value = statistic(ours, native)
    if value is None:
        return None

    without = [[statistic(ours[:n] + ours[n + 1:], native) for n in range(len(ours))],
               [statistic(ours, native[:n] + native[n + 1:]) for n in range(len(native))]]
    if any(len(values) < 2 or None in values for values in without):
        return Estimate(value)
    half = 1.96 * sum(map(jackknife_variance, without)) ** 0.5
    return Estimate(value, value - half, value + half)
