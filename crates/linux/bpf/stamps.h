/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Timestamps of a connection, in socket storage. stamp.bpf.c writes them and the congestion control
 * reads them on the same ACK: the kernel passes a segment's options to BPF before it processes the
 * acknowledgement.
 */
#ifndef CCPLANE_STAMPS_H
#define CCPLANE_STAMPS_H

#include "kernel.h"

struct stamped {
	__u32 echo; /* the peer's timestamp to echo; 0: none */
	__u32 arrived; /* arrival time of the packet that carried it */
	__u32 samples; /* number of samples; the following fields are the last one */
	__u32 forward; /* ns: t2 - t1, including the clock offset */
	__u32 back; /* ns: t4 - t3, including the opposite offset */
	__u32 answer; /* 1: the packet with that timestamp had payload and awaits its ACK */
	__u64 at_ns; /* t4, CLOCK_MONOTONIC */
};

struct {
	MAP_UINT(type, SK_STORAGE_MAP);
	MAP_UINT(map_flags, F_NO_PREALLOC);
	MAP_TYPE(key, (int)0);
	MAP_TYPE(value, (struct stamped){});
} stamps SEC(".maps");

#endif
