/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Runs a program over a flow's registers: in a pad that the loader filled with generated code, or
 * in the interpreter if the program was installed later or does not fit. Both are bit-exact with
 * crates/datapath.
 */
#ifndef CCPLANE_FOLD_H
#define CCPLANE_FOLD_H

#include "kernel.h"
#include "layout.h"

struct {
	MAP_UINT(type, ARRAY_MAP);
	MAP_UINT(max_entries, CCP_PROGRAMS);
	MAP_TYPE(key, (__u32)0);
	MAP_TYPE(value, (struct ccp_program){});
	MAP_UINT(map_flags, F_MMAPABLE);
} programs SEC(".maps");

/* A pad: space that the loader overwrites, up to the last instruction, with the code of one
 * program. Each placeholder instruction is reachable and has no effect, so an unfilled pad passes
 * the verifier.
 */
#define STRING(x) #x
#define NUMBER(x) STRING(x)
#define PAD(n)                                                                                                         \
	NOINLINE int ccp_fold_##n(struct fold_ctx *ctx)                                                                \
	{                                                                                                              \
		asm volatile(".rept " NUMBER(CCP_PAD_INSNS) "\n r0 = 0\n .endr" ::"r"(ctx)                             \
			     : "r0", "r1", "r2", "r3", "r4", "r5", "memory");                                          \
		return 0;                                                                                              \
	}
PAD(0)
PAD(1)
PAD(2)
PAD(3)

/* The operations of `Op` in crates/datapath, in the same order, and the end of a clause. */
enum {
	OP_MOVE,
	OP_ADD,
	OP_SUB,
	OP_DIFF,
	OP_MUL,
	OP_DIV,
	OP_MUL_RATIO,
	OP_MAX,
	OP_MIN,
	OP_MAX_WRAP,
	OP_EQ,
	OP_NE,
	OP_GT,
	OP_GE,
	OP_LT,
	OP_LE,
	OP_AFTER,
	OP_AND,
	OP_OR,
	OP_NOT,
	OP_IF,
	OP_NOT_IF,
	OP_EWMA,
	OP_EWMA_VAR,
	OP_SKIP_IF_ZERO,
	OP_END = 255, /* stop unless (fallthrough) was called; clears the flag */
};

#define SATURATED (~0ULL)

/* (hi·2^32 + lo) / den, saturated at 2^64 - 1, where `lo` may exceed 32 bits: schoolbook division
 * in 32-bit limbs, since BPF has no 128-bit arithmetic. hi + (lo >> 32) does not overflow for the
 * callers below.
 */
INLINE __u64 divide_96(__u64 hi, __u64 lo, __u64 den)
{
	hi += lo >> 32;
	lo &= 0xffffffff;
	__u64 high = hi / den;
	if (high >> 32)
		return SATURATED;
	return (high << 32) + (((hi % den) << 32 | lo) / den);
}

/* a·num/den in 96 bits; num, den < 2^32. */
INLINE __u64 mul_ratio(__u64 a, __u64 num, __u64 den)
{
	return divide_96((a >> 32) * num, (a & 0xffffffff) * num, den);
}

/* (num·old + (den-num)·sample)/den in 96 bits. The weights sum to den < 2^32, so each sum of limbs
 * fits in 64 bits.
 */
INLINE __u64 ewma(__u64 old, __u64 sample, __u64 num, __u64 den)
{
	__u64 rest = den - num;
	return divide_96((old >> 32) * num + (sample >> 32) * rest,
			 (old & 0xffffffff) * num + (sample & 0xffffffff) * rest, den);
}

struct run {
	struct fold_ctx *ctx;
	struct ccp_program *program;
};

