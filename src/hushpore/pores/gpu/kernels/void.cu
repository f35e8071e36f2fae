// From the grey values of a scanner to the void and its parts, as hushpore/pores/void/threshold.py and
// parts.py have them.
//
// What threads add up are whole numbers, and what they compete for is a maximum or a minimum, so that
// their order changes nothing. Where many would add to one place, a thread has more than one voxel,
// each `threads`-th of all, and there are several places, which are added up later; a mark that many
// set is looked at first.

// A float as an integer of the same order, and back.
__device__ inline int rank_of(float value)
{
    union { float value; int bits; } both;
    both.value = value;
    return both.bits < 0 ? both.bits ^ 0x7FFFFFFF : both.bits;
}

// Neither infinite nor NaN, whose exponents have all bits set.
__device__ inline bool is_finite(float value)
{
    union { float value; int bits; } both;
    both.value = value;
    return (both.bits & 0x7F800000) != 0x7F800000;
}

__device__ inline float value_of(int rank)
{
    union { float value; int bits; } both;
    both.bits = rank < 0 ? rank ^ 0x7FFFFFFF : rank;
    return both.value;
}

// The grey value of a voxel, from what crossed. Those of the integers of a scanner are on a line, one
// for every `on_line` voxels, which is worked out in float64 and rounded once; 0: there is none.
__device__ inline float grey(
    const unsigned char *stored, int kind, const double *slope, const double *intercept,
    long long on_line, long long i)
{
    float value;
    switch (kind) {
    case 0: value = stored[i]; break;
    case 1: value = ((const signed char *)stored)[i]; break;
    case 2: value = ((const unsigned short *)stored)[i]; break;
    case 3: value = ((const short *)stored)[i]; break;
    default: value = ((const float *)stored)[i];
    }
    if (on_line == 0) return value;
    unsigned line = (unsigned)i / (unsigned)on_line;
    return (float)((double)value * slope[line] + intercept[line]);
}

// The void voxel at the end of a chain. Another thread may hang a part below another meanwhile: then
// this is one that was the end, and is on the way to it.
//
// Every second voxel on the way is hung below the one after the next: who comes after has half as far
// to go. That may undo what another thread did meanwhile to a voxel that is no end any more, and does
// no harm: both lead the same way, and always to a voxel that comes before.
__device__ inline int root_of(int *parts, int at)
{
    for (;;) {
        int next = HOP(parts[at]);
        if (next == at) return at;
        int after = HOP(parts[next]);
        if (after == next) return next;
        parts[at] = after;
        at = after;
    }
}

// Make one part of two: the end that comes later is hung below the other. Where it was no end any
// more, what it hangs below has to be made one with the other as well.
__device__ inline void union_roots(int *parts, int a, int b)
{
    for (;;) {
        a = root_of(parts, a);
        b = root_of(parts, b);
        if (a == b) return;
        int high = a > b ? a : b, low = a > b ? b : a;
        int found = atomicMin(parts + high, low);
        if (found == high) return;
        a = found;
        b = low;
    }
}

// The end of the chain that a voxel begins, once all parts are made. The next on the way, which a whole
// stretch along x has in common, is hung below it: the others of the stretch have two steps to go, and
// nothing is written for each of them.
__device__ inline int end_of(int *parts, int at)
{
    int next = HOP(parts[at]), end = root_of(parts, next);
    if (end != next && parts[next] != end) parts[next] = end;
    return end;
}

// Counters of a block: of as many bins as lie around the first value that it counts.
#define NEARBY 8192

// Count in which bins values lie, -1 for none. A block has a stretch of them, of which most are near
// to the first: these are counted in its shared memory, and others where all blocks count.
template <class BinOf>
__device__ inline void count_in_block(int *counts, int bins, long long count, BinOf bin_of)
{
    __shared__ int nearby[NEARBY];
    long long stretch = (count + gridDim.x - 1) / gridDim.x, begin = stretch * blockIdx.x;
    long long end = begin + stretch < count ? begin + stretch : count;
    int lowest = begin < count ? bin_of(begin) - NEARBY / 2 : 0;
    lowest = lowest > 0 ? lowest : 0;
    for (int k = threadIdx.x; k < NEARBY; k += blockDim.x) nearby[k] = 0;
    __syncthreads();
    for (long long i = begin + threadIdx.x; i < end; i += blockDim.x) {
        int bin = bin_of(i);
        if (bin < 0) continue;
        bool is_nearby = bin >= lowest && bin - lowest < NEARBY;
        atomicAdd(is_nearby ? nearby + (bin - lowest) : counts + bin, 1);
    }
    __syncthreads();
    for (int k = threadIdx.x; k < NEARBY && lowest + k < bins; k += blockDim.x)
        if (nearby[k]) atomicAdd(counts + lowest + k, nearby[k]);
}

