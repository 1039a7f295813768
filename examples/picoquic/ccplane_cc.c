// ccplane's algorithms as a congestion control of picoquic, through its hook
// picoquic_congestion_algorithm_t. Written for picoquic's commit d199d45b (August 2026) and run
// with it.
//
// ccplane's tests compile this file against a copy of the declarations it uses, and drive it
// without picoquic.
//
// Notifications and their effect:
//
//     acknowledgement    bytes and packets acknowledged, RTT, delivery rate, one-way delay
//     repeat             one packet is lost; recovery lasts until the acknowledgement of a packet
//                        that was sent after the loss was detected
//     timeout            one packet is lost by a retransmission timeout
//     spurious_repeat    the last loss was spurious: the previous window is restored
//     ecn_ec             one packet was marked
//     cwin_blocked       the window limits sending
//
// After a loss the window is set to the algorithm's threshold at once (RFC 9002, 7.3.2), since
// picoquic has no proportional rate reduction. The hook has no timer, so deadlines are checked on
// every notification.
#include "ccplane_cc.h"

#include <ccplane.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cc_common.h"
#include "picoquic_internal.h"

// Minimum interval between turns, us. Each turn costs a system call.
#define TURN_US 1000
// Window of the minimum one-way delay, us. Clocks drift, so older minimums become invalid.
#define WINDOW_US 10000000

static ccplane_datapath *plane;
static uint64_t last_turn;

struct path {
    uint64_t flow;
    uint64_t ssthresh, rate;
    uint64_t before_cwnd, before_ssthresh;  // before the last loss; 0: nothing to undo
    uint64_t recovery_end;                  // recovery ends when this packet number is acknowledged
    uint64_t least_delay, least_since, recent_delay;
    uint64_t acked, lost;
    int recovering, timed_out, limited;
};

static uint64_t packets_of(picoquic_path_t const *path_x, uint64_t bytes) {
    return bytes ? (bytes + path_x->send_mtu - 1) / path_x->send_mtu : 0;
}

static void begin(picoquic_path_t *path_x, uint64_t now) {
    struct path *path = path_x->congestion_alg_state;
    ccplane_flow_info info = {.size = sizeof info, .mss = path_x->send_mtu, .init_cwnd = path_x->cwin};
    memset(path, 0, sizeof *path);
    path->ssthresh = UINT64_MAX;
    path_x->is_ssthresh_initialized = 0;
    // On failure the flow number stays 0, which is invalid: all calls fail, and the window is
    // unchanged.
    ccplane_flow_open(plane, now * 1000, &info, &path->flow);
}

static void init(picoquic_path_t *path_x, char const *options, uint64_t now) {
    (void)options;
    path_x->congestion_alg_state = calloc(1, sizeof(struct path));
    if (path_x->congestion_alg_state == NULL) return;
    path_x->cwin = PICOQUIC_CWIN_INITIAL;
    begin(path_x, now);
}

static void end(picoquic_path_t *path_x) {
    struct path *path = path_x->congestion_alg_state;
    if (path == NULL) return;
    ccplane_flow_close(plane, last_turn * 1000, path->flow, path->acked, path->lost);
    free(path);
    path_x->congestion_alg_state = NULL;
}

// One-way delay. Only differences matter, so the clocks need not be synchronized. The minimum
// covers the last ten to twenty seconds.
static void delays(struct path *path, uint64_t delay_us, uint64_t now, ccplane_signals *signals) {
    if (delay_us == 0) return;
    if (path->least_delay == 0 || now - path->least_since > WINDOW_US) {
        path->least_delay = path->recent_delay ? path->recent_delay : delay_us;
        path->recent_delay = delay_us;
        path->least_since = now;
    }
    if (delay_us < path->recent_delay) path->recent_delay = delay_us;
    if (delay_us < path->least_delay) path->least_delay = delay_us;
    signals->owd_ns = delay_us * 1000;
    signals->min_owd_ns = path->least_delay * 1000;
    signals->queue_delay_ns = (delay_us - path->least_delay) * 1000;
    signals->queue_delay_valid = 1;
}

