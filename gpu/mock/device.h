/* The stand-in device: one board in shared memory on which the work of all processes takes its time.
 *
 * Each stream is a queue. Whoever calls in advances the whole board to the present, exactly: rates change only where an
 * operation ends or is added, and both happen under the one lock. So a process that sleeps misses nothing, and an event's
 * time does not depend on when it was looked at. Processes that died are forgotten within 20 ms.
 *
 * Rates: a process has a share of the SMs (1, or its MPS percentage). With the shares of all that have work in flight
 * summing to S, each runs at share / (1 + contention * max(0, S - 1)): two processes under time slicing at one half, under
 * MPS 30/70 at 0.3 and 0.7. Streams of one process divide its rate. Copies over the bus divide their engine.
 */
#ifndef ELASTICO_MOCK_DEVICE_H
#define ELASTICO_MOCK_DEVICE_H

#include "script.h"
#include <errno.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define BOARD_CLIENTS 16
#define BOARD_QUEUES 48
#define BOARD_RING 1024
#define BOARD_DEVICES 8
#define BOARD_MAGIC 0x454c4d33u

enum work { WORK_COMPUTE, WORK_TO_DEVICE, WORK_TO_HOST, WORK_MARKER, WORK_WAIT };

struct operation {
    double remaining; /* ns at full rate */
    uint64_t sequence; /* WAIT: of the operation waited for */
    uint64_t begun, done; /* CLOCK_MONOTONIC, ns */
    int kind;
    int queue; /* WAIT: which queue is waited for */
};

struct queue {
    int used, device, closing;
    double share; /* of the process: below 1 in a green context */
    uint64_t head, tail;
};

struct client {
    int process;
    uint64_t started;
    double share;
    uint64_t memory[BOARD_DEVICES];
    int opened; /* queues beyond were never used */
    struct queue queues[BOARD_QUEUES];
    struct operation rings[BOARD_QUEUES][BOARD_RING];
};

struct board {
    uint32_t magic;
    pthread_mutex_t lock;
    uint64_t now, checked;
    struct client clients[BOARD_CLIENTS];
};

static double least(double a, double b) { return a < b ? a : b; }
static double most(double a, double b) { return a > b ? a : b; }
static double rounded_up(double value) { return (double)(uint64_t)value + ((double)(uint64_t)value < value); }

static struct board *board;
static struct client *board_self;
static double board_contention;

/* Field 22 of /proc/PID/stat: with the id it names a process for good. 0: no such process, or a zombie. */
static uint64_t process_started(int process) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    if (size <= 0) return 0;
    text[size] = 0;
    char *at = strrchr(text, ')');
    if (!at || at[2] == 'Z' || at[2] == 'X') return 0;
    at += 2;
    for (int field = 3; field < 22 && at; field++) at = (at = strchr(at, ' ')) ? at + 1 : NULL;
    return at ? strtoull(at, NULL, 10) : 0;
}

static struct operation *board_operation(struct client *client, int queue, uint64_t sequence) {
    return &client->rings[queue][sequence % BOARD_RING];
}

/* The running operation of a queue. */
static struct operation *board_first(struct client *client, int index) {
    const struct queue *queue = &client->queues[index];
    return queue->used && queue->head < queue->tail ? board_operation(client, index, queue->head) : NULL;
}

static bool board_satisfied(const struct client *client, const struct operation *operation) {
    const struct queue *other = &client->queues[operation->queue];
    return !other->used || other->head > operation->sequence;
}

/* Ends all operations that need no more time. */
static void board_settle(uint64_t now) {
    for (bool changed = true; changed;) {
        changed = false;
        for (int c = 0; c < BOARD_CLIENTS; c++) {
            struct client *client = &board->clients[c];
            if (!client->process) continue;
            for (int q = 0; q < client->opened; q++) {
                for (struct operation *first; (first = board_first(client, q));) {
                    if (!first->begun) first->begun = now;
                    if (first->kind == WORK_WAIT ? !board_satisfied(client, first) : first->remaining > 0.5) break;
                    first->done = now;
                    client->queues[q].head++;
                    changed = true;
                }
            }
        }
    }
}

/* How fast each first operation runs: rates[client][queue]. Returns whether anything runs. */
static bool board_rates(double rates[BOARD_CLIENTS][BOARD_QUEUES]) {
    double active[BOARD_CLIENTS][BOARD_DEVICES] = {{0}}, sum[BOARD_DEVICES] = {0};
    int engines[BOARD_DEVICES][3] = {{0}};
    bool running = false;
    memset(rates, 0, sizeof(double[BOARD_CLIENTS][BOARD_QUEUES]));
    for (int c = 0; c < BOARD_CLIENTS; c++) {
        struct client *client = &board->clients[c];
        if (!client->process) continue;
        for (int q = 0; q < client->opened; q++) {
            const struct queue *queue = &client->queues[q];
            const struct operation *first = board_first(client, q);
            if (!first || first->kind >= WORK_MARKER) continue;
            if (first->kind == WORK_COMPUTE) active[c][queue->device] += queue->share;
            else engines[queue->device][first->kind]++;
            running = true;
        }
        for (int d = 0; d < BOARD_DEVICES; d++) sum[d] += client->share * least(1, active[c][d]);
    }
    for (int c = 0; running && c < BOARD_CLIENTS; c++) {
        struct client *client = &board->clients[c];
        for (int q = 0; client->process && q < client->opened; q++) {
            const struct queue *queue = &client->queues[q];
            const struct operation *first = board_first(client, q);
            if (!first || first->kind >= WORK_MARKER) continue;
            int d = queue->device;
            rates[c][q] = first->kind == WORK_COMPUTE
                              ? client->share * least(1, active[c][d]) * queue->share / active[c][d] /
                                    (1 + board_contention * most(0, sum[d] - 1))
                              : 1.0 / engines[d][first->kind];
        }
    }
    return running;
}

