/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Applies the agent's control words: a set is taken whole or not at all, and exactly once. Words
 * for another flow, or decided before a reduction that the agent had not seen, are dropped.
 */
#ifndef CCPLANE_CONTROL_H
#define CCPLANE_CONTROL_H

#include "flow.h"
#include "fold.h"

/* Returns true if the agent decided before it knew of the reduction in progress, or of a reduction
 * or undo less than a round trip ago. Its window would cancel the reduction or repeat it. Variables
 * and programs are applied nevertheless.
 */
INLINE bool ignorant(struct tcp_sock *tp, struct flow *f, __u32 epoch, __u64 now_us)
{
	if (epoch == f->epoch)
		return false;
	return f->ca_state >= TCP_CA_CWR || now_us - f->event_us < tp->srtt_us >> 3;
}

/* Resets the variables in mask `which` to their initial values. */
INLINE void reset_vars(__u64 *regs, struct ccp_program *p, __u64 which)
{
	for (__u32 i = 0; i < CCP_VARS; i++) {
		if (!(which >> i))
			break;
		if (which >> i & 1)
			regs[REG_VARS + i] = p->init[i];
	}
}

INLINE bool set_program(struct flow *f, __u32 index, __u32 tag, __u64 now_us)
{
	struct ccp_program *p = map_lookup(&programs, &index);
	if (!p || !tag || p->tag != tag)
		return false;
	f->program = index;
	f->tag = tag;
	f->report_vars = p->report_vars;
	f->volatiles = p->volatiles;
	f->clock_us = now_us;
	f->owed = 0;
	reset_vars(f->ctx.regs, p, NO_LIMIT);
	return true;
}

/* Hands the flow to NewReno, from its current window, until a program is set. */
INLINE void give_up(struct flow *f, struct ccp_slot *s, __u64 now_us)
{
	f->program = CCP_NO_PROGRAM;
	f->tag = 0;
	f->report_vars = 0;
	f->volatiles = 0;
	f->owed = 0;
	f->owned = 0;
	if (f->released)
		return;
	f->released = 1;
	f->fallbacks++;
	s->shown.fallback_us = now_us;
	COUNT(fallbacks, 1);
}

/* Applies pending control words to the registers. Returns the CTL_SET_* that were applied. The
 * caller has already stored the flow's own Cwnd, Rate and Ssthresh.
 */
static NOINLINE __u32 take_control(struct tcp_sock *tp, struct flow *f, struct ccp_slot *s)
{
	struct ccp_control *c = &s->control;
	__u64 now_us = tp->tcp_mstamp;
	__u64 lock = READ_ONCE(c->lock);
	if ((lock & (CTL_WRITING | CTL_PENDING)) != CTL_PENDING)
		return 0;
	__u32 generation = READ_ONCE(c->generation), epoch = READ_ONCE(c->epoch), set = READ_ONCE(c->set);
	__u32 program = READ_ONCE(c->program), tag = READ_ONCE(c->tag);
	__u64 cwnd = READ_ONCE(c->cwnd), rate = READ_ONCE(c->rate), ssthresh = READ_ONCE(c->ssthresh);
	__u64 micros = READ_ONCE(c->micros), mask = READ_ONCE(c->var_mask);
	for (__u32 i = 0; i < CCP_VARS; i++) {
		if (!(mask >> i))
			break;
		f->staged[i] = READ_ONCE(c->vars[i]);
	}
	if (__sync_val_compare_and_swap(&c->lock, lock, lock & ~(__u64)CTL_PENDING) != lock)
		return 0; /* the agent is writing again: retried on the next call */
	if (generation != f->generation || (__s32)(epoch - f->barrier) < 0)
		return 0;
	if (set & CTL_RELEASE) {
		give_up(f, s, now_us);
		return 0;
	}
	if (set & CTL_SET_PROGRAM ? !set_program(f, program, tag, now_us) : f->released)
		return 0;
	f->owned = 1;
	f->released = 0;
	for (__u32 i = 0; i < CCP_VARS; i++) {
		if (!(mask >> i))
			break;
		if (mask >> i & 1)
			f->ctx.regs[REG_VARS + i] = f->staged[i];
	}
	if (set & CTL_SET_MICROS)
		f->clock_us = now_us - micros;
	if (ignorant(tp, f, epoch, now_us))
		return set & (CTL_SET_PROGRAM | CTL_SET_MICROS);
	if (set & CTL_SET_CWND)
		f->ctx.regs[REG_CWND] = cwnd;
	if (set & CTL_SET_RATE)
		f->ctx.regs[REG_RATE] = rate;
	if (set & CTL_SET_SSTHRESH)
		f->ctx.regs[REG_SSTHRESH] = ssthresh;
	return set;
}

#endif
