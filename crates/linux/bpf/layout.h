/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Memory shared by the BPF object, its loader and the agent: the register file of a fold, the
 * mapped flow table, the mapped plane (one per algorithm), the mapped programs, and the records of
 * the ring buffer. src/map/layout.rs mirrors it; a test compares the sizes with the object's own.
 * Any change here, in stamp_plane.h or in stamps.h must raise CCP_LAYOUT: the paths of pinned
 * objects contain it, so that an agent never maps memory of another layout.
 */
#ifndef CCPLANE_LAYOUT_H
#define CCPLANE_LAYOUT_H

#include "totals.h"

#define CCP_LAYOUT 9

/* The register file of crates/datapath/src/bytecode.rs, one u64 per register. */
#define CCP_REGS 128
#define REG_BYTES_ACKED 0
#define REG_BYTES_MISORDERED 1
#define REG_ECN_BYTES 2
#define REG_ECN_PACKETS 3
#define REG_LOST 4
#define REG_NOW 5
#define REG_PACKETS_ACKED 6
#define REG_PACKETS_MISORDERED 7
#define REG_BYTES_IN_FLIGHT 8
#define REG_BYTES_PENDING 9
#define REG_PACKETS_IN_FLIGHT 10
#define REG_RATE_INCOMING 11
#define REG_RATE_OUTGOING 12
#define REG_RTT 13
#define REG_WAS_TIMEOUT 14
#define REG_SRTT 15
#define REG_MIN_RTT 16
#define REG_MSS 17
#define REG_APP_LIMITED 18
#define REG_IN_RECOVERY 19
#define REG_UNDONE 20
#define REG_CWND_LIMITED 21
#define REG_OWD 22
#define REG_STAMPED_RTT 23
#define REG_MIN_OWD 24
#define REG_MIN_STAMPED_RTT 25
#define REG_QUEUE_DELAY 26
#define REG_QUEUE_DELAY_VALID 27
#define REG_PACED 28
#define REG_MICROS 32
#define REG_CWND 33
#define REG_RATE 34
#define REG_SSTHRESH 35
#define REG_REPORT 36
#define REG_CONTINUE 37
#define REG_RESET 38
#define REG_ONE 39
/* the last four temporaries: unused after a run, then overwritten by the report header */
#define REG_HEADER 60
#define REG_VARS 64
#define CCP_VARS 64

/* Argument of a fold. A pad is `int ccp_fold_N(struct fold_ctx *)`, a global function, so the
 * verifier assumes that its argument may be NULL; generated code tests it, runs the program over
 * regs[] (temporaries on its stack or in regs[40..63]), adds the faults to `faults`, and returns 0.
 * The caller has set the signals, Micros, Cwnd, Rate, Ssthresh and One, and has cleared Report,
 * Continue, Reset, waits and waited; it resets volatile variables and Micros itself.
 */
struct fold_ctx {
	__u64 regs[CCP_REGS];
	__u64 faults;
	__u64 waits; /* smallest value that a guard waits for Micros to exceed; ~0: none */
	__u64 waited; /* smallest value that a guard found Micros above */
	/* program counter of the interpreter; on the stack the verifier would track every value */
	__u64 pc;
};

/* Programs below CCP_PADS have a pad with generated code; the others are interpreted. */
#define CCP_PADS 4
#define CCP_PAD_INSNS 2048
#define CCP_PROGRAMS 12
#define CCP_CODE 384 /* 256 instructions, and at most 3 more for each of 32 clauses */
#define CCP_NO_PROGRAM 0xffffffff

/* One instruction of the interpreter: `Instr` of crates/datapath, byte for byte, or OP_END after a
 * clause.
 */
struct ccp_insn {
	__u8 op;
	__u8 has_imm;
	__u8 dst;
	__u8 a;
	__u8 b;
	__u8 unused[3];
	__u64 imm;
};

struct ccp_program {
	__u32 tag; /* unique over the lifetime of the registration; 0: none */
	/* instructions for the interpreter; 0 if every object has the program in its pad */
	__u32 code_len;
	__u32 report_vars; /* number of variables in a report, from the first */
	__u32 unused;
	__u64 volatiles; /* bit n: variable n is reset to init[n] after a report was queued */
	__u64 init[CCP_VARS];
	struct ccp_insn code[CCP_CODE];
};

/* Control words of a flow, written by the agent without a system call. `lock` guards them: bit 0 is
 * set while the agent writes, bit 1 while words are pending, and the remaining bits count. The
 * datapath copies the words and then clears bit 1 by compare-and-exchange with the value it read
 * before, so it takes each set once and never a torn one. When the agent sets bit 0 it learns from
 * bit 1 whether to merge with pending words or to start afresh.
 */
#define CTL_WRITING 1
#define CTL_PENDING 2
#define CTL_STEP 4
#define CTL_SET_PROGRAM 1
#define CTL_SET_CWND 2
#define CTL_SET_RATE 4
#define CTL_SET_SSTHRESH 8
#define CTL_SET_MICROS 16
/* the agent releases the flow: NewReno controls it until a program is set */
#define CTL_RELEASE 32
struct ccp_control {
	__u64 lock;
	__u32 generation; /* of the target flow; a mismatch drops the words */
	__u32 epoch; /* epoch of the last record of this flow that the agent had seen, see flow.h */
	__u32 program;
	__u32 tag;
	__u32 set; /* CTL_SET_* */
	__u32 unused;
	__u64 cwnd; /* bytes */
	__u64 rate; /* bytes/s */
	__u64 ssthresh; /* bytes */
	__u64 micros;
	__u64 var_mask; /* bit n: vars[n] is set */
	__u64 vars[CCP_VARS];
	__u64 pad[7];
};

