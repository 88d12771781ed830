//! Returns memory to the system that was needed once, for example while models load.

use std::ffi::c_void;
use std::ops::Range;

#[cfg(target_os = "linux")]
use rustix::mm::{Advice, madvise};

/// Call this after work that took much memory. Memory in use stays; code that is needed again is mapped again where it lies.
pub fn trim() {
    trim_heaps();
    #[cfg(target_os = "linux")]
    unmap_code();
}

/// Gives back free memory that this thread has allocated, or that lies in no thread's heap.
pub fn trim_thread() {
    // SAFETY: takes nothing but free memory.
    unsafe { libmimalloc_sys::mi_collect(true) };
}

/// Gives back free memory of the allocators: of this thread, of threads that have ended, and of the C library.
pub fn trim_heaps() {
    trim_thread();
    // The runtime's own, which is the C library's.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: takes nothing but free memory.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Most of the code that was mapped so far has done its work.
#[cfg(target_os = "linux")]
fn unmap_code() {
    let Ok(maps) = std::fs::read_to_string("/proc/self/smaps") else { return };
    for range in code(&maps) {
        let start = std::ptr::without_provenance_mut::<c_void>(range.start);
        // SAFETY: a mapping of a file that is read-only and unchanged: unmapped pages are read from the file again.
        let dropped = unsafe { madvise(start, range.len(), Advice::LinuxDontNeed) };
        if let Err(error) = dropped {
            tracing::debug!(%error, "code stays mapped");
        }
    }
}

/// Where in the table of mappings the code of files lies that is as it is in the file.
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

/// Where the mapping lies that this line begins to tell of; `None` within, if it is not code of a file.
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
    fn what_is_in_use_stays() {
        let kept: Vec<u64> = (0..100_000).collect();
        trim();
        assert_eq!(kept.iter().sum::<u64>(), 4_999_950_000);
    }
}
