//! Begins a sequence with the states of its tenant, from a table: a safetensors file whose tensors are named TENANT/STATE. A tenant may
//! have some of the states; the others begin as in config.pbtxt. The server keeps the file, and no state is copied into the plug-in.

mod table;

use std::collections::BTreeMap;

use sequor_plugin::initializer::*;

use table::{Entry, entries};

#[derive(Debug, Default)]
pub struct TenantState {
    /// The tensors of each tenant.
    tenants: BTreeMap<Key, Vec<Entry>>,
    file: Option<Tensor>,
    feature: String,
    refuses: bool,
}

impl Initializer for TenantState {
    fn configure(&mut self, config: &Config, model: &Model, ports: &Ports, files: &Files) -> Result<(), String> {
        self.feature = config.get("feature")?;
        if !model.keys.contains(&self.feature) {
            return Err(format!("no [[feature]] of type \"key\" is named \"{}\"", self.feature));
        }
        self.refuses = match config.get::<String>("unknown")?.as_str() {
            "default" => false,
            "refuse" => true,
            other => return Err(format!("unknown is \"{other}\"; it is default or refuse")),
        };
        let name: String = config.get("table")?;
        let file = files.get(&name)?;
        for (tenant, entry) in entries(file).map_err(|what| format!("{name}: {what}"))? {
            entry.check(ports.find_state(&entry.state)?).map_err(|what| format!("{name}: {tenant}/{what}"))?;
            self.tenants.entry(key_of(&tenant)).or_default().push(entry);
        }
        self.file = Some(file.clone());
        Ok(())
    }

    fn initialize(&mut self, call: &Call<'_>, _: Tensors) -> Result<FirstState, Refusal> {
        let tenant = call.key(&self.feature);
        let (Some(entries), Some(file)) = (self.tenants.get(&tenant), &self.file) else {
            if self.refuses {
                let known = call.text(&self.feature).unwrap_or_default();
                return Err(refuse(code::NOT_FOUND, format!("there are no states for {} \"{known}\"", self.feature)));
            }
            return Ok(FirstState::Default);
        };
        let state = |entry: &Entry| (entry.state.clone(), entry.of(file));
        Ok(FirstState::States(entries.iter().map(state).collect()))
    }
}

sequor_plugin::export_initializer!(TenantState);

#[cfg(test)]
mod tests {
    use sequor_plugin::initializer::testing::Bench;

    use super::*;

    /// A file with these tensors of type F32, or of the type in the name.
    fn file(tensors: &[(&str, &[u64], &[f32])]) -> Vec<u8> {
        let (mut header, mut data) = (Vec::new(), Vec::new());
        for (name, shape, values) in tensors {
            let (name, dtype) = name.split_once(':').unwrap_or((name, "F32"));
            let begin = data.len();
            data.extend(encode(values));
            header.push(format!(
                r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{begin},{}]}}"#,
                data.len()
            ));
        }
        let header = format!(r#"{{"__metadata__":{{"made":"here"}},{}}}"#, header.join(","));
        [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat()
    }

    fn bench(tenant: &str, file: &[u8]) -> Bench<TenantState> {
        let ports = Ports::new().state("h", Dtype::FP32, &[2]).state("c", Dtype::FP32, &[1, 1]);
        Bench::new(ports).key("tenant", tenant).file("tenants.safetensors", file)
    }

    fn table() -> Vec<u8> {
        file(&[("gold/h", &[2], &[1.0, 2.0]), ("free/c", &[1, 1], &[5.0]), ("gold/c", &[1, 1], &[3.0])])
    }

    #[test]
    fn a_start_gets_the_states_of_its_tenant() {
        let gold = FirstState::states([("c", Tensor::new(&[1, 1], &[3f32])), ("h", Tensor::new(&[2], &[1f32, 2.0]))]);
        assert_eq!(bench("gold", &table()).start(Tensors::new()).unwrap(), gold);
        let mut free = bench("free", &table());
        assert_eq!(free.start(Tensors::new()).unwrap(), FirstState::states([("c", Tensor::new(&[1, 1], &[5f32]))]));
        free.set_key("tenant", "gold");
        assert_eq!(free.start(Tensors::new()).unwrap(), gold);
    }

    #[test]
    fn first_states_are_passed_to_the_server_as_handles() {
        let FirstState::States(states) = bench("gold", &table()).start(Tensors::new()).unwrap() else {
            panic!("no states")
        };
        assert!(states.iter().all(|(_, tensor)| tensor.is_handle()));
    }

    #[test]
    fn an_unknown_tenant_gets_the_default_state_or_is_refused() {
        assert_eq!(bench("", &table()).start(Tensors::new()).unwrap(), FirstState::Default);
        assert_eq!(bench("none", &table()).start(Tensors::new()).unwrap(), FirstState::Default);
        let refused = bench("none", &table()).config(r#"{"unknown": "refuse"}"#).start(Tensors::new()).unwrap_err();
        assert_eq!((refused.code, refused.text.as_str()), (4, "there are no states for tenant \"none\""));
    }

    #[test]
    fn a_table_that_does_not_fit_refuses_the_model() {
        let refused = |file: &[u8]| bench("gold", file).configure().unwrap_err();
        assert_eq!(refused(&file(&[("gold/x", &[1], &[1.0])])), "the model has no state \"x\"; it has h, c");
        assert_eq!(refused(&file(&[("gold/h", &[1], &[1.0])])), "tenants.safetensors: gold/h is [1]; the state is [2]");
        assert_eq!(
            refused(&file(&[("gold/h:I32", &[2], &[1.0, 2.0])])),
            "tenants.safetensors: gold/h is INT32; the state is FP32"
        );
        assert_eq!(refused(&file(&[("h", &[2], &[1.0, 2.0])])), "tenants.safetensors: \"h\" is not named TENANT/STATE");
        assert_eq!(refused(b"short"), "tenants.safetensors: it is no file in the format safetensors");
        assert_eq!(refused(&table()[..table().len() - 1]), "tenants.safetensors: \"gold/c\" lies outside the file");
    }
}
