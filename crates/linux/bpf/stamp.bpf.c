/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Four timestamps for kernel TCP. `option` offers the option on the SYN, writes it and reads it, on
 * the sockets of a cgroup; `depart` stamps packets at a device's egress, after TCP and before the
 * device's queue; `arrive` stamps packets at ingress, before TCP. Both differences are then in
 * socket storage (stamps.h) when the congestion control is called for the ACK.
 */
#include "option.h"
#include "sockops.h"
#include "stamp_plane.h"
#include "stamps.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Context of a program on a device. Its offsets are stable, as in sock_ops. */
struct packet {
	__u32 bytes;
	__u32 unused0[3];
	__u32 protocol; /* network order */
	__u32 unused1[14];
	__u32 data;
	__u32 data_end;
	__u32 unused2[20];
	__u32 segments;
};

static long (*replace_checksum)(void *packet, __u32 offset, __u64 from, __u64 to, __u64 flags) = (void *)11;
static long (*pull_data)(void *packet, __u32 bytes) = (void *)39;
static __u64 (*netns_cookie)(void *context) = (void *)122;
static long (*load_option)(void *socket, void *option, __u32 bytes, __u64 flags) = (void *)142;
static long (*store_option)(void *socket, const void *option, __u32 bytes, __u64 flags) = (void *)143;
static long (*reserve_option)(void *socket, __u32 bytes, __u64 flags) = (void *)144;

struct ccp_stamp_plane plane SEC(".data.stamps");

/* Arrivals are recorded, for comparison with the link emulator's log. */
const volatile __u32 recording SEC(".rodata.recording");

struct {
	MAP_UINT(type, RINGBUF_MAP);
	MAP_UINT(max_entries, 1 << 22);
} arrivals SEC(".maps");

#define COUNT(what) __sync_fetch_and_add(&plane.counters[cpu_id() & (CCP_CPUS - 1)].what, 1)

/* ------------------------------------------------------------------ devices */

#define ETHERNET 14
#define IP4_HEADER 20 /* a packet with IP options is not stamped */
#define IP6_HEADER 40
#define IP_TCP 6
#define TCP_CHECKSUM 16
#define LONGEST_HEADERS (ETHERNET + IP6_HEADER + 60)

/* Returns the offset of the TCP header, or 0 if the packet is not TCP. `link`: length of the
 * link-layer header, bytes.
 */
INLINE __u32 tcp_at(struct packet *p, __u32 link)
{
	void *data = (void *)(__u64)p->data, *end = (void *)(__u64)p->data_end;
	__u8 *ip = data + link;
	if (p->protocol == BIG16(0x0800)) {
		if ((void *)ip + IP4_HEADER > end || ip[0] != 0x45 || ip[9] != IP_TCP)
			return 0;
		return link + IP4_HEADER;
	}
	if (p->protocol == BIG16(0x86dd)) {
		if ((void *)ip + IP6_HEADER > end || ip[6] != IP_TCP)
			return 0;
		return link + IP6_HEADER;
	}
	return 0;
}

/* Folds a checksum difference to 32 bits. */
INLINE __u32 difference(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	return (sum & 0xffffffff) + (sum >> 32);
}

/* Updates the TCP checksum for the changed words. The helper does nothing if the checksum is
 * offloaded or not needed.
 */
INLINE void follow(struct packet *p, __u32 tcp, __u64 sum)
{
	replace_checksum(p, tcp + TCP_CHECKSUM, 0, difference(sum), 0);
}

INLINE int stamp_departure(struct packet *p, __u32 tcp)
{
	void *data = (void *)(__u64)p->data, *end = (void *)(__u64)p->data_end;
	struct option *o = option_of(data + tcp, end);
	if (!o || o->id != ON_THE_WIRE || o->sent)
		return 0;
	if (p->segments > 1) {
		/* Its segments leave one after another and would share one timestamp. */
		COUNT(bursts);
		return 0;
	}
	__u32 now = BIG32(stamp(clock_ns()));
	o->sent = now;
	follow(p, tcp, now);
	COUNT(departed);
	return 0;
}

INLINE int stamp_arrival(struct packet *p, __u32 tcp)
{
	void *data = (void *)(__u64)p->data, *end = (void *)(__u64)p->data_end;
	struct option *o = option_of(data + tcp, end);
	if (!o || o->id != ON_THE_WIRE)
		return 0;
	__u32 now = BIG32(stamp(clock_ns()));
	__u32 echo = o->echo, arrived = o->arrived;
	__u32 forward = echo && arrived ? BIG32(stamp(BIG32(arrived) - BIG32(echo))) : 0;
	o->id = STAMPED_HERE;
	o->echo = forward;
	o->arrived = now;
	follow(p, tcp,
	       (__u64)STAMPED_HERE + (__u32)~ON_THE_WIRE + forward + (__u32)~echo + now + (__u32)~arrived);
	COUNT(arrived);
	return 0;
}

