#!/bin/sh
# Runs the tests that need a machine with an NVIDIA GPU, from the folder that `cargo xtask gpu-pack` has made. It needs no Rust and no network.
#
#   sh run.sh [PART...] [--batch N] [--seconds N]
#
# Parts, in this order; all of them without an argument:
#   host              the tests of the devices' contract on the host (no GPU needed)
#   devices           the same tests on every GPU, bit for bit against the host
#   sanitizer         the same tests on every GPU under compute-sanitizer: memcheck and racecheck
#   models            models on GPU 0 against the CPU, 10,000 live sequences, clients that go away
#   server            the server itself with models on GPU 0, over HTTP (if `sequor` is packed)
#   measure           rows moved, steps a second, CUDA graphs; --batch and --seconds are for this part
#   sanitizer-models  the part `models` under compute-sanitizer, which watches Sequor's own kernels (minutes)
# And by its name alone, where there is no GPU:
#   rehearse          `models`, `measure` and `server` on the CPU, small: whether the programs themselves work
#
# CUDA 13 and cuDNN 9 are looked for in $CUDA_LIBRARIES (folders, separated by colons), in lib/ beside this, among the packages of python3
# (nvidia/*/lib) and in /usr/local/cuda. compute-sanitizer is looked for on PATH and in /usr/local/cuda. A part that takes longer than its limit is
# stopped. The script ends with 0 if all went well, 1 if something failed, 3 if there is no GPU.
cd "$(dirname "$0")" || exit 1
failed=0
parts=
while [ $# -gt 0 ]; do
    case $1 in
        -*) break ;;
        host | devices | sanitizer | models | server | measure | sanitizer-models | rehearse) parts="$parts $1" ;;
        *) echo "run.sh: there is no part $1" >&2; exit 2 ;;
    esac
    shift
done
: "${parts:=host devices sanitizer models server measure sanitizer-models}"

wanted() {
    case " $parts " in *" $1 "*) ;; *) return 1 ;; esac
}

# part NAME SECONDS COMMAND...
part() {
    name=$1 limit=$2
    shift 2
    echo "--- $name"
    began=$(date +%s)
    timeout -k 10 "$limit" "$@"
    code=$?
    took=$(($(date +%s) - began))
    case $code in
        0) echo "    $name: ok, $took s" ;;
        124 | 137) echo "    $name: FAILED, stopped after $limit s"; failed=$((failed + 1)) ;;
        *) echo "    $name: FAILED ($code), $took s"; failed=$((failed + 1)) ;;
    esac
}

end() {
    [ "$failed" -eq 0 ] || { echo "run.sh: $failed failed" >&2; exit 1; }
    exit "$1"
}

libraries=${CUDA_LIBRARIES:+$CUDA_LIBRARIES:}$PWD/lib
for folder in $(python3 -c 'import glob, sys; print(*(f for p in sys.path for f in glob.glob(p + "/nvidia/*/lib")))' 2>/dev/null) \
    /usr/local/cuda/lib64; do
    [ -d "$folder" ] && libraries=$libraries:$folder
done
[ -f lib/libonnxruntime.so ] && export ORT_DYLIB_PATH="$PWD/lib/libonnxruntime.so"
PATH=$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer
# Only these commands get the libraries, because another python3 may find a library among them that does not fit.
on_gpu() {
    name=$1 limit=$2
    shift 2
    part "$name" "$limit" env "LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$@"
}

wanted host && part host 120 env -u SEQUOR_TEST_GPU ./device

if wanted rehearse; then
    [ -x ./gpu ] && part "rehearse models" 500 ./gpu check --root . --rehearse
    [ -x ./gpu ] && part "rehearse measure" 500 ./gpu measure --root . --rehearse --batch 8 --seconds 1
    [ -x ./sequor ] && part "rehearse server" 60 python3 serve.py cpu
    end 0
fi

if ! found=$(./gpu look 2>&1); then
    echo "run.sh: not run, because they need a GPU:$(for p in $parts; do [ "$p" = host ] || printf ' %s' "$p"; done)" >&2
    echo "run.sh: ${found#gpu: }" >&2
    end 3
fi
echo "$found"
nvidia-smi --query-gpu=driver_version,clocks.sm,clocks.mem,temperature.gpu,mig.mode.current --format=csv,noheader 2>/dev/null
echo "libraries: $libraries"

wanted devices && on_gpu devices 180 env SEQUOR_TEST_GPU=1 ./device
if wanted sanitizer || wanted sanitizer-models; then
    if ! command -v compute-sanitizer >/dev/null; then
        echo "--- sanitizer: not installed here (compute-sanitizer, of the CUDA toolkit): NOT CHECKED"
        parts=$(for p in $parts; do case $p in sanitizer*) ;; *) printf '%s ' "$p" ;; esac; done)
    fi
fi
# A test asks for more memory than there is, so failed API calls are not reported.
for tool in memcheck racecheck; do
    wanted sanitizer &&
        on_gpu "sanitizer: $tool" 240 env SEQUOR_TEST_GPU=1 SEQUOR_TEST_CASES=60 \
            compute-sanitizer --tool $tool --report-api-errors no --error-exitcode 1 ./device
done
wanted models && on_gpu models 300 ./gpu check --root .
if wanted server; then
    if [ -x ./sequor ]; then
        on_gpu server 90 python3 serve.py gpu
    else
        echo "--- server: sequor is not packed: NOT CHECKED"
    fi
fi
wanted measure && on_gpu measure 400 ./gpu measure --root . "$@"
wanted sanitizer-models &&
    on_gpu "sanitizer: models" 500 compute-sanitizer --tool memcheck --kernel-name kns=move_rows --report-api-errors no --error-exitcode 1 \
        ./gpu check --root .
end 0
