// Shared by all kernels: this text is compiled in front of each file.

typedef unsigned long long u64;

// Tests count the pointers that are followed, and the places that are looked at on the way.
#ifndef HOP
#define HOP(pointer) (pointer)
#endif

// Position of a voxel. A slab has fewer than 2**31 voxels, so divisions of 32 bits are enough: those of
// 64 bits take some 30 instructions each.
struct Voxel {
    int x, y, z;
};

__device__ inline Voxel voxel_at(long long i, int height, int width)
{
    unsigned row = (unsigned)i / (unsigned)width, z = row / (unsigned)height;
    return {(int)((unsigned)i - row * width), (int)(row - z * height), (int)z};
}
