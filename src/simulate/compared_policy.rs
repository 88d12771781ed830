//! A policy to simulate: a built-in one by its name, a plug-in, or the caller's own.

use std::fmt;

use super::decider::SimPolicy;
use super::plugged::{Plugged, PluginSpec};
use crate::config::model::LoadFacts;

/// A built-in strategy of the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuiltIn {
    Oldest,
    Direct,
    Deadline,
}

/// One of the compared policies.
pub struct ComparedPolicy {
    pub name: String,
    pub(crate) kind: PolicyKind,
}

pub(crate) enum PolicyKind {
    BuiltIn(BuiltIn),
    /// Makes a new policy for each run. `oldest` decides the rounds that it does not.
    External(Box<dyn Fn() -> Box<dyn SimPolicy>>),
    /// The same, from a component.
    Plugin(PluginSpec),
}

impl ComparedPolicy {
    /// The built-in policy of this name.
    pub fn named(name: &str) -> Result<ComparedPolicy, String> {
        let built_in = match name {
            "oldest" => BuiltIn::Oldest,
            "direct" => BuiltIn::Direct,
            "deadline" | "edf" => BuiltIn::Deadline,
            _ => {
                return Err(format!(
                    "\"{name}\" is no policy: there are oldest, direct, deadline (edf) and plug-ins (NAME.wasm)"
                ));
            }
        };
        Ok(ComparedPolicy { name: name.to_owned(), kind: PolicyKind::BuiltIn(built_in) })
    }

    /// A policy of the caller.
    pub fn external(name: &str, make: impl Fn() -> Box<dyn SimPolicy> + 'static) -> ComparedPolicy {
        ComparedPolicy { name: name.to_owned(), kind: PolicyKind::External(Box::new(make)) }
    }

    pub fn plugin(name: &str, spec: PluginSpec) -> ComparedPolicy {
        ComparedPolicy { name: name.to_owned(), kind: PolicyKind::Plugin(spec) }
    }

    pub(crate) fn built_in(&self) -> BuiltIn {
        match self.kind {
            PolicyKind::BuiltIn(built_in) => built_in,
            PolicyKind::External(_) | PolicyKind::Plugin(_) => BuiltIn::Oldest,
        }
    }

    pub(crate) fn policy<'a>(
        &self,
        facts: &LoadFacts,
        texts: impl Iterator<Item = &'a str>,
    ) -> Option<Box<dyn SimPolicy>> {
        match &self.kind {
            PolicyKind::BuiltIn(_) => None,
            PolicyKind::External(make) => Some(make()),
            PolicyKind::Plugin(spec) => Some(Box::new(Plugged::new(spec, facts, texts))),
        }
    }
}

impl fmt::Debug for ComparedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ComparedPolicy({})", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_names_are_resolved_or_refused() {
        assert_eq!(ComparedPolicy::named("edf").map(|c| c.built_in()), Ok(BuiltIn::Deadline));
        assert!(ComparedPolicy::named("newest").unwrap_err().contains("is no policy"));
    }
}
