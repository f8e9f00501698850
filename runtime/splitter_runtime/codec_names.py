"""Names that lead to nothing when they come from another process: what starts programs, loads or evaluates code, opens connections.

    runs_things("os", "system")              True
    runs_things("signal", "Signals")         False: members of enums, and records, are data wherever they are defined

A worker takes functions and classes by name from packages that it has. That is data as long as what is named only computes. The lists
are of Python's own modules and of those in torch and numpy that build, load or run programs.
"""

from __future__ import annotations

import enum
import sys
from functools import lru_cache

_BUILTINS = frozenset(
    "breakpoint compile delattr eval exec exit getattr globals help input locals open quit setattr vars __import__".split()
)
_MODULES = frozenset(
    # programs, processes, threads, the interpreter itself
    "_posixsubprocess _thread _xxsubinterpreters asyncio atexit concurrent faulthandler gc multiprocessing nt os posix pty resource sched"
    " signal subprocess sys threading tracemalloc"
    # code: loading, evaluating, building
    " _ctypes _imp _pickle antigravity bdb builtins cProfile code codeop compileall copyreg ctypes dis distutils doctest ensurepip idlelib"
    " imp importlib inspect lib2to3 marshal pdb pickle pickletools pkgutil profile py_compile pydoc runpy shelve site symtable sysconfig"
    " this timeit trace traceback turtle turtledemo unittest venv zipapp zipimport"
    # files, terminals and connections
    " _io _socket _sqlite3 _ssl cgi cmd codecs curses dbm fcntl fileinput ftplib http imaplib io linecache mailbox mmap nntplib poplib"
    " readline select selectors shutil smtpd smtplib socket socketserver sqlite3 ssl tarfile telnetlib tempfile termios tkinter tty"
    " webbrowser wsgiref xmlrpc zipfile".split()
)
_WITHIN = (
    "logging.config",
    "logging.handlers",
    "numpy.distutils",
    "numpy.f2py",
    "numpy.testing",
    "torch.distributed",
    "torch.hub",
    "torch.jit",
    "torch.multiprocessing",
    "torch.package",
    "torch.utils.collect_env",
    "torch.utils.cpp_extension",
    "torch.utils.model_zoo",
    "urllib.request",
)
_IN_MEMORY = frozenset({"BytesIO", "StringIO"})
_TYPES = frozenset({"CodeType", "FunctionType", "LambdaType", "MethodType", "ModuleType"})


@lru_cache(maxsize=4096)
def runs_things(module: str, name: str) -> bool:
    """Whether that function or class, or with name "" that module, is more than data and computing. Imports nothing."""
    package = module.partition(".")[0]
    if any(f"{module}.".startswith(f"{within}.") for within in _WITHIN):
        return True
    if package not in _MODULES:
        return module == "types" and name in _TYPES
    if name == "":
        return True
    found = vars(sys.modules[module]).get(name) if module in sys.modules else None
    if isinstance(found, type) and issubclass(found, (enum.Enum, tuple, BaseException)):
        return False
    if module == "builtins":
        return name.partition(".")[0] in _BUILTINS
    return not (package in ("io", "_io") and name in _IN_MEMORY)
