//! The URL of a store that several servers share. It may contain a password, which no output shows.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use super::access::MASK;
use super::key::{SettingValue, ValueKind};

/// `redis://` or `rediss://`, with an optional user, password and database.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct StoreUrl(String);

impl StoreUrl {
    /// The URL with its password.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The URL without its password.
    pub fn shown(&self) -> String {
        let Some((scheme, rest)) = self.0.split_once("://") else { return MASK.to_owned() };
        // A password may contain any sign; the host begins after the last `@`.
        let Some((secret, host)) = rest.rsplit_once('@') else { return self.0.clone() };
        match secret.split_once(':') {
            Some((user, _)) => format!("{scheme}://{user}:{MASK}@{host}"),
            None => format!("{scheme}://{secret}@{host}"),
        }
    }

    /// Why this is no URL of a store, without the URL itself.
    pub(super) fn fault(&self) -> Option<&'static str> {
        let rest = self.0.strip_prefix("redis://").or_else(|| self.0.strip_prefix("rediss://"));
        match rest.map(|rest| rest.rsplit_once('@').map_or(rest, |(_, host)| host)) {
            None => Some("state.url must begin with redis:// or rediss://"),
            Some(host) if host.is_empty() || host.starts_with(['/', ':']) => Some("state.url names no host"),
            Some(_) => None,
        }
    }
}

impl SettingValue for StoreUrl {
    const KIND: ValueKind = ValueKind::Text;
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StoreUrl").field(&self.shown()).finish()
    }
}

/// Settings are serialized only to be shown.
impl Serialize for StoreUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.shown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_output_of_a_store_url_has_its_password() {
        for (url, shown) in [
            ("redis://cache:6379/1", "redis://cache:6379/1"),
            ("redis://sequor@cache", "redis://sequor@cache"),
            ("redis://:s3cret@cache", "redis://:***@cache"),
            ("rediss://sequor:s3c:r@et@cache:6380/2", "rediss://sequor:***@cache:6380/2"),
            ("s3cret", "***"),
        ] {
            let url = StoreUrl(url.to_owned());
            assert_eq!(url.shown(), shown);
            assert_eq!(toml::Value::try_from(&url).unwrap().as_str(), Some(shown));
            assert_eq!(format!("{url:?}"), format!("StoreUrl({shown:?})"));
        }
    }

    #[test]
    fn a_store_url_has_a_scheme_and_a_host() {
        let fault = |url: &str| StoreUrl(url.to_owned()).fault();
        assert_eq!((fault("redis://cache"), fault("rediss://u:p@cache:1/0")), (None, None));
        for url in ["cache:6379", "http://cache", "redis://", "redis://u:p@", "redis://:6379"] {
            assert!(fault(url).is_some(), "{url}");
        }
    }
}
