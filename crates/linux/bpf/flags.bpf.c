/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A second program on the same sockets, which requests the callbacks for all options and writes
 * none. Loaded only by tests.
 */
#include "sockops.h"


#define PARSE_ALL_OPTIONS 16

/* Only the emulator's subnet, 10.77.0.0/30: other connections are left alone. */
#define EMULATED __builtin_bswap32(0x0a4d0000)
#define PREFIX __builtin_bswap32(0xfffffffc)

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("sockops")
int flags(struct sock_ops *ctx)
{
	if ((ctx->local_ip4 & PREFIX) != EMULATED)
		return 1;
	switch (ctx->op) {
	case SOCK_OPS_TCP_CONNECT:
	case SOCK_OPS_TCP_LISTEN:
	case SOCK_OPS_ACTIVE_ESTABLISHED:
	case SOCK_OPS_PASSIVE_ESTABLISHED:
		set_flags(ctx, ctx->flags | WRITE_OPTIONS | PARSE_ALL_OPTIONS);
		break;
	}
	return 1;
}
