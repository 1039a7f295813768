/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Records to the agent through the ring buffer. An urgent record always wakes the reader, and so
 * does the first record after a reader went to sleep without a timeout. Other records do not: a
 * reader that expects reports polls at the latency bound of its algorithm. A wake-up per report
 * costs a quarter of the throughput of loopback.
 */
#ifndef CCPLANE_RING_H
#define CCPLANE_RING_H

#include "kernel.h"
#include "layout.h"

/* `reader` is that of the plane. */
INLINE long ring_send(void *ring, __u32 *reader, void *record, __u32 size, bool urgent)
{
	__u32 state = READ_ONCE(*reader);
	bool wake = state == READER_IDLE || (urgent && state == READER_POLLING);
	long failed = ring_output(ring, record, size, wake ? RB_FORCE_WAKEUP : RB_NO_WAKEUP);
	if (wake && !failed)
		WRITE_ONCE(*reader, READER_RUNNING);
	return failed;
}

#endif
