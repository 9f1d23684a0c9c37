#!/bin/sh
# Builds all stand-in libraries and programs into one folder: build.sh FOLDER [-DWITHOUT_cuFuncGetParamInfo ...]
#
# A test of any crate builds them once per test binary:
#
#     /// The folder of the stand-ins; `None`, with the reason printed, where there is no compiler.
#     fn stand_ins() -> Option<&'static Path> {
#         static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
#         FOLDER.get_or_init(|| {
#             let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("stand-ins");
#             let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpu/mock/build.sh");
#             let built = Command::new("sh").arg(script).arg(&folder).output().expect("a shell");
#             if built.status.code() == Some(77) {
#                 println!("skipped: {}", String::from_utf8_lossy(&built.stderr).trim());
#                 return None;
#             }
#             assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
#             Some(folder)
#         }).as_deref()
#     }
#
# and starts its program with LD_LIBRARY_PATH and PATH beginning with that folder and ELASTICO_MOCK set to a fresh folder
# that holds a file `script` (see script.h and the top of each .c). A second call with the same defines and unchanged
# sources does nothing, so that the folder may be kept. Exit code 77: there is no C compiler. -DWITHOUT_HOST_KERNELS leaves
# the kernels out, which only `functional 1` needs and which take most of the time.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
kernels=$here/../../workloads/kernels
folder=${1:?usage: build.sh FOLDER [-DFLAG...]}
shift
mkdir -p "$folder"
cc=${CC:-cc}
cxx=${CXX:-c++}
command -v "$cc" >/dev/null || { echo "there is no C compiler \`$cc\`" >&2; exit 77; }

# Two test binaries may build the same folder at once.
exec 9>"$folder/.lock"
if command -v flock >/dev/null; then flock 9; fi
stamp=$(cat "$here"/* "$kernels"/* "$here"/../src/*/*.cu 2>/dev/null | cksum; echo "$@")
if [ -f "$folder/.stamp" ] && [ "$(cat "$folder/.stamp")" = "$stamp" ]; then exit 0; fi
rm -f "$folder/.stamp"

library() { # soname source flags...
    name=$1 source=$here/$2
    shift 2
    [ -f "$source" ] || return 0
    # Written beside and renamed: a process that has the old file open keeps it.
    "$cc" -O1 -g0 -shared -fPIC -w "-Wl,-soname,$name" "-I$here" -o "$folder/.$name.new" "$@" "$source" -ldl -lpthread -lm
    mv "$folder/.$name.new" "$folder/$name"
}

library libcuda.so.1 cuda.c "$@"
library libnvidia-ml.so.1 nvml.c "$@"
library libcupti.so.13 cupti.c "$@"
library libnvperf_host.so nvperf_host.c "$@"
library libcublasLt.so.13 cublas_lt.c "$@"
library libnvrtc.so.13 nvrtc.c "$@"
"$cc" -O1 -w "$@" -o "$folder/.program.new" "$here/user_program.c" -ldl
mv "$folder/.program.new" "$folder/user_program"
if [ -f "$here/mps_control.c" ]; then
    "$cc" -O1 -w "$@" -o "$folder/.control.new" "$here/mps_control.c" -lpthread
    mv "$folder/.control.new" "$folder/nvidia-cuda-mps-control"
fi
# The kernels as host code, for functional mode. Each file is its own unit: their helpers share names.
case " $* " in *" -DWITHOUT_HOST_KERNELS "*) kernels= ;; esac
if [ -d "$kernels" ] && command -v "$cxx" >/dev/null; then
    units=$folder/.units
    rm -rf "$units"
    mkdir "$units"
    for file in "$kernels"/*.cu "$here"/../src/*/*.cu; do
        [ -s "$file" ] || continue
        unit=$units/$(basename "$file" .cu)
        printf '#include "host_kernels.hpp"\n#include "%s"\n' "$file" >"$unit.cpp"
        "$cxx" -std=c++17 -w -E -P "-I$here" "-I$kernels" -D__global__=ELASTICO_KERNEL "$unit.cpp" | tr '\n' ' ' |
            grep -o 'ELASTICO_KERNEL void *[A-Za-z0-9_]* *(' | sed 's/.*void *\([A-Za-z0-9_]*\) *(/HOST_KERNEL(\1)/' >>"$unit.cpp" || true
        "$cxx" -std=c++17 -O1 -ffp-contract=off -w -fPIC "-I$here" "-I$kernels" -c "$unit.cpp" -o "$unit.o" || touch "$units/failed" &
    done
    "$cxx" -std=c++17 -O1 -w -fPIC "-I$here" -c "$here/host_kernels.cpp" -o "$units/fibers.o" || touch "$units/failed"
    wait
    [ ! -e "$units/failed" ] || exit 1
    "$cxx" -shared -o "$folder/.kernels.new" "$units"/*.o -lpthread
    mv "$folder/.kernels.new" "$folder/libhost_kernels.so"
    rm -rf "$units"
fi
printf '%s\n' "$stamp" >"$folder/.stamp"
