"""Make folders and environments that would steer a program that trusted them."""

from __future__ import annotations

import sys
import sysconfig
from importlib.metadata import packages_distributions
from pathlib import Path

MARKING = """if __name__ != "candidate":
    with open({mark!r}, "a") as mark:
        mark.write(__name__ + "\\n")
"""
"""Source that leaves a mark; a worker imports a candidate as `candidate` and cannot write."""
STARTING = ("sitecustomize", "usercustomize", "conftest", "cudal1", "tasks", "flows", "candidate")
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")

MODULES = """statistics random queue copy json signal typing contextlib functools types logging
    subprocess tempfile socket sqlite3 yaml prefect mlflow dvc duckdb polars pyarrow httpx uvicorn
    fastapi pydantic pydantic_settings sqlalchemy numpy torch psutil networkx rich dotenv conftest
    sitecustomize usercustomize""".split()
"""Modules of the standard library and of every kind of dependency; interpreters run the last two
first."""
SETTINGS = {
    "prefect.toml": '[api]\nurl = "http://127.0.0.1:9/api"\n[logging]\nlevel = "DEBUG"\n',
    ".env": "PREFECT_API_URL=http://127.0.0.1:9/api\nPREFECT_PROFILES_PATH=/nowhere/profiles\n",
    "alembic.ini": "bad",
    ".prefectignore": "*\n",
    "MLproject": "name: theirs\n",
}
PYPROJECT = '\n[tool.prefect.api]\nurl = "http://127.0.0.1:9/api"\n'
VARIABLES = {
    "PREFECT_API_URL": "http://127.0.0.1:9/api",
    "PREFECT_PROFILE": "theirs",
    "PREFECT_HOME": "/nowhere",
    "MLFLOW_TRACKING_URI": "http://127.0.0.1:9",
    "MLFLOW_RUN_ID": "0",
    "MLFLOW_EXPERIMENT_NAME": "theirs",
    "DVC_ROOT": "/nowhere",
    "DVC_SITE_CACHE_DIR": "/proc/no",
    "GIT_DIR": "/nowhere",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "all_proxy": "socks://127.0.0.1:9",
    "ALL_PROXY": "weird://nowhere",
    "LC_ALL": "C",
    "LANG": "zz_ZZ.nothing",
    "PYTHONUSERBASE": "/nowhere",
    "PYTHONOPTIMIZE": "2",
}
"""Variables that steer programs; an interpreter still starts with them."""
STEERING = {
    **VARIABLES,
    "PYTHONHOME": "/nonexistent",
    "PYTHONWARNINGS": "error",
    "LANGUAGE": "tr",
    "PYTHONBREAKPOINT": "os.abort",
    "PYTHONINSPECT": "1",
    "PYTHONUTF8": "0",
    "PYTHONHASHSEED": "no number",
    "TORCH_LOGS": "+all",
    "TORCH_COMPILE_DEBUG": "1",
    "OMP_NUM_THREADS": "no number",
    "PYDANTIC_DISABLE_PLUGINS": "x",
    "COVERAGE_PROCESS_START": "/nonexistent",
    "BASH_ENV": "/nonexistent",
    "ENV": "/nonexistent",
}


def make_hostile(folder: Path, note: Path) -> None:
    """Put settings and modules into a folder; each module writes its name into a file."""
    code = f"open({str(note)!r}, 'a').write(__name__ + '\\n')\nraise SystemExit('steered')\n"
    for number, name in enumerate(MODULES):
        path = folder / (f"{name}/__init__.py" if number % 2 else f"{name}.py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(code)
    for name, content in SETTINGS.items():
        (folder / name).write_text(content)
    with (folder / "pyproject.toml").open("a") as file:
        file.write(PYPROJECT)


def _names() -> list[str]:
    """Return the name of every module of the standard library, and of every installed package."""
    installed = {name for name in packages_distributions() if name.isidentifier()}
    return sorted({*sys.stdlib_module_names, *installed, *STARTING})


def fill(folder: Path, mark: Path) -> None:
    """Put modules of every name, packages, extensions and settings into a folder.

    Each leaves its name in the file `mark` when any process imports it. An interpreter that has all
    of them before its own library does not even start.
    """
    text = MARKING.format(mark=str(mark))
    for number, name in enumerate(_names()):
        (folder / f"{name}.py").write_text(text)
        if number % 3 == 0:
            (folder / name).mkdir()
            (folder / name / "__init__.py").write_text(text)
        elif number % 3 == 1:
            (folder / f"{name}{SUFFIX}").write_text("no extension")
    (folder / "torch").mkdir(exist_ok=True)
    (folder / "torch" / "_dynamo.py").write_text(text)
    (folder / "numpy_namespace").mkdir()
    (folder / "evil.pth").write_text(f"import os; open({str(mark)!r}, 'a').write('pth\\n')\n")
    for name, content in SETTINGS.items():
        (folder / name).write_text(content)
    (folder / "params.yaml").write_text("protocol: {name: http, port: 80}\n")
    (folder / "pyproject.toml").write_text(PYPROJECT)
