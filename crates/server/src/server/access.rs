//! Opens what the settings say about callers: the files of keys.

use std::time::Duration;

use super::checks::Access;
use super::client_keys::ClientKeys;
use super::keys::{ApiKeys, KeysError};
use crate::config::server::Settings;

/// Minimum time between two checks of the clients' key file. A check takes longer than all other work on a key.
const KEYS_EVERY: Duration = Duration::from_secs(1);

/// Opens the files of keys. The error names the setting.
pub fn open(settings: &Settings) -> Result<Access, (&'static str, KeysError)> {
    let file = Some(&settings.admin.keys_file).filter(|path| !path.as_os_str().is_empty());
    let operator_keys = file.map(|path| ApiKeys::open(path)).transpose().map_err(|e| ("admin.keys_file", e))?;
    let of_clients = settings.auth.as_ref().map(|auth| {
        let keys = ApiKeys::open_with(&auth.keys_file, KEYS_EVERY)?;
        Ok(ClientKeys { keys, keyed: auth.keyed.clone() })
    });
    let client_keys = of_clients.transpose().map_err(|e| ("auth.keys_file", e))?;
    let (allowed_origins, restricted) = (settings.http.allowed_origins.clone(), settings.restricted.clone());
    Ok(Access { operator_keys, client_keys, allowed_origins, restricted })
}
