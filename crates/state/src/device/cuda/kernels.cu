// Rows on their way between states and batches. Its twin on the host, name by name, is ../formula.rs: change both or neither.
// `cargo xtask ptx` makes kernels.ptx of it, with a compiler that includes nothing. xtask/kernels_on_host.cpp includes it and runs it, thread
// after thread, on the host.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// RawSet in ../mod.rs.
struct Set {
    u64 from_stride, to_stride, outer, inner;
    u32 first, count, convert, unit;
};

// RawRow in ../mod.rs.
struct Row {
    u64 from, to;
};

static_assert(sizeof(Set) == 48, "as the host lays it out");
static_assert(sizeof(Row) == 16, "as the host lays it out");

enum { NO = 0, FP32_TO_FP16 = 1, FP16_TO_FP32 = 2, FP32_TO_BF16 = 3, BF16_TO_FP32 = 4 };

// Units of a thread that are read before any of them is written, where that is all there is to do.
enum { EACH = 4 };

// === elements ===

#ifndef ON_HOST
// To the nearest, ties to even.
__device__ __forceinline__ u16 round_to_fp16(float value) {
    u16 out;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out) : "f"(value));
    return out;
}

__device__ __forceinline__ float from_fp16(u16 bits) {
    float out;
    asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(bits));
    return out;
}
#endif

// NaN stays NaN, and quiet, with its upper bits: as the host does it.
__device__ __forceinline__ u16 fp32_to_fp16(u32 bits) {
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (u16)(((bits >> 16) & 0x8000u) | 0x7e00u | ((bits & 0x007fffffu) >> 13));
    }
    return round_to_fp16(__uint_as_float(bits));
}

__device__ __forceinline__ u32 fp16_to_fp32(u16 bits) {
    if ((bits & 0x7fffu) > 0x7c00u) {
        return (((u32)bits & 0x8000u) << 16) | 0x7fc00000u | (((u32)bits & 0x03ffu) << 13);
    }
    return __float_as_uint(from_fp16(bits));
}

__device__ __forceinline__ u16 fp32_to_bf16(u32 bits) {
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (u16)((bits >> 16) | 0x40u);
    }
    return (u16)((bits + (0x7fffu + ((bits >> 16) & 1u))) >> 16);
}

__device__ __forceinline__ u32 bf16_to_fp32(u16 bits) {
    u32 quiet = (bits & 0x7fffu) > 0x7f80u ? 0x40u : 0u;
    return ((u32)bits | quiet) << 16;
}

__device__ __forceinline__ u16 narrow(u32 convert, u32 bits) {
    return convert == FP32_TO_FP16 ? fp32_to_fp16(bits) : fp32_to_bf16(bits);
}

__device__ __forceinline__ u32 widen(u32 convert, u16 bits) {
    return convert == FP16_TO_FP32 ? fp16_to_fp32(bits) : bf16_to_fp32(bits);
}

// === units ===

// Bytes of a unit where it is read and where it is written.
__device__ __forceinline__ void widths(const Set& set, u32& read, u32& written) {
    switch (set.convert) {
        case NO: read = written = set.unit; break;
        case FP32_TO_FP16:
        case FP32_TO_BF16: read = 4 * set.unit; written = 2 * set.unit; break;
        default: read = 2 * set.unit; written = 4 * set.unit; break;
    }
}

// Where a unit of a row begins, from the row's beginning. The host lets no row have more units than 32 bits count.
__device__ __forceinline__ void offsets(const Set& set, u32 per_piece, u32 read, u32 written, u32 unit, u64& from, u64& to) {
    if (set.outer == 1) {
        from = (u64)unit * read;
        to = (u64)unit * written;
        return;
    }
    u32 piece = unit / per_piece, within = unit - piece * per_piece;
    from = piece * set.from_stride + (u64)within * read;
    to = piece * set.to_stride + (u64)within * written;
}

// Moves the units that fall to this thread, so many at a time; `T` is what is read at once, `U` what is written.
template <int AT_A_TIME, typename T, typename U, typename F>
__device__ __forceinline__ void move_units(const Set& set, const Row& row, F convert) {
    u32 read, written;
    widths(set, read, written);
    u32 per_piece = (u32)(set.inner / read);
    u32 units = (u32)set.outer * per_piece;
    u32 step = gridDim.z * blockDim.x;
    for (u64 base = blockIdx.z * blockDim.x + threadIdx.x; base < units; base += (u64)AT_A_TIME * step) {
        T held[AT_A_TIME];
#pragma unroll
        for (int n = 0; n < AT_A_TIME; n++) {
            u64 unit = base + (u64)n * step;
            u64 from, to;
            if (row.from != 0 && unit < units) {
                offsets(set, per_piece, read, written, (u32)unit, from, to);
                held[n] = *reinterpret_cast<const T*>(row.from + from);
            }
        }
#pragma unroll
        for (int n = 0; n < AT_A_TIME; n++) {
            u64 unit = base + (u64)n * step;
            u64 from, to;
            if (unit < units) {
                offsets(set, per_piece, read, written, (u32)unit, from, to);
                U out = U();
                if (row.from != 0) {
                    out = convert(held[n]);
                }
                *reinterpret_cast<U*>(row.to + to) = out;
            }
        }
    }
}

struct Same {
    template <typename T>
    __device__ __forceinline__ T operator()(T bits) const { return bits; }
};

struct Narrow {
    u32 how;
    __device__ __forceinline__ u16 operator()(u32 bits) const { return narrow(how, bits); }
    __device__ __forceinline__ ushort4 operator()(uint4 bits) const {
        return make_ushort4(narrow(how, bits.x), narrow(how, bits.y), narrow(how, bits.z), narrow(how, bits.w));
    }
};

struct Widen {
    u32 how;
    __device__ __forceinline__ u32 operator()(u16 bits) const { return widen(how, bits); }
    __device__ __forceinline__ uint4 operator()(ushort4 bits) const {
        return make_uint4(widen(how, bits.x), widen(how, bits.y), widen(how, bits.z), widen(how, bits.w));
    }
};

// === kernels ===

// Blocks: x is the row within its set, y the set, z a share of the row.
extern "C" __global__ void __launch_bounds__(256) move_rows(const Set* __restrict__ sets, const Row* __restrict__ rows) {
    const Set set = sets[blockIdx.y];
    if (blockIdx.x >= set.count) {
        return;
    }
    const Row row = rows[set.first + blockIdx.x];
    switch (set.convert) {
        case NO:
            switch (set.unit) {
                case 16: move_units<EACH, uint4, uint4>(set, row, Same()); break;
                case 4: move_units<EACH, u32, u32>(set, row, Same()); break;
                default: move_units<1, u8, u8>(set, row, Same()); break;
            }
            break;
        case FP32_TO_FP16:
        case FP32_TO_BF16:
            if (set.unit == 4) {
                move_units<1, uint4, ushort4>(set, row, Narrow{set.convert});
            } else {
                move_units<1, u32, u16>(set, row, Narrow{set.convert});
            }
            break;
        default:
            if (set.unit == 4) {
                move_units<1, ushort4, uint4>(set, row, Widen{set.convert});
            } else {
                move_units<1, u16, u32>(set, row, Widen{set.convert});
            }
            break;
    }
}
