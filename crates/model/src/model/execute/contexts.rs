//! The contexts of one executor: one for all inputs, and others for requests that omit optional inputs.

use crate::backend::Context;
use crate::batch::Wiring;

/// Maximum number of kept contexts for combinations of optional inputs. n optional inputs have 2^n combinations.
const MOST: usize = 16;

/// A wiring and the context that runs it.
type WiredContext = (Wiring, Box<dyn Context>);

/// The context for all inputs is first. The others follow in the order of their last use.
#[derive(Debug)]
pub(super) struct Contexts(Vec<WiredContext>);

impl Contexts {
    /// Starts with the context for all inputs, at place 0.
    pub(super) fn new(wiring: Wiring, context: Box<dyn Context>) -> Contexts {
        Contexts(vec![(wiring, context)])
    }

    /// Finds the context of a wiring. Its place is valid until the next call.
    pub(super) fn find(&mut self, wiring: &Wiring) -> Option<usize> {
        let at = self.0.iter().position(|(of, _)| of == wiring)?;
        if at == 0 {
            return Some(0);
        }
        let found = self.0.remove(at);
        self.0.push(found);
        Some(self.0.len() - 1)
    }

    /// Whether adding a context removes another one.
    pub(super) fn is_full(&self) -> bool {
        self.0.len() > MOST
    }

    /// Adds a context and returns its place. If there are too many, the least recently used one is removed.
    pub(super) fn add(&mut self, wiring: Wiring, context: Box<dyn Context>) -> usize {
        if self.is_full() {
            self.0.remove(1);
        }
        self.0.push((wiring, context));
        self.0.len() - 1
    }

    pub(super) fn get(&self, at: usize) -> Option<&WiredContext> {
        self.0.get(at)
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut WiredContext> {
        self.0.get_mut(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{BackendError, Feed, Fetch};

    #[derive(Debug)]
    struct NoContext;

    impl Context for NoContext {
        fn run(&mut self, _: &[Feed<'_>], _: &mut [Fetch<'_>]) -> Result<(), BackendError> {
            Ok(())
        }
    }

    fn wiring(input: usize) -> Wiring {
        let input_names = vec![input.to_string()];
        Wiring {
            input_names,
            inputs: Vec::new(),
            output_names: Vec::new(),
            outputs: Vec::new(),
            new_lengths: Vec::new(),
        }
    }

    #[test]
    fn recently_used_contexts_and_the_context_for_all_inputs_are_kept() {
        let mut contexts = Contexts::new(wiring(0), Box::new(NoContext));
        for n in 1..=MOST {
            assert!(!contexts.is_full());
            assert_eq!(contexts.add(wiring(n), Box::new(NoContext)), n);
        }
        assert!(contexts.is_full());
        assert_eq!(contexts.find(&wiring(1)), Some(MOST), "it is the last one used");
        for n in 100..150 {
            let at = contexts.add(wiring(n), Box::new(NoContext));
            assert_eq!((at, contexts.find(&wiring(n))), (MOST, Some(MOST)));
            assert!(contexts.find(&wiring(1)).is_some(), "it is in use");
        }
        assert_eq!((contexts.find(&wiring(0)), contexts.find(&wiring(2))), (Some(0), None));
        assert_eq!(contexts.get(0).map(|(of, _)| of.clone()), Some(wiring(0)));
        assert_eq!(contexts.0.len(), MOST + 1);
    }
}
