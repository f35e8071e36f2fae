// Basins of the distance map, as hushpore/pores/basins.py has them.
//
// No barriers and no shared memory: see distance.cu.

// The float of the same bits; those of floats above zero are in order as integers.
__device__ inline long long bits_of(float value)
{
    union { float value; int bits; } both;
    both.value = value;
    return both.bits;
}

extern "C" {

// Write the sum of the 3x3 voxels of a slice around each; sides first: flips then change nothing.
__global__ void sum_slices(
    const float *distance, float *sums, long long count, int height, int width)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    int x = (int)(i % width), y = (int)(i / width % height);
    float line[3];
    for (int dy = -1; dy <= 1; dy++) {
        float total = 0.0f;
        if (y + dy >= 0 && y + dy < height) {
            const float *at = distance + i + dy * width;
            total = (x > 0 ? at[-1] : 0.0f) + (x < width - 1 ? at[1] : 0.0f);
            total = total + at[0];
        }
        line[dy + 1] = total;
    }
    sums[i] = (line[0] + line[2]) + line[1];
}

// Write the key of each voxel: squared distance, then the sum of the 3x3x3 voxels around it.
__global__ void make_keys(
    const float *distance, const float *sums, long long *keys, long long count, long long plane)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float before = i >= plane ? sums[i - plane] : 0.0f;
    float after = i < count - plane ? sums[i + plane] : 0.0f;
    float total = (before + after) + sums[i];
    keys[i] = (bits_of(distance[i]) << 32) | ((bits_of(total) >> 4) << 5);
}

// Point every void voxel to the highest of the 27 around it, of equals to the first; solid to -1.
__global__ void point(
    const float *distance, const long long *keys, int *pointers, long long count, long long depth,
    int height, int width)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    if (distance[i] == 0.0f) {
        pointers[i] = -1;
        return;
    }
    int x = (int)(i % width), y = (int)(i / width % height);
    long long z = i / width / height, best = 0, target = i;
    for (int dz = -1; dz <= 1; dz++)
        for (int dy = -1; dy <= 1; dy++)
            for (int dx = -1; dx <= 1; dx++) {
                if (z + dz < 0 || z + dz >= depth || y + dy < 0 || y + dy >= height ||
                    x + dx < 0 || x + dx >= width) continue;
                long long there = i + ((long long)dz * height + dy) * width + dx;
                if (keys[there] > best) {
                    best = keys[there];
                    target = there;
                }
            }
    pointers[i] = (int)target;
}

// Make every pointer lead straight to its end. Another thread may change a pointer meanwhile: old
// or new, it leads the same way.
__global__ void climb(int *pointers, long long count)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    int at = pointers[i];
    if (at < 0) return;
    for (int next = pointers[at]; next != at; next = pointers[at]) at = next;
    pointers[i] = at;
}

__global__ void mark_summits(const int *pointers, unsigned char *is_summit, long long count)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) is_summit[i] = pointers[i] == i;
}

// Replace pointers by the numbers of their summits; `rank` counts summits, each itself included.
__global__ void number(const int *pointers, const int *rank, int *basins, long long count)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) basins[i] = pointers[i] < 0 ? 0 : rank[pointers[i]];
}
}
