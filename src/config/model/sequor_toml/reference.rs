//! Every key of a model's `sequor.toml`, as the reference page lists it. A test holds the table against the keys that the parser accepts.

/// A key of the file.
#[derive(Debug, Clone, Copy)]
pub struct KeyEntry {
    /// Table and name; `state.X` and `input.X` are tables of one state or input.
    pub path: &'static str,
    /// The type of its value, or its choices.
    pub value: &'static str,
    /// The value that holds if the key is not written.
    pub default: &'static str,
    /// What it does, and what happens at the limit. Empty if the key is not served: then the model is refused.
    pub help: &'static str,
    pub example: &'static str,
}

impl KeyEntry {
    pub fn is_served(&self) -> bool {
        !self.help.is_empty()
    }
}

const fn key(
    path: &'static str,
    value: &'static str,
    default: &'static str,
    example: &'static str,
    help: &'static str,
) -> KeyEntry {
    KeyEntry { path, value, default, help, example }
}

/// A key that is parsed and refused.
const fn later(path: &'static str) -> KeyEntry {
    key(path, "", "", "", "")
}

const DURATION: &str = "duration";

/// All keys, in the order of the page.
pub const MODEL_KEYS: &[KeyEntry] = &[
    key("schema", "1", "1", "schema = 1", "Version of this file's format."),
    key(
        "sequence.rules",
        "`triton`, `ovms`",
        "`triton` over KServe v2",
        "rules = \"ovms\"",
        "Rules for START on a live id, for a missing id and for a full server. `triton`: START restarts the sequence, a missing id is \
         refused, and a sequence without a slot waits in the backlog. `ovms`: START on a live id is refused (`already_live`), a missing \
         id is assigned by the server, and a sequence without a slot is refused.",
    ),
    key(
        "sequence.idle",
        "duration above 0, or `never`",
        "`max_sequence_idle_microseconds`, else 1 s",
        "idle = \"30s\"",
        "Sequor ends a sequence after this time without a request. The time runs from the later of the last arrival and the last \
         completion. It does not run while a request waits or runs. The next step of an expired sequence is refused with `expired`.",
    ),
    key(
        "sequence.idle_soft",
        DURATION,
        "none: no sequence is evicted",
        "idle_soft = \"2s\"",
        "If no slot is free, a new sequence takes the slot of the sequence that has been idle longest, provided that it has been idle \
         for at least this long. The next step of the evicted sequence is refused with `evicted`.",
    ),
    key(
        "sequence.idle_longest",
        DURATION,
        "none",
        "idle_longest = \"10m\"",
        "Maximum idle time that a START may ask for with the request parameter `sequence_idle_us`. A longer wish is cut to it. Without \
         this key the parameter has no effect.",
    ),
    key(
        "sequence.idle_scan",
        DURATION,
        "none: `idle` holds",
        "idle_scan = \"5m\"",
        "Look for idle sequences this often, instead of `idle`. A sequence that got no request between two looks ends at the second one, \
         so it ends after one to two of these times. This is OVMS's `sequence_cleaner_poll_wait_minutes`.",
    ),
    key(
        "sequence.max_live",
        "integer, at least 1",
        "no limit",
        "max_live = 4096",
        "Maximum live sequences of the model, those in the backlog included. Beyond it, START is refused with `live_limit`.",
    ),
    key(
        "sequence.max_queued",
        "integer, at least 1",
        "4096",
        "max_queued = 64",
        "Maximum requests that wait in one sequence. Beyond it, a request is refused with `queue_full`.",
    ),
    key(
        "sequence.on_cancel",
        "`end`, `keep`",
        "`end`",
        "on_cancel = \"keep\"",
        "Effect of a cancelled request that still waits. `end`: the sequence ends, because a gap would make later answers wrong \
         without notice. `keep`: the sequence lives on and expects that step again.",
    ),
    key(
        "sequence.end_without_inputs",
        "boolean",
        "`false`",
        "end_without_inputs = true",
        "Accept END without inputs. The model does not run, the state is freed, and the outputs are empty.",
    ),
    key(
        "sequence.rows",
        "`fixed`, `compact`",
        "`fixed`",
        "rows = \"compact\"",
        "Rows of a batch in `direct`. `fixed`: the row of a sequence is its slot, and slots without a request become padding rows, as in \
         Triton. `compact`: only the ready sequences, without padding rows.",
    ),
    key(
        "sequence.tombstones",
        DURATION,
        "10 min",
        "tombstones = \"1h\"",
        "How long the server remembers why a sequence ended. A late step is answered with that reason; afterwards with `never_started`. \
         A model remembers at most 4,096 ended sequences.",
    ),
    key(
        "backlog.max",
        "integer",
        "1,048,576",
        "max = 2000",
        "Maximum sequences that wait for a slot. Beyond it, START is refused with `backlog_full`.",
    ),
    key(
        "backlog.timeout",
        DURATION,
        "none: a START waits for its own `timeout`, or for ever",
        "timeout = \"1s\"",
        "Maximum time that a START waits for a slot. Then the whole sequence is refused with `backlog_timeout`. The request's own \
         `timeout` holds as well, if it is shorter.",
    ),
    key(
        "queue.expire",
        "`run`, `reject`",
        "`run`",
        "expire = \"reject\"",
        "What happens to a step of a live sequence whose `timeout` has passed while it waited. `run`: it runs all the same. `reject`: \
         it is refused with `queue_expired`, and its sequence ends unless `on_cancel = \"keep\"`.",
    ),
    key(
        "state.X.batch_axis",
        "integer",
        "0",
        "batch_axis = 1",
        "The axis of the model's state tensor that is the batch. `X` is the state's `input_name`. `dims` in `config.pbtxt` leave this \
         axis out. Triton cannot batch such a model.",
    ),
    key(
        "state.X.storage",
        "`declared`, `fp16`, `bf16`",
        "`declared`",
        "storage = \"fp16\"",
        "The type in which Sequor keeps an FP32 state between steps. The model still reads and writes FP32. The memory for that state \
         is halved, and so is its precision.",
    ),
    later("state.X.pad"),
    key(
        "input.X.constant",
        "number, boolean, string or list",
        "none",
        "constant = 16000",
        "Value of a model input that clients do not send. It is the same for every request and has no batch dimension. A list gives \
         the elements in row-major order.",
    ),
    key(
        "input.X.ragged",
        "`concat`, `pad`, `bucket`",
        "`concat` with `allow_ragged_batch`, else none",
        "ragged = \"pad\"",
        "How requests of different shapes run in one batch. `concat` joins all elements to one list, as `allow_ragged_batch` does. `pad` pads \
         the one variable dimension to the longest request of the batch, `bucket` to the next of `buckets`.",
    ),
    key("input.X.value", "number", "0.0", "value = 0.0", "Value of the padding. Needs `ragged`."),
    key(
        "input.X.multiple_of",
        "integer from 1",
        "1",
        "multiple_of = 16",
        "Padded lengths are rounded up to a multiple of this.",
    ),
    key(
        "input.X.buckets",
        "list of lengths, ascending",
        "required for `ragged = \"bucket\"`",
        "buckets = [64, 128, 256]",
        "Lengths that batches are padded to. A batch that is longer than the last one is padded to its longest request.",
    ),
    key(
        "input.X.lengths",
        "name of an input of the ONNX graph",
        "none",
        "lengths = \"x_lens\"",
        "Model input, INT32 or INT64 of shape [-1], that gets the length of each item before padding. Clients do not send it.",
    ),
    key(
        "input.X.mask",
        "name of an input of the ONNX graph",
        "none",
        "mask = \"x_mask\"",
        "Model input of shape [-1,-1] that gets 1 for each element and 0 for padding: BOOL, INT32, INT64 or FP32. Clients do not send it.",
    ),
    key(
        "output.X.crop",
        "`{ like = INPUT, ratio = \"1/4\" }` or `{ lengths = OUTPUT }`",
        "none",
        "crop = { like = \"speech\", ratio = \"1/4\" }",
        "Takes the padding off the output's first variable dimension: to the length of a padded input times the ratio, rounded up, or to the \
         length that another output gives.",
    ),
    key(
        "feature.name",
        "string",
        "required",
        "name = \"tenant\"",
        "A value that a scheduler plug-in sees for each request. Each `[[feature]]` table defines one; names are unique. A model has at \
         most four features of each type.",
    ),
    key(
        "feature.from",
        "`parameter`, `input`, `header`",
        "required",
        "from = \"parameter\"",
        "Where the value comes from.",
    ),
    key(
        "feature.key",
        "string",
        "required",
        "key = \"tenant\"",
        "Name of the request parameter, model input, or HTTP header and gRPC metadata entry.",
    ),
    key(
        "feature.type",
        "`key`, `number`",
        "required",
        "type = \"key\"",
        "`key`: text, of which the plug-in sees a 64-bit hash. `number`: a 64-bit float; of an input, its first element.",
    ),
    key(
        "feature.default",
        "string or number",
        "empty text, or 0",
        "default = \"anonymous\"",
        "Value for requests that do not carry one. It must match `type`.",
    ),
    key(
        "plugins.scheduler.use",
        "string",
        "required",
        "use = \"fair-share\"",
        "Name of the scheduler plug-in that decides for this model: the file `NAME.wasm` in `plugins.dir`.",
    ),
    key(
        "plugins.scheduler.sha256",
        "64 hexadecimal digits",
        "none",
        "sha256 = \"3f2a…6e\"",
        "Hash of the component. If the file's hash differs, the model is refused. Required if `plugins.require_sha256` is set.",
    ),
    key(
        "plugins.scheduler.time",
        "duration above 0",
        "`plugins.time` of the server",
        "time = \"1ms\"",
        "Maximum CPU time of one call. A call that exceeds it is a strike, and the built-in policy decides that round.",
    ),
    key(
        "plugins.scheduler.memory",
        "size",
        "`plugins.memory` of the server",
        "memory = \"16MiB\"",
        "Maximum memory of one instance of the plug-in. An instance that exceeds it is a strike.",
    ),
    key(
        "plugins.scheduler.max_wait",
        "time",
        "1s",
        "max_wait = \"5s\"",
        "How long the plug-in may pass a ready request over, or leave a free slot unused. After that the built-in policy runs the request. \
         Maximum: `plugins.max_wait` of the server.",
    ),
    key(
        "plugins.scheduler.config",
        "table",
        "empty",
        "config = { burst = 4 }",
        "Settings of the plug-in. Its `configure` function receives them as JSON.",
    ),
    key(
        "plugins.initializer.use",
        "string",
        "required",
        "use = \"tenant-state\"",
        "Name of the state initializer that makes the first state of each sequence: the file `NAME.wasm` in `plugins.dir`.",
    ),
    key(
        "plugins.initializer.sha256",
        "64 hexadecimal digits",
        "none",
        "sha256 = \"3f2a…6e\"",
        "Hash of the component. If the file's hash differs, the model is refused. Required if `plugins.require_sha256` is set.",
    ),
    key(
        "plugins.initializer.time",
        "duration above 0",
        "`\"10ms\"`",
        "time = \"10ms\"",
        "Maximum CPU time of one call, and 20 µs more for each KiB that the call is about. A call that exceeds it fails its START.",
    ),
    key(
        "plugins.initializer.memory",
        "size",
        "`plugins.memory` of the server",
        "memory = \"16MiB\"",
        "Maximum memory of one instance of the plug-in. A call that exceeds it fails its START.",
    ),
    key(
        "plugins.initializer.config",
        "table",
        "empty",
        "config = { state = \"h\" }",
        "Settings of the plug-in. Its `configure` function receives them as JSON.",
    ),
    key(
        "plugins.initializer.files",
        "list of strings",
        "none",
        "files = [\"tenants.safetensors\"]",
        "Files that the plug-in reads when it is configured, relative to the model's directory. A path out of that directory is refused. Maximum 256 MiB together.",
    ),
    key(
        "plugins.initializer.keep",
        "size",
        "`\"64MiB\"`",
        "keep = \"64MiB\"",
        "Maximum bytes of the states that Sequor keeps by name. They count towards `limits.state` of the server. At the limit, Sequor drops the states that were not used for the longest time. `\"0B\"` keeps none.",
    ),
    key(
        "plugins.initializer.copy_if_same",
        "list of strings",
        "none: no sequence is copied",
        "copy_if_same = [\"tenant\"]",
        "Key features that must be equal in the STARTs of both sequences, and not empty, before one sequence may begin with a copy of the other's state.",
    ),
    key(
        "plugins.processor.use",
        "string",
        "required",
        "use = \"pcm-window\"",
        "Name of a processor plug-in: the file `NAME.wasm` in `plugins.dir`. Write `[[plugins.processor]]` once for each, at most 8. `pre` runs from the first to the last, `post` from the last to the first.",
    ),
    key(
        "plugins.processor.sha256",
        "64 hexadecimal digits",
        "none",
        "sha256 = \"3f2a…6e\"",
        "Hash of the component. If the file's hash differs, the model is refused. Required if `plugins.require_sha256` is set.",
    ),
    key(
        "plugins.processor.time",
        "duration above 0",
        "`\"10ms\"`",
        "time = \"10ms\"",
        "Maximum CPU time of one call, and 20 µs more for each KiB that the call is about. A call that exceeds it fails its request.",
    ),
    key(
        "plugins.processor.memory",
        "size",
        "`plugins.memory` of the server",
        "memory = \"16MiB\"",
        "Maximum memory of one instance of the plug-in. A call that exceeds it fails its request.",
    ),
    key(
        "plugins.processor.config",
        "table",
        "empty",
        "config = { rate = 8000 }",
        "Settings of the plug-in. Its `configure` function receives them as JSON.",
    ),
    key(
        "plugins.processor.on_failure",
        "`\"fail\"` or `\"bypass\"`",
        "`\"fail\"`",
        "on_failure = \"fail\"",
        "If a call traps, reaches a limit or breaks a rule: refuse the request as `plugin_failed`, or go on as if the processor were not there. `\"bypass\"` needs a processor whose inputs and outputs have the names and types of those behind it.",
    ),
    key(
        "plugins.processor.files",
        "list of strings",
        "none",
        "files = [\"tokens.txt\"]",
        "Files that the plug-in reads when it is configured, relative to the model's directory. A path out of that directory is refused. Maximum 256 MiB together.",
    ),
    later("sequence.client_state"),
    later("sequence.watch"),
    key(
        "durability.when",
        "`\"never\"`, `\"drain\"` or `\"step\"`",
        "`\"never\"`",
        "when = \"drain\"",
        "When the states of sequences are written to the server's store, so that sequences outlive the process. `drain`: when the server stops. `step`: after every step, before its answer leaves. Needs `state.dir` in the server's file. See [Restarts](restarts.md).",
    ),
    key(
        "durability.tier",
        "`\"disk\"`",
        "`\"disk\"`",
        "tier = \"disk\"",
        "Where the states are written: the directory `state.dir` of the server.",
    ),
    later("durability.every"),
    later("reload"),
    later("model"),
];

#[cfg(test)]
#[path = "reference_tests.rs"]
mod tests;
