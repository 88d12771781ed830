//! States that a plug-in saves, as JSON.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Serializes a value for `save`. If JSON cannot hold the value, the result is empty, and the next instance starts without a state.
pub fn saved<T: Serialize + ?Sized>(state: &T) -> Vec<u8> {
    serde_json::to_vec(state).unwrap_or_default()
}

/// Parses the output of [`saved`].
pub fn restored<T: DeserializeOwned>(saved: &[u8]) -> Result<T, String> {
    serde_json::from_slice(saved).map_err(|e| format!("the saved state is of another kind: {e}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_saved_state_is_restored_unchanged() {
        let state = (BTreeMap::from([(u64::MAX, 0.1 + 0.2), (7, 1e300)]), 4u64);
        assert_eq!(restored::<(BTreeMap<u64, f64>, u64)>(&saved(&state)), Ok(state));
        assert!(restored::<u64>(b"[]").unwrap_err().starts_with("the saved state is of another kind: "));
    }
}
