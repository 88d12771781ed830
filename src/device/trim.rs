//! Returns memory to the system that was needed only once, for example while models load.

use std::ffi::c_void;
use std::ops::Range;

#[cfg(target_os = "linux")]
use rustix::mm::{Advice, madvise};

/// Call this after work that took much memory. Memory in use stays; if code is needed again, the kernel maps it again at the same address.
pub fn trim() {
    trim_heaps();
    #[cfg(target_os = "linux")]
    unmap_code();
}

/// Returns free memory of this thread's heap, and of heaps that no thread owns.
pub fn trim_thread() {
    // SAFETY: releases free memory only.
    unsafe { libmimalloc_sys::mi_collect(true) };
}

/// Returns free memory of the allocators: of this thread, of threads that have ended, and of the C library.
pub fn trim_heaps() {
    trim_thread();
    // ONNX Runtime allocates with the C library.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: releases free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Unmaps the pages of code. Most of the code mapped so far ran once, at startup.
#[cfg(target_os = "linux")]
fn unmap_code() {
    let Ok(maps) = std::fs::read_to_string("/proc/self/smaps") else { return };
    for range in code(&maps) {
        let start = std::ptr::without_provenance_mut::<c_void>(range.start);
        // SAFETY: a read-only, unchanged mapping of a file. The kernel reads dropped pages from the file again.
        let dropped = unsafe { madvise(start, range.len(), Advice::LinuxDontNeed) };
        if let Err(error) = dropped {
            tracing::debug!(%error, "code stays mapped");
        }
    }
}

/// The address ranges of mapped code that is unchanged from its file.
fn code(maps: &str) -> Vec<Range<usize>> {
    let (mut found, mut last) = (Vec::new(), None::<Option<Range<usize>>>);
    for line in maps.lines() {
        match line.strip_prefix("Anonymous:") {
            Some(changed) => found.extend(last.take().flatten().filter(|_| changed.trim() == "0 kB")),
            None => last = mapping(line).or(last),
        }
    }
    found
}

/// The range of the mapping that this line introduces. `Some(None)` if the mapping is not code of a file; `None` if the line introduces
/// none.
fn mapping(line: &str) -> Option<Option<Range<usize>>> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16).ok());
    let (start, end, rights) = (start?, end?, words.next()?);
    let is_file = words.nth(3).is_some_and(|path| path.starts_with('/'));
    Some((rights == "r-xp" && is_file).then_some(start..end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unchanged_code_of_files_is_unmapped() {
        let of = |rest: &str, changed: u32| {
            let more = format!("Size: 8 kB\nAnonymous: {changed} kB\nVmFlags: rd ex mr mw me");
            code(&format!("55d1c0de1000-55d1c0de3000 {rest}\n{more}\n"))
        };
        let file = "r-xp 00010000 fe:00 10141705      /usr/bin/sequor";
        let range = 0x55d1_c0de_1000..0x55d1_c0de_3000;
        assert_eq!(of(file, 0), std::slice::from_ref(&range));
        assert_eq!(of(file, 4), Vec::<std::ops::Range<usize>>::new(), "patched");
        assert_eq!(of(&file.replace("r-x", "r--"), 0), Vec::<std::ops::Range<usize>>::new());
        assert_eq!(of(&file.replace("r-x", "rwx"), 0), Vec::<std::ops::Range<usize>>::new());
        assert_eq!(of("r-xp 00000000 00:00 0             [vdso]", 0), Vec::<std::ops::Range<usize>>::new());
        assert_eq!(of("r-xp 00000000 00:00 0", 0), Vec::<std::ops::Range<usize>>::new(), "compiled in this process");
    }

    #[test]
    fn trimming_keeps_memory_that_is_in_use() {
        let kept: Vec<u64> = (0..100_000).collect();
        trim();
        assert_eq!(kept.iter().sum::<u64>(), 4_999_950_000);
    }
}
