"""Compile as `g++` and `nvcc` beside this file ask for it, in a process of its own.

Run as a folder, by an interpreter without our package or site-packages: so this folder is a package
of its own here, found in the one above.
"""

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    folder = Path(__file__).absolute().parent
    sys.path[0] = str(folder.parent)
    compiling = import_module(f"{folder.name}.compile")
    sys.exit(compiling.main(sys.argv[1], sys.argv[2:]))
