#!/bin/sh
# What only a machine with an NVIDIA GPU can show, from the folder that `cargo xtask gpu-pack` has made: without Rust, without a network.
#
#   sh run.sh [--batch N] [--seconds N]
#
# CUDA 13 and cuDNN 9 are looked for in $CUDA_LIBRARIES (folders, separated by colons), in lib/ beside this, among the packages of python3
# (nvidia/*/lib) and in /usr/local/cuda. Ends with 0 if all went well, 1 if something failed, 3 if there is no GPU.
cd "$(dirname "$0")" || exit 1
failed=0

part() {
    name=$1
    shift
    echo "--- $name"
    if "$@"; then
        echo "    $name: ok"
    else
        echo "    $name: FAILED ($?)"
        failed=$((failed + 1))
    fi
}

# Either may be left behind where there is little room on the way: the server, and libraries that are not packed.
[ -x ./sequor ] && part "program" ./sequor --version
for archive in lib.tar lib.tar.*; do
    [ -d lib ] || [ ! -f "$archive" ] || part "libraries" python3 -m tarfile -e "$archive"
done
part "devices of the host" env -u SEQUOR_TEST_GPU ./device

if ! found=$(./gpu look 2>&1); then
    echo "run.sh: what needs a GPU was not run: ${found#gpu: }" >&2
    [ "$failed" -eq 0 ] && exit 3
    exit 1
fi
echo "$found"

libraries=${CUDA_LIBRARIES:+$CUDA_LIBRARIES:}$PWD/lib
for folder in $(python3 -c 'import glob, sys; print(*(f for p in sys.path for f in glob.glob(p + "/nvidia/*/lib")))' 2>/dev/null) \
    /usr/local/cuda/lib64; do
    [ -d "$folder" ] && libraries=$libraries:$folder
done
export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
for library in lib/libonnxruntime.so*; do
    [ -f "$library" ] && export ORT_DYLIB_PATH="$PWD/$library"
done

part "devices" env SEQUOR_TEST_GPU=1 ./device
if command -v compute-sanitizer >/dev/null; then
    part "sanitizer" env SEQUOR_TEST_GPU=1 compute-sanitizer --error-exitcode 1 ./device
else
    echo "--- sanitizer: not installed here (compute-sanitizer, of the CUDA toolkit): NOT CHECKED"
fi
part "models" ./gpu check --root .
part "measure" ./gpu measure --root . "$@"
[ "$failed" -eq 0 ] || { echo "run.sh: $failed failed" >&2; exit 1; }
