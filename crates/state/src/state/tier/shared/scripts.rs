//! The changes of a sequence's record, each one script, and what Redis answers to it.

use std::sync::OnceLock;

use redis::Value;

/// A change of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordScript {
    Claim,
    Commit,
    Clear,
    Recall,
    Release,
    Remember,
    Orphan,
    Disown,
    Epoch,
    Beat,
    Succeed,
}

// Every script may run twice, and any time after it was sent: a connection may fail after Redis has read a command, and Redis may read a
// command after its server has given it up. So each change of a record has a number that grows with each change of its server. The record
// keeps the last number of its owner. A change with a smaller number comes too late and does nothing. One with the same number is a repeat.

/// Takes a sequence over. Keys: the record, the sequences of this server, how the sequence ended, the last epoch of a record. Arguments: this
/// server, whether the sequence may begin ("1"), its key, the number of the change.
/// Answers `owned` with the owner and its node, `none` with the end, `late`, or `held` with the epoch, the idle time left in milliseconds (-1:
/// not counted), the head and the name of the state, and the end of a sequence that its server did not release any more.
const CLAIM: &str = r"
local found = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'head', 'blob', 'number', 'left')
local owner, number = found[1], tonumber(ARGV[4])
if owner == ARGV[1] then
  local last = tonumber(found[5] or '0')
  if last > number then return {'late'} end
  if last == number then
    return {'held', found[2], found[6] or '-1', found[3] or '', found[4] or '', redis.call('GET', KEYS[3]) or ''}
  end
elseif owner and owner ~= '' then
  local node = redis.call('GET', 'sequor:run:' .. owner)
  if node then return {'owned', owner, string.match(node, '^%d+:(.*)$') or node} end
  redis.call('SREM', 'sequor:owned:' .. owner, ARGV[3])
end
if not found[2] and ARGV[2] == '0' then return {'none', redis.call('GET', KEYS[3]) or ''} end
local epoch = redis.call('INCR', KEYS[4])
if found[2] and epoch <= tonumber(found[2]) then
  epoch = tonumber(found[2]) + 1
  redis.call('SET', KEYS[4], string.format('%.0f', epoch))
end
epoch = string.format('%.0f', epoch)
if ARGV[2] == '1' then redis.call('DEL', KEYS[3]) end
local left = redis.call('PTTL', KEYS[1])
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'epoch', epoch, 'number', ARGV[4], 'left', left)
redis.call('PERSIST', KEYS[1])
if found[4] then redis.call('PERSIST', found[4]) end
redis.call('SADD', KEYS[2], ARGV[3])
return {'held', epoch, left, found[3] or '', found[4] or '', redis.call('GET', KEYS[3]) or ''}
";

/// Makes a state that was sent before this the state of a sequence. Keys: the record, the state, how the sequence before it ended. Arguments:
/// this server, the epoch, the number of the change, the head, the idle time in milliseconds (-1: no limit). Answers `ok`, `fenced`, or `lost`
/// if Redis has dropped the state already. A state that a record points to stays, even if its server repeats the write after a takeover.
const COMMIT: &str = r"
local found = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'number', 'blob')
local last, number = tonumber(found[3] or '0'), tonumber(ARGV[3])
if found[1] ~= ARGV[1] or found[2] ~= ARGV[2] or last > number then
  if found[4] ~= KEYS[2] then redis.call('DEL', KEYS[2]) end
  return 'fenced'
end
if last == number then return 'ok' end
if redis.call('EXISTS', KEYS[2]) == 0 then return 'lost' end
redis.call('PERSIST', KEYS[2])
redis.call('HSET', KEYS[1], 'head', ARGV[4], 'blob', KEYS[2], 'idle', ARGV[5], 'number', ARGV[3])
if found[4] and found[4] ~= KEYS[2] then redis.call('DEL', found[4]) end
redis.call('DEL', KEYS[3])
return 'ok'
";

