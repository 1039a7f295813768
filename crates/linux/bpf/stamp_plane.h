/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What stamp.bpf.c and its loader share; src/stamp/plane.rs mirrors it. Pinned, so that what layout.h says of CCP_LAYOUT
 * holds for it too.
 */
#ifndef CCPLANE_STAMP_PLANE_H
#define CCPLANE_STAMP_PLANE_H

#include "layout.h"
#include "sockops.h"

#define CCP_STAMP_NAMES 8
#define CCP_STAMP_NAMESPACES 4
#define CCP_STAMP_DEVICES 8

struct ccp_stamp_counters {
	__u64 departed; /* packets stamped as they left */
	__u64 bursts; /* super-packets that could not be */
	__u64 arrived; /* packets stamped as they came */
	__u64 offers; /* SYN and SYN-ACK with the option */
	__u64 agreed; /* connections with stamps, by their end here */
	__u64 not_agreed; /* connections that wanted them and whose peer does not know them */
	__u64 samples; /* exchanges of stamps that arrived whole */
	__u64 unstamped; /* options that came by a device where nobody stamps */
	__u64 malformed; /* options that are not as they should be */
	__u64 no_room; /* segments whose other options left too little room; where they left none we are not called */
	__u64 unused[6];
};

struct ccp_stamp_plane {
	union name names[CCP_STAMP_NAMES]; /* of congestion controls that want stamps */
	__u64 netns[CCP_STAMP_NAMESPACES]; /* cookies of the namespaces whose sockets take part; 0: of every one */
	__u64 unused[4];
	/* What `detach` needs to know when the process that attached is no more; written before the device
	 * is touched. */
	struct {
		__u64 netns; /* cookie of the namespace where it is */
		__u32 index; /* 0: none */
		__u32 gso_max_segs; /* before */
		__u32 filters; /* filters, not links: 1 at egress, 2 at ingress */
		__u32 made_clsact; /* 1: and the qdisc that they are at is ours */
	} devices[CCP_STAMP_DEVICES];
	struct ccp_stamp_counters counters[CCP_CPUS];
};

#endif
