/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Memory shared by stamp.bpf.c and its loader; src/stamp/plane.rs mirrors it. It is pinned, so
 * CCP_LAYOUT (layout.h) applies to it as well.
 */
#ifndef CCPLANE_STAMP_PLANE_H
#define CCPLANE_STAMP_PLANE_H

#include "layout.h"
#include "sockops.h"

#define CCP_STAMP_NAMES 8
#define CCP_STAMP_NAMESPACES 4
#define CCP_STAMP_DEVICES 8

struct ccp_stamp_counters {
	__u64 departed; /* packets stamped on departure */
	__u64 bursts; /* super-packets, which are not stamped */
	__u64 arrived; /* packets stamped on arrival */
	__u64 offers; /* SYN and SYN-ACK with the option */
	__u64 agreed; /* connections with timestamps, counted at this end */
	__u64 not_agreed; /* connections that offered timestamps to a peer that does not support them */
	__u64 samples; /* complete exchanges of timestamps */
	__u64 unstamped; /* options that arrived through a device without stamping */
	__u64 malformed; /* invalid options */
	/* segments whose other options left too little room; those with no room at all are not seen */
	__u64 no_room;
	__u64 unused[6];
};

struct ccp_stamp_plane {
	union name names[CCP_STAMP_NAMES]; /* congestion controls that want timestamps */
	/* cookies of the namespaces whose sockets take part; 0: all */
	__u64 netns[CCP_STAMP_NAMESPACES];
	__u64 unused[4];
	/* State that `detach` needs after the attaching process has died; written before the device is
	 * changed.
	 */
	struct {
		__u64 netns; /* cookie of the device's namespace */
		__u32 index; /* 0: none */
		__u32 gso_max_segs; /* value before */
		__u32 filters; /* filters rather than links: 1 at egress, 2 at ingress */
		__u32 made_clsact; /* 1: the clsact qdisc of the filters was created by us */
	} devices[CCP_STAMP_DEVICES];
	struct ccp_stamp_counters counters[CCP_CPUS];
};

#endif
