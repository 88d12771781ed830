//! The changes of a sequence's record, each one script, and what Redis answers to it.

use std::sync::OnceLock;

use redis::Value;

/// A change of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordScript {
    Claim,
    Commit,
    Clear,
    Release,
    Orphan,
    Epoch,
}

/// Takes a sequence over. Keys: the record, the sequences of this server, how the sequence ended. Arguments: this server, whether the sequence
/// may begin ("1"), its key.
/// Answers `owned` with the owner and its node, `none` with the end, or `held` with the epoch, the idle time left in milliseconds (-1: not
/// counted), the head and the name of the state, and the end of a sequence that its server did not release any more.
const CLAIM: &str = r"
local found = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'head', 'blob')
local owner = found[1]
if owner and owner ~= '' and owner ~= ARGV[1] then
  local node = redis.call('GET', 'sequor:run:' .. owner)
  if node then return {'owned', owner, node} end
  redis.call('SREM', 'sequor:owned:' .. owner, ARGV[3])
end
local epoch = 1
if found[2] then
  epoch = tonumber(found[2]) + 1
elseif ARGV[2] == '0' then
  return {'none', redis.call('GET', KEYS[3]) or ''}
end
if ARGV[2] == '1' then redis.call('DEL', KEYS[3]) end
local left = redis.call('PTTL', KEYS[1])
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'epoch', epoch)
redis.call('PERSIST', KEYS[1])
if found[4] then redis.call('PERSIST', found[4]) end
redis.call('SADD', KEYS[2], ARGV[3])
return {'held', epoch, left, found[3] or '', found[4] or '', redis.call('GET', KEYS[3]) or ''}
";

/// Makes a state that was sent before this the state of a sequence. Keys: the record, the state. Arguments: this server, the epoch, the head,
/// the idle time in milliseconds (-1: no limit). Answers `ok`, `fenced`, or `lost` if Redis has dropped the state already.
const COMMIT: &str = r"
local found = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'blob')
if found[1] ~= ARGV[1] or found[2] ~= ARGV[2] then
  redis.call('DEL', KEYS[2])
  return 'fenced'
end
if redis.call('EXISTS', KEYS[2]) == 0 then return 'lost' end
redis.call('PERSIST', KEYS[2])
redis.call('HSET', KEYS[1], 'head', ARGV[3], 'blob', KEYS[2], 'idle', ARGV[4])
if found[3] and found[3] ~= KEYS[2] then redis.call('DEL', found[3]) end
return 'ok'
";

/// Removes the state of a sequence, which stays with its server. Keys: the record. Arguments: this server, the epoch. Answers `ok` or `fenced`.
const CLEAR: &str = r"
local found = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'blob')
if found[1] ~= ARGV[1] or found[2] ~= ARGV[2] then return 'fenced' end
if found[3] then redis.call('DEL', found[3]) end
redis.call('HDEL', KEYS[1], 'head', 'blob', 'idle')
return 'ok'
";

/// Gives a sequence up. Keys: the record, the sequences of this server, how the sequence ended. Arguments: this server, the epoch, the key;
/// whether a state waits for another server ("1") or nothing is left; the idle time left in milliseconds (-1: no limit), the end (or nothing),
/// and for how many milliseconds the end is remembered. Answers `ok` or `fenced`.
const RELEASE: &str = r"
redis.call('SREM', KEYS[2], ARGV[3])
local found = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'blob')
if found[1] ~= ARGV[1] or found[2] ~= ARGV[2] then return 'fenced' end
if found[3] and ARGV[4] == '1' then
  redis.call('HSET', KEYS[1], 'owner', '')
  local left = tonumber(ARGV[5])
  if left >= 0 then
    redis.call('PEXPIRE', KEYS[1], math.max(left, 1))
    redis.call('PEXPIRE', found[3], math.max(left, 1))
  end
