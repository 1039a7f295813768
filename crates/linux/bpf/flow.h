/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A flow: its state beside the socket, its slot in the mapped table, its birth and its death. */
#ifndef CCPLANE_FLOW_H
#define CCPLANE_FLOW_H

#include "kernel.h"
#include "layout.h"
#include "one_way.h"
#include "stamps.h"

#define NO_SLOT 0xffffffff
#define NO_LIMIT (~0ULL)

/* Per-flow state. The window in force is kept in bytes beside the kernel's, which counts packets, so that growth by
 * less than a packet an ACK is not lost.
 */
struct flow {
	struct fold_ctx ctx;
	__u64 cwnd; /* bytes; means tp->snd_cwnd while cwnd / mss says the same */
	__u64 rate; /* bytes/s that program or agent set; 0: none */
	__u64 target; /* bytes: the window after the repair under way */
	__u64 asked; /* bytes: the window of program or agent while it is `withheld`; 0: none set since */
	__u64 resume_limit; /* bytes: after an idle time, the largest window in force now, and */
	__u64 resume_until; /* the window before, at which the restart is over */
	__u64 clock_us; /* Micros counts from here */
	__u64 event_us; /* the last reduction or undo */
	__u64 opened_us;
	__u64 asked_us; /* when it last looked for a slot */
	__u64 acked; /* tp->bytes_acked that the fold has seen; likewise: */
	__u32 delivered;
	__u32 delivered_ce;
	__u32 lost;
	__u32 sacked_out;
	__u32 slot;
	__u32 share; /* the entry of plane.shares that its slot counts in; SHARE_HOME: none */
	__u32 generation;
	/* Counts reductions, undos and fallbacks. A record tells the agent; control words carry the last one told: what
	 * an agent decided before it knew of a loss must not undo the reduction (control.h). */
	__u32 epoch;
	__u32 told; /* the epoch that records carry: stands still until an end of the fallback is announced */
	__u32 barrier; /* words of an epoch before this are dropped: decided before a fallback */
	__u32 agent; /* plane.agent when it was last looked at */
	__u32 program;
	__u32 tag;
	__u32 recover_fs; /* packets; 0 until the first ACK of a repair */
	__u32 prr_delivered; /* packets */
	__u32 report_vars; /* of the program, here so that no look-up is needed per ACK: */
	__u64 volatiles;
	__u64 staged[CCP_VARS]; /* control words on their way from the slot to the registers */
	__u64 reports;
	__u64 fallbacks;
	__u64 faults_us; /* when the second began in which faults are counted, and how many there were before it */
	__u64 faults_before;
	struct one_way one_way;
	__u32 samples; /* of `one_way`, by the count beside the stamps */
	__u32 own; /* the tag of the program that it began by itself; 0: an agent steers */
	__u32 rcv_nxt; /* as receiver: at the last data, and */
	__u8 ce; /* whether that came with CE */
	__u8 started;
	__u8 announced;
	__u8 fallback;
	__u8 owned; /* the agent has spoken since the flow began or came back */
	__u8 ca_state;
	__u8 undone; /* not told to the program yet */
	__u8 restored; /* undone within the repair under way */
	__u8 answered; /* program or agent set a window since the timeout */
	__u8 owed; /* an urgent report found the ring full */
	__u8 paced; /* it was us who switched pacing on */
	__u8 timeout; /* not told to the program yet */
	__u8 released; /* given up: NewReno has it until a program is set */
	__u8 withheld; /* WITHHELD_*: the reason why the window in force is less than the one asked for */
};

enum {
	WITHHELD_NOT,
	/* a timeout, and nothing was delivered since: the kernel's one packet is in force */
	WITHHELD_TIMEOUT,
	/* a restart after an idle time: the window in force grows by what is delivered */
	WITHHELD_IDLE,
};

struct {
	MAP_UINT(type, SK_STORAGE_MAP);
	MAP_UINT(map_flags, F_NO_PREALLOC);
	MAP_TYPE(key, (int)0);
	MAP_TYPE(value, (struct flow){});
} states SEC(".maps");

struct {
	MAP_UINT(type, ARRAY_MAP);
	MAP_UINT(max_entries, 4096);
	MAP_TYPE(key, (__u32)0);
	MAP_TYPE(value, (struct ccp_slot){});
	MAP_UINT(map_flags, F_MMAPABLE);
} table SEC(".maps");