// Applies an outcome. During recovery an algorithm sees and sets the window after it; it may only
// lower it, since programs that add acknowledged bytes are not aware of recovery. An algorithm
// without a threshold (BBR) does not use reductions; its window applies at once.
static void in_force(picoquic_path_t *path_x, struct path *path, ccplane_outcome const *outcome, int begins) {
    int window = outcome->flags & CCPLANE_CWND, threshold = outcome->flags & CCPLANE_SSTHRESH;
    path->ssthresh = outcome->ssthresh;
    path->rate = outcome->rate;
    // After startup, picoquic stores the path's window and RTT with the session ticket and requests
    // fewer ACKs. Algorithms without a threshold end startup by lowering the window.
    if (path->ssthresh != UINT64_MAX || outcome->cwnd < path_x->cwin) path_x->is_ssthresh_initialized = 1;
    if (path->recovering && !path->timed_out && path->ssthresh != UINT64_MAX) {
        if (window && outcome->cwnd < path_x->cwin) path_x->cwin = outcome->cwnd;
        else if (threshold || begins) path_x->cwin = path->ssthresh;
    } else if (path->timed_out && begins && !window) {
        path_x->cwin = PICOQUIC_CWIN_MINIMUM;
    } else {
        path_x->cwin = outcome->cwnd;
    }
    if (path->rate) {
        // One millisecond's worth of data, at least two packets, may be sent as a burst.
        uint64_t quantum = path->rate / 1000, least = 2 * path_x->send_mtu;
        picoquic_update_pacing_rate(path_x, (double)path->rate, quantum > least ? quantum : least);
    } else {
        picoquic_update_pacing_data(path_x, path_x->cwin < path->ssthresh);
    }
}

