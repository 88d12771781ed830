//! Moves rows between buffers. A layout describes a set of rows, and each row has a source and a destination.
//!
//! Checks every address against its buffer before anything moves.

use std::marker::PhantomData;

use super::{Buffer, Convert, Device, DeviceError, DeviceId, Owned, RawRow, RawSet};

/// The layout of a set's rows at source and destination: `outer` pieces, `from_stride` and `to_stride` bytes apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StridedLayout {
    pub from_stride: usize,
    pub to_stride: usize,
    pub outer: usize,
    /// Bytes of a piece at the source.
    pub inner: usize,
    pub convert: Convert,
}

impl StridedLayout {
    /// The layout of rows that are one contiguous piece at both ends.
    pub fn whole(bytes: usize) -> StridedLayout {
        StridedLayout { from_stride: 0, to_stride: 0, outer: 1, inner: bytes, convert: Convert::No }
    }
}

/// One end of a row.
#[derive(Clone, Copy, Debug)]
pub struct BufferSlice<'a> {
    memory: SliceSource<'a>,
    at: usize,
}

#[derive(Clone, Copy, Debug)]
enum SliceSource<'a> {
    Ours(&'a Buffer),
    Theirs(&'a Owned),
}

impl<'a> BufferSlice<'a> {
    pub fn new(buffer: &'a Buffer, at: usize) -> BufferSlice<'a> {
        BufferSlice { memory: SliceSource::Ours(buffer), at }
    }

    /// A slice that can only be a source.
    pub fn of_owned(owned: &'a Owned, at: usize) -> BufferSlice<'a> {
        BufferSlice { memory: SliceSource::Theirs(owned), at }
    }

    /// The address of the slice, if `extent` bytes fit there and its memory is on the device `on`.
    fn address(&self, extent: usize, on: DeviceId) -> Result<u64, DeviceError> {
        let (place, address, size) = match self.memory {
            SliceSource::Ours(buffer) => (buffer.place(), buffer.address(), buffer.len()),
            SliceSource::Theirs(owned) => (owned.span().place(), owned.span().address(), owned.len()),
        };
        if place != on {
            return Err(DeviceError::WrongPlace { got: place, want: on });
        }
        match self.at.checked_add(extent) {
            Some(end) if end <= size => Ok(address + self.at as u64),
            _ => Err(DeviceError::OutOfBounds { at: self.at, len: extent, size }),
        }
    }
}

/// Buffers for moves, kept for reuse.
#[derive(Debug, Default)]
pub struct Scratch {
    sets: Vec<RawSet>,
    rows: Vec<RawRow>,
}

/// A collection of moves. Nothing moves before [`Moves::run`].
#[derive(Debug)]
pub struct Moves<'a> {
    device: &'a dyn Device,
    scratch: &'a mut Scratch,
    /// Bytes from the first to the last byte of a row of the current set, at the source and at the destination.
    extents: (usize, usize),
    /// Every address, stride and size of the current set, or-ed. Low bits that are zero here are zero in all of them.
    bits: (u64, u64),
    buffers: PhantomData<&'a Buffer>,
}

impl<'a> Moves<'a> {
    pub fn new(device: &'a dyn Device, scratch: &'a mut Scratch) -> Moves<'a> {
        scratch.sets.clear();
        scratch.rows.clear();
        Moves { device, scratch, extents: (0, 0), bits: (0, 0), buffers: PhantomData }
    }

    /// Begins a set: the rows that follow have this layout.
    pub fn set(&mut self, lay: StridedLayout) -> Result<(), DeviceError> {
        self.close();
        let StridedLayout { from_stride, to_stride, outer, inner, convert } = lay;
        let written = convert.written(inner);
        let extent = |stride: usize, piece: usize| {
            if outer == 0 { Some(0) } else { stride.checked_mul(outer - 1).and_then(|n| n.checked_add(piece)) }
        };
        let far = || DeviceError::OutOfBounds { at: 0, len: usize::MAX, size: 0 };
        self.extents = (extent(from_stride, inner).ok_or_else(far)?, extent(to_stride, written).ok_or_else(far)?);
        // A row in one piece never uses its stride.
        let strides = if outer > 1 { (from_stride as u64, to_stride as u64) } else { (0, 0) };
        self.bits = (strides.0 | inner as u64, strides.1 | written as u64);
        self.scratch.sets.push(RawSet {
            from_stride: from_stride as u64,
            to_stride: to_stride as u64,
            outer: outer as u64,
            inner: inner as u64,
            first: self.at(),
            count: 0,
            convert,
            unit: 1,
        });
        Ok(())
    }

    /// Adds a row to the current set. A source of `None` writes zeros.
    pub fn row(&mut self, from: Option<BufferSlice<'a>>, to: BufferSlice<'a>) -> Result<(), DeviceError> {
        let place = self.device.place();
        let (read, written) = self.extents;
        if let SliceSource::Theirs(_) = to.memory {
            return Err(DeviceError::OutOfBounds { at: to.at, len: written, size: 0 });
        }
        let from = from.map_or(Ok(0), |spot| spot.address(read, place))?;
        let to = to.address(written, place)?;
        self.bits = (self.bits.0 | from, self.bits.1 | to);
        self.scratch.rows.push(RawRow { from, to });
        Ok(())
    }

    /// Submits all moves to the device.
    pub fn run(mut self) -> Result<(), DeviceError> {
        self.close();
        if self.scratch.rows.is_empty() {
            return Ok(());
        }
        // SAFETY: every row was checked to be within a live buffer of this device. One thread uses a buffer at a time, and buffers are
        // released in the order of work. A backend uses spans of a buffer only while it runs, which is submitted before or after this.
        unsafe { self.device.run(&self.scratch.sets, &self.scratch.rows) }
    }

    fn at(&self) -> u32 {
        u32::try_from(self.scratch.rows.len()).unwrap_or(u32::MAX)
    }

    /// Ends the current set.
    fn close(&mut self) {
        let (end, bits) = (self.at(), self.bits);
        if let Some(set) = self.scratch.sets.last_mut() {
            set.count = end - set.first;
            set.unit = super::formula::unit(bits.0, bits.1, set.convert);
        }
        // A set without rows would take part in a launch for nothing.
        if self.scratch.sets.last().is_some_and(|set| set.count == 0) {
            self.scratch.sets.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::Host;

    fn filled(bytes: &[u8]) -> Buffer {
        let device: Arc<dyn Device> = Arc::new(Host);
        Buffer::holding(&device, bytes).unwrap()
    }

    #[test]
    fn rows_move_between_any_strides() {
        let from = filled(&[1, 2, 3, 4]);
        let mut to = filled(&[9; 8]);
        let mut scratch = Scratch::default();
        let mut moves = Moves::new(&Host, &mut scratch);
        moves.set(StridedLayout { from_stride: 2, to_stride: 4, outer: 2, inner: 2, convert: Convert::No }).unwrap();
        moves.row(Some(BufferSlice::new(&from, 0)), BufferSlice::new(&to, 1)).unwrap();
        moves.set(StridedLayout { from_stride: 0, to_stride: 4, outer: 2, inner: 1, convert: Convert::No }).unwrap();
        moves.row(None, BufferSlice::new(&to, 3)).unwrap();
        moves.run().unwrap();
        assert_eq!(to.host().unwrap(), [9, 1, 2, 0, 9, 3, 4, 0]);
    }

    #[test]
    fn fp32_rows_convert_to_half_types_and_back() {
        let values = [1.5f32, -2.0, 65504.0, 0.0];
        let wide = filled(&values.map(f32::to_le_bytes).concat());
        for (narrow_way, wide_way) in
            [(Convert::Fp32ToFp16, Convert::Fp16ToFp32), (Convert::Fp32ToBf16, Convert::Bf16ToFp32)]
        {
            let (narrow, mut back) = (filled(&[0; 8]), filled(&[1; 16]));
            let mut scratch = Scratch::default();
            for (from, to, inner, convert) in [(&wide, &narrow, 16, narrow_way), (&narrow, &back, 8, wide_way)] {
                let mut moves = Moves::new(&Host, &mut scratch);
                moves.set(StridedLayout { convert, ..StridedLayout::whole(inner) }).unwrap();
                moves.row(Some(BufferSlice::new(from, 0)), BufferSlice::new(to, 0)).unwrap();
                moves.run().unwrap();
            }
            let got: Vec<f32> = back.host().unwrap().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
            // BF16 has 8 significant bits; 65504 needs 11.
            let want = if narrow_way == Convert::Fp32ToFp16 { values } else { [1.5, -2.0, 65536.0, 0.0] };
            assert_eq!(got, want);
        }
    }

    #[test]
    fn a_move_that_leaves_its_buffer_moves_nothing() {
        let from = filled(&[1, 2, 3, 4]);
        let mut to = filled(&[0; 4]);
        let mut scratch = Scratch::default();
        let mut moves = Moves::new(&Host, &mut scratch);
        moves.set(StridedLayout::whole(4)).unwrap();
        moves.row(Some(BufferSlice::new(&from, 0)), BufferSlice::new(&to, 0)).unwrap();
        let result = moves.row(Some(BufferSlice::new(&from, 0)), BufferSlice::new(&to, 1));
        assert_eq!(result, Err(DeviceError::OutOfBounds { at: 1, len: 4, size: 4 }));
        assert_eq!(to.host().unwrap(), [0; 4]);
    }

    #[test]
    fn a_set_moves_as_much_at_once_as_all_its_rows_allow() {
        let (from, to) = (filled(&[1; 256]), filled(&[0; 256]));
        let unit = |lay: StridedLayout, rows: &[(usize, usize)]| {
            let mut scratch = Scratch::default();
            let mut moves = Moves::new(&Host, &mut scratch);
            moves.set(lay).unwrap();
            for (a, b) in rows {
                moves.row(Some(BufferSlice::new(&from, *a)), BufferSlice::new(&to, *b)).unwrap();
            }
            moves.run().unwrap();
            scratch.sets[0].unit
        };
        assert_eq!(unit(StridedLayout::whole(32), &[(0, 64), (16, 128)]), 16);
        assert_eq!(unit(StridedLayout::whole(32), &[(0, 64), (16, 132)]), 4);
        assert_eq!(unit(StridedLayout::whole(33), &[(0, 64)]), 1);
        let strided = StridedLayout { from_stride: 12, to_stride: 32, outer: 2, inner: 16, convert: Convert::No };
        assert_eq!(unit(strided, &[(0, 0)]), 4);
        assert_eq!(unit(StridedLayout { convert: Convert::Fp32ToFp16, ..StridedLayout::whole(32) }, &[(0, 0)]), 4);
        assert_eq!(unit(StridedLayout { convert: Convert::Fp32ToFp16, ..StridedLayout::whole(32) }, &[(0, 4)]), 1);
    }
}
