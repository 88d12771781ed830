//! Removes the code for other GPUs from a library of CUDA kernels, so that it compresses well.
//!
//! Such a library has a section of containers, and each container has one image for each kind of GPU. The driver selects images by their
//! headers. Here headers stay, and the bytes of the other images become zeros. Nothing moves, and the file keeps its size.

use anyhow::{Context, Result, bail};

const SECTION: &[u8] = b".nv_fatbin";
const CONTAINER: u32 = 0xba55_ed50;

/// Bytes of images that stay, and of those that were set to zero.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Thinned {
    pub(crate) kept: usize,
    pub(crate) zeroed: usize,
}

/// Zeroes every image in this 64-bit ELF file that is not for GPUs of this compute capability (90 is 9.0).
pub(crate) fn thin(file: &mut [u8], capability: u32) -> Result<Thinned> {
    let (start, end) = section(file).context("the library has no CUDA kernels (no section .nv_fatbin)")?;
    let mut thinned = Thinned { kept: 0, zeroed: 0 };
    let mut at = start;
    while at + 16 <= end {
        if u32_at(file, at)? != CONTAINER {
            at += 8;
            continue;
        }
        let mut image = at + usize::from(u16_at(file, at + 6)?);
        at = image + usize_at(file, at + 8)?;
        while image < at {
            let (header, size) = (u32_at(file, image + 4)? as usize, usize_at(file, image + 8)?);
            let is_for = u32_at(file, image + 28)?;
            let begin = image + header;
            let bytes = file.get_mut(begin..begin + size).context("an image leaves the file")?;
            if is_for == capability {
                thinned.kept += size;
            } else {
                bytes.fill(0);
                thinned.zeroed += size;
            }
            image = begin + size;
        }
    }
    if thinned.kept == 0 {
        bail!("the library has no code for GPUs of compute capability {}.{}", capability / 10, capability % 10);
    }
    Ok(thinned)
}

/// The beginning and the end of the section with the containers.
fn section(file: &[u8]) -> Option<(usize, usize)> {
    let table = usize_at(file, 0x28).ok()?;
    let [size, count, names] = [0x3a, 0x3c, 0x3e].map(|at| u16_at(file, at).map(usize::from).ok());
    let (size, count) = (size?, count?);
    let header = |n: usize| table + n * size;
    let names = usize_at(file, header(names?) + 0x18).ok()?;
    (0..count).map(header).find_map(|at| {
        let name = names + u32_at(file, at).ok()? as usize;
        let is_it = file.get(name..)?.strip_prefix(SECTION)?.first() == Some(&0);
        let (start, len) = (usize_at(file, at + 0x18).ok()?, usize_at(file, at + 0x20).ok()?);
        is_it.then_some((start, start + len))
    })
}

fn bytes_at<const N: usize>(file: &[u8], at: usize) -> Result<[u8; N]> {
    let bytes = file.get(at..at + N).and_then(|bytes| bytes.first_chunk::<N>());
    bytes.copied().with_context(|| format!("the file ends before byte {at}"))
}

fn u16_at(file: &[u8], at: usize) -> Result<u16> {
    bytes_at(file, at).map(u16::from_le_bytes)
}

fn u32_at(file: &[u8], at: usize) -> Result<u32> {
    bytes_at(file, at).map(u32::from_le_bytes)
}

fn usize_at(file: &[u8], at: usize) -> Result<usize> {
    Ok(usize::try_from(bytes_at(file, at).map(u64::from_le_bytes)?)?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;

    const NAMES: &[u8] = b"\0.shstrtab\0.nv_fatbin\0";

    fn image(capability: u32, payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0u8; 64];
        image[4..8].copy_from_slice(&64u32.to_le_bytes());
        image[8..16].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        image[28..32].copy_from_slice(&capability.to_le_bytes());
        [image, payload.to_vec()].concat()
    }

    fn container(images: &[Vec<u8>]) -> Vec<u8> {
        let images = images.concat();
        let mut head = CONTAINER.to_le_bytes().to_vec();
        head.extend(1u16.to_le_bytes());
        head.extend(16u16.to_le_bytes());
        head.extend((images.len() as u64).to_le_bytes());
        [head, images].concat()
    }

    /// A file with the names of sections, containers and three section headers.
    fn file(containers: &[u8]) -> Vec<u8> {
        let (names, code) = (64usize, 64 + NAMES.len().next_multiple_of(8));
        let table = code + containers.len();
        let mut file = vec![0u8; code];
        file[names..names + NAMES.len()].copy_from_slice(NAMES);
        file[0x28..0x30].copy_from_slice(&(table as u64).to_le_bytes());
        for (at, value) in [(0x3a, 64u16), (0x3c, 3), (0x3e, 1)] {
            file[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        file.extend(containers);
        for (name, start, len) in [(0u32, 0, 0), (1, names, NAMES.len()), (11, code, containers.len())] {
            let mut header = vec![0u8; 64];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[0x18..0x20].copy_from_slice(&(start as u64).to_le_bytes());
            header[0x20..0x28].copy_from_slice(&(len as u64).to_le_bytes());
            file.extend(header);
        }
        file
    }

    #[test]
    fn thinning_keeps_the_images_of_one_gpu_at_their_offsets() {
        let of = |payloads: [&[u8]; 3]| {
            let [old, new, again] = payloads;
            let second = container(&[image(90, again)]);
            file(&[container(&[image(80, old), image(90, new)]), vec![0; 8], second].concat())
        };
        let mut thinned = of([b"for eight zero..", b"for nine zero...", b"more of it......"]);
        assert_eq!(thin(&mut thinned, 90).unwrap(), Thinned { kept: 32, zeroed: 16 });
        assert_eq!(thinned, of([&[0; 16], b"for nine zero...", b"more of it......"]));
        let other = thin(&mut thinned, 75).unwrap_err().to_string();
        assert_eq!(other, "the library has no code for GPUs of compute capability 7.5");
        assert!(thin(&mut [0; 64], 90).is_err() && thin(&mut [], 90).is_err());
    }
}
