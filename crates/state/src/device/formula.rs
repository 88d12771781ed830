//! The arithmetic of a move, with the names of `cuda/kernels.cu`: which thread moves which unit, where a unit begins, how an element is
//! converted. It runs on the host, so that tests need no GPU. Change it and the kernel only together.

use super::{Convert, RawRow, RawSet};

/// Maximum threads of a block.
pub const THREADS: u32 = 256;
/// Units that a thread moves in one pass of its loop.
pub const EACH: u64 = 4;
/// Maximum number of blocks that share a row.
pub const SHARES: u64 = 64;

/// The size of one unit: in bytes, or in elements if the move converts. `read` and `written` are all addresses, strides and sizes of a set,
/// or-ed, at the source and at the destination.
pub fn unit(read: u64, written: u64, convert: Convert) -> u32 {
    let (from, to) = convert.element();
    match convert {
        Convert::No if (read | written).is_multiple_of(16) => 16,
        Convert::No if (read | written).is_multiple_of(4) => 4,
        Convert::No => 1,
        _ if read.is_multiple_of(4 * from) && written.is_multiple_of(4 * to) => 4,
        _ => 1,
    }
}

/// Bytes of a unit at the source and at the destination.
pub fn widths(set: &RawSet) -> (u64, u64) {
    let (read, written) = set.convert.element();
    (read * u64::from(set.unit), written * u64::from(set.unit))
}

/// Units of a row.
pub fn units(set: &RawSet) -> u64 {
    set.outer * (set.inner / widths(set).0.max(1))
}

/// Offset of a unit from the beginning of its row, at the source and at the destination.
pub fn offsets(set: &RawSet, unit: u64) -> (u64, u64) {
    let (read, written) = widths(set);
    if set.outer == 1 {
        return (unit * read, unit * written);
    }
    let per_piece = (set.inner / read.max(1)).max(1);
    let (piece, within) = (unit / per_piece, unit % per_piece);
    (piece * set.from_stride + within * read, piece * set.to_stride + within * written)
}

/// The dimensions of a launch: blocks by row, set and share of a row, and threads of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    pub rows: u32,
    pub sets: u32,
    pub shares: u32,
    pub threads: u32,
}

/// The grid for these sets. It has no more threads than the largest row needs.
pub fn grid(sets: &[RawSet]) -> Grid {
    let most = sets.iter().map(units).max().unwrap_or(0).max(1);
    let threads = most.next_multiple_of(32).min(u64::from(THREADS));
    let shares = most.div_ceil(threads * EACH).min(SHARES);
    Grid {
        rows: sets.iter().map(|set| set.count).max().unwrap_or(0),
        sets: u32::try_from(sets.len()).unwrap_or(u32::MAX),
        shares: u32::try_from(shares).unwrap_or(1),
        threads: u32::try_from(threads).unwrap_or(THREADS),
    }
}

/// What one thread of the kernel `move_rows` does.
///
/// # Safety
/// As for [`super::Device::run`], for addresses of the host. Threads may run in any order.
pub unsafe fn move_rows(sets: &[RawSet], rows: &[RawRow], grid: Grid, block: (u32, u32, u32), thread: u32) {
    let (row, set, share) = block;
    let Some(set) = sets.get(set as usize).filter(|set| row < set.count) else { return };
    let Some(row) = rows.get((set.first + row) as usize) else { return };
    let mut unit = u64::from(share) * u64::from(grid.threads) + u64::from(thread);
    let stride = u64::from(grid.shares) * u64::from(grid.threads);
    while unit < units(set) {
        let (from, to) = offsets(set, unit);
        // SAFETY: the caller's promise; a unit lies within its row.
        unsafe { move_unit(set, (row.from != 0).then_some(row.from + from), row.to + to) };
        unit += stride;
    }
}

