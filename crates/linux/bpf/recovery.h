/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the kernel leaves to a congestion control that has `cong_control`: the reduction itself (PRR), growth when nobody
 * else steers (NewReno), the pacing rate, the restart after an idle time. The kernel still decides
 * when a repair begins and ends, marks losses, retransmits, and undoes.
 */
#ifndef CCPLANE_RECOVERY_H
#define CCPLANE_RECOVERY_H

#include "signals.h"

/* Proportional rate reduction, RFC 9937 section 6: as many packets leave as were delivered, in the proportion of the
 * target to what was in flight when the repair began; below the target one for one, and one more
 * while the repair gets on ("safeACK": the cumulative ACK advances and nothing more was lost). The
 * kernel counts prr_out. RFC 6937 left the choice of the bound below the target to the implementer
 * and reduced from the window in force; RFC 9937 chooses by safeACK, and reduces from what really
 * was in flight (RecoverFS).
 */
INLINE void proportional_reduction(struct tcp_sock *tp, struct flow *f, __u32 newly, bool safe_ack)
{
	__s64 flying = in_flight(tp), out = tp->prr_out;
	__s64 target = packets(f->target, mss_of(tp));
	__s64 count;
	if (!f->recover_fs) {
		f->recover_fs = tp->packets_out - tp->sacked_out + newly;
		f->prr_delivered = 0;
		if (!f->recover_fs)
			f->recover_fs = 1;
	}
	if (!newly)
		return;
	f->prr_delivered += newly;
	if (flying > target) {
		__u64 due = (__u64)f->prr_delivered * target + f->recover_fs - 1;
		count = (__s64)(due / f->recover_fs) - out;
	} else {
		count = (__s64)f->prr_delivered - out;
		if (count < newly)
			count = newly;
		if (safe_ack)
			count++;
		if (count > target - flying)
			count = target - flying;
	}
	/* force a fast retransmit when the repair begins */
	if (!out && count < 1)
		count = 1;
	if (count < 0)
		count = 0;
	count += flying;
	tp->snd_cwnd = count > 1 ? count : 1;
	f->cwnd = tp->snd_cwnd * mss_of(tp);
}

/* NewReno's growth (RFC 5681 section 3.1) as the kernel's own: by what was delivered in slow start, then by a packet a
 * window, and only while the window is what limits sending. Works without per-flow state.
 */
INLINE void grow(struct tcp_sock *tp, __u32 newly, bool avoid)
{
	__u32 cwnd = tp->snd_cwnd, ssthresh = tp->snd_ssthresh;
	__u32 most = packets(clamp_cwnd(NO_LIMIT), mss_of(tp)), clamp = tp->snd_cwnd_clamp;
	if (!newly || !cwnd_limited(tp))
		return;
	if (most > clamp && clamp)
		most = clamp;
	if (cwnd < ssthresh) {
		__u32 room = ssthresh - cwnd;
		__u32 step = newly < room ? newly : room;
		cwnd += step;
		newly -= step;
	}
	if (newly && avoid) {
		__u32 count = tp->snd_cwnd_cnt;
		__u32 window = cwnd ? cwnd : 1;
		if (count >= window) {
			count = 0;
			cwnd++;
		}
		count += newly;
		cwnd += count / window;
		tp->snd_cwnd_cnt = count % window;
	}
	tp->snd_cwnd = cwnd < most ? cwnd : most;
}

/* Rate from which on nothing is paced, bytes/s (1000gbit). The kernel starts a timer for every paced
 * packet, even for the 12 ns between two packets at this rate.
 */
#define UNPACED_RATE 125000000000ULL

/* The rate that program or agent set; else 200 % of cwnd/srtt in slow start and 120 % after it, as the kernel does for
 * those without `cong_control` (it sizes TSO bursts by it even where nothing is paced).
 */