/// Removes the state of a sequence, which stays with its server. Keys: the record. Arguments: this server, the epoch, the number of the change.
/// Answers `ok` or `fenced`.
const CLEAR: &str = r"
local found = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'number', 'blob')
local last, number = tonumber(found[3] or '0'), tonumber(ARGV[3])
if found[1] ~= ARGV[1] or found[2] ~= ARGV[2] or last > number then return 'fenced' end
if last == number then return 'ok' end
if found[4] then redis.call('DEL', found[4]) end
redis.call('HDEL', KEYS[1], 'head', 'blob', 'idle')
redis.call('HSET', KEYS[1], 'number', ARGV[3])
return 'ok'
";

/// Reads the state of a sequence after a write of it got no answer. That write does nothing any more if Redis gets it later. Keys: the record.
/// Arguments: this server, the epoch, the number of this reading. Answers the head and the name of the state, both empty if there is none, or
/// `fenced`.
const RECALL: &str = r"
local found = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'number', 'head', 'blob')
if found[1] ~= ARGV[1] or found[2] ~= ARGV[2] or tonumber(found[3] or '0') > tonumber(ARGV[3]) then return 'fenced' end
redis.call('HSET', KEYS[1], 'number', ARGV[3])
return {found[4] or '', found[5] or ''}
";

/// Gives a sequence up. Keys: the record, the sequences of this server, how the sequence ended. Arguments: this server, the epoch, the number of
/// the change, the key; whether a state waits for another server ("1") or nothing is left; the idle time left in milliseconds (-1: no limit), the
/// end (or nothing), and for how many milliseconds the end is remembered. Answers `ok` or `fenced`.
const RELEASE: &str = r"
local found = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'number', 'blob')
local last, number = tonumber(found[3] or '0'), tonumber(ARGV[3])
if found[1] ~= ARGV[1] or found[2] ~= ARGV[2] or last > number then return 'fenced' end
redis.call('SREM', KEYS[2], ARGV[4])
if found[4] and ARGV[5] == '1' then
  redis.call('HSET', KEYS[1], 'owner', '')
  local left = tonumber(ARGV[6])
  if left >= 0 then
    redis.call('PEXPIRE', KEYS[1], math.max(left, 1))
    redis.call('PEXPIRE', found[4], math.max(left, 1))
  end
else
  redis.call('DEL', KEYS[1])
  if found[4] then redis.call('DEL', found[4]) end
  if ARGV[7] ~= '' then redis.call('SET', KEYS[3], ARGV[7], 'PX', ARGV[8]) end
end
return 'ok'
";

/// Remembers how a sequence of this server ended. Keys: the record, the end. Arguments: this server, the epoch, the number of the change, the
/// end, and for how many milliseconds it is remembered. Answers `ok` or `fenced`.
const REMEMBER: &str = r"
local found = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'number')
if found[1] ~= ARGV[1] or found[2] ~= ARGV[2] or tonumber(found[3] or '0') > tonumber(ARGV[3]) then return 'fenced' end
redis.call('HSET', KEYS[1], 'number', ARGV[3])
redis.call('SET', KEYS[2], ARGV[4], 'PX', ARGV[5])
return 'ok'
";

/// The end of both scripts that free a sequence so that its idle time counts. `found` has the record's owner, state and idle time.
macro_rules! free_record {
    () => {
        r"
redis.call('SREM', KEYS[2], ARGV[2])
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
"
    };
}

/// Frees a sequence whose server is gone. Keys: the record, the sequences of the server that is gone. Arguments: that server, the key. Answers
/// `ok`, or `alive` if the server has a heartbeat.
const ORPHAN: &str = concat!(
    r"
if redis.call('EXISTS', 'sequor:run:' .. ARGV[1]) == 1 then return 'alive' end
local found = redis.call('HMGET', KEYS[1], 'owner', 'blob', 'idle')",
    free_record!()
);

