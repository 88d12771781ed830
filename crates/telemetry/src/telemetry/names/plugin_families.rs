//! Metrics of plug-ins.

use parking_lot::Mutex;
use prometheus_client::metrics::family::Family as Labelled;
use prometheus_client::registry::Registry;

use crate::telemetry::kinds::{Amount, Counter, Gauge, Histogram};
use crate::telemetry::labels::{Family, Labels, label};
use crate::telemetry::plugin_room::PluginRoomMetrics;
use crate::telemetry::plugins::{Hook, Make, OwnCounter, PluginMetrics};

use super::series::{SeriesAction, family};

/// Labels with names of a plug-in's own.
type OwnLabels = Vec<(String, String)>;

#[derive(Debug, Clone)]
pub(in crate::telemetry) struct PluginFamilies {
    calls: Family<Histogram>,
    strikes: Family<Counter>,
    fallbacks: Family<Counter>,
    stale: Family<Counter>,
    passed_over: Family<Counter>,
    reloads: Family<Counter>,
    memory: Family<Gauge>,
    parked: Family<Gauge>,
    waiting: Family<Gauge>,
    instances: Family<Gauge>,
    counters: Labelled<OwnLabels, Amount, fn() -> Amount>,
}

/// Metrics of the room for instances of all plug-ins. A scrape shows each series before it counts.
pub(super) fn plugin_room(r: &mut Registry) -> PluginRoomMetrics {
    let help = "Room for instances of plug-ins: promised to places, used beyond that, and free";
    let room = family(r, "sequor_plugin_room", help, Gauge::default as fn() -> Gauge);
    let [own, further, free] = ["own", "further", "free"].map(|of| room.get_or_create_owned(&vec![label("use", of)]));
    let help = "Instances of plug-ins that did not start, because there was no room";
    let refused = family(r, "sequor_plugin_room_refused_total", help, Counter::default as fn() -> Counter);
    let refused = ["new", "replacement", "further"].map(|of| refused.get_or_create_owned(&vec![label("for", of)]));
    PluginRoomMetrics { own, further, free, refused }
}

impl PluginFamilies {
    pub(super) fn register(r: &mut Registry) -> PluginFamilies {
        let (counter, gauge) = (Counter::default as fn() -> Counter, Gauge::default as fn() -> Gauge);
        PluginFamilies {
            calls: family(r, "sequor_plugin_call_seconds", "Time of calls to plug-ins, by hook", Histogram::calls),
            strikes: family(
                r,
                "sequor_plugin_traps_total",
                "Strikes: traps, limits, answers that break a rule",
                counter,
            ),
            fallbacks: family(
                r,
                "sequor_plugin_fallback_total",
                "Rounds that the built-in policy decided instead, and requests that bypassed a processor",
                counter,
            ),
            stale: family(
                r,
                "sequor_plugin_stale_total",
                "Choices dropped because they no longer applied when the plug-in answered",
                counter,
            ),
            passed_over: family(
                r,
                "sequor_plugin_passed_over_total",
                "Rounds without the plug-in, because it took more than `plugins.cpu_share`",
                counter,
            ),
            reloads: family(r, "sequor_plugin_reload_total", "Replacements, accepted or refused", counter),
            memory: family(r, "sequor_plugin_memory_bytes", "Memory of the instance at a model", gauge),
            parked: family(r, "sequor_plugin_parked", "Loads of a model at which a plug-in is parked", gauge),
            waiting: family(
                r,
                "sequor_plugin_model_calls",
                "Calls to other models that a plug-in waits for, at a model",
                gauge,
            ),
            instances: family(
                r,
                "sequor_plugin_instances",
                "Instances of a processor or an initializer at a model, those that are warm included",
                gauge,
            ),
            counters: {
                let counters = Labelled::new_with_constructor(Amount::default as fn() -> Amount);
                let help = "Counters that plug-ins keep themselves";
                r.register("sequor_plugin_counter_total", help, counters.clone());
                counters
            },
        }
    }

    pub(in crate::telemetry) fn plugin(&self, name: &str, world: &str, hooks: &[Hook]) -> PluginMetrics {
        self.plugin_series(SeriesAction::Get, (name, world), hooks)
    }

    /// Removes the series of a plug-in.
    pub(in crate::telemetry) fn forget(&self, name: &str, world: &str, metrics: &PluginMetrics) {
        let hooks: Vec<Hook> = metrics.calls.iter().map(|(hook, _)| *hook).collect();
        drop(self.plugin_series(SeriesAction::Remove, (name, world), &hooks));
        let labels: Labels = vec![label("plugin", name), label("world", world)];
        let made = metrics.made.lock();
        for reason in made.strikes.keys() {
            self.strikes.remove(&with(&labels, "reason", reason));
        }
        for model in &made.models {
            for gauge in [&self.memory, &self.parked, &self.waiting, &self.instances] {
                gauge.remove(&with(&labels, "model", model));
            }
        }
        for counter in made.counters.keys() {
            self.counters.remove(&own_labels(&labels, counter));
        }
    }

    fn plugin_series(&self, action: SeriesAction, (name, world): (&str, &str), hooks: &[Hook]) -> PluginMetrics {
        let labels: Labels = vec![label("plugin", name), label("world", world)];
        let (strikes, memory, counters) = (self.strikes.clone(), self.memory.clone(), self.counters.clone());
        let (parked, waiting, instances) = (self.parked.clone(), self.waiting.clone(), self.instances.clone());
        let [a, b, c, d, e, f] = std::array::from_fn(|_| labels.clone());
        PluginMetrics {
            calls: hooks
                .iter()
                .map(|hook| (*hook, action.series(&self.calls, &with(&labels, "hook", hook.name()))))
                .collect(),
            fallbacks: action.series(&self.fallbacks, &labels),
            stale: action.series(&self.stale, &labels),
            passed_over: action.series(&self.passed_over, &labels),
            replaced: action.series(&self.reloads, &with(&labels, "result", "ok")),
            refused: action.series(&self.reloads, &with(&labels, "result", "refused")),
            make: Make {
                strikes: Box::new(move |reason| strikes.get_or_create_owned(&with(&a, "reason", reason))),
                memory: Box::new(move |model| memory.get_or_create_owned(&with(&b, "model", model))),
                parked: Box::new(move |model| parked.get_or_create_owned(&with(&d, "model", model))),
                waiting: Box::new(move |model| waiting.get_or_create_owned(&with(&e, "model", model))),
                instances: Box::new(move |model| instances.get_or_create_owned(&with(&f, "model", model))),
                counter: Box::new(move |counter| counters.get_or_create_owned(&own_labels(&c, counter))),
            },
            made: Mutex::default(),
        }
    }
}

/// These labels and one more.
fn with(labels: &Labels, key: &'static str, value: &str) -> Labels {
    [labels.clone(), vec![label(key, value)]].concat()
}

/// The labels of a plug-in's own counter.
fn own_labels(labels: &Labels, (name, own): &OwnCounter) -> OwnLabels {
    let ours = with(labels, "name", name).into_iter().map(|(key, value)| (key.into_owned(), value));
    ours.chain(own.iter().cloned()).collect()
}
