"""Makes the kernels' PTX: ptx.py LIBNVRTC SOURCE TARGET. Called by `cargo xtask ptx`, which fetches the compiler."""

import ctypes
import hashlib
import sys

# The oldest GPUs whose kernels ONNX Runtime's CUDA provider brings.
OPTIONS = [b"--gpu-architecture=compute_75", b"--std=c++17", b"--dopt=on"]


def main(library: str, source: str, target: str) -> None:
    nvrtc = ctypes.CDLL(library)
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
    with open(source, "rb") as file:
        text = file.read()

    def check(result: int) -> None:
        if result != 0:
            raise SystemExit(f"nvrtc: {nvrtc.nvrtcGetErrorString(result).decode()}")

    program = ctypes.c_void_p()
    check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"kernels.cu", 0, None, None))
    options = (ctypes.c_char_p * len(OPTIONS))(*OPTIONS)
    compiled = nvrtc.nvrtcCompileProgram(program, len(OPTIONS), options)
    size = ctypes.c_size_t()
    check(nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size)))
    log = ctypes.create_string_buffer(size.value)
    check(nvrtc.nvrtcGetProgramLog(program, log))
    if log.value:
        sys.stderr.write(log.value.decode())
    check(compiled)
    check(nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size)))
    ptx = ctypes.create_string_buffer(size.value)
    check(nvrtc.nvrtcGetPTX(program, ptx))
    # Only the text is kept, without the compiler's final zero.
    body = ptx.value.decode().strip("\n")
    header = f"// kernels.cu sha256:{hashlib.sha256(text).hexdigest()}"
    with open(target, "w", encoding="ascii") as file:
        file.write(f"{header}\n{body}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
