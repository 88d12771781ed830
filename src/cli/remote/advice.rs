//! Advice for a refused command. The server's sentence is the same for all clients; flags and commands are added here.

use serde_json::Value;

use super::client::Client;
use crate::cli::Failed;

/// Rewords the refusal of an unknown plug-in: adds the names of the known ones.
pub(super) fn known(client: &Client, plugin: &str) -> impl Fn(Failed) -> Failed {
    move |failed| {
        let begin = format!("there is no plug-in \"{plugin}\"");
        reworded(failed, |text| text.starts_with(&begin).then(|| format!("{begin} on this server; {}", there(client))))
    }
}

/// Rewords the refusal of an unknown model: adds the command that lists the models.
pub(super) fn served(failed: Failed) -> Failed {
    reworded(failed, |text| {
        let is_unknown = text.starts_with("no model \"") && text.ends_with("\" is served");
        // The same in the words that clients get.
        let is_not_found = text.starts_with("Request for unknown model: '") && text.ends_with("' is not found");
        let is_absent = text.starts_with("there is no model ");
        (is_unknown || is_not_found || is_absent).then(|| format!("{text}; sequor model list shows those that are"))
    })
}

/// Rewords the refusal of a component: names its file, because the server only knows the plug-in's name.
pub(super) fn of_file(plugin: &str, file: &str) -> impl Fn(Failed) -> Failed {
    move |failed| {
        reworded(failed, |text| {
            let behind = text.strip_prefix(&format!("{plugin}.wasm "))?;
            let build = if behind == "is no WebAssembly" { "; sequor plugin build makes a component" } else { "" };
            Some(format!("{file} {behind}{build}"))
        })
    }
}

/// Rewords the refusal to load an existing plug-in: completes the command that replaces it.
pub(super) fn replaceable(plugin: &str, file: &str) -> impl Fn(Failed) -> Failed {
    move |failed| {
        let end = format!("sequor plugin replace {plugin}");
        reworded(failed, |text| text.ends_with(&end).then(|| format!("{text} --from {file}")))
    }
}

/// Replaces the sentence of a refusal, if there is a better one.
fn reworded(failed: Failed, better: impl FnOnce(&str) -> Option<String>) -> Failed {
    match failed {
        Failed::Refused { text, help } => Failed::Refused { text: better(&text).unwrap_or(text), help },
        other => other,
    }
}

/// A sentence with the names of the server's plug-ins.
fn there(client: &Client) -> String {
    let all = client.get("/admin/plugins").ok();
    let names = all.as_ref().and_then(Value::as_array).into_iter().flatten();
    let names: Vec<&str> = names.filter_map(|plugin| plugin.get("name")?.as_str()).collect();
    if names.is_empty() { "it has none".to_owned() } else { format!("there is {}", names.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Failed {
        Failed::Refused { text: text.to_owned(), help: None }
    }

    #[test]
    fn refusals_name_the_command_to_run() {
        let message = |failed: Failed| failed.to_string();
        assert_eq!(
            message(served(refused("no model \"x\" is served"))),
            "no model \"x\" is served; sequor model list shows those that are"
        );
        assert_eq!(
            message(served(refused("Request for unknown model: 'x' is not found"))),
            "Request for unknown model: 'x' is not found; sequor model list shows those that are"
        );
        let of_file = of_file("mine", "./mine/plugin.toml");
        assert_eq!(
            message(of_file(refused("mine.wasm is no WebAssembly"))),
            "./mine/plugin.toml is no WebAssembly; sequor plugin build makes a component"
        );
        assert_eq!(message(of_file(refused("mine.wasm is built for x"))), "./mine/plugin.toml is built for x");
        assert_eq!(message(of_file(refused("mine failed its dry run"))), "mine failed its dry run");
        let replaceable = replaceable("mine", "m.wasm");
        assert_eq!(
            message(replaceable(refused("mine is loaded already (first#2); sequor plugin replace mine"))),
            "mine is loaded already (first#2); sequor plugin replace mine --from m.wasm"
        );
    }

    #[test]
    fn errors_other_than_refusals_get_no_advice() {
        let failed = served(Failed::Failed("no model \"x\" is served".to_owned()));
        assert_eq!((failed.code(), failed.to_string().as_str()), (1, "no model \"x\" is served"));
    }
}
