"""List actions for the code of an odd problem or candidate: raise, print, end, change globals."""

from __future__ import annotations

import builtins
from dataclasses import dataclass


@dataclass(frozen=True)
class Action:
    """Statements, one a line, that need only `os`, `sys` and `torch`."""

    name: str
    code: str
    ends: bool = False
    """True if nothing after it runs in any case."""
    is_harmless: bool = False
    """True if what comes after it is as it would be without."""
    tampers: bool = False
    stalls: bool = False


def _raised(name: str, code: str, top: str = "") -> Action:
    return Action(f"raises {name}", f"{top}\n{code}" if top else code, ends=True)


def _builtin(name: str) -> Action:
    special = {
        "UnicodeDecodeError": "UnicodeDecodeError('utf-8', b'x', 0, 1, 'said')",
        "UnicodeEncodeError": "UnicodeEncodeError('utf-8', 'x', 0, 1, 'said')",
        "UnicodeTranslateError": "UnicodeTranslateError('x', 0, 1, 'said')",
        "BaseExceptionGroup": "BaseExceptionGroup('said', [KeyboardInterrupt(), ValueError()])",
        "ExceptionGroup": "ExceptionGroup('said', [OSError(), ExceptionGroup('two', [OSError()])])",
    }
    return _raised(name, "raise " + special.get(name, f"{name}('said')"))


BUILTINS = sorted(
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
)
_OWN = "class Own({base}):\n    def {method}(self, *a):\n        raise {error}('within')"


def _own(method: str, base: str = "Exception", error: str = "ValueError") -> Action:
    return _raised(
        f"a {base} whose {method} raises {error}",
        "raise Own('said')",
        _OWN.format(base=base, method=method, error=error),
    )


