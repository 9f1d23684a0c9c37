#!/usr/bin/env bash
# One prepared campaign for a borrowed machine with one NVIDIA GPU, no network and little time.
#
#   profiler/gpu-campaign.sh pack FOLDER            here: build, strip and pack what has to travel
#   FOLDER/gpu-campaign.sh run OUT [SECONDS]        there: measure for at most SECONDS (default 450), pack into OUT
#
# `run` leaves at most 5 files in OUT, each below 16 MiB, whatever happens: what was measured before a failure or the
# end of the time is there. It changes no setting of the card (no clocks, no persistence, no MIG, no compute mode).
set -euo pipefail

usage() {
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

pack() {
    [ $# -eq 1 ] || usage
    local root folder
    root="$(cd "$(dirname "$0")/.." && pwd)"
    mkdir -p "$1"
    folder="$(cd "$1" && pwd)"
    if [ -z "${ELASTICO_BUILT:-}" ]; then
        (cd "$root" && cargo build --release --locked)
        ELASTICO_BUILT="$root/target/release"
    fi
    # Not local: the trap runs when the function is over.
    stage="$(mktemp -d)"
    trap 'rm -rf "$stage"' EXIT
    for file in elastico libelastico_injection.so; do
        strip -o "$stage/$file" "$ELASTICO_BUILT/$file"
        chmod 755 "$stage/$file"
    done
    tar -C "$stage" -czf "$folder/elastico.tar.gz" elastico libelastico_injection.so
    cp "$root/profiler/gpu-campaign.sh" "$root/profiler/gpu-campaign.toml" "$folder/"
    printf 'packed into %s:\n' "$folder"
    (cd "$folder" && du -k elastico.tar.gz gpu-campaign.sh gpu-campaign.toml)
}

# Seconds that are left of the whole budget.
left() { echo $((deadline - $(date +%s))); }

# step NAME LIMIT COMMAND…: runs with a limit in seconds, output into the log; a failure is noted and the next step comes.
step() {
    local name="$1" limit="$2" code=0 begin remark
    shift 2
    begin=$(date +%s)
    # No step may use what is left for packing.
    [ "$limit" -le "$(($(left) - 3))" ] || limit=$(($(left) - 3))
    [ "$limit" -gt 0 ] || { echo "$name: not begun, the time is over" | tee -a "$out/summary.txt"; return 0; }
    # SIGTERM first: a campaign then ends after the trial at hand, writes its dataset and stops its MPS daemon. To the
    # process alone, and so once: a second signal would end it at once.
    # In the background, so that a signal to this script is heard at once.
    local grace=2
    [ "$name" != campaign ] || grace=20
    timeout --foreground --signal=TERM --kill-after="$grace" "$limit" "$@" >"$logs/$name.out" 2>"$logs/$name.err" &
    child=$!
    wait "$child" || code=$?
    case "$code" in
    124) remark="ended by its limit of $limit s, results saved" ;;
    137) remark="killed after its limit of $limit s" ;;
    *) remark="exit $code" ;;
    esac
    printf '%s: %s, %s s\n' "$name" "$remark" "$(($(date +%s) - begin))" | tee -a "$out/summary.txt"
    return 0
}

finish() {
    # Nothing may keep the results from being packed.
    set +e
    [ -z "$watcher" ] || kill "$watcher" 2>/dev/null
    if [ -d "$work/run" ]; then
        tar -C "$work" -czf "$out/campaign.tar.gz" run
    fi
    tar -C "$work" -czf "$out/logs.tar.gz" logs
    for file in doctor.json self-test.json; do
        [ -s "$logs/${file%.json}.out" ] && cp "$logs/${file%.json}.out" "$out/$file"
    done
    if [ -s "$logs/status.out" ]; then cat "$logs/status.out" >>"$out/summary.txt"; fi
    for file in "$out"/*; do
        if [ "$(stat -c %s "$file")" -gt 16000000 ]; then
            echo "$(basename "$file") is larger than 16 MB and may not travel" >>"$out/summary.txt"
        fi
    done
    cat "$out/summary.txt"
    rm -rf "$work"
}

run() {
    [ $# -ge 1 ] && [ $# -le 2 ] || usage
    case "${2:-450}" in
    *[!0-9]* | "") echo "SECONDS is a whole number, not \`$2\`" >&2; exit 2 ;;
    esac
    if [ -n "$(ls -A "$1" 2>/dev/null)" ]; then
        echo "$1 is not empty: results of two runs must not be mixed; name another folder" >&2
        exit 2
    fi
    local here
    here="$(cd "$(dirname "$0")" && pwd)"
    mkdir -p "$1"
    out="$(cd "$1" && pwd)"
    deadline=$(($(date +%s) + ${2:-450}))
    # What status, validate, inspect and packing take at the end.
    local reserve=20
    [ "${2:-450}" -ge 200 ] || reserve=12
    # Short: the path of an MPS pipe is limited to about 100 bytes.
    work="$(mktemp -d /tmp/elastico.XXXXXX)"
    logs="$work/logs"
    watcher=""
    child=""
    mkdir "$logs"
    : >"$out/summary.txt"
    trap finish EXIT
    # Ended from outside: the campaign gets its interrupt, and time to write its dataset, before the results are packed.
    trap 'echo "ended from outside" >>"$out/summary.txt"; kill -TERM "$child" 2>/dev/null; wait "$child"; exit 143' TERM INT HUP
    if ! tar -C "$work" -xzf "$here/elastico.tar.gz" 2>"$logs/unpack.err"; then
        echo "elastico.tar.gz beside the script cannot be unpacked: $(head -1 "$logs/unpack.err")" | tee -a "$out/summary.txt" >&2
        exit 3
    fi
    local elastico="$work/elastico"
    cp "$here/gpu-campaign.toml" "$work/campaign.toml"
    {
        uname -a
        "$elastico" --version
        cat /etc/os-release 2>/dev/null
    } >"$logs/machine.out" 2>&1
    if command -v nvidia-smi >/dev/null; then
        nvidia-smi -q >"$logs/nvidia-smi.out" 2>&1 || true
        # A second witness of clocks and power, beside the campaign's own telemetry.
        nvidia-smi dmon -s pucm -d 5 -o T >"$logs/dmon.out" 2>&1 &
        watcher=$!
    fi
    step doctor 40 "$elastico" doctor --format json
    step doctor-text 40 "$elastico" doctor
    step self-test "$(((${2:-450}) / 5))" "$elastico" doctor --self-test --device cuda:0 --format json
    step campaign "$(($(left) - reserve))" "$elastico" profile run "$work/campaign.toml" --out "$work/run"
    step status 10 "$elastico" profile status "$work/run"
    step validate 20 "$elastico" dataset validate "$work/run/dataset"
    step inspect 20 "$elastico" dataset inspect "$work/run/dataset"
}

command="${1:-}"
[ $# -gt 0 ] && shift
case "$command" in
pack) pack "$@" ;;
run) run "$@" ;;
*) usage ;;
esac
