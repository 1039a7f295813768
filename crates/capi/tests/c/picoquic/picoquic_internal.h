// Declarations as in picoquic's picoquic_internal.h; see picoquic.h.
#ifndef PICOQUIC_INTERNAL_H
#define PICOQUIC_INTERNAL_H

#include "picoquic.h"

#define PICOQUIC_CWIN_INITIAL (10 * 1536)
#define PICOQUIC_CWIN_MINIMUM (2 * 1536)

struct st_picoquic_path_t {
    uint64_t cwin, bytes_in_transit, smoothed_rtt, rtt_min, bandwidth_estimate;
    size_t send_mtu;
    void *congestion_alg_state;
    unsigned int is_cc_data_updated : 1, is_ssthresh_initialized : 1;
};

void picoquic_update_pacing_data(picoquic_path_t *path_x, int slow_start);
void picoquic_update_pacing_rate(picoquic_path_t *path_x, double pacing_rate, uint64_t quantum);

#endif