static void notify(picoquic_cnx_t *cnx, picoquic_path_t *path_x, picoquic_congestion_notification_t notification,
    picoquic_per_ack_state_t *ack, uint64_t now) {
    struct path *path = path_x->congestion_alg_state;
    ccplane_signals signals = {.size = sizeof signals};
    int begins = 0;
    if (path == NULL) return;
    if (now - last_turn >= TURN_US) {
        ccplane_turn(plane, now * 1000);
        last_turn = now;
    }
    switch (notification) {
    case picoquic_congestion_notification_acknowledgement:
        signals.bytes_acked = ack->nb_bytes_acknowledged;
        signals.packets_acked = packets_of(path_x, ack->nb_bytes_acknowledged);
        signals.rtt_sample_us = ack->rtt_measurement;
        signals.app_limited = ack->is_app_limited;
        signals.rate_incoming = path_x->bandwidth_estimate;
        signals.rate_outgoing = path_x->bandwidth_estimate;
        delays(path, ack->one_way_delay, now, &signals);
        if (path->recovering && picoquic_cc_get_ack_number(cnx, path_x) >= path->recovery_end)
            path->recovering = path->timed_out = 0;
        path->acked += ack->nb_bytes_acknowledged;
        break;
    case picoquic_congestion_notification_timeout:
        signals.was_timeout = 1;
        /* fall through */
    case picoquic_congestion_notification_repeat:
        // A notification concerns one packet. Its bytes cannot be converted to packets: after an
        // MTU reduction, a lost packet may be longer than send_mtu.
        signals.lost_pkts_sample = 1;
        begins = !path->recovering || (signals.was_timeout && !path->timed_out);
        if (begins) {
            path->recovering = 1;
            path->timed_out = (int)signals.was_timeout;
            path->recovery_end = picoquic_cc_get_sequence_number(cnx, path_x);
            path->before_cwnd = path_x->cwin;
            path->before_ssthresh = path->ssthresh;
            // Half, unless the algorithm sets another threshold.
            path->ssthresh = path_x->cwin / 2 > PICOQUIC_CWIN_MINIMUM ? path_x->cwin / 2 : PICOQUIC_CWIN_MINIMUM;
        }
        path->lost += signals.lost_pkts_sample;
        break;
    case picoquic_congestion_notification_spurious_repeat:
        if (path->before_cwnd == 0) return;
        if (path_x->cwin < path->before_cwnd) path_x->cwin = path->before_cwnd;
        path->ssthresh = path->before_ssthresh;
        path->before_cwnd = 0;
        path->recovering = path->timed_out = 0;
        signals.undone = 1;
        break;
    case picoquic_congestion_notification_ecn_ec:
        signals.ecn_packets = 1;
        signals.ecn_bytes = path_x->send_mtu;
        break;
    case picoquic_congestion_notification_cwin_blocked:
        path->limited = 1;
        return;
    case picoquic_congestion_notification_reset:
        ccplane_flow_close(plane, now * 1000, path->flow, path->acked, path->lost);
        path_x->cwin = PICOQUIC_CWIN_INITIAL;
        begin(path_x, now);
        return;
    default:
        return;
    }
    signals.bytes_in_flight = path_x->bytes_in_transit;
    signals.packets_in_flight = packets_of(path_x, path_x->bytes_in_transit);
    // picoquic does not report unsent application data: use the bytes in flight, plus one packet
    // unless the application is the limit.
    signals.bytes_pending = path_x->bytes_in_transit + (signals.app_limited ? 0 : path_x->send_mtu);
    signals.srtt_us = path_x->smoothed_rtt;
    signals.min_rtt_us = path_x->rtt_min;
    signals.mss = path_x->send_mtu;
    signals.in_recovery = path->recovering;
    signals.cwnd_limited = path->limited;
    signals.paced = 1;
    // For the next ACK: the window is full or, in slow start, more than half full (Linux'
    // tcp_is_cwnd_limited).
    if (signals.bytes_acked)
        path->limited = path_x->bytes_in_transit + path_x->send_mtu > path_x->cwin ||
                        (path_x->cwin < path->ssthresh && 2 * path_x->bytes_in_transit > path_x->cwin);

    ccplane_transport transport = {.size = sizeof transport, .now_ns = now * 1000, .cwnd = path_x->cwin, .rate = path->rate,
        .ssthresh = path->ssthresh};
    ccplane_outcome outcome = {.size = sizeof outcome};
    if (ccplane_on_ack(plane, path->flow, &transport, &signals, &outcome) != CCPLANE_OK) return;
    in_force(path_x, path, &outcome, begins);
    if (now * 1000 >= ccplane_next_deadline(plane, path->flow)) {
        transport.cwnd = path_x->cwin;
        transport.rate = path->rate;
        transport.ssthresh = path->ssthresh;
        if (ccplane_on_deadline(plane, path->flow, &transport, &outcome) == CCPLANE_OK)
            in_force(path_x, path, &outcome, 0);
    }
    path_x->is_cc_data_updated = 1;
}

static void observe(picoquic_path_t *path_x, uint64_t *state, uint64_t *parameter) {
    struct path *path = path_x->congestion_alg_state;
    *state = path != NULL && path->recovering;
    *parameter = path == NULL ? UINT64_MAX : path->ssthresh;
}

static picoquic_congestion_algorithm_t algorithm_struct = {
    .congestion_algorithm_id = "ccplane",
    .congestion_algorithm_number = 200,
    .ecn_mark = PICOQUIC_ECN_ECT_0,
    .alg_init = init,
    .alg_notify = notify,
    .alg_delete = end,
    .alg_observe = observe,
};

picoquic_congestion_algorithm_t const *ccplane_picoquic(char const *algorithm, char *why, size_t room) {
    ccplane_error error = {.size = sizeof error};
    ccplane_options options = {
        .size = sizeof options,
        .algorithm = algorithm,
        .capabilities = CCPLANE_CAN_CWND | CCPLANE_CAN_PACING | CCPLANE_CAN_RTT | CCPLANE_CAN_DELIVERY_RATE | CCPLANE_CAN_ECN |
                        CCPLANE_CAN_RECOVERY | CCPLANE_CAN_ONE_WAY_DELAY,
        .min_cwnd = PICOQUIC_CWIN_MINIMUM,
    };
    if (plane == NULL) plane = ccplane_open(&options, &error);
    if (plane != NULL) return &algorithm_struct;
    if (why != NULL && room > 0) snprintf(why, room, "%s", error.message);
    return NULL;
}