/// # Safety
/// A unit must be readable at `from` and writable at `to`.
unsafe fn move_unit(set: &RawSet, from: Option<u64>, to: u64) {
    let (read, written) = widths(set);
    let to = to as *mut u8;
    let Some(from) = from.map(|from| from as *const u8) else {
        // SAFETY: the caller's promise.
        return unsafe { to.write_bytes(0, written as usize) };
    };
    if set.convert == Convert::No {
        // SAFETY: the caller's promise.
        return unsafe { to.copy_from_nonoverlapping(from, read as usize) };
    }
    let (wide, narrow) = set.convert.element();
    for element in 0..u64::from(set.unit) {
        // SAFETY: within the unit. The accesses are unaligned ones.
        unsafe { convert(set.convert, from.add((element * wide) as usize), to.add((element * narrow) as usize)) };
    }
}

/// # Safety
/// An element must be readable at `from` and writable at `to`, at any alignment.
unsafe fn convert(how: Convert, from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise, throughout.
    unsafe {
        match how {
            Convert::No => {}
            Convert::Fp32ToFp16 => {
                to.cast::<u16>().write_unaligned(half::f16::from_f32(from.cast::<f32>().read_unaligned()).to_bits());
            }
            Convert::Fp16ToFp32 => {
                to.cast::<u32>()
                    .write_unaligned(half::f16::from_bits(from.cast::<u16>().read_unaligned()).to_f32().to_bits());
            }
            Convert::Fp32ToBf16 => {
                to.cast::<u16>().write_unaligned(fp32_to_bf16(from.cast::<u32>().read_unaligned()));
            }
            Convert::Bf16ToFp32 => {
                to.cast::<u32>().write_unaligned(bf16_to_fp32(from.cast::<u16>().read_unaligned()));
            }
        }
    }
}

/// Rounds to nearest, ties to even. A NaN stays a NaN and becomes quiet.
pub fn fp32_to_bf16(bits: u32) -> u16 {
    let rounded = match bits & 0x7fff_ffff > 0x7f80_0000 {
        true => (bits >> 16) | 0x40,
        false => bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16,
    };
    (rounded & 0xffff) as u16
}

