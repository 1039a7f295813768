// A custom transport on UDP sockets, controlled by any of ccplane's algorithms. It has sequence
// numbers, acknowledgements, loss detection, retransmission and pacing. Between its two sockets the
// program also emulates a bottleneck with a rate, a delay and a drop-tail queue.
//
//     cc -O2 examples/c/udp.c $(pkg-config --cflags --libs ccplane) -o udp && ./udp cubic --seconds
//     10
//
// It prints the results as a line of JSON. Time is virtual unless --real is given. The sockets are
// real in both cases; with virtual time the result does not depend on other processes. The part
// that a datapath needs for ccplane is `struct sender`, from `acknowledged` on.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ccplane.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    PAYLOAD = 1448,          // bytes after the packet header: 1500 with it, UDP and IPv4
    RING = 1 << 14,          // maximum packets in flight
    LEAST_WINDOW = 2,        // packets (RFC 9002, 7.2)
    REORDERING = 3,          // packet threshold of loss detection (RFC 9002, 6.1.1)
};
#define MSS ((uint64_t)PAYLOAD)
#define NEVER UINT64_MAX
#define MS 1000000ull
#define SECOND 1000000000ull

static uint64_t min_of(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t max_of(uint64_t a, uint64_t b) { return a > b ? a : b; }

static void fail(const char *what) {
    perror(what);
    exit(1);
}

// ---- Wire format ----

// Data packet with its own number and the number of the piece of the stream that it carries. A
// retransmitted piece gets a new packet number.
struct data {
    uint64_t number, piece, unused;
    unsigned char payload[PAYLOAD];
};

// Received packets: `newest`, and those of the 64 before it whose bit is set. `next` is the first
// missing piece.
struct ack {
    uint64_t newest, before, next;
};

static int open_socket(struct sockaddr_in *address) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t length = sizeof *address;
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = 1};
    if (fd < 0 || bind(fd, (struct sockaddr *)address, length) || getsockname(fd, (struct sockaddr *)address, &length) ||
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience))
        fail("a UDP socket on the loopback address");
    return fd;
}

// ---- Bottleneck: a pair of sockets in the middle ----

struct held {
    uint64_t due, queued;
    size_t length;
    struct data datagram;
};

// One direction. Datagrams are held in the order of `due`.
struct link {
    uint64_t rate, delay, most;  // bytes/s, or 0: no bottleneck; ns; queue limit, bytes
    uint64_t free, dropped;      // time at which the link is idle
    size_t first, count;
    struct held *held;
};

static void link_take(struct link *link, uint64_t now, const void *datagram, size_t length) {
    uint64_t size = length + 28, due = now, waits = 0;
    uint64_t start = max_of(now, link->free);
    bool full = link->rate && (start - now) * link->rate / SECOND + size > link->most;
    if (full || link->count == RING) {
        link->dropped++;
        return;
    }
    if (link->rate) {
        link->free = due = start + size * SECOND / link->rate;
        waits = start - now;
    }
    struct held *held = &link->held[(link->first + link->count++) % RING];
    held->due = due + link->delay;
    held->queued = waits;
    held->length = length;
    memcpy(&held->datagram, datagram, length);
}

static const struct held *link_due(struct link *link, uint64_t now) {
    const struct held *held = &link->held[link->first];
    if (!link->count || held->due > now) return NULL;
    link->first = (link->first + 1) % RING;
    link->count--;
    return held;
}

static uint64_t link_next(const struct link *link) { return link->count ? link->held[link->first].due : NEVER; }

// ---- Receiver ----

struct receiver {
    uint64_t newest, before, next, arrived, corrupt;
    bool any, there[RING];
};

static struct ack receiver_take(struct receiver *r, const struct data *data) {
    if (!r->any || data->number > r->newest) {
        uint64_t step = r->any ? data->number - r->newest : 64;
        r->before = step > 64 ? 0 : (step == 64 ? 0 : r->before << step) | (r->any ? 1ull << (step - 1) : 0);
        r->newest = data->number;
        r->any = true;
    } else if (r->newest > data->number && r->newest - data->number <= 64) {
        r->before |= 1ull << (r->newest - data->number - 1);
    }
    for (size_t n = 0; n < PAYLOAD; n += 97) r->corrupt += data->payload[n] != (unsigned char)(data->piece + n);
    if (data->piece >= r->next && data->piece < r->next + RING && !r->there[data->piece % RING]) {
        r->there[data->piece % RING] = true;
        r->arrived++;
        while (r->there[r->next % RING]) r->there[r->next++ % RING] = false;
    }
    return (struct ack){.newest = r->newest, .before = r->before, .next = r->next};
}

