/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Totals over connections, without their identity. src/map/totals.rs mirrors it. Bucket i counts
 * values up to 2^(base + i); the last bucket counts all larger ones.
 */
#ifndef CCPLANE_TOTALS_H
#define CCPLANE_TOTALS_H

#include "kernel.h"

#define CCP_BUCKETS 20
#define CCP_RTT_BASE 6 /* 64 µs */
#define CCP_RATE_BASE 14 /* 16 KiB/s */

struct ccp_totals {
	__u64 acked; /* bytes */
	__u64 retransmits; /* packets */
	__u64 lost; /* packets */
	__u64 rtt_sum; /* µs */
	__u64 rate_sum; /* bytes/s */
	__u64 rtt[CCP_BUCKETS];
	__u64 rate[CCP_BUCKETS];
	__u64 unused[3]; /* whole cache lines */
};

INLINE __u32 log2_of(__u64 v)
{
	__u32 n = 0;
#pragma unroll
	for (int step = 32; step; step /= 2)
		if (v >> step) {
			v >>= step;
			n += step;
		}
	return n;
}

INLINE __u32 bucket_of(__u64 v, __u32 base)
{
	if (v <= 1ULL << base)
		return 0;
	__u32 i = log2_of(v - 1) + 1 - base;
	return i < CCP_BUCKETS ? i : CCP_BUCKETS - 1;
}

/* Adds a connection's smoothed RTT (µs) and delivery rate (bytes/s); 0: not measured. */
INLINE void sample(struct ccp_totals *t, __u64 rtt_us, __u64 rate)
{
	if (rtt_us) {
		__u32 i = bucket_of(rtt_us, CCP_RTT_BASE);
		__sync_fetch_and_add(&t->rtt_sum, rtt_us);
		if (i < CCP_BUCKETS)
			__sync_fetch_and_add(&t->rtt[i], 1);
	}
	if (rate) {
		__u32 i = bucket_of(rate, CCP_RATE_BASE);
		__sync_fetch_and_add(&t->rate_sum, rate);
		if (i < CCP_BUCKETS)
			__sync_fetch_and_add(&t->rate[i], 1);
	}
}

#endif
