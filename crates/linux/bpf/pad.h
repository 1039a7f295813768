/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The pads that the loader fills with a program's generated code (src/pad.rs). */
#ifndef CCPLANE_PAD_H
#define CCPLANE_PAD_H

#include "layout.h"

#define CCP_STRING_OF(x) #x
#define CCP_STRING(x) CCP_STRING_OF(x)

/* Empty slots, and what generated code may change. The compiler must neither look into the function nor keep anything
 * in registers across it, so the body is opaque; no `naked` function, because clang 14 gives those type information
 * that the kernel refuses. */
#define CCP_PAD(n) \
	__attribute__((noinline)) int ccp_fold_##n(struct fold_ctx *ctx) \
	{ \
		asm volatile(".rept " CCP_STRING(CCP_PAD_INSNS) "; r0 = 0; .endr" ::: "r0", "r1", "r2", "r3", "r4", "r5", "memory"); \
		return 0; \
	}

#endif