// ---- Sender ----

enum state { SETTLED, FLYING, EARLY };  // EARLY: acknowledged while an older packet is in flight
enum phase { OPEN, RECOVERY, TIMEOUT };

struct packet {
    enum state state;
    uint64_t piece, sent;
    // For the delivery rate: packets delivered when this one was sent, the time of that delivery,
    // and the send time of the packet delivered last.
    uint64_t delivered, delivered_at, first_sent;
};

struct sender {
    ccplane_datapath *plane;
    uint64_t flow;
    bool open;                     // the handshake is complete
    struct packet packets[RING];
    uint64_t edge, next;           // the oldest packet in flight, and the next number
    uint64_t flying;               // packets
    uint64_t again[RING];          // pieces to retransmit
    size_t again_first, again_count;
    uint64_t piece, limit;         // next new piece; the receiver accepts pieces below the limit
    uint64_t cwnd, ssthresh, rate; // bytes, bytes, bytes/s as set by the algorithm
    uint64_t srtt, variation, min_rtt;
    uint64_t delivered, delivered_at, first_sent;
    // Reduction. It ends when a packet sent after its start is acknowledged; proportional rate
    // reduction (RFC 9937) leads to `target`.
    enum phase phase;
    uint64_t target, end, prr_flight, prr_delivered, prr_out;
    bool answered;                 // the algorithm has set a window since the last timeout
    uint64_t round_end, most_flying;
    bool window_full, cwnd_limited;
    uint64_t pace, timeout, backoff;
    uint64_t acked_bytes, lost_packets, sent_packets;
};

static bool reducing(const struct sender *s) { return s->phase == RECOVERY; }

// Window as the algorithm sees and sets it: during a reduction, its target.
static uint64_t steered(const struct sender *s) { return reducing(s) && s->prr_flight ? s->target : s->cwnd; }

static void set_window(struct sender *s, uint64_t cwnd) {
    s->cwnd = min_of(max_of(cwnd, LEAST_WINDOW * MSS), (RING / 2) * MSS);
}

static void begin_reduction(struct sender *s, enum phase phase) {
    s->target = s->ssthresh = max_of(s->cwnd / 2 / MSS, LEAST_WINDOW) * MSS;
    s->prr_flight = s->prr_delivered = s->prr_out = 0;
    s->phase = phase;
    s->end = s->next;
}

static void prr(struct sender *s, uint64_t newly, bool safe) {
    if (!s->prr_flight) s->prr_flight = max_of(s->flying + newly, 1);
    if (!newly) return;
    s->prr_delivered += newly;
    uint64_t target = max_of(s->target / MSS, 1);
    int64_t more;
    if (s->flying > target)
        more = (int64_t)((s->prr_delivered * target + s->prr_flight - 1) / s->prr_flight) - (int64_t)s->prr_out;
    else {
        int64_t behind = (int64_t)s->prr_delivered - (int64_t)s->prr_out;
        more = (behind > (int64_t)newly ? behind : (int64_t)newly) + safe;
        if (more > (int64_t)(target - s->flying)) more = (int64_t)(target - s->flying);
    }
    if (!s->prr_out && more < 1) more = 1;
    set_window(s, (s->flying + (more > 0 ? (uint64_t)more : 0)) * MSS);
}

// Applies the algorithm's outcome.
static void apply(struct sender *s, const ccplane_outcome *outcome, uint64_t newly, bool safe) {
    bool window = outcome->flags & CCPLANE_CWND, threshold = outcome->flags & CCPLANE_SSTHRESH;
    uint64_t seen = steered(s);
    s->rate = outcome->rate;
    if (threshold) s->ssthresh = max_of(outcome->ssthresh, LEAST_WINDOW * MSS);
    if (reducing(s) && s->ssthresh != UINT64_MAX) {
        if (window && outcome->cwnd < seen)
            s->target = max_of(outcome->cwnd, LEAST_WINDOW * MSS);
        else if (!window && threshold)
            s->target = s->ssthresh;
        prr(s, newly, safe);
        return;
    }
    if (reducing(s)) {  // No threshold (BBR): the window applies at once.
        s->target = outcome->cwnd;
        s->prr_flight = 0;
    }
    if (window) {
        s->answered |= !(outcome->flags & CCPLANE_LIMITED);
        set_window(s, outcome->cwnd);
    } else if (s->phase == TIMEOUT && !s->answered && s->cwnd < s->ssthresh) {
        set_window(s, min_of(s->cwnd + newly * MSS, s->ssthresh));
    }
}

