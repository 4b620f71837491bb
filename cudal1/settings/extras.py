"""The extras of cudal1: its optional parts, by the packages that they install.

`pip install cudal1` installs the packages for judging, screening and reporting. pyproject.toml
lists the packages of each extra; a test compares it with the names here.
"""

from __future__ import annotations

EXTRA_OF = {
    **dict.fromkeys("altair duckdb fsspec jinja2 markupsafe mlflow optuna".split(), "pipeline"),
    **dict.fromkeys("pyarrow ruamel ruff sqlalchemy vl_convert".split(), "pipeline"),
    **dict.fromkeys("datasets peft safetensors tokenizers transformers trl".split(), "train"),
    **dict.fromkeys("aiolimiter httpx2 openai".split(), "providers"),
    **dict.fromkeys("fastapi h11 prometheus_client starlette uvicorn".split(), "serve"),
    "ray": "cluster",
    "pytest": "dev",  # only pytest itself loads the plugin
}
"""Names that modules of cudal1 import, and the extra that installs each."""


def remedy(module: str) -> str | None:
    """Return how to install a module that cannot be imported; None if it is of no extra."""
    extra = EXTRA_OF.get(module.partition(".")[0])
    return None if extra is None else f"needs the extra {extra}: pip install 'cudal1[{extra}]'"
