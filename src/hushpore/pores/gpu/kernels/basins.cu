// Basins of the distance map, as hushpore/pores/watershed/basins.py has them; see distance.cu.

// The float of the same bits; those of floats above zero are in order as integers.
__device__ inline long long bits_of(float value)
{
    union { float value; int bits; } both;
    both.value = value;
    return both.bits;
}

// Voxels of a brick along each axis, which a block has at a time, with a rim of two around it, and with
// a rim of one.
#define BRICK_X 32
#define BRICK_Y 8
#define BRICK_Z 8
#define WIDE(edge) ((edge) + 4)
#define RIM(edge) ((edge) + 2)

// The sum of the 3x3 voxels of a slice around one, in a brick with its rim of two; sides first: flips
// then change nothing.
__device__ inline float sum_in_slice(const float *middle)
{
    float line[3];
    for (int dy = -1; dy <= 1; dy++) {
        const float *at = middle + dy * WIDE(BRICK_X);
        line[dy + 1] = (at[-1] + at[1]) + at[0];
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

// Point every void voxel to the highest of the 27 around it, or of the 7 that share a face with it,
// of equals to the first; solid is 0, and a pointer is negative, ~n to voxel n. What lies beside the
// slab, before `begin` or from `end` on, leads nowhere else. Peaks of the slab are flagged, and its
// exits: the voxels beside it that are led to, in the slice before it and then in the one after it.
//
// A block reads a brick once, and sums up the 3x3x3 voxels around each in memory of its own. Outside the
// volume all is 0, to which no void voxel leads.
__global__ void steepest_ascent(
    const float *distance, int *pointers, unsigned *is_peak, unsigned *is_exit, long long depth,
    int height, int width, int faces_only, long long begin, long long end)
{
    __shared__ float heights[WIDE(BRICK_Z) * WIDE(BRICK_Y) * WIDE(BRICK_X)];
    __shared__ float sums[RIM(BRICK_Z) * RIM(BRICK_Y) * RIM(BRICK_X)];
    const int row = WIDE(BRICK_X), slice = WIDE(BRICK_Y) * row;
    long long plane = (long long)height * width;
    int across = (width - 1) / BRICK_X + 1, down = (height - 1) / BRICK_Y + 1;
    int deep = (int)(depth - 1) / BRICK_Z + 1;
    for (long long brick = blockIdx.x; brick < (long long)across * down * deep; brick += gridDim.x) {
        int x0 = (int)(brick % across) * BRICK_X, y0 = (int)(brick / across % down) * BRICK_Y;
        int z0 = (int)(brick / across / down) * BRICK_Z;
        for (int k = threadIdx.x; k < WIDE(BRICK_Z) * slice; k += blockDim.x) {
            int x = x0 - 2 + k % row, y = y0 - 2 + k / row % WIDE(BRICK_Y), z = z0 - 2 + k / slice;
            bool inside = x >= 0 && x < width && y >= 0 && y < height && z >= 0 && z < depth;
            heights[k] = inside ? distance[z * plane + (long long)y * width + x] : 0.0f;
        }
        __syncthreads();
        for (int k = threadIdx.x; k < RIM(BRICK_Z) * RIM(BRICK_Y) * RIM(BRICK_X); k += blockDim.x) {
            int x = k % RIM(BRICK_X), y = k / RIM(BRICK_X) % RIM(BRICK_Y);
            int z = k / (RIM(BRICK_X) * RIM(BRICK_Y));
            const float *at = heights + (z + 1) * slice + (y + 1) * row + x + 1;
            sums[k] = (sum_in_slice(at - slice) + sum_in_slice(at + slice)) + sum_in_slice(at);
        }
        __syncthreads();
        for (int n = threadIdx.x; n < BRICK_X * BRICK_Y * BRICK_Z; n += blockDim.x) {
            int dx = n % BRICK_X, dy = n / BRICK_X % BRICK_Y, dz = n / (BRICK_X * BRICK_Y);
            if (x0 + dx >= width || y0 + dy >= height || z0 + dz >= depth) continue;
            long long i = (z0 + dz) * plane + (long long)(y0 + dy) * width + x0 + dx, target = i;
            const float *at = heights + (dz + 2) * slice + (dy + 2) * row + dx + 2;
            const float *sum = sums + ((dz + 1) * RIM(BRICK_Y) + dy + 1) * RIM(BRICK_X) + dx + 1;
            bool is_beside = i < begin || i >= end;
            if (is_beside || bits_of(*at) == 0) {
                pointers[i] = is_beside ? ~(int)i : 0;
                continue;
            }
            long long best = 0;
            for (int z = -1; z <= 1; z++)
                for (int y = -1; y <= 1; y++)
                    for (int x = -1; x <= 1; x++) {
                        if (faces_only && z * z + y * y + x * x > 1) continue;
                        float box = sum[(z * RIM(BRICK_Y) + y) * RIM(BRICK_X) + x];
                        long long key = key_of(at[z * slice + y * row + x], box);
                        if (key > best) {
                            best = key;
                            target = i + ((long long)z * height + y) * width + x;
                        }
                    }
            pointers[i] = ~(int)target;
            if (target == i)
                set_flag(is_peak, i - begin);
            else if (target < begin)
                set_flag(is_exit, target - begin + plane);
            else if (target >= end)
                set_flag(is_exit, target - end + plane);
        }
        __syncthreads();
    }
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
