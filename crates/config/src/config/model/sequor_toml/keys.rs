//! All tables and keys of a model's `sequor.toml` about sequences. Unserved keys are declared and checked here too, before they are
//! refused. A new key is one declaration: a field with its help, default, example and check.

use std::collections::BTreeMap;

use super::checks;
use super::declare::{choice, section};
use super::plugins::{FeatureSection, ModelPluginKeys, Plugins};
use super::tensors::{InputSection, OutputSection, PadKeys};
use crate::config::fault::code;
use crate::config::units::{Span, SpanOrNever};

section! {
    /// The whole file.
    #[derive(Default)]
    pub struct Keys("", "Top of the file") {
        /// Version of this file's format.
        pub schema: Option<u32> as "1", default "1", example "schema = 1", check checks::format_version;
        /// `max_batch_size` that Sequor sets when it completes a `config.pbtxt` without one from a graph that can batch, instead of the
        /// server's `model.default_max_batch_size`. With 0 the model does not batch: each request runs alone, with as many rows as it has.
        pub default_max_batch_size: Option<u32> as "integer, at least 0",
            default "the server's setting", example "default_max_batch_size = 0";
    }
    tables {
        pub sequence: SequenceSection;
        pub backlog: Backlog;
        pub queue: Queue;
        /// By `input_name`.
        pub state: BTreeMap<String, State>;
        /// By the model's input.
        pub input: BTreeMap<String, InputSection>;
        pub output: BTreeMap<String, OutputSection>;
        pub durability: Option<Durability>;
        pub reload: ReloadSection;
        pub feature: Vec<FeatureSection>;
        pub plugins: Plugins;
        /// A model without a graph.
        pub model: Option<ModelPluginKeys>;
    }
}

section! {
    #[derive(Default)]
    pub struct SequenceSection("sequence", "`[sequence]`: life of a sequence") {
        /// Rules for START on a live id, for a missing id and for a full server. `triton`: START restarts the sequence, a missing id is
        /// refused, and a sequence without a slot waits in the backlog. `ovms`: START on a live id is refused (`already_live`), a missing
        /// id is assigned by the server, and a sequence without a slot is refused.
        pub rules: Option<Rules>, default "`triton` over KServe v2", example "rules = \"ovms\"";
        /// Sequor ends a sequence after this time without a request. The time runs from the later of the last arrival and the last
        /// completion. It does not run while a request waits or runs. The next step of an expired sequence is refused with `expired`.
        pub idle: Option<SpanOrNever> as "duration above 0, or `never`",
            default "`max_sequence_idle_microseconds`, else 1 s (100 s with `backend: \"stateful\"`)",
            example "idle = \"30s\"", check checks::above_zero_or_never;
        /// If no slot is free, a new sequence takes the slot of the sequence that has been idle longest, provided that it has been idle for
        /// at least this long. The next step of the evicted sequence is refused with `evicted`.
        pub idle_soft: Option<Span>, default "none: no sequence is evicted", example "idle_soft = \"2s\"";
        /// Maximum idle time that a START may ask for with the request parameter `sequence_idle_us`. Sequor cuts a longer time to this maximum. Without
        /// this key the parameter has no effect.
        pub idle_longest: Option<Span>, default "none", example "idle_longest = \"10m\"";
        /// Look for idle sequences this often, instead of `idle`. A sequence that got no request between two looks ends at the second one,
        /// so it ends after one to two of these times. This is OVMS's `sequence_cleaner_poll_wait_minutes`.
        pub idle_scan: Option<Span>, default "none: `idle` holds", example "idle_scan = \"5m\"", check checks::scan;
        /// Maximum live sequences of the model, those in the backlog included. Beyond it, START is refused with `live_limit`.
        pub max_live: Option<u32> as "integer, at least 1",
            default "no limit", example "max_live = 4096", check checks::at_least_one;
        /// Maximum requests that wait in one sequence. Beyond it, a request is refused with `queue_full`.
        pub max_queued: Option<u32> as "integer, at least 1",
            default "4096", example "max_queued = 64", check checks::at_least_one;
        /// Effect of a cancelled request that still waits. `end`: the sequence ends, because a gap would make later answers wrong without
        /// notice. `keep`: the sequence lives on and expects that step again. If no step of the sequence has run since its state came
        /// from the store or from a client's file, the state returns there. With both, a cancelled START ends the sequence that its id had, live or stored.
        pub on_cancel: Option<OnCancel>, default "`end`", example "on_cancel = \"keep\"";
        /// Accept END without inputs. The model does not run, the state is freed, and the outputs are empty.
        pub end_without_inputs: Option<bool>, default "`false`", example "end_without_inputs = true";
        /// Rows of a batch in `direct`. `fixed`: the row of a sequence is its slot, and slots without a request become padding rows, as in
        /// Triton. `compact`: only the ready sequences, without padding rows. `sequor check` measures both, and advises one if it is clearly cheaper.
        pub rows: Option<Rows>, default "`fixed`", example "rows = \"compact\"";
        /// How long the server remembers why a sequence ended. A late step is answered with that reason; afterwards with `never_started`. A
        /// model remembers at most 4,096 ended sequences.
        pub tombstones: Option<Span>, default "10 min", example "tombstones = \"1h\"";
        /// A START may bring the first state of its sequence: as inputs with the names of states (`input_name`), or as the parameter `sequence_from`, the
        /// id of a live sequence whose state it begins with a copy of. See [From a client](copy-a-state.md#from-a-client).
        pub client_state: bool [default] as "boolean", default "`false`", example "client_state = true";
        /// Check the states of type FP16, BF16, FP32 and FP64 that each step leaves, before Sequor keeps them. If one has a NaN or an infinity,
        /// the step is refused with `state_not_finite`, and its sequence ends. The other sequences of the batch go on. Works on the CPU only.
        pub watch: Option<Watch>, default "none: states are kept as they are", example "watch = \"nan\"";
    }
}

