// Runs barrier-free CUDA kernels on a CPU, in an order of one's choice, so that threads which
// depend on each other show as results that differ.
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#define __global__ static
#define __device__

struct Index { unsigned x; };
static thread_local Index blockIdx, threadIdx, blockDim;

template <class T> T atomicAdd(T *at, T value)
{
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}
template <class T> T atomicCAS(T *at, T expected, T value)
{
    __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
template <class T> T atomicMin(T *at, T value)
{
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
#pragma omp parallel for schedule(dynamic, 1024)
        for (long long i = 0; i < count; i++) one(i);
    }
}
