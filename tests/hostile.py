"""A folder and an environment that would steer a program that trusted them."""

from __future__ import annotations

from pathlib import Path

MODULES = """statistics random queue copy json signal typing contextlib functools types logging
    subprocess tempfile socket sqlite3 yaml prefect mlflow dvc duckdb polars pyarrow httpx uvicorn
    fastapi pydantic pydantic_settings sqlalchemy numpy torch psutil networkx rich dotenv conftest
    sitecustomize usercustomize""".split()
"""Of the standard library and of every kind of dependency, and what interpreters run first."""
SETTINGS = {
    "prefect.toml": '[api]\nurl = "http://127.0.0.1:9/api"\n[logging]\nlevel = "DEBUG"\n',
    ".env": "PREFECT_API_URL=http://127.0.0.1:9/api\nPREFECT_PROFILES_PATH=/nowhere/profiles\n",
    "alembic.ini": "bad", ".prefectignore": "*\n", "MLproject": "name: theirs\n",
}  # fmt: skip
VARIABLES = {
    "PREFECT_API_URL": "http://127.0.0.1:9/api", "PREFECT_PROFILE": "theirs",
    "PREFECT_HOME": "/nowhere", "MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "MLFLOW_RUN_ID": "0",
    "MLFLOW_EXPERIMENT_NAME": "theirs", "DVC_ROOT": "/nowhere", "DVC_SITE_CACHE_DIR": "/proc/no",
    "GIT_DIR": "/nowhere", "HTTP_PROXY": "http://127.0.0.1:9", "all_proxy": "socks://127.0.0.1:9",
    "ALL_PROXY": "weird://nowhere", "LC_ALL": "C", "LANG": "zz_ZZ.nothing",
    "PYTHONUSERBASE": "/nowhere", "PYTHONOPTIMIZE": "2",
}  # fmt: skip


def make_hostile(folder: Path, note: Path) -> None:
    """Put modules into a folder that write their names into a file, and settings of others."""
    code = f"open({str(note)!r}, 'a').write(__name__ + '\\n')\nraise SystemExit('steered')\n"
    for number, name in enumerate(MODULES):
        path = folder / (f"{name}/__init__.py" if number % 2 else f"{name}.py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(code)
    for name, content in SETTINGS.items():
        (folder / name).write_text(content)
    with (folder / "pyproject.toml").open("a") as file:
        file.write('\n[tool.prefect.api]\nurl = "http://127.0.0.1:9/api"\n')
