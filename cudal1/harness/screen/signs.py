"""The signs that the screen looks for: names, their kinds, and their severity.

Threat: no sign is a proof, and a source without signs is not proven innocent. The kinds are those
that public screens know (KernelGuard's rules among them), as far as names show them; the rest needs
the reviewer.
"""

from __future__ import annotations

from enum import IntEnum


class Severity(IntEnum):
    """The urgency of a look by a person or a model; it never decides anything."""

    NOTE = 1
    """Ordinary code has the sign, too; worth a word beside the verdict."""
    LOOK = 2
    """The sign has honest uses, and known cheats work by it."""
    ALARM = 3
    """No kernel needs the sign."""


SEVERITIES: dict[str, Severity] = {
    "patched_runtime": Severity.ALARM,
    "introspection": Severity.ALARM,
    "subprocess": Severity.ALARM,
    "network": Severity.ALARM,
    "process_memory": Severity.ALARM,
    "harness_access": Severity.ALARM,
    "native_code_patch": Severity.ALARM,
    "token_pasting": Severity.ALARM,
    "other_text": Severity.ALARM,
    "reordered_text": Severity.ALARM,
    "dynamic_code": Severity.LOOK,
    "native_memory": Severity.LOOK,
    "background_thread": Severity.LOOK,
    "extra_stream": Severity.LOOK,
    "captured_graph": Severity.LOOK,
    "pointer_cache": Severity.LOOK,
    "call_counter": Severity.LOOK,
    "tensor_subclass": Severity.LOOK,
    "file_access": Severity.LOOK,
    "persisting_cache": Severity.LOOK,
    "unparsed": Severity.LOOK,
    "hidden_text": Severity.LOOK,
    "misleading_name": Severity.LOOK,
    "uninitialised_output": Severity.NOTE,
    "lower_precision": Severity.NOTE,
    "fallback": Severity.NOTE,
    "clock_read": Severity.NOTE,
}

NAMES: dict[str, tuple[str, ...]] = {
    "introspection": (
        "sys._getframe",
        "sys._current_frames",
        "sys.settrace",
        "sys.setprofile",
        "inspect.stack",
        "inspect.currentframe",
        "inspect.getouterframes",
        "gc.get_objects",
        "gc.get_referrers",
        "gc.get_referents",
        "sys.modules",
        "traceback.walk_stack",
    ),
    "subprocess": (
        "subprocess",
        "os.system",
        "os.popen",
        "os.fork",
        "os.forkpty",
        "os.kill",
        "os.killpg",
        "os.execv",
        "os.execve",
        "os.execvp",
        "os.posix_spawn",
        "os.spawnv",
        "os._exit",
        "os.dup2",
        "signal.setitimer",
        "signal.pthread_kill",
        "multiprocessing",
        "pty.spawn",
    ),
    "network": (
        "socket.socket",
        "socket.create_connection",
        "socket.socketpair",
        "urllib.request",
        "requests",
        "http.client",
        "ftplib",
        "pip.main",
    ),
    "native_code_patch": ("mmap.PROT_EXEC",),
    "dynamic_code": (
        "exec",
        "eval",
        "compile",
        "__import__",
        "importlib.import_module",
        "marshal.loads",
        "types.CodeType",
        "pickle.loads",
        "globals",
    ),
    "native_memory": ("ctypes", "cffi", "mmap.mmap"),
    "background_thread": (
        "threading.Thread",
        "threading.Timer",
        "_thread.start_new_thread",
        "concurrent.futures",
        "asyncio.to_thread",
    ),
    "extra_stream": (
        "torch.cuda.Stream",
        "torch.cuda.stream",
        "torch.cuda.ExternalStream",
        "cudal1.harness.worker.fake.Stream",
    ),
    "captured_graph": (
        "torch.cuda.CUDAGraph",
        "torch.cuda.graph",
        "torch.cuda.make_graphed_callables",
        "cudal1.harness.worker.fake.capture",
    ),
    "tensor_subclass": (
        "torch.overrides.TorchFunctionMode",
        "torch.utils._python_dispatch.TorchDispatchMode",
        "torch._C.DisableTorchFunctionSubclass",
    ),
    "file_access": (
        "open",
        "os.open",
        "io.open",
        "os.listdir",
        "pathlib.Path",
        "torch.save",
        "torch.load",
        "numpy.load",
        "numpy.save",
        "shutil",
        "tempfile",
    ),
    "pointer_cache": ("id",),
    "lower_precision": (
        "torch.float16",
        "torch.bfloat16",
        "torch.half",
        "torch.autocast",
        "torch.cuda.amp",
        "torch.set_float32_matmul_precision",
        "torch.float8_e4m3fn",
        "torch.float8_e5m2",
    ),
    "clock_read": (
        "time.time",
        "time.perf_counter",
        "time.perf_counter_ns",
        "time.monotonic",
        "time.process_time",
        "torch.cuda.Event",
    ),
}
"""Names that are signs, after imports are resolved; names inside of them are signs, too."""

ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "pointer_cache": ("data_ptr", "untyped_storage", "_version"),
    "lower_precision": ("half", "bfloat16", "allow_tf32"),
    "introspection": ("f_locals", "f_globals", "f_back", "gi_frame", "tb_frame", "__subclasses__"),
    "native_code_patch": ("mprotect",),
    "tensor_subclass": ("__torch_function__", "__torch_dispatch__", "as_subclass"),
    "captured_graph": ("replay",),
    "dynamic_code": ("__globals__", "__code__"),
}
"""Attributes that are signs on any object."""

TEXTS: dict[str, str] = {
    "process_memory": r"/proc/|/dev/shm",
    "subprocess": r"\bpip\d? install\b",
    "token_pasting": r"\w\s*##\s*\w",
    "extra_stream": r"\bcudaStreamCreate\w*|\bhipStreamCreate\w*",
    "background_thread": r"\bpthread_create\b|\bstd::(?:j?thread|async)\b",
    "captured_graph": r"\bcudaGraphLaunch\b|\bcudaStreamBeginCapture\b",
    "native_code_patch": r"\bmprotect\b|\bPROT_EXEC\b",
    "persisting_cache": r"\bcudaLimitPersistingL2CacheSize\b|\baccessPolicyWindow\b",
}
"""Patterns inside strings that are not docstrings, C++ and CUDA sources among them."""

PATCHABLE = (
    "time",
    "torch",
    "builtins",
    "statistics",
    "math",
    "os",
    "sys",
    "gc",
    "numpy",
    "random",
    "json",
)
"""Modules with attributes that a source should not set, apart from these switches."""
SWITCHES = ("torch.backends", "torch._dynamo.config", "torch._inductor.config")
