// The kernels' own source, run on the host: every thread of every block, one after the other, on rows of random shapes, strides, alignments
// and conversions, and compared with plain copies. `cargo xtask test` builds and runs it if there is a C++ compiler.

#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#define ON_HOST
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __restrict__

struct uint4 { unsigned x, y, z, w; };
struct ushort4 { unsigned short x, y, z, w; };
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static ushort4 make_ushort4(unsigned short x, unsigned short y, unsigned short z, unsigned short w) { return {x, y, z, w}; }
struct Dim { unsigned x, y, z; };
static Dim blockIdx, threadIdx, gridDim, blockDim;

template <typename To, typename From>
static To bits_of(From from) {
    To to;
    static_assert(sizeof to == sizeof from, "the same bits");
    memcpy(&to, &from, sizeof to);
    return to;
}
static float __uint_as_float(unsigned bits) { return bits_of<float>(bits); }
static unsigned __float_as_uint(float value) { return bits_of<unsigned>(value); }
static unsigned short round_to_fp16(float value) { return bits_of<unsigned short>((_Float16)value); }
static float from_fp16(unsigned short bits) { return (float)bits_of<_Float16>(bits); }

#include "../crates/state/src/device/cuda/kernels.cu"

static std::mt19937_64 noise(1);
static u64 below(u64 n) { return noise() % n; }

// One element, as the host converts it.
static void plainly(u32 convert, const u8* from, u8* to) {
    u32 wide;
    u16 narrow;
    switch (convert) {
        case NO: *to = *from; return;
        case FP32_TO_FP16:
            memcpy(&wide, from, 4);
            narrow = (wide & 0x7fffffff) > 0x7f800000 ? ((wide >> 16) & 0x8000) | 0x7e00 | ((wide >> 13) & 0x3ff)
                                                      : round_to_fp16(__uint_as_float(wide));
            memcpy(to, &narrow, 2);
            return;
        case FP32_TO_BF16: {
            memcpy(&wide, from, 4);
            bool up = (wide & 0x8000) && (wide & 0x17fff);
            narrow = (wide & 0x7fffffff) > 0x7f800000 ? (wide >> 16) | 0x40 : (wide >> 16) + up;
            memcpy(to, &narrow, 2);
            return;
        }
        case FP16_TO_FP32:
            memcpy(&narrow, from, 2);
            wide = (narrow & 0x7fff) > 0x7c00 ? (narrow & 0x8000u) << 16 | 0x7fc00000 | (narrow & 0x3ffu) << 13
                                              : __float_as_uint(from_fp16(narrow));
            memcpy(to, &wide, 4);
            return;
        default:
            memcpy(&narrow, from, 2);
            wide = (u32)(narrow | ((narrow & 0x7fff) > 0x7f80 ? 0x40 : 0)) << 16;
            memcpy(to, &wide, 4);
    }
}

struct Arena {
    std::vector<u8> bytes;
    u8* at;
    Arena() : bytes(1 << 20) {
        for (u8& byte : bytes) byte = (u8)noise();
        at = (u8*)(((size_t)bytes.data() + 63) & ~(size_t)63);
    }
};

// Lays out some sets, moves them with the kernels and with plain copies, and returns whether both results are equal.
static bool turn(const Arena& from, Arena& to) {
    std::vector<u8> want(to.bytes);
    u8* there = want.data() + (to.at - to.bytes.data());
    std::vector<Set> sets;
    std::vector<Row> rows;
    u64 read_at = 0, written_at = 0, most = 1, longest = 0;
    for (u64 n = 1 + below(3); n > 0; n--) {
        u32 convert = below(2) ? (u32)NO : (u32)below(5);
        u64 read = convert == NO ? 1 : convert % 2 ? 4 : 2, written = convert == NO ? 1 : convert % 2 ? 2 : 4;
        u64 elements = 1 + below(below(3) ? 40 : 3000), outer = 1 + below(4), gap = below(2) ? 0 : below(9);
        if (below(2)) elements = (elements + 15) / 16 * 16, gap = gap / 4 * 16;
        u64 inner = elements * read, out = elements * written;
        Set set = {inner + gap * read, out + gap * written, outer, inner, (u32)rows.size(), 1 + (u32)below(5), convert, 1};
        read_at = (read_at + 63 & ~63ull) + (below(3) ? 0 : read * below(5));
        written_at = (written_at + 63 & ~63ull) + (below(3) ? 0 : written * below(5));
        u64 reads = inner | (outer > 1 ? set.from_stride : 0), writes = out | (outer > 1 ? set.to_stride : 0);
        for (u32 r = 0; r < set.count; r++) {
            bool zeros = below(5) == 0;
            Row row = {zeros ? 0 : (u64)(from.at + read_at), (u64)(to.at + written_at)};
            rows.push_back(row), reads |= row.from, writes |= row.to;
            for (u64 o = 0; o < outer; o++) {
                for (u64 e = 0; e < elements; e++) {
                    u8* target = there + written_at + o * set.to_stride + e * written;
                    if (zeros) memset(target, 0, written);
                    else plainly(convert, from.at + read_at + o * set.from_stride + e * read, target);
                }
            }
            read_at += outer * set.from_stride, written_at += outer * set.to_stride;
        }
        u64 all = reads | writes;
        set.unit = convert == NO ? (all % 16 == 0 ? 16 : all % 4 == 0 ? 4 : 1) : reads % (4 * read) || writes % (4 * written) ? 1 : 4;
        u64 units = outer * (inner / (read * set.unit));
        most = units > most ? units : most, longest = set.count > longest ? set.count : longest;
        sets.push_back(set);
    }
    u64 threads = most >= 256 ? 256 : (most + 31) / 32 * 32, shares = (most + threads * EACH - 1) / (threads * EACH);
    gridDim = {(u32)longest, (u32)sets.size(), (u32)(shares > 64 ? 64 : shares)}, blockDim = {(u32)threads, 1, 1};
    for (blockIdx.z = 0; blockIdx.z < gridDim.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < gridDim.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)
                for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) move_rows(sets.data(), rows.data());
    return to.bytes == want;
}

int main() {
    Arena from;
    for (int n = 0; n < 400; n++) {
        Arena to;
        if (!turn(from, to)) {
            fprintf(stderr, "case %d: the kernel moves other bytes than plain copies do\n", n);
            return 1;
        }
    }
    return 0;
}
