#!/usr/bin/env bash
# The ablation on a machine that is lent for half an hour, in calls of ten minutes.
#
#   bash benchmarks/ablation/lent.sh begin|look|end SECONDS
#
# From the checkout's root, with $OUT a folder of what comes back (64 MB at most):
# begin  start one process a seed, each on a GPU of its own, which go on from call to call: with
#        what .carried/SEED holds of their states, where that is there. Then look.
# look   wait until all have ended, SECONDS at most; leave what was judged and examined so far in
#        $OUT/so_far.tgz. If nothing better comes, judged.jsonl, teaching.jsonl and machines.jsonl
#        of it belong in .carried: policies will be others, so what these tried is of no use.
# end    look, stop who is at work, and leave the states in $OUT/SEED, to be put in .carried.
#
# FIRST_GPU=1 leaves GPU 0, and the first part of the cores, to whoever is put there beside them.
#
# Every call brings something back: a machine may be gone after any of them. On another one than
# `begin` was on, `look` and `end` say so at once: waiting there is paid for, too.
set -uo pipefail

VERB=${1:?begin, look or end} SECONDS_AT_MOST=${2:?seconds} OUT=${OUT:?a folder}
PLAN=${PLAN:-gpu} SEEDS=${SEEDS:-1 2 3} MINUTES=${MINUTES:-27} FIRST_GPU=${FIRST_GPU:-0}
ROOT=${ROOT:-/tmp/ablation} PYTHON=${PYTHON:-python3}
MAX_BYTES=40000000  # of states: they, the tree and the wheels are sent again, 64 MB in all
export PYTHONUNBUFFERED=1

ablation() {
    (cd "$ROOT/tree" && PYTHONPATH=$ROOT/tree exec "$PYTHON" -m benchmarks.ablation "$@")
}

# Verdicts of another kind of GPU would be refused: begin without them rather than end at once.
is_of_this_kind() {
    command -v nvidia-smi > /dev/null && [ -e "$1/machines.jsonl" ] || return 0
    grep -qF "\"$(nvidia-smi -i 0 --query-gpu=name --format=csv,noheader)\"" "$1/machines.jsonl" ||
        { echo "$1: of another kind of GPU, left out" >&2; return 1; }
}

prepare() {
    mkdir -p "$ROOT/tree" || return
    # what is sent anew with each call is not what they run from
    tar c --exclude=.git --exclude=.venv --exclude=.carried . | tar x -C "$ROOT/tree" || return
    if [ -d .whl ]; then
        "$PYTHON" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade \
            .whl/*.whl || return
    fi
    for seed in $SEEDS; do
        mkdir -p "$ROOT/$seed"
        if compgen -G ".carried/$seed/state.zip.*" > /dev/null; then
            ablation unpack --state "$ROOT/$seed" --carried "$PWD/.carried/$seed" || return
        elif [ -d ".carried/$seed" ] && is_of_this_kind ".carried/$seed"; then
            cp -r ".carried/$seed/." "$ROOT/$seed" || return
        fi
    done
}

# Of place $1 of $2: its part of the cores that we may use.
cores() {
    "$PYTHON" -c '
import os, sys
place, count = map(int, sys.argv[1:])
cores = sorted(os.sched_getaffinity(0))
share = max(1, len(cores) // count)
first = place * share % len(cores)
print(*cores[first : first + share], sep=",")' "$1" "$2"
}

start() {
    local place=$FIRST_GPU count
    count=$((FIRST_GPU + $(wc -w <<< "$SEEDS")))
    for seed in $SEEDS; do
        CUDA_VISIBLE_DEVICES=$place setsid nohup bash -c '
            cd "$1/tree"
            PYTHONPATH=$1/tree taskset -c "$6" "$2" -m benchmarks.ablation run --plan "$3" \
                --seeds "$4" --state "$1/$4" --minutes "$5"
            echo $? > "$1/$4.ended"' \
            - "$ROOT" "$PYTHON" "$PLAN" "$seed" "$MINUTES" "$(cores $place "$count")" \
            > "$ROOT/$seed.log" 2>&1 < /dev/null &
        place=$((place + 1))
    done
    touch "$ROOT/begun"
}

all_ended() {
    for seed in $SEEDS; do
        [ -e "$ROOT/$seed.ended" ] || return 1
    done
}

look() {
    until all_ended || [ $SECONDS -ge "$SECONDS_AT_MOST" ]; do sleep 2; done
    for seed in $SEEDS; do
        echo "seed $seed, exit code $(cat "$ROOT/$seed.ended" 2> /dev/null || echo 'not yet'):"
        tail -n 25 "$ROOT/$seed.log"
    done
    # shellcheck disable=SC2086
    tar cz -C "$ROOT" --exclude=policies --exclude=work $SEEDS > "$OUT/so_far.tgz"
}

packed() {
    for seed in $SEEDS; do
        ablation pack --plan "$PLAN" --seeds "$seed" --state "$ROOT/$seed" --carried "$OUT/$seed" &
    done
    wait
}

end() {
    look
    pkill -f -- "--state $ROOT/" && sleep 2
    # shellcheck disable=SC2046,SC2086
    ablation table --plan "$PLAN" --seeds $SEEDS --state $(printf "$ROOT/%s " $SEEDS)
    packed
    if [ "$(du -sb "$OUT" | cut -f1)" -gt $MAX_BYTES ]; then
        echo "too large: without policies, which training makes again"
        for seed in $SEEDS; do rm -rf "$ROOT/$seed/policies"; done
        packed
    fi
}

case $VERB in
    begin)
        if [ -e "$ROOT/begun" ]; then
            echo "already begun on this machine: look, or end" >&2
            exit 2
        fi
        prepare || exit
        start
        look
        ;;
    look | end)
        if [ ! -e "$ROOT/begun" ]; then
            echo "nothing was begun on this machine: begin again, with what came back in .carried" >&2
            exit 2
        fi
        "$VERB"
        ;;
    *)
        echo "$VERB: begin, look or end" >&2
        exit 2
        ;;
esac