// Set a mark that many set: to look is cheap, and to write is not.
__device__ inline void mark(unsigned char *at)
{
    if (!*at) *at = 1;
}

extern "C" {

// Find the lowest and the highest of all finite values, as ranks, and how many others there are.
__global__ void find_range(
    const unsigned char *stored, int kind, const double *slope, const double *intercept,
    long long on_line, int *range, int *bad, long long count, long long threads)
{
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= threads) return;
    int low = 0x7FFFFFFF, high = -low, others = 0;
    for (long long i = at; i < count; i += threads) {
        float value = grey(stored, kind, slope, intercept, on_line, i);
        if (!is_finite(value)) {
            others++;
            continue;
        }
        // the negative zero counts as zero; a sum with zero would take the smallest values for zero,
        // too, as CuPy has kernels compiled
        int rank = rank_of(value);
        rank = rank == -1 ? 0 : rank;
        low = rank < low ? rank : low;
        high = rank > high ? rank : high;
    }
    if (low <= high) {
        atomicMin(range, low);
        atomicMax(range + 1, high);
    }
    if (others) atomicAdd(bad, others);
}

// Count whole numbers, level by level from `lowest` on.
__global__ void count_levels(
    const unsigned char *stored, int kind, int *counts, int bins, int lowest, long long count)
{
    count_in_block(counts, bins, count, [=](long long i) {
        return (int)grey(stored, kind, 0, 0, 0, i) - lowest;
    });
}

// Count finite values in equal bins over their range.
__global__ void count_bins(
    const unsigned char *stored, int kind, const double *slope, const double *intercept,
    long long on_line, const int *range, int *counts, int bins, long long count)
{
    if (range[0] >= range[1]) return;
    double low = value_of(range[0]), high = value_of(range[1]), scale = bins / (high - low);
    count_in_block(counts, bins, count, [=](long long i) {
        float value = grey(stored, kind, slope, intercept, on_line, i);
        if (!is_finite(value)) return -1;
        double position = ((double)value - low) * scale;
        // a few values may lie beyond the range
        position = position > 0 ? position : 0;
        return position < bins - 1 ? (int)position : bins - 1;
    });
}

// Round grey values, less an offset, to whole numbers of a step, of which one takes `steps`, a power
// of two.
__global__ void round_grey(
    const unsigned char *stored, int kind, const double *slope, const double *intercept,
    long long on_line, int *rounded, double offset, double steps, long long count)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    double value = grey(stored, kind, slope, intercept, on_line, i);
    // a few values may lie beyond the range
    rounded[i] = (int)fmin(fmax(rint((value - offset) * steps), -65536.0), 65536.0);
}

// Mark the void: up to the threshold where the pores are dark, above it where they are bright.
__global__ void find_void(
    const unsigned char *stored, int kind, const double *slope, const double *intercept,
    long long on_line, unsigned char *phase, double threshold, int bright, long long count)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    double value = grey(stored, kind, slope, intercept, on_line, i);
    phase[i] = (value > threshold) == (bright != 0);
}

// How far back along x a voxel looks: in wide voids each would else look through half a row.
#define BACK 16

// Hang every void voxel, of phase 1, below one before it in its stretch along x, at the most so far
// back, and the first of a stretch below one that it shares a face with, if there is any.
__global__ void link_runs(
    const unsigned char *phase, int *parts, long long count, int height, int width)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    long long plane = (long long)height * width, up = i;
    if (phase[i] != 1) {
        parts[i] = -1;
        return;
    }
    Voxel voxel = voxel_at(i, height, width);
    int reach = voxel.x < BACK ? voxel.x : BACK;
    while (i - up < reach && HOP(phase[up - 1]) == 1) up--;
    if (up == i && voxel.y > 0 && phase[i - width] == 1)
        up = i - width;
    else if (up == i && i >= plane && phase[i - plane] == 1)
        up = i - plane;
    parts[i] = (int)up;
}

