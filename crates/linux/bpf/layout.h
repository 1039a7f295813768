/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the BPF object, its loader and the agent share: the register file of a fold, the mapped flow table, the mapped
 * plane (one per algorithm), the mapped programs, and the records of the ring buffer.
 * src/map/layout.rs mirrors it; a test compares the sizes with the object's own. Change anything
 * here, in stamp_plane.h or stamps.h and raise CCP_LAYOUT: pinned objects carry it in their path,
 * so that an agent never adopts memory it would misread.
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
#define REG_HEADER 60 /* the last four temporaries: dead after a run, then the header of a report */
#define REG_VARS 64
#define CCP_VARS 64

/* What a fold works on. A pad is `int ccp_fold_N(struct fold_ctx *)`: a global function, so its argument may be NULL
 * as far as the verifier knows; generated code tests it, runs the program over regs[] (temporaries
 * on its own stack or in regs[40..63]), adds the faults it met to `faults`, and returns 0. The
 * caller has set the signals, Micros, Cwnd, Rate, Ssthresh and One, and has cleared Report,
 * Continue, Reset, waits and waited; it resets volatile variables and Micros itself.
 */
struct fold_ctx {
	__u64 regs[CCP_REGS];
	__u64 faults;
	__u64 waits; /* the least that a guard found Micros not above yet; ~0: none did */
	__u64 waited; /* the least that a guard found Micros above */
	__u64 pc; /* where the interpreter is: here and not on its stack, because there the verifier would follow every value */
};

/* Programs: the first CCP_PADS have a pad, where their generated code is; the others run in the
 * interpreter. */
#define CCP_PADS 4
#define CCP_PAD_INSNS 2048
#define CCP_PROGRAMS 12
#define CCP_CODE 384 /* 256 instructions, and at most 3 more for each of 32 clauses */
#define CCP_NO_PROGRAM 0xffffffff

/* One instruction of the interpreter: `Instr` of crates/datapath, byte for byte, and OP_END after a
 * clause. */
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
	__u32 tag; /* unique among all programs that this registration ever had; 0: none */
	__u32 code_len; /* instructions for the interpreter; 0 for a program that every object has in its pad */
	__u32 report_vars; /* the first so many variables are sent */
	__u32 unused;
	__u64 volatiles; /* bit n: variable n goes back to init[n] after a report that was queued */
	__u64 init[CCP_VARS];
	struct ccp_insn code[CCP_CODE];
};

/* Control words of a flow, written by the agent without a system call. `lock` guards them: bit 0 is set while the agent
 * writes, bit 1 while something waits to be applied, the rest counts. The datapath takes the words
 * by clearing bit 1 with a compare-and-exchange from the value it read before copying them, so it
 * takes each set once and never a torn one; the agent, setting bit 0, learns from bit 1 whether to
 * merge with what waits or to start afresh.
 */
#define CTL_WRITING 1
#define CTL_PENDING 2
#define CTL_STEP 4
#define CTL_SET_PROGRAM 1
#define CTL_SET_CWND 2
#define CTL_SET_RATE 4
#define CTL_SET_SSTHRESH 8
#define CTL_SET_MICROS 16
#define CTL_RELEASE 32 /* the agent gives the flow up: NewReno has it until a program is set */
struct ccp_control {
	__u64 lock;
	__u32 generation; /* of the flow meant; another one's words are dropped */
	__u32 epoch; /* of the last record of this flow that the agent had seen, see flow.h */
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

/* What the datapath shows of a flow. */
#define FLOW_FREE 0
#define FLOW_LIVE 1
#define SHOW_FALLBACK 1 /* the agent is silent or gave the flow up, or its own program faults: NewReno steers */
#define SHOW_OWNED 2 /* the agent has spoken and steers */
#define SHOW_STAMPED 4 /* its queueing delay is known from time stamps */
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
	__u64 rate; /* bytes/s that program or agent set; 0: none */
	__u64 acked; /* bytes */
	__u64 lost; /* packets */
	__u64 reports;
	__u64 faults;
	__u64 fallbacks;
	__u64 fallback_us; /* when the last fallback began, CLOCK_MONOTONIC; 0: never */
	__u64 last_us; /* the last call */
	__u64 delivered_rate; /* bytes/s, the last sample */
	__u64 retransmits; /* packets, as of the last ACK of a repair */
	__u64 pad[2];
};

struct ccp_slot {
	struct ccp_control control;
	struct ccp_shown shown;
};

/* The plane of one algorithm: heartbeat, the owner's limits, the reader's state, counters. */
#define READER_RUNNING 0 /* draining: looks again before it sleeps */
#define READER_POLLING 1 /* sleeps no longer than the latency bound: only what is urgent wakes it */
#define READER_IDLE 2 /* sleeps until woken */
#define READER_ABSENT 3 /* nobody reads, and nobody needs to: nothing is sent */
#define CCP_CPUS 64
#define CCP_SHARES 1024 /* a power of two */
struct ccp_counters {
	__u64 flows; /* opened */
	__u64 reports;
	__u64 ring_lost; /* reports that found the ring full; their values are kept */
	__u64 fallbacks;
	__u64 faults;
	__u64 table_full;
	__u64 closed;
	__u64 close_lost; /* closings that found the ring full: the reader finds them in the table */
	__u64 stamps; /* exchanges of time stamps that gave a sample */
	__u64 stamps_dropped; /* that cannot be true */
	__u64 share_full; /* of `table_full`: the share of the flow's network namespace was in use */
	__u64 unused[5]; /* whole cache lines */
};

/* `own`: one word, so that a text that replaces another does so whole. */
#define OWN_TAG(own) ((__u32)((own) >> 32))
#define OWN_PROGRAM(own) ((__u32)(own) & 0xff)
#define OWN_BEGUN(own) ((__u32)(own) >> 8 & 0xff) /* the variable that is 1 for a flow that lived before, plus 1; 0: none */
#define OWN_PACES(own) ((__u32)(own) >> 16 & 1) /* it sets rates: the one that another left stays */
struct ccp_plane {
	__u64 heartbeat_ns; /* CLOCK_MONOTONIC, by the thread that runs the callbacks */
	__u64 fallback_after_ns;
	__u64 min_cwnd; /* bytes */
	__u64 max_cwnd; /* bytes */
	__u64 max_rate; /* bytes/s; ~0: none */
	__u64 start_us; /* Ack.now counts from here */
	__u32 slots;
	__u32 agent; /* counts takeovers */
	__u32 reader; /* READER_* */
	__u32 fresh; /* slots that were ever in use */
	__u32 timed; /* flows have timers; said to whoever takes the registration over */
	__u32 guests; /* slots in use by flows of other network namespaces than `home` */
	__u64 own; /* the program that flows run by themselves, without an agent, as OWN_* take it apart; 0: there is an agent */
	__u64 home; /* the cookie of the agent's network namespace */
	__u64 pad[4];
	struct ccp_counters counters[CCP_CPUS];
	struct ccp_totals ended[CCP_CPUS]; /* of flows that ended */
	__u32 shares[CCP_SHARES]; /* slots in use by each of the other network namespaces, see share.h */
};

/* Records of the ring: this header, then for REC_REPORT the report variables, for REC_CLOSE a
 * ccp_closing. */
#define REC_OPEN 1 /* a new flow; the rest stands in its slot */
#define REC_RESUME 2 /* back from the fallback */
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