RAISES = [
    *map(_builtin, BUILTINS),
    *map(_own, ("__str__", "__repr__", "__reduce__", "__reduce_ex__", "__getattribute__")),
    _own("__str__", error="SystemExit"),
    _own("__reduce_ex__", error="KeyboardInterrupt"),
    _own("__str__", base="RuntimeError", error="BaseException"),
    _own("__repr__", base="BaseException"),
    _own("__reduce__", base="BaseException"),
    _raised("a class of its own", "raise Own('said')", "class Own(Exception):\n    pass"),
    _raised(
        "one that needs arguments",
        "raise Own(1, 2)",
        "class Own(Exception):\n    def __init__(self, a, b):\n        super().__init__()",
    ),
    _raised(
        "one whose name lies",
        "raise Own('said')",
        "class Own(Exception):\n    __module__ = 'builtins'\n    __qualname__ = 'len'",
    ),
    _raised(
        "one that calls itself a worker's",
        "raise Own('said')",
        "class Own(Exception):\n    __module__ = 'cudal1.errors'\n"
        "    __qualname__ = 'DeviceLostError'",
    ),
    _raised(
        "our own DeviceLostError",
        "from cudal1.errors import DeviceLostError\nraise DeviceLostError('said')",
    ),
    _raised(
        "our own WorkerError", "from cudal1.errors import WorkerError\nraise WorkerError('said')"
    ),
    _raised("a lambda inside", "raise ValueError(lambda: 0, object(), torch.nn.ReLU())"),
    _raised("a huge message", "raise ValueError('x' * (1 << 24))"),
    _raised("many lines", "raise ValueError('a\\n' * 5000 + '\\r\\x1b[31mTraceback (most recent')"),
    _raised("binary", "raise ValueError(bytes(range(256)), '\\udcff\\x00\\x1b[2J')"),
    _raised("a traceback's words", "raise ValueError('Traceback (most recent call last):')"),
    _raised("recursion", "(f := lambda: f())()"),
    _raised(
        "a warning as an error",
        "import warnings\nwarnings.simplefilter('error')\nwarnings.warn('said')",
    ),
    _raised(
        "a chain",
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('later') from e",
    ),
    _raised(
        "a loop of causes",
        "e = ValueError('said')\ne.__cause__ = f = KeyError(e)\nf.__cause__ = e\nraise e",
    ),
    _raised("notes", "e = ValueError('said')\ne.add_note('x\\ny')\nraise e"),
    _raised("out of memory", "torch.empty(1 << 50)"),
    _raised("out of memory by name", "raise torch.OutOfMemoryError('CUDA out of memory.')"),
    _raised("what is no exception", "raise 3"),
    _raised("a lack of a module", "import no_such_module_of_anyone"),
    _raised("a lack of a file", "open('/no/such/file')"),
    _raised("a lack of an attribute", "torch.no_such_operator"),
    _raised("an operator's error", "torch.ones(2) @ torch.ones(3)"),
]
PRINTS = [
    Action("prints", "print('said', flush=True)", is_harmless=True),
    Action("prints JSON", "print('{\"reason\": null}', flush=True)", is_harmless=True),
    Action("writes to standard error", "print('Traceback', file=sys.stderr)", is_harmless=True),
    Action(
        "writes to both descriptors",
        "os.write(1, b'{\"reason\": null}\\n')\nos.write(2, b'said\\n')",
        is_harmless=True,
    ),
    Action(
        "prints from C",
        "import ctypes\nc = ctypes.CDLL(None)\nc.printf(b'said\\n')\nc.fflush(None)",
        is_harmless=True,
    ),
    Action("prints binary", "os.write(1, bytes(range(256)))", is_harmless=True),
    Action("prints an escape", "print('\\r\\x1b[2J\\x1b[1;31mINCORRECT')", is_harmless=True),
    Action("prints much", "[os.write(1, b'x' * 65536) for _ in range(64)]"),
    Action("warns", "import warnings\nwarnings.warn('said')", is_harmless=True),
    Action(
        "logs", "import logging\nlogging.basicConfig(level=0, force=True)\nlogging.error('said')"
    ),
    Action("closes standard output", "sys.stdout.close()", tampers=True),
    Action("replaces standard output", "sys.stdout = sys.stderr = None"),
    Action(
        "writes to all descriptors",
        "for n in range(3, 64):\n    try:\n"
        "        os.write(n, b'{\"reason\": null}\\n')\n    except OSError:\n        pass",
        tampers=True,
    ),
]
ENDS = [
    *(
        Action(f"sys.exit({value})", f"sys.exit({value})", ends=True)
        for value in ("", "0", "1", "'said\\nmore'", "None", "10 ** 30", "-1", "object()")
    ),
    *(Action(f"os._exit({value})", f"os._exit({value})", ends=True) for value in (0, 1, 2, 255)),
    *(
        Action(
            f"signals itself {value}",
            f"import signal\nos.kill(os.getpid(), signal.{value})",
            ends=value in ("SIGKILL", "SIGSEGV", "SIGFPE"),
        )
        for value in (
            "SIGTERM",
            "SIGKILL",
            "SIGSEGV",
            "SIGFPE",
            "SIGINT",
            "SIGHUP",
            "SIGALRM",
            "SIGUSR1",
            "SIGPIPE",
            "SIGCHLD",
        )
    ),
    Action("stops itself", "import signal\nos.kill(os.getpid(), signal.SIGSTOP)", stalls=True),
    Action("aborts", "os.abort()", ends=True),
    Action("reads address 0", "import ctypes\nctypes.string_at(0)", ends=True),
    Action(
        "kills its parent",
        "import signal\nif os.getppid() > 1:\n    os.kill(os.getppid(), signal.SIGKILL)",
        tampers=True,
    ),
    Action(
        "kills its group",
        "import signal\nif os.getpgid(0) == os.getpid():\n    os.killpg(0, signal.SIGKILL)",
    ),
    Action("becomes another program", "os.execv('/bin/true', ['true'])", ends=True),
    Action(
        "becomes a program that says much",
        "os.execv('/bin/echo', ['echo', '{\"reason\": null}'])",
        ends=True,
    ),
    Action("forks and goes on in both", "os.fork()", tampers=True),
    Action(
        "leaves a child behind",
        "if os.fork() == 0:\n    import time\n    time.sleep(3600)\n    os._exit(0)",
        tampers=True,
    ),
    Action(
        "leaves a session behind",
        "if os.fork() == 0:\n    os.setsid()\n"
        "    if os.fork() == 0:\n        import time\n        time.sleep(3600)\n"
        "    os._exit(0)",
        tampers=True,
    ),
    Action("closes all descriptors", "os.closerange(0, 4096)", tampers=True),
    Action("becomes a leader", "try:\n    os.setsid()\nexcept OSError:\n    pass", tampers=True),
    Action("loops for ever", "while True:\n    pass", ends=True, stalls=True),
    Action(
        "loops for ever in C",
        "import re\nre.match('(a+)+$', 'a' * 64 + 'b')",
        ends=True,
        stalls=True,
    ),
    Action(
        "loops deaf to everything",
        "while True:\n    try:\n        while True:\n"
        "            pass\n    except BaseException:\n        pass",
        ends=True,
        stalls=True,
    ),
    Action("sleeps for ever", "import time\ntime.sleep(1e6)", ends=True, stalls=True),
    Action("waits for input", "sys.stdin.read()"),
    Action(
        "waits for a lock",
        "import threading\nl = threading.Lock()\nl.acquire()\nl.acquire()",
        ends=True,
        stalls=True,
    ),
    Action("asks for a debugger", "breakpoint()"),
]
GLOBALS = [
    *(
        Action(f"patches {name}", f"{name} = {value}", tampers=True)
        for name, value in {
            "torch.tanh": "torch.sin",
            "torch.randn": "torch.zeros",
            "torch.no_grad": "None",
            "torch.manual_seed": "lambda *a: None",
            "torch.Tensor.clone": "lambda self: self",
            "torch.Tensor.__eq__": "lambda *a: True",
            "torch.Tensor.equal": "lambda *a: True",
            "torch.nn.Module.state_dict": "lambda *a, **k: {}",
            "torch.nn.Module.to": "None",
            "torch.nn.Module.__call__": "lambda *a: None",
            "torch.Tensor.double": "None",
            "torch.float32": "torch.float16",
            "torch.allclose": "lambda *a, **k: True",
            "sys.modules['json'].dumps": "lambda *a, **k: '{}'",
            "sys.exit": "print",
            "os._exit": "lambda *a: None",
            "os.write": "lambda *a: 0",
            "os.fork": "lambda: 0",
            "os.getpid": "lambda: 1",
            "sys.modules['pickle'].dumps": "None",
            "__builtins__['len']": "lambda *a: 1",
            "__builtins__['isinstance']": "lambda *a: True",
            "__builtins__['__import__']": "None",
            "__builtins__['open']": "None",
            "__builtins__['print']": "None",
            "sys.stdout": "None",
            "sys.path": "[]",
            "sys.excepthook": "lambda *a: print('said')",
            "sys.modules['torch']": "None",
            "sys.modules['time'].monotonic": "lambda: 0.0",
            "Exception": "BaseException",
        }.items()
    ),
    Action("clears sys.modules", "sys.modules.clear()", tampers=True),
    Action("default dtype float64", "torch.set_default_dtype(torch.float64)", tampers=True),
    Action("default dtype half", "torch.set_default_dtype(torch.float16)", tampers=True),
    Action("default device meta", "torch.set_default_device('meta')", tampers=True),
    Action("gradients off", "torch.set_grad_enabled(False)", is_harmless=True),
    Action("gradients on", "torch.set_grad_enabled(True)"),
    Action(
        "deterministic algorithms", "torch.use_deterministic_algorithms(True)", is_harmless=True
    ),
    Action("many threads", "torch.set_num_threads(4)"),
    Action("flushes denormals", "torch.set_flush_denormal(True)"),
    Action("recursion limit", "sys.setrecursionlimit(60)", tampers=True),
    Action("warnings as errors", "import warnings\nwarnings.simplefilter('error')"),
    Action("environment", "os.environ['TORCH_LOGS'] = '+all'\nos.environ.pop('PATH', None)"),
    Action("clears the environment", "os.environ.clear()", tampers=True),
    Action("import path", "sys.path.insert(0, os.getcwd())", is_harmless=True),
    Action("other folder", "os.chdir('/')"),
    Action(
        "removes its folder",
        "import shutil\nshutil.rmtree(os.getcwd()) if 'cudal1-' in os.getcwd() else None",
    ),
    Action("writes beside itself", "open('left.txt', 'w').write('x')"),
    Action("locale", "import locale\nlocale.setlocale(locale.LC_ALL, 'C')"),
    Action("seeds", "import random\ntorch.manual_seed(7)\nrandom.seed(7)"),
    Action(
        "few descriptors",
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))",
        tampers=True,
    ),
    Action(
        "little memory",
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))",
        tampers=True,
    ),
    Action(
        "no files",
        "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))",
        tampers=True,
    ),
    Action(
        "one second of CPU",
        "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 1))",
        tampers=True,
    ),
    Action(
        "no processes",
        "import resource\nresource.setrlimit(resource.RLIMIT_NPROC, (1, 1))",
        tampers=True,
    ),
    Action(
        "ignores signals",
        "import signal\nfor s in (2, 13, 15, 17):\n    signal.signal(s, signal.SIG_IGN)",
        tampers=True,
    ),
    Action("an alarm", "import signal\nsignal.alarm(1)", tampers=True),
    Action(
        "a handler that raises",
        "import signal\nsignal.signal(signal.SIGALRM, lambda *a: 1 / 0)\nsignal.setitimer(0, 0.05)",
        tampers=True,
    ),
    Action(
        "a thread that waits",
        "import threading, time\nthreading.Thread("
        "target=time.sleep, args=(3600,), daemon=True).start()",
    ),
    Action(
        "a thread that stays",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(3600,)).start()",
    ),
    Action(
        "a thread that raises", "import threading\nthreading.Thread(target=lambda: 1 / 0).start()"
    ),
    Action(
        "a thread that ends it",
        "import threading\nthreading.Timer(0.2, lambda: os._exit(3)).start()",
        tampers=True,
    ),
    Action("at exit", "import atexit\natexit.register(lambda: 1 / 0)"),
    Action("hangs at exit", "import atexit, time\natexit.register(time.sleep, 3600)"),
    Action("a trace", "sys.settrace(lambda *a: None)"),
    Action("a profile that raises", "sys.setprofile(lambda *a: 1 / 0)", tampers=True),
    Action("an audit hook that raises", "sys.addaudithook(lambda *a: 1 / 0)", tampers=True),
    Action("no garbage collector", "import gc\ngc.disable()\ngc.freeze()"),
    Action(
        "a function mode",
        "from torch.overrides import TorchFunctionMode\nTorchFunctionMode().__enter__()",
        tampers=True,
    ),
    Action(
        "a dispatch mode",
        "from torch.utils._python_dispatch import TorchDispatchMode\n"
        "TorchDispatchMode().__enter__()",
        tampers=True,
    ),
    Action("anomaly mode", "torch.autograd.set_detect_anomaly(True)"),
    Action("inference mode", "torch.inference_mode().__enter__()", tampers=True),
    Action("compiles", "torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2))"),
]
ACTIONS = {"raise": RAISES, "print": PRINTS, "end": ENDS, "global": GLOBALS}
PLAIN_ERRORS = {name for name in BUILTINS if issubclass(getattr(builtins, name), Exception)} - {
    "MemoryError"
}
"""Errors by which a reference tells an oracle that it does not accept a family of inputs."""
