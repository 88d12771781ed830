//! The commands of Redis that the shared store uses, with arguments that change nothing of a sequence.

/// The commands with one key, and their arguments after it. If the key has another type, the command fails, and its right is shown all the same.
pub(super) const OF_KEY: [(&str, &[&[u8]]); 18] = [
    ("SET", &[b"", b"NX", b"PX", b"1000"]),
    ("GET", &[]),
    ("EXISTS", &[]),
    ("INCR", &[]),
    ("PERSIST", &[]),
    ("PTTL", &[]),
    ("HGET", &[b""]),
    ("HMGET", &[b""]),
    ("HSET", &[b"", b""]),
    ("HDEL", &[b""]),
    ("SADD", &[b""]),
    ("SREM", &[b""]),
    ("SCARD", &[]),
    ("SMEMBERS", &[]),
    ("SRANDMEMBER", &[b"1"]),
    ("SSCAN", &[b"0"]),
    // The key of the trials must not stay.
    ("PEXPIRE", &[b"1"]),
    ("DEL", &[]),
];

/// Other commands.
pub(super) const OTHERS: [(&str, &[&[u8]]); 3] = [("SCAN", &[b"0", b"COUNT", b"1"]), ("TIME", &[]), ("PING", &[])];

/// Whether the right to this command is tried at the start. `CONFIG` is for a warning alone.
pub(super) fn is_tried(command: &str) -> bool {
    let named = OF_KEY.into_iter().chain(OTHERS).map(|(name, _)| name);
    named.chain(["PUBLISH", "CONFIG"]).any(|name| name == command)
}

#[cfg(test)]
mod tests {
    use super::super::scripts::SCRIPTS;
    use super::*;

    #[test]
    fn each_command_of_a_script_is_tried_at_the_start() {
        for (script, text) in SCRIPTS {
            let commands: Vec<&str> =
                text.split("redis.call('").skip(1).filter_map(|rest| rest.split('\'').next()).collect();
            assert!(!commands.is_empty(), "{script:?}");
            assert!(commands.iter().all(|command| is_tried(command)), "{script:?}: {commands:?}");
        }
    }
}
