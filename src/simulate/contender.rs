//! What decides: a built-in strategy by its name, or a policy that somebody brings.

use std::fmt;

use sequor_core::Policy;

/// A strategy of the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuiltIn {
    Oldest,
    Direct,
    Deadline,
}

/// One of those that are compared.
pub struct Contender {
    pub name: String,
    pub(crate) kind: Kind,
}

pub(crate) enum Kind {
    BuiltIn(BuiltIn),
    /// Makes a fresh policy for each run; the rounds it gives up are `oldest`'s.
    External(Box<dyn Fn() -> Box<dyn Policy>>),
}

impl Contender {
    /// The built-in of this name.
    pub fn named(name: &str) -> Result<Contender, String> {
        let built_in = match name {
            "oldest" => BuiltIn::Oldest,
            "direct" => BuiltIn::Direct,
            "deadline" | "edf" => BuiltIn::Deadline,
            _ if name.ends_with(".wasm") => {
                return Err(format!("{name}: plug-ins are not simulated yet; oldest, direct and deadline (edf) are"));
            }
            _ => return Err(format!("\"{name}\" is no policy: there are oldest, direct and deadline (edf)")),
        };
        Ok(Contender { name: name.to_owned(), kind: Kind::BuiltIn(built_in) })
    }

    /// A policy of one's own.
    pub fn external(name: &str, make: impl Fn() -> Box<dyn Policy> + 'static) -> Contender {
        Contender { name: name.to_owned(), kind: Kind::External(Box::new(make)) }
    }

    pub(crate) fn built_in(&self) -> BuiltIn {
        match self.kind {
            Kind::BuiltIn(built_in) => built_in,
            Kind::External(_) => BuiltIn::Oldest,
        }
    }

    pub(crate) fn policy(&self) -> Option<Box<dyn Policy>> {
        match &self.kind {
            Kind::BuiltIn(_) => None,
            Kind::External(make) => Some(make()),
        }
    }
}

impl fmt::Debug for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Contender({})", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_or_explained() {
        assert_eq!(Contender::named("edf").map(|c| c.built_in()), Ok(BuiltIn::Deadline));
        assert_eq!(
            Contender::named("./x.wasm").unwrap_err(),
            "./x.wasm: plug-ins are not simulated yet; oldest, direct and deadline (edf) are"
        );
        assert!(Contender::named("newest").unwrap_err().contains("is no policy"));
    }
}
