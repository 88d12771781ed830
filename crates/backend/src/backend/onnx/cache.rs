//! Caches the descriptions of callers' memory that a port has used. A description holds address, shape and length, but no data. The same
//! three need the same description, even if the memory has a new owner.

use sequor_core::Shape;

use super::value::OnnxValue;
use crate::backend::{BackendError, Port};
use crate::device::DeviceId;

/// Maximum number of descriptions of a port. Staging and states alternate between few addresses; the number of shapes is that of the batch
/// sizes.
pub(super) const CAPACITY: usize = 64;

/// The address for all empty host memory.
#[repr(align(64))]
struct Nowhere;
static NOWHERE: Nowhere = Nowhere;

#[derive(Debug)]
struct CachedValue {
    place: DeviceId,
    address: u64,
    len: usize,
    shape: Shape,
    value: OnnxValue,
}

/// The descriptions of one port.
#[derive(Debug, Default)]
pub(super) struct ValueCache {
    entries: Vec<CachedValue>,
    /// The index of the entry that the next new one replaces, once there are [`CAPACITY`].
    oldest: usize,
    hits: u64,
}

impl ValueCache {
    /// The description of this memory as a tensor of `port`'s type; cached or new.
    pub(super) fn describe(
        &mut self,
        port: &Port,
        place: DeviceId,
        address: u64,
        len: usize,
        shape: &Shape,
    ) -> Result<&OnnxValue, BackendError> {
        let address = if len == 0 && place == DeviceId::Host { (&raw const NOWHERE) as u64 } else { address };
        let known = self.entries.iter().position(|entry| {
            entry.address == address && entry.len == len && entry.place == place && entry.shape == *shape
        });
        if known.is_some() {
            self.hits += 1;
        }
        let index = match known {
            Some(index) => index,
            None => {
                check_fit(port, address, len, shape)?;
                let value = OnnxValue::describing(place, address, len, port.dtype, shape)?;
                self.insert(CachedValue { place, address, len, shape: shape.clone(), value })
            }
        };
        let entry = self.entries.get(index).ok_or_else(|| BackendError("a description went astray".to_owned()))?;
        Ok(&entry.value)
    }

    /// Inserts an entry and returns its index. A full cache replaces the oldest entry. That entry is not bound in this run, because a port
    /// binds one value a run.
    fn insert(&mut self, entry: CachedValue) -> usize {
        let index = if self.entries.len() < CAPACITY { self.entries.len() } else { self.oldest };
        match self.entries.get_mut(index) {
            Some(old) => *old = entry,
            None => self.entries.push(entry),
        }
        self.oldest = (index + 1) % CAPACITY;
        index
    }

    /// Number of cache hits.
    #[cfg(test)]
    pub(super) fn hits(&self) -> u64 {
        self.hits
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

/// Checks size and alignment. ONNX Runtime would read past a buffer that is too short, and some kernels crash on unaligned ones.
fn check_fit(port: &Port, address: u64, len: usize, shape: &Shape) -> Result<(), BackendError> {
    let size = port.dtype.zero_size();
    if shape.bytes(size) != Some(len as u64) {
        return Err(BackendError(format!(
            "'{}': {len} bytes are not a {} tensor of shape {shape}",
            port.name, port.dtype
        )));
    }
    if !address.is_multiple_of(size as u64) {
        return Err(BackendError(format!("'{}' at {address:#x} is not aligned to {size} bytes", port.name)));
    }
    Ok(())
}
