/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Flows that run a program without an agent. The program computes window and rate itself, so the
 * heartbeat is ignored; NewReno takes over only on faults.
 */
#ifndef CCPLANE_OWN_H
#define CCPLANE_OWN_H

#include "control.h"
#include "report.h"

/* Faults per second above which a flow leaves its program for NewReno. A program that divides by 0
 * on every ACK reaches this at 2.4 Mbit/s, with full-sized packets and one ACK per two packets. A
 * lower limit would stop programs that fault in a flow's first round trip, when nothing has been
 * measured yet; a higher one would leave slow flows with a broken program.
 */
#define MAX_FAULTS 100

/* Sets the standalone program of the plane, if there is one and the flow does not run it yet.
 * Returns false if an agent controls the flow.
 */
INLINE bool run_alone(struct flow *f, __u64 now_us)
{
	__u64 own = READ_ONCE(plane.own);
	__u32 tag = OWN_TAG(own);
	if (!tag) {
		f->own = 0;
		return false;
	}
	/* The same program may have been reinstalled at another index. */
	if (f->own != tag || (!f->released && f->program != OWN_PROGRAM(own))) {
		bool lived = f->tag || f->fallbacks;
		if (set_program(f, OWN_PROGRAM(own), tag, now_us)) {
			__u32 begun = OWN_BEGUN(own);
			/* Hides the value: the verifier of Linux 6.1 tracks a masked index, but not a
			 * comparison on a copy.
			 */
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
	/* Without a reader nothing is sent to the ring. A later reader gets the announcement then. */
	if (READ_ONCE(plane.reader) == READER_ABSENT)
		f->announced = 0;
	else if (!f->announced)
		announce(f, now_us);
	return true;
}

/* `before`: fault count before this call. The window is renewed first, so that old faults do not
 * count.
 */
INLINE bool faults_too_often(struct flow *f, __u64 before, __u64 now_us)
{
	if (now_us - f->faults_us >= 1000000) {
		f->faults_us = now_us;
		f->faults_before = before;
	}
	return f->ctx.faults - f->faults_before > MAX_FAULTS;
}

#endif
