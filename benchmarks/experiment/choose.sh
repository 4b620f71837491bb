#!/usr/bin/env bash
# Compare rows of choose.yaml with made-up speeds, several beside each other; each in a copy of one
# run of stages 1 and 2. $ROOT/out has logs, ledgers' exports and the table so far.
#
#   bash benchmarks/experiment/choose.sh TOGETHER ROW…
set -uo pipefail

together=$1
shift
here=$ROOT/work
pipeline() {
    "$PYTHON" -I -u -X utf8 cudal1/start.py benchmarks.pipeline --simulated \
        --settings one-gpu benchmarks/experiment/choose.yaml --out "$here/results" "$@"
}
table() {
    local folder folders=()
    for folder in "$here"/*/data; do folders+=("1=$(dirname "$folder")"); done
    "$PYTHON" -I -u -X utf8 cudal1/start.py benchmarks.experiment.table \
        --base plain-plain "${folders[@]}" --out "$ROOT/out/table.json"
}
one() {
    local row=$1 methods
    cp -r "$here/base" "$here/$row"
    methods=$("$PYTHON" -c "
import sys, yaml
methods = yaml.safe_load(open('benchmarks/experiment/choose.yaml'))['search']['methods']
print(*(f'search@{name}' for name in methods if name.rpartition('-')[0] == sys.argv[1]))" "$row")
    # r2 is the policy that all rows start from
    if [ "$row" != r2 ]; then methods="ablation@$row $methods"; fi
    # shellcheck disable=SC2086
    pipeline --work "$here/$row" --stages $methods > "$ROOT/out/$row.txt" 2>&1
    echo "$row: $? after $SECONDS s"
}
export OMP_NUM_THREADS=2
mkdir -p "$here"
pipeline --work "$here/base" --until selfsup > "$ROOT/out/base.txt" 2>&1
echo "base: $? after $SECONDS s"
running=0
for row in "$@"; do
    one "$row" &
    running=$((running + 1))
    if [ "$running" -ge "$together" ]; then wait -n && running=$((running - 1)); fi
done
while wait -n; do table; done
table
echo "all rows after $SECONDS s"
touch "$ROOT/out/ended"
