// Squared Euclidean distance, one axis after the other, as hushpore/pores/distance.py has it.
//
// No barriers and no shared memory: a thread depends on no other of its launch, so that the kernels
// run, and are raced, on a CPU too. They are compiled without fused multiply-add, which rounds once
// where the CPU rounds twice.

// Voxels up to which a line is looked through in float32; where that is not enough, in float64.
#define REACH 48
#define FAR (1.0f / 0.0f)

extern "C" {

// Write the squared distance along z of every column; `before` and `after` hold the plain one beside
// the slab.
__global__ void scan_z(
    const unsigned char *phase, float *distance, const float *before, const float *after,
    long long plane, long long depth, int highest, float scale)
{
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= plane) return;
    float carried = before[at];
    for (long long i = at; i < plane * depth; i += plane) {
        carried = phase[i] >= 1 && phase[i] <= highest ? carried + 1.0f : 0.0f;
        distance[i] = carried;
    }
    carried = after[at];
    for (long long i = at + plane * (depth - 1); i >= 0; i -= plane) {
        carried = distance[i] < carried + 1.0f ? distance[i] : carried + 1.0f;
        distance[i] = carried * carried * scale;
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
    if (best > (float)(weight * REACH * REACH)) *is_far = 1;
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

__global__ void far_y(
    const float *values, float *out, const unsigned char *is_far, long long count, int height,
    int width, double weight, float edge)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    long long plane = (long long)height * width, z = i / plane, in_plane = i % plane;
    if (!is_far[z]) return;
    const float *line = values + z * plane + in_plane % width;
    out[i] = far_on_line(line, width, height, (int)(in_plane / width), weight, edge);
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
    const float *values, float *out, const unsigned char *is_far, long long count, int width,
    double weight, float edge)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    long long row = i / width;
    if (is_far[row])
        out[i] = far_on_line(values + row * width, 1, width, (int)(i % width), weight, edge);
}
}
