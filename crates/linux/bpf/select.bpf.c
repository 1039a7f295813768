/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Selects the connections to control. `choose` sets the congestion control of new connections of a
 * cgroup; `move` switches live connections to another congestion control.
 *
 * If only a percentage is selected, `choose` watches two arms: the selected connections, and an
 * equal share of the others, which keep their congestion control. Totals are updated when
 * connections end, and by `look` whenever they are read.
 */
#include "sockops.h"
#include "totals.h"

static __u32 (*random32)(void) = (void *)7;
static void *(*to_tcp_sock)(void *socket) = (void *)137;
static long (*output)(void *seq, const void *data, __u32 length) = (void *)127;

/* The rule; src/select.rs mirrors it. IPv4 addresses are written as IPv4-mapped IPv6,
 * ::ffff:a.b.c.d, since an IPv6 socket may use IPv4.
 */
const volatile struct {
	/* `move` only; empty: every ccp_* */
	union name from;
	union name to;
	__u32 prefix[4];
	__u32 mask[4]; /* all zero: any address */
	__u32 percent; /* of the connections to the prefix */
	__u32 first_port; /* first server port */
	__u32 last_port;
	/* arm of the selected connections; the next one has the control group; NO_ARM: none */
	__u32 arm;
} wanted;

#define NO_ARM (~0U)
#define ARMS 64
#define TCP_CLOSE 7

/* A watched connection, with the counts that are already in the totals. */
struct watched {
	__u32 arm;
	__u32 ended;
	__u64 acked;
	__u64 retransmits;
	__u64 lost;
};

struct {
	MAP_UINT(type, SK_STORAGE_MAP);
	MAP_UINT(map_flags, F_NO_PREALLOC);
	MAP_TYPE(key, (int)0);
	MAP_TYPE(value, (struct watched){});
} watched SEC(".maps");

struct {
	MAP_UINT(type, ARRAY_MAP);
	MAP_UINT(max_entries, ARMS);
	MAP_TYPE(key, (__u32)0);
	MAP_TYPE(value, (struct ccp_totals){});
} arms SEC(".maps");

/* Adds the growth of a counter since the last call. `look` and the end of the connection may run
 * concurrently.
 */
#define ADD_GROWTH(t, w, what, now)                                                                                    \
	do {                                                                                                           \
		__u64 new = now, old = __sync_lock_test_and_set(&(w)->what, new);                                      \
		if (new > old)                                                                                         \
			__sync_fetch_and_add(&(t)->what, new - old);                                                   \
	} while (0)

INLINE void add_up(struct tcp_sock *tp, struct watched *w)
{
	__u32 arm = w->arm;
	struct ccp_totals *t = map_lookup(&arms, &arm);
	if (!t)
		return;
	ADD_GROWTH(t, w, acked, tp->bytes_acked);
	ADD_GROWTH(t, w, retransmits, tp->total_retrans);
	ADD_GROWTH(t, w, lost, tp->lost);
	__u64 packets = tp->rate_delivered, interval_us = tp->rate_interval_us;
	sample(t, tp->srtt_us >> 3, interval_us ? packets * tp->mss_cache * 1000000 / interval_us : 0);
}

/* Starts to watch a connection. */
INLINE void watch(struct sock_ops *socket, __u32 arm)
{
	void *sk = (void *)socket->sk;
	if (!sk)
		return;
	struct watched *w = storage_get(&watched, sk, NULL, STORAGE_CREATE);
	if (!w)
		return;
	w->arm = arm;
	set_flags(socket, READ_ONCE(socket->flags) | STATE_CHANGES);
}

/* Adds the counters of an ended connection. Every rule of a cgroup is called for it, and only the
 * first adds.
 */
INLINE void ended(struct sock_ops *socket)
{
	void *sk = (void *)socket->sk;
	struct watched *w = sk ? storage_get(&watched, sk, NULL, 0) : NULL;
	if (!w || __sync_lock_test_and_set(&w->ended, 1))
		return;
	struct tcp_sock *tp = to_tcp_sock(sk);
	if (tp)
		add_up(tp, w);
}

#define V4_MAPPED __builtin_bswap32(0xffff)

