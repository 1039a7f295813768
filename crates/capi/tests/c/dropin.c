// A datapath written for libccp, and messages of its agent: valid ones, then each of them truncated
// at every length and with every byte modified. The messages are read from a file. Run under
// AddressSanitizer and UBSan.
#include <assert.h>
#include <ccp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Offsets in libccp's header.
_Static_assert(sizeof(struct ccp_primitives) == 88 && offsetof(struct ccp_primitives, snd_rate) == 72, "primitives");
_Static_assert(sizeof(struct ccp_connection) == 216 && offsetof(struct ccp_connection, state) == 192, "connection");
_Static_assert(offsetof(struct ccp_datapath, max_programs) == 104 && sizeof(struct ccp_datapath) == 128, "datapath");

static u64 clock_us = 1, windows, rates, messages, reports, logged;
static u64 last_field;

static void set_cwnd(struct ccp_connection *conn, u32 cwnd) { windows++, conn->prims.snd_cwnd = cwnd; }
static void set_rate_abs(struct ccp_connection *conn, u32 rate) { rates++, conn->prims.snd_rate = rate; }
static u64 now(void) { return clock_us; }
static u64 since_usecs(u64 then) { return clock_us - then; }
static u64 after_usecs(u64 usecs) { return clock_us + usecs; }

static int send_msg(struct ccp_datapath *dp, char *msg, int size) {
    u16 head[2];
    u32 fields = 0;
    (void)dp;
    assert(size >= 8);
    memcpy(head, msg, sizeof head);
    assert(head[1] == size);  // reads the entire message for ASan
    if (head[0] == 1) {
        memcpy(&fields, msg + 12, sizeof fields);
        assert(size == 16 + 8 * (int)fields);
        if (fields) memcpy(&last_field, msg + 16, sizeof last_field);
        reports += fields != 0;
    }
    messages++;
    return size;
}

static void log_line(struct ccp_datapath *dp, enum ccp_log_level level, const char *msg, int size) {
    (void)dp, (void)level;
    assert((size_t)size == strlen(msg));
    logged++;
}

// Copies exactly `size` bytes, so that ASan detects an access beyond the end.
static int say(struct ccp_datapath *dp, const char *bytes, size_t size) {
    char *copy = malloc(size ? size : 1);
    assert(copy);
    memcpy(copy, bytes, size);
    int code = ccp_read_msg(dp, copy, (int)size);
    free(copy);
    return code;
}

static void acks(struct ccp_connection *conn, int count) {
    for (int n = 0; n < count; n++) {
        clock_us += 1000;
        conn->prims.bytes_acked = 1460;
        conn->prims.packets_acked = 1;
        conn->prims.rtt_sample_us = 20000;
        conn->prims.lost_pkts_sample = n % 3 == 2;
        conn->prims.was_timeout = n % 7 == 6;
        ccp_invoke(conn);
    }
}

int main(int argc, char **argv) {
    static char file[1 << 16];
    FILE *from = argc == 2 ? fopen(argv[1], "rb") : NULL;
    assert(from);
    size_t length = fread(file, 1, sizeof file, from);
    fclose(from);

    struct ccp_connection *conns = calloc(4, sizeof *conns);
    struct ccp_datapath dp = {.set_cwnd = set_cwnd, .set_rate_abs = set_rate_abs, .send_msg = send_msg, .log = log_line, .now = now,
        .since_usecs = since_usecs, .after_usecs = after_usecs, .max_connections = 4, .ccp_active_connections = conns, .fto_us = 1000,
        .max_programs = 10};
    struct ccp_datapath_info info = {.init_cwnd = 14600, .mss = 1460, .congAlg = "reno"};
    assert(ccp_init(&dp, 3) == LIBCCP_OK);
    int mine;
    struct ccp_connection *conn = ccp_connection_start(&dp, &mine, &info);
    assert(conn && conn->index == 1 && ccp_get_impl(conn) == &mine && messages == 2);

    // Valid messages.
    for (size_t at = 0, size; at < length; at += size) {
        u16 head[2];
        memcpy(head, file + at, sizeof head);
        size = head[1];
        int code = say(&dp, file + at, size);
        if (code != LIBCCP_OK) {
            fprintf(stderr, "the message at %zu: %d\n", at, code);
            return 1;
        }
        acks(conn, 10);
    }
    struct ccp_counts counts;
    assert(ccp_get_counts(&dp, &counts) == LIBCCP_OK && counts.refused == 0);
    assert(windows && rates && reports);

    // Invalid messages: every byte takes all values that differ in one bit, and extreme values.
    u64 accepted = 0, tried = 0;
    for (size_t at = 0, size; at < length; at += size) {
        u16 head[2];
        memcpy(head, file + at, sizeof head);
        size = head[1];
        for (size_t cut = 0; cut < size; cut++) {
            int code = say(&dp, file + at, cut);
            assert(code < 0);
            tried++;
        }
        for (size_t byte = 0; byte < size; byte++) {
            char right = file[at + byte];
            for (int value = 0; value < 12; value++) {
                static const unsigned char extremes[] = {0, 1, 0x7f, 0xff};
                file[at + byte] = value < 8 ? (char)(right ^ 1 << value) : (char)extremes[value - 8];
                accepted += say(&dp, file + at, size) == LIBCCP_OK;
                tried++;
                acks(conn, 2);
            }
            file[at + byte] = right;
        }
        // Reuse the slot of a connection while programs change.
        ccp_connection_free(&dp, conn->index);
        conn = ccp_connection_start(&dp, &mine, &info);
        assert(conn && conn->index == 1);
    }
    u64 before = counts.messages;
    assert(ccp_get_counts(&dp, &counts) == LIBCCP_OK);
    assert(counts.messages - before == tried && counts.refused == tried - accepted);
    assert(counts.refused == counts.malformed + counts.programs + counts.table_full + counts.updates + counts.unknown);

    // The valid messages still work.
    for (size_t at = 0, size; at < length; at += size) {
        u16 head[2];
        memcpy(head, file + at, sizeof head);
        size = head[1];
        assert(say(&dp, file + at, size) == LIBCCP_OK);
    }
    u64 reports_before = reports;
    acks(conn, 50);
    assert(reports > reports_before);
    ccp_connection_free(&dp, 1);
    ccp_free(&dp);
    free(conns);
    printf("{\"tried\": %llu, \"accepted\": %llu, \"malformed\": %llu, \"programs\": %llu, \"table_full\": %llu, \"updates\": %llu, "
           "\"unknown\": %llu, \"logged\": %llu}\n",
        (unsigned long long)tried, (unsigned long long)accepted, (unsigned long long)counts.malformed, (unsigned long long)counts.programs,
        (unsigned long long)counts.table_full, (unsigned long long)counts.updates, (unsigned long long)counts.unknown,
        (unsigned long long)logged);
    return 0;
}
