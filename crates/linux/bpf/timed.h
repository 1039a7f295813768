/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Programs that run by timer without an ACK: a guard waits for Micros, and the algorithm wants
 * timers.
 *
 * A timer callback cannot access the socket or its storage, where the registers are. So each ACK
 * leaves a copy of the state that a run needs in an array, indexed by slot, and arms the timer for
 * the next deadline. The callback runs the program over the copy and sends its report. The next ACK
 * or timeout merges the results: window, rate and threshold take effect only then, as do the
 * control words that the agent wrote meanwhile.
 */
#ifndef CCPLANE_TIMED_H
#define CCPLANE_TIMED_H

#include "control.h"
#include "report.h"

/* Minimum time between two timer runs, TIMER_SPACING of crates/datapath/src/flow.rs. Also the retry
 * interval if an ACK holds the copy or the ring is full.
 */
#define TIMER_SPACING_US 100

/* Spins of an ACK that waits for a timer run, which takes a microsecond or two. Fewer would defer
 * more ACKs to the next one; more would stall an ACK while the timer's CPU is a descheduled virtual
 * CPU.
 */
#define WAIT_TURNS 256

struct timed {
	struct bpf_timer timer;
	__u32 busy; /* lock: an ACK or the timer is using the rest */
	__u32 generation; /* of the flow; 0: none */
	__u32 ran; /* the timer has run since the last ACK */
	__u32 set; /* CTL_SET_* changed by the timer */
	__u64 armed_us; /* expiry of the timer; 0: not armed */
	__u64 due_us; /* next run of the program; 0: none without an ACK */
	struct {
		__u32 slot;
		__u32 epoch;
		__u32 told;
		__u32 program;
		__u32 tag;
		__u32 report_vars;
		__u64 volatiles;
		__u64 clock_us;
		__u64 reports; /* reports sent by the timer */
		__u32 sends; /* the agent is listening, or the flow is in fallback */
		/* the program needs no agent: its reports are dropped if there is no reader */
		__u32 own;
		__u32 owed;
		__u32 unused;
	} flow;
	struct fold_ctx ctx;
};

/* One entry per slot if `timed` is set, else a single unused one. */
struct {
	MAP_UINT(type, ARRAY_MAP);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, (__u32)0);
	MAP_TYPE(value, (struct timed){});
} timers SEC(".maps");

/* The algorithm wants timers. Set by the loader. */
const volatile __u32 timed SEC(".rodata.timed");

INLINE void release_timed(struct timed *t)
{
	__sync_lock_test_and_set(&t->busy, 0);
}

/* Returns the time of the next run: when Micros exceeds the value a guard waits for. A guard that
 * fired waits again if the run set Micros. 0: nothing to wait for.
 */
INLINE __u64 next_due(struct fold_ctx *ctx, __u64 clock_us, bool clock_set, __u64 now_us)
{
	__u64 waits = ctx->waits;
	if (clock_set && ctx->waited < waits)
		waits = ctx->waited;
	if (waits >= NO_LIMIT - clock_us - 1)
		return 0;
	__u64 due = clock_us + waits + 1;
	return due > now_us ? due : 0;
}

INLINE void set_timer(struct timed *t, __u64 at_us, __u64 now_us)
{
	WRITE_ONCE(t->armed_us, at_us);
	timer_start(&t->timer, (at_us - now_us) * 1000, 0);
}