else
  redis.call('DEL', KEYS[1])
  if found[3] then redis.call('DEL', found[3]) end
  if ARGV[6] ~= '' then redis.call('SET', KEYS[3], ARGV[6], 'PX', ARGV[7]) end
end
return 'ok'
";

/// Frees a sequence whose server is gone, so that its idle time counts. Keys: the record, the sequences of the server that is gone. Arguments:
/// that server, the key.
const ORPHAN: &str = r"
if redis.call('EXISTS', 'sequor:run:' .. ARGV[1]) == 1 then return 'alive' end
redis.call('SREM', KEYS[2], ARGV[2])
local found = redis.call('HMGET', KEYS[1], 'owner', 'blob', 'idle')
if found[1] ~= ARGV[1] then return 'ok' end
if found[2] then
  redis.call('HSET', KEYS[1], 'owner', '')
  local left = tonumber(found[3] or '-1')
  if left >= 0 then
    redis.call('PEXPIRE', KEYS[1], math.max(left, 1))
    redis.call('PEXPIRE', found[2], math.max(left, 1))
  end
else
  redis.call('DEL', KEYS[1])
end
return 'ok'
";

/// Raises the last epoch in use. Keys: the epoch. Arguments: the least first epoch, and how many are taken. Answers the first epoch.
const EPOCH: &str = r"
local last = tonumber(redis.call('GET', KEYS[1]) or '0')
local first = math.max(last + 1, tonumber(ARGV[1]))
redis.call('SET', KEYS[1], string.format('%.0f', first + tonumber(ARGV[2]) - 1))
return string.format('%.0f', first)
";

pub(super) const SCRIPTS: [(RecordScript, &str); 6] = [
    (RecordScript::Claim, CLAIM),
    (RecordScript::Commit, COMMIT),
    (RecordScript::Clear, CLEAR),
    (RecordScript::Release, RELEASE),
    (RecordScript::Orphan, ORPHAN),
    (RecordScript::Epoch, EPOCH),
];

static DIGESTS: [OnceLock<String>; 6] = [const { OnceLock::new() }; 6];

impl RecordScript {
    /// The digest by which Redis knows the script. It depends on the text alone, so it is the same on every connection.
    pub(super) fn digest(self) -> &'static str {
        DIGESTS.get(self as usize).and_then(OnceLock::get).map_or("", String::as_str)
    }

    pub(super) fn set_digest(self, digest: String) {
        if let Some(of) = DIGESTS.get(self as usize) {
            let _ = of.set(digest);
        }
    }
}

/// The answer to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ClaimAnswer {
    Owned { owner: String, node: String },
    None { end: Vec<u8> },
    Held { epoch: u64, left: i64, head: Vec<u8>, blob: String, end: Vec<u8> },
}

pub(super) fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.as_bytes()),
        _ => None,
    }
}

pub(super) fn text(value: &Value) -> Option<String> {
    String::from_utf8(bytes(value)?.to_vec()).ok()
}

pub(super) fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        other => text(other)?.parse().ok(),
    }
}

impl ClaimAnswer {
    /// `None` if Redis answered something else.
    pub(super) fn read(answer: &Value) -> Option<ClaimAnswer> {
        let Value::Array(parts) = answer else { return None };
        let (kind, rest) = parts.split_first()?;
        match (text(kind)?.as_str(), rest) {
            ("owned", [owner, node]) => Some(ClaimAnswer::Owned { owner: text(owner)?, node: text(node)? }),
            ("none", [end]) => Some(ClaimAnswer::None { end: bytes(end)?.to_vec() }),
            ("held", [epoch, left, head, blob, end]) => Some(ClaimAnswer::Held {
                epoch: u64::try_from(number(epoch)?).ok()?,
                left: number(left)?,
                head: bytes(head)?.to_vec(),
                blob: text(blob)?,
                end: bytes(end)?.to_vec(),
            }),
            _ => None,
        }
    }
}
