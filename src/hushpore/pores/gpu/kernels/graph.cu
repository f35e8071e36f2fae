// The measures of basins and the contacts between them: hushpore/pores/watershed/graph.py.
//
// What several threads add up are whole numbers, and what they compete for is a maximum or a minimum,
// so that their order changes nothing. What is no new maximum or minimum is only looked at, and blocks
// count in memory of their own first: atomics are what takes time here.

// N_SUMS, POWERS, N_DIRECTIONS, STEPS and CLOSED are defined when this is compiled, from the tables of the
// package (hushpore/pores/gpu/engine.py).
#define EMPTY 0xFFFFFFFFFFFFFFFFull

// Of each sum the powers of z, y, x and the grey value.
__device__ constexpr signed char POWER[N_SUMS][4] = POWERS;

// Steps (z, y, x) to the half of the 26 neighbours that come later.
__device__ constexpr signed char STEP[N_DIRECTIONS][3] = STEPS;

__device__ inline long long to_power(long long base, int exponent)
{
    return exponent == 0 ? 1 : exponent == 1 ? base : base * base;
}

__device__ inline int as_bits(float value)
{
    union { float value; int bits; } both;
    both.value = value;
    return both.bits;
}

// Places that are looked at for one edge. A table in which that is not enough is nearly full, and is
// made anew with twice the room: to its end, each thread would read all of it.
#define PROBES 64

__device__ inline u64 key_of_edge(int a, int b)
{
    return ((u64)(a < b ? a : b) << 32) | (u64)(a < b ? b : a);
}

// Slot of an edge in the table of all, made where there is none yet and flagged; -1 where there is no
// room.
__device__ inline long long slot_of(u64 *keys, unsigned *is_used, long long size, int a, int b)
{
    u64 key = key_of_edge(a, b);
    // of any size, without a division
    long long slot = (long long)((key * 0x9E3779B97F4A7C15ull >> 32) * (u64)size >> 32);
    for (int tried = 0; tried < PROBES && tried < size; tried++) {
        u64 found = HOP(keys[slot]);
        if (found == EMPTY) {
            found = atomicCAS(keys + slot, EMPTY, key);
            if (found == EMPTY) atomicOr(is_used + slot / 32, 1u << (slot % 32));
        }
        if (found == EMPTY || found == key) return slot;
        slot = slot + 1 < size ? slot + 1 : 0;
    }
    return -1;
}

// Voxels of a brick along each axis, the places of the table of a block, and how many are looked at.
#define BRICK_X 32
#define BRICK_Y 8
#define BRICK_Z 8
#define PLACES 256
#define TRIES 8

// Place of an edge in the table of a block, made where there is none yet; -1 where there is no room.
__device__ inline int place_of(u64 *keys, u64 key)
{
    int place = (int)(key * 0x9E3779B97F4A7C15ull >> 32) & (PLACES - 1);
    for (int tried = 0; tried < TRIES; tried++) {
        u64 found = *(volatile u64 *)(keys + place);
        if (found == EMPTY) found = atomicCAS(keys + place, EMPTY, key);
        if (found == EMPTY || found == key) return place;
        place = (place + 1) & (PLACES - 1);
    }
    return -1;
}

__device__ inline void lower(int *at, int value)
{
    if (value < *at) atomicMin(at, value);
}

template <class T> __device__ inline void raise(T *at, T value)
{
    if (value > *at) atomicMax(at, value);
}

// The tables of all basins and edges.
struct Tables {
    u64 *crossings, *keys;
    unsigned *is_used;
    u64 *saddles;
    int *contacts, *is_full;
    long long size;
    int low;
};

// Add what was counted of an edge in one direction, of a basin where both are the same; and its saddle,
// 0 where there is none.
__device__ inline void add_edge(Tables all, int a, int b, int way, int counted, u64 saddle)
{
    if (counted == 0 && saddle == 0) return;
    if (a == b) {
        atomicAdd(all.crossings + (long long)(a - all.low) * N_DIRECTIONS + way, (u64)counted);
        return;
    }
    long long slot = slot_of(all.keys, all.is_used, all.size, a, b);
    if (slot < 0) {
        *all.is_full = 1;
        return;
    }
    if (counted) atomicAdd(all.contacts + slot * N_DIRECTIONS + way, counted);
    if (saddle) raise(all.saddles + slot, saddle);
}

// Count one in the table of a block, or of all where it has no place there.
__device__ inline void count_one(Tables all, int *counts, int at, int a, int b, int way)
{
    if (at >= 0)
        atomicAdd(counts + at * N_DIRECTIONS + way, 1);
    else
        add_edge(all, a, b, way, 1, 0);
}

// Voxels of a block in which stretches of basins are looked for at a time.
#define RUNS 2048

