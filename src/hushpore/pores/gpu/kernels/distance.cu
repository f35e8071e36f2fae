// Squared Euclidean distance, one axis after the other, as in hushpore/pores/watershed/distance.py.
//
// A thread depends on no other of its launch, so that the kernels run, and are raced, on a CPU too.
// They are compiled without fused multiply-add, which rounds once where the CPU rounds twice.

// Voxels up to which a line is looked through in float32; where that is not enough, in float64.
#define REACH 48
#define FAR (1.0f / 0.0f)

// Slices that are loaded before any of them is stored: a load that came after a store to the same
// array would wait for it.
#define AHEAD 8

// How far along z the nearest solid is, in voxels, takes 16 bits; where there is none:
#define NOWHERE 65535

// A column of a slice, as it is known after z: squared distances along z, of voxels `scale` high.
struct Column {
    const unsigned short *steps;
    int width;
    float scale;
    __device__ inline float operator()(int at) const
    {
        unsigned short away = steps[(long long)at * width];
        return away == NOWHERE ? FAR : (float)away * (float)away * scale;
    }
};

// A row.
struct Row {
    const float *values;
    __device__ inline float operator()(int at) const { return values[at]; }
};

// What a line puts up at a place of it: `edge` right beside its ends, nothing beyond.
template <class Line> __device__ inline float on_line(Line line, int size, int at, float edge)
{
    if (at >= 0 && at < size) return line(at);
    return at == -1 || at == size ? edge : FAR;
}

// Find min over i of line[i] + weight * (i - at)^2 near by; `is_far` says where that is not enough.
template <class Line>
__device__ inline float near_on_line(
    Line line, int size, int at, double weight, float edge, unsigned char *is_far)
{
    float best = line(at);
    for (int away = 1; away < REACH; away++) {
        float rise = (float)(weight * away * away);
        if (!(best > rise)) return best;
        float before = on_line(line, size, at - away, edge) + rise;
        float after = on_line(line, size, at + away, edge) + rise;
        if (before < best) best = before;
        if (after < best) best = after;
    }
    // many set it: to look is cheap, and to write is not
    if (best > (float)(weight * REACH * REACH) && !*is_far) *is_far = 1;
    return best;
}

template <class Line>
__device__ inline float far_on_line(Line line, int size, int at, double weight, float edge)
{
    double best = line(at);
    for (int away = 1; away <= size; away++) {
        double rise = weight * ((double)away * away);
        if (!(best > rise)) break;
        double before = on_line(line, size, at - away, edge) + rise;
        double after = on_line(line, size, at + away, edge) + rise;
        if (before < best) best = before;
        if (after < best) best = after;
    }
    return (float)best;
}

extern "C" {

// Find how far along z the nearest solid is in every column; `before` and `after` hold it beside the
// slab.
__global__ void scan_z(
    const unsigned char *__restrict__ phase, unsigned short *__restrict__ steps,
    const float *before, const float *after, long long plane, long long depth, int highest)
{
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= plane) return;
    float carried = before[at];
#pragma unroll 8
    for (long long i = at; i < plane * depth; i += plane) {
        carried = phase[i] >= 1 && phase[i] <= highest ? carried + 1.0f : 0.0f;
        steps[i] = carried < NOWHERE ? (unsigned short)carried : NOWHERE;
    }
    carried = after[at];
    for (long long last = depth - 1; last >= 0; last -= AHEAD) {
        unsigned short loaded[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (k <= last) loaded[k] = steps[at + plane * (last - k)];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            if (k > last) break;
            float found = loaded[k] == NOWHERE ? FAR : loaded[k];
            carried = found < carried + 1.0f ? found : carried + 1.0f;
            steps[at + plane * (last - k)] =
                carried < NOWHERE ? (unsigned short)carried : NOWHERE;
        }
    }
}

// Along y; a slice is far where any of its voxels is.
__global__ void near_y(
    const unsigned short *steps, float *out, unsigned char *is_far, float scale, long long count,
    int height, int width, double weight, float edge)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    Voxel voxel = voxel_at(i, height, width);
    Column line = {steps + (long long)voxel.z * height * width + voxel.x, width, scale};
    out[i] = near_on_line(line, height, voxel.y, weight, edge, is_far + voxel.z);
}

// A block has rows of their slices, and goes through those of slices that are far.
__global__ void far_y(
    const unsigned short *steps, float *out, const unsigned char *is_far, float scale,
    long long rows, int height, int width, double weight, float edge)
{
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        if (!is_far[row / height]) continue;
        int y = (int)(row % height);
        const unsigned short *slice = steps + (row - y) * width;
        for (int x = threadIdx.x; x < width; x += blockDim.x) {
            Column line = {slice + x, width, scale};
            out[row * width + x] = far_on_line(line, height, y, weight, edge);
        }
    }
}

// Along x; a row is far where any of its voxels is.
__global__ void near_x(
    const float *values, float *out, unsigned char *is_far, long long count, int width,
    double weight, float edge)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    unsigned row = (unsigned)i / (unsigned)width;
    long long first = (long long)row * width;
    Row line = {values + first};
    out[i] = near_on_line(line, width, (int)(i - first), weight, edge, is_far + row);
}

__global__ void far_x(
    const float *values, float *out, const unsigned char *is_far, long long rows, int width,
    double weight, float edge)
{
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        if (!is_far[row]) continue;
        Row line = {values + row * width};
        for (int x = threadIdx.x; x < width; x += blockDim.x)
            out[row * width + x] = far_on_line(line, width, x, weight, edge);
    }
}
}
