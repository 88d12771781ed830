//! Sends finished spans to the collector, in the background. What it cannot send in time is dropped and counted.

use std::sync::Arc;
use std::time::Duration;

use sequor_proto::opentelemetry::resource::v1::Resource;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::collector::{Collector, CollectorError, ExportError};
use super::encode;
use super::request_span::FinishedSpan;
use super::tracer::{Tracer, WAITING};
use crate::config::server::OtlpSettings;
use crate::telemetry::{SpanCounters, SpanLoss};

/// Time between two exports, unless the queue fills.
const EVERY: Duration = Duration::from_secs(1);
/// Maximum number of requests in one export.
const MOST: usize = 512;
/// The pauses before an export is tried again. Behind the last one, its spans are dropped.
const PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];

/// The task that exports. Dropping it lets the task run on.
#[derive(Debug)]
pub struct Exporter {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Exporter {
    /// Starts the task. Call it in a runtime.
    pub fn start(settings: &OtlpSettings, counters: SpanCounters) -> Result<(Tracer, Exporter), CollectorError> {
        let collector = Collector::new(settings)?;
        let (tracer, queue, fills) = Tracer::new(settings.sample, WAITING, counters.clone());
        let stop = CancellationToken::new();
        let task = ExportTask {
            collector,
            queue,
            fills,
            stop: stop.clone(),
            resource: encode::resource(&settings.resource),
            counters,
            patience: settings.timeout,
            is_away: false,
        };
        Ok((tracer, Exporter { stop, task: tokio::spawn(task.run()) }))
    }

    /// Sends the spans that wait, within this time.
    pub async fn flush(self, limit: Duration) {
        self.stop.cancel();
        if timeout(limit, self.task).await.is_err() {
            tracing::warn!(?limit, "the collector did not take the last spans in time; they are lost");
        }
    }
}

struct ExportTask {
    collector: Collector,
    queue: mpsc::Receiver<FinishedSpan>,
    fills: Arc<Notify>,
    stop: CancellationToken,
    resource: Resource,
    counters: SpanCounters,
    /// Maximum time of one attempt.
    patience: Duration,
    /// Whether the last attempt failed. Only changes are logged.
    is_away: bool,
}

impl ExportTask {
    async fn run(mut self) {
        loop {
            let stops = tokio::select! {
                biased;
                () = self.stop.cancelled() => true,
                () = self.fills.notified() => false,
                () = sleep(EVERY) => false,
            };
            loop {
                let requests = self.take();
                if requests.is_empty() {
                    break;
                }
                self.export(requests).await;
            }
            if stops {
                return;
            }
        }
    }

    fn take(&mut self) -> Vec<FinishedSpan> {
        let mut requests = Vec::new();
        while requests.len() < MOST
            && let Ok(request) = self.queue.try_recv()
        {
            requests.push(request);
        }
        requests
    }

    /// Sends the spans of these requests, or drops them.
    async fn export(&mut self, requests: Vec<FinishedSpan>) {
        let spans: u64 = requests.iter().map(FinishedSpan::count).sum();
        let export = encode::export(self.resource.clone(), &requests);
        drop(requests);
        let mut pauses = PAUSES.into_iter();
        let why = loop {
            let late = |_| Err(ExportError::Away(format!("no answer within {:?}", self.patience)));
            let sent = timeout(self.patience, self.collector.send(&export)).await.unwrap_or_else(late);
            match (sent, pauses.next()) {
                (Ok(rejected), _) => return self.sent(spans, rejected),
                // A stopping server tries once.
                (Err(ExportError::Away(why)), Some(pause)) if !self.stop.is_cancelled() => {
                    self.failed(&why);
                    tokio::select! {
                        () = sleep(pause) => {}
                        () = self.stop.cancelled() => {}
                    }
                }
                (Err(error), _) => break error.to_string(),
            }
        };
        self.failed(&why);
        self.counters.dropped(SpanLoss::Collector, spans);
    }

    fn sent(&mut self, spans: u64, rejected: u64) {
        let rejected = rejected.min(spans);
        self.counters.exported(spans - rejected);
        self.counters.dropped(SpanLoss::Rejected, rejected);
        if std::mem::take(&mut self.is_away) {
            tracing::info!("the collector takes spans again");
        }
    }

    fn failed(&mut self, why: &str) {
        if !std::mem::replace(&mut self.is_away, true) {
            tracing::warn!(why, "spans cannot be exported; requests go on, and spans that wait too long are dropped");
        }
    }
}
