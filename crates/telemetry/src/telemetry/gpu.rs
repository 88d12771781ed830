//! Metrics of a GPU that the server uses.

use std::sync::Arc;

use super::kinds::{FloatGauge, Gauge};
use super::labels::{Family, Labels};
use super::names::Families;

/// Metrics of one GPU that the server uses.
#[derive(Debug, Clone)]
pub struct GpuMetrics {
    /// Bytes allocated for states, whether or not sequences use them.
    pub state_bytes: Gauge,
    pub(super) labels: Labels,
    pub(super) families: Arc<Families>,
}

/// The measured values of a GPU.
#[derive(Debug, Clone, Copy, Default)]
pub struct GpuReading {
    pub total_bytes: u64,
    pub used_bytes: u64,
    /// Utilization from 0 to 1.
    pub utilization: Option<f64>,
    pub watts: Option<f64>,
    pub watts_at_most: Option<f64>,
    pub joules: Option<f64>,
}

impl GpuMetrics {
    /// Sets the gauges. A value that the driver does not report is skipped.
    pub fn set(&self, reading: &GpuReading) {
        let triton = &self.families.triton;
        let bytes = |family: &Family<Gauge>, bytes: u64| {
            family.get_or_create_owned(&self.labels).set(i64::try_from(bytes).unwrap_or(i64::MAX));
        };
        bytes(&triton.gpu_total, reading.total_bytes);
        bytes(&triton.gpu_used, reading.used_bytes);
        let level = |family: &Family<FloatGauge>, level: Option<f64>| {
            if let Some(level) = level {
                family.get_or_create_owned(&self.labels).set(level);
            }
        };
        level(&triton.gpu_utilization, reading.utilization);
        level(&triton.gpu_power, reading.watts);
        level(&triton.gpu_power_limit, reading.watts_at_most);
        level(&triton.gpu_energy, reading.joules);
    }
}
