// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Kernel TCP as a datapath: one registration of `struct tcp_congestion_ops`, named ccp_<algorithm>.
 *
 * Every ACK and every timeout reads the signals into registers (signals.h), merges the agent's
 * control words (control.h), runs the flow's program (fold.h), applies its window and rate or
 * performs loss recovery (recovery.h), and sends a report if the program asked for one (report.h).
 * While the agent is silent, NewReno sets the window and the program keeps running. A program that
 * computes window and rate itself needs no agent (own.h) and falls back to NewReno only on
 * arithmetic faults.
 */
#include "control.h"
#include "echo.h"
#include "own.h"
#include "recovery.h"
#include "timed.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Switches the flow between the agent and NewReno. An agent is silent once its heartbeat is older
 * than `fallback_after_ns`.
 */
INLINE void look_for_agent(struct tcp_sock *tp, struct flow *f, struct ccp_slot *s, __u64 now_us)
{
	__s64 silence = now_us * 1000 - READ_ONCE(plane.heartbeat_ns);
	bool silent = silence > (__s64)READ_ONCE(plane.fallback_after_ns);
	__u32 agent = READ_ONCE(plane.agent);
	if (f->agent != agent) {
		/* A new agent has read the flow from the table. It starts from the current window. */
		f->agent = agent;
		f->fallback = 0;
		f->owned = 0;
		f->announced = 1;
		f->barrier = 0;
		f->told = f->epoch;
	}
	/* A released flow stays with NewReno whatever the agent does, and nothing is announced. */
	if (f->released)
		return;
	if (silent && !f->fallback) {
		f->fallback = 1;
		f->owned = 0;
		f->announced = 0;
		f->epoch++;
		f->barrier = f->epoch;
		f->fallbacks++;
		s->shown.fallback_us = now_us;
		COUNT(fallbacks, 1);
	} else if (!silent) {
		f->fallback = 0;
		if (!f->announced)
			announce(f, now_us);
	}
}

/* Runs the flow's program over its registers. Returns true if the program set Micros. */
INLINE bool run_program(struct flow *f, __u64 now_us)
{
	__u64 *regs = f->ctx.regs;
	__u64 micros = now_us - f->clock_us;
	__u64 faults = f->ctx.faults;
	if (f->program == CCP_NO_PROGRAM)
		return false;
	regs[REG_MICROS] = micros;
	regs[REG_REPORT] = 0;
	regs[REG_CONTINUE] = 0;
	regs[REG_RESET] = 0;
	regs[REG_ONE] = 1;
	fold(&f->ctx, f->program);
	bool clock_set = regs[REG_MICROS] != micros;
	if (clock_set)
		f->clock_us = now_us - regs[REG_MICROS];
	if (f->ctx.faults != faults)
		COUNT(faults, f->ctx.faults - faults);
	return clock_set;
}

/* Applies window, rate and threshold. `said`: the CTL_SET_* of the agent in this call; `cwnd`,
 * `ssthresh` and `rate`: the values that the program saw.
 *
 * During recovery the program sees, and sets, the window that takes effect when recovery ends (in
 * the call that enters recovery: the window before it). The program may only lower this window,
 * since a fold that adds acknowledged bytes is unaware of recovery; the agent may set any value. A
 * program that sets an infinite threshold opts out of the reduction. Between a timeout and the
 * first delivery after it the kernel's window of one packet stays in force (RFC 5681 section 3.1).
 */
