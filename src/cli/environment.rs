//! The environment variables of the program.

use crate::config::fault::did_you_mean;
use crate::config::server::file::keys;
use crate::config::server::key::Key;

/// The prefix of all our variables.
const PREFIX: &str = "SEQUOR_";

/// Variables that are read but are not settings of the server.
const OTHERS: [&str; 4] = ["CONFIG", "SERVER", "CACHE", "WASM_TOOLCHAIN"];

/// A variable of the environment, if it is set and valid UTF-8.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A warning for every variable with a name close to one of ours, but not equal.
pub(super) fn misspelt(names: impl Iterator<Item = String>) -> Vec<String> {
    let settings: Vec<String> = keys().map(Key::variable).collect();
    let known = || settings.iter().filter_map(|name| name.strip_prefix(PREFIX)).chain(OTHERS);
    let sentence = |name: String| {
        let ours = name.strip_prefix(PREFIX).filter(|ours| !is_from_kubernetes(ours) && known().all(|k| k != *ours))?;
        let near = did_you_mean(ours, known());
        (!near.is_empty()).then(|| format!("{name} is not a setting{}", near.replace(" \"", &format!(" \"{PREFIX}"))))
    };
    names.filter_map(sentence).collect()
}

/// Kubernetes sets variables for every service. If a service has the name "sequor", they have our prefix.
fn is_from_kubernetes(name: &str) -> bool {
    name == "PORT"
        || name.starts_with("PORT_")
        || ["SERVICE_HOST", "SERVICE_PORT"].iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_variable_is_reported_with_the_right_name() {
        let warnings = |names: &[&str]| misspelt(names.iter().map(|name| (*name).to_owned()));
        assert_eq!(
            warnings(&["PATH", "SEQUOR_HTTP_PROT", "SEQUOR_LIMIT_STATE", "SEQUOR_CONFIGS"]),
            [
                "SEQUOR_HTTP_PROT is not a setting; did you mean \"SEQUOR_HTTP_PORT\"?",
                "SEQUOR_LIMIT_STATE is not a setting; did you mean \"SEQUOR_LIMITS_STATE\"?",
                "SEQUOR_CONFIGS is not a setting; did you mean \"SEQUOR_CONFIG\"?",
            ]
        );
        let right = ["SEQUOR_HTTP_PORT", "SEQUOR_CONFIG", "SEQUOR_SERVER", "SEQUOR_CACHE", "SEQUOR_WASM_TOOLCHAIN"];
        assert_eq!(warnings(&right), Vec::<String>::new());
        let services = ["SEQUOR_SERVICE_HOST", "SEQUOR_SERVICE_PORT_HTTP", "SEQUOR_PORT", "SEQUOR_PORT_8000_TCP_ADDR"];
        assert_eq!(warnings(&services), Vec::<String>::new(), "variables of a Kubernetes service");
    }
}
