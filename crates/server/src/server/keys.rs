//! Keys of operators and clients, from a file with one line `name:key` each, which is read again when it changes. Keys are stored and
//! looked up as digests, so the time of a look-up reveals nothing about a key.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::changed::Watched;

/// The header for a key if a proxy uses `authorization`.
pub const KEY: &str = "sequor-key";

/// The keys of one file. All clones are the same keys.
#[derive(Clone)]
pub struct ApiKeys(Arc<KeyStore>);

struct KeyStore {
    path: PathBuf,
    /// Minimum time between two checks of the file.
    every: Duration,
    known: ArcSwap<KnownKeys>,
    watch: Mutex<KeyWatch>,
}

/// The names of keys, by digest.
type KnownKeys = HashMap<[u8; 32], String>;

struct KeyWatch {
    watched: Watched,
    looked: Option<Instant>,
}

#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error("{0}")]
    File(#[from] std::io::Error),
    #[error("{}:{line}: not a line of the form name:key", .path.display())]
    Line { path: PathBuf, line: usize },
    #[error("{} holds no key, so every request would be refused", .path.display())]
    Empty { path: PathBuf },
}

impl ApiKeys {
    /// Opens keys and checks the file at every request.
    pub fn open(path: &Path) -> Result<ApiKeys, KeysError> {
        ApiKeys::open_with(path, Duration::ZERO)
    }

    /// Opens keys and checks the file at most this often.
    pub fn open_with(path: &Path, every: Duration) -> Result<ApiKeys, KeysError> {
        let watch = Mutex::new(KeyWatch { watched: Watched::new(vec![path.to_owned()]), looked: None });
        let known = ArcSwap::from_pointee(read(path)?);
        Ok(ApiKeys(Arc::new(KeyStore { path: path.to_owned(), every, known, watch })))
    }

    /// The name of the key in these headers.
    pub fn identify(&self, headers: &HeaderMap) -> Option<String> {
        self.identify_at(given(headers)?, Instant::now())
    }

    fn identify_at(&self, key: &str, now: Instant) -> Option<String> {
        self.0.renew(now);
        let digest: [u8; 32] = Sha256::digest(key).into();
        self.0.known.load().get(&digest).cloned()
    }
}

impl KeyStore {
    /// Reads the file again if it has changed. If the file cannot be read, the old keys stay valid.
    fn renew(&self, now: Instant) {
        // If another thread holds the lock, it does the same work.
        let Some(mut watch) = self.watch.try_lock() else { return };
        if watch.looked.is_some_and(|at| now.saturating_duration_since(at) < self.every) {
            return;
        }
        watch.looked = Some(now);
        if !watch.watched.changed() {
            return;
        }
        match read(&self.path) {
            Ok(known) => {
                tracing::info!(file = %self.path.display(), keys = known.len(), "keys were read again");
                self.known.store(Arc::new(known));
            }
            Err(error) => tracing::error!(%error, "keys were not read again; the old ones hold"),
        }
    }
}

fn read(path: &Path) -> Result<KnownKeys, KeysError> {
    let text = fs_err::read_to_string(path)?;
    let mut known = KnownKeys::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let (name, key) = text.split_once(':').map(|(name, key)| (name.trim(), key.trim())).unwrap_or_default();
        if name.is_empty() || key.is_empty() {
            return Err(KeysError::Line { path: path.to_owned(), line });
        }
        known.insert(Sha256::digest(key).into(), name.to_owned());
    }
    if known.is_empty() { Err(KeysError::Empty { path: path.to_owned() }) } else { Ok(known) }
}

/// Whether a request carries any key.
pub(super) fn shows_key(headers: &HeaderMap) -> bool {
    headers.contains_key(KEY) || headers.contains_key(AUTHORIZATION)
}

fn given(headers: &HeaderMap) -> Option<&str> {
    if let Some(key) = headers.get(KEY) {
        return key.to_str().ok();
    }
    let (scheme, key) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

/// Hides the keys, because they must not be logged.
impl std::fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("path", &self.0.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(axum::http::HeaderName::from_static(name), value.parse().unwrap())])
    }

    #[test]
    fn an_operator_is_known_by_the_name_of_its_key() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs_err::write(file.path(), "# operators\nanna: s3cret:1\n\nbert:other\n").unwrap();
        let keys = ApiKeys::open(file.path()).unwrap();
        let who = |name, value: &str| keys.identify(&headers(name, value));
        assert_eq!(who("authorization", "Bearer s3cret:1").as_deref(), Some("anna"));
        assert_eq!(who("authorization", "bearer other").as_deref(), Some("bert"));
        assert_eq!(who("sequor-key", "other").as_deref(), Some("bert"));
        for (name, value) in [
            ("authorization", "s3cret:1"),
            ("authorization", "Basic other"),
            ("sequor-key", "s3cret"),
            ("sequor-key", "othe"),
            ("sequor-key", "other2"),
            ("sequor-key", ""),
            ("x-key", "other"),
        ] {
            assert_eq!(who(name, value), None, "{name}: {value}");
        }
        assert!(!format!("{keys:?}").contains("s3cret"));
    }

    #[test]
    fn a_changed_keys_file_is_reloaded_unless_it_is_invalid() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs_err::write(file.path(), "anna:first").unwrap();
        let keys = ApiKeys::open(file.path()).unwrap();
        let who = |key: &str| keys.identify(&headers("sequor-key", key));
        fs_err::write(file.path(), "anna:the second").unwrap();
        assert_eq!((who("first"), who("the second").as_deref()), (None, Some("anna")));
        fs_err::write(file.path(), "what is this, no key at all").unwrap();
        assert_eq!(who("the second").as_deref(), Some("anna"));
    }

    #[test]
    fn a_keys_file_is_checked_no_more_often_than_its_interval() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs_err::write(file.path(), "anna:first").unwrap();
        let keys = ApiKeys::open_with(file.path(), Duration::from_secs(1)).unwrap();
        let start = Instant::now();
        let who = |key: &str, millis| keys.identify_at(key, start + Duration::from_millis(millis));
        assert_eq!(who("first", 0).as_deref(), Some("anna"));
        fs_err::write(file.path(), "anna:the second").unwrap();
        assert_eq!((who("first", 999).as_deref(), who("the second", 999)), (Some("anna"), None));
        assert_eq!((who("the second", 1000).as_deref(), who("first", 1000)), (Some("anna"), None));
    }

    #[test]
    fn an_invalid_keys_file_is_refused_with_its_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let message = |text: &str| {
            fs_err::write(file.path(), text).unwrap();
            ApiKeys::open(file.path()).unwrap_err().to_string().replace(&file.path().display().to_string(), "FILE")
        };
        assert_eq!(message("a:b\n\nnothing"), "FILE:3: not a line of the form name:key");
        assert_eq!(message("a:\n"), "FILE:1: not a line of the form name:key");
        assert_eq!(message("# none\n"), "FILE holds no key, so every request would be refused");
        assert!(ApiKeys::open(Path::new("/nothing")).is_err());
    }
}
