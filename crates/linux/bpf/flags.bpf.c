/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Another program on the same sockets, which asks to be called for every option and writes none.
 * Only tests load it. */
#include "sockops.h"


#define PARSE_ALL_OPTIONS 16

/* The emulator's addresses are 10.77.0.0/30: nobody else's connections are touched. */
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
