/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One-way queueing delay from timestamps: `OneWay` of crates/datapath/src/one_way_delay.rs, which
 * explains the method and its error. The arithmetic modulo 2^32 and the windows are identical; a
 * test runs both on the same exchanges.
 *
 * The reference takes four timestamps. Here only two differences are available, `forward` = t2 - t1
 * and `back` = t4 - t3, since the option has no room for more (stamps.h). Their sum is the round
 * trip without the peer's processing time. The processing time itself is unknown, so the only
 * plausibility check is that the round trip is above zero.
 */
#ifndef CCPLANE_ONE_WAY_H
#define CCPLANE_ONE_WAY_H

#include "kernel.h"
#include "layout.h"

#define UNKNOWN 0xffffffffULL /* unknown time, CCP's +infinity */
#define LEAST_HALF 5000000000ULL /* ns: half of the window of a minimum */

/* Windowed minimum of a value modulo 2^32, over one to two half windows. */
struct least {
	__u64 ends; /* ns, end of the current half; 0 before the first sample */
	__u32 value; /* minimum of this half and the previous one */
	__u32 recent; /* minimum of this half */
};

struct one_way {
	struct least forward;
	struct least both;
	__u64 at_ns; /* time of the last sample, CLOCK_MONOTONIC; the following fields are its values */
	__u32 above; /* ns above the minimum forward delay */
	__u32 rtt; /* ns */
	__u32 queue; /* ns */
	__u32 dropped;
};

/* Returns the smaller of two values at most 2^31 apart. */
INLINE __u32 lesser(__u32 a, __u32 b)
{
	return (__s32)(a - b) < 0 ? a : b;
}

/* Adds a value and returns its distance above the minimum. */
INLINE __u32 above(struct least *l, __u32 value, __u64 now_ns)
{
	if (!l->ends) {
		l->value = value;
		l->recent = value;
		l->ends = now_ns + LEAST_HALF;
	} else if (now_ns >= l->ends) {
		/* After a gap of a whole window both halves are stale. */
		bool stale = now_ns >= l->ends + LEAST_HALF;
		l->value = stale ? value : lesser(l->recent, value);
		l->recent = value;
		l->ends = now_ns + LEAST_HALF;
	} else {
		l->recent = lesser(l->recent, value);
		l->value = lesser(l->value, value);
	}
	return value - l->value;
}

/* Adds an exchange. Returns false, and counts a drop, if its timestamps are impossible. */
INLINE bool one_way_sample(struct one_way *o, __u32 forward, __u32 back, __u64 at_ns)
{
	__u32 rtt = forward + back;
	if ((__s32)rtt <= 0) {
		if (o->dropped != 0xffffffff)
			o->dropped++;
		return false;
	}
	__u32 up = above(&o->forward, forward, at_ns);
	__u32 both = above(&o->both, rtt, at_ns);
	o->rtt = rtt;
	o->above = up;
	o->queue = up < both ? up : both;
	o->at_ns = at_ns;
	return true;
}

INLINE __u64 finite(__u64 ns)
{
	if (!ns)
		return 1;
	return ns < UNKNOWN ? ns : UNKNOWN - 1;
}

/* Writes registers 22 to 27. `fresh`: this ACK carried the last sample; `rtt_ns`: how long the
 * queueing delay stays valid.
 */
INLINE void one_way_write(struct one_way *o, __u64 *regs, __u64 now_ns, __u64 rtt_ns, bool fresh)
{
	__u64 least = o->both.value;
	__u64 age = now_ns > o->at_ns ? now_ns - o->at_ns : 0;
	bool known = o->both.ends != 0; /* `bool` is a byte */
	bool valid = known && age <= rtt_ns;
	fresh = fresh && known;
	regs[REG_OWD] = fresh ? finite(least / 2 + o->above) : UNKNOWN;
	regs[REG_STAMPED_RTT] = fresh ? finite(o->rtt) : UNKNOWN;
	regs[REG_MIN_OWD] = known ? finite(least / 2) : UNKNOWN;
	regs[REG_MIN_STAMPED_RTT] = known ? finite(least) : UNKNOWN;
	regs[REG_QUEUE_DELAY] = !valid ? UNKNOWN : o->queue < UNKNOWN ? o->queue : UNKNOWN - 1;
	regs[REG_QUEUE_DELAY_VALID] = valid;
}

#endif
