// Blocks and fibers for host_kernels.hpp.
//
// A fiber takes one thread of the block after the other for as long as none has to wait. So a kernel without barriers runs
// as a loop, on one fiber. Fibers change by a few instructions of their own: swapcontext asks the kernel for the signal mask
// each time, which made a warp's product twenty times slower.

#include "host_kernels.hpp"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

dim3 threadIdx, blockIdx, blockDim, gridDim;

// Keeps the registers that a function must keep on the stack, its stack at *from, and goes on at the stack *to.
extern "C" void host_switch(void** from, void** to);
#if defined(__x86_64__)
asm(".text\n.globl host_switch\n.hidden host_switch\n.type host_switch, @function\nhost_switch:\n"
    "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
    "movq %rsp, (%rdi)\n movq (%rsi), %rsp\n"
    "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n");
enum { ENTRY = 6, FRAME = 8 };  // in words of a fresh stack: where the return address is, and the whole, aligned
#elif defined(__aarch64__)
asm(".text\n.globl host_switch\n.hidden host_switch\n.type host_switch, %function\nhost_switch:\n"
    "sub sp, sp, #160\n"
    "stp x19, x20, [sp]\n stp x21, x22, [sp, #16]\n stp x23, x24, [sp, #32]\n stp x25, x26, [sp, #48]\n"
    "stp x27, x28, [sp, #64]\n stp x29, x30, [sp, #80]\n stp d8, d9, [sp, #96]\n stp d10, d11, [sp, #112]\n"
    "stp d12, d13, [sp, #128]\n stp d14, d15, [sp, #144]\n"
    "mov x9, sp\n str x9, [x0]\n ldr x9, [x1]\n mov sp, x9\n"
    "ldp x19, x20, [sp]\n ldp x21, x22, [sp, #16]\n ldp x23, x24, [sp, #32]\n ldp x25, x26, [sp, #48]\n"
    "ldp x27, x28, [sp, #64]\n ldp x29, x30, [sp, #80]\n ldp d8, d9, [sp, #96]\n ldp d10, d11, [sp, #112]\n"
    "ldp d12, d13, [sp, #128]\n ldp d14, d15, [sp, #144]\n"
    "add sp, sp, #160\n ret\n");
enum { ENTRY = 11, FRAME = 20 };
#else
#error "host kernels know x86-64 and AArch64"
#endif

namespace {

const unsigned THREADS = 1024, WARPS = THREADS / 32, GROUPS = 8, KERNELS = 1024, DYNAMIC = 256 << 10;
const size_t STACK = 256 << 10;

struct Fiber {
    void* stack;
    unsigned thread;
};

// A barrier: who waits, and how many came.
struct Waiters {
    unsigned count;
    Fiber* fibers[THREADS];
};

// Lanes of one warp that exchange values under one mask. The two halves of `values` take turns, so that a lane that is
// ahead cannot overwrite what another has still to read.
struct Group {
    unsigned mask, arrived, turn, waiting;
    Fiber* fibers[32];
    unsigned long long values[2][32];
};

struct Warp {
    unsigned live, groups;
    Group group[GROUPS];
};

struct Block {
    void (*call)(void**);
    void** arguments;
    unsigned threads, started, live;
    Waiters barrier;
    Warp warps[WARPS];
    // Fibers that can go on, those without a thread, and the one that runs.
    Fiber* ready[THREADS];
    unsigned ready_from, ready_count;
    Fiber* idle[THREADS];
    unsigned idle_count;
    Fiber* now;
    void* home;
};

Block block;
Fiber fibers[THREADS];
unsigned fiber_count;
alignas(128) unsigned char dynamic_shared[DYNAMIC];
host_kernel kernels[KERNELS];
unsigned kernel_count;
pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

void fail(const char* why) {
    fprintf(stderr, "host kernels: %s\n", why);
    abort();
}

void place(unsigned thread) {
    threadIdx.x = thread % blockDim.x;
    threadIdx.y = thread / blockDim.x % blockDim.y;
    threadIdx.z = thread / blockDim.x / blockDim.y;
}

void make_ready(Fiber* fiber) { block.ready[(block.ready_from + block.ready_count++) % THREADS] = fiber; }

void try_barrier() {
    if (block.barrier.count < block.live) return;
    for (unsigned i = 0; i < block.barrier.count; ++i) make_ready(block.barrier.fibers[i]);
    block.barrier.count = 0;
}

void try_group(const Warp& warp, Group& group) {
    if (group.waiting == 0 || (group.mask & warp.live & ~group.arrived)) return;
    for (unsigned i = 0; i < group.waiting; ++i) make_ready(group.fibers[i]);
    group.waiting = group.arrived = 0;
    group.turn ^= 1;
}

void leave(unsigned thread) {
    Warp& warp = block.warps[thread / 32];
    block.live -= 1;
    warp.live &= ~(1u << thread % 32);
    if (block.live) try_barrier();
    for (unsigned g = 0; g < warp.groups; ++g) try_group(warp, warp.group[g]);
}

void fiber_body() {
    for (;;) {
        Fiber* self = block.now;
        while (block.started < block.threads) {
            self->thread = block.started++;
            place(self->thread);
            block.call(block.arguments);
            leave(self->thread);
        }
        block.idle[block.idle_count++] = self;
        if (block.ready_count == 0) {
            if (block.live) fail("threads wait for others that never come (a barrier in a branch?)");
            host_switch(&self->stack, &block.home);
        } else {
            Fiber* next = block.ready[block.ready_from];
            block.ready_from = (block.ready_from + 1) % THREADS;
            block.ready_count -= 1;
            block.now = next;
            place(next->thread);
            host_switch(&self->stack, &next->stack);
        }
    }
}

Fiber* idle_fiber() {
    if (block.idle_count) return block.idle[--block.idle_count];
    if (fiber_count == THREADS) fail("more threads wait than a block has");
    Fiber* fiber = &fibers[fiber_count++];
    void* stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) fail("no memory for a fiber");
    void** frame = (void**)((char*)stack + STACK) - FRAME;
    frame[ENTRY] = (void*)fiber_body;
    fiber->stack = frame;
    return fiber;
}

