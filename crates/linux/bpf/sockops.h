/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Events, context and helpers of sock_ops programs. */
#ifndef CCPLANE_SOCKOPS_H
#define CCPLANE_SOCKOPS_H

#include "kernel.h"

#define NAME 16 /* the kernel pads names with zeros */
#define SOL_TCP 6
#define TCP_CONGESTION 13
#define SOCK_OPS_TCP_CONNECT 3
#define SOCK_OPS_ACTIVE_ESTABLISHED 4
#define SOCK_OPS_PASSIVE_ESTABLISHED 5
#define SOCK_OPS_STATE 10
#define SOCK_OPS_TCP_LISTEN 11
#define SOCK_OPS_PARSE_HDR_OPT 13
#define SOCK_OPS_HDR_OPT_LEN 14
#define SOCK_OPS_WRITE_HDR_OPT 15
#define STATE_CHANGES 4
#define PARSE_UNKNOWN_OPTIONS 32
#define WRITE_OPTIONS 64
#define OPTION_OF_THE_SYN 1

/* Context of a sock_ops program. The kernel rewrites accesses by their offsets, which are stable
 * ABI.
 */
struct sock_ops {
	__u32 op;
	__u32 args[4];
	__u32 family;
	__u32 remote_ip4; /* network order, like all addresses here */
	__u32 local_ip4;
	__u32 remote_ip6[4];
	__u32 local_ip6[4];
	__u32 remote_port; /* network order */
	__u32 local_port; /* host order */
	__u32 is_fullsock;
	__u32 snd_cwnd;
	__u32 srtt_us;
	__u32 flags;
	__u32 state;
	__u32 rtt_min;
	__u32 snd_ssthresh;
	__u32 rcv_nxt;
	__u32 snd_nxt;
	__u32 snd_una;
	__u32 mss_cache;
	__u32 ecn_flags;
	__u32 rate_delivered;
	__u32 rate_interval_us;
	__u32 packets_out;
	__u32 retrans_out;
	__u32 total_retrans;
	__u32 segs_in;
	__u32 data_segs_in;
	__u32 segs_out;
	__u32 data_segs_out;
	__u32 lost_out;
	__u32 sacked_out;
	__u32 sk_txhash;
	__u64 bytes_received;
	__u64 bytes_acked;
	__u64 sk; /* this and the next two are pointers */
	__u64 segment; /* the TCP header */
	__u64 segment_end; /* end of the TCP header */
	__u32 segment_bytes; /* including payload */
	__u32 segment_flags; /* TCP_FLAG_* */
};

static long (*set_flags)(void *socket, int flags) = (void *)59;
static long (*set_option)(void *socket, int level, int option, void *value, int length) = (void *)49;
static long (*get_option)(void *socket, int level, int option, void *value, int length) = (void *)57;

union name {
	char text[NAME];
	__u64 words[2];
};

#endif
