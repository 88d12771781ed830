//! The part of the contract that all worlds share: the host's own interfaces as Rust traits, generated from `wit/`, and the rules of its
//! versions.

wasmtime::component::bindgen!({
    inline: "
        package sequor:host-side;
        world host-side {
            import sequor:plugin/host@0.1.0;
            import sequor:plugin/identity@0.1.0;
        }
    ",
    path: "../../wit/0.1.0",
    world: "sequor:host-side/host-side",
    // A host function ends a call that has exceeded its time limit.
    imports: { default: trappable },
});

/// The package of all interfaces.
pub(crate) const PACKAGE: &str = "sequor:plugin/";

/// The two parts of an interface's name: package and name, version.
pub(crate) fn parts(name: &str) -> (&str, &str) {
    name.split_once('@').unwrap_or((name, ""))
}

/// Whether a server that offers one version can run a component built for the other: same major and minor number, no pre-release.
pub(crate) fn is_served(offered: &str, wanted: &str) -> bool {
    let Some((minor, patch)) = wanted.rsplit_once('.') else { return false };
    offered.rsplit_once('.').is_some_and(|(ours, _)| ours == minor) && patch.parse::<u32>().is_ok()
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
            assert_eq!(is_served("0.1.0", version), served, "{version}");
        }
    }
}
