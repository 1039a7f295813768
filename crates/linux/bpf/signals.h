/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Signals from tcp_sock and rate_sample in the first registers of the fold
 * (crates/datapath/src/signals.rs).
 *
 * Counts are differences since the fold last ran, so losses marked and ACKs processed between two
 * calls are not missed, and a call without an RTT or a rate sample loses nothing.
 *
 *   Ack.bytes_acked        tp->bytes_acked (RFC 4898 tcpEStatsAppHCThruOctetsAcked)
 *   Ack.packets_misordered growth of tp->sacked_out, at least 0; bytes: times the MSS
 *   Ack.packets_acked      tp->delivered less packets_misordered, so a SACKed packet counts once
 *   Ack.ecn_packets        tp->delivered_ce; bytes: times the MSS
 *   Ack.lost_pkts_sample   tp->lost: packets marked lost, also by a timeout
 *   Flow.rate_*            rs->delivered packets times the MSS, over rs->snd_interval_us (outgoing)
 *                          and rs->rcv_interval_us (incoming), bytes/s; 0 if this ACK has no
 *                          valid sample
 *   Flow.rtt_sample_us     rs->rtt_us; unknown if negative or 0
 *   Flow.srtt_us           tp->srtt_us, which the kernel scales by 8
 *   Flow.min_rtt_us        tp->rtt_min, over net.ipv4.tcp_min_rtt_wlen seconds
 *   in flight              packets_out - sacked_out - lost_out + retrans_out
 *   Flow.bytes_pending     write_seq - snd_una
 *   Flow.in_recovery       1 in TCP_CA_CWR, TCP_CA_Recovery and TCP_CA_Loss
 *   Flow.cwnd_limited      as tcp_is_cwnd_limited()
 *   Flow.paced             sk->sk_pacing_status before this ACK: paced by the program's rate,
 *                          SO_MAX_PACING_RATE or fq
 *   one-way delay          from the socket's timestamps (stamps.h), if this ACK or one less than a
 *                          smoothed RTT ago carried some; a sample above TCP's own RTT is dropped
 *                          and counted
 */
#ifndef CCPLANE_SIGNALS_H
#define CCPLANE_SIGNALS_H

#include "flow.h"

INLINE __u32 in_flight(struct tcp_sock *tp)
{
	__u32 left = tp->sacked_out + tp->lost_out;
	return tp->packets_out - left + tp->retrans_out;
}

/* In slow start the window may also grow while it is less than twice the packets in flight. */
INLINE bool cwnd_limited(struct tcp_sock *tp)
{
	if (BITFIELD(tp, is_cwnd_limited))
		return true;
	__u32 cwnd = tp->snd_cwnd;
	return cwnd < tp->snd_ssthresh && cwnd < 2 * tp->max_packets_out;
}

INLINE __u64 known(__u64 us)
{
	return us ? us : UNKNOWN;
}

/* Allowance of a timestamp RTT over TCP's own, µs. TCP's includes both stacks and the peer's
 * processing time, so it is an upper bound, except that the last stamped packet need not be the one
 * that TCP timed.
 */
#define STAMP_SLACK_US 1000

/* Writes registers 22 to 27. */
INLINE void read_stamps(struct tcp_sock *tp, struct flow *f, struct rate_sample *rs, __u64 now_us)
{
	bool fresh = false;
	struct stamped *st = stamped ? storage_get(&stamps, tp, NULL, 0) : NULL;
	if (!st) {
		/* the peer does not stamp, or the algorithm does not ask for stamps */
#pragma unroll
		for (int i = REG_OWD; i < REG_QUEUE_DELAY_VALID; i++)
			f->ctx.regs[i] = UNKNOWN;
		f->ctx.regs[REG_QUEUE_DELAY_VALID] = 0;
		return;
	}
	if (st->samples != f->samples) {
		__u32 rtt = st->forward + st->back;
		__s64 most = rs ? rs->rtt_us : 0;
		f->samples = st->samples;
		if (most <= 0 || rtt <= (__u64)(most + STAMP_SLACK_US) * 1000)
			fresh = one_way_sample(&f->one_way, st->forward, st->back, st->at_ns);
		if (fresh)
			COUNT(stamps, 1);
		else
			COUNT(stamps_dropped, 1);
	}
	one_way_write(&f->one_way, f->ctx.regs, now_us * 1000, (__u64)(tp->srtt_us >> 3) * 1000, fresh);
}

/* Fills the signal registers. Returns the packets newly delivered, for recovery and growth. */
INLINE __u32 gather(struct tcp_sock *tp, struct flow *f, struct rate_sample *rs, bool timeout, __u64 now_us)
{
	__u64 *regs = f->ctx.regs;
	__u64 mss = mss_of(tp);
	__u64 acked = tp->bytes_acked;
	__u32 delivered = tp->delivered, ce = tp->delivered_ce, lost = tp->lost, sacked = tp->sacked_out;
	__u32 newly = delivered - f->delivered;
	__u32 misordered = sacked > f->sacked_out ? sacked - f->sacked_out : 0;
	__u32 marked = ce - f->delivered_ce;

	regs[REG_BYTES_ACKED] = acked - f->acked;
	regs[REG_PACKETS_ACKED] = newly > misordered ? newly - misordered : 0;
	regs[REG_PACKETS_MISORDERED] = misordered;
	regs[REG_BYTES_MISORDERED] = misordered * mss;
	regs[REG_ECN_PACKETS] = marked;
	regs[REG_ECN_BYTES] = marked * mss;
	regs[REG_LOST] = (__u32)(lost - f->lost);
	f->acked = acked;
	f->delivered = delivered;
	f->delivered_ce = ce;
	f->lost = lost;
	f->sacked_out = sacked;

	__u32 flying = in_flight(tp);
	regs[REG_NOW] = now_us - plane.start_us;
	regs[REG_PACKETS_IN_FLIGHT] = flying;
	regs[REG_BYTES_IN_FLIGHT] = flying * mss;
	regs[REG_BYTES_PENDING] = (__u32)(tp->write_seq - tp->snd_una);
	regs[REG_RATE_INCOMING] = 0;
	regs[REG_RATE_OUTGOING] = 0;
	regs[REG_RTT] = UNKNOWN;
	regs[REG_APP_LIMITED] = 0;
	if (rs) {
		__s32 sample = rs->delivered;
		if (sample > 0 && rs->interval_us > 0) {
			__u64 bytes = (__u64)(__u32)sample * mss * 1000000;
			__u32 out = rs->snd_interval_us, in = rs->rcv_interval_us;
			if (out)
				regs[REG_RATE_OUTGOING] = bytes / out;
			if (in)
				regs[REG_RATE_INCOMING] = bytes / in;
		}
		__s64 rtt = rs->rtt_us;
		if (rtt > 0)
			regs[REG_RTT] = rtt;
		regs[REG_APP_LIMITED] = rs->is_app_limited;
	}
	regs[REG_WAS_TIMEOUT] = timeout;
	regs[REG_SRTT] = known(tp->srtt_us >> 3);
	regs[REG_MIN_RTT] = known(tp->rtt_min.s[0].v);
	regs[REG_MSS] = mss;
	regs[REG_IN_RECOVERY] = f->ca_state >= TCP_CA_CWR;
	regs[REG_UNDONE] = f->undone;
	regs[REG_CWND_LIMITED] = cwnd_limited(tp);
	regs[REG_PACED] = tp->inet_conn.icsk_inet.sk.sk_pacing_status != SK_PACING_NONE;
	read_stamps(tp, f, rs, now_us);
	return newly;
}

#endif
