/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which connections are steered: `choose` gives new ones of a cgroup their congestion control, `move` takes live ones
 * from one congestion control to another.
 */
#include "sockops.h"

static __u32 (*random32)(void) = (void *)7;
static void *(*to_tcp_sock)(void *socket) = (void *)137;
static long (*output)(void *seq, const void *data, __u32 length) = (void *)127;

/* What is wanted; src/select.rs mirrors it. IPv4 addresses are written as IPv6 has them, ::ffff:a.b.c.d, since a socket
 * of IPv6 may speak IPv4 too.
 */
const volatile struct {
	union name from; /* move only; empty: every ccp_* */
	union name to;
	__u32 prefix[4];
	__u32 mask[4]; /* all zero: any address */
	__u32 percent; /* of the connections to the prefix */
} wanted;

#define V4_MAPPED __builtin_bswap32(0xffff)

INLINE bool is_ours(union name *name)
{
	return name->text[0] == 'c' && name->text[1] == 'c' && name->text[2] == 'p' && name->text[3] == '_';
}

SEC("sockops")
int choose(struct sock_ops *socket)
{
	__u32 op = socket->op;
	if (op != SOCK_OPS_TCP_CONNECT && op != SOCK_OPS_PASSIVE_ESTABLISHED)
		return 1;
	/* Both are read first: behind a branch the compiler would make one access at a computed offset of the two. */
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
	if (random32() % 100 >= wanted.percent)
		return 1;
	/* A socket that has chosen one of ours by itself, or was given one by a narrower cgroup, keeps it. */
	union name name = {};
	if (get_option(socket, SOL_TCP, TCP_CONGESTION, &name, NAME) == 0 && is_ours(&name))
		return 1;
	name.words[0] = wanted.to.words[0];
	name.words[1] = wanted.to.words[1];
	/* If the name is not registered any more, the socket keeps what it has. */
	set_option(socket, SOL_TCP, TCP_CONGESTION, &name, NAME);
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

/* Puts out one byte for each socket that it moved. */
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
