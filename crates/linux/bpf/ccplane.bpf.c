// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Kernel TCP as a datapath: one registration of `struct tcp_congestion_ops`, named ccp_<algorithm>.
 *
 * At every ACK and timeout: signals into the registers (signals.h), what the agent wrote on top
 * (control.h), the flow's program over them (fold.h), its window and rate into force with the
 * repair of losses done here (recovery.h), a report where the program asked for one (report.h).
 * While the agent is silent NewReno steers, and the program still runs. A program that decides
 * everything needs no agent (own.h): then NewReno is for its faults only.
 */
#include "control.h"
#include "echo.h"
#include "own.h"
#include "recovery.h"
#include "timed.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Agent, or NewReno? Silence is a heartbeat older than the owner's limit. */
INLINE void look_for_agent(struct tcp_sock *tp, struct flow *f, struct ccp_slot *s, __u64 now_us)
{
	__s64 silence = now_us * 1000 - READ_ONCE(plane.heartbeat_ns);
	bool silent = silence > (__s64)READ_ONCE(plane.fallback_after_ns);
	__u32 agent = READ_ONCE(plane.agent);
	if (f->agent != agent) {
		/* A new agent reads the table, so it knows this flow, and begins from its window of now. */
		f->agent = agent;
		f->fallback = 0;
		f->owned = 0;
		f->announced = 1;
		f->barrier = 0;
		f->told = f->epoch;
	}
	/* NewReno has it whether the agent lives or not, and nobody is to be told. */
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

/* Runs the flow's program over its registers. True when that set the clock. */
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

/* Window, rate and threshold into force. `said`: CTL_SET_* that the agent set in this call; `cwnd`, `ssthresh`, `rate`:
 * what the program saw. While a repair runs it sees, and sets, the window that will hold after it
 * (in the call that begins the repair: the window before it); there the program may lower, since a
 * fold that adds what is acknowledged does not know of repairs, and the agent may set what it
 * likes. A program that sets the threshold to infinity does not want to be led anywhere. Between a
 * timeout and the first delivery after it the kernel's one packet is in force, whatever is asked
 * for (RFC 5681 section 3.1).
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
			/* what was asked for waits, or is in force now */
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
		/* no threshold, no reduction: the program's window is in force, and stays */
		f->target = clamp_cwnd(asked ? asked : cwnd);
		set_asked(tp, f, f->target);
		f->recover_fs = 0;
	} else if (repairing)
		proportional_reduction(tp, f, newly, regs[REG_BYTES_ACKED] && !regs[REG_LOST]);
	else if (!f->owned)
		grow(tp, regs[REG_BYTES_ACKED] ? newly : 0, true);
	else if (!f->answered && regs[REG_BYTES_ACKED])
		grow(tp, newly, false); /* after a timeout, until somebody says otherwise: slow start up to ssthresh */
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

/* One ACK or one timeout. Where the flow's timer is at work and does not end, it is left to the next: what is counted by
 * differences is counted then.
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
	else /* no memory: NewReno without a state of its own, halved by ssthresh below */
		grow(tp, rs->delivered > 0 ? rs->delivered : 0, true);
}

/* Linux 6.10 and later: (sk, ack, flag, rate_sample). */
SEC("struct_ops/cong_control")
int cong_control(__u64 *ctx)
{
	on_ack((void *)ctx[0], (void *)ctx[3]);
	return 0;
}

/* Before: (sk, rate_sample). */
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
	/* The place of a program that runs is not given away, also before the first ACK. */
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

/* A reduction begins: by half, until program or agent says otherwise, which PRR has a round trip to
 * follow. */
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

/* The reduction was spurious: back to the window before it (RFC 5682, RFC 3708 and time stamps tell
 * the kernel). */
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
		/* repaired: the window is what the reduction aimed at, unless it was undone */
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

/* As receiver: a packet with a stamp is answered at once and by itself. A sender with a window of a packet or two, which is
 * all that a short path holds, would wait for the timer of a delayed ACK, and half of the stamps
 * would never come back. The kernel calls this for every segment, before it looks whether an ACK is
 * due.
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

/* The loader sets name and flags, and creates the one whose cong_control the kernel has; it takes
 * in_ack_event away from algorithms that want no stamps.
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
