/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A middlebox that modifies the timestamp option, on a device without a link-layer header. Loaded
 * only by tests.
 */
#include "option.h"

/* As in stamp.bpf.c, with the fields between omitted. */
struct packet {
	__u32 unused0[19];
	__u32 data;
	__u32 data_end;
};

static long (*replace_checksum)(void *packet, __u32 offset, __u64 from, __u64 to, __u64 flags) = (void *)11;

#define STRIP 1 /* overwrite the option with NOPs */
#define SHORTEN 2 /* set its length to 12 and append NOPs */
#define JUMP 3 /* shift the echo by half a second, in alternating directions */
#define IP4_HEADER 20
#define TCP_CHECKSUM 16

__u32 mode SEC(".data.mode");
__u32 mangled SEC(".data.mangled");

SEC("tc")
int mangle(struct packet *p)
{
	void *data = (void *)(__u64)p->data, *end = (void *)(__u64)p->data_end;
	if (!mode || data + IP4_HEADER > end || *(__u8 *)data != 0x45)
		return -1;
	struct option *o = option_of(data + IP4_HEADER, end);
	if (!o)
		return -1;
	struct option old = *o;
	__u32 count = __sync_fetch_and_add(&mangled, 1);
	if (mode == STRIP) {
		o->id = o->sent = o->echo = o->arrived = 0x01010101;
	} else if (mode == SHORTEN) {
		o->id = BIG32(0xfd0c4458);
		o->arrived = 0x01010101;
	} else if (mode == JUMP && o->echo) {
		o->echo = BIG32(BIG32(o->echo) + (count & 1 ? 500000000 : -500000000));
	}
	__u64 sum = (__u64)o->id + o->sent + o->echo + o->arrived + (__u32)~old.id + (__u32)~old.sent + (__u32)~old.echo +
		    (__u32)~old.arrived;
	sum = (sum & 0xffffffff) + (sum >> 32);
	replace_checksum(p, IP4_HEADER + TCP_CHECKSUM, 0, (sum & 0xffffffff) + (sum >> 32), 0);
	return -1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
