// Basins of the distance map, as hushpore/pores/basins.py has them; see distance.cu.

// Tests count how many pointers are followed.
#ifndef HOP
#define HOP(pointer) (pointer)
#endif

// The float of the same bits; those of floats above zero are in order as integers.
__device__ inline long long bits_of(float value)
{
    union { float value; int bits; } both;
    both.value = value;
    return both.bits;
}

// The sum of the 3x3 voxels of a slice around one; sides first: flips then change nothing.
__device__ inline float sum_in_slice(const float *middle, int x, int y, int height, int width)
{
    float line[3];
    for (int dy = -1; dy <= 1; dy++) {
        float total = 0.0f;
        if (y + dy >= 0 && y + dy < height) {
            const float *at = middle + dy * width;
            total = (x > 0 ? at[-1] : 0.0f) + (x < width - 1 ? at[1] : 0.0f);
            total = total + at[0];
        }
        line[dy + 1] = total;
    }
    return (line[0] + line[2]) + line[1];
}

// What voxels are ordered by: squared distance, then the sum around, rounded. In the solid it is below
// 2**32.
__device__ inline long long key_of(float distance, float sum)
{
    return (bits_of(distance) << 32) | ((bits_of(sum) >> 4) << 5);
}

// Flags are counted in stretches of so many.
#define STRETCH 32

// How many flags are set up to one, itself included; `counts` has it for the end of each stretch.
__device__ inline int count_up_to(const unsigned char *flags, const int *counts, long long last)
{
    long long stretch = last / STRETCH;
    int number = stretch ? counts[stretch - 1] : 0;
    for (long long i = stretch * STRETCH; i <= last; i++) number += flags[i];
    return number;
}

extern "C" {

// Write the sum of the 3x3x3 voxels around each.
__global__ void sum_boxes(
    const float *distance, float *sums, long long count, int height, int width)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    int x = (int)(i % width), y = (int)(i / width % height);
    long long plane = (long long)height * width;
    const float *at = distance + i;
    float before = i >= plane ? sum_in_slice(at - plane, x, y, height, width) : 0.0f;
    float after = i < count - plane ? sum_in_slice(at + plane, x, y, height, width) : 0.0f;
    sums[i] = (before + after) + sum_in_slice(at, x, y, height, width);
}

// Point every void voxel to the highest of the 27 around it, or of the 7 that share a face with it,
// of equals to the first; solid to -1. What lies beside the slab, before `begin` or from `end` on,
// leads nowhere else.
__global__ void steepest_ascent(
    const float *distance, const float *sums, int *pointers, long long count, long long depth,
    int height, int width, int faces_only, long long begin, long long end)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    if (i < begin || i >= end) {
        pointers[i] = (int)i;
        return;
    }
    if (bits_of(distance[i]) == 0) {
        pointers[i] = -1;
        return;
    }
    int x = (int)(i % width), y = (int)(i / width % height);
    long long z = i / width / height, best = 0, target = i;
    for (int dz = -1; dz <= 1; dz++)
        for (int dy = -1; dy <= 1; dy++)
            for (int dx = -1; dx <= 1; dx++) {
                if (faces_only && dz * dz + dy * dy + dx * dx > 1) continue;
                if (z + dz < 0 || z + dz >= depth || y + dy < 0 || y + dy >= height ||
                    x + dx < 0 || x + dx >= width) continue;
                long long neighbour = i + ((long long)dz * height + dy) * width + dx;
                long long key = key_of(distance[neighbour], sums[neighbour]);
                if (key > best) {
                    best = key;
                    target = neighbour;
                }
            }
    pointers[i] = (int)target;
}

// Make every pointer lead straight to its end. A thread changes its own after each hop: who follows
// it meanwhile goes as far in one hop, so that the way halves with each. Old or new, a pointer leads
// the same way.
__global__ void compress_paths(int *pointers, long long count)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    int at = pointers[i];
    if (at < 0) return;
    for (int next = HOP(pointers[at]); next != at; next = HOP(pointers[at])) {
        at = next;
        pointers[i] = at;
    }
}

// Mark the peaks of a slab, and its exits: the voxels beside it that are led to. Exits are counted
// in the slice before the slab and then in the one after it.
__global__ void mark_peaks_and_exits(
    const int *pointers, unsigned char *is_peak, unsigned char *is_exit, long long begin,
    long long end, long long plane)
{
    long long i = begin + (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= end) return;
    int target = pointers[i];
    is_peak[i - begin] = target == i;
    if (target >= end)
        is_exit[plane + target - end] = 1;
    else if (target >= 0 && target < begin)
        is_exit[target - begin + plane] = 1;
}

// Count the flags of each stretch.
__global__ void count_flags(
    const unsigned char *flags, int *counts, long long count, long long stretches)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= stretches) return;
    long long first = i * STRETCH, end = first + STRETCH < count ? first + STRETCH : count;
    int number = 0;
    for (long long k = first; k < end; k++) number += flags[k];
    counts[i] = number;
}

// Write the places of flags that are set, in their order, stretch by stretch.
__global__ void compact(
    const unsigned char *flags, const int *counts, long long *places, long long count,
    long long stretches)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= stretches) return;
    long long first = i * STRETCH, end = first + STRETCH < count ? first + STRETCH : count;
    int number = i ? counts[i - 1] : 0;
    for (long long k = first; k < end; k++)
        if (flags[k]) places[number++] = k;
}

// Replace pointers in place by the numbers of their peaks, from `first` on, and by -1 - n where
// they lead to exit n.
__global__ void number(
    int *pointers, const unsigned char *is_peak, const int *peaks, const unsigned char *is_exit,
    const int *exits, long long begin, long long end, long long plane, int first)
{
    long long i = begin + (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= end) return;
    int target = pointers[i];
    if (target < 0)
        pointers[i] = 0;
    else if (target >= end)
        pointers[i] = -count_up_to(is_exit, exits, plane + target - end);
    else if (target < begin)
        pointers[i] = -count_up_to(is_exit, exits, target - begin + plane);
    else
        pointers[i] = first + count_up_to(is_peak, peaks, target - begin);
}

// Replace basins by the labels of their pores.
__global__ void relabel(int *basins, const int *label_of, long long count)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) basins[i] = label_of[basins[i]];
}
}
