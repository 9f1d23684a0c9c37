/* What all stand-ins share: the script of a test, and its faults.
 *
 * ELASTICO_MOCK names a folder that all processes of one test share. Its file `script` has lines `key value...`;
 * `#` starts a comment. Each stand-in documents its own keys at its top. Keys of all of them:
 *
 *   devices 1                            GPUs of the machine
 *   name Stand-in H200                   product name
 *   compute_capability 9 0
 *   multiprocessors 132
 *   memory 144000000000                  bytes of each device
 *   mig <MIG-uuid> <profile> <SMs> <bytes> [device]   one MIG instance; a device with instances is in MIG mode
 *   functional 1                         kernels and products really run, on the CPU
 *   fault <call> <code> [after <n>] [process <side>] [once] [always]
 *
 * A fault makes the n-th call (default: the first) of that function in a process return the code. The function is named
 * without its version suffix. `process subject` limits it to the process whose ELASTICO_SIDE is that word. `once`: one
 * process of the whole test gets it, the first that comes there. `always`: all later calls fail too. In place of a code
 * `hang` stands for work that never ends (calls that start work), or a call that does not return (all others).
 */
#ifndef ELASTICO_MOCK_SCRIPT_H
#define ELASTICO_MOCK_SCRIPT_H

#include <ctype.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* API(cuInit) names an exported function; -DWITHOUT_cuInit hides it, as in a driver that lacks it. */
#define MOCK_HIDE_1 0, "hidden",
#define MOCK_THIRD(a, b, c, ...) b
#define MOCK_VISIBLE__(hide) MOCK_THIRD(hide "default", "default", 0)
#define MOCK_VISIBLE_(value) MOCK_VISIBLE__(MOCK_HIDE_##value)
#define MOCK_VISIBLE(flag) MOCK_VISIBLE_(flag)
#define EXPORT(type, name) __attribute__((visibility(MOCK_VISIBLE(WITHOUT_##name)))) type name
#define API(name) EXPORT(int, name)

#define MOCK_HANG (-1)
#define MOCK_FAULTS 64

struct mock_fault {
    char call[64];
    int code;
    long after;
    char side[16];
    bool once, always, spent;
    long calls;
};

static struct {
    char *text;
    struct mock_fault faults[MOCK_FAULTS];
    int count;
} mock_script;

static const char *mock_folder(void) { return getenv("ELASTICO_MOCK"); }

static uint64_t mock_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void mock_sleep(uint64_t nanoseconds) {
    struct timespec time = {(time_t)(nanoseconds / 1000000000u), (long)(nanoseconds % 1000000000u)};
    nanosleep(&time, NULL);
}

/* The rest of the n-th line that begins with `key`, copied into `value`. */
static bool mock_line(const char *key, int nth, char *value, size_t size);

/* Compares function names without `_v2` and `_ptsz`. */
static bool mock_same_call(const char *a, const char *b) {
    size_t i = 0;
    while (a[i] && a[i] == b[i]) i++;
    bool a_ends = !a[i] || !strncmp(a + i, "_v", 2) || !strncmp(a + i, "_pt", 3);
    bool b_ends = !b[i] || !strncmp(b + i, "_v", 2) || !strncmp(b + i, "_pt", 3);
    return a_ends && b_ends;
}

static void mock_read_fault(char *line) {
    if (mock_script.count == MOCK_FAULTS) return;
    struct mock_fault *fault = &mock_script.faults[mock_script.count];
    char *state = NULL, *call = strtok_r(line, " \t", &state), *code = strtok_r(NULL, " \t", &state);
    if (!call || !code) return;
    snprintf(fault->call, sizeof fault->call, "%s", call);
    fault->code = strcmp(code, "hang") ? atoi(code) : MOCK_HANG;
    fault->after = 1;
    for (char *word; (word = strtok_r(NULL, " \t", &state));) {
        if (!strcmp(word, "after") && (word = strtok_r(NULL, " \t", &state))) fault->after = atol(word);
        else if (word && !strcmp(word, "process") && (word = strtok_r(NULL, " \t", &state)))
            snprintf(fault->side, sizeof fault->side, "%s", word);
        else if (word && !strcmp(word, "once")) fault->once = true;
        else if (word && !strcmp(word, "always")) fault->always = true;
        if (!word) break;
    }
    if (fault->after < 1) fault->after = 1;
    mock_script.count++;
}