choice! {
    /// The rules for START on a live id, for a missing id and for a full server.
    pub enum Rules {
        Triton = "triton",
        Ovms = "ovms",
    }
}

choice! {
    /// The rows of a batch of a `direct` model.
    pub enum Rows {
        /// The row of a sequence is its slot. Slots below the highest ready one that have no request are padding rows.
        Fixed = "fixed",
        /// Rows are the ready sequences, without padding rows.
        Compact = "compact",
    }
}

choice! {
    /// What the states are checked for that steps leave.
    pub enum Watch {
        /// NaN and infinity.
        Nan = "nan",
    }
}

choice! {
    pub enum OnCancel {
        End = "end",
        Keep = "keep",
    }
}

section! {
    #[derive(Default)]
    pub struct Backlog("backlog", "`[backlog]`: sequences without a slot") {
        /// Maximum sequences that wait for a slot. Beyond it, START is refused with `backlog_full`.
        pub max: Option<u32>, default "1,048,576", example "max = 2000";
        /// Maximum time that a START waits for a slot. Then the whole sequence is refused with `backlog_timeout`. The request's own
        /// `timeout` holds as well, if it is shorter.
        pub timeout: Option<Span>,
            default "none: a START waits for its own `timeout`, or for ever", example "timeout = \"1s\"";
        /// Priority levels of STARTs that wait for a slot. A START with the request parameter `priority` 1 gets the next slot, then those with 2, and
        /// so on. A START without a priority, or with a greater one, has the last level. Within a level the order is that of the STARTs.
        pub levels: Option<u32>, default "none: the order of the STARTs", example "levels = 3";
    }
}

section! {
    #[derive(Default)]
    pub struct Queue("queue", "`[queue]`: requests that wait") {
        /// What happens to a step of a live sequence whose `timeout` has passed while it waited. `run`: it runs all the same. `reject`: it
        /// is refused with `queue_expired`, and its sequence ends unless `on_cancel = "keep"`.
        pub expire: Option<WhenExpired>, default "`run`", example "expire = \"reject\"";
    }
}

choice! {
    pub enum WhenExpired {
        Run = "run",
        Reject = "reject",
    }
}

