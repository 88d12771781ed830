//! Reads a server's mean batch from the counters that Triton and Sequor publish under the same names.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A model's counters.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct ModelCounts {
    pub(super) requests: f64,
    pub(super) batches: f64,
}

impl ModelCounts {
    /// Mean requests a batch between `since` and now.
    pub(super) fn mean_batch(self, since: ModelCounts) -> Option<f64> {
        let batches = self.batches - since.batches;
        (batches > 0.0).then(|| (self.requests - since.requests) / batches)
    }
}

/// Reads the metrics at this address; `None` if there are none.
pub(super) async fn counts(address: &str, model: &str) -> Option<ModelCounts> {
    let asked = tokio::time::timeout(Duration::from_secs(1), scrape(address)).await;
    asked.ok()?.ok().map(|text| read(&text, model))
}

async fn scrape(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let ask = format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(ask.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

fn read(text: &str, model: &str) -> ModelCounts {
    let label = format!("model=\"{model}\"");
    let sum = |name: &str| -> f64 {
        let of_model = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'));
        let values = of_model.filter(|rest| rest.contains(&label)).filter_map(|rest| rest.rsplit_once(' '));
        values.filter_map(|(_, value)| value.parse::<f64>().ok()).sum()
    };
    ModelCounts { requests: sum("nv_inference_count"), batches: sum("nv_inference_exec_count") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_a_model_are_added_up_and_other_models_left_out() {
        let text = "# HELP nv_inference_count x\nnv_inference_count{model=\"a\",version=\"1\"} 60\n\
                    nv_inference_count{model=\"a\",version=\"2\"} 6\nnv_inference_count{model=\"ab\",version=\"1\"} 7\n\
                    nv_inference_exec_count{model=\"a\",version=\"1\"} 11\n";
        let counts = read(text, "a");
        assert_eq!(counts, ModelCounts { requests: 66.0, batches: 11.0 });
        assert_eq!(counts.mean_batch(ModelCounts { requests: 6.0, batches: 1.0 }), Some(6.0));
        assert_eq!(counts.mean_batch(counts), None);
    }
}
