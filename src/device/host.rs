//! The host's own memory as a device.

use std::alloc::{Layout, alloc_zeroed, dealloc};

use half::slice::HalfFloatSliceExt;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::{Convert, Device, DeviceError, Place, RawMove};

const ALIGN: usize = 64;

/// From this size on memory is mapped, not allocated: it comes zeroed, and is the kernel's again the moment it is released. An allocator
/// keeps what is freed until something else happens, which on a server that has gone quiet is never.
const MAPPED: usize = 256 << 10;

#[derive(Debug, Clone, Copy, Default)]
pub struct Host;

impl Device for Host {
    fn place(&self) -> Place {
        Place::Host
    }

    fn allocate(&self, bytes: usize) -> Result<u64, DeviceError> {
        let failed = DeviceError::OutOfMemory { place: Place::Host, bytes };
        if bytes >= MAPPED {
            // SAFETY: the kernel picks an address where nothing is.
            let mapped = unsafe {
                mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
            };
            return mapped.map(|memory| memory as u64).map_err(|_| failed);
        }
        let layout = Layout::from_size_align(bytes.max(1), ALIGN).map_err(|_| failed.clone())?;
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc_zeroed(layout) };
        if memory.is_null() { Err(failed) } else { Ok(memory as u64) }
    }

    unsafe fn release(&self, address: u64, bytes: usize) {
        if bytes >= MAPPED {
            // SAFETY: the caller's promise: this is what was mapped for these bytes. It fails for no such mapping.
            let _ = unsafe { munmap(address as *mut _, bytes) };
            return;
        }
        if let Ok(layout) = Layout::from_size_align(bytes.max(1), ALIGN) {
            // SAFETY: the caller's promise: this is what `allocate` gave for these bytes.
            unsafe { dealloc(address as *mut u8, layout) };
        }
    }

    unsafe fn run(&self, moves: &[RawMove]) {
        for m in moves {
            let (mut from, mut to) = (m.from, m.to);
            for _ in 0..m.outer {
                // SAFETY: the caller's promise: living memory of this size, nobody else's, not overlapping.
                unsafe { piece(from, to, m.inner, m.convert) };
                from = from.map(|at| at + m.from_stride as u64);
                to += m.to_stride as u64;
            }
        }
    }
}

/// # Safety
/// `from` must be readable and `to` writable for a piece of `inner` bytes as `convert` reads and writes them, without overlap; both must
/// be aligned to their elements where a conversion is asked for.
unsafe fn piece(from: Option<u64>, to: u64, inner: usize, convert: Convert) {
    let to = to as *mut u8;
    let Some(from) = from else {
        // SAFETY: `inner` writable bytes.
        return unsafe { to.write_bytes(0, inner) };
    };
    match convert {
        // SAFETY: `inner` bytes on either side, which do not overlap.
        Convert::No => unsafe { to.copy_from_nonoverlapping(from as *const u8, inner) },
        Convert::Narrow => {
            // SAFETY: rows of FP32 and FP16 states start at multiples of their element's size in buffers aligned to 64 bytes.
            let (wide, narrow) = unsafe {
                (
                    std::slice::from_raw_parts(from as *const f32, inner / 4),
                    std::slice::from_raw_parts_mut(to.cast::<half::f16>(), inner / 4),
                )
            };
            narrow.convert_from_f32_slice(wide);
        }
        Convert::Widen => {
            // SAFETY: as above, the other way round.
            let (narrow, wide) = unsafe {
                (
                    std::slice::from_raw_parts(from as *const half::f16, inner / 2),
                    std::slice::from_raw_parts_mut(to.cast::<f32>(), inner / 2),
                )
            };
            narrow.convert_to_f32_slice(wide);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Buffer, Move, Strip, run};
    use std::sync::Arc;

    fn filled(bytes: &[u8]) -> Buffer {
        let device: Arc<dyn Device> = Arc::new(Host);
        let mut buffer = Buffer::new(&device, bytes.len()).unwrap();
        buffer.host().unwrap().copy_from_slice(bytes);
        buffer
    }

    #[test]
    fn rows_move_between_any_strides() {
        let from = filled(&[1, 2, 3, 4]);
        let mut to = filled(&[9; 8]);
        let strided = Move {
            from: Some(Strip::of(&from, 0, 2)),
            to: Strip::of(&to, 1, 4),
            outer: 2,
            inner: 2,
            convert: Convert::No,
        };
        let zeros = Move { from: None, to: Strip::of(&to, 3, 4), outer: 2, inner: 1, convert: Convert::No };
        run(&Host, [strided, zeros], &mut Vec::new()).unwrap();
        assert_eq!(to.host().unwrap(), [9, 1, 2, 0, 9, 3, 4, 0]);
    }

    #[test]
    fn halves_are_kept_and_given_back() {
        let values = [1.5f32, -2.0, 65504.0, 0.0];
        let wide = filled(&values.map(f32::to_le_bytes).concat());
        let narrow = filled(&[0; 8]);
        let mut back = filled(&[0; 16]);
        let step = |from, to, inner, convert| Move {
            from: Some(Strip::of(from, 0, 0)),
            to: Strip::of(to, 0, 0),
            outer: 1,
            inner,
            convert,
        };
        run(&Host, [step(&wide, &narrow, 16, Convert::Narrow)], &mut Vec::new()).unwrap();
        run(&Host, [step(&narrow, &back, 8, Convert::Widen)], &mut Vec::new()).unwrap();
        assert_eq!(back.host().unwrap(), values.map(f32::to_le_bytes).concat());
    }

    #[test]
    fn a_move_that_leaves_its_buffer_moves_nothing() {
        let from = filled(&[1, 2, 3, 4]);
        let mut to = filled(&[0; 4]);
        let good = Move {
            from: Some(Strip::of(&from, 0, 0)),
            to: Strip::of(&to, 0, 0),
            outer: 1,
            inner: 4,
            convert: Convert::No,
        };
        let bad = Move { to: Strip::of(&to, 1, 0), ..good };
        let result = run(&Host, [good, bad], &mut Vec::new());
        assert_eq!(result, Err(DeviceError::OutOfBounds { at: 1, len: 4, size: 4 }));
        assert_eq!(to.host().unwrap(), [0; 4]);
    }
}