INLINE void apply(struct tcp_sock *tp, struct flow *f, __u32 said, __u64 cwnd, __u64 ssthresh, __u64 rate, __u32 newly)
{
	__u64 *regs = f->ctx.regs;
	bool repairing = f->ca_state == TCP_CA_CWR || f->ca_state == TCP_CA_RECOVERY;
	__u64 asked = regs[REG_CWND];
	bool cwnd_said = asked && (asked != cwnd || said & CTL_SET_CWND);
	bool ssthresh_said = regs[REG_SSTHRESH] && (regs[REG_SSTHRESH] != ssthresh || said & CTL_SET_SSTHRESH);

	if (f->owned) {
		if (regs[REG_RATE] && (regs[REG_RATE] != rate || said & CTL_SET_RATE))
			f->rate = clamp_rate(regs[REG_RATE]);
		if (ssthresh_said) {
			__u32 n = packets(regs[REG_SSTHRESH], mss_of(tp));
			tp->snd_ssthresh = n < 2 ? 2 : n;
			if (!cwnd_said)
				f->target = clamp_cwnd(regs[REG_SSTHRESH]);
		}
		if (withhold(tp, f, regs[REG_WAS_TIMEOUT] ? 0 : newly, cwnd_said, clamp_cwnd(asked), repairing)) {
			/* the requested window is stored, or was applied by withhold() */
		} else if (cwnd_said && repairing) {
			if (said & CTL_SET_CWND || asked < cwnd)
				f->target = clamp_cwnd(asked);
		} else if (cwnd_said) {
			set_asked(tp, f, clamp_cwnd(asked));
			f->answered = 1;
		} else if (!repairing && f->ca_state != TCP_CA_LOSS && clamp_cwnd(cwnd) != cwnd) {
			set_asked(tp, f, clamp_cwnd(cwnd));
		}
	}
	if (repairing && f->owned && regs[REG_SSTHRESH] == NO_LIMIT) {
		/* no threshold, no reduction: the program's window applies at once and stays */
		f->target = clamp_cwnd(asked ? asked : cwnd);
		set_asked(tp, f, f->target);
		f->recover_fs = 0;
	} else if (repairing)
		proportional_reduction(tp, f, newly, regs[REG_BYTES_ACKED] && !regs[REG_LOST]);
	else if (!f->owned)
		grow(tp, regs[REG_BYTES_ACKED] ? newly : 0, true);
	else if (!f->answered && regs[REG_BYTES_ACKED])
		/* after a timeout, slow start up to ssthresh until program or agent sets a window */
		grow(tp, newly, false);
	pace(tp, f);
}

INLINE void show(struct tcp_sock *tp, struct flow *f, struct ccp_slot *s, __u64 now_us)
{
	struct ccp_shown *shown = &s->shown;
	shown->flags = (f->fallback || f->released ? SHOW_FALLBACK : 0) | (f->owned ? SHOW_OWNED : 0) |
		       (f->ctx.regs[REG_QUEUE_DELAY_VALID] ? SHOW_STAMPED : 0);
	shown->epoch = f->epoch;
	shown->program = f->program;
	shown->tag = f->tag;
	shown->mss = tp->mss_cache;
	shown->ca_state = f->ca_state;
	shown->srtt_us = tp->srtt_us >> 3;
	shown->cwnd = cwnd_of(tp, f);
	shown->ssthresh = ssthresh_bytes(tp);
	shown->rate = f->rate;
	shown->acked = tp->bytes_acked;
	shown->lost = tp->lost;
	if (f->ca_state)
		shown->retransmits = tp->total_retrans;
	shown->reports = f->reports;
	shown->faults = f->ctx.faults;
	shown->fallbacks = f->fallbacks;
	shown->last_us = now_us;
	if (f->ctx.regs[REG_RATE_INCOMING])
		shown->delivered_rate = f->ctx.regs[REG_RATE_INCOMING];
}

INLINE void report_and_reset(struct flow *f, __u64 now_us)
{
	__u64 *regs = f->ctx.regs;
	bool urgent = regs[REG_LOST] || regs[REG_WAS_TIMEOUT] || regs[REG_UNDONE];
	bool reset = regs[REG_RESET];
	__u32 index = f->program;
	if (index == CCP_NO_PROGRAM)
		return;
	if (f->own && regs[REG_REPORT]) {
		report_unasked(f, f->report_vars, urgent, now_us);
		reset = true;
	} else if ((regs[REG_REPORT] || f->owed) && (f->announced || f->fallback)) {
		reset |= report(f, f->report_vars, urgent || f->owed, now_us);
	}
	if (!reset || !f->volatiles)
		return;
	struct ccp_program *p = map_lookup(&programs, &index);
	if (p && p->tag == f->tag)
		reset_vars(f->ctx.regs, p, f->volatiles);
}

/* Handles one ACK or one timeout. If the flow's timer callback is running and does not finish, the
 * work is left to the next call: counters are read as differences, so nothing is lost.
 */
