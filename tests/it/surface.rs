//! Tests requests of Triton's own clients other than inference: health, metadata, configuration, and the texts of refusals.

use crate::operator::ask;
use crate::python;
use crate::server::Server;

#[test]
fn tritons_clients_get_health_metadata_configuration_and_error_texts() {
    let server = Server::of_models();
    python::check("surface.py", &server);
    assert_eq!(server.stop().code, Some(0));
}

/// `docs/reference/protocol.md` has these answers.
#[test]
fn numbers_that_are_not_finite_are_read_from_json_and_written_to_it_as_the_page_says() {
    let server = Server::of_models();
    let post = |path: &str, body: &str| ask(server.http, "POST", path, "application/json", body.as_bytes());
    let model = "accumulator_fp32";
    // The same step over each protocol: its input is written into the JSON as it is.
    let kserve = |id: u64, number: &str, start: bool| {
        let body = format!(
            r#"{{"parameters":{{"sequence_id":{id},"sequence_start":{start}}},"inputs":[{{"name":"INPUT","shape":[1,1],"datatype":"FP32","data":[{number}]}}]}}"#
        );
        post(&format!("/v2/models/{model}/infer"), &body)
    };
    let tfs = |id: u64, number: &str, start: bool| {
        // Both protocols serve the same model: its ids must not live.
        let (id, control) = (10 + id, u8::from(start));
        let body = format!(
            r#"{{"inputs":{{"INPUT":[[{number}]],"sequence_id":[{id}],"sequence_control_input":[{control}]}}}}"#
        );
        post(&format!("/v1/models/{model}:predict"), &body)
    };
    for (protocol, step) in [("kserve", &kserve as &dyn Fn(u64, &str, bool) -> (u16, String)), ("tfs", &tfs)] {
        let (status, text) = step(7, "3e38", true);
        assert_eq!(status, 200, "{protocol}: {text}");
        for number in ["NaN", "Infinity", "-Infinity", "nan", "\"NaN\"", "null", "1e39", "1e999"] {
            let is_word = matches!(number, "NaN" | "Infinity" | "-Infinity");
            if is_word && protocol == "kserve" {
                continue;
            }
            let (status, text) = step(7, number, false);
            // OVMS says 412 of a body that is no JSON.
            let refused = if protocol == "kserve" || !(is_word || number == "nan") { 400 } else { 412 };
            assert_eq!(status, refused, "{protocol}, {number}: {text}");
            assert!(text.starts_with("{\"error\":"), "{protocol}, {number}: {text}");
        }
        // Refused steps left the sequence as it was: two times 3e38 is more than FP32 holds.
        let (status, text) = step(7, "3e38", false);
        assert!(status == 200 && text.contains("[Infinity]"), "{protocol}: {text}");
        let (status, text) = step(9, "-3e38", true);
        assert_eq!(status, 200, "{protocol}: {text}");
        let (status, text) = step(9, "-3e38", false);
        assert!(status == 200 && text.contains("[-Infinity]"), "{protocol}: {text}");
    }
    for (id, number) in [(21, "NaN"), (22, "Infinity"), (23, "-Infinity")] {
        let (status, text) = kserve(id, number, true);
        assert!(status == 200 && text.contains(&format!("[{number}]")), "{number}: {text}");
        let body = format!(r#"{{"INPUT": {number}, "sequence_id": {}, "sequence_start": true}}"#, id + 10);
        let (status, text) = post(&format!("/v2/models/{model}/generate"), &body);
        assert!(status == 200 && text.contains(&format!("\"OUTPUT\":{number}")), "{number}: {text}");
    }
    let integers = r#"{"parameters":{"sequence_id":7,"sequence_start":true},"inputs":[{"name":"INPUT","shape":[1,1],"datatype":"INT32","data":[NaN]}]}"#;
    let (status, text) = post("/v2/models/accumulator_int32/infer", integers);
    assert!(status == 400 && text.contains("NaN is no INT32"), "{text}");
    assert_eq!(server.stop().code, Some(0));
}
