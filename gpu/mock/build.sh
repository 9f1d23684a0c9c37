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
flags="$cc $cxx $*"
mkdir -p "$folder/.stamps"

# Whether NAME was made of these files with these flags already: is_current NAME FILE...
is_current() {
    name=$1
    shift
    sum="$(cat "$here/build.sh" "$@" 2>/dev/null | cksum) $flags"
    [ ! -e "$folder/$name" ] || [ "$(cat "$folder/.stamps/$name" 2>/dev/null)" != "$sum" ] || return 0
    rm -f "$folder/.stamps/$name"
    return 1
}

# Puts what was made beside into its place: a process that has the old file open keeps it.
place() { # NAME
    mv "$folder/.$1.new" "$folder/$1"
    printf '%s\n' "$sum" >"$folder/.stamps/$1"
}

library() { # soname source flags...
    name=$1 source=$here/$2
    shift 2
    is_current "$name" "$source" "$here"/*.h && return 0
    "$cc" -O1 -g0 -shared -fPIC -w "-Wl,-soname,$name" "-I$here" -o "$folder/.$name.new" "$@" "$source" -ldl -lpthread -lm
    place "$name"
}

program() { # name source flags...
    name=$1 source=$here/$2
    shift 2
    is_current "$name" "$source" "$here"/*.h && return 0
    "$cc" -O1 -w "$@" -o "$folder/.$name.new" "$source" -ldl -lpthread
    place "$name"
}

library libcuda.so.1 cuda.c "$@"
library libnvidia-ml.so.1 nvml.c "$@"
library libcupti.so.13 cupti.c "$@"
library libnvperf_host.so nvperf_host.c "$@"
library libcublasLt.so.13 cublas_lt.c "$@"
library libnvrtc.so.13 nvrtc.c "$@"
program user_program user_program.c "$@"
program nvidia-cuda-mps-control mps_control.c "$@"

# The kernels as host code, for functional mode. Each file is its own unit: their helpers share names.
case " $* " in *" -DWITHOUT_HOST_KERNELS "*) exit 0 ;; esac
command -v "$cxx" >/dev/null || { echo "there is no C++ compiler \`$cxx\`: functional mode has no kernels" >&2; exit 0; }
host="$cxx -std=c++17 -O1 -ffp-contract=off -w -fPIC"

kernels_of() { # file, which becomes folder/.units/NAME.o
    unit=.units/$(basename "$1" .cu)
    is_current "$unit.o" "$1" "$kernels"/*.cuh "$here/host_kernels.hpp" && return 0
    printf '#include "host_kernels.hpp"\n#include "%s"\n' "$1" >"$folder/$unit.cpp"
    # Their names, macros replaced.
    $host -E -P "-I$here" "-I$kernels" -D__global__=ELASTICO_KERNEL "$folder/$unit.cpp" | tr '\n' ' ' |
        grep -o 'ELASTICO_KERNEL void *[A-Za-z0-9_]* *(' | sed 's/.*void *\([A-Za-z0-9_]*\) *(/HOST_KERNEL(\1)/' >>"$folder/$unit.cpp"
    $host "-I$here" "-I$kernels" -c "$folder/$unit.cpp" -o "$folder/$unit.o"
    printf '%s\n' "$sum" >"$folder/.stamps/$unit.o"
}

mkdir -p "$folder/.units" "$folder/.stamps/.units"
is_current libhost_kernels.so "$kernels"/* "$here"/../src/*/*.cu "$here"/host_kernels.* && exit 0
library_sum=$sum
jobs=
for file in "$kernels"/*.cu "$here"/../src/*/*.cu; do
    kernels_of "$file" &
    jobs="$jobs $!"
done
$host "-I$here" -c "$here/host_kernels.cpp" -o "$folder/.units/fibers.o"
for job in $jobs; do wait "$job"; done
# Units of files that are no longer there stay out.
set -- "$folder/.units/fibers.o"
for file in "$kernels"/*.cu "$here"/../src/*/*.cu; do set -- "$@" "$folder/.units/$(basename "$file" .cu).o"; done
"$cxx" -shared -o "$folder/.libhost_kernels.so.new" "$@" -lpthread
sum=$library_sum
place libhost_kernels.so
