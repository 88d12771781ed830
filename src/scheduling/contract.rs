//! The contract in WIT as Rust types, made by the compiler from `wit/`, and which of its versions are served here.

wasmtime::component::bindgen!({
    path: "wit/0.1.0",
    world: "scheduler-plugin",
    ownership: Borrowing { duplicate_if_necessary: true },
    // What the host is asked for ends a call that has taken too long.
    imports: { default: trappable },
});

pub(super) use exports::sequor::plugin::scheduler;

/// The version this server offers.
pub const VERSION: &str = "0.1.0";
/// The world plug-ins of this server are of, as people call it.
pub const WORLD: &str = "scheduler";
pub(super) const PACKAGE: &str = "sequor:plugin/";
pub(super) const SCHEDULER: &str = "sequor:plugin/scheduler@0.1.0";

/// An interface's name taken apart: package and name, version.
pub(super) fn parts(name: &str) -> (&str, &str) {
    name.split_once('@').unwrap_or((name, ""))
}

/// Whether what is built for this version can be served: the same major and minor number, no pre-release.
pub(super) fn is_served(version: &str) -> bool {
    let Some((minor, patch)) = version.rsplit_once('.') else { return false };
    VERSION.rsplit_once('.').is_some_and(|(ours, _)| ours == minor) && patch.parse::<u32>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_differ_in_the_last_number_are_served() {
        assert_eq!(parts("sequor:plugin/host@0.1.0"), ("sequor:plugin/host", "0.1.0"));
        for (version, served) in
            [("0.1.0", true), ("0.1.7", true), ("0.2.0", false), ("1.1.0", false), ("0.1.0-rc1", false), ("", false)]
        {
            assert_eq!(is_served(version), served, "{version}");
        }
        assert!(SCHEDULER.ends_with(VERSION));
    }
}
