//! Tests ensembles in a real server, with Triton's clients.

use std::fs;
use std::path::Path;

use crate::python;
use crate::server::{Call, copy, models};

/// A step that maps INPUT of the member to the first tensor, and OUTPUT to the second.
fn step(model: &str, input: &str, output: &str) -> String {
    format!(
        "step {{ model_name: \"{model}\" model_version: -1 input_map {{ key: \"INPUT\" value: \"{input}\" }} \
         output_map {{ key: \"OUTPUT\" value: \"{output}\" }} }}\n"
    )
}

/// Writes the models `first` and `second` into this repository, and `both`, which sends a sequence through them.
pub(crate) fn of_two(repository: &Path) {
    for member in ["first", "second"] {
        let model = repository.join(member);
        copy(&models().join("accumulator_int32"), &model);
        let config = fs::read_to_string(model.join("config.pbtxt")).unwrap();
        fs::write(model.join("config.pbtxt"), config.replace("name: \"accumulator_int32\"", "")).unwrap();
    }
    let both = repository.join("both");
    fs::create_dir_all(both.join("1")).unwrap();
    let tensor = |name: &str| format!("{{ name: \"{name}\" data_type: TYPE_INT32 dims: 1 }}\n");
    // The steps are in the wrong order; the tensors determine which one is first.
    let steps = [step("second", "sum", "OUTPUT"), step("first", "INPUT", "sum")].concat();
    let config = format!(
        "platform: \"ensemble\" max_batch_size: 8\ninput {} output {} ensemble_scheduling {{\n{steps} }}\n",
        tensor("INPUT"),
        tensor("OUTPUT")
    );
    fs::write(both.join("config.pbtxt"), config).unwrap();
}

#[test]
fn tritons_clients_send_sequences_through_an_ensemble() {
    let call = Call::serve("repository");
    of_two(&call.folder.path().join("repository"));
    let server = call.start();
    python::check("ensembles.py", &server);
    assert_eq!(server.stop().code, Some(0));
}
