// Runs CUDA kernels on a CPU, in an order of one's choice, so that threads which depend on each other
// show as results that differ.
//
// Those of a block that share memory and wait for each other are few here: one, which waits for
// nobody, or a handful that really run at a time; in the order of warps 32.
#pragma once
#include <algorithm>
#include <barrier>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <thread>
#include <ucontext.h>
#include <vector>

#define __global__ static
#define __device__
// of one block at a time
#define __shared__ static

struct Index { unsigned x; };
static thread_local Index blockIdx, threadIdx, blockDim, gridDim;

// Pointers that were followed.
extern "C" long long hops_followed;
long long hops_followed = 0;
#define HOP(pointer) (__atomic_fetch_add(&hops_followed, 1, __ATOMIC_RELAXED), pointer)

// The threads of a warp, each on a stack of its own. One runs until it waits for others, then the
// next: those that have come to the same point when all have run are active there together.
class Warp {
  public:
    static constexpr int SIZE = 32;
    static Warp &one()
    {
        static Warp warp;
        return warp;
    }

    // Run the threads of a block.
    template <class F> void run(F kernel)
    {
        body = [](void *given) { (*(F *)given)(); };
        given = &kernel;
        for (int lane = 0; lane < SIZE; lane++) {
            at[lane] = RUNS;
            getcontext(lanes + lane);
            lanes[lane].uc_stack = {stacks.data() + lane * STACK, 0, STACK};
            lanes[lane].uc_link = &host;
            makecontext(lanes + lane, begin, 0);
        }
        present = this;
        do {
            for (now = 0; now < SIZE; now++) {
                if (at[now] != RUNS) continue;
                threadIdx = {(unsigned)now};
                swapcontext(&host, lanes + now);
            }
        } while (go_on());
        present = nullptr;
    }

    // Wait until all others have come here, or ended.
    enum Point { RUNS, ENDED, JOINS };
    void wait()
    {
        int lane = now;
        at[lane] = JOINS;
        swapcontext(lanes + lane, &host);
    }

    static thread_local Warp *present;

  private:
    static constexpr size_t STACK = 1 << 16;

    static void begin()
    {
        Warp *warp = present;
        warp->body(warp->given);
        warp->at[warp->now] = ENDED;
    }

    // Let all threads go on that wait; false once all have ended.
    bool go_on()
    {
        bool some = false;
        for (int lane = 0; lane < SIZE; lane++)
            if (at[lane] == JOINS) at[lane] = RUNS, some = true;
        return some;
    }

    std::vector<char> stacks = std::vector<char>(SIZE * STACK);
    ucontext_t host, lanes[SIZE];
    Point at[SIZE];
    int now;
    void (*body)(void *);
    void *given;
};
thread_local Warp *Warp::present;

static std::barrier<> *of_block;
static thread_local bool has_waited;
static inline void __syncthreads()
{
    has_waited = true;
    if (Warp::present)
        Warp::present->wait();
    else if (blockDim.x > 1)
        of_block->arrive_and_wait();
}

static inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
static inline int __ffs(unsigned bits) { return __builtin_ffs((int)bits); }

// Atomics on the memory of the GPU, and not on that of a block, which is static here.
extern "C" long long atomics_done, additions_done;
long long atomics_done = 0, additions_done = 0;
extern "C" __attribute__((visibility("hidden"))) char __bss_start[], _end[];
static inline void count_atomic(const void *at)
{
    if (at < (void *)__bss_start || at >= (void *)_end)
        __atomic_fetch_add(&atomics_done, 1, __ATOMIC_RELAXED);
}

template <class T> T atomicAdd(T *at, T value)
{
    count_atomic(at);
    __atomic_fetch_add(&additions_done, 1, __ATOMIC_RELAXED);
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}
template <class T> T atomicOr(T *at, T bits)
{
    count_atomic(at);
    return __atomic_fetch_or(at, bits, __ATOMIC_RELAXED);
}
template <class T> T atomicCAS(T *at, T expected, T value)
{
    count_atomic(at);
    __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
template <class T> T atomicMin(T *at, T value)
{
    count_atomic(at);
    T old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (value < old) {
        T found = atomicCAS(at, old, value);
        if (found == old) break;
        old = found;
    }
    return old;
}
template <class T> T atomicMax(T *at, T value)
{
    count_atomic(at);
    T old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (value > old) {
        T found = atomicCAS(at, old, value);
        if (found == old) break;
        old = found;
    }
    return old;
}

template <class F> void run_threads(long long blocks, int threads, int order, F kernel)
{
    long long count = blocks * threads;
    auto one = [&](long long thread) {
        blockIdx = {(unsigned)(thread / threads)};
        threadIdx = {(unsigned)(thread % threads)};
        blockDim = {(unsigned)threads};
        kernel();
    };
    if (order == 0) {
        for (long long i = 0; i < count; i++) one(i);
    } else if (order == 1) {
        for (long long i = count; i-- > 0;) one(i);
    } else if (order == 2) {
        std::vector<long long> shuffled(count);
        std::iota(shuffled.begin(), shuffled.end(), 0ll);
        std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937_64(7));
        for (long long i : shuffled) one(i);
    } else {
        // two really at a time, whatever the process is told
#pragma omp parallel for schedule(dynamic, 256) num_threads(2) if (count > 1024)
        for (long long i = 0; i < count; i++) one(i);
    }
}

template <class F> void run_blocks(long long blocks, int order, F kernel)
{
    int threads = order == 3 ? 4 : 1;
    if (order == 4) {
        // a block of one warp
        blockDim = {Warp::SIZE};
        gridDim = {(unsigned)blocks};
        for (long long block = 0; block < blocks; block++) {
            blockIdx = {(unsigned)block};
            Warp::one().run(kernel);
        }
        return;
    }
    std::vector<long long> numbers(blocks);
    std::iota(numbers.begin(), numbers.end(), 0ll);
    if (order == 1) std::reverse(numbers.begin(), numbers.end());
    if (order == 2) std::shuffle(numbers.begin(), numbers.end(), std::mt19937_64(7));
    std::barrier<> all(threads);
    of_block = &all;
    auto work = [&](int thread) {
        threadIdx = {(unsigned)thread};
        blockDim = {(unsigned)threads};
        gridDim = {(unsigned)blocks};
        for (long long block : numbers) {
            blockIdx = {(unsigned)block};
            has_waited = false;
            kernel();
            // the next block has the same shared memory
            if (has_waited) __syncthreads();
        }
    };
    std::vector<std::thread> others;
    for (int thread = 1; thread < threads; thread++) others.emplace_back(work, thread);
    work(0);
    for (auto &each : others) each.join();
}
