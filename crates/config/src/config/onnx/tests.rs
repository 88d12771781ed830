//! Tests the transformation on files made with the package `onnx`, and on bytes that are not a model.

use proptest::prelude::*;
use sequor_core::DataType;

use super::fields::{graph, model};
use super::low_latency::{LowLatencyError, NamedState, transform};
use super::node::GraphNode;
use super::wire::{Message, NotAMessage};

fn file(name: &str) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/models").join(name);
    fs_err::read(path.with_extension("onnx")).unwrap()
}

fn nodes(bytes: &[u8]) -> Vec<(String, Vec<String>, Vec<String>)> {
    let file = Message::parse(bytes).unwrap();
    let graph = Message::parse(file.last(model::GRAPH).unwrap()).unwrap();
    let node = |bytes: &[u8]| {
        let node = GraphNode::parse(bytes).unwrap();
        (node.op, node.inputs, node.outputs)
    };
    graph.all(graph::NODE).map(node).collect()
}

#[test]
fn every_recurrent_node_gets_its_states_as_ports() {
    let transformed = transform(&file("recurrent")).unwrap();
    let state = |input: &str, output: &str, size: i64| NamedState {
        input: input.to_owned(),
        output: output.to_owned(),
        dtype: DataType::Fp32,
        dims: vec![1, if size == 5 { -1 } else { 1 }, size],
    };
    assert_eq!(
        transformed.states,
        [
            state("encoder_LSTM_h_in", "encoder_LSTM_h_out", 4),
            state("encoder_LSTM_c_in", "encoder_LSTM_c_out", 4),
            state("gru_2_h_in", "gru_2_h_out", 5),
            state("rnn_3_h_in", "rnn_last", 2),
        ]
    );
    assert_eq!(transformed.start.as_deref(), Some("sequor_start"));
    let nodes = nodes(&transformed.model);
    let ops: Vec<&str> = nodes.iter().map(|(op, ..)| op.as_str()).collect();
    assert_eq!(ops, ["Mul", "Where", "Where", "LSTM", "Squeeze", "GRU", "Squeeze", "RNN", "Squeeze"]);
    assert_eq!(nodes[1].1, ["sequor_start", "first_h", "encoder_LSTM_h_in"]);
    assert_eq!(nodes[2].1, ["sequor_start", "first_c", "encoder_LSTM_c_in"]);
    assert_eq!(nodes[3].1[5..], ["encoder_LSTM_h_first".to_owned(), "encoder_LSTM_c_first".to_owned()]);
    assert_eq!(nodes[3].2, ["lstm_y", "encoder_LSTM_h_out", "encoder_LSTM_c_out"]);
    assert_eq!(nodes[5].1[4..], [String::new(), "gru_2_h_in".to_owned()]);
}

#[test]
fn an_open_batch_gets_the_one_row_of_its_state() {
    let bytes = file("recurrent_open");
    assert!(bytes.windows(5).any(|part| part == b"batch"));
    let transformed = transform(&bytes).unwrap();
    assert_eq!(transformed.states[0].dims, [1, 1, 2]);
    assert!(!transformed.model.windows(5).any(|part| part == b"batch"));
    assert!(transformed.model.windows(4).any(|part| part == b"time"));
}

#[test]
fn a_node_that_reads_its_sequence_from_the_end_is_refused_by_name() {
    for direction in ["reverse", "bidirectional"] {
        let refused = transform(&file(&format!("recurrent_{direction}"))).unwrap_err();
        let (node, op, direction) = ("encoder_LSTM".to_owned(), "LSTM".to_owned(), direction.to_owned());
        assert_eq!(refused, LowLatencyError::Direction { node, op, direction });
        assert!(refused.to_string().starts_with("node 'encoder_LSTM' (LSTM) is "), "{refused}");
    }
}

#[test]
fn a_graph_without_recurrent_nodes_is_refused_with_what_to_do() {
    let refused = transform(&file("sum_fp32")).unwrap_err();
    assert_eq!(refused, LowLatencyError::NoRecurrentNode);
    assert!(refused.to_string().contains("export the model with its states"), "{refused}");
    assert_eq!(transform(b""), Err(LowLatencyError::NoGraph));
    assert_eq!(transform(b"<xml>"), Err(LowLatencyError::NotAMessage(NotAMessage)));
}

#[test]
fn decoding_and_encoding_a_model_keeps_its_bytes() {
    for name in ["recurrent", "transducer", "delay_all", "crossed"] {
        let bytes = file(name);
        let message = Message::parse(&bytes).unwrap();
        assert_eq!(message.encode(), bytes, "{name}");
        let graph = message.last(model::GRAPH).unwrap();
        assert_eq!(Message::parse(graph).unwrap().encode(), graph, "{name}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_transformed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = transform(&bytes);
    }

    #[test]
    fn a_damaged_file_is_transformed_or_refused(at in 0usize..3000, byte in any::<u8>()) {
        let mut bytes = file("recurrent");
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = transform(&bytes);
    }
}
