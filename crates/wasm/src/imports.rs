//! Checks a component's imports against its world and the operator's grants. A refusal names every import that is not allowed.

use super::component_error::ComponentError;
use super::contract;
use super::grants::{Grants, WASI_NN};
use super::outline::{Interface, Outline};
use super::world::World;

/// The interfaces that a component imports, or an error that names all that it may not.
pub(crate) fn check<W: World>(file: &str, outline: &Outline, grants: Grants) -> Result<Vec<String>, ComponentError> {
    let (mut names, mut refused, mut withheld) = (Vec::new(), Vec::new(), Vec::new());
    for import in &outline.imports {
        let name = &import.name;
        names.push(name.clone());
        let (interface, version) = contract::parts(name);
        let of_contract = interface.starts_with(contract::PACKAGE);
        if of_contract && !contract::is_served(W::VERSION, version) {
            return Err(ComponentError::Contract {
                file: file.to_owned(),
                wanted: version.to_owned(),
                offered: W::VERSION,
            });
        }
        if W::IMPORTS.contains(&interface) {
            continue;
        }
        let is_foreign = interface.starts_with("wasi:nn/") && version != WASI_NN;
        if is_foreign || !W::GRANTED.contains(&interface) && Grants::is_of_some_worlds(interface) {
            refused.push(name.clone());
            continue;
        }
        match Grants::for_interface(interface) {
            Some((grant, what)) if !grants.has(grant) => {
                refused.push(name.clone());
                if !withheld.contains(&(grant, what)) {
                    withheld.push((grant, what));
                }
            }
            Some(_) => refused.extend(beyond(import, interface)),
            None => refused.push(name.clone()),
        }
    }
    if refused.is_empty() {
        Ok(names)
    } else {
        Err(ComponentError::Imports(sentence(file, &refused, &withheld, (W::NAME, W::VERSION, W::CLOCK_HINT))))
    }
}

/// The functions of a granted interface that are not served.
fn beyond(import: &Interface, interface: &str) -> Vec<String> {
    let Interface { name, holds } = import;
    let Some(holds) = holds else { return vec![name.clone()] };
    holds.iter().filter(|item| !Grants::gives(interface, item)).map(|item| format!("{name}#{item}")).collect()
}

/// ``x.wasm asks for A and B; world echo 0.1.0 gives neither. Clocks can be granted (plugins.grants = ["x=clock"]); sockets never. …``
fn sentence(
    file: &str,
    refused: &[String],
    withheld: &[(&str, &str)],
    (world, version, clock_hint): (&str, &str, &str),
) -> String {
    let mut text = format!("{file} asks for {}; ", listed(refused));
    text += &format!(
        "world {world} {version} {}.",
        match refused.len() {
            1 => "does not give it",
            2 => "gives neither",
            _ => "gives none of them",
        }
    );
    let plugin = file.rsplit_once('/').map_or(file, |(_, name)| name).trim_end_matches(".wasm");
    let can =
        withheld.iter().map(|(grant, what)| format!("{what} can be granted (plugins.grants = [\"{plugin}={grant}\"])"));
    let mut can: Vec<String> = can.collect();
    let never = never(refused);
    if !never.is_empty() {
        can.push(format!("{} never", listed(&never)));
    }
    if !can.is_empty() {
        text += &format!(" {}.", capital(&can.join("; ")));
    }
    if withheld.iter().any(|(grant, _)| *grant == "clock") {
        text += clock_hint;
    }
    if never.iter().any(|what| what != "waiting") && refused.iter().any(|name| name.starts_with("wasi:")) {
        text += " Languages with a run time of their own can be built without WASI: componentize-py with --stub-wasi, componentize-js with disableFeatures; `sequor plugin build` does.";
    }
    text
}

/// The interfaces that no operator can grant, by their common names: `wasi:sockets/tcp@0.2.9` is sockets.
fn never(refused: &[String]) -> Vec<String> {
    let mut never: Vec<String> = Vec::new();
    for name in refused {
        let (interface, rest) = contract::parts(name);
        let what = match interface.split_once('/') {
            _ if rest.contains('#') => "waiting",
            _ if Grants::for_interface(interface).is_some() => continue,
            Some((package, _)) => package.strip_prefix("wasi:").unwrap_or(interface),
            None => interface,
        };
        if !never.iter().any(|known| known == what) {
            never.push(what.to_owned());
        }
    }
    never
}

fn listed(names: &[String]) -> String {
    match names {
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        _ => names.join(""),
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ECHO: (&str, &str, &str) = ("echo", "0.1.0", " The hint of the world.");

    #[test]
    fn the_error_names_all_refused_imports_and_what_to_do() {
        let names = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let refused = names(&["wasi:sockets/tcp@0.2.9", "wasi:clocks/monotonic-clock@0.2.9"]);
        assert_eq!(
            sentence("fair-share.wasm", &refused, &[("clock", "clocks")], ECHO),
            "fair-share.wasm asks for wasi:sockets/tcp@0.2.9 and wasi:clocks/monotonic-clock@0.2.9; world echo 0.1.0 gives neither. \
             Clocks can be granted (plugins.grants = [\"fair-share=clock\"]); sockets never. The hint of the world. \
             Languages with a run time of their own can be built without WASI: componentize-py with --stub-wasi, componentize-js with \
             disableFeatures; `sequor plugin build` does."
        );
        assert_eq!(
            sentence(
                "x.wasm",
                &names(&["sequor:plugin/identity@0.1.0"]),
                &[("sequence-text", "ids of sequences")],
                ECHO
            ),
            "x.wasm asks for sequor:plugin/identity@0.1.0; world echo 0.1.0 does not give it. \
             Ids of sequences can be granted (plugins.grants = [\"x=sequence-text\"])."
        );
        assert_eq!(
            sentence("x.wasm", &names(&["wasi:clocks/monotonic-clock@0.2.0#subscribe-duration"]), &[], ECHO),
            "x.wasm asks for wasi:clocks/monotonic-clock@0.2.0#subscribe-duration; world echo 0.1.0 does not give it. Waiting never."
        );
    }
}
