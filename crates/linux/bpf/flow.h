/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Per-flow state in socket storage, the flow's slot in the mapped table, and its start and end. */
#ifndef CCPLANE_FLOW_H
#define CCPLANE_FLOW_H

#include "kernel.h"
#include "layout.h"
#include "one_way.h"
#include "stamps.h"

#define NO_SLOT 0xffffffff
#define NO_LIMIT (~0ULL)

/* Per-flow state. The window is kept in bytes alongside the kernel's, which counts packets, so that
 * growth of less than a packet per ACK is not lost.
 */
struct flow {
	struct fold_ctx ctx;
	__u64 cwnd; /* bytes; valid while cwnd / mss equals tp->snd_cwnd */
	__u64 rate; /* bytes/s set by program or agent; 0: none */
	__u64 target; /* bytes: window after the recovery in progress */
	/* bytes: latest window requested by program or agent while `withheld` is set; 0: none */
	__u64 asked;
	__u64 resume_limit; /* bytes: largest window allowed so far after an idle period */
	__u64 resume_until; /* bytes: window before the idle period, which ends the restart */
	__u64 clock_us; /* origin of Micros */
	__u64 event_us; /* time of the last reduction or undo */
	__u64 opened_us;
	__u64 asked_us; /* last attempt to take a slot */
	/* last values of the tp counters that the fold has seen, up to sacked_out */
	__u64 acked;
	__u32 delivered;
	__u32 delivered_ce;
	__u32 lost;
	__u32 sacked_out;
	__u32 slot;
	__u32 share; /* index in plane.shares that the slot is charged to; SHARE_HOME: none */
	__u32 generation;
	/* Counts reductions, undos and fallbacks. Records carry it to the agent, and control words
	 * carry the last value that the agent received: a decision made before the agent knew of a loss
	 * must not undo the reduction (control.h).
	 */
	__u32 epoch;
	/* epoch in records; not advanced in fallback until the flow is announced again */
	__u32 told;
	__u32 barrier; /* control words with an older epoch predate a fallback and are dropped */
	__u32 agent; /* plane.agent at the last check */
	__u32 program;
	__u32 tag;
	__u32 recover_fs; /* packets; 0 until the first ACK of a recovery */
	__u32 prr_delivered; /* packets */
	/* this and `volatiles` are copied from the program, to save a lookup per ACK */
	__u32 report_vars;
	__u64 volatiles;
	__u64 staged[CCP_VARS]; /* control words being copied from the slot to the registers */
	__u64 reports;
	__u64 fallbacks;
	/* start of the one-second window for counting faults, and the fault count at its start */
	__u64 faults_us;
	__u64 faults_before;
	struct one_way one_way;
	__u32 samples; /* stamped.samples at the last sample taken */
	__u32 own; /* tag of the program that runs without an agent; 0: an agent controls the flow */
	__u32 rcv_nxt; /* as a receiver: rcv_nxt at the last data segment */
	__u8 ce; /* that segment was marked CE */
	__u8 started;
	__u8 announced;
	__u8 fallback;
	__u8 owned; /* the agent has set something since the flow started or was announced again */
	__u8 ca_state;
	__u8 undone; /* undo not yet seen by the program */
	__u8 restored; /* the reduction of this recovery was undone */
	__u8 answered; /* program or agent has set a window since the timeout */
	__u8 owed; /* an urgent report did not fit in the ring */
	__u8 paced; /* pacing was enabled by this program */
	__u8 timeout; /* timeout not yet seen by the program */
	__u8 released; /* left to NewReno until a program is set */
	__u8 withheld; /* WITHHELD_*: why the window in force is below the requested one */
};

enum {
	WITHHELD_NOT,
	/* nothing delivered since a timeout: the kernel's window of one packet is in force */
	WITHHELD_TIMEOUT,
	/* restart after idle: the window in force grows by the bytes delivered */
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

/* Slots that were used before and are free. */
struct {
	MAP_UINT(type, QUEUE_MAP);
	MAP_UINT(max_entries, 4096);
	MAP_TYPE(value, (__u32)0);
} vacant SEC(".maps");

struct ccp_plane plane SEC(".data.plane");

/* The algorithm wants timestamps. Set by the loader as a constant, so the verifier prunes the
 * unused branches.
 */
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
	return mss ? mss : 1; /* 0 only while a socket is being destroyed */
}

INLINE __u64 ssthresh_bytes(struct tcp_sock *tp)
{
	__u32 packets = tp->snd_ssthresh;
	return packets >= TCP_INFINITE_SSTHRESH ? NO_LIMIT : packets * mss_of(tp);
}

/* Limits of the operator, which apply to agent, program and NewReno alike. */
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

/* Converts bytes to whole packets, at least one. */
INLINE __u32 packets(__u64 bytes, __u64 mss)
{
	__u64 n = bytes / mss;
	if (n > 0x7ffffffe)
		n = 0x7ffffffe;
	return n ? n : 1;
}

/* Rounds down to whole packets, as the kernel does at the end of a reduction. A fraction would
 * persist until the next loss, and two losses at the same number of packets would appear to be at
 * different windows.
 */
INLINE __u64 whole(__u64 bytes, __u64 mss)
{
	return packets(bytes, mss) * mss;
}

/* Sets the congestion window. */
INLINE void set_cwnd(struct tcp_sock *tp, struct flow *f, __u64 bytes)
{
	__u64 mss = mss_of(tp);
	__u32 most = tp->snd_cwnd_clamp;
	__u32 n = packets(bytes, mss);
	f->cwnd = bytes;
	tp->snd_cwnd = n > most && most ? most : n;
}

/* Returns the window in force. The kernel may have changed snd_cwnd, after a timeout or by an
 * undo.
 */
INLINE __u64 cwnd_of(struct tcp_sock *tp, struct flow *f)
{
	__u64 mss = mss_of(tp);
	__u32 now = tp->snd_cwnd;
	if (f->cwnd / mss != now)
		f->cwnd = now * mss;
	return f->cwnd;
}

/* Returns the window that program and agent see and set outside recovery. */
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

/* Interval at which a flow without a slot retries. A shorter one would cost every ACK of those
 * flows an access to the queue; a longer one leaves flows without control while slots are free.
 */
#define ASK_EVERY_US 1000000

/* Return values of take_slot(). */
enum {
	SLOT_TAKEN,
	SLOT_NONE,
	SLOT_BEYOND_SHARE,
};

/* Takes a vacant slot, or one that was never used. The current agent has not yet seen the flow in
 * the table.
 */
static NOINLINE int take_slot(struct tcp_sock *tp, struct flow *f)
{
	__u32 slot = NO_SLOT, free;
	f->slot = NO_SLOT;
	f->agent = READ_ONCE(plane.agent);
	f->share = share_of(tp);
	if (!enter_share(f->share))
		return SLOT_BEYOND_SHARE;
	if (!map_pop(&vacant, &free)) /* a failed pop sets `free` to 0 */
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

/* Returns the flow of a socket, or NULL. Must not create one: when a socket is reset, the kernel
 * releases the congestion control and then sets TCP_CA_Open, so a flow created there would never be
 * released.
 */
INLINE struct flow *flow_of(struct tcp_sock *tp)
{
	return storage_get(&states, tp, NULL, 0);
}

/* Returns the flow of a socket and starts it if it is new; NULL without memory. Only for callbacks
 * that a released socket does not receive.
 */
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
