/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Flows that run a program by themselves: it decides everything, so that no agent is asked, none has to live, and silence says
 * nothing. NewReno is for faults.
 */
#ifndef CCPLANE_OWN_H
#define CCPLANE_OWN_H

#include "control.h"
#include "report.h"

/* Faults within a second that take a flow from its program. One that divides by 0 at every ACK passes this from 2.4 Mbit/s on, by
 * full packets that are acknowledged in pairs. Fewer would end programs that fault in a flow's
 * first round trip, while nothing is measured; more would leave slow flows with what does not work.
 */
#define MAX_FAULTS 100

/* Starts the program that flows begin by themselves, where there is one and the flow does not run
 * it. False: an agent steers. */
INLINE bool run_alone(struct flow *f, __u64 now_us)
{
	__u64 own = READ_ONCE(plane.own);
	__u32 tag = OWN_TAG(own);
	if (!tag) {
		f->own = 0;
		return false;
	}
	/* The same program may have come back in another place. */
	if (f->own != tag || (!f->released && f->program != OWN_PROGRAM(own))) {
		bool lived = f->tag || f->fallbacks;
		if (set_program(f, OWN_PROGRAM(own), tag, now_us)) {
			__u32 begun = OWN_BEGUN(own);
			/* Linux 6.1 sees a mask that bounds an index, and not a comparison of a copy of it. */
			asm volatile("" : "+r"(begun));
			if (begun)
				f->ctx.regs[(REG_VARS + begun - 1) & (CCP_REGS - 1)] = lived;
			if (!OWN_PACES(own))
				f->rate = 0;
			f->own = tag;
			f->owned = 1;
			f->fallback = 0;
			f->released = 0;
			f->faults_us = now_us;
			f->faults_before = f->ctx.faults;
		}
	}
	/* Nothing is sent into a ring that nobody reads; who reads later is told of the flow then. */
	if (READ_ONCE(plane.reader) == READER_ABSENT)
		f->announced = 0;
	else if (!f->announced)
		announce(f, now_us);
	return true;
}

/* `before`: how many there were before this call. The second is looked at first: faults of long ago
 * do not count beside these. */
INLINE bool faults_too_often(struct flow *f, __u64 before, __u64 now_us)
{
	if (now_us - f->faults_us >= 1000000) {
		f->faults_us = now_us;
		f->faults_before = before;
	}
	return f->ctx.faults - f->faults_before > MAX_FAULTS;
}

#endif