static ccplane_transport transport_of(const struct sender *s, uint64_t now) {
    return (ccplane_transport){
        .size = sizeof(ccplane_transport), .now_ns = now, .cwnd = steered(s), .rate = s->rate, .ssthresh = s->ssthresh};
}

static void check(int code) {
    if (code == CCPLANE_OK) return;
    fprintf(stderr, "ccplane: %s\n", ccplane_strerror(code));
    exit(1);
}

static void tell(struct sender *s, uint64_t now, ccplane_signals *signals, uint64_t newly) {
    bool slow_start = s->cwnd < s->ssthresh;
    signals->size = sizeof *signals;
    signals->packets_in_flight = s->flying;
    signals->bytes_in_flight = s->flying * MSS;
    signals->bytes_pending = (s->flying + s->again_count) * MSS + (1 << 20);
    signals->srtt_us = s->srtt / 1000;
    signals->min_rtt_us = s->min_rtt / 1000;
    signals->mss = MSS;
    signals->in_recovery = s->phase != OPEN;
    signals->paced = 1;
    signals->cwnd_limited = s->cwnd_limited || (slow_start && s->cwnd < 2 * s->most_flying * MSS);
    ccplane_transport transport = transport_of(s, now);
    ccplane_outcome outcome = {.size = sizeof outcome};
    check(ccplane_on_ack(s->plane, s->flow, &transport, signals, &outcome));
    apply(s, &outcome, newly, signals->bytes_acked && !signals->lost_pkts_sample);
    if (signals->was_timeout && !s->answered) set_window(s, LEAST_WINDOW * MSS);
}

static void settle_edge(struct sender *s, ccplane_signals *signals) {
    for (; s->edge < s->next && s->packets[s->edge % RING].state != FLYING; s->edge++) {
        struct packet *packet = &s->packets[s->edge % RING];
        if (packet->state == EARLY) signals->bytes_acked += MSS;
        packet->state = SETTLED;
    }
}

static void lose(struct sender *s, struct packet *packet, ccplane_signals *signals) {
    packet->state = SETTLED;
    s->flying--;
    s->lost_packets++;
    signals->lost_pkts_sample++;
    s->again[(s->again_first + s->again_count++) % RING] = packet->piece;
}

static void rtt_sample(struct sender *s, uint64_t rtt) {
    int64_t error = (int64_t)rtt - (int64_t)s->srtt;
    if (!s->srtt) {
        s->srtt = rtt;
        s->variation = rtt / 2;
        return;
    }
    s->srtt += error / 8;
    s->variation += ((error < 0 ? -error : error) - (int64_t)s->variation) / 4;
    s->min_rtt = min_of(s->min_rtt, rtt);
}

static uint64_t timeout_of(const struct sender *s) {
    return (s->srtt ? s->srtt + max_of(4 * s->variation, 200 * MS) : SECOND) << min_of(s->backoff, 6);
}

