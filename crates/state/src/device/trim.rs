//! Returns memory to the system that was needed only once, for example while models load.

use std::ffi::c_void;
use std::ops::Range;
use std::path::Path;

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
    let program = std::env::current_exe().unwrap_or_default();
    for range in code(&maps, &program) {
        let start = std::ptr::without_provenance_mut::<c_void>(range.start);
        // SAFETY: a read-only, unchanged mapping of a file. The kernel reads dropped pages from the file again. No other memory can have
        // these addresses by now, because this file stays mapped until the process ends.
        let dropped = unsafe { madvise(start, range.len(), Advice::LinuxDontNeed) };
        if let Err(error) = dropped {
            tracing::debug!(%error, "code stays mapped");
        }
    }
}

/// The address ranges of mapped code that is unchanged from its file, and whose file stays mapped.
fn code(maps: &str, program: &Path) -> Vec<Range<usize>> {
    let (mut found, mut last) = (Vec::new(), None::<Option<Range<usize>>>);
    for line in maps.lines() {
        match line.strip_prefix("Anonymous:") {
            Some(changed) => found.extend(last.take().flatten().filter(|_| changed.trim() == "0 kB")),
            None => last = mapping(line, program).or(last),
        }
    }
    found
}

/// The range of the mapping that this line introduces. `Some(None)` if the mapping is no code that stays mapped; `None` if the line
/// introduces none.
fn mapping(line: &str, program: &Path) -> Option<Option<Range<usize>>> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16).ok());
    let (start, end, rights) = (start?, end?, words.next()?);
    let file = line.find('/').and_then(|at| line.get(at..)).map(Path::new);
    let stays = file.is_some_and(|file| file == program || is_onnx_runtime(file));
    Some((rights == "r-xp" && stays).then_some(start..end))
}

/// Whether this is ONNX Runtime's library, which is never unloaded. Its providers are other files, and it unloads them.
fn is_onnx_runtime(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_prefix("libonnxruntime.so").is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Vec<Range<usize>> = Vec::new();

    fn of(rest: &str, changed: u32) -> Vec<Range<usize>> {
        let more = format!("Size: 8 kB\nAnonymous: {changed} kB\nVmFlags: rd ex mr mw me");
        code(&format!("55d1c0de1000-55d1c0de3000 {rest}\n{more}\n"), Path::new("/usr/bin/my sequor"))
    }

    #[test]
    fn only_unchanged_code_of_files_is_unmapped() {
        let file = "r-xp 00010000 fe:00 10141705      /usr/bin/my sequor";
        let range = 0x55d1_c0de_1000..0x55d1_c0de_3000;
        assert_eq!(of(file, 0), std::slice::from_ref(&range));
        assert_eq!(of(file, 4), NONE, "patched");
        assert_eq!(of(&file.replace("r-x", "r--"), 0), NONE);
        assert_eq!(of(&file.replace("r-x", "rwx"), 0), NONE);
        assert_eq!(of("r-xp 00000000 00:00 0             [vdso]", 0), NONE);
        assert_eq!(of("r-xp 00000000 00:00 0", 0), NONE, "compiled in this process");
    }

    /// A library that is unloaded between the look and the call leaves its addresses to other memory, which would lose its contents.
    #[test]
    fn only_code_that_is_never_unloaded_is_unmapped() {
        let is_unmapped = |path: &str| !of(&format!("r-xp 00010000 fe:00 10141705      {path}"), 0).is_empty();
        for path in ["/usr/bin/my sequor", "/opt/lib/libonnxruntime.so", "/opt/lib/libonnxruntime.so.1.31.1"] {
            assert!(is_unmapped(path), "{path}");
        }
        for path in [
            "/usr/bin/other",
            "/usr/bin/my sequor (deleted)",
            "/opt/lib/libonnxruntime_providers_cuda.so",
            "/usr/lib/libcuda.so.1",
            "/cache/compiled code of a plug-in",
        ] {
            assert!(!is_unmapped(path), "{path}");
        }
    }

    #[test]
    fn trimming_keeps_memory_that_is_in_use() {
        let kept: Vec<u64> = (0..100_000).collect();
        trim();
        assert_eq!(kept.iter().sum::<u64>(), 4_999_950_000);
    }
}
