#!/usr/bin/env bash
# Run one benchmark on a machine that has PyTorch and a GPU, and none of our other packages.
#
#   bash .lent/run.sh [--state FILE] [--as NAME] WHAT ARGUMENTS…
#
# The folder of this script is what `python -m benchmarks.lent.pack` made. WHAT is:
#
#   check                    import everything, doctor, and one verdict on a shipped problem
#   release MINUTES ARG…     benchmarks.release
#   real_sizes MINUTES ARG…  benchmarks.judging.real_sizes
#   profile SECONDS release or real_sizes ARG…
#                            one of these two, with stacks of all its processes
#   null_test, corpus or throughput ARG…
#
# Checkouts, folders and the device are given to each; ARG… is everything else that it takes.
# What it finds is kept in state/NAME, or state/WHAT: --as keeps runs with other arguments apart.
# $OUT/results.tgz holds afterwards all of state, with logs, whatever happened. --state FILE is such
# a file: a machine takes from it each folder of state that it has not made itself. Above 15 MiB it
# comes in pieces, results.tgz.00 and so on; --state takes them by the name without a number.
#
# DEVICE=cpu rehearses it without a GPU. All ends within ENDS_S + KILL_S seconds, and a little.
set -uo pipefail

OUT=$(realpath "${OUT:?a folder for what comes back}") || exit
ROOT=${ROOT:-/tmp/lent} PYTHON=${PYTHON:-python3}
DEVICE=${DEVICE:-cuda} ENDS_S=${ENDS_S:-540} KILL_S=${KILL_S:-45}
HERE=$(cd "$(dirname "$0")" && pwd)
STATE='' NAME=''
while :; do
    case ${1:-} in
        --state) STATE=${2:?a results.tgz} ;;
        --as) NAME=${2:?a name} ;;
        *) break ;;
    esac
    shift 2
done
WHAT=${1:-}
case $WHAT in
    check | release | real_sizes | profile | null_test | corpus | throughput) shift ;;
    *)
        echo "'$WHAT': check, release, real_sizes, profile, null_test, corpus or throughput" >&2
        exit 2
        ;;
esac
FOUND=$ROOT/state/${NAME:=$WHAT} WORK=$ROOT/scratch/$NAME
declare -A MODULES=(
    [null_test]=benchmarks.timing.null_test
    [corpus]=benchmarks.judging.corpus
    [throughput]=benchmarks.judging.throughput
)
OURS=("$PYTHON" -I -u -X utf8 "$ROOT/tree/cudal1/start.py")

leave_results() {
    local code=$?
    trap - EXIT
    mkdir -p "$ROOT/state"
    rm -f "$ROOT"/results.tgz.*
    tar cz -C "$ROOT" state | split -b 15M -d - "$ROOT/results.tgz."
    if [ -e "$ROOT/results.tgz.01" ]; then
        cp "$ROOT"/results.tgz.* "$OUT"
    else
        cp "$ROOT/results.tgz.00" "$OUT/results.tgz"
    fi
    echo "$NAME: exit code $code after $SECONDS s; $(du -ch "$OUT"/results.tgz* | tail -n 1)"
    exit "$code"
}

