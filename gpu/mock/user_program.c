/* Programs such as users have, for the tests of `profile exec`; they know nothing of ElastiCo. They load the driver as
 * the CUDA runtime does.
 *
 *   user_program MODE [ITERATIONS]     0 iterations, the default: for ever
 *
 *   train       tries out kernels at first, then iterates: copy in, forward, backward, optimiser; logs every tenth time
 *   infer       copy in, three kernels, copy out, wait
 *   graph       as infer, as one captured graph
 *   aperiodic   kernels drawn at random
 *   fork        forks; the child runs `train` by exec, the parent has initialised the driver and waits
 *   workers     initialises the driver, forks two children that do no GPU work, then runs `train`
 *   taken       subscribes to CUPTI like a program that is profiled, then `train`
 *   hang        ten iterations of `train`, then nothing more
 *   crash       ten iterations of `train`, then abort
 *   oom         fails like a framework out of memory
 *   idle        never touches the GPU
 *   inject LIBRARY   calls InitializeInjection of the library as the driver would, without a driver, and goes on for a while
 *
 * Each iteration prints a line `step N`. USER_PROGRAM_SLEEP_US: host time between two iterations.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const NAMES[] = {"tune", "forward_qkv", "forward_softmax", "forward_mlp", "loss", "backward_mlp",
                                    "backward_softmax", "backward_qkv", "optimiser", "log_norm", "serve_embed",
                                    "serve_layer", "serve_head"};
enum { NAME_COUNT = sizeof NAMES / sizeof *NAMES, LAYERS = 3 };

static void *driver;
static void *functions[NAME_COUNT];
static void *stream;
static uint64_t device_memory;
static void *host_memory;

static void check(int code, const char *what) {
    if (!code) return;
    fprintf(stderr, "%s failed with %d\n", what, code);
    exit(1);
}

#define CALL(name, ...) check(((int (*)())dlsym(driver, #name))(__VA_ARGS__), #name)

static void open_driver(void) {
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    CALL(cuInit, 0);
}

static void open_device(void) {
    int device;
    void *context, *module;
    char image[4096] = "ELASTICO-CUBIN sm_90\n";
    for (int i = 0; i < NAME_COUNT; i++)
        sprintf(image + strlen(image), "extern \"C\" __global__ void %s() {}\n", NAMES[i]);
    CALL(cuDeviceGet, &device, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, device);
    CALL(cuCtxSetCurrent, context);
    CALL(cuModuleLoadData, &module, image);
    for (int i = 0; i < NAME_COUNT; i++) CALL(cuModuleGetFunction, &functions[i], module, NAMES[i]);
    CALL(cuStreamCreate, &stream, 1u);
    CALL(cuMemAlloc_v2, &device_memory, (size_t)1 << 20);
    CALL(cuMemAllocHost_v2, &host_memory, (size_t)1 << 20);
}

static void launch(const char *name, unsigned blocks) {
    for (int i = 0; i < NAME_COUNT; i++)
        if (!strcmp(NAMES[i], name))
            CALL(cuLaunchKernel, functions[i], blocks, 1u, 1u, 128u, 1u, 1u, 0u, stream, (void **)NULL, (void **)NULL);
}

static void wait_for_all(void) { CALL(cuStreamSynchronize, stream); }

static void train_once(long step) {
    CALL(cuMemcpyHtoDAsync_v2, device_memory, host_memory, (size_t)65536, stream);
    for (int layer = 0; layer < LAYERS; layer++) {
        launch("forward_qkv", 64);
        launch("forward_softmax", 32);
        launch("forward_mlp", 128);
    }
    launch("loss", 1);
    for (int layer = 0; layer < LAYERS; layer++) {
        launch("backward_mlp", 128);
        launch("backward_softmax", 32);
        launch("backward_qkv", 64);
    }
    launch("optimiser", 256);
    if (step % 10 == 9) launch("log_norm", 1);
    wait_for_all();
}

static void serve(void) {
    CALL(cuMemcpyHtoDAsync_v2, device_memory, host_memory, (size_t)4096, stream);
    launch("serve_embed", 8);
    for (int layer = 0; layer < LAYERS; layer++) launch("serve_layer", 48);
    launch("serve_head", 96);
    CALL(cuMemcpyDtoHAsync_v2, host_memory, device_memory, (size_t)2048, stream);
}

static void *captured(void) {
    void *graph, *executable;
    CALL(cuStreamBeginCapture_v2, stream, 0);
    serve();
    CALL(cuStreamEndCapture, stream, &graph);
    CALL(cuGraphInstantiateWithFlags, &executable, graph, (unsigned long long)0);
    return executable;
}

int main(int count, char **words) {
    const char *mode = count > 1 ? words[1] : "train";
    long iterations = count > 2 ? atol(words[2]) : 0;
    const char *pause_text = getenv("USER_PROGRAM_SLEEP_US");
    useconds_t pause_time = pause_text ? (useconds_t)atol(pause_text) : 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!strcmp(mode, "inject") && count > 2) {
        void *library = dlopen(words[2], RTLD_NOW);
        int (*initialize)(void) = (int (*)(void))(library ? dlsym(library, "InitializeInjection") : NULL);
        if (!initialize) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        printf("initialised: %d\n", initialize());
        usleep(300000);
        return 0;
    }
    if (!strcmp(mode, "idle")) {
        for (long i = 0; !iterations || i < iterations; i++) usleep(100000);
        return 0;
    }
    if (!strcmp(mode, "oom")) {
        usleep(200000);
        fprintf(stderr, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB\n");
        return 1;
    }
    if (!strcmp(mode, "taken")) {
        void *handle, *cupti = dlopen("libcupti.so.13", RTLD_NOW);
        int (*subscribe)(void **, void *, void *) = (int (*)(void **, void *, void *))(cupti ? dlsym(cupti, "cuptiSubscribe") : NULL);
        if (!subscribe || subscribe(&handle, (void *)main, NULL)) return 3;
    }
    open_driver();
    if (!strcmp(mode, "fork")) {
        int child = fork(), status = 0;
        if (!child) execl(words[0], words[0], "train", count > 2 ? words[2] : "0", (char *)NULL);
        waitpid(child, &status, 0);
        return WEXITSTATUS(status);
    }
    for (int i = 0; i < 2 && !strcmp(mode, "workers"); i++)
        if (!fork())
            for (;;) usleep(50000);
    open_device();
    void *executable = !strcmp(mode, "graph") ? captured() : NULL;
    int is_inference = !strcmp(mode, "infer"), is_aperiodic = !strcmp(mode, "aperiodic");
    uint64_t state = (uint64_t)getpid();
    for (int i = 0; i < 40 && !is_inference && !is_aperiodic && !executable; i++) launch("tune", 1 + (unsigned)i % 5);
    wait_for_all();
    for (long step = 0; !iterations || step < iterations; step++) {
        if (executable) {
            CALL(cuGraphLaunch, executable, stream);
            wait_for_all();
        } else if (is_inference) {
            serve();
            wait_for_all();
        } else if (is_aperiodic) {
            for (int i = 0; i < 8; i++) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                launch(NAMES[(state >> 33) % NAME_COUNT], 1 + (unsigned)(state >> 50) % 3);
            }
            wait_for_all();
        } else {
            train_once(step);
        }
        printf("step %ld\n", step);
        if (pause_time) usleep(pause_time);
        if (step == 9 && !strcmp(mode, "crash")) abort();
        while (step == 9 && !strcmp(mode, "hang")) usleep(100000);
    }
    return 0;
}
