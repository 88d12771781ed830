//! Begins a sequence with the state of another live one: its START names the id of that sequence in a key feature. `copy_if_same` of
//! sequor.toml sets which sequences may be copied.

use sequor_plugin::initializer::*;

#[derive(Debug, Default)]
pub struct Fork {
    feature: String,
}

impl Initializer for Fork {
    fn configure(&mut self, config: &Config, model: &Model, _: &Ports, _: &Files) -> Result<(), String> {
        self.feature = config.get("feature")?;
        if !model.keys.contains(&self.feature) {
            return Err(format!("no [[feature]] of type \"key\" is named \"{}\"", self.feature));
        }
        Ok(())
    }

    fn initialize(&mut self, call: &Call<'_>, _: Tensors) -> Result<FirstState, Refusal> {
        if call.key(&self.feature) == 0 {
            return Ok(FirstState::Default);
        }
        match call.text(&self.feature) {
            Some(parent) => Ok(FirstState::copy_of(parent)),
            None => Err(refuse(code::NOT_NOW, "the server has forgotten the id of the parent")),
        }
    }
}

sequor_plugin::export_initializer!(Fork);

#[cfg(test)]
mod tests {
    use sequor_plugin::initializer::testing::Bench;

    use super::*;

    #[test]
    fn a_start_that_names_a_parent_begins_with_its_state() {
        let mut bench = Bench::<Fork>::new(Ports::new()).key("parent", "call-77");
        assert_eq!(bench.start(Tensors::new()).unwrap(), FirstState::copy_of("call-77"));
        bench.set_key("parent", "");
        assert_eq!(bench.start(Tensors::new()).unwrap(), FirstState::Default);
    }

    #[test]
    fn a_model_without_the_feature_is_refused() {
        let refused = Bench::<Fork>::new(Ports::new()).key("tenant", "").configure().unwrap_err();
        assert_eq!(refused, "no [[feature]] of type \"key\" is named \"parent\"");
    }
}