static NOINLINE int on_call(struct tcp_sock *tp, struct flow *f, struct rate_sample *rs, bool timeout)
{
	__u64 *regs = f->ctx.regs;
	__u64 now_us = tp->tcp_mstamp;
	bool repairing = f->ca_state == TCP_CA_CWR || f->ca_state == TCP_CA_RECOVERY;
	struct timed *t = timed_of(f);

	timeout |= f->timeout;
	f->timeout = timeout;
	if (t && !hold_timed(t))
		return 0;
	f->timeout = 0;
	__u32 said = 0, newly = gather(tp, f, rs, timeout, now_us);
	__u64 cwnd = repairing && f->recover_fs ? f->target : steered_cwnd(tp, f);
	__u64 ssthresh = ssthresh_bytes(tp), rate = f->rate;
	struct ccp_slot *s = slot_of(f);
	bool clock_set = false;

	if (!s && now_us - f->asked_us >= ASK_EVERY_US) {
		f->asked_us = now_us;
		if (take_slot(tp, f) == SLOT_TAKEN)
			s = slot_of(f);
	}
	regs[REG_CWND] = cwnd;
	regs[REG_SSTHRESH] = ssthresh;
	regs[REG_RATE] = rate;
	if (s) {
		bool alone = run_alone(f, now_us);
		if (!alone)
			look_for_agent(tp, f, s, now_us);
		if (t)
			said = take_timed(f, t);
		if (!alone && !f->fallback)
			said |= take_control(tp, f, s);
		__u64 faults = f->ctx.faults;
		clock_set = run_program(f, now_us);
		if (alone && f->own && faults_too_often(f, faults, now_us))
			give_up(f, s, now_us);
	}
	apply(tp, f, said, cwnd, ssthresh, rate, newly);
	if (s) {
		report_and_reset(f, now_us);
		show(tp, f, s, now_us);
	}
	if (t) {
		leave_timed(tp, f, t, clock_set, now_us);
		release_timed(t);
	}
	f->undone = 0;
	return 0;
}

INLINE void on_ack(struct tcp_sock *tp, struct rate_sample *rs)
{
	struct flow *f = start_flow(tp);
	if (f)
		on_call(tp, f, rs, false);
	else /* no memory: stateless NewReno, halved by ssthresh() below */
		grow(tp, rs->delivered > 0 ? rs->delivered : 0, true);
}

/* Linux 6.10 and later: (sk, ack, flag, rate_sample). */
SEC("struct_ops/cong_control")
int cong_control(__u64 *ctx)
{
	on_ack((void *)ctx[0], (void *)ctx[3]);
	return 0;
}

/* Linux before 6.10: (sk, rate_sample). */
SEC("struct_ops/cong_control")
int cong_control_2(__u64 *ctx)
{
	on_ack((void *)ctx[0], (void *)ctx[1]);
	return 0;
}

SEC("struct_ops/init")
int init(__u64 *ctx)
{
	struct tcp_sock *tp = (void *)ctx[0];
	struct flow *f = start_flow(tp);
	struct ccp_slot *s = f ? slot_of(f) : NULL;
	if (!s)
		return 0;
	if (!run_alone(f, f->opened_us))
		look_for_agent(tp, f, s, f->opened_us);
	/* The loader must not reuse the entry of a running program, even before the flow's first
	 * ACK.
	 */
	s->shown.program = f->program;
	s->shown.tag = f->tag;
	return 0;
}

SEC("struct_ops/release")
int release(__u64 *ctx)
{
	struct tcp_sock *tp = (void *)ctx[0];
	struct flow *f = flow_of(tp);
	if (f) {
		forget_timed(f);
		close(tp, f);
		storage_delete(&states, tp);
	}
	return 0;
}

/* Enters a reduction. Returns half of the window; program or agent have the round trip that PRR
 * takes to set another target.
 */
SEC("struct_ops/ssthresh")
int ssthresh(__u64 *ctx)
{
	struct tcp_sock *tp = (void *)ctx[0];
	struct flow *f = flow_of(tp);
	__u32 half = tp->snd_cwnd / 2;
	if (half < 2)
		half = 2;
	if (f) {
		f->target = clamp_cwnd(half * mss_of(tp));
		f->recover_fs = 0;
		f->restored = 0;
		f->epoch++;
		f->event_us = tp->tcp_mstamp;
	}
	return half;
}