/* The offset is a constant in each branch, so that the verifier can track it. */
INLINE int depart(struct packet *p, __u32 link)
{
	__u32 tcp = tcp_at(p, link);
	if (tcp == link + IP4_HEADER)
		return stamp_departure(p, link + IP4_HEADER);
	if (tcp == link + IP6_HEADER)
		return stamp_departure(p, link + IP6_HEADER);
	return 0;
}

INLINE int arrive(struct packet *p, __u32 link)
{
	/* Some drivers leave packet headers outside the linear part. */
	if (p->data_end - p->data < LONGEST_HEADERS && p->bytes > p->data_end - p->data)
		pull_data(p, p->bytes < LONGEST_HEADERS ? p->bytes : LONGEST_HEADERS);
	__u32 tcp = tcp_at(p, link);
	if (tcp == link + IP4_HEADER)
		return stamp_arrival(p, link + IP4_HEADER);
	if (tcp == link + IP6_HEADER)
		return stamp_arrival(p, link + IP6_HEADER);
	return 0;
}

/* TC_ACT_UNSPEC, TCX_NEXT: continue with the next program */
#define NEXT (-1)

SEC("tc")
int depart_ether(struct packet *p)
{
	depart(p, ETHERNET);
	return NEXT;
}

SEC("tc")
int arrive_ether(struct packet *p)
{
	arrive(p, ETHERNET);
	return NEXT;
}

/* Devices without a link-layer header: tun, ipip, wireguard. */
SEC("tc")
int depart_ip(struct packet *p)
{
	depart(p, 0);
	return NEXT;
}

SEC("tc")
int arrive_ip(struct packet *p)
{
	arrive(p, 0);
	return NEXT;
}

/* ------------------------------------------------------------------ sockets */

#define TCP_FLAG_SYN 2
#define TCP_FLAG_ACK 16
/* args[0] of HDR_OPT_LEN: an MSS calculation, not a segment */
#define CURRENT_MSS 1
#define NOT_FOUND (-42) /* -ENOMSG */

/* Returns true if the socket is in a listed network namespace, or none is listed. */
INLINE bool is_here(struct sock_ops *ctx)
{
	if (!plane.netns[0])
		return true;
	__u64 cookie = netns_cookie(ctx);
#pragma unroll
	for (int i = 0; i < CCP_STAMP_NAMESPACES; i++)
		if (plane.netns[i] == cookie)
			return true;
	return false;
}

/* Returns true if the socket's congestion control wants timestamps. */
INLINE bool wants(struct sock_ops *ctx)
{
	union name name = {};
	if (get_option(ctx, SOL_TCP, TCP_CONGESTION, &name, NAME))
		return false;
#pragma unroll
	for (int i = 0; i < CCP_STAMP_NAMES; i++)
		if (plane.names[i].words[0] && plane.names[i].words[0] == name.words[0] &&
		    plane.names[i].words[1] == name.words[1])
			return true;
	return false;
}

/* Returns true if the SYN or SYN-ACK at hand carries the offer. */
INLINE bool offered(struct sock_ops *ctx, __u64 which)
{
	__u32 found = OFFER;
	return load_option(ctx, &found, sizeof(found), which) == OFFER_BYTES;
}

INLINE struct option *shown_option(struct sock_ops *ctx)
{
	return option_of((void *)ctx->segment, (void *)ctx->segment_end);
}

/* Ends the negotiation. If the two ends did not agree, the connection stays an ordinary one: the
 * flag is cleared, so that its segments cause no further calls. Another program that writes options
 * has to set it again.
 */
INLINE void established(struct sock_ops *ctx, bool agreed)
{
	__u32 flags = ctx->flags;
	if (!(flags & WRITE_OPTIONS) || !is_here(ctx))
		return;
	void *sk = (void *)ctx->sk;
	struct stamped *s = agreed && sk ? storage_get(&stamps, sk, NULL, STORAGE_CREATE) : NULL;
	if (s) {
		set_flags(ctx, flags | PARSE_UNKNOWN_OPTIONS);
		COUNT(agreed);
	} else {
		set_flags(ctx, flags & ~WRITE_OPTIONS);
		if (ctx->op == SOCK_OPS_ACTIVE_ESTABLISHED && wants(ctx))
			COUNT(not_agreed);
	}
}

INLINE struct stamped *stamps_of(struct sock_ops *ctx)
{
	void *sk = (void *)ctx->sk;
	return sk ? storage_get(&stamps, sk, NULL, 0) : NULL;
}

/* Returns true if this SYN or SYN-ACK carries the offer. The callback flags are shared by all
 * programs on a socket, so the call may be due to another program.
 */
