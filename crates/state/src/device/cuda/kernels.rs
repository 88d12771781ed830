//! The kernels in PTX: text for a virtual machine. Every driver from 550 on compiles it for its GPU.

/// The output of `cargo xtask ptx` for [`SOURCE`].
pub const PTX: &str = include_str!("kernels.ptx");
/// The kernels' source.
pub const SOURCE: &str = include_str!("kernels.cu");
/// The kernel's name. One launch moves the rows of any number of sets.
pub const MOVE_ROWS: &str = "move_rows";

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::device::{RawRow, RawSet, formula};

    #[test]
    fn the_ptx_matches_its_source_and_the_supported_drivers() {
        let mut hash = String::new();
        Sha256::digest(SOURCE.as_bytes()).iter().for_each(|byte| hash.push_str(&format!("{byte:02x}")));
        let first = PTX.lines().next().unwrap();
        assert_eq!(first, format!("// kernels.cu sha256:{hash}"), "the source has changed: cargo xtask ptx");
        assert!(PTX.lines().any(|line| line == ".version 8.4") && PTX.lines().any(|line| line == ".target sm_75"));
        assert!(PTX.contains(&format!(".visible .entry {MOVE_ROWS}(")));
    }

    /// The kernel and the host must agree on the layout of the tables.
    #[test]
    fn kernel_table_sizes_match_the_cuda_source() {
        assert_eq!((size_of::<RawSet>(), size_of::<RawRow>()), (48, 16));
        for statement in ["sizeof(Set) == 48", "sizeof(Row) == 16", "EACH = 4"] {
            assert!(SOURCE.contains(statement), "{statement}");
        }
        assert_eq!(formula::EACH, 4);
    }
}
