//! The four states of a streaming transducer's encoder, in two types, with 3.45 MiB a sequence.

use crate::support::server::sides;
use crate::support::{Seq, model};

const CONFIG: &str = r#"
    max_batch_size: 4
    instance_group { count: 1 }
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ 1 ] }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 8 ] }
    sequence_batching {
      max_sequence_idle_microseconds: 600000000
      STRATEGY
      state { input_name: "att_cache" output_name: "new_att_cache" data_type: TYPE_FP32 dims: [ 64, 45, 192 ] }
      state { input_name: "cnn_cache" output_name: "new_cnn_cache" data_type: TYPE_FP32 dims: [ 30, 384, 30 ] }
      state { input_name: "sum_cache" output_name: "new_sum_cache" data_type: TYPE_FP32 dims: [ 15, 384 ] }
      state { input_name: "len_cache" output_name: "new_len_cache" data_type: TYPE_INT64 dims: [ 15 ] }
    }
"#;

/// Minimum and maximum of each state after these inputs.
fn ends(inputs: &[f32]) -> Vec<f32> {
    let sum: f32 = inputs.iter().sum();
    [sum, 2.0 * sum, 3.0 * sum, inputs.len() as f32].into_iter().flat_map(|v| [v, v]).collect()
}

#[test]
fn the_four_states_of_a_transducer_are_kept_for_three_sequences_at_once() {
    for strategy in ["direct { }", "oldest { max_candidate_sequences: 64 }"] {
        let server = model("encoder").config(&CONFIG.replace("STRATEGY", strategy)).onnx("transducer").serve();
        let bytes = 4 * (64 * 45 * 192 + 30 * 384 * 30 + 15 * 384) + 8 * 15;
        let in_memory = sides(strategy) * bytes;
        assert_eq!((server.ready().state_bytes, server.ready().stored_bytes), (in_memory, bytes));
        assert_eq!(format!("{:.2} MiB", bytes as f64 / f64::from(1 << 20)), "3.45 MiB");
        let all: Vec<Seq<'_>> = (1..=3).map(|id| server.seq(id)).collect();
        let mut texts: Vec<Vec<f32>> = vec![Vec::new(); 3];
        // Alone, in pairs and all at once: states are used in place, copied to the other side, or gathered.
        let steps = [vec![0, 1, 2], vec![0], vec![2, 1], vec![1], vec![0, 1, 2], vec![2], vec![0, 2], vec![0, 1, 2]];
        for (played, step) in steps.into_iter().enumerate() {
            let ask = |n: usize, input: f32| all[n].nth(texts[n].len()).input(&[input]);
            let inputs: Vec<f32> = step.iter().map(|n| (*n * 10 + played) as f32).collect();
            let waiting: Vec<_> = step.iter().zip(&inputs).map(|(n, input)| ask(*n, *input).send()).collect();
            for ((n, input), waiting) in step.iter().zip(inputs).zip(waiting) {
                texts[*n].push(input);
                waiting.gives(&ends(&texts[*n]));
            }
        }
        assert_eq!(server.repository.state_bytes().0, 3 * in_memory);
        for (seq, texts) in all.iter().zip(&mut texts) {
            texts.push(0.5);
            seq.end().input(&[0.5f32]).gives(&ends(texts));
        }
        assert_eq!((server.repository.live(), server.repository.state_bytes().0), (0, 0));
        assert_eq!(server.last_run().shape("att_cache")[1..], [64, 45, 192]);
    }
}