/* Undoes a spurious reduction: restores the window before it. The kernel detects one by F-RTO (RFC
 * 5682), DSACK (RFC 3708) or timestamps.
 */
SEC("struct_ops/undo_cwnd")
int undo_cwnd(__u64 *ctx)
{
	struct tcp_sock *tp = (void *)ctx[0];
	struct flow *f = flow_of(tp);
	__u32 cwnd = tp->snd_cwnd, before = tp->prior_cwnd;
	__u32 most = packets(clamp_cwnd(NO_LIMIT), mss_of(tp));
	if (cwnd < before)
		cwnd = before;
	if (f) {
		f->undone = 1;
		f->restored = 1;
		if (f->withheld == WITHHELD_TIMEOUT)
			f->withheld = WITHHELD_NOT;
		f->answered = 1;
		f->epoch++;
		f->event_us = tp->tcp_mstamp;
	}
	return cwnd < most ? cwnd : most;
}

SEC("struct_ops/set_state")
int set_state(__u64 *ctx)
{
	struct tcp_sock *tp = (void *)ctx[0];
	__u8 state = ctx[1];
	struct flow *f = flow_of(tp);
	if (!f)
		return 0;
	__u8 before = f->ca_state;
	f->ca_state = state;
	if (state == TCP_CA_LOSS) {
		f->answered = 0;
		f->recover_fs = 0;
		if (f->withheld != WITHHELD_TIMEOUT) {
			f->withheld = WITHHELD_TIMEOUT;
			f->asked = 0;
		}
		on_call(tp, f, NULL, true);
	} else if (state < TCP_CA_CWR && (before == TCP_CA_CWR || before == TCP_CA_RECOVERY)) {
		/* recovery is over: the window becomes the target of the reduction, unless it was undone */
		if (!f->restored)
			set_asked(tp, f, whole(f->target, mss_of(tp)));
		f->recover_fs = 0;
	}
	return 0;
}

SEC("struct_ops/cwnd_event")
int cwnd_event(__u64 *ctx)
{
	struct tcp_sock *tp = (void *)ctx[0];
	__u32 event = ctx[1];
	struct flow *f = flow_of(tp);
	if (!f)
		return 0;
	if (event == CA_EVENT_TX_START)
		restart_after_idle(tp, f);
	else if (event == CA_EVENT_ECN_IS_CE || event == CA_EVENT_ECN_NO_CE)
		echo_mark(tp, f, event == CA_EVENT_ECN_IS_CE);
	return 0;
}

/* As a receiver: acknowledges a stamped packet at once and alone. With a window of one or two
 * packets, which is all that a short path holds, the sender would otherwise wait for the
 * delayed-ACK timer, and half of the stamps would never be echoed. The kernel calls this for every
 * segment, before it decides whether an ACK is due.
 */
SEC("struct_ops/in_ack_event")
int in_ack_event(__u64 *ctx)
{
	struct tcp_sock *tp = (void *)ctx[0];
	struct stamped *st = stamped ? storage_get(&stamps, tp, NULL, 0) : NULL;
	if (st && st->answer)
		tp->inet_conn.icsk_ack.pending |= ICSK_ACK_NOW;
	return 0;
}

/* The loader sets name and flags, and registers the variant whose cong_control has the kernel's
 * signature. It removes in_ack_event for algorithms without timestamps.
 */
SEC(".struct_ops.link")
struct tcp_congestion_ops ccplane_ops = {
	.ssthresh = (void *)ssthresh,
	.set_state = (void *)set_state,
	.cwnd_event = (void *)cwnd_event,
	.cong_control = (void *)cong_control,
	.undo_cwnd = (void *)undo_cwnd,
	.name = "ccp",
	.init = (void *)init,
	.release = (void *)release,
	.in_ack_event = (void *)in_ack_event,
};

SEC(".struct_ops.link")
struct tcp_congestion_ops ccplane_ops_2 = {
	.ssthresh = (void *)ssthresh,
	.set_state = (void *)set_state,
	.cwnd_event = (void *)cwnd_event,
	.cong_control = (void *)cong_control_2,
	.undo_cwnd = (void *)undo_cwnd,
	.name = "ccp",
	.init = (void *)init,
	.release = (void *)release,
	.in_ack_event = (void *)in_ack_event,
};