// Processes an ACK: acknowledged packets, revealed losses, and samples of RTT and rate. Then calls
// the algorithm.
static void acknowledged(struct sender *s, uint64_t now, const struct ack *ack) {
    ccplane_signals signals = {0};
    struct packet latest = {0};
    uint64_t newly = 0, largest = 0;
    s->limit = max_of(s->limit, ack->next + RING / 2);
    for (int bit = 64; bit >= 0; bit--) {
        if (ack->newest < (uint64_t)bit || (bit && !(ack->before >> (bit - 1) & 1))) continue;
        uint64_t number = ack->newest - bit;
        struct packet *packet = &s->packets[number % RING];
        if (number < s->edge || number >= s->next || packet->state != FLYING) continue;
        bool in_order = number == s->edge;
        packet->state = in_order ? SETTLED : EARLY;
        if (in_order) {
            signals.packets_acked++;
            signals.bytes_acked += MSS;
            settle_edge(s, &signals);
        } else {
            signals.packets_misordered++;
            signals.bytes_misordered += MSS;
        }
        s->flying--;
        newly++;
        largest = number;
        latest = *packet;
    }
    if (!newly) return;
    s->acked_bytes += newly * MSS;
    s->backoff = 0;
    uint64_t rtt = now - latest.sent, patience = max_of(rtt, s->srtt) * 9 / 8;
    rtt_sample(s, rtt);
    signals.rtt_sample_us = rtt / 1000;
    // Delivery rate, see draft-cheng-iccrg-delivery-rate-estimation.
    s->delivered += newly;
    s->delivered_at = now;
    s->first_sent = latest.sent;
    uint64_t bytes = (s->delivered - latest.delivered) * MSS, send = latest.sent - latest.first_sent, came = now - latest.delivered_at;
    if (max_of(send, came) >= s->min_rtt) {
        signals.rate_outgoing = send ? bytes * SECOND / send : 0;
        signals.rate_incoming = came ? bytes * SECOND / came : 0;
    }
    if (s->phase != OPEN && largest >= s->end) {
        if (s->phase == RECOVERY) set_window(s, s->target / MSS * MSS);
        s->phase = OPEN;
    }
    bool news = false;
    for (uint64_t number = s->edge; number < largest; number++) {
        struct packet *packet = &s->packets[number % RING];
        if (packet->state != FLYING || (largest - number < REORDERING && now - packet->sent < patience)) continue;
        lose(s, packet, &signals);
        news |= number >= s->end;
    }
    settle_edge(s, &signals);
    if (news && s->phase == OPEN) begin_reduction(s, RECOVERY);
    if (s->edge >= s->round_end) {
        s->cwnd_limited = s->window_full;
        s->window_full = false;
        s->most_flying = s->flying + newly;
        s->round_end = s->next;
    }
    s->timeout = s->flying || s->again_count ? now + timeout_of(s) : NEVER;
    tell(s, now, &signals, newly);
}

// Retransmission timeout: everything in flight is lost.
static void timed_out(struct sender *s, uint64_t now) {
    ccplane_signals signals = {.was_timeout = 1};
    for (uint64_t number = s->edge; number < s->next; number++)
        if (s->packets[number % RING].state == FLYING) lose(s, &s->packets[number % RING], &signals);
    settle_edge(s, &signals);
    begin_reduction(s, TIMEOUT);
    s->answered = false;
    s->backoff++;
    s->timeout = now + timeout_of(s);
    tell(s, now, &signals, 0);
}

// Pacing rate: as set by the algorithm, or a multiple of one window per RTT as in Linux.
static uint64_t pacing(const struct sender *s) {
    if (s->rate) return s->rate;
    return s->srtt ? s->cwnd * (s->cwnd < s->ssthresh ? 200 : 120) / 100 * SECOND / s->srtt : 0;
}

static bool may_send(struct sender *s) {
    bool more = s->again_count || s->piece < s->limit;
    if (!s->open || !more || s->next - s->edge >= RING / 2) return false;
    if ((s->flying + 1) * MSS <= s->cwnd) return true;
    s->window_full = true;
    return false;
}

static size_t next_packet(struct sender *s, uint64_t now, struct data *data) {
    uint64_t piece;
    if (s->again_count) {
        piece = s->again[s->again_first];
        s->again_first = (s->again_first + 1) % RING;
        s->again_count--;
    } else {
        piece = s->piece++;
    }
    if (!s->flying) s->first_sent = s->delivered_at = now;
    s->packets[s->next % RING] = (struct packet){.state = FLYING, .piece = piece, .sent = now, .delivered = s->delivered,
        .delivered_at = s->delivered_at, .first_sent = s->first_sent};
    *data = (struct data){.number = s->next++, .piece = piece};
    for (size_t n = 0; n < PAYLOAD; n++) data->payload[n] = (unsigned char)(piece + n);
    s->most_flying = max_of(s->most_flying, ++s->flying);
    s->sent_packets++;
    if (reducing(s)) s->prr_out++;
    if (s->timeout == NEVER) s->timeout = now + timeout_of(s);
    uint64_t rate = pacing(s);
    // A late clock may be compensated by up to two packets.
    uint64_t gap = rate ? MSS * SECOND / rate : 0;
    s->pace = max_of(s->pace, now > 2 * gap ? now - 2 * gap : 0) + gap;
    return sizeof *data;
}