/* Slots that were in use and are free again. */
struct {
	MAP_UINT(type, QUEUE_MAP);
	MAP_UINT(max_entries, 4096);
	MAP_TYPE(value, (__u32)0);
} vacant SEC(".maps");

struct ccp_plane plane SEC(".data.plane");

/* Whether the algorithm wants time stamps; the loader says so, and the verifier drops what is not
 * reached. */
const volatile __u32 stamped SEC(".rodata.stamped");

INLINE struct ccp_counters *counters(void)
{
	return &plane.counters[cpu_id() & (CCP_CPUS - 1)];
}
INLINE struct ccp_totals *ended(void)
{
	return &plane.ended[cpu_id() & (CCP_CPUS - 1)];
}
#define COUNT(what, n) __sync_fetch_and_add(&counters()->what, n)

#include "share.h"

INLINE struct ccp_slot *slot_of(struct flow *f)
{
	__u32 slot = f->slot;
	return map_lookup(&table, &slot);
}

INLINE __u64 mss_of(struct tcp_sock *tp)
{
	__u32 mss = tp->mss_cache;
	return mss ? mss : 1; /* 0 only in a socket that is being torn down */
}

INLINE __u64 ssthresh_bytes(struct tcp_sock *tp)
{
	__u32 packets = tp->snd_ssthresh;
	return packets >= TCP_INFINITE_SSTHRESH ? NO_LIMIT : packets * mss_of(tp);
}

/* Within the owner's limits, which hold for whoever steers. */
INLINE __u64 clamp_cwnd(__u64 cwnd)
{
	__u64 least = READ_ONCE(plane.min_cwnd), most = READ_ONCE(plane.max_cwnd);
	if (cwnd < least)
		cwnd = least;
	return cwnd > most ? most : cwnd;
}

INLINE __u64 clamp_rate(__u64 rate)
{
	__u64 most = READ_ONCE(plane.max_rate);
	return rate > most ? most : rate;
}

/* Bytes to whole packets, at least one. */
INLINE __u32 packets(__u64 bytes, __u64 mss)
{
	__u64 n = bytes / mss;
	if (n > 0x7ffffffe)
		n = 0x7ffffffe;
	return n ? n : 1;
}

/* Without the fraction of a packet: a reduction ends at whole packets, as the kernel's own. A fraction would stay in the
 * window until the next loss, and of two losses at the same number of packets the second would look
 * earlier or later.
 */
INLINE __u64 whole(__u64 bytes, __u64 mss)
{
	return packets(bytes, mss) * mss;
}

/* Puts a window into force. */
INLINE void set_cwnd(struct tcp_sock *tp, struct flow *f, __u64 bytes)
{
	__u64 mss = mss_of(tp);
	__u32 most = tp->snd_cwnd_clamp;
	__u32 n = packets(bytes, mss);
	f->cwnd = bytes;
	tp->snd_cwnd = n > most && most ? most : n;
}

/* The window in force: the kernel may have changed its own since (after a timeout, by an undo). */
INLINE __u64 cwnd_of(struct tcp_sock *tp, struct flow *f)
{
	__u64 mss = mss_of(tp);
	__u32 now = tp->snd_cwnd;
	if (f->cwnd / mss != now)
		f->cwnd = now * mss;
	return f->cwnd;
}

/* The window that program and agent see and set, outside of repairs. */
INLINE __u64 steered_cwnd(struct tcp_sock *tp, struct flow *f)
{
	__u64 in_force = cwnd_of(tp, f);
	return f->owned && f->withheld && f->asked ? f->asked : in_force;
}

INLINE void write_addresses(struct tcp_sock *tp, struct ccp_shown *shown)
{
	struct sock_common *sk = &tp->inet_conn.icsk_inet.sk.__sk_common;
	shown->family = sk->skc_family;
	shown->local_port = sk->skc_num;
	shown->peer_port = __builtin_bswap16(sk->skc_dport);
	if (sk->skc_family == AF_INET6 && FIELD_EXISTS(sk->skc_v6_daddr)) {
#pragma unroll
		for (int i = 0; i < 16; i++) {
			shown->local[i] = sk->skc_v6_rcv_saddr.in6_u.u6_addr8[i];
			shown->peer[i] = sk->skc_v6_daddr.in6_u.u6_addr8[i];
		}
	} else {
		*(__u32 *)shown->local = sk->skc_rcv_saddr;
		*(__u32 *)shown->peer = sk->skc_daddr;
	}
}

