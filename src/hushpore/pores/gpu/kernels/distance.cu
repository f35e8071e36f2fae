// Squared Euclidean distance, one axis after the other, as hushpore/pores/distance.py has it.
//
// A thread depends on no other of its launch, so that the kernels run, and are raced, on a CPU too.
// They are compiled without fused multiply-add, which rounds once where the CPU rounds twice.

// Voxels up to which a line is looked through in float32; where that is not enough, in float64.
#define REACH 48
#define FAR (1.0f / 0.0f)

// Slices that are loaded before any of them is stored: a load that came after a store to the same
// array would wait for it.
#define AHEAD 8

extern "C" {

// Write the squared distance along z of every column; `before` and `after` hold the plain one beside
// the slab.
__global__ void scan_z(
    const unsigned char *__restrict__ phase, float *__restrict__ distance, const float *before,
    const float *after, long long plane, long long depth, int highest, float scale)
{
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= plane) return;
    float carried = before[at];
#pragma unroll 8
    for (long long i = at; i < plane * depth; i += plane) {
        carried = phase[i] >= 1 && phase[i] <= highest ? carried + 1.0f : 0.0f;
        distance[i] = carried;
    }
    carried = after[at];
    for (long long last = depth - 1; last >= 0; last -= AHEAD) {
        float loaded[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (k <= last) loaded[k] = distance[at + plane * (last - k)];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            if (k > last) break;
            carried = loaded[k] < carried + 1.0f ? loaded[k] : carried + 1.0f;
            distance[at + plane * (last - k)] = carried * carried * scale;
        }
    }
}

// What a line puts up at a place of it: `edge` right beside its ends, nothing beyond.
__device__ inline float on_line(
    const float *line, long long step, int size, int at, float edge)
{
    if (at >= 0 && at < size) return line[at * step];
    return at == -1 || at == size ? edge : FAR;
}

// Find min over i of line[i] + weight * (i - at)^2 near by; `is_far` says where that is not enough.
__device__ inline float near_on_line(
    const float *line, long long step, int size, int at, double weight, float edge,
    unsigned char *is_far)
{
    float best = line[at * step];
    for (int away = 1; away < REACH; away++) {
        float rise = (float)(weight * away * away);
        if (!(best > rise)) return best;
        float before = on_line(line, step, size, at - away, edge) + rise;
        float after = on_line(line, step, size, at + away, edge) + rise;
        if (before < best) best = before;
        if (after < best) best = after;
    }
    // many set it: to look is cheap, and to write is not
    if (best > (float)(weight * REACH * REACH) && !*is_far) *is_far = 1;
    return best;
}

__device__ inline float far_on_line(
    const float *line, long long step, int size, int at, double weight, float edge)
{
    double best = line[at * step];
    for (int away = 1; away <= size; away++) {
        double rise = weight * ((double)away * away);
        if (!(best > rise)) break;
        double before = on_line(line, step, size, at - away, edge) + rise;
        double after = on_line(line, step, size, at + away, edge) + rise;
        if (before < best) best = before;
        if (after < best) best = after;
    }
    return (float)best;
}

// Along y; a slice is far where any of its voxels is.
__global__ void near_y(
    const float *values, float *out, unsigned char *is_far, long long count, int height, int width,
    double weight, float edge)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    long long plane = (long long)height * width, z = i / plane, in_plane = i % plane;
    const float *line = values + z * plane + in_plane % width;
    out[i] = near_on_line(line, width, height, (int)(in_plane / width), weight, edge, is_far + z);
}

// A block has rows of their slices, and goes through those of slices that are far.
__global__ void far_y(
    const float *values, float *out, const unsigned char *is_far, long long rows, int height,
    int width, double weight, float edge)
{
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        if (!is_far[row / height]) continue;
        int y = (int)(row % height);
        const float *slice = values + (row - y) * width;
        for (int x = threadIdx.x; x < width; x += blockDim.x)
            out[row * width + x] = far_on_line(slice + x, width, height, y, weight, edge);
    }
}

// Along x; a row is far where any of its voxels is.
__global__ void near_x(
    const float *values, float *out, unsigned char *is_far, long long count, int width,
    double weight, float edge)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    long long row = i / width;
    const float *line = values + row * width;
    out[i] = near_on_line(line, 1, width, (int)(i % width), weight, edge, is_far + row);
}

__global__ void far_x(
    const float *values, float *out, const unsigned char *is_far, long long rows, int width,
    double weight, float edge)
{
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        if (!is_far[row]) continue;
        const float *line = values + row * width;
        for (int x = threadIdx.x; x < width; x += blockDim.x)
            out[row * width + x] = far_on_line(line, 1, width, x, weight, edge);
    }
}
}
