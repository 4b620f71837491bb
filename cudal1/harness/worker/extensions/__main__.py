"""Compile what `g++` and `nvcc` beside this file ask for, in a process of its own.

The folder is run by an interpreter without our package or site-packages. So the folder is a package
of its own here, found in the folder above.
"""

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    folder = Path(__file__).absolute().parent
    sys.path[0] = str(folder.parent)
    compiling = import_module(f"{folder.name}.compile")
    sys.exit(compiling.main(sys.argv[1], sys.argv[2:]))
