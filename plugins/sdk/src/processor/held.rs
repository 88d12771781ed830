//! Tensors and buffers that the server keeps. Outside WebAssembly a stand-in keeps them.

#[cfg(target_arch = "wasm32")]
mod kept {
    use crate::processor::bindings::sequor::plugin::tensors;
    use crate::processor::dtype::Dtype;

    /// A tensor that the server keeps.
    #[derive(Debug)]
    pub struct Held(pub tensors::Tensor);

    impl Held {
        pub fn dtype(&self) -> Dtype {
            Dtype(self.0.dtype())
        }

        pub fn shape(&self) -> Vec<u64> {
            self.0.shape()
        }

        pub fn size(&self) -> u64 {
            self.0.size()
        }

        pub fn read(&self, at: u64, len: u64) -> Vec<u8> {
            self.0.read(at, len)
        }

        pub fn part(&self, at: u64, len: u64, shape: &[u64]) -> Held {
            Held(self.0.part(at, len, shape))
        }

        pub fn cast(&self, dtype: Dtype, shape: &[u64]) -> Held {
            Held(self.0.cast(dtype.0, shape))
        }
    }

    /// A tensor that the plug-in fills.
    #[derive(Debug)]
    pub struct HeldBuffer(tensors::Buffer);

    impl HeldBuffer {
        pub fn new(dtype: Dtype, shape: &[u64], size: u64) -> HeldBuffer {
            HeldBuffer(tensors::Buffer::new(dtype.0, shape, size))
        }

        pub fn write(&mut self, at: u64, bytes: &[u8]) {
            self.0.write(at, bytes);
        }

        pub fn copy(&mut self, at: u64, source: &Held, start: u64, len: u64) {
            self.0.copy(at, &source.0, start, len);
        }

        pub fn finish(self) -> Held {
            Held(tensors::Buffer::finish(self.0))
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod kept {
    use std::rc::Rc;

    use crate::processor::dtype::Dtype;

    /// A stand-in for a tensor that the server keeps. A call that breaks a rule panics here and traps in the server.
    #[derive(Debug, Clone)]
    pub struct Held {
        dtype: Dtype,
        shape: Vec<u64>,
        bytes: Rc<[u8]>,
        at: usize,
        len: usize,
    }

    impl Held {
        pub fn new(dtype: Dtype, shape: Vec<u64>, bytes: &[u8]) -> Held {
            Held { dtype, shape, bytes: bytes.into(), at: 0, len: bytes.len() }
        }

        pub fn dtype(&self) -> Dtype {
            self.dtype
        }

        pub fn shape(&self) -> Vec<u64> {
            self.shape.clone()
        }

        pub fn size(&self) -> u64 {
            self.len as u64
        }

        pub fn read(&self, at: u64, len: u64) -> Vec<u8> {
            let (at, end) = range(at, len, self.len);
            self.bytes[self.at + at..self.at + end].to_vec()
        }

        pub fn part(&self, at: u64, len: u64, shape: &[u64]) -> Held {
            let (at, end) = range(at, len, self.len);
            let part = Held { shape: shape.to_vec(), at: self.at + at, len: end - at, ..self.clone() };
            part.check("a part");
            part
        }

        pub fn cast(&self, dtype: Dtype, shape: &[u64]) -> Held {
            let cast = Held { dtype, shape: shape.to_vec(), ..self.clone() };
            cast.check("a cast to");
            cast
        }

        fn check(&self, what: &str) {
            let Held { dtype, shape, len, .. } = self;
            let elements: u64 = shape.iter().product();
            let fits = dtype.size().is_none_or(|size| elements * size as u64 == *len as u64);
            assert!(fits, "{what} {dtype} {shape:?} does not have {len} bytes");
        }
    }

    /// A stand-in for a buffer of the server.
    #[derive(Debug)]
    pub struct HeldBuffer {
        dtype: Dtype,
        shape: Vec<u64>,
        bytes: Vec<u8>,
    }

    impl HeldBuffer {
        pub fn new(dtype: Dtype, shape: &[u64], size: u64) -> HeldBuffer {
            HeldBuffer { dtype, shape: shape.to_vec(), bytes: vec![0; size as usize] }
        }

        pub fn write(&mut self, at: u64, bytes: &[u8]) {
            let (at, end) = range(at, bytes.len() as u64, self.bytes.len());
            self.bytes[at..end].copy_from_slice(bytes);
        }

        pub fn copy(&mut self, at: u64, source: &Held, start: u64, len: u64) {
            self.write(at, &source.read(start, len));
        }

        pub fn finish(self) -> Held {
            Held::new(self.dtype, self.shape, &self.bytes)
        }
    }

    fn range(at: u64, len: u64, size: usize) -> (usize, usize) {
        let end = at.checked_add(len).filter(|end| *end <= size as u64);
        let end = end.unwrap_or_else(|| panic!("{len} bytes from byte {at} on are not within {size} bytes"));
        (at as usize, end as usize)
    }
}

pub use kept::{Held, HeldBuffer};
