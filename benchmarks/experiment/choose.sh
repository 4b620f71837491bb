#!/usr/bin/env bash
# Compare rows of a plan with made-up speeds, several beside each other; each in a copy of one run of
# stages 1 and 2. $ROOT/out has logs and the table so far.
#
#   bash benchmarks/experiment/choose.sh TOGETHER ROW…
#
# PLAN is the plan (choose.yaml beside this file), SEEDS are the seeds of training and sampling (1).
# Rows are dealt out to the GPUs that there are. Where $ROOT/bases/SEED holds stages 1 and 2 of an
# earlier session, rows start from that; $ROOT/bases is also where this session leaves them.
set -uo pipefail

together=$1
shift
rows=("$@")
work=$ROOT/work
PLAN=${PLAN:-benchmarks/experiment/choose.yaml}
read -ra seeds <<< "${SEEDS:-1}"
num_gpus=$(nvidia-smi --list-gpus 2> /dev/null | wc -l)

ours() { "$PYTHON" -I -u -X utf8 cudal1/start.py "$@"; }
pipeline() { # SEED NAME ARGUMENT…
    local over=$work/seed-$1.yaml
    ours benchmarks.pipeline --simulated --settings one-gpu "$PLAN" "$over" \
        --work "$work/$1/$2" --out "$work/$1/$2/results" "${@:3}" >> "$ROOT/out/$1-$2.txt" 2>&1
    echo "seed $1, $2: exit code $? after $SECONDS s"
}
base() {
    local part
    for part in generate sft selfsup rl search evaluation; do echo "$part: {seed: $1}"; done \
        > "$work/seed-$1.yaml"
    mkdir -p "$work/$1"
    if [ -d "$ROOT/bases/$1" ]; then
        cp -rT "$ROOT/bases/$1" "$work/$1/base"
    else
        pipeline "$1" base --until selfsup
        mkdir -p "$ROOT/bases/$1"
        tar c -C "$work/$1/base" --exclude ./data/mlruns --exclude ./data/mlflow.db dvc.lock data |
            tar x -C "$ROOT/bases/$1"
        rm -r "$ROOT/bases/$1"/data/policy/{base,sft,r1}  # rows start from the last one
    fi
    rm -f "$work/$1/base/measured.json"  # a row lays its own settings over
}
row() { # SEED ROW
    local stages
    if [ ! -e "$work/$1/$2" ]; then  # a copy is there as a whole, or not at all
        rm -rf "$work/$1/$2.part"
        cp -rT "$work/$1/base" "$work/$1/$2.part" && mv -T "$work/$1/$2.part" "$work/$1/$2" || return
    fi
    stages=$("$PYTHON" -c "
import sys, yaml
plan, row = yaml.safe_load(open(sys.argv[1])), sys.argv[2]
if row in plan['ablation']['rows']:  # r2 is the policy that all rows start from
    print(f'ablation@{row}')
for method in plan['search']['methods']:
    if method.rpartition('-')[0] == row:
        print(f'search@{method}')" "$PLAN" "$2")
    # shellcheck disable=SC2086
    pipeline "$1" "$2" --stages $stages
}
table() {
    local seed folder folders=()
    for seed in "${seeds[@]}"; do
        for folder in "$work/$seed"/*/params.yaml; do folders+=("$seed=$(dirname "$folder")"); done
    done
    ours benchmarks.experiment.table --base plain-plain "${folders[@]}" --out "$ROOT/out/table.json"
}
# the next GPU, where there are several
deal() { if [ "$num_gpus" -gt 1 ]; then export CUDA_VISIBLE_DEVICES=$((started++ % num_gpus)); fi; }

"$PYTHON" -c "
import sys, yaml
known = {name.rpartition('-')[0] for name in yaml.safe_load(open(sys.argv[1]))['search']['methods']}
if unknown := set(sys.argv[2:]) - known:
    sys.exit(f'{sys.argv[1]}: no method asks {sorted(unknown)[0]}; there are {sorted(known)}')
" "$PLAN" "${rows[@]}" || exit
export OMP_NUM_THREADS=2
mkdir -p "$work" "$ROOT/out"
started=0
for seed in "${seeds[@]}"; do
    deal
    base "$seed" &
done
wait
running=0
for name in "${rows[@]}"; do
    for seed in "${seeds[@]}"; do
        deal
        row "$seed" "$name" &
        running=$((running + 1))
        if [ "$running" -ge "$together" ]; then wait -n && running=$((running - 1)); fi
    done
done
while wait -n; do table; done
table
echo "all rows after $SECONDS s"
touch "$ROOT/out/ended"
