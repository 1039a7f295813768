// Functions of ccplane.h under AddressSanitizer and UBSan: structs in exactly sized allocations,
// each argument invalid in turn, and calls in random order.
#include <assert.h>
#include <ccplane.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed = 1;
static uint64_t draw(uint64_t below) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % below;
}

// Allocates a struct of `size` bytes whose size field is `says`.
static void *sized(const void *from, size_t size, size_t says) {
    size_t *copy = malloc(size);
    assert(copy);
    memcpy(copy, from, size);
    *copy = says;
    return copy;
}

int main(void) {
    assert(strlen(ccplane_version()) > 4 && strcmp(ccplane_strerror(CCPLANE_OK), ccplane_strerror(CCPLANE_ENULL)));
    ccplane_error error = {.size = sizeof error};
    ccplane_options options = {.size = sizeof options, .algorithm = "reno", .capabilities = 255, .flags = CCPLANE_SAME_THREAD};
    // An older struct that ends before `min_cwnd`, and one that is too short.
    ccplane_options *shorter = sized(&options, offsetof(ccplane_options, min_cwnd), offsetof(ccplane_options, min_cwnd));
    ccplane_datapath *datapath = ccplane_open(shorter, &error);
    assert(datapath);
    shorter->size = offsetof(ccplane_options, capabilities);
    assert(!ccplane_open(shorter, &error) && error.code == CCPLANE_ESIZE && *error.message);
    free(shorter);

    uint64_t flows[8] = {0}, now = 1, outcomes = 0;
    for (int n = 0; n < 300000; n++) {
        uint64_t which = draw(8), flow = draw(20) ? flows[which] : draw(UINT64_MAX);
        now += draw(1000000);
        ccplane_transport transport = {.size = sizeof transport, .now_ns = now, .cwnd = draw(1 << 20), .ssthresh = UINT64_MAX};
        ccplane_signals signals = {.size = sizeof signals, .bytes_acked = draw(1 << 16), .packets_acked = draw(10),
            .lost_pkts_sample = draw(50) == 0, .was_timeout = draw(500) == 0, .rtt_sample_us = draw(100000), .mss = 1448};
        ccplane_outcome outcome = {.size = sizeof outcome};
        int code;
        switch (draw(16)) {
        case 0: {
            ccplane_flow_info info = {.size = sizeof info, .mss = 1448, .local = "192.0.2.1:1"};
            if (flows[which]) ccplane_flow_close(datapath, now, flows[which], 0, 0);
            assert(ccplane_flow_open(datapath, now, &info, &flows[which]) == CCPLANE_OK);
            break;
        }
        case 1:
            code = ccplane_flow_close(datapath, now, flow, draw(1000), draw(10));
            assert(code == CCPLANE_OK || code == CCPLANE_ENOFLOW);
            break;
        case 2:
            assert(ccplane_turn(datapath, now) == CCPLANE_OK);
            break;
        case 3:
            code = ccplane_on_deadline(datapath, flow, &transport, &outcome);
            assert(code == CCPLANE_OK || code == CCPLANE_ENOFLOW);
            break;
        case 4: {
            // Various sizes, each exactly allocated, so that ASan detects an access beyond the end.
            size_t size = draw(sizeof signals / 8 + 1) * 8;
            if (size < 8) size = 8;
            ccplane_signals *some = sized(&signals, size, draw(4) ? size : draw(size));
            code = ccplane_on_ack(datapath, flow, &transport, some, &outcome);
            assert(code == CCPLANE_OK || code == CCPLANE_ENOFLOW || code == CCPLANE_ESIZE);
            free(some);
            break;
        }
        case 5:
            ccplane_next_deadline(datapath, flow);
            break;
        default:
            code = ccplane_on_ack(datapath, flow, &transport, &signals, &outcome);
            assert(code == CCPLANE_OK || code == CCPLANE_ENOFLOW);
            assert(code != CCPLANE_OK || outcome.cwnd >= 1220);
            outcomes += code == CCPLANE_OK;
        }
    }
    ccplane_stats stats = {.size = sizeof stats};
    assert(ccplane_get_stats(datapath, &stats) == CCPLANE_OK && stats.reports && outcomes > 1000);
    assert(ccplane_fd(datapath) == CCPLANE_ENOFD);
    assert(ccplane_close(datapath) == CCPLANE_OK && ccplane_close(datapath) == CCPLANE_ECLOSED);
    assert(ccplane_turn(datapath, now) == CCPLANE_ECLOSED && ccplane_fd(datapath) == CCPLANE_ECLOSED);
    assert(ccplane_close(NULL) == CCPLANE_ENULL);

    options.flags = 0;
    options.algorithm = "bbr";
    datapath = ccplane_open(&options, &error);
    assert(datapath && ccplane_fd(datapath) >= 0 && ccplane_close(datapath) == CCPLANE_OK);
    printf("{\"outcomes\": %llu, \"reports\": %llu}\n", (unsigned long long)outcomes, (unsigned long long)stats.reports);
    return 0;
}