// Lets others run until somebody has made the running fiber ready, and it comes to its turn.
void wait() {
    Fiber* self = block.now;
    Fiber* next;
    if (block.started < block.threads) {
        next = idle_fiber();
    } else {
        if (block.ready_count == 0) fail("threads wait for others that never come (a barrier in a branch?)");
        next = block.ready[block.ready_from];
        block.ready_from = (block.ready_from + 1) % THREADS;
        block.ready_count -= 1;
    }
    if (next != self) {
        block.now = next;
        host_switch(&self->stack, &next->stack);
    }
    block.now = self;
    place(self->thread);
}

void run_block() {
    block.started = block.ready_count = block.barrier.count = 0;
    block.live = block.threads;
    for (unsigned w = 0; w * 32 < block.threads; ++w) {
        const unsigned lanes = block.threads - w * 32;
        block.warps[w].live = lanes >= 32 ? 0xffffffffu : (1u << lanes) - 1u;
        block.warps[w].groups = 0;
    }
    block.now = idle_fiber();
    host_switch(&block.home, &block.now->stack);
}

}  // namespace

void* host_shared() { return dynamic_shared; }

unsigned long long host_nanoseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned long long)now.tv_sec * 1000000000ull + (unsigned long long)now.tv_nsec;
}

void host_sleep(unsigned long long nanoseconds) {
    const timespec time = {(time_t)(nanoseconds / 1000000000ull), (long)(nanoseconds % 1000000000ull)};
    nanosleep(&time, nullptr);
}

void __syncthreads() {
    block.barrier.fibers[block.barrier.count++] = block.now;
    try_barrier();
    wait();
}

const unsigned long long* host_exchange(unsigned mask, unsigned long long value) {
    const unsigned thread = block.now->thread, lane = thread % 32;
    Warp& warp = block.warps[thread / 32];
    unsigned g = 0;
    while (g < warp.groups && warp.group[g].mask != mask) ++g;
    if (!(mask >> lane & 1)) fail("a lane exchanges under a mask without itself");
    if (g == GROUPS) fail("too many different masks in one warp");
    Group& group = warp.group[g];
    if (g == warp.groups) {
        warp.groups += 1;
        group.mask = mask;
        group.arrived = group.turn = group.waiting = 0;
    }
    unsigned long long* values = group.values[group.turn];
    values[lane] = value;
    group.arrived |= 1u << lane;
    group.fibers[group.waiting++] = block.now;
    try_group(warp, group);
    wait();
    return values;
}

void host_register(const host_kernel& kernel) {
    if (kernel_count == KERNELS) fail("too many kernels");
    kernels[kernel_count++] = kernel;
}

void host_run(const unsigned grid[3], const unsigned threads[3], unsigned shared, void (*thread)(void**), void** arguments) {
    if (shared > DYNAMIC) fail("too much dynamic shared memory");
    pthread_mutex_lock(&one_at_a_time);
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {threads[0], threads[1], threads[2]};
    block.call = thread;
    block.arguments = arguments;
    block.threads = threads[0] * threads[1] * threads[2];
    for (blockIdx.z = 0; blockIdx.z < grid[2]; ++blockIdx.z)
        for (blockIdx.y = 0; blockIdx.y < grid[1]; ++blockIdx.y)
            for (blockIdx.x = 0; blockIdx.x < grid[0]; ++blockIdx.x) run_block();
    pthread_mutex_unlock(&one_at_a_time);
}

extern "C" const host_kernel* elastico_host_kernel(const char* name) {
    for (unsigned i = 0; i < kernel_count; ++i)
        if (!strcmp(kernels[i].name, name)) return &kernels[i];
    return nullptr;
}