// ---- Main loop ----

static bool virtual_time = true;
static uint64_t virtual_now = SECOND;

static uint64_t clock_now(void) {
    if (virtual_time) return virtual_now;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

// In virtual time, waits for each sent datagram, since nothing else may happen before it arrives.
static ssize_t take(int fd, void *datagram, size_t room, unsigned *sent) {
    if (virtual_time && !*sent) return -1;
    ssize_t length = recv(fd, datagram, room, virtual_time ? 0 : MSG_DONTWAIT);
    if (virtual_time && length < 0) fail("a datagram of the loopback address was lost");
    if (*sent) --*sent;
    return length;
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    const char *algorithm = "cubic";
    double seconds = 10, mbit = 24, rtt_ms = 20, bdp = 1;
    for (int n = 1; n < argc; n++) {
        const char *word = argv[n];
        if (!strcmp(word, "--real")) virtual_time = false;
        else if (word[0] != '-') algorithm = word;
        else if (n + 1 == argc) { fprintf(stderr, "%s takes a number\n", word); return 2; }
        else if (!strcmp(word, "--seconds")) seconds = atof(argv[++n]);
        else if (!strcmp(word, "--mbit")) mbit = atof(argv[++n]);
        else if (!strcmp(word, "--rtt-ms")) rtt_ms = atof(argv[++n]);
        else if (!strcmp(word, "--queue-bdp")) bdp = atof(argv[++n]);
        else { fprintf(stderr, "udp [ALGORITHM] [--seconds N] [--mbit N] [--rtt-ms N] [--queue-bdp N] [--real]\n"); return 2; }
    }
    ccplane_error error = {.size = sizeof error};
    ccplane_options options = {
        .size = sizeof options,
        .algorithm = algorithm,
        .capabilities = CCPLANE_CAN_CWND | CCPLANE_CAN_PACING | CCPLANE_CAN_RTT | CCPLANE_CAN_DELIVERY_RATE | CCPLANE_CAN_TIMERS |
                        CCPLANE_CAN_RECOVERY,
        .flags = virtual_time ? CCPLANE_SAME_THREAD : 0,
        .min_cwnd = LEAST_WINDOW * MSS,
    };
    static struct sender s;
    static struct receiver receiver;
    s.plane = ccplane_open(&options, &error);
    if (!s.plane) { fprintf(stderr, "%s\n", error.message); return 1; }

    struct sockaddr_in at_sender, at_receiver, at_link, at_back;
    int sender_fd = open_socket(&at_sender), receiver_fd = open_socket(&at_receiver);
    int link_fd = open_socket(&at_link), back_fd = open_socket(&at_back);
    unsigned to_link = 0, to_receiver = 0, to_back = 0, to_sender = 0;
    uint64_t rate = (uint64_t)(mbit * 1e6 / 8), delay = (uint64_t)(rtt_ms / 2 * MS);
    struct link forth = {.rate = rate, .delay = delay, .most = (uint64_t)(bdp * (double)rate * rtt_ms / 1000)}, back = {.delay = delay};
    forth.held = calloc(RING, sizeof *forth.held);
    back.held = calloc(RING, sizeof *back.held);
    uint64_t *waits = calloc(1 << 22, sizeof *waits), waited = 0;
    if (!forth.held || !back.held || !waits) fail("memory");

    uint64_t begin = clock_now(), end = begin + (uint64_t)(seconds * SECOND), now = begin, fallen = 0;
    s.cwnd = 10 * MSS;
    s.ssthresh = s.timeout = NEVER;
    s.limit = RING / 2;
    ccplane_flow_info info = {.size = sizeof info, .mss = MSS, .init_cwnd = s.cwnd};
    check(ccplane_flow_open(s.plane, now, &info, &s.flow));

#define SEND(from, to, bytes, length, count) \
    do { if (sendto(from, bytes, length, 0, (struct sockaddr *)&(to), sizeof(to)) < 0) fail("sendto"); (count)++; } while (0)
    // Handshake of two small packets: measures the minimum RTT before the flow fills a queue.
    SEND(sender_fd, at_link, &(struct ack){.newest = NEVER}, sizeof(struct ack), to_link);
    while ((now = clock_now()) < end) {
        struct data data;
        struct ack ack;
        const struct held *held;
        ssize_t length;
        check(ccplane_turn(s.plane, now));
        if (now >= ccplane_next_deadline(s.plane, s.flow)) {
            ccplane_transport transport = transport_of(&s, now);
            ccplane_outcome outcome = {.size = sizeof outcome};
            check(ccplane_on_deadline(s.plane, s.flow, &transport, &outcome));
            apply(&s, &outcome, 0, false);
            fallen += !!(outcome.flags & CCPLANE_FALLBACK);
        }
        if (now >= s.timeout) timed_out(&s, now);
        while (now >= s.pace && may_send(&s)) SEND(sender_fd, at_link, &data, next_packet(&s, now, &data), to_link);
        while ((length = take(link_fd, &data, sizeof data, &to_link)) > 0) link_take(&forth, now, &data, (size_t)length);
        while ((held = link_due(&forth, now))) {
            if (waited < 1 << 22) waits[waited++] = held->queued;
            SEND(link_fd, at_receiver, &held->datagram, held->length, to_receiver);
        }
        while ((length = take(receiver_fd, &data, sizeof data, &to_receiver)) > 0) {
            ack = length == sizeof data ? receiver_take(&receiver, &data) : (struct ack){.newest = NEVER};
            SEND(receiver_fd, at_back, &ack, sizeof ack, to_back);
        }
        while ((length = take(back_fd, &ack, sizeof ack, &to_back)) > 0) link_take(&back, now, &ack, (size_t)length);
        while ((held = link_due(&back, now))) SEND(back_fd, at_sender, &held->datagram, held->length, to_sender);
        while (take(sender_fd, &ack, sizeof ack, &to_sender) == sizeof ack) {
            if (s.open) acknowledged(&s, now, &ack);
            else s.min_rtt = now - begin;
            s.open = true;
        }

        // Waits for the next deadline or, in real time, for a datagram.
        uint64_t due = min_of(min_of(link_next(&forth), link_next(&back)), min_of(s.timeout, end));
        due = min_of(due, min_of(ccplane_next_deadline(s.plane, s.flow), ccplane_next_deadline(s.plane, 0)));
        if (may_send(&s)) due = min_of(due, s.pace);
        if (virtual_time) {
            virtual_now = max_of(now, due);
            continue;
        }
        now = clock_now();
        struct timespec wait = {.tv_sec = 0, .tv_nsec = due > now ? (long)min_of(due - now, SECOND - 1) : 0};
        struct pollfd fds[] = {{.fd = sender_fd, .events = POLLIN}, {.fd = receiver_fd, .events = POLLIN}, {.fd = link_fd, .events = POLLIN},
            {.fd = back_fd, .events = POLLIN}, {.fd = ccplane_fd(s.plane), .events = POLLIN}};
        ppoll(fds, 5, &wait, NULL);
    }
    check(ccplane_flow_close(s.plane, now, s.flow, s.acked_bytes, s.lost_packets));
    ccplane_stats stats = {.size = sizeof stats};
    check(ccplane_get_stats(s.plane, &stats));
    check(ccplane_close(s.plane));
    qsort(waits, waited, sizeof *waits, by_value);
    double sum = 0;
    for (uint64_t n = 0; n < waited; n++) sum += (double)waits[n];
    printf("{\"algorithm\": \"%s\", \"goodput_mbit\": %.3f, \"queue_median_ms\": %.3f, \"queue_mean_ms\": %.3f, \"sent\": %llu, \"lost\": %llu, \"dropped\": %llu, "
           "\"reports\": %llu, \"fallbacks\": %llu, \"corrupt\": %llu}\n",
        algorithm, (double)(receiver.arrived * MSS) * 8 / seconds / 1e6, waited ? (double)waits[waited / 2] / MS : 0,
        waited ? sum / (double)waited / MS : 0,
        (unsigned long long)s.sent_packets, (unsigned long long)s.lost_packets, (unsigned long long)forth.dropped,
        (unsigned long long)stats.reports, (unsigned long long)(stats.fallbacks + fallen), (unsigned long long)receiver.corrupt);
    free(forth.held);
    free(back.held);
    free(waits);
    return 0;
}
