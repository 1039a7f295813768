/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The receiver's side of an algorithm that needs ECN: RFC 8257 section 3.2. ACKs carry ECE while data comes with CE, not,
 * as in RFC 3168, until the sender answers: so the sender learns which packets were marked, delayed
 * ACKs or not. When the codepoint changes, what waits for an ACK is acknowledged as what it was,
 * and the change itself at once. The kernel calls this for every segment of data where the
 * congestion control needs ECN and the two ends agreed on it.
 */
#ifndef CCPLANE_ECHO_H
#define CCPLANE_ECHO_H

#include "flow.h"

INLINE void demand_cwr(struct tcp_sock *tp, bool ce)
{
	__u8 flags = tp->ecn_flags;
	tp->ecn_flags = ce ? flags | TCP_ECN_DEMAND_CWR : flags & ~TCP_ECN_DEMAND_CWR;
}

INLINE void echo_mark(struct tcp_sock *tp, struct flow *f, bool ce)
{
	if (!(tp->ecn_flags & TCP_ECN_OK))
		return;
	if (f->ce != ce) {
		if (tp->inet_conn.icsk_ack.pending & ICSK_ACK_TIMER) {
			demand_cwr(tp, f->ce);
			send_ack(tp, f->rcv_nxt);
		}
		tp->inet_conn.icsk_ack.pending |= ICSK_ACK_NOW;
	}
	f->rcv_nxt = tp->rcv_nxt;
	f->ce = ce;
	demand_cwr(tp, ce);
}

#endif