section! {
    #[derive(Default)]
    pub struct State("state.X", "`[state.X]`: one state", "`X` is the `input_name` of a `state` in `config.pbtxt`.") {
        /// The axis of the model's state tensor that is the batch. `X` is the state's `input_name`. `dims` in `config.pbtxt` leave this
        /// axis out. Triton cannot batch such a model.
        pub batch_axis: Option<u8>, default "0", example "batch_axis = 1";
        /// The type in which Sequor keeps an FP32 state of a fixed size between steps. The model still reads and writes FP32. The memory for that
        /// state is halved, and so is its precision.
        pub storage: Option<Storage>, default "`declared`", example "storage = \"fp16\"";
        /// Lets sequences whose states differ in length share a batch. Sequor pads the one variable dimension of the state to the longest
        /// state of the batch, and takes the padding off after the run. See
        /// [Growing states](export-a-stateful-onnx.md#growing-states-of-different-lengths).
        pub pad: Option<PadKeys> as "`{ side = \"left\" or \"right\", lengths = INPUT, mask = INPUT, new_steps = INPUT, new_lengths = OUTPUT, value = 0.0, multiple_of = 1, buckets = [ … ] }`; `side` and one of `lengths` and `mask` are required",
            default "none: a state batches only with states of its own length",
            example "pad = { side = \"left\", mask = \"cache_mask\" }";
    }
}

choice! {
    pub enum Storage {
        Declared = "declared",
        Fp16 = "fp16",
        Bf16 = "bf16",
    }
}

section! {
    #[derive(Default)]
    pub struct Durability(
        "durability",
        "`[durability]`: sequences that outlive the process",
        "Without this table live sequences end with the server."
    ) {
        /// When the states of sequences are written to the server's store, so that sequences outlive the process. `drain`: when the server
        /// stops. `every`: then, and after every so many steps. `step`: after every step, before its answer leaves. Needs `state.dir` or
        /// `state.url` in the server's file. See [Restarts](restarts.md).
        pub when: Option<When>, default "`never`", example "when = \"drain\"";
        /// With `when = "every"`: steps of a sequence between two writes of its state. Answers do not wait for a write. Each says in
        /// `sequor_durable_step` which step is durable.
        pub every: Option<u32> as "integer from 1", default "10", example "every = 10", check checks::at_least_one;
        /// Where the states are written: the server's store, which is the directory `state.dir` or the Redis of `state.url`.
        pub(super) tier: Option<TierName> as "`disk`", default "`disk`", example "tier = \"disk\"", check served_tier;
    }
}

choice! {
    pub enum When {
        Never = "never",
        Drain = "drain",
        Every = "every",
        Step = "step",
    }
}

choice! {
    pub(super) enum TierName {
        Memory = "memory",
        Disk = "disk",
        Redis = "redis",
    }
}

section! {
    #[derive(Default)]
    pub struct ReloadSection("reload", "`[reload]`: live sequences when a new version takes over") {
        /// Maximum time that live sequences stay on a version that was replaced. New sequences start on the new version at once. `0s`: no
        /// time at all. A stored sequence that the new version does not take over goes on with the version before until then. While one waits in
        /// the store, that version stays in memory.
        pub drain: Option<Span>, default "10 min", example "drain = \"1m\"";
        /// What happens to sequences that still live after `drain`. `end`: they end with `retired`. `carry`: each moves to the new version
        /// between two of its steps, with its state. A sequence ends all the same, and the log says so, in four cases: the versions differ in
        /// inputs, outputs or states (names, types or dims); the model has processors, or is an ensemble; the sequence is part of a sequence
        /// of an ensemble; it is busy for ten seconds without a pause. If both versions have `[durability]` with `when = "step"` or `"every"`,
        /// a moved sequence waits in the store for its next step. If not, a step from before the move that is sent again gets no second answer.
        pub then: Option<WhenDrained>, default "`end`", example "then = \"carry\"";
    }
}

choice! {
    pub enum WhenDrained {
        End = "end",
        Carry = "carry",
    }
}

fn served_tier(name: &str, tier: &TierName) -> Option<(&'static str, String)> {
    let what = || format!("[durability] {name} is not served yet; only \"disk\" is");
    (*tier != TierName::Disk).then(|| (code::NOT_SERVED, what()))
}
