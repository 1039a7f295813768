// Drives examples/picoquic as picoquic does, with ACKs, losses and a timeout, and checks the
// window.
#define _GNU_SOURCE
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "../../../../../examples/picoquic/ccplane_cc.h"
#include <ccplane.h>
#include "picoquic_internal.h"

static uint64_t sequence, acked;
static unsigned paced;
static uint64_t losses, losses_passed_on;

// Interposed between the example and the library by the linker's --wrap.
int __real_ccplane_on_ack(struct ccplane_datapath *, uint64_t, struct ccplane_transport const *, struct ccplane_signals const *, struct ccplane_outcome *);
int __wrap_ccplane_on_ack(struct ccplane_datapath *datapath, uint64_t flow, struct ccplane_transport const *transport,
    struct ccplane_signals const *signals, struct ccplane_outcome *outcome) {
    losses_passed_on += signals->lost_pkts_sample;
    return __real_ccplane_on_ack(datapath, flow, transport, signals, outcome);
}

uint64_t picoquic_cc_get_sequence_number(picoquic_cnx_t *cnx, picoquic_path_t *path_x) { return (void)cnx, (void)path_x, sequence; }
uint64_t picoquic_cc_get_ack_number(picoquic_cnx_t *cnx, picoquic_path_t *path_x) { return (void)cnx, (void)path_x, acked; }
void picoquic_update_pacing_data(picoquic_path_t *path_x, int slow_start) {
    (void)path_x, (void)slow_start;
    paced++;
}
void picoquic_update_pacing_rate(picoquic_path_t *path_x, double rate, uint64_t quantum) {
    assert(rate > 0 && quantum >= 2 * path_x->send_mtu);
    paced++;
}

static uint64_t clock_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

int main(int argc, char **argv) {
    char why[256] = "";
    assert(argc == 2 && !ccplane_picoquic("nonesuch", why, sizeof why) && strstr(why, "nonesuch"));
    picoquic_congestion_algorithm_t const *algorithm = ccplane_picoquic(argv[1], why, sizeof why);
    if (!algorithm) { fprintf(stderr, "%s\n", why); return 1; }
    picoquic_path_t path = {.smoothed_rtt = 20000, .rtt_min = 20000, .send_mtu = 1440, .bandwidth_estimate = 3000000};
    uint64_t now = clock_us();
    algorithm->alg_init(&path, NULL, now);
    assert(path.congestion_alg_state && path.cwin == PICOQUIC_CWIN_INITIAL && !path.is_ssthresh_initialized);
    assert(algorithm->ecn_mark == PICOQUIC_ECN_ECT_0);
    uint64_t most = 0, least = UINT64_MAX;
    for (int n = 0; n < 3000; n++) {
        picoquic_per_ack_state_t ack = {.rtt_measurement = 20000 + n % 7 * 100, .one_way_delay = 10000 + n % 7 * 100};
        // The algorithm runs on its own thread and thus in real time.
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        now = clock_us();
        sequence = n + 20;
        acked = n;
        path.bytes_in_transit = path.cwin - path.send_mtu;
        if (n % 500 == 499) {
            // The packet was sent before the path MTU was reduced.
            ack.nb_bytes_newly_lost = path.send_mtu + 160;
            algorithm->alg_notify(NULL, &path, n == 2499 ? picoquic_congestion_notification_timeout : picoquic_congestion_notification_repeat, &ack, now);
            if (path.cwin < least) least = path.cwin;
            losses++;
            continue;
        }
        if (n % 50 == 0) algorithm->alg_notify(NULL, &path, picoquic_congestion_notification_cwin_blocked, &ack, now);
        ack.nb_bytes_acknowledged = path.send_mtu;
        algorithm->alg_notify(NULL, &path, picoquic_congestion_notification_acknowledgement, &ack, now);
        if (path.cwin > most) most = path.cwin;
    }
    assert(losses == 6 && losses_passed_on == losses);
    assert(path.is_ssthresh_initialized || strcmp(argv[1], "reno"));
    uint64_t state, threshold;
    algorithm->alg_observe(&path, &state, &threshold);
    picoquic_per_ack_state_t nothing = {0};
    algorithm->alg_notify(NULL, &path, picoquic_congestion_notification_spurious_repeat, &nothing, now);
    algorithm->alg_notify(NULL, &path, picoquic_congestion_notification_reset, &nothing, now);
    assert(path.cwin == PICOQUIC_CWIN_INITIAL && !path.is_ssthresh_initialized);
    algorithm->alg_delete(&path);
    algorithm->alg_delete(&path);
    assert(!path.congestion_alg_state && paced);
    printf("{\"most\": %llu, \"least\": %llu, \"threshold\": %llu}\n", (unsigned long long)most, (unsigned long long)least, (unsigned long long)threshold);
    return 0;
}
