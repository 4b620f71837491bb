#!/usr/bin/env bash
# The ablation on a machine that is lent for half an hour, in calls of ten minutes.
#
#   bash benchmarks/ablation/lent.sh begin|look|end SECONDS
#
# From the checkout's root, with $OUT a folder of what comes back (at most 8 files):
# begin  start one process a seed, each on a GPU of its own, which go on from call to call: with what
#        .carried/SEED holds of their states, where that is there. Then look.
# look   wait until all are done, SECONDS at most; copy to $OUT what was judged and examined so far.
# end    look, stop who is not done, and leave the states in $OUT/SEED, to be carried.
#
# Every call brings something back: a machine may be gone after any of them. On another one than
# `begin` was on, `look` and `end` say so at once: waiting there is paid for, too.
set -uo pipefail

VERB=$1 SECONDS_AT_MOST=$2
PLAN=${PLAN:-gpu} SEEDS=${SEEDS:-1 2} MINUTES=${MINUTES:-27}
ROOT=${ROOT:-/tmp/ablation} PYTHON=${PYTHON:-python3}
MAX_FILES=7  # of the states; one is the log
export PYTHONUNBUFFERED=1

ablation() {
    (cd "$ROOT/tree" && PYTHONPATH=$ROOT/tree exec "$PYTHON" -m benchmarks.ablation "$@")
}

begin() {
    mkdir -p "$ROOT/tree" || exit
    # what is sent anew with each call is not what they run from
    tar c --exclude=.git --exclude=.venv --exclude=.carried . | tar x -C "$ROOT/tree" || exit
    if [ -d .whl ]; then
        "$PYTHON" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade .whl/*.whl || exit
    fi
    local place=0 share
    share=$(($(nproc) / $(wc -w <<< "$SEEDS")))
    for seed in $SEEDS; do
        mkdir -p "$ROOT/$seed"
        if [ -d ".carried/$seed" ]; then
            ablation unpack --state "$ROOT/$seed" --carried "$PWD/.carried/$seed" || exit
        fi
        CUDA_VISIBLE_DEVICES=$place setsid nohup \
            taskset -c $((place * share))-$((place * share + share - 1)) bash -c '
                cd "$1/tree"
                PYTHONPATH=$1/tree "$2" -m benchmarks.ablation run --plan "$3" --seeds "$4" \
                    --state "$1/$4" --minutes "$5"
                touch "$1/$4.done"' - "$ROOT" "$PYTHON" "$PLAN" "$seed" "$MINUTES" \
            > "$ROOT/$seed.log" 2>&1 < /dev/null &
        place=$((place + 1))
    done
}

all_done() {
    for seed in $SEEDS; do
        [ -e "$ROOT/$seed.done" ] || return 1
    done
}

look() {
    until all_done || [ $SECONDS -ge "$SECONDS_AT_MOST" ]; do sleep 2; done
    for seed in $SEEDS; do
        echo "seed $seed, $([ -e "$ROOT/$seed.done" ] && echo ended || echo at work):"
        tail -n 25 "$ROOT/$seed.log"
    done
    tar cz -C "$ROOT" --exclude=tree --exclude=policies --exclude=checkpoints . > "$OUT/so_far.tgz"
}

end() {
    look
    pkill -f -- "--state $ROOT/" && sleep 2
    for seed in $SEEDS; do
        ablation pack --plan "$PLAN" --seeds "$seed" --state "$ROOT/$seed" --carried "$OUT/$seed" &
    done
    wait
    if [ "$(find "$OUT" -name 'state.zip.*' | wc -l)" -gt $MAX_FILES ]; then
        echo "too many pieces: without policies, which training makes again of known verdicts"
        for seed in $SEEDS; do
            rm -rf "$OUT/$seed" "$ROOT/$seed/policies"
            ablation pack --plan "$PLAN" --seeds "$seed" --state "$ROOT/$seed" --carried "$OUT/$seed"
        done
    fi
    [ "$(wc -w <<< "$SEEDS")" -gt 1 ] || return 0
    # shellcheck disable=SC2046
    ablation table --plan "$PLAN" --state $(printf "$ROOT/%s " $SEEDS)
}

if [ "$VERB" = begin ]; then
    begin
elif [ ! -e "$ROOT/tree" ]; then
    echo "nothing was begun on this machine: begin again, with what came back in .carried" >&2
    exit 2
fi
case $VERB in
    begin | look) look ;;
    end) end ;;
    *) echo "begin, look or end" >&2; exit 2 ;;
esac
