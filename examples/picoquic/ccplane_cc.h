// Any of ccplane's algorithms as a congestion control of picoquic's.
#ifndef CCPLANE_CC_H
#define CCPLANE_CC_H

#include "picoquic.h"

// The algorithm of this name, `cubic:report=10ms` or `./mine.ccp`, for
// picoquic_set_default_congestion_algorithm. Null: `why` says so, in words. Call it once, from the
// thread that runs picoquic.
picoquic_congestion_algorithm_t const *ccplane_picoquic(char const *algorithm, char *why, size_t room);

#endif
