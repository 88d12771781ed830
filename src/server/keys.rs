//! The keys of operators: a file with a line `name:key` for each, read again when it has changed, compared in a time that says nothing of
//! how much of a key was right.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::changed::Watched;

/// The header that carries a key where `authorization` is taken by a proxy.
pub const KEY: &str = "sequor-key";

/// The keys of one file. Clones are the same keys.
#[derive(Clone)]
pub struct ApiKeys(Arc<Mutex<KeyStore>>);

struct KeyStore {
    path: PathBuf,
    watched: Watched,
    known: Vec<KnownKey>,
}

/// A key, as it is compared: all digests are equally long.
struct KnownKey {
    name: String,
    digest: [u8; 32],
}

#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error("{0}")]
    File(#[from] std::io::Error),
    #[error("{}:{line}: not a line of the form name:key", .path.display())]
    Line { path: PathBuf, line: usize },
    #[error("{} holds no key: no operator could be admitted", .path.display())]
    Empty { path: PathBuf },
}

impl ApiKeys {
    pub fn open(path: &Path) -> Result<ApiKeys, KeysError> {
        let watched = Watched::new(vec![path.to_owned()]);
        let known = read(path)?;
        Ok(ApiKeys(Arc::new(Mutex::new(KeyStore { path: path.to_owned(), watched, known }))))
    }

    /// Whose key these headers carry.
    pub fn who(&self, headers: &HeaderMap) -> Option<String> {
        let given = given(headers)?;
        let mut held = self.0.lock();
        held.renew();
        let digest: [u8; 32] = Sha256::digest(given).into();
        // All of them are looked at, whichever it is.
        let same = |known: &KnownKey| bool::from(known.digest.ct_eq(&digest));
        held.known.iter().fold(None, |who, known| if same(known) { Some(&known.name) } else { who }).cloned()
    }
}

impl KeyStore {
    /// Reads the file again if it has changed. If the file cannot be read, the keys of before hold.
    fn renew(&mut self) {
        if !self.watched.changed() {
            return;
        }
        match read(&self.path) {
            Ok(known) => {
                tracing::info!(file = %self.path.display(), keys = known.len(), "keys were read again");
                self.known = known;
            }
            Err(error) => tracing::error!(%error, "keys were not read again; the old ones hold"),
        }
    }
}

fn read(path: &Path) -> Result<Vec<KnownKey>, KeysError> {
    let text = fs_err::read_to_string(path)?;
    let mut known = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let (name, key) = text.split_once(':').map(|(name, key)| (name.trim(), key.trim())).unwrap_or_default();
        if name.is_empty() || key.is_empty() {
            return Err(KeysError::Line { path: path.to_owned(), line });
        }
        known.push(KnownKey { name: name.to_owned(), digest: Sha256::digest(key).into() });
    }
    if known.is_empty() { Err(KeysError::Empty { path: path.to_owned() }) } else { Ok(known) }
}

fn given(headers: &HeaderMap) -> Option<&str> {
    if let Some(key) = headers.get(KEY) {
        return key.to_str().ok();
    }
    let (scheme, key) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

/// Keys are not for logs.
impl std::fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("path", &self.0.lock().path).finish_non_exhaustive()
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
        let who = |name, value: &str| keys.who(&headers(name, value));
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
    fn a_changed_file_is_read_again_and_a_bad_one_changes_nothing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs_err::write(file.path(), "anna:first").unwrap();
        let keys = ApiKeys::open(file.path()).unwrap();
        let who = |key: &str| keys.who(&headers("sequor-key", key));
        fs_err::write(file.path(), "anna:the second").unwrap();
        assert_eq!((who("first"), who("the second").as_deref()), (None, Some("anna")));
        fs_err::write(file.path(), "what is this, no key at all").unwrap();
        assert_eq!(who("the second").as_deref(), Some("anna"));
    }

    #[test]
    fn a_file_that_says_nothing_useful_is_refused_with_its_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let said = |text: &str| {
            fs_err::write(file.path(), text).unwrap();
            ApiKeys::open(file.path()).unwrap_err().to_string().replace(&file.path().display().to_string(), "FILE")
        };
        assert_eq!(said("a:b\n\nnothing"), "FILE:3: not a line of the form name:key");
        assert_eq!(said("a:\n"), "FILE:1: not a line of the form name:key");
        assert_eq!(said("# none\n"), "FILE holds no key: no operator could be admitted");
        assert!(ApiKeys::open(Path::new("/nothing")).is_err());
    }
}
