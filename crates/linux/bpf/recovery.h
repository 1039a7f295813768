/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Duties that the kernel leaves to a `cong_control` callback: the reduction itself (PRR), NewReno
 * growth in fallback, the pacing rate, and the restart after idle. The kernel still enters and
 * leaves recovery, marks losses, retransmits and undoes.
 */
#ifndef CCPLANE_RECOVERY_H
#define CCPLANE_RECOVERY_H

#include "signals.h"

/* Proportional rate reduction, RFC 9937 section 6. Above the target, packets are sent in proportion
 * to those delivered: target over the packets in flight when recovery began (RecoverFS). Below it,
 * one for one, plus one for a "safeACK": the cumulative ACK advances and no further loss is found.
 * The kernel counts prr_out. RFC 6937 left the bound below the target to the implementer and
 * reduced from the window in force; RFC 9937 selects it by safeACK and reduces from RecoverFS.
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
	/* force a fast retransmit when recovery begins */
	if (!out && count < 1)
		count = 1;
	if (count < 0)
		count = 0;
	count += flying;
	tp->snd_cwnd = count > 1 ? count : 1;
	f->cwnd = tp->snd_cwnd * mss_of(tp);
}

/* NewReno growth (RFC 5681 section 3.1) as in the kernel: by the packets delivered in slow start,
 * then by one packet per window, and only while the window limits sending. Needs no per-flow state.
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

/* Rate at which pacing is switched off, bytes/s (1000 Gbit/s). The kernel arms a timer per paced
 * packet, even for the 12 ns between packets at this rate.
 */
#define UNPACED_RATE 125000000000ULL

/* Sets the pacing rate: the one of program or agent, or else 200 % of cwnd/srtt in slow start and
 * 120 % after it, as the kernel does without `cong_control`. The rate also determines the size of
 * TSO bursts, even if nothing is paced.
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

/* The algorithm keeps its window over idle periods. Set by the loader. */
const volatile __u32 keeps_window SEC(".rodata.keeps");

/* Applies the window of program or agent, up to the limit of a restart after idle. */
INLINE void set_asked(struct tcp_sock *tp, struct flow *f, __u64 bytes)
{
	if (f->withheld == WITHHELD_IDLE) {
		f->asked = bytes;
		if (bytes > f->resume_limit)
			bytes = f->resume_limit;
	}
	set_cwnd(tp, f, bytes);
}

/* Holds back the requested window (`said`: `bytes` was set in this call). Returns true if no
 * further window update is needed in this call.
 *
 * Between a timeout and the first delivery after it the kernel's window of one packet is in force,
 * since nothing shows that the path carries more (RFC 5681 section 3.1). After idle the window in
 * force grows by the packets delivered, as in slow start, until it reaches the window before the
 * idle period.
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

/* Restarts after idle: halves the window once per RTO of idle time (RFC 5681 section 4.1, RFC 2861,
 * tcp_cwnd_restart()), if net.ipv4.tcp_slow_start_after_idle is set and the algorithm does not keep
 * its window. A program or agent that requests the old window again reaches it at the pace of slow
 * start.
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
