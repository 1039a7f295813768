// Declarations from picoquic's headers that examples/picoquic uses, as of commit d199d45b (August
// 2026), rewritten so that the test can compile the example without picoquic.
#ifndef PICOQUIC_H
#define PICOQUIC_H

#include <stddef.h>
#include <stdint.h>

#define PICOQUIC_ECN_ECT_0 0x02

typedef struct st_picoquic_cnx_t picoquic_cnx_t;
typedef struct st_picoquic_path_t picoquic_path_t;

typedef enum {
    picoquic_congestion_notification_acknowledgement,
    picoquic_congestion_notification_repeat,
    picoquic_congestion_notification_timeout,
    picoquic_congestion_notification_spurious_repeat,
    picoquic_congestion_notification_rtt_measurement,
    picoquic_congestion_notification_ecn_ec,
    picoquic_congestion_notification_cwin_blocked,
    picoquic_congestion_notification_seed_cwin,
    picoquic_congestion_notification_reset,
    picoquic_congestion_notification_lost_feedback,
    picoquic_congestion_notification_restart_from_idle
} picoquic_congestion_notification_t;

typedef struct st_picoquic_per_ack_state_t {
    uint64_t rtt_measurement, send_delay, one_way_delay, nb_bytes_acknowledged, nb_bytes_newly_lost;
    uint64_t nb_loss_ranges_newly_lost, nb_bytes_lost_since_packet_sent, nb_bytes_delivered_since_packet_sent;
    uint64_t inflight_prior, lost_packet_number, lost_packet_sent_time;
    int pc;
    unsigned int is_app_limited : 1, is_cwnd_limited : 1;
} picoquic_per_ack_state_t;

typedef struct st_picoquic_congestion_algorithm_t {
    char const *congestion_algorithm_id;
    uint8_t congestion_algorithm_number;
    uint8_t ecn_mark;
    void (*alg_init)(picoquic_path_t *, char const *, uint64_t);
    void (*alg_notify)(picoquic_cnx_t *, picoquic_path_t *, picoquic_congestion_notification_t, picoquic_per_ack_state_t *, uint64_t);
    void (*alg_delete)(picoquic_path_t *);
    void (*alg_observe)(picoquic_path_t *, uint64_t *, uint64_t *);
} picoquic_congestion_algorithm_t;

#endif