static void mock_read_script(void) {
    char path[4096], line[512];
    FILE *file = NULL;
    if (mock_folder() && snprintf(path, sizeof path, "%s/script", mock_folder()) > 0) file = fopen(path, "r");
    size_t size = 0;
    if (file) {
        size_t room = 1 << 16;
        mock_script.text = malloc(room);
        size = fread(mock_script.text, 1, room - 1, file);
        fclose(file);
    } else {
        mock_script.text = malloc(1);
    }
    mock_script.text[size] = 0;
    for (int i = 0; mock_line("fault", i, line, sizeof line); i++) mock_read_fault(line);
}

static pthread_once_t mock_script_once = PTHREAD_ONCE_INIT;
static void mock_need_script(void) { pthread_once(&mock_script_once, mock_read_script); }

static bool mock_line(const char *key, int nth, char *value, size_t size) {
    size_t length = strlen(key);
    for (const char *at = mock_script.text; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : "") {
        while (*at == ' ' || *at == '\t') at++;
        if (strncmp(at, key, length) || (at[length] != ' ' && at[length] != '\t')) continue;
        if (nth--) continue;
        at += length;
        while (*at == ' ' || *at == '\t') at++;
        size_t used = strcspn(at, "#\r\n");
        while (used && isspace((unsigned char)at[used - 1])) used--;
        if (used >= size) used = size - 1;
        memcpy(value, at, used);
        value[used] = 0;
        return true;
    }
    return false;
}

static double mock_number(const char *key, double otherwise) {
    char value[128];
    mock_need_script();
    return mock_line(key, 0, value, sizeof value) ? atof(value) : otherwise;
}

static bool mock_flag(const char *key) { return mock_number(key, 0) != 0; }

/* Whether one process of the test, this one, is the first to claim `name`. */
static bool mock_claim(const char *name) {
    char path[4096];
    if (!mock_folder()) return true;
    snprintf(path, sizeof path, "%s/claimed-%s", mock_folder(), name);
    int file = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (file < 0) return false;
    close(file);
    return true;
}

/* Counts one call and says what the script wants of it: 0, a code, or MOCK_HANG. */
static int mock_fault(const char *call) {
    mock_need_script();
    const char *side = getenv("ELASTICO_SIDE");
    for (int i = 0; i < mock_script.count; i++) {
        struct mock_fault *fault = &mock_script.faults[i];
        if (!mock_same_call(fault->call, call)) continue;
        if (fault->side[0] && (!side || strcmp(side, fault->side))) continue;
        long calls = __atomic_add_fetch(&fault->calls, 1, __ATOMIC_RELAXED);
        if (calls < fault->after || (calls > fault->after && !fault->always)) continue;
        if (fault->once && calls == fault->after) {
            char name[80];
            snprintf(name, sizeof name, "%d-%s", i, fault->call);
            fault->spent = !mock_claim(name);
        }
        if (!fault->spent) return fault->code;
    }
    return 0;
}

/* The identity of device `index`, the same in CUDA and NVML, as 16 bytes and as `GPU-...`. */
static void mock_uuid(int index, unsigned char bytes[16], char text[48]) {
    static const unsigned char base[16] = {0x57, 0xa1, 0xd1, 0x00, 0xe1, 0xa5, 0x4c, 0x00, 0x80, 0, 0, 0, 0, 0, 0, 0};
    memcpy(bytes, base, 16);
    bytes[15] = (unsigned char)index;
    char *at = text + sprintf(text, "GPU-");
    for (int i = 0; i < 16; i++) at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", bytes[i]);
}

/* One MIG instance of the script, by position. */
struct mock_mig {
    char uuid[64], profile[32];
    int multiprocessors, device;
    double memory;
};

static bool mock_mig(int nth, struct mock_mig *instance) {
    char line[256];
    mock_need_script();
    if (!mock_line("mig", nth, line, sizeof line)) return false;
    memset(instance, 0, sizeof *instance);
    return sscanf(line, "%63s %31s %d %lf %d", instance->uuid, instance->profile, &instance->multiprocessors,
                  &instance->memory, &instance->device) >= 4;
}

#endif
