#!/usr/bin/env bash
# Run a plan with the real judge, each seed on a GPU of its own. A seed has a folder in $ROOT/state;
# what is made there is not made again, so a later session goes on from a copy of the folder.
#
#   PLAN=plan.yaml bash benchmarks/experiment/real.sh SEED…
#
# Each row of the plan is followed by the methods that ask it. Its weights are removed then: of a
# seed's folder nothing else is large. SECONDS_LEFT (no limit) is when the last stage may begin.
set -uo pipefail

PLAN=${PLAN:?a YAML file} SECONDS_LEFT=${SECONDS_LEFT:-1000000}
num_gpus=$(nvidia-smi --list-gpus 2> /dev/null | wc -l)

pipeline() { # SEED ARGUMENT…
    [ "$SECONDS" -lt "$SECONDS_LEFT" ] || return 1
    "$PYTHON" -I -u -X utf8 cudal1/start.py benchmarks.pipeline --settings one-gpu "$PLAN" \
        "$ROOT/seed-$1.yaml" --work "$ROOT/state/$1" --out "$ROOT/out/$1" "${@:2}" \
        >> "$ROOT/out/$1.txt" 2>&1
    local code=$?
    echo "seed $1, ${*:2}: exit code $code after $SECONDS s"
    return $code
}
seed() { # SEED
    local part row methods
    for part in generate sft selfsup rl search evaluation; do echo "$part: {seed: $1}"; done \
        > "$ROOT/seed-$1.yaml"
    pipeline "$1" --until selfsup
    while read -r row methods; do
        [ -e "$ROOT/state/$1/searched-$row" ] && continue
        # shellcheck disable=SC2086
        pipeline "$1" --stages $methods || continue
        [ "$row" = r2 ] || rm -f "$ROOT/state/$1/data/policy/$row"/*.safetensors
        touch "$ROOT/state/$1/searched-$row"
    done < <("$PYTHON" -c "
import sys, yaml
plan = yaml.safe_load(open(sys.argv[1]))
for row in ['r2', *plan['ablation']['rows']]:  # r2 is the policy that all rows start from
    made = [] if row == 'r2' else [f'ablation@{row}']
    asked = [f'search@{name}' for name in plan['search']['methods'] if name.rpartition('-')[0] == row]
    print(row, *made, *asked)" "$PLAN")
}

mkdir -p "$ROOT/out" "$ROOT/state"
export OMP_NUM_THREADS=2
started=0
for number in "$@"; do
    if [ "$num_gpus" -gt 1 ]; then export CUDA_VISIBLE_DEVICES=$((started++ % num_gpus)); fi
    seed "$number" &
done
wait
echo "ended after $SECONDS s"
touch "$ROOT/out/ended"