static void board_advance(uint64_t to) {
    double rates[BOARD_CLIENTS][BOARD_QUEUES];
    board_settle(board->now);
    while (board->now < to) {
        double step = (double)(to - board->now);
        if (!board_rates(rates)) {
            board->now = to;
            break;
        }
        for (int c = 0; c < BOARD_CLIENTS; c++)
            for (int q = 0; q < board->clients[c].opened; q++)
                if (rates[c][q] > 0) step = least(step, board_first(&board->clients[c], q)->remaining / rates[c][q]);
        uint64_t whole = (uint64_t)most(1, rounded_up(step));
        if (whole > to - board->now) whole = to - board->now;
        for (int c = 0; c < BOARD_CLIENTS; c++)
            for (int q = 0; q < board->clients[c].opened; q++)
                if (rates[c][q] > 0) board_first(&board->clients[c], q)->remaining -= rates[c][q] * (double)whole;
        board->now += whole;
        board_settle(board->now);
    }
}

/* Takes the lock, forgets dead processes and brings the board to the present. */
static void board_lock(void) {
    if (pthread_mutex_lock(&board->lock) == EOWNERDEAD) pthread_mutex_consistent(&board->lock);
    uint64_t now = mock_now();
    if (now > board->checked + 20000000u) {
        board->checked = now;
        for (int c = 0; c < BOARD_CLIENTS; c++) {
            struct client *client = &board->clients[c];
            if (client->process && client != board_self && process_started(client->process) != client->started)
                client->process = 0;
        }
    }
    board_advance(now);
}

static void board_unlock(void) { pthread_mutex_unlock(&board->lock); }

/* Gives this process its place. `share`: the part of the SMs that it may use. */
static bool board_join(double share) {
    if (!board) {
        int file = -1;
        char path[4096];
        if (mock_folder()) {
            snprintf(path, sizeof path, "%s/board", mock_folder());
            file = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
            if (file < 0) return false;
            flock(file, LOCK_EX);
            struct stat facts;
            if (fstat(file, &facts) || (facts.st_size < (off_t)sizeof *board && ftruncate(file, sizeof *board))) return false;
        }
        struct board *mapped = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE,
                                    file < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, file, 0);
        if (mapped == MAP_FAILED) return false;
        if (mapped->magic != BOARD_MAGIC) {
            pthread_mutexattr_t shared;
            pthread_mutexattr_init(&shared);
            pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
            pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
            pthread_mutex_init(&mapped->lock, &shared);
            mapped->now = mock_now();
            mapped->magic = BOARD_MAGIC;
        }
        if (file >= 0) { /* the mapping keeps the file open, so that closing alone would keep the lock */
            flock(file, LOCK_UN);
            close(file);
        }
        board = mapped;
        board_contention = mock_number("contention", 1);
    }
    board->checked = 0;
    board_lock();
    for (int c = 0; c < BOARD_CLIENTS && !board_self; c++)
        if (!board->clients[c].process) board_self = &board->clients[c];
    if (board_self) {
        for (int q = 0; q < BOARD_QUEUES; q++) board_self->queues[q].used = 0;
        board_self->opened = 0;
        memset(board_self->memory, 0, sizeof board_self->memory);
        board_self->share = share;
        board_self->started = process_started(getpid());
        board_self->process = getpid();
    }
    board_unlock();
    return board_self != NULL;
}

/* A queue of this process, or -1. A closing queue is taken again once it is empty. Under the lock. */
static int board_open_queue(int device, double share) {
    for (int q = 0; q < BOARD_QUEUES; q++) {
        struct queue *queue = &board_self->queues[q];
        if (queue->used && !(queue->closing && queue->head == queue->tail)) continue;
        queue->used = 1;
        queue->closing = 0;
        queue->device = device;
        queue->share = share;
        queue->head = queue->tail = 0;
        if (q >= board_self->opened) board_self->opened = q + 1;
        return q;
    }
    return -1;
}

/* Adds one operation to a queue that has room. Under the lock. */
static uint64_t board_push(int index, int kind, double nanoseconds, int waited_queue, uint64_t waited_sequence) {
    struct queue *queue = &board_self->queues[index];
    uint64_t sequence = queue->tail;
    *board_operation(board_self, index, sequence) =
        (struct operation){.remaining = nanoseconds, .kind = kind, .queue = waited_queue, .sequence = waited_sequence};
    queue->tail = sequence + 1;
    board_settle(board->now);
    return sequence;
}

/* How long until `sequence` ends if nothing changes, ns; only a hint for how long to sleep. Under the lock. */
static double board_estimate(int index, uint64_t sequence) {
    double rates[BOARD_CLIENTS][BOARD_QUEUES], work = 0;
    const struct queue *queue = &board_self->queues[index];
    if (!board_rates(rates)) return 0;
    for (uint64_t s = queue->head; s <= sequence && s < queue->tail; s++) work += board_operation(board_self, index, s)->remaining;
    double rate = rates[board_self - board->clients][index];
    return rate > 0 ? work / rate : 1e6;
}

#endif
