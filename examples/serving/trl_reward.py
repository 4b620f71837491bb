"""TRL: train on the judge's verdicts. Columns of the data set: `prompt`, `key`.

CUDAL1_URL=http://127.0.0.1:8088 CUDAL1_TOKEN=… python trl_reward.py
"""

import os

from cudal1.serving.trainer import KernelTasks

tasks = KernelTasks(os.environ["CUDAL1_URL"], os.environ["CUDAL1_TOKEN"])


def certified_speedup(completions, key, **_):
    """Return the certified speedup of each completion, 0 for one that is not correct.

    A completion is a text, or messages where the prompt is messages.
    """
    texts = [each if isinstance(each, str) else each[-1]["content"] for each in completions]
    return tasks.rewards(key, texts)


if __name__ == "__main__":
    from datasets import Dataset
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    rows = [
        {"prompt": [{"role": "user", "content": tasks.prompt(key)}], "key": key}
        for key in tasks.keys()  # noqa: SIM118
    ]
    GRPOTrainer(
        model=os.environ.get("MODEL", "Qwen/Qwen2.5-Coder-1.5B-Instruct"),
        reward_funcs=certified_speedup,
        args=GRPOConfig(output_dir="trained"),
        train_dataset=Dataset.from_list(rows),
    ).train()