/// Frees a sequence that belongs to this server although no model of it has the sequence: its claim or its release got no answer. Keys: the
/// record, the sequences of this server. Arguments: this server, the key, the number of the change. Answers `ok`, or `late` if this server has
/// claimed it since.
const DISOWN: &str = concat!(
    r"
local found = redis.call('HMGET', KEYS[1], 'owner', 'blob', 'idle', 'number')
if found[1] == ARGV[1] and tonumber(found[4] or '0') > tonumber(ARGV[3]) then return 'late' end",
    free_record!()
);

/// Renews a heartbeat. Keys: the heartbeat, the servers. Arguments: this server, its node, the lease in milliseconds. Answers the life of the
/// heartbeat: the time at which Redis got it and had none. As long as that stays the same, no other server could take sequences over.
const BEAT: &str = r"
local found = redis.call('GET', KEYS[1])
local life = found and string.match(found, '^(%d+):')
if not life then
  local now = redis.call('TIME')
  life = string.format('%.0f', tonumber(now[1]) * 1000000 + tonumber(now[2]))
end
redis.call('SET', KEYS[1], life .. ':' .. ARGV[2], 'PX', ARGV[3])
redis.call('SADD', KEYS[2], ARGV[1])
return life
";

/// Changes the successions of a model. Keys: the successions. Arguments: the model, the entries to remove, the entries to add. An entry has 80
/// bytes, of which the first 40 name the version that it is of. The oldest entries beyond 64 are dropped.
const SUCCEED: &str = r"
local stored = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if #stored % 80 ~= 0 then stored = '' end
local gone, all = {}, {}
for at = 1, #ARGV[2], 80 do gone[string.sub(ARGV[2], at, at + 79)] = true end
for at = 1, #ARGV[3], 80 do gone[string.sub(ARGV[3], at, at + 39)] = true end
for at = 1, #stored, 80 do
  local entry = string.sub(stored, at, at + 79)
  if not gone[entry] and not gone[string.sub(entry, 1, 40)] then table.insert(all, entry) end
end
for at = 1, #ARGV[3], 80 do table.insert(all, string.sub(ARGV[3], at, at + 79)) end
while #all > 64 do table.remove(all, 1) end
redis.call('HSET', KEYS[1], ARGV[1], table.concat(all))
return 'ok'
";

/// Raises the last epoch in use. Keys: the epoch. Arguments: the least first epoch, and how many are taken. Answers the first epoch.
const EPOCH: &str = r"
local last = tonumber(redis.call('GET', KEYS[1]) or '0')
local first = math.max(last + 1, tonumber(ARGV[1]))
redis.call('SET', KEYS[1], string.format('%.0f', first + tonumber(ARGV[2]) - 1))
return string.format('%.0f', first)
";

pub(super) const SCRIPTS: [(RecordScript, &str); 11] = [
    (RecordScript::Claim, CLAIM),
    (RecordScript::Commit, COMMIT),
    (RecordScript::Clear, CLEAR),
    (RecordScript::Recall, RECALL),
    (RecordScript::Release, RELEASE),
    (RecordScript::Remember, REMEMBER),
    (RecordScript::Orphan, ORPHAN),
    (RecordScript::Disown, DISOWN),
    (RecordScript::Epoch, EPOCH),
    (RecordScript::Beat, BEAT),
    (RecordScript::Succeed, SUCCEED),
];

static DIGESTS: [OnceLock<String>; 11] = [const { OnceLock::new() }; 11];

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
    Owned {
        owner: String,
        node: String,
    },
    None {
        end: Vec<u8>,
    },
    /// This server has changed the record since the claim was sent.
    Late,
    Held {
        epoch: u64,
        left: i64,
        head: Vec<u8>,
        blob: String,
        end: Vec<u8>,
    },
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
            ("late", []) => Some(ClaimAnswer::Late),
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
