//! A constant load: streams of one sequence each, which send a step when it is due and the previous one is answered. If a step is late
//! because of the previous one, its time counts from when it was due. A step belongs to the window that is open when it is sent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::model_infer_request::InferInputTensor;
use sequor_proto::service::grpc_inference_service_client::GrpcInferenceServiceClient;
use sequor_proto::{InferParameter, ModelInferRequest};
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};

/// The open window, and the command for the plug-in in it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Windows(Arc<Open>);

#[derive(Debug, Default)]
struct Open {
    /// The number of the open window; 0 for none.
    now: AtomicUsize,
    made: AtomicUsize,
    /// Whether the plug-in that obeys requests must spin.
    spins: AtomicBool,
}

impl Windows {
    pub(crate) fn open(&self) -> usize {
        let window = self.unopened();
        self.reopen(window);
        window
    }

    /// The number of a new window that is not open yet.
    pub(crate) fn unopened(&self) -> usize {
        self.0.made.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn reopen(&self, window: usize) {
        self.0.now.store(window, Ordering::SeqCst);
    }

    pub(crate) fn close(&self) {
        self.reopen(0);
    }

    pub(crate) fn spins(&self, spins: bool) {
        self.0.spins.store(spins, Ordering::SeqCst);
    }

    fn now(&self) -> usize {
        self.0.now.load(Ordering::SeqCst)
    }
}

/// Milliseconds of each step, by window and by model.
type Took = BTreeMap<usize, [Vec<f64>; 2]>;

/// The results of a window, for the plug-in's model and for the model next to it.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) decided: Vec<f64>,
    pub(crate) beside: Vec<f64>,
}

pub(crate) struct Load {
    took: Arc<Mutex<Took>>,
    enough: Arc<AtomicBool>,
    players: JoinSet<()>,
}

impl Load {
    /// Starts the streams. `models` has the number of streams of each model, and their steps a second.
    pub(crate) async fn start(grpc: &str, models: &[(&'static str, usize, u32); 2], windows: &Windows) -> Load {
        let (took, enough) = (Arc::<Mutex<Took>>::default(), Arc::<AtomicBool>::default());
        let mut players = JoinSet::new();
        for (at, (model, streams, rate)) in models.iter().enumerate() {
            let endpoint = Endpoint::from_shared(format!("http://{grpc}")).expect("an address").tcp_nodelay(true);
            let client = GrpcInferenceServiceClient::new(endpoint.connect().await.expect("a connection"));
            for n in 0..*streams {
                let every = Duration::from_secs(1) / *rate;
                let id = (at * 1000 + n + 1) as i64;
                let first = every * n as u32 / *streams as u32;
                let (took, enough, windows) = (Arc::clone(&took), Arc::clone(&enough), windows.clone());
                let player = Player { client: client.clone(), model, at, id, every, took, enough, windows };
                players.spawn(player.play(first));
            }
        }
        Load { took, enough, players }
    }

    /// The results of a window. Waits for the steps that were sent in it.
    pub(crate) async fn of(&self, window: usize) -> Seen {
        // A little longer than the server's maximum wait; steps that take longer have failed.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let until = Instant::now() + Duration::from_secs(3);
        while self.open(window) && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let [mut decided, mut beside] = self.took.lock().remove(&window).unwrap_or_default();
        for all in [&mut decided, &mut beside] {
            all.retain(|took| !took.is_nan());
        }
        assert!(!decided.is_empty() && !beside.is_empty(), "a window without an answer");
        Seen { decided, beside }
    }

    /// Whether any step that was sent in this window is still unanswered.
    fn open(&self, window: usize) -> bool {
        self.took.lock().get(&window).is_some_and(|took| took.iter().flatten().any(|took| took.is_nan()))
    }

    pub(crate) async fn stop(mut self) {
        self.enough.store(true, Ordering::SeqCst);
        while let Some(ended) = self.players.join_next().await {
            ended.expect("every step is answered");
        }
    }
}

struct Player {
    client: GrpcInferenceServiceClient<Channel>,
    model: &'static str,
    at: usize,
    id: i64,
    every: Duration,
    took: Arc<Mutex<Took>>,
    enough: Arc<AtomicBool>,
    windows: Windows,
}

impl Player {
    async fn play(mut self, first: Duration) {
        let mut due = Instant::now() + first;
        let mut start = true;
        let mut sum = 0.0;
        while !self.enough.load(Ordering::SeqCst) {
            let late = Instant::now() > due;
            tokio::time::sleep_until(due.into()).await;
            let since = if late { due } else { Instant::now() };
            let (window, place) = self.sent();
            let answer = self.client.model_infer(self.step(start)).await.expect("an answer").into_inner();
            sum += 1.0f32;
            let output = answer.outputs.iter().position(|o| o.name == "OUTPUT").expect("OUTPUT");
            assert_eq!(answer.raw_output_contents[output][..], sum.to_le_bytes(), "a wrong sum");
            let took = since.elapsed().as_secs_f64() * 1e3;
            if let Some(all) = self.took.lock().get_mut(&window) {
                all[self.at][place] = took;
            }
            start = false;
            // Missed steps are not sent later.
            due = (due + self.every).max(Instant::now() - self.every);
        }
    }

    /// A place for the time of the step that is sent now; a dummy if no window is open.
    fn sent(&self) -> (usize, usize) {
        let window = self.windows.now();
        if window == 0 {
            return (0, 0);
        }
        let mut took = self.took.lock();
        let all = &mut took.entry(window).or_default()[self.at];
        all.push(f64::NAN);
        (window, all.len() - 1)
    }

    fn step(&self, start: bool) -> ModelInferRequest {
        let parameter = |choice| InferParameter { parameter_choice: Some(choice) };
        let spins = self.windows.0.spins.load(Ordering::SeqCst);
        ModelInferRequest {
            model_name: self.model.to_owned(),
            parameters: BTreeMap::from([
                ("sequence_id".to_owned(), parameter(ParameterChoice::Int64Param(self.id))),
                ("sequence_start".to_owned(), parameter(ParameterChoice::BoolParam(start))),
                ("spin".to_owned(), parameter(ParameterChoice::DoubleParam(f64::from(u8::from(spins))))),
            ]),
            inputs: vec![InferInputTensor {
                name: "INPUT".to_owned(),
                datatype: "FP32".to_owned(),
                shape: vec![1, 1],
                ..InferInputTensor::default()
            }],
            raw_input_contents: vec![1.0f32.to_le_bytes().to_vec().into()],
            ..ModelInferRequest::default()
        }
    }
}
