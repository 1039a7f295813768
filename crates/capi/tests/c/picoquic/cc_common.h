// Declarations as in picoquic's cc_common.h; see picoquic.h.
#ifndef CC_COMMON_H
#define CC_COMMON_H

#include "picoquic_internal.h"

uint64_t picoquic_cc_get_sequence_number(picoquic_cnx_t *cnx, picoquic_path_t *path_x);
uint64_t picoquic_cc_get_ack_number(picoquic_cnx_t *cnx, picoquic_path_t *path_x);

#endif