static long step(__u32 turn, void *data)
{
	struct run *run = data;
	struct fold_ctx *ctx = run->ctx;
	if (!ctx)
		return 1;
	__u64 pc = ctx->pc;
	if (!run->program || pc >= CCP_CODE || pc >= run->program->code_len)
		return 1;
	struct ccp_insn *i = &run->program->code[pc];
	__u64 *dst = &ctx->regs[i->dst & (CCP_REGS - 1)];
	__u64 a = ctx->regs[i->a & (CCP_REGS - 1)];
	__u64 b = i->has_imm ? i->imm : ctx->regs[i->b & (CCP_REGS - 1)];
	__u64 num = i->imm >> 32, den = i->imm & 0xffffffff;
	__u64 old = *dst, result = old;
	__u64 fault = 0;
	pc++;
	switch (i->op) {
	case OP_MOVE:
		result = b;
		break;
	case OP_ADD:
		result = a + b;
		if (result < a) {
			result = SATURATED;
			fault = 1;
		}
		break;
	case OP_SUB:
		fault = a < b;
		result = fault ? 0 : a - b;
		break;
	case OP_DIFF:
		result = a < b ? 0 : a - b;
		break;
	case OP_MUL:
		if (a) {
			__u64 most = SATURATED / a;
			/* keeps the compiler from emitting a 128-bit multiplication, which BPF lacks */
			asm volatile("" : "+r"(most));
			fault = b > most;
		}
		result = fault ? SATURATED : a * b;
		break;
	case OP_DIV:
		fault = !b;
		result = b ? a / b : 0;
		break;
	case OP_MUL_RATIO:
		result = mul_ratio(a, num, den);
		break;
	case OP_MAX:
		result = a > b ? a : b;
		break;
	case OP_MIN:
		result = a < b ? a : b;
		break;
	case OP_MAX_WRAP:
		if (!a || !b) { /* 0 means unset */
			result = a | b;
			break;
		}
		a = (__u32)a;
		b = (__u32)b;
		/* the later one in modulo-2^32 order; the smaller number if they are exactly 2^31 apart */
		num = (__u32)(b - a);
		if (num == 0x80000000)
			result = a < b ? a : b;
		else
			result = num < 0x80000000 ? b : a;
		break;
	case OP_EQ:
		result = a == b;
		break;
	case OP_NE:
		result = a != b;
		break;
	case OP_GT:
		result = a > b;
		break;
	case OP_GE:
		result = a >= b;
		break;
	case OP_LT:
		result = a < b;
		break;
	case OP_LE:
		result = a <= b;
		break;
	case OP_AFTER:
		result = ctx->regs[REG_MICROS] > b;
		if (result && b < ctx->waited)
			ctx->waited = b;
		if (!result && b < ctx->waits)
			ctx->waits = b;
		break;
	case OP_AND:
		result = a && b;
		break;
	case OP_OR:
		result = a || b;
		break;
	case OP_NOT:
		result = !b;
		break;
	case OP_IF:
		if (a)
			result = b;
		break;
	case OP_NOT_IF:
		if (!a)
			result = b;
		break;
	case OP_EWMA:
		b = ctx->regs[i->b & (CCP_REGS - 1)];
		result = old ? ewma(old, b, num, den) : b;
		break;
	case OP_EWMA_VAR:
		if (a > 10) {
			a = 10;
			fault = 1;
		}
		result = old ? ewma(old, b, a, 10) : b;
		break;
	case OP_SKIP_IF_ZERO:
		if (!a)
			/* a distance is below CCP_CODE; a pc past the end of the code ends the run */
			pc += (__u32)i->imm & 0x3ff;
		break;
	case OP_END:
		if (!ctx->regs[REG_CONTINUE])
			return 1;
		ctx->regs[REG_CONTINUE] = 0;
		break;
	}
	*dst = result;
	ctx->faults += fault;
	ctx->pc = pc;
	return 0;
}

NOINLINE int ccp_interpret(struct fold_ctx *ctx, __u32 index)
{
	if (!ctx)
		return 0;
	struct run run = { .ctx = ctx, .program = map_lookup(&programs, &index) };
	ctx->pc = 0;
	if (run.program)
		loop(CCP_CODE, step, &run, 0);
	return 0;
}

/* Bit n: pad n contains code in this object. Set by the loader. A program installed later is in the
 * pad of the next object, which new flows use; flows of this object interpret it.
 */
const volatile __u32 filled_pads SEC(".rodata.pads") = (1 << CCP_PADS) - 1;

INLINE void fold(struct fold_ctx *ctx, __u32 program)
{
	ctx->waits = SATURATED;
	ctx->waited = SATURATED;
	if (program >= CCP_PADS || !(filled_pads >> program & 1))
		ccp_interpret(ctx, program);
	else if (program == 0)
		ccp_fold_0(ctx);
	else if (program == 1)
		ccp_fold_1(ctx);
	else if (program == 2)
		ccp_fold_2(ctx);
	else
		ccp_fold_3(ctx);
}

#endif
