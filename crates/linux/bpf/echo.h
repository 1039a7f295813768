/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ECN echo at the receiver, RFC 8257 section 3.2, for algorithms that need ECN. ECE is set on ACKs
 * for data marked CE, and not, as in RFC 3168, until the sender responds, so the sender learns
 * which packets were marked even with delayed ACKs. When the codepoint changes, data still waiting
 * for a delayed ACK is acknowledged with the old ECE state, and the change is acknowledged at once.
 * The kernel calls this for every data segment if the congestion control needs ECN and both ends
 * negotiated it.
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
