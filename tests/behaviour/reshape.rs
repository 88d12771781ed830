//! `reshape`: clients and graph exchange the same data under different shapes.

use sequor::backend::mock::MockBackend;

use crate::support::model;
use crate::support::values::tensor;

/// The dimensions of the graph's rows, the clients' dimensions, the configuration's `reshape`, and the row of a request on both sides.
struct Case {
    graph: &'static str,
    dims: &'static str,
    reshape: &'static str,
    client: &'static [u64],
    inside: &'static [u64],
}

const CASES: [Case; 3] = [
    Case { graph: "2,3", dims: "[ 6 ]", reshape: "[ 2, 3 ]", client: &[6], inside: &[2, 3] },
    Case {
        graph: "4,-1,1,6",
        dims: "[ 2, 2, -1, 6 ]",
        reshape: "[ 4, -1, 1, 6 ]",
        client: &[2, 2, 3, 6],
        inside: &[4, 3, 1, 6],
    },
    Case { graph: "1,-1", dims: "[ -1 ]", reshape: "[ 1, -1 ]", client: &[5], inside: &[1, 5] },
];

#[test]
fn reshape_gives_the_graph_a_different_shape_of_the_same_data() {
    for Case { graph, dims, reshape, client, inside } in CASES {
        let side = |side: &str, name: &str| {
            format!("{side} {{ name: \"{name}\" data_type: TYPE_FP32 dims: {dims} reshape {{ shape: {reshape} }} }}\n")
        };
        let config = format!("max_batch_size: 4\n{}{}", side("input", "INPUT"), side("output", "OUTPUT"));
        let program = format!("identity FP32 dims={graph}");
        let server = model("reshape").config(&config).mock(&program, MockBackend::new()).serve();
        let whole: Vec<u64> = [&[2], client].concat();
        let count = usize::try_from(whole.iter().product::<u64>()).unwrap();
        let values: Vec<f32> = (0..count).map(|n| n as f32).collect();
        let answer = server.stateless().with("INPUT", tensor(&whole, &values)).answer();
        assert_eq!((answer.shape("OUTPUT"), answer.output::<f32>("OUTPUT")), (&whole[..], values), "{graph}");
        assert_eq!(server.last_run().shape("INPUT"), [&[2], inside].concat(), "{graph}");
    }
}
