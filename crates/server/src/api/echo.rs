//! Headers that clients set on a call and expect on its answer.

use axum::http::{HeaderMap, HeaderName, HeaderValue};

static ECHOED: [HeaderName; 2] = [HeaderName::from_static("traceparent"), HeaderName::from_static("x-request-id")];

/// The headers of one request for its answer. `None` if it has none, as most do.
#[derive(Debug)]
pub(crate) struct EchoedHeaders(Option<Box<[Option<HeaderValue>; 2]>>);

impl EchoedHeaders {
    pub(crate) fn of(request: &HeaderMap) -> EchoedHeaders {
        let has = ECHOED.iter().any(|name| request.contains_key(name));
        EchoedHeaders(has.then(|| Box::new(ECHOED.each_ref().map(|name| request.get(name).cloned()))))
    }

    /// Copies the headers to the answer.
    pub(crate) fn add_to(self, answer: &mut HeaderMap) {
        let values = self.0.into_iter().flat_map(|values| ECHOED.iter().zip(*values));
        answer.extend(values.filter_map(|(name, value)| Some((name.clone(), value?))));
    }
}