/* Runs the program over the copy, with all event registers cleared. */
INLINE void run_timed(struct timed *t, __u64 now_us)
{
	struct fold_ctx *ctx = &t->ctx;
	__u64 *regs = ctx->regs;
	__u64 micros = now_us - t->flow.clock_us, faults = ctx->faults;
	__u64 cwnd = regs[REG_CWND], rate = regs[REG_RATE], ssthresh = regs[REG_SSTHRESH];
	__u32 index = t->flow.program;
	regs[REG_BYTES_ACKED] = 0;
	regs[REG_BYTES_MISORDERED] = 0;
	regs[REG_ECN_BYTES] = 0;
	regs[REG_ECN_PACKETS] = 0;
	regs[REG_LOST] = 0;
	regs[REG_PACKETS_ACKED] = 0;
	regs[REG_PACKETS_MISORDERED] = 0;
	regs[REG_WAS_TIMEOUT] = 0;
	regs[REG_UNDONE] = 0;
	regs[REG_OWD] = 0;
	regs[REG_STAMPED_RTT] = 0;
	regs[REG_QUEUE_DELAY] = 0;
	regs[REG_QUEUE_DELAY_VALID] = 0;
	regs[REG_NOW] = now_us - plane.start_us;
	regs[REG_MICROS] = micros;
	regs[REG_REPORT] = 0;
	regs[REG_CONTINUE] = 0;
	regs[REG_RESET] = 0;
	regs[REG_ONE] = 1;
	fold(ctx, index);
	t->ran = 1;
	bool clock_set = regs[REG_MICROS] != micros;
	if (clock_set)
		t->flow.clock_us = now_us - regs[REG_MICROS];
	if (ctx->faults != faults)
		COUNT(faults, ctx->faults - faults);
	t->set |= (regs[REG_CWND] != cwnd ? CTL_SET_CWND : 0) | (regs[REG_RATE] != rate ? CTL_SET_RATE : 0) |
		  (regs[REG_SSTHRESH] != ssthresh ? CTL_SET_SSTHRESH : 0);
	t->due_us = next_due(ctx, t->flow.clock_us, clock_set, now_us);
}

/* Sends the report that the program asked for, and resets the volatile variables. */
INLINE void report_timed(struct timed *t, __u64 now_us)
{
	__u64 *regs = t->ctx.regs;
	bool reset = regs[REG_RESET];
	if ((regs[REG_REPORT] || t->flow.owed) && (t->flow.sends || t->flow.own)) {
		struct ccp_record *r = (struct ccp_record *)&regs[REG_HEADER];
		__u32 fields = t->flow.report_vars;
		if (fields > CCP_VARS)
			fields = CCP_VARS;
		r->kind = REC_REPORT;
		r->flags = t->flow.owed ? REC_URGENT : 0;
		r->slot = t->flow.slot;
		r->generation = t->generation;
		r->epoch = t->flow.told;
		r->program = t->flow.program;
		r->tag = t->flow.tag;
		r->time_us = now_us;
		bool lost = t->flow.sends && send(r, sizeof(*r) + 8 * fields, t->flow.owed);
		if (lost)
			COUNT(ring_lost, 1);
		if (!lost || t->flow.own) {
			t->flow.owed = 0;
			t->flow.reports++;
			COUNT(reports, 1);
			reset = true;
		}
	}
	__u32 index = t->flow.program;
	struct ccp_program *p = reset && t->flow.volatiles ? map_lookup(&programs, &index) : NULL;
	if (p && p->tag == t->flow.tag)
		reset_vars(regs, p, t->flow.volatiles);
}

static int on_timer(void *map, __u32 *key, struct timed *t)
{
	__u64 now_us = clock_ns() / 1000;
	WRITE_ONCE(t->armed_us, 0);
	if (__sync_lock_test_and_set(&t->busy, 1)) {
		/* An ACK holds the copy. It may have seen the timer as armed. */
		set_timer(t, now_us + TIMER_SPACING_US, now_us);
		return 0;
	}
	if (t->generation && t->due_us) {
		if (t->due_us <= now_us) {
			run_timed(t, now_us);
			report_timed(t, now_us);
			if (t->due_us && t->due_us < now_us + TIMER_SPACING_US)
				t->due_us = now_us + TIMER_SPACING_US;
		}
		if (t->due_us)
			set_timer(t, t->due_us, now_us);
	}
	release_timed(t);
	return 0;
}

/* Returns the flow's entry, or NULL if there is none. */
INLINE struct timed *timed_of(struct flow *f)
{
	__u32 slot = f->slot;
	return timed ? map_lookup(&timers, &slot) : NULL;
}

