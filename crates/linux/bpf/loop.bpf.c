// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A datapath without TCP, to measure the latency from datapath to agent and back: `post` sends the
 * record in `outbox` through the ring of a registration, and stores the time. Loaded only by
 * `ccplane bench control-loop` and `ccplane paper ccp-ipc`.
 */
#include "ring.h"

struct outbox {
	__u64 sent_ns; /* CLOCK_MONOTONIC */
	__u64 size; /* bytes of the record */
	__u64 words[32];
};

struct {
	MAP_UINT(type, ARRAY_MAP);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, (__u32)0);
	MAP_TYPE(value, (struct outbox){});
	MAP_UINT(map_flags, F_MMAPABLE);
} outbox SEC(".maps");

/* The loader substitutes the ring and the plane of the registration. */
struct {
	MAP_UINT(type, RINGBUF_MAP);
	MAP_UINT(max_entries, 1 << 20);
} ring SEC(".maps");

struct {
	MAP_UINT(type, ARRAY_MAP);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, (__u32)0);
	MAP_TYPE(value, (struct ccp_plane){});
	MAP_UINT(map_flags, F_MMAPABLE);
} plane SEC(".maps");

SEC("syscall")
int post(void *unused)
{
	__u32 zero = 0;
	struct outbox *o = map_lookup(&outbox, &zero);
	struct ccp_plane *p = map_lookup(&plane, &zero);
	if (!o || !p)
		return 1;
	__u64 size = o->size;
	if (size > sizeof(o->words))
		size = sizeof(o->words);
	o->sent_ns = clock_ns();
	return ring_send(&ring, &p->reader, o->words, size, false);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