// Add the stretch that begins with a voxel to the sums and bounds of its basin; see `sum_runs`.
__device__ inline void add_run(
    long long i, const int *basins, const int *grey, const unsigned char *phase, u64 *sums,
    int *bounds, u64 *closed, int has_grey, int has_phase, int low, long long offset, int height,
    int width)
{
    Voxel voxel = voxel_at(i, height, width);
    int own = basins[i], begin = voxel.x, end = begin + 1;
    while (end < width && basins[i + end - begin] == own) end++;
    own -= low;
    long long y = voxel.y, z = offset + voxel.z, n = end - begin;
    long long x = (begin + end - 1) * n / 2;
    long long upto = (end - 1ll) * end * (2ll * end - 1);
    long long before = (begin - 1ll) * begin * (2ll * begin - 1);
    long long xx = (upto - before) / 6;
#pragma unroll
    for (int k = 0; k < N_SUMS; k++) {
        long long sum = POWER[k][2] == 0 ? n : POWER[k][2] == 1 ? x : xx;
        if (POWER[k][3]) {
            sum = 0;
            for (int at = begin; has_grey && at < end; at++)
                sum += to_power(at, POWER[k][2]) * to_power(grey[i + at - begin], POWER[k][3]);
        }
        sum *= to_power(z, POWER[k][0]) * to_power(y, POWER[k][1]);
        atomicAdd(sums + (long long)own * N_SUMS + k, (u64)sum);
    }
    if (has_phase && phase[i] == CLOSED) atomicAdd(closed + own, (u64)n);
    int *own_bounds = bounds + (long long)own * 6;
    lower(own_bounds, (int)z);
    lower(own_bounds + 1, (int)y);
    lower(own_bounds + 2, begin);
    raise(own_bounds + 3, (int)z + 1);
    raise(own_bounds + 4, (int)y + 1);
    raise(own_bounds + 5, end);
}

extern "C" {

// Add up the sums over basins and their bounds, one stretch of a basin along x at a time. A block has
// `RUNS` voxels after the other: it first lists where stretches begin, so that then each thread has one.
//
// The `count` voxels are those of a slab that begins with slice `offset` of a volume of `depth`; one
// more slice lies behind it, where there is one. Tables of basins begin with basin `low`. `grey` is
// only read where `has_grey`, and `phase`, for the voxels of closed void, only where `has_phase`: of
// a stretch all are closed or none, since they share faces.
__global__ void sum_runs(
    const int *basins, const int *grey, const unsigned char *phase, u64 *sums, int *bounds,
    u64 *closed, int has_grey, int has_phase, int low, long long count, long long offset,
    long long depth, int height, int width)
{
    __shared__ int begins[RUNS];
    __shared__ int number;
    for (long long first = (long long)blockIdx.x * RUNS; first < count;
         first += (long long)gridDim.x * RUNS) {
        if (threadIdx.x == 0) number = 0;
        __syncthreads();
        for (int k = threadIdx.x; k < RUNS && first + k < count; k += blockDim.x) {
            long long i = first + k;
            int own = basins[i];
            if (own == 0) continue;
            bool is_first = (unsigned)i % (unsigned)width == 0;
            if (is_first || basins[i - 1] != own) begins[atomicAdd(&number, 1)] = k;
        }
        __syncthreads();
        for (int k = threadIdx.x; k < number; k += blockDim.x)
            add_run(
                first + begins[k], basins, grey, phase, sums, bounds, closed, has_grey, has_phase,
                low, offset, height, width);
        __syncthreads();
    }
}

// Count, in every direction, where the faces of the volume cut basins: a thread has each `threads`-th
// of the rows, of which those inside end in two voxels at faces. There are several `tables` of counts.
__global__ void count_border_crossings(
    const int *basins, u64 *border_crossings, int tables, long long offset, long long depth,
    int height, int width, long long rows, long long threads)
{
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= threads) return;
    u64 found[N_DIRECTIONS] = {0};
    for (long long row = at; row < rows; row += threads) {
        int y = (int)((unsigned)row % (unsigned)height);
        long long z = offset + (unsigned)row / (unsigned)height;
        bool is_inside = z > 0 && z < depth - 1 && y > 0 && y < height - 1;
        int step = is_inside && width > 1 ? width - 1 : 1;
        for (int x = 0; x < width; x += step) {
            if (basins[row * width + x] == 0) continue;
            for (int k = 0; k < N_DIRECTIONS; k++) {
                int dz = STEP[k][0], dy = STEP[k][1], dx = STEP[k][2];
                bool back = z - dz >= 0 && y - dy >= 0 && y - dy < height && x - dx >= 0 &&
                            x - dx < width;
                bool ahead = z + dz < depth && y + dy >= 0 && y + dy < height && x + dx >= 0 &&
                             x + dx < width;
                found[k] += !back + !ahead;
            }
        }
    }
    for (int k = 0; k < N_DIRECTIONS; k++)
        if (found[k]) atomicAdd(border_crossings + at % tables * N_DIRECTIONS + k, found[k]);
}

