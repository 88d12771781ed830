//! Metrics of the whole server: its connections, clients, limits, stores and exported spans.

use prometheus_client::registry::Registry;

use crate::telemetry::cached::CacheUsage;
use crate::telemetry::config_reloads::{ReloadMetrics, ReloadOutcome};
use crate::telemetry::connection_closed::ConnectionClosed;
use crate::telemetry::kinds::{Counter, Gauge};
use crate::telemetry::labels::label;
use crate::telemetry::peer_limit::PeerLimit;
use crate::telemetry::server_gauges::ServerGauges;
use crate::telemetry::spans::{SpanCounters, SpanLoss};
use crate::telemetry::store::{SharedMetrics, StoreGauges};
use crate::telemetry::tls_failures::{TlsFailure, TlsFailureCounters, TlsListener};

use super::series::{family, gauge_alone};

/// The holdings of clients, for the limits of one client.
#[derive(Debug)]
pub(in crate::telemetry) struct PeerFamilies {
    pub(in crate::telemetry) count: Gauge,
    /// The largest holding of a single client, by limit.
    pub(in crate::telemetry) most: [Gauge; 3],
    pub(in crate::telemetry) refused: [Counter; 3],
}

/// Creates a counter for each reason, so that a scrape shows them before they count.
pub(super) fn connections_closed(registry: &mut Registry) -> [Counter; ConnectionClosed::ALL.len()] {
    let help = "Connections that the server closed, by the setting under [connections] whose limit they reached";
    let all = family(registry, "sequor_connections_closed_total", help, Counter::default as fn() -> Counter);
    ConnectionClosed::ALL.map(|reason| all.get_or_create_owned(&vec![label("reason", reason.name())]))
}

/// Creates a counter for each listener and reason, so that a scrape shows them before they count.
pub(super) fn tls_failures(registry: &mut Registry) -> TlsFailureCounters {
    let help = "TLS handshakes that failed, by listener and reason; `closed`: the client left, as checks of a port do";
    let all = family(registry, "sequor_tls_handshakes_failed_total", help, Counter::default as fn() -> Counter);
    TlsListener::ALL.map(|listener| {
        TlsFailure::ALL.map(|reason| {
            let labels = vec![label("listener", listener.name()), label("reason", reason.name())];
            all.get_or_create_owned(&labels)
        })
    })
}

pub(super) fn cache_usage(r: &mut Registry) -> CacheUsage {
    let evictions = Counter::default();
    r.register("sequor_cache_evicted_total", "Answers evicted to make room for others", evictions.clone());
    let bytes =
        gauge_alone(r, "sequor_cache_bytes", "Bytes of answers in the response cache; cache.size is the maximum");
    CacheUsage { bytes, evictions }
}

pub(super) fn server_gauges(r: &mut Registry) -> ServerGauges {
    ServerGauges {
        ready: gauge_alone(r, "sequor_ready", "1 if the server is ready, as `/v2/health/ready` says, else 0"),
        state_limit: gauge_alone(
            r,
            "sequor_state_limit_bytes",
            "limits.state, the maximum of states in memory; 0 is none",
        ),
        queued_limit: gauge_alone(
            r,
            "sequor_requests_queued_limit_bytes",
            "limits.queued, the maximum of sequor_requests_queued_bytes and sequor_answers_unread_bytes together",
        ),
    }
}

pub(super) fn span_counters(r: &mut Registry) -> SpanCounters {
    let exported = Counter::default();
    r.register("sequor_spans_exported_total", "Spans of exports that the collector has taken", exported.clone());
    let help = "Spans that were not exported, by reason: the queue was full, or the collector failed";
    let dropped = family(r, "sequor_spans_dropped_total", help, Counter::default as fn() -> Counter);
    let dropped = SpanLoss::ALL.map(|why| dropped.get_or_create_owned(&vec![label("reason", why.name())]));
    SpanCounters { exported, dropped }
}

