//! Labels of metrics, and metrics that have labels. `names` names both.

use std::borrow::Cow;

use prometheus_client::metrics::family::Family as Labelled;

pub(super) type Labels = Vec<(Cow<'static, str>, String)>;
/// One metric for each set of labels.
pub(super) type Family<M> = Labelled<Labels, M, fn() -> M>;

pub(super) fn label(key: &'static str, value: &str) -> (Cow<'static, str>, String) {
    (Cow::Borrowed(key), value.to_owned())
}
