/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel types and BPF helpers in use. With preserve_access_index the loader relocates each
 * field access to the running kernel by name (CO-RE), so order and gaps do not matter here, and the
 * object does not depend on the kernel of the build host. Helper numbers are stable ABI.
 */
#ifndef CCPLANE_KERNEL_H
#define CCPLANE_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed int __s32;
typedef signed long long __s64;
typedef __u8 bool;
#define true 1
#define false 0
#define NULL ((void *)0)

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))
#define ARRAY_MAP 2
#define QUEUE_MAP 22
#define SK_STORAGE_MAP 24
#define RINGBUF_MAP 27
#define F_NO_PREALLOC 1
#define F_MMAPABLE 1024
#define MAP_UINT(name, value) int(*name)[value]
#define MAP_TYPE(name, value) typeof(value) *name
#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, v) (*(volatile typeof(x) *)&(x) = (v))

#define AF_INET 2
#define AF_INET6 10
#define TCP_CA_CWR 2
#define TCP_CA_RECOVERY 3
#define TCP_CA_LOSS 4
#define CA_EVENT_TX_START 0
#define CA_EVENT_ECN_NO_CE 4
#define CA_EVENT_ECN_IS_CE 5
#define ICSK_ACK_TIMER 2
#define ICSK_ACK_NOW 16
/* RFC 3168 ECN was negotiated, not AccECN, which counts marks by itself */
#define TCP_ECN_OK 1
#define TCP_ECN_DEMAND_CWR 4 /* set ECE on ACKs */
#define TCP_INFINITE_SSTHRESH 0x7fffffff
#define CLOCK_IS_MONOTONIC 1
#define SK_PACING_NONE 0
#define SK_PACING_NEEDED 1

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct in6_addr {
	union {
		__u8 u6_addr8[16];
	} in6_u;
};
struct netns_ipv4 {
	__u8 sysctl_tcp_slow_start_after_idle;
};
typedef struct {
	__u32 val;
} kuid_t;
struct ns_common {
	__u32 inum;
};
struct user_namespace {
	struct user_namespace *parent;
	int level; /* 0: the initial namespace */
	kuid_t owner; /* in the numbering of the initial user namespace */
	struct ns_common ns;
};
struct net {
	__u64 net_cookie;
	struct user_namespace *user_ns;
	struct netns_ipv4 ipv4;
};
typedef struct {
	struct net *net;
} possible_net_t;
struct sock_common {
	possible_net_t skc_net;
	__u32 skc_daddr;
	__u32 skc_rcv_saddr;
	__u16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};
struct sock {
	struct sock_common __sk_common;
	unsigned long sk_pacing_rate; /* bytes/s */
	unsigned long sk_max_pacing_rate; /* bytes/s */
	__u32 sk_pacing_status;
};
struct inet_sock {
	struct sock sk;
};
struct inet_connection_sock {
	struct inet_sock icsk_inet;
	__u8 icsk_ca_state : 5;
	__u32 icsk_rto; /* jiffies */
	struct {
		__u8 pending;
	} icsk_ack;
};
struct minmax_sample {
	__u32 t;
	__u32 v;
};
struct minmax {
	struct minmax_sample s[3];
};
struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u64 bytes_acked;
	__u64 tcp_mstamp; /* µs of CLOCK_MONOTONIC, updated before every callback */
	__u32 snd_una;
	__u32 rcv_nxt;
	__u32 write_seq;
	__u32 mss_cache;
	__u32 srtt_us; /* µs << 3 */
	__u32 packets_out;
	__u32 sacked_out;
	__u32 lost_out;
	__u32 retrans_out;
	__u32 total_retrans;
	__u32 max_packets_out;
	__u32 snd_cwnd;
	__u32 snd_cwnd_cnt;
	__u32 snd_cwnd_clamp;
	__u32 snd_cwnd_stamp;
	__u32 snd_ssthresh;
	__u32 prior_cwnd;
	__u32 prr_out;
	__u32 delivered;
	__u32 delivered_ce;
	__u32 lost;
	__u32 lsndtime; /* jiffies */
	__u32 rate_delivered; /* packets of the last rate sample, over rate_interval_us */
	__u32 rate_interval_us;
	__u8 is_cwnd_limited : 1;
	__u8 ecn_flags;
	struct minmax rtt_min;
};
struct rate_sample {
	__s32 delivered;
	long interval_us;
	__u32 snd_interval_us;
	__u32 rcv_interval_us;
	long rtt_us;
	bool is_app_limited;
};
#pragma clang attribute pop

/* Timer in a map value. The kernel identifies it by this type name. */
struct bpf_timer {
	__u64 opaque[2];
};

/* Members are matched with the kernel's by name. Function signatures are not checked. */
struct tcp_congestion_ops {
	__u32 (*ssthresh)(void);
	void (*set_state)(void);
	void (*cwnd_event)(void);
	void (*cong_control)(void);
	__u32 (*undo_cwnd)(void);
	char name[16];
	__u32 flags;
	void (*init)(void);
	void (*release)(void);
	void (*in_ack_event)(void);
};

/* Reads a bit-field at its position in the running kernel: offset, width and shifts are relocated
 * by the loader.
 */
#define BITFIELD(s, field)                                                                                             \
	({                                                                                                             \
		void *p = (void *)(s) + __builtin_preserve_field_info((s)->field, 0);                                  \
		__u64 v = 0;                                                                                           \
		switch (__builtin_preserve_field_info((s)->field, 1)) {                                                \
		case 1:                                                                                                \
			v = *(__u8 *)p;                                                                                \
			break;                                                                                         \
		case 2:                                                                                                \
			v = *(__u16 *)p;                                                                               \
			break;                                                                                         \
		case 4:                                                                                                \
			v = *(__u32 *)p;                                                                               \
			break;                                                                                         \
		case 8:                                                                                                \
			v = *(__u64 *)p;                                                                               \
			break;                                                                                         \
		}                                                                                                      \
		v <<= __builtin_preserve_field_info((s)->field, 4);                                                    \
		v >>= __builtin_preserve_field_info((s)->field, 5);                                                    \
		v;                                                                                                     \
	})
#define FIELD_EXISTS(field) __builtin_preserve_field_info(field, 2)

static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static __u64 (*clock_ns)(void) = (void *)5;
static __u32 (*cpu_id)(void) = (void *)8;
static long (*map_push)(void *map, const void *value, __u64 flags) = (void *)87;
static long (*map_pop)(void *map, void *value) = (void *)88;
static void *(*storage_get)(void *map, void *sk, void *value, __u64 flags) = (void *)107;
static long (*storage_delete)(void *map, void *sk) = (void *)108;
static long (*send_ack)(void *tp, __u32 rcv_nxt) = (void *)116;
static __u64 (*jiffies64)(void) = (void *)118;
static long (*ring_output)(void *ring, void *data, __u64 size, __u64 flags) = (void *)130;
static long (*timer_init)(struct bpf_timer *timer, void *map, __u64 clock) = (void *)169;
static long (*timer_set_callback)(struct bpf_timer *timer, void *callback) = (void *)170;
static long (*timer_start)(struct bpf_timer *timer, __u64 after_ns, __u64 flags) = (void *)171;
static long (*loop)(__u32 n, void *step, void *ctx, __u64 flags) = (void *)181;

#define STORAGE_CREATE 1
#define RB_NO_WAKEUP 1
#define RB_FORCE_WAKEUP 2

#endif
