"""Run the paper's ablation in pieces that resume, make its tables, and carry its state.

python -m benchmarks.ablation run|table|pack|unpack --plan PLAN --state DIR [--minutes M]

`run` continues the state in its folder, and stops in time: a GPU machine is lent for minutes. Seeds
have nothing in common but the base policy. With `--seeds`, several GPUs run them side by side, each
in a state of its own, and `table` takes all of these. `pack` and `unpack` take a state from one
machine to the next.

benchmarks/ablation/README.md has the plan of the whole, with its minutes. `lent.sh` beside it does
all that on a machine that is lent.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import common
from benchmarks.ablation import answers, carry, diagnosis, gains, table
from benchmarks.ablation import plan as plans
from benchmarks.ablation.judges import Bench, HarnessJudge, Judge, TimeUp
from benchmarks.ablation.memory import Lines, Memory
from benchmarks.ablation.plan import JudgeKind, Plan
from benchmarks.ablation.rows import Experiment
from benchmarks.ablation.simulated import SimulatedJudge
from benchmarks.arguments import Parser
from cudal1.errors import ConfigError, CudaL1Error
from cudal1.harness.device.device import Device

MACHINES = "machines.jsonl"
"""File in a state folder with every machine that worked on the state."""


def main() -> None:
    """Do what the command line says."""
    try:
        _do(_arguments())
    except CudaL1Error as error:
        sys.exit(str(error))


def _do(given: argparse.Namespace) -> None:
    plan = plans.load(given.plan)
    if given.seeds:
        plan = plan.model_copy(update={"seeds": tuple(given.seeds)})
    state = given.state[0]
    match given.command:
        case "run":
            run(plan, state, minutes=given.minutes)
            show(plan, [state])
        case "table":
            show(plan, given.state)
        case "pack":
            pieces = carry.pack(plan, state, given.carried)
            print(f"{len(pieces)} pieces, {sum(p.stat().st_size for p in pieces) / 1e6:.1f} MB")
        case _:
            carry.unpack(given.carried, state)


def run(plan: Plan, state: Path, *, minutes: float) -> bool:
    """Continue for `minutes`; return whether everything is done."""
    started = time.monotonic()

    def say(text: str) -> None:
        line = f"[{time.monotonic() - started:6.1f} s] {text}"
        print(line, flush=True)
        with (state / "log.txt").open("a", encoding="utf-8") as log:
            log.write(line + "\n")

    state.mkdir(parents=True, exist_ok=True)
    judge = _judge(plan)
    try:
        if isinstance(judge, HarnessJudge):
            note_machine(judge.device, judge.protocol.id, state)
        bench = Bench(
            Memory(state), judge, time_left_s=lambda: 60 * minutes - time.monotonic() + started
        )
        Experiment(plan, state, bench, say).run()
    except TimeUp:
        say("time is up; run again to go on")
        return False
    finally:
        judge.close()
    say("all rows are done")
    return True


def note_machine(device: Device, protocol_id: str, state: Path) -> None:
    """Note what figures depend on; a state may go from one machine to another of its kind.

    Raises:
        ConfigError: its verdicts are of another kind of device, another protocol or version of the
            harness, or of unknown ones.
    """
    mine = {**common.machine(device), "protocol_id": protocol_id}
    known = _machines(state)
    if not known and _lines(state / "judged.jsonl"):
        raise ConfigError(f"{state}: has verdicts and no {MACHINES} to say whose: begin another")
    for other in known:
        for name in ("device", "protocol_id"):
            if other.get(name) != mine[name]:
                raise ConfigError(
                    f"{state}: was judged with {name} {other.get(name)}, this is {mine[name]}: "
                    "begin another state"
                )
    if mine not in known:
        Lines(state / MACHINES).add(mine)


def _machines(state: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _lines(state / MACHINES)]


def _lines(path: Path) -> list[str]:
    """Return the lines that no kill has cut off."""
    content = path.read_text(encoding="utf-8") if path.exists() else ""
    return content.rpartition("\n")[0].splitlines()


def _judge(plan: Plan) -> Judge:
    if plan.judge is JudgeKind.SIMULATED:
        return SimulatedJudge()
    return HarnessJudge(plan.device, plan.protocol)


def show(plan: Plan, states: Sequence[Path]) -> None:
    """Print the tables; write table.json, table.md and answers.json to the first state."""
    found, state = table.collect(plan, states), states[0]
    gained = gains.collect(plan, states)
    parts = (
        table.caption(plan),
        table.markdown(found, plan),
        gains.markdown(gained),
        diagnosis.markdown(plan, states),
    )
    text = "\n\n".join(part for part in parts if part)
    print(text)
    curves = table.curves(states)
    for name, curve in curves.items():
        print(f"{name}: mean reward in training {' '.join(f'{each:.2f}' for each in curve)}")
    (state / "table.md").write_text(text + "\n", encoding="utf-8")
    content = {
        "title": plan.title,
        "machines": [_machines(each) for each in states],
        "rows": found,
        "gains": [asdict(gain) for gain in gained],
        "curves": curves,
        "steps": diagnosis.runs(plan, states),
        "plan": plan.model_dump(mode="json"),
    }
    (state / "table.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    small = json.dumps(answers.shrink(plan, states), separators=(",", ":"))
    (state / "answers.json").write_text(small + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = Parser(prog="python -m benchmarks.ablation", description=__doc__)
    parser.add_argument("command", choices=["run", "table", "pack", "unpack"])
    parser.add_argument("--plan", default="gpu", help="a name beside plan.py, or a YAML file")
    parser.add_argument(
        "--state", type=Path, nargs="+", required=True, help="a folder; table: or several"
    )
    parser.add_argument("--seeds", type=int, nargs="+", help="these alone; default: the plan's")
    parser.add_argument("--minutes", type=float, default=8.5, help="stop in time")
    parser.add_argument("--carried", type=Path, help="pack, unpack: the folder of the pieces")
    given = parser.parse_args()
    if len(given.state) > 1 and given.command != "table":
        parser.error(f"--state: {given.command} takes one folder")
    if given.carried is None and given.command in ("pack", "unpack"):
        parser.error(f"{given.command}: name the folder of the pieces, --carried")
    return given


if __name__ == "__main__":
    main()
