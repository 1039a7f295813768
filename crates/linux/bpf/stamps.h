/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Time stamps of a connection, beside its socket: stamp.bpf.c writes them, the congestion control reads them on the same
 * ACK, because the kernel shows the options of a segment to BPF before it processes its
 * acknowledgement.
 */
#ifndef CCPLANE_STAMPS_H
#define CCPLANE_STAMPS_H

#include "kernel.h"

struct stamped {
	__u32 echo; /* the peer's stamp to answer with, 0: none */
	__u32 arrived; /* when the packet that carried it arrived here */
	__u32 samples; /* counts; what follows is of the last */
	__u32 forward; /* ns: t2 - t1, with the offset of the clocks */
	__u32 back; /* ns: t4 - t3, with the opposite offset */
	__u32 answer; /* 1: the packet with that stamp had payload, and waits for its ACK */
	__u64 at_ns; /* t4, CLOCK_MONOTONIC */
};

struct {
	MAP_UINT(type, SK_STORAGE_MAP);
	MAP_UINT(map_flags, F_NO_PREALLOC);
	MAP_TYPE(key, (int)0);
	MAP_TYPE(value, (struct stamped){});
} stamps SEC(".maps");

#endif
