//! Requests of an operator over the admin listener.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

pub(crate) struct Operator {
    admin: String,
}

impl Operator {
    pub(crate) fn of(admin: String) -> Operator {
        Operator { admin }
    }

    fn ask(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.admin).expect("a connection");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: {kind}\r\n",
            self.admin
        );
        write!(stream, "{head}content-length: {}\r\n\r\n", body.len()).expect("a request");
        stream.write_all(body).expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        (head.split_whitespace().nth(1).and_then(|code| code.parse().ok()).expect("a status"), body.to_owned())
    }

    fn granted(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, text) = self.ask(method, path, "application/json", body.to_string().as_bytes());
        assert_eq!(status, 200, "{method} {path}: {text}");
        serde_json::from_str(&text).expect("JSON")
    }

    pub(crate) fn load(&self, name: &str, component: &[u8]) {
        let (status, text) = self.ask("POST", &format!("/admin/plugins/{name}"), "application/wasm", component);
        assert_eq!(status, 200, "{text}");
    }

    fn attach(&self, model: &str, config: &Value, time: Option<&str>) {
        let mut how = json!({ "model": model, "config": config });
        if let Some(time) = time {
            how["time"] = json!(time);
        }
        self.granted("POST", "/admin/plugins/hostile/attach", &how);
    }

    fn attached(&self) -> Value {
        self.granted("GET", "/admin/plugins/hostile", &json!({}))["attached"][0].clone()
    }

    /// Attaches the plug-in; `time` is the limit of a call, or the default.
    pub(crate) fn let_loose(&self, model: &str, does: &str, amount: u64, time: Option<&str>) {
        self.attach(model, &json!({ "do": does, "amount": amount }), time);
    }

    /// The number of its calls, and its state.
    pub(crate) fn asked(&self) -> (f64, String) {
        let attached = self.attached();
        let state = attached["state"].as_str().expect("a state").to_owned();
        (attached["calls"].as_f64().expect("calls"), state)
    }

    /// Clears its strikes, so that it is called again at once.
    pub(crate) fn again(&self) {
        for verb in ["park", "unpark"] {
            self.granted("POST", &format!("/admin/plugins/hostile/{verb}"), &json!({}));
        }
    }

    pub(crate) fn take_off(&self, model: &str) {
        self.granted("POST", "/admin/plugins/hostile/detach", &json!({ "model": model }));
    }

    /// Rounds of its loop that take about this long, from the measured time of a known number of rounds.
    pub(crate) fn spins(&self, model: &str, long: Duration) -> u64 {
        const TRIED: u64 = 100_000;
        self.attach(model, &json!({ "do": "spin", "amount": TRIED }), Some("10s"));
        std::thread::sleep(Duration::from_millis(300));
        let took = self.attached()["p50_us"].as_f64().expect("p50_us");
        self.take_off(model);
        (long.as_micros() as f64 / took * TRIED as f64) as u64
    }
}
