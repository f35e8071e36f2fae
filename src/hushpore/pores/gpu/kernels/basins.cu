// Basins of the distance map, as hushpore/pores/watershed/basins.py has them; see distance.cu.

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

// Flags are bits of words; a word has so many.
#define BITS 32

__device__ inline void set_flag(unsigned *flags, long long at)
{
    unsigned bit = 1u << (at % BITS);
    if (!(flags[at / BITS] & bit)) atomicOr(flags + at / BITS, bit);
}

// How many flags are set up to one, itself included; `counts` has it for the end of each word.
__device__ inline int count_up_to(const unsigned *flags, const int *counts, long long last)
{
    long long word = last / BITS;
    unsigned up_to = 0xFFFFFFFFu >> (BITS - 1 - last % BITS);
    return (word ? counts[word - 1] : 0) + __popc(flags[word] & up_to);
}

extern "C" {

// Write the sum of the 3x3x3 voxels around each.
__global__ void sum_boxes(
    const float *distance, float *sums, long long count, int height, int width)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    Voxel voxel = voxel_at(i, height, width);
    int x = voxel.x, y = voxel.y;
    long long plane = (long long)height * width;
    const float *at = distance + i;
    float before = i >= plane ? sum_in_slice(at - plane, x, y, height, width) : 0.0f;
    float after = i < count - plane ? sum_in_slice(at + plane, x, y, height, width) : 0.0f;
    sums[i] = (before + after) + sum_in_slice(at, x, y, height, width);
}

// Point every void voxel to the highest of the 27 around it, or of the 7 that share a face with it,
// of equals to the first; solid is 0, and a pointer is negative, ~n to voxel n. What lies beside the
// slab, before `begin` or from `end` on, leads nowhere else. Peaks of the slab are flagged, and its
// exits: the voxels beside it that are led to, in the slice before it and then in the one after it.
__global__ void steepest_ascent(
    const float *distance, const float *sums, int *pointers, unsigned *is_peak, unsigned *is_exit,
    long long count, long long depth, int height, int width, int faces_only, long long begin,
    long long end)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    if (i < begin || i >= end) {
        pointers[i] = ~(int)i;
        return;
    }
    if (bits_of(distance[i]) == 0) {
        pointers[i] = 0;
        return;
    }
    Voxel voxel = voxel_at(i, height, width);
    int x = voxel.x, y = voxel.y, z = voxel.z;
    long long best = 0, target = i;
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
    pointers[i] = ~(int)target;
    long long plane = (long long)height * width;
    if (target == i)
        set_flag(is_peak, i - begin);
    else if (target < begin)
        set_flag(is_exit, target - begin + plane);
    else if (target >= end)
        set_flag(is_exit, target - end + plane);
}

// Make peaks of some voxels: what led to them or over them ends there.
__global__ void make_peaks(
    const long long *places, int *pointers, unsigned *is_peak, long long number)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= number) return;
    pointers[places[i]] = ~(int)places[i];
    set_flag(is_peak, places[i]);
}

// Replace pointers by the numbers of the peaks that they lead to, from `first` on; those that lead out
// of the slab go on pointing to where they do.
//
// A thread changes its own after each hop, and at last to a number: who follows it meanwhile has the
// less to go. Pointers and numbers differ by their sign; old or new, they lead the same way.
__global__ void number(
    int *pointers, const unsigned *is_peak, const int *peaks, long long begin, long long end,
    int first)
{
    long long i = begin + (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= end) return;
    int found = pointers[i];
    if (found >= 0) return;
    for (int next = HOP(pointers[~found]); next != found; next = HOP(pointers[~found])) {
        found = next;
        pointers[i] = found;
        if (found >= 0) return;
    }
    int at = ~found;
    if (at >= begin && at < end) pointers[i] = first + count_up_to(is_peak, peaks, at - begin);
}

// Turn the pointers of parts, each to an earlier voxel of its part, -1 where there is none, into those
// that `number` takes, and flag the first voxels, which point to themselves.
__global__ void point_to_firsts(int *parts, unsigned *is_first, long long count)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    if (parts[i] == (int)i) set_flag(is_first, i);
    parts[i] = ~parts[i];
}

// Replace the pointers that are left by -1 - n where they lead to exit n.
__global__ void number_exits(
    int *pointers, const unsigned *is_exit, const int *exits, long long begin, long long end,
    long long plane)
{
    long long i = begin + (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= end || pointers[i] >= 0) return;
    int at = ~pointers[i];
    pointers[i] = -count_up_to(is_exit, exits, at < begin ? at - begin + plane : at - end + plane);
}

// Count the flags of each word.
__global__ void count_flags(const unsigned *flags, int *counts, long long words)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < words) counts[i] = __popc(flags[i]);
}

// Write the places of flags that are set, in their order, word by word.
__global__ void compact(const unsigned *flags, const int *counts, long long *places, long long words)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= words) return;
    int number = i ? counts[i - 1] : 0;
    for (unsigned left = flags[i]; left; left &= left - 1)
        places[number++] = i * BITS + __ffs((int)left) - 1;
}
}