pub fn bf16_to_fp32(bits: u16) -> u32 {
    let quiet = if bits & 0x7fff > 0x7f80 { 0x40 } else { 0 };
    u32::from(bits | quiet) << 16
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::device::{Buffer, Device, Host};

    #[test]
    fn bf16_conversions_match_the_host_bit_for_bit() {
        for bits in 0..=u16::MAX {
            assert_eq!(bf16_to_fp32(bits), half::bf16::from_bits(bits).to_f32().to_bits(), "{bits:#x}");
        }
        let edges = [0u32, 0x8000_0000, 0x7f80_0000, 0xff80_0000, 0x7f80_0001, 0xffff_ffff, 0x3f80_8000, 0x3f81_8000];
        let spread = (0..1_000_000u32).map(|n| n.wrapping_mul(4_294_967));
        for bits in edges.into_iter().chain(spread) {
            assert_eq!(fp32_to_bf16(bits), half::bf16::from_f32(f32::from_bits(bits)).to_bits(), "{bits:#x}");
        }
    }

    #[test]
    fn a_grid_keeps_its_threads_busy() {
        let set = |inner, unit| RawSet {
            from_stride: 0,
            to_stride: 0,
            outer: 1,
            inner,
            first: 0,
            count: 7,
            convert: Convert::No,
            unit,
        };
        assert_eq!(grid(&[set(1024, 16)]), Grid { rows: 7, sets: 1, shares: 1, threads: 64 });
        assert_eq!(grid(&[set(1, 1), set(1 << 20, 16)]), Grid { rows: 7, sets: 2, shares: 64, threads: 256 });
        assert_eq!(grid(&[set(4, 4)]).threads, 32);
    }

    /// A set of rows at random strides and offsets of two arenas; a row that is `None` reads zeros.
    #[derive(Debug, Clone)]
    struct Case {
        outer: u64,
        elements: u64,
        gaps: (u64, u64),
        base: (u64, u64),
        rows: Vec<Option<()>>,
        convert: Convert,
    }

    fn case() -> impl Strategy<Value = Case> {
        let convert = prop_oneof![
            3 => Just(Convert::No),
            1 => Just(Convert::Fp32ToFp16),
            1 => Just(Convert::Fp16ToFp32),
            1 => Just(Convert::Fp32ToBf16),
            1 => Just(Convert::Bf16ToFp32),
        ];
        let gap = || prop_oneof![Just(0u64), Just(4), Just(16), 0u64..9];
        (
            1u64..5,
            prop_oneof![1u64..40, Just(64), Just(1024), 1u64..3000],
            (gap(), gap()),
            (gap(), gap()),
            proptest::collection::vec(proptest::option::weighted(0.8, Just(())), 1..6),
            convert,
        )
            .prop_map(|(outer, elements, gaps, base, rows, convert)| Case {
                outer,
                elements,
                gaps,
                base,
                rows,
                convert,
            })
    }

    /// Places the cases one after the other in two arenas, at multiples of an element's size, so that the host may read them as numbers.
    fn lay(cases: &[Case], from: u64, to: u64) -> (Vec<RawSet>, Vec<RawRow>, u64, u64) {
        let (mut sets, mut rows, mut at) = (Vec::new(), Vec::new(), (0u64, 0u64));
        for case in cases {
            let (read, written) = case.convert.element();
            let (inner, out) = (case.elements * read, case.elements * written);
            let strides = (inner + case.gaps.0 * read, out + case.gaps.1 * written);
            at = (at.0.next_multiple_of(64) + case.base.0 * read, at.1.next_multiple_of(64) + case.base.1 * written);
            let first = rows.len() as u32;
            let mut bits = if case.outer > 1 { strides } else { (0, 0) };
            bits = (bits.0 | inner, bits.1 | out);
            for row in &case.rows {
                let row = RawRow { from: if row.is_some() { from + at.0 } else { 0 }, to: to + at.1 };
                bits = (bits.0 | row.from, bits.1 | row.to);
                rows.push(row);
                at = (at.0 + case.outer * strides.0, at.1 + case.outer * strides.1);
            }
            sets.push(RawSet {
                from_stride: strides.0,
                to_stride: strides.1,
                outer: case.outer,
                inner,
                first,
                count: case.rows.len() as u32,
                convert: case.convert,
                unit: unit(bits.0, bits.1, case.convert),
            });
        }
        (sets, rows, at.0, at.1)
    }

    fn arena(bytes: u64, seed: u64) -> Buffer {
        let next =
            |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let noise: Vec<u8> = (0..bytes / 8 + 9).flat_map(|n| next(n).to_le_bytes()).collect();
        let host: Arc<dyn Device> = Arc::new(Host);
        Buffer::holding(&host, &noise).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

        #[test]
        fn the_kernel_formula_moves_the_same_bytes_as_the_host(cases in proptest::collection::vec(case(), 1..4), seed in any::<u64>()) {
            let (_, _, read, written) = lay(&cases, 0, 0);
            let from = arena(read, seed);
            let (by_host, by_formula) = (arena(written, !seed), arena(written, !seed));
            let of = |to: &Buffer| lay(&cases, from.address(), to.address());
            let (sets, rows, ..) = of(&by_host);
            // SAFETY: `lay` has measured both arenas, rows do not overlap, and nothing else touches them.
            unsafe { Host.run(&sets, &rows) }.unwrap();
            let (sets, rows, ..) = of(&by_formula);
            let grid = grid(&sets);
            // Runs the threads in reverse order: the result must not depend on it.
            for share in (0..grid.shares).rev() {
                for set in 0..grid.sets {
                    for row in (0..grid.rows).rev() {
                        for thread in (0..grid.threads).rev() {
                            // SAFETY: as above.
                            unsafe { move_rows(&sets, &rows, grid, (row, set, share), thread) };
                        }
                    }
                }
            }
            let bytes = |memory: &Buffer| memory.get(0..memory.len()).unwrap();
            prop_assert_eq!(bytes(&by_host), bytes(&by_formula));
        }
    }
}