INLINE bool says(struct sock_ops *ctx)
{
	if (!is_here(ctx))
		return false;
	if (ctx->segment_flags & TCP_FLAG_ACK)
		return offered(ctx, OPTION_OF_THE_SYN);
	/* From the second retransmission on the offer is omitted, since a middlebox may drop unknown
	 * options. The kernel has counted the retransmission by the time of the call.
	 */
	return ctx->total_retrans <= 1 && wants(ctx);
}

INLINE void reserve(struct sock_ops *ctx)
{
	bool segment = ctx->args[0] != CURRENT_MSS;
	bool syn = segment && ctx->segment_flags & TCP_FLAG_SYN;
	if (syn ? !says(ctx) : !stamps_of(ctx))
		return;
	if (reserve_option(ctx, syn ? OFFER_BYTES : OPTION_BYTES, 0) && segment)
		COUNT(no_room);
}

INLINE void write(struct sock_ops *ctx)
{
	if (ctx->segment_flags & TCP_FLAG_SYN) {
		__u32 offer = OFFER;
		if (says(ctx) && !store_option(ctx, &offer, sizeof(offer), 0))
			COUNT(offers);
		return;
	}
	struct stamped *s = stamps_of(ctx);
	if (!s)
		return;
	struct option o = { .id = ON_THE_WIRE, .echo = BIG32(s->echo), .arrived = BIG32(s->arrived) };
	if (!store_option(ctx, &o, sizeof(o), 0)) {
		s->echo = 0;
		s->answer = 0;
	}
}

/* Counts an option that no device stamped, or that is malformed. */
INLINE void refuse(struct sock_ops *ctx, struct option *o)
{
	struct option found = { .id = BIG32(0xfd044458) };
	if (o) {
		COUNT(unstamped);
		return;
	}
	long bytes = load_option(ctx, &found, sizeof(found), 0);
	if (bytes != NOT_FOUND && bytes != OFFER_BYTES)
		COUNT(malformed);
}

INLINE bool has_payload(struct sock_ops *ctx)
{
	__u8 *header = (void *)ctx->segment;
	if ((void *)header + TCP_HEADER > (void *)ctx->segment_end)
		return false;
	return ctx->segment_bytes > (header[12] >> 4) * 4;
}

struct arrival {
	__u64 at_ns;
	__u32 sent;
	__u32 bytes; /* TCP header and payload */
	__u32 local_port;
	__u32 remote_port;
};

INLINE void read(struct sock_ops *ctx)
{
	struct stamped *s = stamps_of(ctx);
	struct option *o = shown_option(ctx);
	if (!s)
		return;
	if (!o || o->id != STAMPED_HERE) {
		refuse(ctx, o);
		return;
	}
	__u32 sent = BIG32(o->sent), forward = BIG32(o->echo), arrived = BIG32(o->arrived);
	if (!sent)
		return; /* the peer's device does not stamp */
	__u64 now = clock_ns(), at = now - (__u32)((__u32)now - arrived);
	s->echo = sent;
	s->arrived = arrived;
	s->answer = has_payload(ctx);
	if (forward) {
		s->forward = forward;
		s->back = arrived - sent;
		s->at_ns = at;
		s->samples++;
		COUNT(samples);
	}
	if (recording) {
		struct arrival a = { .at_ns = at,
				     .sent = sent,
				     .bytes = ctx->segment_bytes,
				     .local_port = ctx->local_port,
				     .remote_port = BIG32(ctx->remote_port) };
		ring_output(&arrivals, &a, sizeof(a), RB_NO_WAKEUP);
	}
}

SEC("sockops")
int option(struct sock_ops *ctx)
{
	switch (ctx->op) {
	case SOCK_OPS_TCP_CONNECT:
		/* The congestion control is checked when the SYN is built: programs that choose it have run
		 * by then.
		 */
		if (is_here(ctx))
			set_flags(ctx, ctx->flags | WRITE_OPTIONS);
		break;
	case SOCK_OPS_TCP_LISTEN:
		if (is_here(ctx))
			set_flags(ctx, ctx->flags | WRITE_OPTIONS);
		break;
	case SOCK_OPS_ACTIVE_ESTABLISHED:
		established(ctx, offered(ctx, 0));
		break;
	case SOCK_OPS_PASSIVE_ESTABLISHED:
		/* Checked on the ACK, not on the SYN: the kernel need not save the SYN, and SYN cookies do
		 * not matter.
		 */
		established(ctx, shown_option(ctx) != NULL);
		break;
	case SOCK_OPS_HDR_OPT_LEN:
		reserve(ctx);
		break;
	case SOCK_OPS_WRITE_HDR_OPT:
		write(ctx);
		break;
	case SOCK_OPS_PARSE_HDR_OPT:
		read(ctx);
		break;
	}
	return 1;
}
