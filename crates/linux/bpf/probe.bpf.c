/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The pads and the interpreter of ccplane.bpf.c without TCP: `probe` runs a program over register
 * files written by user space. Loaded only by tests.
 */
#include "fold.h"

#define PROBES 64

struct probe {
	__u32 program; /* as in fold() */
	__u32 unused;
	struct fold_ctx ctx;
};

struct {
	MAP_UINT(type, ARRAY_MAP);
	MAP_UINT(max_entries, PROBES);
	MAP_TYPE(key, (__u32)0);
	MAP_TYPE(value, (struct probe){});
} probes SEC(".maps");

SEC("syscall")
int probe(void *unused)
{
	for (__u32 i = 0; i < PROBES; i++) {
		/* a copy: the verifier does not bound a loop counter whose address is taken */
		__u32 key = i;
		struct probe *p = map_lookup(&probes, &key);
		if (p)
			fold(&p->ctx, p->program);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
