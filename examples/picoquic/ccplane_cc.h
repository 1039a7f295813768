// ccplane's algorithms as a congestion control of picoquic.
#ifndef CCPLANE_CC_H
#define CCPLANE_CC_H

#include "picoquic.h"

// Returns the algorithm with this name, such as `cubic:report=10ms` or `./mine.ccp`, for
// picoquic_set_default_congestion_algorithm. Returns null on failure and stores the reason in
// `why`. Call it once, on the thread that runs picoquic.
picoquic_congestion_algorithm_t const *ccplane_picoquic(char const *algorithm, char *why, size_t room);

#endif