INLINE bool is_ours(union name *name)
{
	return name->text[0] == 'c' && name->text[1] == 'c' && name->text[2] == 'p' && name->text[3] == '_';
}

SEC("sockops")
int choose(struct sock_ops *socket)
{
	__u32 op = socket->op;
	if (op == SOCK_OPS_STATE) {
		if (socket->args[1] == TCP_CLOSE)
			ended(socket);
		return 1;
	}
	if (op != SOCK_OPS_TCP_CONNECT && op != SOCK_OPS_PASSIVE_ESTABLISHED)
		return 1;
	/* Both are read unconditionally: after a branch the compiler would merge them into one access
	 * at a computed offset, which the verifier rejects for this context.
	 */
	__u32 v4 = READ_ONCE(socket->remote_ip4);
	__u32 remote[4] = { READ_ONCE(socket->remote_ip6[0]), READ_ONCE(socket->remote_ip6[1]),
			    READ_ONCE(socket->remote_ip6[2]), READ_ONCE(socket->remote_ip6[3]) };
	if (socket->family == AF_INET) {
		remote[0] = 0;
		remote[1] = 0;
		remote[2] = V4_MAPPED;
		remote[3] = v4;
	}
	for (int i = 0; i < 4; i++)
		if ((remote[i] & wanted.mask[i]) != wanted.prefix[i])
			return 1;
	/* The server's port: the remote one of an outgoing connection, the local one of an accepted
	 * connection.
	 */
	__u32 peer_port = __builtin_bswap32(READ_ONCE(socket->remote_port)), own_port = READ_ONCE(socket->local_port);
	__u32 port = op == SOCK_OPS_TCP_CONNECT ? peer_port : own_port;
	if (port < wanted.first_port || port > wanted.last_port)
		return 1;
	/* A connection that an earlier rule selected, or watches as a control, is left alone. */
	void *sk = (void *)socket->sk;
	if (sk && storage_get(&watched, sk, NULL, 0))
		return 1;
	/* So is a socket that has one of our algorithms already, by its own choice or from a narrower
	 * cgroup.
	 */
	union name name = {};
	if (get_option(socket, SOL_TCP, TCP_CONGESTION, &name, NAME) == 0 && is_ours(&name))
		return 1;
	__u32 drawn = random32() % 100;
	if (drawn >= wanted.percent) {
		if (wanted.arm != NO_ARM && drawn < 2 * wanted.percent)
			watch(socket, wanted.arm + 1);
		return 1;
	}
	name.words[0] = wanted.to.words[0];
	name.words[1] = wanted.to.words[1];
	/* If the name is no longer registered, the socket keeps its congestion control. */
	if (set_option(socket, SOL_TCP, TCP_CONGESTION, &name, NAME) == 0 && wanted.arm != NO_ARM)
		watch(socket, wanted.arm);
	return 1;
}

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct seq_file;
struct bpf_iter_meta {
	struct seq_file *seq;
};
struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};
#pragma clang attribute pop

/* Adds the counters of all watched connections since the last call. An iterator over the socket
 * storage would visit only these, but it does not load everywhere: Linux 6.18 on a virtual machine
 * returned EPERM.
 */
SEC("iter/tcp")
int look(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	if (!common)
		return 0;
	struct tcp_sock *tp = to_tcp_sock(common);
	struct watched *w = tp ? storage_get(&watched, tp, NULL, 0) : NULL;
	if (w && !w->ended)
		add_up(tp, w);
	return 0;
}

/* Writes one byte for each socket it switched. */
SEC("iter/tcp")
int move(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	if (!common)
		return 0;
	struct tcp_sock *socket = to_tcp_sock(common);
	union name name = {};
	if (!socket || get_option(socket, SOL_TCP, TCP_CONGESTION, &name, NAME))
		return 0;
	bool chosen = wanted.from.words[0] ?
			      name.words[0] == wanted.from.words[0] && name.words[1] == wanted.from.words[1] :
			      is_ours(&name);
	if (!chosen)
		return 0;
	name.words[0] = wanted.to.words[0];
	name.words[1] = wanted.to.words[1];
	if (set_option(socket, SOL_TCP, TCP_CONGESTION, &name, NAME) == 0) {
		char one = 1;
		output(ctx->meta->seq, &one, 1);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
