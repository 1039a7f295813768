"""RC3's model of completion times (section 2 and figure 2): one flow, no queue and no loss.

A flow of N packets takes, from the request of its connection to its last byte at the receiver,

    RC3: 1.5 R + N/A        TCP: 1.5 R + k R + (N - i (2^k - 1))/A

where R is the round-trip time and A the rate that other traffic leaves. The handshake takes a round
trip and the last packet half of one. TCP with an initial window of i packets needs k rounds of slow
start until the window holds the rest of the flow or fills the path.
"""

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

# Sizes of figure 15, bytes, and its bars as Crognale and Wilson digitised them (CS244, 2015): simulated and real
# times, ms.
FIGURE_15_SIZES = (1460, 7300, 14600, 73000, 146000, 730000, 1460000)
FIGURE_15 = {
    "10g": {"tcp": ((29.6, 29.6, 29.6, 69.8, 89.7, 130.6, 151.3), (29.6, 29.6, 30.0, 70.2, 90.9, 174.6, 218.4)),
            "rc3": ((29.6, 29.6, 29.6, 29.8, 29.8, 30.2, 30.7), (29.6, 29.6, 30.0, 30.2, 30.7, 35.6, 45.3))},
    "1g": {"tcp": ((29.6, 29.6, 29.6, 70.0, 90.4, 133.0, 155.4), (29.6, 29.6, 30.0, 70.4, 90.7, 135.3, 160.8)),
           "rc3": ((29.6, 29.6, 29.6, 30.0, 30.7, 35.6, 41.5), (29.6, 29.6, 30.0, 30.4, 31.2, 39.2, 60.0))},
}