INLINE void pace(struct tcp_sock *tp, struct flow *f)
{
	struct sock *sk = &tp->inet_conn.icsk_inet.sk;
	__u64 rate = f->owned ? f->rate : 0;
	bool enforce = rate || READ_ONCE(plane.max_rate) != NO_LIMIT;
	if (!rate) {
		__u64 cwnd = tp->snd_cwnd, srtt = tp->srtt_us, out = tp->packets_out;
		rate = mss_of(tp) * (10000 << 3) * (cwnd < tp->snd_ssthresh / 2 ? 200 : 120);
		rate *= cwnd > out ? cwnd : out;
		if (srtt)
			rate /= srtt;
	}
	rate = clamp_rate(rate);
	if (rate >= UNPACED_RATE) {
		rate = ~0ULL;
		enforce = false;
	}
	__u64 most = sk->sk_max_pacing_rate;
	tp->inet_conn.icsk_inet.sk.sk_pacing_rate = rate < most ? rate : most;
	if (enforce && sk->sk_pacing_status == SK_PACING_NONE) {
		tp->inet_conn.icsk_inet.sk.sk_pacing_status = SK_PACING_NEEDED;
		f->paced = 1;
	} else if (!enforce && f->paced) {
		tp->inet_conn.icsk_inet.sk.sk_pacing_status = SK_PACING_NONE;
		f->paced = 0;
	}
}

/* Whether the algorithm keeps its window over idle times; the loader sets it. */
const volatile __u32 keeps_window SEC(".rodata.keeps");

/* Puts the window of program or agent into force, as far as a restart after an idle time allows. */
INLINE void set_asked(struct tcp_sock *tp, struct flow *f, __u64 bytes)
{
	if (f->withheld == WITHHELD_IDLE) {
		f->asked = bytes;
		if (bytes > f->resume_limit)
			bytes = f->resume_limit;
	}
	set_cwnd(tp, f, bytes);
}

/* Keeps back the window that program or agent ask for (`said`: they set `bytes` in this call). True when that settles the
 * window of this call.
 *
 * Between a timeout and the first delivery after it the kernel's one packet is in force: nothing
 * shows that the path carries more, whatever was computed meanwhile (RFC 5681 section 3.1). After
 * an idle time the window in force grows by what is delivered, as in slow start, until it reaches
 * the window before.
 */
INLINE bool withhold(struct tcp_sock *tp, struct flow *f, __u32 newly, bool said, __u64 bytes, bool repairing)
{
	if (f->withheld == WITHHELD_TIMEOUT) {
		if (said)
			f->asked = bytes;
		if (!newly)
			return true;
		f->withheld = WITHHELD_NOT;
		if (repairing || !f->asked)
			return false;
		set_cwnd(tp, f, f->asked);
		f->answered = 1;
		return true;
	}
	if (f->withheld == WITHHELD_IDLE) {
		__u64 asked = f->asked;
		f->resume_limit += newly * mss_of(tp);
		if (f->resume_limit >= f->resume_until)
			f->withheld = WITHHELD_NOT;
		else if (asked > f->resume_limit)
			asked = f->resume_limit;
		if (!said && !repairing)
			set_cwnd(tp, f, asked);
	}
	return false;
}

/* After an idle time longer than the RTO the window halves for every RTO (RFC 5681 section 4.1, RFC 2861, as
 * tcp_cwnd_restart()), where net.ipv4.tcp_slow_start_after_idle is set and the algorithm does not
 * keep its window. A program or an agent that sets the old window again gets it as fast as slow
 * start would.
 */
INLINE void restart_after_idle(struct tcp_sock *tp, struct flow *f)
{
	struct sock *sk = &tp->inet_conn.icsk_inet.sk;
	struct net *net = sk->__sk_common.skc_net.net;
	__s32 rto = tp->inet_conn.icsk_rto;
	__s32 idle = (__u32)jiffies64() - tp->lsndtime;
	__u32 cwnd = tp->snd_cwnd, least = cwnd < 10 ? cwnd : 10;
	if (rto <= 0 || idle <= rto || !net->ipv4.sysctl_tcp_slow_start_after_idle)
		return;
	if (f->owned && keeps_window)
		return;
	__u64 before = cwnd_of(tp, f);
	__u32 three_quarters = cwnd - cwnd / 4;
	if (f->ca_state < TCP_CA_CWR && three_quarters > tp->snd_ssthresh)
		tp->snd_ssthresh = three_quarters;
	for (int i = 0; i < 31; i++) {
		idle -= rto;
		if (idle <= 0 || cwnd <= least)
			break;
		cwnd >>= 1;
	}
	if (cwnd < least)
		cwnd = least;
	if (cwnd >= tp->snd_cwnd)
		return;
	tp->snd_cwnd = cwnd;
	if (!f->owned || f->withheld == WITHHELD_TIMEOUT)
		return;
	if (f->withheld != WITHHELD_IDLE || before > f->resume_until)
		f->resume_until = before;
	f->withheld = WITHHELD_IDLE;
	f->asked = cwnd_of(tp, f);
	f->resume_limit = f->asked;
}

#endif
