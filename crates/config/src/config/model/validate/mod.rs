//! Checks a configuration without its graph. Sentences that Triton's users know are Triton's.

mod batching;
mod client_state;
mod controls;
pub(super) mod ensemble;
mod ensemble_flow;
pub(super) mod instances;
mod io;
mod ragged;
mod reshape;
mod states;
mod watch;

use crate::config::fault::code;

use super::report::Report;
use super::{names, warmup};

/// Runs all checks that need no graph, on a normalised configuration.
pub(super) fn check(report: &mut Report<'_>, file_size: &dyn Fn(&std::path::Path) -> Option<u64>) {
    if report.config.max_batch_size < 0 {
        let what = format!("'max_batch_size' must be non-negative value for {}", report.model());
        report.fault("max_batch_size", code::BATCHING, what);
    }
    io::inputs(report);
    io::outputs(report);
    ragged::check(report);
    batching::versions(report);
    batching::dynamic(report);
    batching::sequence(report);
    batching::decoupled(report);
    controls::check(report);
    states::check(report, file_size);
    states::own_keys(report);
    watch::check(report);
    client_state::check(report);
    warmup::check(report, file_size);
    states::durability(report);
    if !names::is_ensemble(report.config) {
        instances::check(report);
    }
}
