"""RC3's model of completion times (section 2 and figure 2): one flow, no queue and no loss.

A flow of N packets takes, from the request of its connection to its last byte at the receiver,

    RC3: 1.5 R + N/A        TCP: 1.5 R + k R + (N - i (2^k - 1))/A

where R is the round-trip time and A the rate that other traffic leaves. The handshake takes a round
trip and the last packet half of one. TCP with an initial window of i packets needs k rounds of slow
start until the window holds the rest of the flow or fills the path.
"""

import math

import polars as pl

# Bytes of a packet, and of its payload.
PACKET, PAYLOAD = 1500, 1460
INITIAL_WINDOW = 4
# Figure 2: 1 Gbit/s, 30 % of it used, 40 ms. Bytes/s and s.
WAN = (0.7e9 / 8, 0.040)

# Savings that the authors plotted for Internet-2 at 30 % load and 1 Gbit/s, percent by packets of the flow
# (`baseline-result/improvements/wan-max-30-1Gbps` in their repository).
AUTHORS = {1: 0.0, 2: 0.0, 3: 0.0, 5: 39.937384526, 7: 39.9236880182, 40: 66.3360542493, 72: 72.2027095821,
           137: 76.0494794371, 267: 78.5005992142, 1187: 79.0181777509, 2107: 77.1751414884}


def rc3_seconds(packets, path=WAN):
    rate, rtt = path
    return 1.5 * rtt + packets * PACKET / rate


def tcp_seconds(packets, path=WAN, window=INITIAL_WINDOW):
    (rate, rtt), rest, rounds = path, packets, 0
    while window < rest and window * PACKET / rate < rtt:
        rest, window, rounds = rest - window, 2 * window, rounds + 1
    return (1.5 + rounds) * rtt + rest * PACKET / rate


def saving(before, after):
    """Returns by how many percent a time is lower."""
    return 100 * (1 - after / before)

# The authors' eleven sizes, packets, with frequencies in thousandths. These are inferred from the knots of the
# data-mining table: crates/paper/src/rc3_internet2/run.rs.
ELEVEN = {1: 500, 2: 100, 3: 100, 5: 50, 7: 50, 40: 12.5, 72: 12.5, 137: 25, 267: 50, 1187: 25, 2107: 25}


def data_mining():
    """Returns every size of the table `datamining-rc3`, packets, with its share: straight lines between knots."""
    knots = [(1, 0.5), (2, 0.6), (3, 0.7), (7, 0.8), (267, 0.9), (2107, 0.95)]
    shares = dict(knots[:1])
    for (start, below), (end, share) in zip(knots, knots[1:]):
        shares |= {packets: (share - below) / (end - start) for packets in range(start + 1, end + 1)}
    return shares


def expected_savings(shares):
    """Returns by how many percent RC3 lowers the mean completion time over flows, and over bytes."""
    def total(seconds, power):
        return math.fsum(share * packets**power * seconds(packets) for packets, share in shares.items())

    return [saving(total(tcp_seconds, power), total(rc3_seconds, power)) for power in (0, 1)]


class Times:
    """Completion times of flows by size, under plain TCP and otherwise."""

    def __init__(self, table):
        """Takes a table with one row per size, and one without a size for all flows."""
        self.of_sizes = table.drop_nulls("bytes").sort("bytes")
        self.all = table.filter(pl.col("bytes").is_null()).row(0, named=True)

    def saved(self, start=0, end=math.inf, weight=pl.col("flows")):
        """Returns by how many percent the mean over flows of these sizes, bytes, is lower."""
        own = self.of_sizes.filter(pl.col("bytes").is_between(start, end, "left"))
        times = own.select((pl.col(name) * weight).sum() for name in ("tcp_mean_ms", "mean_ms"))
        return saving(*times.row(0)) if len(own) else None

    def saved_bytes(self):
        """Returns by how many percent the mean over bytes is lower."""
        return self.saved(weight=pl.col("flows") * pl.col("bytes"))

    def longer(self, kind):
        """Returns by how many percent the mean or the p99 of all flows is higher."""
        return -saving(self.all[f"tcp_{kind}_ms"], self.all[f"{kind}_ms"])


# Sizes of figure 15, bytes, and its bars as Crognale and Wilson digitised them (CS244, 2015): simulated and real
# times, ms.
FIGURE_15_SIZES = (1460, 7300, 14600, 73000, 146000, 730000, 1460000)
FIGURE_15 = {
    "10g": {"tcp": ((29.6, 29.6, 29.6, 69.8, 89.7, 130.6, 151.3), (29.6, 29.6, 30.0, 70.2, 90.9, 174.6, 218.4)),
            "rc3": ((29.6, 29.6, 29.6, 29.8, 29.8, 30.2, 30.7), (29.6, 29.6, 30.0, 30.2, 30.7, 35.6, 45.3))},
    "1g": {"tcp": ((29.6, 29.6, 29.6, 70.0, 90.4, 133.0, 155.4), (29.6, 29.6, 30.0, 70.4, 90.7, 135.3, 160.8)),
           "rc3": ((29.6, 29.6, 29.6, 30.0, 30.7, 35.6, 41.5), (29.6, 29.6, 30.0, 30.4, 31.2, 39.2, 60.0))},
}