# Wheels go into the interpreter's own folder: what judges is isolated, and reads no PYTHONPATH.
prepare() {
    local stamp part
    stamp=$(cat "$HERE"/wheels/*.whl "$HERE"/parts/*.tgz | sha256sum) || return
    [ "$stamp" = "$(cat "$ROOT/prepared" 2> /dev/null)" ] && return
    rm -rf "$ROOT/prepared" "$ROOT/tree" "$ROOT/release" "$ROOT/kernelbench"
    "$PYTHON" -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --upgrade \
        --root-user-action=ignore --disable-pip-version-check "$HERE"/wheels/*.whl || return
    for part in "$HERE"/parts/*.tgz; do
        tar xz -C "$ROOT" -f "$part" || return
    done
    echo "$stamp" > "$ROOT/prepared"
    echo "prepared in $SECONDS s"
}

# What this machine has found of a benchmark is newer than what was carried.
restore() {
    local carried=$ROOT/carried folder
    mkdir -p "$ROOT/state"
    if [ -n "$STATE" ]; then
        rm -rf "$carried" && mkdir "$carried" && cat "$STATE"* | tar xz -C "$carried" || return
        for folder in "$carried"/state/*; do
            if [ -e "$ROOT/state/$(basename "$folder")" ]; then
                echo "$(basename "$folder"): goes on from this machine's own state"
            else
                mv "$folder" "$ROOT/state" || return
            fi
        done
    fi
    mkdir -p "$FOUND" "$WORK"
}

# Give a command a signal in time, and an end soon after it; its output also goes to a log.
limited() {
    local signal=$1
    shift
    env --default-signal=INT timeout --foreground --signal="$signal" --kill-after="$KILL_S" \
        "$((ENDS_S > SECONDS ? ENDS_S - SECONDS : 1))" "$@" 2>&1 | tee -a "$FOUND/log.txt"
}

part() {
    [ -e "$ROOT/$1" ] && return
    echo "no $1 here: pack it with --$1 CLONE" >&2
    return 1
}

check() {
    local code=0 problem=$ROOT/tree/cudal1/suite/problems/level1/14_relu.py
    limited INT "${OURS[@]}" benchmarks.lent.check --device "$DEVICE" || code=$?
    limited INT "${OURS[@]}" cudal1.cli doctor --device "$DEVICE" || code=$?
    sed 's/\bModel\b/ModelNew/g' "$problem" > "$WORK/candidate.py"
    limited INT "${OURS[@]}" cudal1.cli judge "$problem" "$WORK/candidate.py" \
        --device "$DEVICE" || code=$?
    return $code
}

# Put a benchmark's command into ASKED, with the signal that ends it.
ask_release() {
    local minutes=${1:?minutes} peer=()
    shift
    part release || return
    [ -e "$ROOT/kernelbench" ] && peer=(--kernelbench "$ROOT/kernelbench")
    ASKED=(TERM "${OURS[@]}" benchmarks.release --checkout "$ROOT/release" "${peer[@]}"
        --device "$DEVICE" --out "$FOUND" --work "$WORK" --minutes "$minutes" "$@")
}

ask_real_sizes() {
    local minutes=${1:?minutes}
    shift
    part kernelbench || return
    ASKED=(INT "${OURS[@]}" benchmarks.judging.real_sizes --checkout "$ROOT/kernelbench"
        --device "$DEVICE" --state "$FOUND" --work "$WORK" --out "$FOUND" --minutes "$minutes" "$@")
}

# From the start, with empty caches: what an earlier profile judged would not be judged again.
profile() {
    local seconds=${1:?seconds} what=${2:?release or real_sizes} minutes scripts gpus=
    shift 2
    rm -rf "$FOUND" "$WORK"
    mkdir -p "$FOUND" "$WORK"
    minutes=$("$PYTHON" -c "print(float('$seconds') / 60)") || return
    "ask_$what" "$minutes" "$@" || return
    scripts=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("scripts"))') || return
    if command -v nvidia-smi > /dev/null; then
        nvidia-smi --query-gpu=index,utilization.gpu,memory.used,clocks.sm,power.draw,timestamp \
            --format=csv,noheader,nounits --loop-ms=500 > "$FOUND/gpus.csv" &
        gpus=$!
    fi
    # nothing is paused to be looked at: that would disturb timings; a few samples fail instead
    limited INT "$scripts/py-spy" record --subprocesses --nonblocking --idle --rate 50 \
        --format raw --output "$WORK/stacks.txt" -- "${ASKED[@]:1}" |
        grep -v "behind in sampling"
    [ -n "$gpus" ] && kill "$gpus"
    gzip -c "$WORK/stacks.txt" > "$FOUND/stacks.txt.gz" || return
    limited INT "${OURS[@]}" benchmarks.lent.stacks "$WORK/stacks.txt" \
        --top 6 --out "$FOUND/profile.json" ${gpus:+--gpus "$FOUND/gpus.csv"}
}

mkdir -p "$ROOT" "$OUT" || exit
trap leave_results EXIT
trap 'exit 143' TERM INT HUP
prepare && restore || exit
cd "$ROOT/tree" || exit
case $WHAT in
    check | profile) "$WHAT" "$@" ;;
    release | real_sizes) "ask_$WHAT" "$@" && limited "${ASKED[@]}" ;;
    *)
        limited INT "${OURS[@]}" "${MODULES[$WHAT]}" --device "$DEVICE" --out "$FOUND" "$@"
        ;;
esac
