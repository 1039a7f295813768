/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Records of a flow: its start, reports and its end. */
#ifndef CCPLANE_REPORT_H
#define CCPLANE_REPORT_H

#include "flow.h"
#include "ring.h"

struct {
	MAP_UINT(type, RINGBUF_MAP);
	MAP_UINT(max_entries, 1 << 20);
} ring SEC(".maps");

INLINE long send(void *record, __u32 size, bool urgent)
{
	return ring_send(&ring, &plane.reader, record, size, urgent);
}

INLINE void header(struct flow *f, struct ccp_record *r, __u16 kind, bool urgent, __u64 now_us)
{
	r->kind = kind;
	r->flags = urgent ? REC_URGENT : 0;
	r->slot = f->slot;
	r->generation = f->generation;
	r->epoch = f->told;
	r->program = f->program;
	r->tag = f->tag;
	r->time_us = now_us;
}

/* Announces a new flow, or one that returns to an agent after fallback. Retried on every call until
 * the ring has room.
 */
INLINE void announce(struct flow *f, __u64 now_us)
{
	struct ccp_record r;
	__u32 told = f->told;
	f->told = f->epoch;
	header(f, &r, f->fallbacks && !f->own ? REC_RESUME : REC_OPEN, true, now_us);
	if (send(&r, sizeof(r), true))
		f->told = told;
	else
		f->announced = 1;
}

/* Sends the report variables. They follow the last temporaries, which are dead after a run, so the
 * header is written there and header and values are sent in one piece. Returns true if the ring had
 * room.
 */
INLINE bool report(struct flow *f, __u32 fields, bool urgent, __u64 now_us)
{
	if (f->announced && !f->fallback)
		f->told = f->epoch;
	header(f, (struct ccp_record *)&f->ctx.regs[REG_HEADER], REC_REPORT, urgent, now_us);
	if (fields > CCP_VARS)
		fields = CCP_VARS;
	if (send(&f->ctx.regs[REG_HEADER], sizeof(struct ccp_record) + 8 * fields, urgent)) {
		if (!f->owed && !f->fallback)
			COUNT(ring_lost, 1);
		f->owed = urgent || f->owed;
		return false;
	}
	f->owed = 0;
	f->reports++;
	COUNT(reports, 1);
	return true;
}

/* Sends a report of a program without an agent, for which a missing reader or a full ring is not an
 * error.
 */
INLINE void report_unasked(struct flow *f, __u32 fields, bool urgent, __u64 now_us)
{
	__u32 size = sizeof(struct ccp_record) + 8 * (fields > CCP_VARS ? CCP_VARS : fields);
	header(f, (struct ccp_record *)&f->ctx.regs[REG_HEADER], REC_REPORT, urgent, now_us);
	if (f->announced && send(&f->ctx.regs[REG_HEADER], size, urgent))
		COUNT(ring_lost, 1);
	f->owed = 0;
	f->reports++;
	COUNT(reports, 1);
}

/* Adds the counters of a flow to the totals of ended flows. */
INLINE void add_up(struct tcp_sock *tp, struct ccp_slot *s)
{
	struct ccp_totals *t = ended();
	__sync_fetch_and_add(&t->acked, tp->bytes_acked);
	__sync_fetch_and_add(&t->retransmits, (__u64)tp->total_retrans);
	__sync_fetch_and_add(&t->lost, (__u64)tp->lost);
	sample(t, tp->srtt_us >> 3, s ? s->shown.delivered_rate : 0);
}

/* Sends the closing record and frees the slot. */
INLINE void close(struct tcp_sock *tp, struct flow *f)
{
	struct ccp_slot *s = slot_of(f);
	__u32 slot = f->slot;
	COUNT(closed, 1);
	add_up(tp, s);
	if (!s)
		return;
	struct ccp_closing c = {};
	header(f, &c.record, REC_CLOSE, true, tp->tcp_mstamp);
	c.opened_us = f->opened_us;
	c.acked = tp->bytes_acked;
	c.lost = tp->lost;
	c.reports = f->reports;
	c.faults = f->ctx.faults;
	c.fallbacks = f->fallbacks;
	c.srtt_us = tp->srtt_us >> 3;
	c.min_rtt_us = tp->rtt_min.s[0].v;
	c.retransmits = tp->total_retrans;
	WRITE_ONCE(s->shown.state, FLOW_FREE);
	if (f->announced && send(&c, sizeof(c), true))
		COUNT(close_lost, 1);
	map_push(&vacant, &slot, 0);
	leave_share(f->share);
}

#endif