/* Locks the entry. Returns false if the timer run did not finish in time. */
INLINE bool hold_timed(struct timed *t)
{
	for (int i = 0; i < WAIT_TURNS; i++)
		if (!__sync_lock_test_and_set(&t->busy, 1))
			return true;
	return false;
}

/* Merges the results of timer runs. Returns the CTL_SET_* to apply; none if a reduction happened
 * since the copy was made.
 */
INLINE __u32 take_timed(struct flow *f, struct timed *t)
{
	__u32 set = t->set;
	if (t->generation != f->generation || !t->ran || t->flow.tag != f->tag)
		return 0;
	for (__u32 i = 0; i < CCP_VARS; i++)
		f->ctx.regs[REG_VARS + i] = t->ctx.regs[REG_VARS + i];
	f->ctx.faults = t->ctx.faults;
	f->clock_us = t->flow.clock_us;
	f->reports += t->flow.reports;
	f->owed = t->flow.owed;
	t->ran = 0;
	t->set = 0;
	if (t->flow.epoch != f->epoch)
		return 0;
	if (set & CTL_SET_CWND)
		f->ctx.regs[REG_CWND] = t->ctx.regs[REG_CWND];
	if (set & CTL_SET_RATE)
		f->ctx.regs[REG_RATE] = t->ctx.regs[REG_RATE];
	if (set & CTL_SET_SSTHRESH)
		f->ctx.regs[REG_SSTHRESH] = t->ctx.regs[REG_SSTHRESH];
	return set;
}

/* Leaves the copy for the timer and arms it. A flow with nothing in flight and nothing to send has
 * nothing to measure, so it gets no timer.
 */
INLINE void leave_timed(struct tcp_sock *tp, struct flow *f, struct timed *t, bool clock_set, __u64 now_us)
{
	__u64 *from = f->ctx.regs, *to = t->ctx.regs;
	if (t->generation != f->generation) {
		/* The callback is set anew for every flow, since one from an earlier object would keep that
		 * object in memory.
		 */
		timer_init(&t->timer, &timers, CLOCK_IS_MONOTONIC);
		timer_set_callback(&t->timer, on_timer);
		t->generation = f->generation;
		t->armed_us = 0;
	}
	t->ran = 0;
	t->set = 0;
	t->due_us = 0;
	if (f->program != CCP_NO_PROGRAM && tp->write_seq != tp->snd_una)
		t->due_us = next_due(&f->ctx, f->clock_us, clock_set, now_us);
	if (!t->due_us)
		return;
	for (__u32 i = REG_BYTES_IN_FLIGHT; i <= REG_MIN_STAMPED_RTT; i++)
		to[i] = from[i];
	to[REG_CWND] = f->owned && f->withheld && f->asked ? f->asked : f->cwnd;
	to[REG_RATE] = f->rate;
	to[REG_SSTHRESH] = ssthresh_bytes(tp);
	for (__u32 i = 0; i < CCP_VARS; i++)
		to[REG_VARS + i] = from[REG_VARS + i];
	t->ctx.faults = f->ctx.faults;
	t->flow.slot = f->slot;
	t->flow.epoch = f->epoch;
	t->flow.told = f->told;
	t->flow.program = f->program;
	t->flow.tag = f->tag;
	t->flow.report_vars = f->report_vars;
	t->flow.volatiles = f->volatiles;
	t->flow.clock_us = f->clock_us;
	t->flow.reports = 0;
	t->flow.sends = f->announced || (f->fallback && !f->own);
	t->flow.own = f->own;
	t->flow.owed = f->owed;
	__u64 armed = READ_ONCE(t->armed_us);
	if (!armed || armed > t->due_us)
		set_timer(t, t->due_us, now_us);
}

/* Detaches the ending flow. A timer that is running finds the generation cleared when it next
 * expires.
 */
INLINE void forget_timed(struct flow *f)
{
	struct timed *t = timed_of(f);
	if (!t || t->generation != f->generation)
		return;
	if (hold_timed(t)) {
		if (t->ran)
			f->reports += t->flow.reports;
		release_timed(t);
	}
	WRITE_ONCE(t->generation, 0);
}

#endif