pub(super) fn reload_metrics(r: &mut Registry) -> ReloadMetrics {
    let help = "Reloads of the configuration, by outcome: applied, or refused because of a fault or a drain";
    let reloads = family(r, "sequor_config_reloads_total", help, Counter::default as fn() -> Counter);
    let metrics = ReloadMetrics {
        reloads: ReloadOutcome::ALL.map(|of| reloads.get_or_create_owned(&vec![label("outcome", of.name())])),
        last_successful: gauge_alone(
            r,
            "sequor_config_last_reload_successful",
            "1 if the last reload of the configuration was applied, or there was none, else 0",
        ),
        pending: gauge_alone(
            r,
            "sequor_config_settings_pending_restart",
            "Settings whose new values wait for a restart, since the last reload that was applied",
        ),
    };
    metrics.last_successful.set(1);
    metrics
}

pub(super) fn store_gauges(r: &mut Registry) -> StoreGauges {
    StoreGauges {
        sequences: gauge_alone(
            r,
            "sequor_store_sequences",
            "Sequences whose states are stored in state.dir; with state.url, those of this server",
        ),
        bytes: gauge_alone(r, "sequor_store_bytes", "Bytes of the states that sequor_store_sequences counts"),
        limit: gauge_alone(r, "sequor_store_limit_bytes", "state.disk_limit, the maximum of sequor_store_bytes"),
        free: gauge_alone(
            r,
            "sequor_store_free_bytes",
            "Free bytes of the file system of state.dir; 0 without a store, no limit with state.url",
        ),
    }
}

pub(super) fn shared_metrics(r: &mut Registry) -> SharedMetrics {
    let mut counter = |name: &str, help: &str| {
        let counter = Counter::default();
        r.register(name, help, counter.clone());
        counter
    };
    let claimed = "Sequences that this server has begun or taken over in state.url";
    let taken_over = "Sequences that this server has taken over from another live server";
    let given_up = "Sequences that this server has released in state.url, for another server or after their end";
    let fenced = "Writes that state.url refused because another server has the sequence";
    let lapsed = "Times the lease of this server ended, because state.url did not hear of it within state.lease";
    SharedMetrics {
        claimed: counter("sequor_shared_claimed_total", claimed),
        taken_over: counter("sequor_shared_taken_over_total", taken_over),
        given_up: counter("sequor_shared_given_up_total", given_up),
        fenced: counter("sequor_shared_fenced_total", fenced),
        lapsed: counter("sequor_shared_lapsed_total", lapsed),
        sequences: gauge_alone(r, "sequor_shared_sequences", "Sequences that this server owns in state.url"),
        lease: gauge_alone(
            r,
            "sequor_shared_lease",
            "1 if this server may answer for its sequences in state.url, else 0",
        ),
    }
}

impl PeerFamilies {
    pub(super) fn register(r: &mut Registry) -> PeerFamilies {
        let refused = family(
            r,
            "sequor_peer_refused_total",
            "Requests refused because their client was at its maximum",
            Counter::default as fn() -> Counter,
        );
        PeerFamilies {
            count: gauge_alone(
                r,
                "sequor_peers",
                "Clients that are connected or hold sequences or requests; counted only if a client has a maximum",
            ),
            most: PeerLimit::ALL.map(|limit| match limit {
                PeerLimit::Sequences => {
                    gauge_alone(r, "sequor_peer_most_sequences", "Live sequences of the client that has the most")
                }
                PeerLimit::InFlight => {
                    gauge_alone(r, "sequor_peer_most_in_flight", "Requests in flight of the client that has the most")
                }
                PeerLimit::Queued => gauge_alone(
                    r,
                    "sequor_peer_most_queued_bytes",
                    "Queued request bytes of the client that has the most",
                ),
            }),
            refused: PeerLimit::ALL.map(|limit| refused.get_or_create_owned(&vec![label("limit", limit.name())])),
        }
    }
}
