// ccplane for datapaths written in C: docs/c.md. Written by cbindgen from crates/capi/src; do not
// edit.
//
// Every struct begins with its size: `ccplane_signals signals = {.size = sizeof signals};`. A
// function gives CCPLANE_OK or a negative code, which ccplane_strerror has words for. One thread at
// a time may call for a datapath; different ones do not know of each other.

#ifndef CCPLANE_H
#define CCPLANE_H

#include <stddef.h>
#include <stdint.h>

// Done.
#define CCPLANE_OK 0

// A pointer is null that must not be.
#define CCPLANE_ENULL -1

// A struct does not say its size, is too short for what it is for, or is newer than this library
// and uses what only a newer one has.
#define CCPLANE_ESIZE -2

// The datapath was closed.
#define CCPLANE_ECLOSED -3

// Another thread is in a call for this datapath.
#define CCPLANE_EBUSY -4

// No such flow: it was closed, or never opened.
#define CCPLANE_ENOFLOW -5

// A value that cannot be: a text that is not UTF-8, limits that contradict each other, flags that
// do not exist.
#define CCPLANE_EVALUE -6

// No such algorithm, or not with these parameters.
#define CCPLANE_EALGORITHM -7

// The algorithm needs what the datapath says that it cannot do.
#define CCPLANE_ECAPABILITY -8

// No agent is there, or there is no way to one.
#define CCPLANE_EAGENT -9

// The system gives no thread or descriptor.
#define CCPLANE_ESYSTEM -10

// There is nothing to wait on: the algorithm runs in the caller's thread.
#define CCPLANE_ENOFD -11

// No room for another flow.
#define CCPLANE_EFULL -12

// A mistake of this library. Nothing of the call counts; the datapath goes on.
#define CCPLANE_EPANIC -13

// It sets a window: it sends no more than `cwnd`. Every datapath does.
#define CCPLANE_CAN_CWND 1

// It paces at a rate that the algorithm sets.
#define CCPLANE_CAN_PACING 2

// It measures round-trip times.
#define CCPLANE_CAN_RTT 4

// It measures delivery rates.
#define CCPLANE_CAN_DELIVERY_RATE 8

// It counts ECN marks.
#define CCPLANE_CAN_ECN 16

// It calls ccplane_on_deadline in time, so that conditions on `Micros` fire without an ACK.
#define CCPLANE_CAN_TIMERS 32

// It repairs losses by itself: reduces towards `ssthresh` (RFC 9937), and undoes what was spurious.
#define CCPLANE_CAN_RECOVERY 64

// It measures one-way delay.
#define CCPLANE_CAN_ONE_WAY_DELAY 128

// The algorithm runs in the caller's thread, within ccplane_turn: for virtual time, and for
// programs without threads. One that takes long keeps the caller waiting.
#define CCPLANE_SAME_THREAD 1

// `cwnd` of an outcome is another than the call gave.
#define CCPLANE_CWND 1

// So is `rate`.
#define CCPLANE_RATE 2

// So is `ssthresh`.
#define CCPLANE_SSTHRESH 4

// `cwnd` is an owner's limit, and nobody asked for another window.
#define CCPLANE_LIMITED 8

// The flow runs the library's own NewReno, since its agent is silent.
#define CCPLANE_FALLBACK 16

// A report left, or waits for room.
#define CCPLANE_REPORTED 32

// A datapath. One thread at a time may call for it.
typedef struct ccplane_datapath ccplane_datapath;

// How a datapath is opened. Set `size` to its size, and what is not used to 0.
typedef struct ccplane_options {
  // Bytes of this struct.
  size_t size;
  // An algorithm by name, with parameters: `cubic`, `cubic:report=10ms`, or the path of a text,
  // `./mine.ccp:gain=2`. With an agent: what flows ask for, or null for the agent's first.
  const char *algorithm;
  // Where an agent serves: `unix:PATH` of `ccplane agent --unix PATH`, `tls://HOST:PORT?keys=DIR`
  // of `ccplane agent --tls` on another host, `ccp:PATH` of a CCP agent. Null: the algorithm runs
  // in this process.
  const char *agent;
  // CCPLANE_CAN_*: what the datapath can do. An algorithm that needs more is refused.
  uint64_t capabilities;
  // CCPLANE_SAME_THREAD, or 0.
  uint64_t flags;
  // The window never falls below so many bytes; 0: 1220.
  uint64_t min_cwnd;
  // The window never exceeds so many bytes; 0: no limit.
  uint64_t max_cwnd;
  // The pacing rate never exceeds so many bytes/s; 0: no limit.
  uint64_t max_rate;
  // After so long a silence of the agent, ns, flows run NewReno until it is heard again. 0: half a
  // second; with an agent on another host 200 ms and 3 round trips, which are measured when it is
  // connected.
  uint64_t fallback_after_ns;
} ccplane_options;

