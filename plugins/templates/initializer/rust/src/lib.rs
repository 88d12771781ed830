//! A sequence of a known tenant begins with that tenant's value in the state `total`. Any other sequence begins as config.pbtxt says.

use std::collections::BTreeMap;

use sequor_plugin::initializer::*;

#[derive(Default)]
struct Plugin {
    tenants: BTreeMap<String, f32>,
}

impl Initializer for Plugin {
    fn configure(&mut self, config: &Config, _: &Model, ports: &Ports, _: &Files) -> Result<(), String> {
        ports.find_state("total")?;
        self.tenants = config.get("tenants")?;
        Ok(())
    }

    /// Called with each START.
    fn initialize(&mut self, call: &Call<'_>, _: Tensors) -> Result<FirstState, Refusal> {
        let tenant = call.text("tenant").unwrap_or_default();
        Ok(match self.tenants.get(&tenant) {
            Some(value) => FirstState::states([("total", Tensor::new(&[1], &[*value]))]),
            None => FirstState::Default,
        })
    }
}

sequor_plugin::export_initializer!(Plugin);

#[cfg(test)]
mod tests {
    use sequor_plugin::initializer::testing::Bench;

    use super::*;

    #[test]
    fn a_start_gets_the_value_of_its_tenant() {
        let ports = Ports::new().state("total", Dtype::FP32, &[1]);
        let mut bench = Bench::<Plugin>::new(ports).config(r#"{"tenants": {"gold": 100}}"#).key("tenant", "gold");
        let gold = FirstState::states([("total", Tensor::new(&[1], &[100f32]))]);
        assert_eq!(bench.start(Tensors::new()).unwrap(), gold);
        bench.set_key("tenant", "unknown");
        assert_eq!(bench.start(Tensors::new()).unwrap(), FirstState::Default);
    }
}
