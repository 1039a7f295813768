/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* one_way.h without TCP: `exchange` processes timestamp exchanges written by user space, in order,
 * and stores the register values that a program would see. Loaded only by tests.
 */
#include "one_way.h"

#define EXCHANGES 64

struct exchange {
	__u64 at_ns;
	__u64 now_ns; /* time of the call that reads it */
	__u64 rtt_ns;
	__u32 forward;
	__u32 back;
	__u64 taken;
	__u64 dropped;
	__u64 regs[6]; /* 22 to 27 */
};

struct {
	MAP_UINT(type, ARRAY_MAP);
	MAP_UINT(max_entries, EXCHANGES);
	MAP_TYPE(key, (__u32)0);
	MAP_TYPE(value, (struct exchange){});
} exchanges SEC(".maps");

/* One connection. */
struct {
	MAP_UINT(type, ARRAY_MAP);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, (__u32)0);
	MAP_TYPE(value, (struct one_way){});
} connection SEC(".maps");

SEC("syscall")
int exchange(void *unused)
{
	__u32 zero = 0;
	struct one_way *o = map_lookup(&connection, &zero);
	if (!o)
		return 1;
	for (__u32 i = 0; i < EXCHANGES; i++) {
		__u32 key = i;
		__u64 regs[REG_QUEUE_DELAY_VALID + 1];
		struct exchange *e = map_lookup(&exchanges, &key);
		if (!e)
			return 1;
		e->taken = one_way_sample(o, e->forward, e->back, e->at_ns);
		e->dropped = o->dropped;
		one_way_write(o, regs, e->now_ns, e->rtt_ns, e->taken);
#pragma unroll
		for (int n = 0; n < 6; n++)
			e->regs[n] = regs[REG_OWD + n];
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