// Why a datapath could not be opened. Set `size` to its size.
typedef struct ccplane_error {
  // Bytes of this struct.
  size_t size;
  // CCPLANE_E*.
  int64_t code;
  // In words, with what helps; ends with a 0.
  char message[496];
} ccplane_error;

// A flow that begins. Set `size` to its size, and what is not known to 0.
typedef struct ccplane_flow_info {
  // Bytes of this struct.
  size_t size;
  // Payload of a full packet, bytes. Needed.
  uint64_t mss;
  // The window that the flow starts with, bytes; 0: ten full packets.
  uint64_t init_cwnd;
  // The slow-start threshold, bytes; 0: none yet.
  uint64_t ssthresh;
  // The pacing rate, bytes/s; 0: not paced.
  uint64_t rate;
  // Smoothed round-trip time, ns; 0: not known.
  uint64_t srtt_ns;
  // 1: it lived before, and goes on from the window given here.
  uint64_t live;
  // The sender's address and port, `192.0.2.1:4000` or `[2001:db8::1]:4000`, or null.
  const char *local;
  // The receiver's.
  const char *peer;
} ccplane_flow_info;

// The transport's state at a call. Set `size` to its size.
typedef struct ccplane_transport {
  // Bytes of this struct.
  size_t size;
  // The moment of the call, ns of any clock that does not go back.
  uint64_t now_ns;
  // The window in force, bytes.
  uint64_t cwnd;
  // The pacing rate in force, bytes/s; 0: not paced.
  uint64_t rate;
  // The slow-start threshold in force, bytes; UINT64_MAX: none yet.
  uint64_t ssthresh;
} ccplane_transport;

// What one ACK or timeout brought. Set `size` to its size, and what is not known to 0. A struct
// that ends after `was_timeout` will do: these are the signals that CCP has.
typedef struct ccplane_signals {
  // Bytes of this struct.
  size_t size;
  // Bytes newly cumulatively acknowledged.
  uint64_t bytes_acked;
  // Bytes newly selectively acknowledged, out of order.
  uint64_t bytes_misordered;
  // Bytes acknowledged here that carried an ECN mark.
  uint64_t ecn_bytes;
  // The same in packets.
  uint64_t ecn_packets;
  // Packets newly taken for lost.
  uint64_t lost_pkts_sample;
  // Not read: the library has the time from ccplane_transport.
  uint64_t reserved;
  // Packets newly cumulatively acknowledged.
  uint64_t packets_acked;
  // Packets newly selectively acknowledged.
  uint64_t packets_misordered;
  // Bytes in flight, after this event.
  uint64_t bytes_in_flight;
  // Bytes that the application has written and that are not acknowledged.
  uint64_t bytes_pending;
  // Packets in flight, after this event.
  uint64_t packets_in_flight;
  // Delivery rate over the time of the acknowledgements, bytes/s.
  uint64_t rate_incoming;
  // Rate over the time in which the same packets were sent, bytes/s.
  uint64_t rate_outgoing;
  // Round-trip time of this ACK, us; 0: no sample.
  uint64_t rtt_sample_us;
  // 1: this call is due to a retransmission timeout.
  uint64_t was_timeout;
  // Smoothed round-trip time, us.
  uint64_t srtt_us;
  // Least round-trip time of the last minutes, us.
  uint64_t min_rtt_us;
  // Payload of a full packet, bytes.
  uint64_t mss;
  // 1: the rate sample was limited by the application.
  uint64_t app_limited;
  // 1: losses are being repaired.
  uint64_t in_recovery;
  // 1: the last reduction proved spurious, and the transport undid it.
  uint64_t undone;
  // 1: the window, not the application, limited sending in the last round.
  uint64_t cwnd_limited;
  // One-way delay of the packet that this ACK answers, ns; only differences count, the clocks need
  // not agree.
  uint64_t owd_ns;
  // Round-trip time of it without the peer's delay, ns.
  uint64_t rtt_ns;
  // Least one-way delay of the last minutes, ns.
  uint64_t min_owd_ns;
  // Least round-trip time of the last minutes, ns.
  uint64_t min_rtt_ns;
  // What the packet waited in queues, ns. Only with the next.
  uint64_t queue_delay_ns;
  // 1: `queue_delay_ns` is no older than a round trip.
  uint64_t queue_delay_valid;
  // 1: what is sent is spaced out in time, at the rate that the algorithm set or by the transport
  // itself.
  uint64_t paced;
} ccplane_signals;

