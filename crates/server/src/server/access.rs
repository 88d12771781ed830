//! Opens what the settings say about callers: the files of keys.

use std::time::Duration;

use super::checks::Access;
use super::client_keys::ClientKeys;
use super::keys::{ApiKeys, KeysError};
use crate::config::server::Settings;

/// Minimum time between two checks of the clients' key file. A check takes longer than all other work on a key.
const KEYS_EVERY: Duration = Duration::from_secs(1);

/// A fault of a file of keys, with the setting that names it.
pub type AccessFault = (&'static str, KeysError);

/// Opens the files of keys. The error names the setting.
pub fn open(settings: &Settings) -> Result<Access, AccessFault> {
    let (operator_keys, client_keys) = (operator_keys(settings)?, client_keys(settings)?);
    let (allowed_origins, restricted) = (settings.http.allowed_origins.clone(), settings.restricted.clone());
    Ok(Access { operator_keys, client_keys, allowed_origins, restricted })
}

/// The faults of all files of keys.
pub(super) fn faults(settings: &Settings) -> Vec<AccessFault> {
    [operator_keys(settings).err(), client_keys(settings).err()].into_iter().flatten().collect()
}

fn operator_keys(settings: &Settings) -> Result<Option<ApiKeys>, AccessFault> {
    let file = Some(&settings.admin.keys_file).filter(|path| !path.as_os_str().is_empty());
    file.map(|path| ApiKeys::open(path)).transpose().map_err(|error| ("admin.keys_file", error))
}

fn client_keys(settings: &Settings) -> Result<Option<ClientKeys>, AccessFault> {
    let of_clients = settings.auth.as_ref().map(|auth| {
        let keys = ApiKeys::open_with(&auth.keys_file, KEYS_EVERY)?;
        Ok(ClientKeys { keys, keyed: auth.keyed.clone() })
    });
    of_clients.transpose().map_err(|error| ("auth.keys_file", error))
}
