//! Passes finished spans to the OpenTelemetry library's exporter, in the background. Spans that cannot be sent in time are dropped and counted.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::InstrumentationScope;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::trace::SpanExporter as _;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::collector::{self, CollectorError};
use super::finished_span::FinishedSpan;
use super::span_data;
use super::span_queue::SpanQueue;
use super::tracer::Tracer;
use crate::config::server::{ExportPace, OtlpSettings};
use crate::telemetry::{SpanCounters, SpanLoss};

/// The target of the log lines, as operators filter them: it does not depend on the package.
const TARGET: &str = "sequor::spans::exporter";

/// A handle to the task that exports. If it is dropped, the task continues.
#[derive(Debug)]
pub struct Exporter {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Exporter {
    /// Starts the task. Call it in a runtime.
    pub fn start(settings: &OtlpSettings, counters: SpanCounters) -> Result<(Tracer, Exporter), CollectorError> {
        let exporter = collector::exporter(settings)?;
        let (waiting, (queue, fills)) = SpanQueue::new(settings.pace.waiting, counters.clone());
        let tracer = Tracer::new(settings.sample, settings.follows_parent, waiting);
        let stop = CancellationToken::new();
        let scope = InstrumentationScope::builder("sequor").with_version(env!("CARGO_PKG_VERSION")).build();
        let (pace, of_task) = (settings.pace, stop.clone());
        let task = ExportTask { exporter, queue, fills, stop: of_task, scope, counters, pace, is_away: false };
        Ok((tracer, Exporter { stop, task: tokio::spawn(task.run()) }))
    }

    /// Sends the spans that wait, within this time.
    pub async fn flush(self, limit: Duration) {
        self.stop.cancel();
        if timeout(limit, self.task).await.is_err() {
            tracing::warn!(target: TARGET, ?limit, "the collector did not take the last spans in time; they are lost");
        }
    }
}

struct ExportTask {
    exporter: SpanExporter,
    queue: mpsc::Receiver<FinishedSpan>,
    fills: Arc<Notify>,
    stop: CancellationToken,
    scope: InstrumentationScope,
    counters: SpanCounters,
    pace: ExportPace,
    /// Whether the last export failed. Only changes are logged.
    is_away: bool,
}

impl ExportTask {
    async fn run(mut self) {
        loop {
            let stops = tokio::select! {
                biased;
                () = self.stop.cancelled() => true,
                () = self.fills.notified() => false,
                () = sleep(self.pace.every) => false,
            };
            loop {
                let requests = self.take();
                if requests.is_empty() {
                    break;
                }
                self.export(&requests).await;
            }
            if stops {
                return;
            }
        }
    }

    fn take(&mut self) -> Vec<FinishedSpan> {
        let mut requests = Vec::new();
        while requests.len() < self.pace.batch
            && let Ok(request) = self.queue.try_recv()
        {
            requests.push(request);
        }
        requests
    }

    /// Sends the spans of these requests, or drops them. The library tries again for as long as the timeout of an export allows.
    async fn export(&mut self, requests: &[FinishedSpan]) {
        let spans: Vec<_> = requests.iter().flat_map(|request| span_data::spans(request, &self.scope)).collect();
        let count = spans.len() as u64;
        match self.exporter.export(spans).await {
            Ok(()) => {
                self.counters.exported(count);
                if std::mem::take(&mut self.is_away) {
                    tracing::info!(target: TARGET, "the collector takes spans again");
                }
            }
            Err(error) => {
                self.counters.dropped(SpanLoss::Collector, count);
                if !std::mem::replace(&mut self.is_away, true) {
                    tracing::warn!(target: TARGET, %error, "spans cannot be exported and are dropped; requests go on");
                }
            }
        }
    }
}