// What the transport is to do from now on. Set `size` to its size.
typedef struct ccplane_outcome {
  // Bytes of this struct.
  size_t size;
  // CCPLANE_CWND and so on: what is another than before, and why.
  uint32_t flags;
  // 0.
  uint32_t reserved;
  // The window, bytes. Like the next two it is always there, changed or not.
  uint64_t cwnd;
  // The pacing rate, bytes/s; 0: not paced.
  uint64_t rate;
  // The slow-start threshold, bytes; UINT64_MAX: none.
  uint64_t ssthresh;
} ccplane_outcome;

// What a datapath has done so far. Set `size` to its size.
typedef struct ccplane_stats {
  // Bytes of this struct.
  size_t size;
  // Flows that were opened.
  uint64_t opened;
  // Of them, those that were closed.
  uint64_t closed;
  // Reports to the agent.
  uint64_t reports;
  // How often a flow fell back to NewReno.
  uint64_t fallbacks;
} ccplane_stats;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Opens a datapath: starts the algorithm's thread, or connects to an agent. Null where that was not
// possible: `error` says why, unless it is null itself.
struct ccplane_datapath *ccplane_open(const struct ccplane_options *options,
                                      struct ccplane_error *error);

// A flow begins: `*flow` is its number, which is never 0.
int ccplane_flow_open(struct ccplane_datapath *datapath,
                      uint64_t now_ns,
                      const struct ccplane_flow_info *info,
                      uint64_t *flow);

// An ACK or a timeout: call it for each of them, once. It does not wait for the algorithm, and
// allocates nothing.
int ccplane_on_ack(struct ccplane_datapath *datapath,
                   uint64_t flow,
                   const struct ccplane_transport *transport,
                   const struct ccplane_signals *signals,
                   struct ccplane_outcome *outcome);

// A flow's deadline has come. Calling it early, or twice, does no harm.
int ccplane_on_deadline(struct ccplane_datapath *datapath,
                        uint64_t flow,
                        const struct ccplane_transport *transport,
                        struct ccplane_outcome *outcome);

// When to call ccplane_on_deadline for a flow, if no ACK comes before, ns; of flow 0: when to call
// ccplane_turn at the latest. UINT64_MAX: never, also where there is no such flow.
uint64_t ccplane_next_deadline(struct ccplane_datapath *datapath,
                               uint64_t flow);

// Takes what the agent said, and sends it what waits. Call it when ccplane_fd is readable, when
// ccplane_next_deadline of flow 0 has come, and at least three times within `fallback_after_ns`: it
// is how the agent is heard to live.
int ccplane_turn(struct ccplane_datapath *datapath,
                 uint64_t now_ns);

// What to wait on for ccplane_turn: readable when the agent said something. Ask again after every
// turn, since a new connection to an agent has another. Do not read it, or close it.
int ccplane_fd(struct ccplane_datapath *datapath);

// A flow ends, of which so many bytes were acknowledged and so many packets lost; 0 where that is
// not counted.
int ccplane_flow_close(struct ccplane_datapath *datapath,
                       uint64_t now_ns,
                       uint64_t flow,
                       uint64_t bytes_acked,
                       uint64_t packets_lost);

// What a datapath has done so far.
int ccplane_get_stats(struct ccplane_datapath *datapath, struct ccplane_stats *stats);

// Closes a datapath and what is left of its flows, and ends its thread. Calls with it are
// CCPLANE_ECLOSED from then on.
int ccplane_close(struct ccplane_datapath *datapath);

// A code in words. Never null.
const char *ccplane_strerror(int code);

// The version of the library, `0.1.0`.
const char *ccplane_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CCPLANE_H */
