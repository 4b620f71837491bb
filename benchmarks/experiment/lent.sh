#!/usr/bin/env bash
# Run the experiment on a machine that has PyTorch and a GPU, and none of our other packages.
#
#   carry .lent/wheels.tar.00, then .01, …, a command each (`ls -l .lent`); with the last piece:
#   bash benchmarks/experiment/lent.sh begin SECONDS SCRIPT [ARGUMENT…]
#   bash benchmarks/experiment/lent.sh look SECONDS
#   bash benchmarks/experiment/lent.sh bases|state
#
# `begin` installs the wheels and starts `benchmarks/experiment/SCRIPT.sh` in the background. Both
# wait until SECONDS are over or the script has ended, and leave results in $OUT. `bases` leaves
# choose.sh's stages 1 and 2 in $OUT, `state` the folders of real.sh, as bases.txz.00 and so on;
# carried in .lent, a later session begins with them. The machine goes back half a minute after a
# command: give `look` at once.
set -uo pipefail

OUT=$(realpath "${OUT:?a folder for what comes back}") || exit
ROOT=${ROOT:-/tmp/experiment} PYTHON=${PYTHON:-python3}

begin() {
    local script=${1:?a script}
    shift
    mkdir -p "$ROOT/tree" "$ROOT/out"
    cat .lent/wheels.tar.* | tar x -C "$ROOT" || exit
    for kept in bases state; do
        if [ -e ".lent/$kept.txz.00" ]; then cat ".lent/$kept.txz".* | tar xJ -C "$ROOT"; fi || exit
    done
    "$PYTHON" -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --upgrade \
        --root-user-action=ignore --disable-pip-version-check "$ROOT"/wheels/*.whl || exit
    tar c --exclude .lent --exclude .git --exclude benchmarks/results --exclude .venv . |
        tar x -C "$ROOT/tree" || exit
    cd "$ROOT/tree" || exit
    echo "ready after $SECONDS s"
    ROOT=$ROOT PYTHON=$PYTHON setsid nohup bash "benchmarks/experiment/$script.sh" "$@" \
        > "$ROOT/out/log.txt" 2>&1 < /dev/null &
}

wait_until() {
    while [ "$SECONDS" -lt "$1" ] && [ ! -e "$ROOT/out/ended" ]; do sleep 2; done
    tail -n 60 "$ROOT/out/log.txt"
    tar cz -C "$ROOT" out | split -b 15M -d - "$OUT/out.tgz."
}

case ${1:-} in
    begin) limit=${2:?seconds} && begin "${@:3}" && wait_until "$limit" ;;
    look) wait_until "${2:?seconds}" ;;
    bases | state)
        tar c -C "$ROOT" --exclude .dvc/cache --exclude data/mlruns --exclude data/policy/base \
            --exclude data/policy/sft --exclude data/policy/r1 --exclude __pycache__ "$1" |
            xz -T0 -3 | split -b 15M -d - "$OUT/$1.txz."
        ;;
    *) echo "'${1:-}': begin, look, bases or state" >&2 && exit 2 ;;
esac
