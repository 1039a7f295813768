/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The TCP option that carries timestamps: the experimental kind 253 (RFC 4727) with our experiment
 * identifier (RFC 6994), "DX".
 *
 *   SYN, SYN-ACK   [253][4][DX]                              offer and acceptance
 *   afterwards     [253][16][DX][sent][echo][arrived]        32 bits each, ns modulo 2^32
 *
 * `sent` is the departure time of this packet, `echo` the `sent` of the packet that it answers, and
 * `arrived` the arrival time of that packet; 0 means none. Each timestamp is echoed once: a second
 * echo would be a second sample of the same packet. 16 bytes leave room for the kernel's timestamps
 * (12) and one SACK block (12); the kernel reserves space for its own options first.
 *
 * On arrival the option is rewritten in place to
 *
 *                  [253][16][Dx][sent][arrived - echo][arrival time of this packet]
 *
 * which the socket reads. The different identifier marks a rewritten option: a packet that arrived
 * through a device without stamping yields no sample rather than a wrong one, and no option is
 * rewritten twice.
 */
#ifndef CCPLANE_OPTION_H
#define CCPLANE_OPTION_H

#include "kernel.h"

#define OPTION_KIND 253
#define OPTION_BYTES 16
#define OFFER_BYTES 4

#define BIG16(x) __builtin_bswap16(x)
#define BIG32(x) __builtin_bswap32(x)
#define OFFER BIG32(0xfd044458)
#define ON_THE_WIRE BIG32(0xfd104458)
#define STAMPED_HERE BIG32(0xfd104478)

struct option {
	__u32 id;
	__u32 sent;
	__u32 echo;
	__u32 arrived;
};

#define TCP_HEADER 20
#define KERNEL_TIMESTAMPS BIG32(0x0101080a)
#define KERNEL_SACK 0x01010500 /* plus the length of the option, 10 to 34 */

/* Returns the option of a TCP header, with either identifier. It is always the last option, after a
 * known layout of Linux's own, so no option list is walked and no other option is mistaken for it.
 */
INLINE struct option *option_of(void *tcp, void *end)
{
	__u8 *header = tcp;
	if (tcp + TCP_HEADER + OPTION_BYTES > end)
		return NULL;
	__u32 length = (header[12] >> 4) * 4;
	__u32 at = TCP_HEADER;
	__u32 word = *(__u32 *)(tcp + TCP_HEADER);
	if (word == KERNEL_TIMESTAMPS) {
		at += 12;
		if (tcp + TCP_HEADER + 12 + OPTION_BYTES > end)
			return NULL;
		word = *(__u32 *)(tcp + TCP_HEADER + 12);
	}
	__u32 sack = BIG32(word) - KERNEL_SACK;
	if (sack <= 34)
		at += 2 + sack;
	if (at + OPTION_BYTES != length || at > 60 - OPTION_BYTES)
		return NULL;
	struct option *option = tcp + at;
	if ((void *)(option + 1) > end)
		return NULL;
	return option->id == ON_THE_WIRE || option->id == STAMPED_HERE ? option : NULL;
}

/* Avoids 0, which means that there is no timestamp. */
INLINE __u32 stamp(__u32 ns)
{
	return ns ? ns : 1;
}

#endif
