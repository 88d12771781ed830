//! The table of all fields of `inference.ModelConfig` and its messages.

use super::ConfigMessage;
use super::FieldStatus::{NoEffect, Refused, Served};

const SERVED: super::FieldStatus = Served("");
const TENSORRT: &str = "only TensorRT models use it; remove the field";
const CUDA: super::FieldStatus = NoEffect("only the TensorRT backend uses optimization.cuda");
const SHAPE_TENSOR: &str = "with `max_batch_size` 0, an ordinary tensor; refused with batching, as in Triton";

const fn message(name: &'static str, fields: &'static [(&'static str, super::FieldStatus)]) -> ConfigMessage {
    ConfigMessage { name, fields }
}

/// Every message of the configuration, in the order of the protobuf file.
pub const CONFIG_MESSAGES: &[ConfigMessage] = &[
    message(
        "ModelConfig",
        &[
            ("name", Served("must be the name of the model's directory")),
            ("platform", Served("`onnxruntime_onnx`, or `ensemble`")),
            (
                "backend",
                Served(
                    "`onnxruntime`, or `stateful` for models of the stateful backend; `python` with `[model] plugin` in sequor.toml; any other is refused",
                ),
            ),
            ("runtime", NoEffect("[runtime] onnxruntime of the server names the library for all models")),
            ("version_policy", SERVED),
            ("max_batch_size", SERVED),
            ("input", SERVED),
            ("output", SERVED),
            ("batch_input", SERVED),
            ("batch_output", SERVED),
            ("optimization", SERVED),
            ("dynamic_batching", SERVED),
            ("sequence_batching", SERVED),
            ("ensemble_scheduling", Served("see [Ensembles](../ensembles.md)")),
            ("instance_group", SERVED),
            ("default_model_filename", SERVED),
            ("cc_model_filenames", Refused("all GPUs run the same file; name it in default_model_filename")),
            ("metric_tags", Served("labels on the metrics that have the labels `model` and `version`")),
            ("parameters", Served("see [Parameters](#parameters)")),
            (
                "model_warmup",
                Served("runs on every instance before the model is ready; a sample that fails fails the load"),
            ),
            ("model_operations", Refused("libraries of custom operators run foreign code in the server")),
            ("model_transaction_policy", SERVED),
            ("model_repository_agents", SERVED),
            ("response_cache", SERVED),
            ("model_metrics", SERVED),
        ],
    ),
    message("ModelParameter", &[("string_value", SERVED)]),
    message(
        "ModelInput",
        &[
            ("name", SERVED),
            ("data_type", SERVED),
            ("format", Served("checked: NHWC and NCHW need three dims")),
            ("dims", SERVED),
            ("reshape", SERVED),
            ("is_shape_tensor", Served(SHAPE_TENSOR)),
            ("allow_ragged_batch", Served("the graph's input must have the shape [-1]")),
            ("optional", Served("the graph must have a value for it")),
            ("is_non_linear_format_io", Refused(TENSORRT)),
        ],
    ),
    message(
        "ModelOutput",
        &[
            ("name", SERVED),
            ("data_type", SERVED),
            ("dims", SERVED),
            ("label_filename", SERVED),
            ("reshape", SERVED),
            ("is_shape_tensor", Served(SHAPE_TENSOR)),
            ("is_non_linear_format_io", Refused(TENSORRT)),
        ],
    ),
    message("ModelTensorReshape", &[("shape", SERVED)]),
    message(
        "BatchInput",
        &[
            ("kind", Served("all six; the values of BATCH_MAX_ELEMENT_COUNT_AS_SHAPE are zeros")),
            ("target_name", SERVED),
            ("data_type", SERVED),
            ("source_input", SERVED),
        ],
    ),
    message("BatchOutput", &[("target_name", SERVED), ("kind", SERVED), ("source_input", SERVED)]),
    message("ModelVersionPolicy", &[("latest", SERVED), ("all", SERVED), ("specific", SERVED)]),
    message("ModelVersionPolicy.Latest", &[("num_versions", Served("0 is 1"))]),
    message("ModelVersionPolicy.All", &[]),
    message("ModelVersionPolicy.Specific", &[("versions", SERVED)]),
    message(
        "ModelInstanceGroup",
        &[
            ("name", SERVED),
            ("count", Served("0 is 2 for a group on the CPU, as in Triton, and 1 for a group on GPUs")),
            ("gpus", SERVED),
            ("kind", Served("KIND_MODEL is refused")),
            ("profile", Refused(TENSORRT)),
            (
                "rate_limiter",
                Served(
                    "takes effect with `--rate-limit=execution_count`: see [Rate limiter](../cache-and-rate-limit.md#rate-limiter)",
                ),
            ),
            ("passive", SERVED),
            ("secondary_devices", Refused("there is no support for NVDLA cores")),
            (
                "host_policy",
                NoEffect("bind the process to cores and memory instead: taskset, numactl, or the unit file"),
            ),
        ],
    ),
    message("ModelInstanceGroup.SecondaryDevice", &[("kind", SERVED), ("device_id", SERVED)]),
    message("ModelRateLimiter", &[("resources", SERVED), ("priority", Served("0 is 1; 2 gets half the turns of 1"))]),
    message(
        "ModelRateLimiter.Resource",
        &[("name", SERVED), ("global", SERVED), ("count", Served("0 asks for nothing"))],
    ),
    message(
        "ModelOptimizationPolicy",
        &[
            ("graph", SERVED),
            ("priority", NoEffect("only the TensorRT backend gives streams a priority")),
            ("cuda", CUDA),
            ("execution_accelerators", SERVED),
            ("input_pinned_memory", NoEffect("inputs for a GPU are always laid out in pinned memory")),
            ("output_pinned_memory", NoEffect("outputs of a GPU are always written to pinned memory")),
            ("gather_kernel_buffer_threshold", NoEffect("the inputs of a batch are laid out on the host")),
            ("eager_batching", NoEffect("a batch is formed when an instance is free to run it")),
        ],
    ),
    message(
        "ModelOptimizationPolicy.Graph",
        &[("level", Served("-1 basic, 0 all, 1 basic and extended, 2 none; other numbers are refused"))],
    ),
    message(
        "ModelOptimizationPolicy.Cuda",
        &[("graphs", CUDA), ("busy_wait_events", CUDA), ("graph_spec", CUDA), ("output_copy_stream", CUDA)],
    ),
    message(
        "ModelOptimizationPolicy.Cuda.GraphSpec",
        &[("batch_size", CUDA), ("input", CUDA), ("graph_lower_bound", CUDA)],
    ),
    message("ModelOptimizationPolicy.Cuda.GraphSpec.Shape", &[("dim", CUDA)]),
    message("ModelOptimizationPolicy.Cuda.GraphSpec.LowerBound", &[("batch_size", CUDA), ("input", CUDA)]),
    message(
        "ModelOptimizationPolicy.ExecutionAccelerators",
        &[
            (
                "gpu_execution_accelerator",
                Refused(
                    "instances on GPUs run on ONNX Runtime's CUDA provider, with Sequor's options; remove the field",
                ),
            ),
            (
                "cpu_execution_accelerator",
                Served("`openvino`, if the ONNX Runtime in use has that provider; else refused"),
            ),
        ],
    ),
    message(
        "ModelOptimizationPolicy.ExecutionAccelerators.Accelerator",
        &[("name", SERVED), ("parameters", Served("options of the provider, as ONNX Runtime names them"))],
    ),
    message(
        "ModelOptimizationPolicy.PinnedMemoryBuffer",
        &[("enable", NoEffect("pinned memory is always used for GPUs"))],
    ),
    message(
        "ModelDynamicBatching",
        &[
            ("preferred_batch_size", SERVED),
            ("max_queue_delay_microseconds", SERVED),
            ("preserve_ordering", SERVED),
            ("priority_levels", SERVED),
            (
                "default_priority_level",
                Served("used with priority_levels only; a priority that is no level counts as this one"),
            ),
            ("default_queue_policy", SERVED),
            ("priority_queue_policy", SERVED),
        ],
    ),
    message(
        "ModelQueuePolicy",
        &[
            ("timeout_action", Served("DELAY: a late request goes behind the others of its level")),
            ("default_timeout_microseconds", SERVED),
            ("allow_timeout_override", Served("also without a default timeout, where Triton ignores it")),
            ("max_queue_size", SERVED),
        ],
    ),
    message(
        "ModelSequenceBatching",
        &[
            ("max_sequence_idle_microseconds", Served("`[sequence] idle` of sequor.toml overrides it")),
            ("control_input", SERVED),
            ("direct", SERVED),
            ("oldest", SERVED),
            ("state", SERVED),
            (
                "iterative_sequence",
                Served(
                    "a request without an id is a sequence of its own; an ONNX model never asks for another iteration",
                ),
            ),
        ],
    ),
    message("ModelSequenceBatching.ControlInput", &[("name", SERVED), ("control", SERVED)]),
    message(
        "ModelSequenceBatching.Control",
        &[
            ("kind", SERVED),
            ("int32_false_true", SERVED),
            ("fp32_false_true", SERVED),
            ("bool_false_true", SERVED),
            ("data_type", SERVED),
        ],
    ),
    message(
        "ModelSequenceBatching.InitialState",
        &[
            ("data_type", SERVED),
            ("dims", SERVED),
            ("zero_data", Served("its presence counts, not its value, as in Triton")),
            ("data_file", Served("a file of the folder `initial_state`")),
            ("name", SERVED),
        ],
    ),
    message(
        "ModelSequenceBatching.State",
        &[
            ("input_name", SERVED),
            ("output_name", SERVED),
            ("data_type", SERVED),
            ("dims", SERVED),
            ("initial_state", SERVED),
            ("use_same_buffer_for_input_output", SERVED),
            (
                "use_growable_memory",
                Refused("states with open dimensions grow without it, on the host and on GPUs; remove the field"),
            ),
        ],
    ),
    message(
        "ModelSequenceBatching.StrategyDirect",
        &[("max_queue_delay_microseconds", SERVED), ("minimum_slot_utilization", SERVED)],
    ),
    message(
        "ModelSequenceBatching.StrategyOldest",
        &[
            ("max_candidate_sequences", SERVED),
            ("preferred_batch_size", SERVED),
            ("max_queue_delay_microseconds", SERVED),
            ("preserve_ordering", SERVED),
        ],
    ),
    message(
        "ModelEnsembling",
        &[
            ("step", SERVED),
            (
                "max_inflight_requests",
                Served("maximum requests in flight of each step, across all requests to the ensemble; 0 is no maximum"),
            ),
        ],
    ),
    message(
        "ModelEnsembling.Step",
        &[
            ("model_name", SERVED),
            ("model_version", Served("-1 and 0 are the latest")),
            ("input_map", SERVED),
            ("output_map", SERVED),
            ("model_namespace", NoEffect("Triton reserves it; models have no namespaces")),
        ],
    ),
    message(
        "ModelWarmup",
        &[
            ("name", SERVED),
            ("batch_size", Served("a sample of 0 is skipped, as in Triton")),
            ("inputs", Served("a state or control that is not listed is zero, or that of a sequence of one request")),
            ("count", Served("0 is 1")),
        ],
    ),
    message(
        "ModelWarmup.Input",
        &[
            ("data_type", SERVED),
            ("dims", SERVED),
            ("zero_data", SERVED),
            ("random_data", Served("the same numbers at every load; empty texts for TYPE_STRING")),
            ("input_data_file", Served("a file of the folder `warmup`")),
        ],
    ),
    message("ModelOperations", &[("op_library_filename", Refused("libraries of custom operators are not loaded"))]),
    message(
        "ModelTransactionPolicy",
        &[(
            "decoupled",
            Served(
                "as in Triton, single infer calls are refused; streams, `generate` and `generate_stream` give the one answer of an ONNX model",
            ),
        )],
    ),
    message(
        "ModelRepositoryAgents",
        &[("agents", Refused("no agent changes a repository; do that before the server starts"))],
    ),
    message("ModelRepositoryAgents.Agent", &[("name", SERVED), ("parameters", SERVED)]),
    message(
        "ModelResponseCache",
        &[(
            "enable",
            Served(
                "takes effect where the server has a cache (`cache.size`): see [Response cache](../cache-and-rate-limit.md#response-cache)",
            ),
        )],
    ),
    message(
        "ModelMetrics",
        &[(
            "metric_control",
            NoEffect("the only family that it could change, nv_inference_first_response_histogram_ms, is not counted"),
        )],
    ),
    message(
        "ModelMetrics.MetricControl",
        &[("metric_identifier", NoEffect("see metric_control")), ("histogram_options", NoEffect("see metric_control"))],
    ),
    message("ModelMetrics.MetricControl.MetricIdentifier", &[("family", NoEffect("see metric_control"))]),
    message("ModelMetrics.MetricControl.HistogramOptions", &[("buckets", NoEffect("see metric_control"))]),
];