/* State of a flow as published by the datapath. */
#define FLOW_FREE 0
#define FLOW_LIVE 1
/* NewReno is in control: the agent is silent or released the flow, or its standalone program
 * faults
 */
#define SHOW_FALLBACK 1
#define SHOW_OWNED 2 /* the agent has set something and is in control */
#define SHOW_STAMPED 4 /* the queueing delay is known from timestamps */
struct ccp_shown {
	__u32 generation;
	__u32 state; /* FLOW_* */
	__u32 flags; /* SHOW_* */
	__u32 epoch;
	__u32 program;
	__u32 tag;
	__u32 mss;
	__u32 init_cwnd; /* packets */
	__u16 family; /* AF_INET or AF_INET6 */
	__u16 local_port; /* host order */
	__u16 peer_port; /* host order */
	__u16 ca_state;
	__u32 srtt_us;
	__u8 local[16];
	__u8 peer[16];
	__u64 opened_us; /* CLOCK_MONOTONIC */
	__u64 cwnd; /* bytes */
	__u64 ssthresh; /* bytes; ~0 before the first loss */
	__u64 rate; /* bytes/s set by program or agent; 0: none */
	__u64 acked; /* bytes */
	__u64 lost; /* packets */
	__u64 reports;
	__u64 faults;
	__u64 fallbacks;
	__u64 fallback_us; /* start of the last fallback, CLOCK_MONOTONIC; 0: never */
	__u64 last_us; /* time of the last call */
	__u64 delivered_rate; /* bytes/s, last sample */
	__u64 retransmits; /* packets, as of the last ACK during recovery */
	__u64 pad[2];
};

struct ccp_slot {
	struct ccp_control control;
	struct ccp_shown shown;
};

/* Plane of one algorithm: heartbeat, the operator's limits, the reader's state, counters. */
#define READER_RUNNING 0 /* draining: checks again before it sleeps */
#define READER_POLLING 1 /* sleeps up to the latency bound; only urgent records wake it */
#define READER_IDLE 2 /* sleeps until woken */
#define READER_ABSENT 3 /* there is no reader and none is needed: nothing is sent */
#define CCP_CPUS 64
#define CCP_SHARES 1024 /* a power of two */
struct ccp_counters {
	__u64 flows; /* opened */
	__u64 reports;
	__u64 ring_lost; /* reports that did not fit in the ring; their values are kept */
	__u64 fallbacks;
	__u64 faults;
	__u64 table_full;
	__u64 closed;
	/* closing records that did not fit in the ring: the reader finds the end in the table */
	__u64 close_lost;
	__u64 stamps; /* timestamp exchanges that gave a sample */
	__u64 stamps_dropped; /* timestamp exchanges that are impossible */
	__u64 share_full; /* part of `table_full`: the share of the network namespace was used up */
	__u64 unused[5]; /* pads to whole cache lines */
};

/* `own` is one word, so that it is replaced atomically. */
#define OWN_TAG(own) ((__u32)((own) >> 32))
#define OWN_PROGRAM(own) ((__u32)(own) & 0xff)
/* index + 1 of the variable set to 1 for a flow that ran before; 0: none */
#define OWN_BEGUN(own) ((__u32)(own) >> 8 & 0xff)
/* the program sets rates; otherwise an earlier program's rate is cleared */
#define OWN_PACES(own) ((__u32)(own) >> 16 & 1)
struct ccp_plane {
	__u64 heartbeat_ns; /* CLOCK_MONOTONIC, updated by the thread that runs the callbacks */
	__u64 fallback_after_ns;
	__u64 min_cwnd; /* bytes */
	__u64 max_cwnd; /* bytes */
	__u64 max_rate; /* bytes/s; ~0: none */
	__u64 start_us; /* origin of Ack.now */
	__u32 slots;
	__u32 agent; /* number of takeovers */
	__u32 reader; /* READER_* */
	__u32 fresh; /* slots that were ever used */
	__u32 timed; /* flows have timers; read by an agent that takes the registration over */
	__u32 guests; /* slots in use by network namespaces other than `home` */
	/* program that flows run without an agent, as the OWN_* macros decode it; 0: an agent is
	 * needed
	 */
	__u64 own;
	__u64 home; /* cookie of the agent's network namespace */
	__u64 pad[4];
	struct ccp_counters counters[CCP_CPUS];
	struct ccp_totals ended[CCP_CPUS]; /* totals of ended flows */
	/* slots in use by each of the other network namespaces, see share.h */
	__u32 shares[CCP_SHARES];
};

/* Records of the ring: this header, followed by the report variables for REC_REPORT and by a
 * ccp_closing for REC_CLOSE.
 */
#define REC_OPEN 1 /* a new flow; its details are in its slot */
#define REC_RESUME 2 /* back from fallback */
#define REC_REPORT 3
#define REC_CLOSE 4
#define REC_URGENT 1
struct ccp_record {
	__u16 kind;
	__u16 flags;
	__u32 slot;
	__u32 generation;
	__u32 epoch;
	__u32 program;
	__u32 tag;
	__u64 time_us; /* CLOCK_MONOTONIC */
};

struct ccp_closing {
	struct ccp_record record;
	__u64 opened_us;
	__u64 acked; /* bytes */
	__u64 lost; /* packets */
	__u64 reports;
	__u64 faults;
	__u64 fallbacks;
	__u64 srtt_us;
	__u64 min_rtt_us;
	__u64 retransmits; /* packets */
};

#endif
