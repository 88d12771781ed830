//! Tests statistics over both protocols.

use sequor_proto::{ModelStatistics, ModelStatisticsRequest, StatisticDuration};
use serde_json::json;
use tonic::Code;

use crate::rig::{END, Rig, START, request, step};

async fn ask(rig: &Rig, name: &str, version: &str) -> Result<Vec<ModelStatistics>, tonic::Status> {
    let request = ModelStatisticsRequest { name: name.to_owned(), version: version.to_owned() };
    Ok(rig.client().await.model_statistics(request).await?.into_inner().model_stats)
}

fn count(of: Option<StatisticDuration>) -> u64 {
    of.unwrap().count
}

#[tokio::test]
async fn statistics_count_runs_by_model_and_batch_size() {
    let rig = Rig::new();
    let mut client = rig.client().await;
    for n in 0..3 {
        client.model_infer(step(7, "", n, if n == 0 { &[START] } else { &[] })).await.unwrap();
    }
    client.model_infer(step(8, "", -13, &[START])).await.unwrap_err();
    client.model_infer(step(9, "", 1, &[])).await.unwrap_err();
    let mut pair = request("same", "", &[1, 2]);
    pair.inputs[0].shape = vec![2, 1];
    client.model_infer(pair).await.unwrap();

    let all = ask(&rig, "", "").await.unwrap();
    assert_eq!(
        all.iter().map(|m| (m.name.as_str(), m.version.as_str())).collect::<Vec<_>>(),
        [("same", "1"), ("sum", "1")]
    );
    let [same, sum] = &all[..] else { panic!() };
    assert_eq!((same.inference_count, same.execution_count, same.batch_stats[0].batch_size), (2, 1, 2));
    let times = sum.inference_stats.unwrap();
    // The refused step is not counted. The failed run counts as a run and as a failure.
    assert_eq!((count(times.success), count(times.fail), count(times.queue)), (3, 1, 3));
    assert_eq!((sum.inference_count, sum.batch_stats.len(), sum.batch_stats[0].batch_size), (4, 1, 1));
    assert!(sum.last_inference > 1_600_000_000_000);
    let memory = |of: &ModelStatistics| (of.memory_usage[0].r#type.clone(), of.memory_usage[0].byte_size);
    assert_eq!((memory(sum), memory(same)), (("CPU".to_owned(), 8), ("CPU".to_owned(), 0)));
    client.model_infer(step(7, "", 1, &[END])).await.unwrap();
    assert_eq!(memory(&ask(&rig, "sum", "1").await.unwrap()[0]).1, 4);
    assert_eq!(ask(&rig, "sum", "2").await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn statistics_are_available_over_http() {
    let rig = Rig::new();
    rig.client().await.model_infer(request("same", "", &[1])).await.unwrap();
    let all = rig.get("/v2/models/stats").await;
    assert_eq!(all["model_stats"].as_array().unwrap().len(), 2);
    for path in ["/v2/models/same/stats", "/v2/models/same/versions/1/stats"] {
        let body = rig.get(path).await;
        assert_eq!(body["model_stats"][0], all["model_stats"][0], "{path}");
    }
    let same = &all["model_stats"][0];
    assert_eq!((&same["name"], &same["version"], &same["inference_count"]), (&json!("same"), &json!("1"), &json!(1)));
    assert_eq!(same["inference_stats"]["success"]["count"], 1);
    assert_eq!((&same["batch_stats"][0]["compute_infer"]["count"], &same["response_stats"]), (&json!(1), &json!({})));
    assert_eq!(rig.http("GET /v2/models/nope/stats", &[], b"").await.status, 404);
}