/* How long a flow that found no slot waits before it looks again. Shorter would cost every ACK of the flows beyond a full
 * table a look at the queue; longer leaves them unsteered while slots are free.
 */
#define ASK_EVERY_US 1000000

/* Results of take_slot(). */
enum {
	SLOT_TAKEN,
	SLOT_NONE,
	SLOT_BEYOND_SHARE,
};

/* Takes a slot: one that became vacant, else one that was never in use. The agent of now has not
 * seen it in the table. */
static NOINLINE int take_slot(struct tcp_sock *tp, struct flow *f)
{
	__u32 slot = NO_SLOT, free;
	f->slot = NO_SLOT;
	f->agent = READ_ONCE(plane.agent);
	f->share = share_of(tp);
	if (!enter_share(f->share))
		return SLOT_BEYOND_SHARE;
	if (!map_pop(&vacant, &free)) /* a pop that fails writes 0 */
		slot = free;
	else if (READ_ONCE(plane.fresh) < READ_ONCE(plane.slots))
		slot = __sync_fetch_and_add(&plane.fresh, 1);
	struct ccp_slot *s = slot < plane.slots ? map_lookup(&table, &slot) : NULL;
	if (!s) {
		leave_share(f->share);
		return SLOT_NONE;
	}
	f->slot = slot;
	f->generation = s->shown.generation + 1;
	if (!f->generation)
		f->generation = 1;
	s->shown.generation = f->generation;
	s->shown.flags = 0;
	s->shown.epoch = f->epoch;
	s->shown.program = CCP_NO_PROGRAM;
	s->shown.tag = 0;
	s->shown.mss = tp->mss_cache;
	s->shown.init_cwnd = tp->snd_cwnd;
	s->shown.ca_state = f->ca_state;
	s->shown.srtt_us = tp->srtt_us >> 3;
	s->shown.opened_us = f->opened_us;
	s->shown.cwnd = f->cwnd;
	s->shown.ssthresh = ssthresh_bytes(tp);
	s->shown.rate = 0;
	s->shown.acked = 0;
	s->shown.lost = 0;
	s->shown.retransmits = tp->total_retrans;
	s->shown.reports = 0;
	s->shown.faults = 0;
	s->shown.fallbacks = 0;
	s->shown.fallback_us = 0;
	s->shown.last_us = f->opened_us;
	s->shown.delivered_rate = 0;
	write_addresses(tp, &s->shown);
	WRITE_ONCE(s->shown.state, FLOW_LIVE);
	return SLOT_TAKEN;
}

/* The state of a socket's flow; NULL where it has none. A socket that is reset is released and then set to TCP_CA_Open:
 * what starts a flow there is never released.
 */
INLINE struct flow *flow_of(struct tcp_sock *tp)
{
	return storage_get(&states, tp, NULL, 0);
}

/* The same, started when it is new; NULL without memory. Only for callbacks that a released socket
 * does not get. */
INLINE struct flow *start_flow(struct tcp_sock *tp)
{
	struct flow *f = storage_get(&states, tp, NULL, STORAGE_CREATE);
	if (!f || f->started)
		return f;
	f->started = 1;
	f->ca_state = BITFIELD(&tp->inet_conn, icsk_ca_state);
	f->opened_us = tp->tcp_mstamp;
	f->clock_us = f->opened_us;
	f->cwnd = tp->snd_cwnd * mss_of(tp);
	f->target = f->cwnd;
	f->acked = tp->bytes_acked;
	f->delivered = tp->delivered;
	f->delivered_ce = tp->delivered_ce;
	f->lost = tp->lost;
	f->sacked_out = tp->sacked_out;
	f->program = CCP_NO_PROGRAM;
	f->answered = 1;
	f->asked_us = f->opened_us;
	COUNT(flows, 1);
	int taken = take_slot(tp, f);
	if (taken != SLOT_TAKEN)
		COUNT(table_full, 1);
	if (taken == SLOT_BEYOND_SHARE)
		COUNT(share_full, 1);
	return f;
}

#endif
