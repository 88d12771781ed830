//! The names of all metrics, with their labels. Nothing is counted here.
//!
//! Names are `sequor_<what>_<unit>`, and counters end in `_total`. Triton's metrics are there too, with Triton's names and units, for
//! existing dashboards and autoscalers. Labels are bounded: never a sequence's id, never a model that is not served.
//!
//! - `families`: all metrics of a server, and the series of a model version.
//! - `triton`, `plugin_families`, `kept_families`, `server_families`: their parts.
//! - `series`: registers metrics, and looks up or removes their series.

mod families;
mod kept_families;
mod plugin_families;
mod series;
mod server_families;
mod triton;

pub(super) use families::Families;
