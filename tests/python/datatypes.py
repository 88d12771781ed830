#!/usr/bin/env python3
"""Every data type through Triton's own clients: the model gives back what came at the request before, out of a state of that type.

Over gRPC, over HTTP as bytes and, where JSON has the type, as JSON. Prints one line; exit 1 on any mismatch.
"""

import sys

import ml_dtypes
import numpy as np
from tritonclient.utils import np_to_triton_dtype, triton_to_np_dtype

from server import addresses, both

MODEL = "delay"
# By the name in a configuration (TYPE_...): the API's name and two values at the ends of what the type can hold.
TYPES = {
    "bool": ("BOOL", np.array([[True, False]])),
    "uint8": ("UINT8", np.array([[0, 255]], np.uint8)),
    "uint16": ("UINT16", np.array([[1, 65535]], np.uint16)),
    "uint32": ("UINT32", np.array([[1, 2**32 - 1]], np.uint32)),
    "uint64": ("UINT64", np.array([[1, 2**64 - 1]], np.uint64)),
    "int8": ("INT8", np.array([[-128, 127]], np.int8)),
    "int16": ("INT16", np.array([[-(2**15), 2**15 - 1]], np.int16)),
    "int32": ("INT32", np.array([[-(2**31), 2**31 - 1]], np.int32)),
    "int64": ("INT64", np.array([[-(2**63), 2**63 - 1]], np.int64)),
    "fp16": ("FP16", np.array([[-65504, 2**-24]], np.float16)),
    "fp32": ("FP32", np.array([[-3.4028235e38, 1e-45]], np.float32)),
    "fp64": ("FP64", np.array([[-1.7976931348623157e308, 5e-324]], np.float64)),
    "string": ("BYTES", np.array([["", "grüße\n"]], np.object_)),
    "bf16": ("BF16", np.array([[-1.5, 2.0**100]], ml_dtypes.bfloat16)),
}  # fmt: skip


def send(api, names, values, as_bytes=True, **flags):
    """A step with these values; what comes back, by the same names."""
    inputs, outputs, binary = [], [], {} if api.name == "grpc" else {"binary_data": as_bytes}
    for name in TYPES:
        tensor = api.module.InferInput(f"X_{name}", [1, 2], TYPES[name][0])
        # Other tensors are sent as bytes, for JSON does not have every type.
        others = {} if api.name == "grpc" else {"binary_data": as_bytes if name in names else True}
        tensor.set_data_from_numpy(values[name], **others)
        inputs.append(tensor)
    for name in names:
        outputs.append(api.module.InferRequestedOutput(f"OUT_{name}", **binary))
    result = api.client.infer(MODEL, inputs, outputs=outputs, **flags)
    return {name: result.as_numpy(f"OUT_{name}") for name in names}


def same(got, want):
    if want.dtype == np.object_:
        got = np.array([[text.decode() if isinstance(text, bytes) else text for text in got[0]]], np.object_)
        return bool((got == want).all())
    return got.dtype == want.dtype and got.tobytes() == want.tobytes()


def play(api, number, names, as_bytes, wrong):
    values = {name: value for name, (_, value) in TYPES.items()}
    send(api, names, values, as_bytes, sequence_id=number, sequence_start=True)
    turned = {name: np.ascontiguousarray(value[:, ::-1]) for name, value in values.items()}
    for want, ends in ((values, False), (turned, True)):
        got = send(api, names, turned, as_bytes, sequence_id=number, sequence_end=ends)
        for name in names:
            if not same(got[name], want[name]):
                wrong.append(f"{api.name} {'bytes' if as_bytes else 'JSON'} {name}: got {got[name]!r}, want {want[name]!r}")
    return 2 * len(names)


def not_finite(api, wrong):
    """NaN and infinity as JSON, there and back."""
    floats = ["fp32", "fp64"]
    values = {name: value for name, (_, value) in TYPES.items()}
    for name in floats:
        values[name] = np.array([[np.nan, -np.inf]], values[name].dtype)
    send(api, floats, values, False, sequence_id=8_700_004, sequence_start=True)
    got = send(api, floats, values, False, sequence_id=8_700_004, sequence_end=True)
    for name in floats:
        if not np.array_equal(got[name], values[name], equal_nan=True):
            wrong.append(f"JSON {name}: got {got[name]!r}, want {values[name]!r}")
    return len(floats)


def names(api, wrong):
    """The names of every type: in the configuration, in the metadata, and NumPy's."""
    if api.name == "grpc":
        metadata, config = (call(MODEL, as_json=True) for call in (api.client.get_model_metadata, api.client.get_model_config))
        config = config["config"]
    else:
        metadata, config = api.client.get_model_metadata(MODEL), api.client.get_model_config(MODEL)
    told = {tensor["name"]: tensor["datatype"] for tensor in metadata["inputs"]}
    written = {tensor["name"]: tensor["data_type"] for tensor in config["input"]}
    for name, (dtype, value) in TYPES.items():
        want = (dtype, f"TYPE_{name.upper()}")
        if (told[f"X_{name}"], written[f"X_{name}"]) != want:
            wrong.append(f"{api.name} {name}: {told[f'X_{name}']}, {written[f'X_{name}']}, want {want}")
        if np_to_triton_dtype(value.dtype) != dtype or triton_to_np_dtype(dtype) != value.dtype:
            wrong.append(f"{name}: NumPy's {value.dtype} is not {dtype}")
    return len(TYPES)


def main():
    options, wrong, count = addresses(__doc__).parse_args(), [], 0
    in_json = [name for name in TYPES if name not in ("fp16", "bf16")]
    for n, api in enumerate(both(options)):
        count += names(api, wrong) + play(api, 8_700_001 + n, list(TYPES), True, wrong)
        if api.name == "http":
            count += play(api, 8_700_003, in_json, False, wrong)
            count += not_finite(api, wrong)
    for fault in wrong[:20]:
        print(fault, file=sys.stderr)
    print(f"types: {count} checks over gRPC and HTTP; wrong: {len(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
