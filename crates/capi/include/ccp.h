// Interface of CCP's library, libccp, on ccplane's interpreter; see docs/c.md, "A datapath written
// against libccp".
//
// A datapath that includes libccp's <ccp.h> is built with ccplane by means of -I and -lccp.
// Structs, their fields and order, functions and error codes are the same as in libccp. An invalid
// message of the agent is rejected as a whole and counted, see ccp_get_counts, which libccp does
// not have. For programs in user space; a kernel module cannot be linked with it.
#ifndef CCP_H
#define CCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ccp_error.h"

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

#ifdef __cplusplus
extern "C" {
#endif

// Bytes of an algorithm's name including the terminating null byte.
#define MAX_CONG_ALG_SIZE 64

// Measurements since the last ccp_invoke. Fill in a connection's `prims` before each call.
struct ccp_primitives {
    u32 bytes_acked;         // newly acknowledged in order
    u32 packets_acked;
    u32 bytes_misordered;    // newly acknowledged out of order
    u32 packets_misordered;
    u32 ecn_bytes;           // acknowledged with an ECN mark
    u32 ecn_packets;
    u32 lost_pkts_sample;    // newly declared lost
    bool was_timeout;        // retransmission timeout
    u64 rtt_sample_us;       // 0: no sample
    u64 rate_outgoing;       // send rate, bytes/s
    u64 rate_incoming;       // delivery rate, bytes/s
    u32 bytes_in_flight;
    u32 packets_in_flight;
    u32 snd_cwnd;            // current window, bytes
    u64 snd_rate;            // current pacing rate, bytes/s; 0: not paced
    u32 bytes_pending;       // written by the application, not acknowledged
};

// Description of a connection for the agent.
struct ccp_datapath_info {
    u32 init_cwnd;           // bytes
    u32 mss;                 // bytes
    u32 src_ip;
    u32 src_port;
    u32 dst_ip;
    u32 dst_port;
    char congAlg[MAX_CONG_ALG_SIZE];
};

struct ccp_datapath;

// Connection, in memory of the caller, initialized to 0.
struct ccp_connection {
    u16 index;               // connection number; 0: the slot is free
    u64 last_create_msg_sent;
    struct ccp_primitives prims;
    struct ccp_datapath_info flow_info;
    void *state;             // owned by the library
    void *impl;              // owned by the caller
    struct ccp_datapath *datapath;
};

enum ccp_log_level { TRACE, DEBUG, INFO, WARN, ERROR };

// Datapath, in memory of the caller. Fields marked * must be set before ccp_init.
struct ccp_datapath {
    // * Applies the agent's settings. Called within ccp_invoke if they differ from `prims`.
    void (*set_cwnd)(struct ccp_connection *conn, u32 cwnd);
    void (*set_rate_abs)(struct ccp_connection *conn, u32 rate);
    // * Sends a message to the agent; returns a negative value on failure.
    int (*send_msg)(struct ccp_datapath *dp, char *msg, int msg_size);
    // May be null.
    void (*log)(struct ccp_datapath *dp, enum ccp_log_level level, const char *msg, int msg_size);
    u64 time_zero;
    // * Current time in any unit; microseconds since a time; time in `usecs` microseconds.
    u64 (*now)(void);
    u64 (*since_usecs)(u64 then);
    u64 (*after_usecs)(u64 usecs);
    // * Slots for connections.
    size_t max_connections;
    struct ccp_connection *ccp_active_connections;
    // * Time for which ccp_invoke still works after a message could not be sent, us.
    u64 fto_us;
    u64 last_msg_sent;
    bool _in_fallback;
    // * Maximum number of programs, at most 1024.
    size_t max_programs;
    void *programs;          // owned by the library
    void *impl;              // owned by the caller
};

// Initializes a datapath and announces it to the agent. Returns a negative code if a field is
// missing.
int ccp_init(struct ccp_datapath *datapath, u32 id);

// Frees a datapath with its remaining connections.
void ccp_free(struct ccp_datapath *datapath);

// Starts a connection. Returns null if no slot is free.
struct ccp_connection *ccp_connection_start(struct ccp_datapath *datapath, void *impl, struct ccp_datapath_info *flow_info);

// Ends a connection.
void ccp_connection_free(struct ccp_datapath *datapath, u16 sid);

// Returns the connection with this number, or null.
struct ccp_connection *ccp_connection_lookup(struct ccp_datapath *datapath, u16 sid);

// Gets and sets the caller's data of a connection.
void *ccp_get_impl(struct ccp_connection *conn);
void ccp_set_impl(struct ccp_connection *conn, void *ptr);

// Processes the agent's message; only the first, if there are several.
int ccp_read_msg(struct ccp_datapath *datapath, char *buf, int bufsize);

// Processes an ACK or a timeout: runs the connection's program on `conn->prims`. Returns
// LIBCCP_FALLBACK_TIMED_OUT if the agent is gone.
int ccp_invoke(struct ccp_connection *conn);

// Starts, checks and stops the `fto_us` timer.
void _update_fto_timer(struct ccp_datapath *datapath);
bool _check_fto(struct ccp_datapath *datapath);
void _turn_off_fto_timer(struct ccp_datapath *datapath);

// Counts of received and rejected messages. Not part of libccp.
struct ccp_counts {
    u64 messages;
    u64 refused;             // rejected, for one of the next five reasons
    u64 malformed;           // truncated, of a wrong length, or of a type that no agent sends
    u64 programs;            // too large, or with unknown registers or operations
    u64 table_full;          // no room for the program
    u64 updates;             // of a variable that does not exist or that an agent may not set
    u64 unknown;             // for an unknown connection or program
    u64 reports;             // sent
    u64 reports_kept;        // rejected by send_msg; their values were kept in the connection
    u64 faults;              // arithmetic faults, such as x/0, of closed connections
};
int ccp_get_counts(struct ccp_datapath *datapath, struct ccp_counts *counts);

#ifdef __cplusplus
}
#endif

#endif