// Count where basins end, in every direction, and find the edges with their contacts, and with their
// saddles in the first `ways` directions: the height in the upper half, and in the lower how far from
// the end of what can be counted the voxel is, so that of those as high the first is the largest.
//
// A block has one brick of voxels after the other, and counts in a table of its own first, of edges and
// of basins, each an edge to itself: in a brick there are few, and each is met often. What does not fit
// there is counted in the tables of all at once.
__global__ void find_edges(
    const int *basins, const float *distance, u64 *crossings, u64 *keys, unsigned *is_used,
    u64 *saddles, int *contacts, int *is_full, long long size, int ways, int low, long long count,
    long long offset, long long depth, int height, int width)
{
    __shared__ u64 own_keys[PLACES], own_saddles[PLACES];
    __shared__ int own_counts[PLACES * N_DIRECTIONS];
    Tables all = {crossings, keys, is_used, saddles, contacts, is_full, size, low};
    long long plane = (long long)height * width;
    int slices = (int)(count / plane), across = (width - 1) / BRICK_X + 1;
    int down = (height - 1) / BRICK_Y + 1, deep = (slices - 1) / BRICK_Z + 1;
    for (long long brick = blockIdx.x; brick < (long long)across * down * deep; brick += gridDim.x) {
        for (int k = threadIdx.x; k < PLACES * N_DIRECTIONS; k += blockDim.x) {
            own_counts[k] = 0;
            if (k < PLACES) own_keys[k] = EMPTY, own_saddles[k] = 0;
        }
        __syncthreads();
        int x0 = (int)(brick % across) * BRICK_X, y0 = (int)(brick / across % down) * BRICK_Y;
        int z0 = (int)(brick / across / down) * BRICK_Z;
        // the table of all will be made anew: what else is found is thrown away
        for (int n = threadIdx.x; n < BRICK_X * BRICK_Y * BRICK_Z && !*(volatile int *)is_full;
             n += blockDim.x) {
            int x = x0 + n % BRICK_X, y = y0 + n / BRICK_X % BRICK_Y;
            int in_slab = z0 + n / (BRICK_X * BRICK_Y);
            if (x >= width || y >= height || in_slab >= slices) continue;
            long long i = in_slab * plane + (long long)y * width + x, z = offset + in_slab;
            int own = basins[i];
            if (own == 0) continue;
            int at_own = -2;
            for (int k = 0; k < N_DIRECTIONS; k++) {
                int dz = STEP[k][0], dy = STEP[k][1], dx = STEP[k][2];
                bool ahead = z + dz < depth && y + dy >= 0 && y + dy < height && x + dx >= 0 &&
                             x + dx < width;
                long long neighbour = i + ((long long)dz * height + dy) * width + dx;
                int other = ahead ? basins[neighbour] : 0;
                if (other == own) continue;
                if (at_own == -2) at_own = place_of(own_keys, key_of_edge(own, own));
                count_one(all, own_counts, at_own, own, own, k);
                if (other == 0) continue;
                int at = place_of(own_keys, key_of_edge(own, other));
                count_one(all, own_counts, at, own, other, k);
                if (k >= ways) continue;
                float way = distance[i] < distance[neighbour] ? distance[i] : distance[neighbour];
                unsigned place = (unsigned)(distance[i] == way ? i : neighbour);
                u64 saddle = (u64)as_bits(way) << 32 | ~place;
                if (at >= 0)
                    raise(own_saddles + at, saddle);
                else
                    add_edge(all, own, other, k, 0, saddle);
            }
        }
        __syncthreads();
        for (int k = threadIdx.x; k < PLACES; k += blockDim.x)
            if (own_keys[k] != EMPTY)
                for (int way = 0; way < N_DIRECTIONS; way++) {
                    int a = (int)(own_keys[k] >> 32), b = (int)own_keys[k];
                    u64 saddle = way == 0 ? own_saddles[k] : 0;
                    add_edge(all, a, b, way, own_counts[k * N_DIRECTIONS + way], saddle);
                }
        __syncthreads();
    }
}

// Count, in every direction, the neighbours of which one is void and one is air, of phase `air`, in
// several `tables`.
__global__ void count_air_crossings(
    const unsigned char *phase, u64 *border_crossings, int tables, int air, int height, int width,
    long long count, long long threads)
{
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= threads) return;
    u64 found[N_DIRECTIONS] = {0};
    for (long long i = at; i < count; i += threads) {
        if (phase[i] == 0) continue;
        Voxel voxel = voxel_at(i, height, width);
        int x = voxel.x, y = voxel.y;
        for (int k = 0; k < N_DIRECTIONS; k++) {
            int dz = STEP[k][0], dy = STEP[k][1], dx = STEP[k][2];
            long long neighbour = i + ((long long)dz * height + dy) * width + dx;
            if (neighbour >= count || y + dy < 0 || y + dy >= height || x + dx < 0 ||
                x + dx >= width)
                continue;
            found[k] += phase[neighbour] != 0 && (phase[i] == air) != (phase[neighbour] == air);
        }
    }
    for (int k = 0; k < N_DIRECTIONS; k++)
        if (found[k]) atomicAdd(border_crossings + at % tables * N_DIRECTIONS + k, found[k]);
}
}
