/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The TCP option that carries time stamps: an experiment's (RFC 4727, kind 253) under our identifier (RFC 6994), "DX".
 *
 *   SYN, SYN-ACK   [253][4][DX]                              the offer and its acceptance
 *   afterwards     [253][16][DX][sent][echo][arrived]        32 bits each, ns of the sender's clock modulo 2^32
 *
 * `sent` is when this packet left, `echo` the `sent` of the packet that it answers and `arrived`
 * when that arrived; 0 means that there is none. Each stamp is echoed once: an echo that came twice
 * would be two samples of one packet. 16 bytes leave room for the kernel's time stamps (12) and one
 * block of SACK (12); the kernel gives its own options their room first.
 *
 * Where a packet arrives its option is rewritten in place to
 *
 *                  [253][16][Dx][sent][arrived - echo][when this packet arrived here]
 *
 * which is what the socket reads. The other identifier tells that it was: a packet that came by a
 * device where nobody stamps gives no sample, instead of a wrong one, and none is rewritten twice.
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
#define KERNEL_SACK 0x01010500 /* and the length of the option, 10 to 34 */

/* The option of a TCP header, whichever its identifier: it is the last of them, and what Linux puts before it is known, so
 * no option list is walked and no other option is mistaken for it.
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

/* 0 says that there is none. */
INLINE __u32 stamp(__u32 ns)
{
	return ns ? ns : 1;
}

#endif
