// The declarations of CCP's library, libccp, over ccplane's interpreter: docs/c.md, "A datapath
// written against libccp".
//
// A datapath that includes the reference's <ccp.h> is built with this one by -I and -lccp. Structs
// and their fields are the reference's, in its order, and so are the names of functions and codes.
// What is wrong in a message of the agent is refused as a whole and counted: ccp_get_counts, which
// the reference does not have. For programs in user space; a kernel module cannot be linked with
// it.
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

// Bytes of an algorithm's name, with the 0 at its end.
#define MAX_CONG_ALG_SIZE 64

// What the datapath measured since the last ccp_invoke. Fill in `prims` of a connection before
// each.
struct ccp_primitives {
    u32 bytes_acked;         // newly acknowledged in order
    u32 packets_acked;
    u32 bytes_misordered;    // newly acknowledged out of order
    u32 packets_misordered;
    u32 ecn_bytes;           // acknowledged with an ECN mark
    u32 ecn_packets;
    u32 lost_pkts_sample;    // newly taken for lost
    bool was_timeout;        // a retransmission timeout
    u64 rtt_sample_us;       // 0: none
    u64 rate_outgoing;       // bytes/s, of sending
    u64 rate_incoming;       // bytes/s, of delivery
    u32 bytes_in_flight;
    u32 packets_in_flight;
    u32 snd_cwnd;            // the window in force, bytes
    u64 snd_rate;            // the pacing rate in force, bytes/s; 0: not paced
    u32 bytes_pending;       // written by the application, not acknowledged
};

// What the agent is told of a connection.
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

// A connection, in memory of the caller's, all 0 at first.
struct ccp_connection {
    u16 index;               // its number; 0: the place is free
    u64 last_create_msg_sent;
    struct ccp_primitives prims;
    struct ccp_datapath_info flow_info;
    void *state;             // the library's
    void *impl;              // the caller's
    struct ccp_datapath *datapath;
};

enum ccp_log_level { TRACE, DEBUG, INFO, WARN, ERROR };

// A datapath, in memory of the caller's. What is marked * has to be filled in before ccp_init.
struct ccp_datapath {
    // * What the agent ordered. Called within ccp_invoke where it is another than `prims` say.
    void (*set_cwnd)(struct ccp_connection *conn, u32 cwnd);
    void (*set_rate_abs)(struct ccp_connection *conn, u32 rate);
    // * Sends a message to the agent; below 0 where it was not taken.
    int (*send_msg)(struct ccp_datapath *dp, char *msg, int msg_size);
    // Or null.
    void (*log)(struct ccp_datapath *dp, enum ccp_log_level level, const char *msg, int msg_size);
    u64 time_zero;
    // * The time, in any unit; microseconds since a time; the time in so many microseconds.
    u64 (*now)(void);
    u64 (*since_usecs)(u64 then);
    u64 (*after_usecs)(u64 usecs);
    // * Places for connections.
    size_t max_connections;
    struct ccp_connection *ccp_active_connections;
    // * After a message that was not taken, ccp_invoke goes on for so long, us.
    u64 fto_us;
    u64 last_msg_sent;
    bool _in_fallback;
    // * Programs at once, 1024 at most.
    size_t max_programs;
    void *programs;          // the library's
    void *impl;              // the caller's
};

// Begins a datapath and tells the agent so. A code below 0: something is not filled in.
int ccp_init(struct ccp_datapath *datapath, u32 id);

// Ends it, and what is left of its connections.
void ccp_free(struct ccp_datapath *datapath);

// A connection begins. Null: no place is free.
struct ccp_connection *ccp_connection_start(struct ccp_datapath *datapath, void *impl, struct ccp_datapath_info *flow_info);

// It ends.
void ccp_connection_free(struct ccp_datapath *datapath, u16 sid);

// The connection of a number, or null.
struct ccp_connection *ccp_connection_lookup(struct ccp_datapath *datapath, u16 sid);

// What the caller keeps with it.
void *ccp_get_impl(struct ccp_connection *conn);
void ccp_set_impl(struct ccp_connection *conn, void *ptr);

// A message of the agent; the first, where there are several.
int ccp_read_msg(struct ccp_datapath *datapath, char *buf, int bufsize);

// An ACK or a timeout: runs the connection's program on `conn->prims`. LIBCCP_FALLBACK_TIMED_OUT:
// the agent is gone.
int ccp_invoke(struct ccp_connection *conn);

// The timer of `fto_us`: started, asked, stopped.
void _update_fto_timer(struct ccp_datapath *datapath);
bool _check_fto(struct ccp_datapath *datapath);
void _turn_off_fto_timer(struct ccp_datapath *datapath);

// Not of the reference: what was heard from the agent, and what of it was refused.
struct ccp_counts {
    u64 messages;
    u64 refused;             // of them, for one of the next reasons
    u64 malformed;           // cut, of a wrong length, or of a type that an agent does not send
    u64 programs;            // too large, or with what does not exist
    u64 table_full;          // no room for a program
    u64 updates;             // of what a program does not have or an agent may not set
    u64 unknown;             // for a connection or a program that is not there
    u64 reports;             // that left
    u64 reports_kept;        // that send_msg did not take: what they say stayed in the connection
    u64 faults;              // operations without a result, such as x/0, of connections that have ended
};
int ccp_get_counts(struct ccp_datapath *datapath, struct ccp_counts *counts);

#ifdef __cplusplus
}
#endif

#endif