// Make one of all parts that share a face along y or z; where `full`, an edge or a corner too. Where
// the voxels before these two along x are void, they see to it.
__global__ void union_parts(int *parts, int full, long long count, int height, int width)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count || parts[i] < 0) return;
    long long plane = (long long)height * width;
    Voxel voxel = voxel_at(i, height, width);
    for (int dz = full ? -1 : 1; dz <= 0; dz++)
        for (int dy = -1; dy <= -2 * dz - 1; dy++)
            for (int dx = -1; dx <= 1; dx++) {
                if (voxel.z + dz < 0 || voxel.y + dy < 0 || voxel.y + dy >= height ||
                    voxel.x + dx < 0 || voxel.x + dx >= width) continue;
                long long other = i + ((long long)dz * height + dy) * width + dx;
                if (parts[other] >= 0) union_roots(parts, (int)i, (int)other);
            }
    if (full) return;
    bool follows = voxel.x > 0 && parts[i - 1] >= 0;
    for (int along_z = 0; along_z < 2; along_z++) {
        if (along_z ? voxel.z == 0 : voxel.y == 0) continue;
        long long other = i - (along_z ? plane : width);
        if (parts[other] < 0 || (follows && parts[other - 1] >= 0)) continue;
        union_roots(parts, (int)i, (int)other);
    }
}

// Mark the parts that hold a voxel which passes a stricter threshold.
__global__ void mark_strict(
    const unsigned char *stored, int kind, const double *slope, const double *intercept,
    long long on_line, int *parts, unsigned char *is_marked, double threshold, int bright,
    long long count)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count || parts[i] < 0) return;
    double value = grey(stored, kind, slope, intercept, on_line, i);
    if ((value > threshold) == (bright != 0)) mark(is_marked + end_of(parts, (int)i));
}

// Mark the parts that hold a voxel of one face of the volume. A face has `rows` of `columns` voxels, so
// many places apart, from voxel `first` on.
__global__ void mark_face(
    int *parts, unsigned char *is_marked, long long first, int rows, long long row_step, int columns,
    int column_step)
{
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (long long)rows * columns) return;
    unsigned row = (unsigned)at / (unsigned)columns;
    long long i = first + row * row_step + (at - (long long)row * columns) * column_step;
    if (parts[i] >= 0) mark(is_marked + end_of(parts, (int)i));
}

// Mark the parts that share a face with a voxel of some phase.
__global__ void mark_neighbours(
    int *parts, const unsigned char *phase, unsigned char *is_marked, int which,
    long long count, int height, int width)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count || parts[i] < 0) return;
    long long plane = (long long)height * width;
    Voxel voxel = voxel_at(i, height, width);
    int x = voxel.x, y = voxel.y;
    if ((x > 0 && phase[i - 1] == which) || (x < width - 1 && phase[i + 1] == which) ||
        (y > 0 && phase[i - width] == which) || (y < height - 1 && phase[i + width] == which) ||
        (i >= plane && phase[i - plane] == which) ||
        (i < count - plane && phase[i + plane] == which))
        mark(is_marked + end_of(parts, (int)i));
}

// Count the voxels of each part where it begins, one stretch along x at a time, and tell of the slices
// that begin with voxel `first` and with voxel `last` where the parts in them begin, -1 for none.
__global__ void measure_parts(
    int *parts, int *voxels, int *in_slices, long long first, long long last, long long count,
    int height, int width)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    long long plane = (long long)height * width;
    bool in_first = i >= first && i < first + plane, in_last = i >= last && i < last + plane;
    bool begins = parts[i] >= 0 && ((unsigned)i % (unsigned)width == 0 || parts[i - 1] < 0);
    if (!in_first && !in_last && !begins) return;
    int part = parts[i] < 0 ? -1 : end_of(parts, (int)i);
    if (in_first) in_slices[i - first] = part;
    if (in_last) in_slices[plane + i - last] = part;
    if (!begins) return;
    long long end = i + 1, row_end = i + width - (unsigned)i % (unsigned)width;
    while (end < row_end && parts[end] >= 0) end++;
    atomicAdd(voxels + part, (int)(end - i));
}

// Write the phase of every voxel of a part, and count parts, voxels of marked ones and of others, in
// several `tables`.
__global__ void classify_parts(
    int *parts, const unsigned char *is_marked, unsigned char *phase, u64 *totals, int tables,
    int marked, int unmarked, long long count, long long threads)
{
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= threads) return;
    u64 found[3] = {0, 0, 0};
    for (long long i = at; i < count; i += threads) {
        if (parts[i] < 0) continue;
        int part = end_of(parts, (int)i);
        phase[i] = (unsigned char)(is_marked[part] ? marked : unmarked);
        found[0] += part == i;
        found[is_marked[part] ? 1 : 2]++;
    }
    for (int k = 0; k < 3; k++)
        if (found[k]) atomicAdd(totals + at % tables * 3 + k, found[k]);
}
}
