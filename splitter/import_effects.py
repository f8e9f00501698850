"""What a module does when it is imported: both programs import the modules that moved code needs, so nothing of it may show.

CHOICES.append("dali")                        may: each program has a CHOICES of its own
NUMBERS = inflect.engine()                    may: makes an object
SEED = os.environ.get("SEED")                 may: moved code that reads SEED is refused for itself
args = parser.parse_args()                    may not: the worker has other arguments
print("loading")                              may: a worker's own standard output is shown to nobody while it is imported
download(URL), train()                        may not
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

from splitter.effects import Effects, Fact
from splitter.flow import blocks
from splitter.knowledge import MUTATORS, known, row
from splitter.read import Module, Program, names_in
from splitter.resolve import Definition, Library, Target, Value, default

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
HEAVY = frozenset({"draws", "reseeds", "device", "model", "gradient", "writes-file"})
# Calls for their effect that only this process sees.
SWITCHES = tuple(
    """logging. warnings. sys.path. matplotlib.use matplotlib.rcParams matplotlib.pyplot.switch_backend matplotlib.pyplot.style
numpy.seterr numpy.set_printoptions pandas.set_option pandas.options torch.multiprocessing.set_sharing_strategy sys.setrecursionlimit
torch.multiprocessing.set_start_method multiprocessing.set_start_method cv2.setNumThreads cv2.ocl. cv2.setUseOptimized gc.
locale.setlocale os.environ. collections. builtins.setattr builtins.super builtins.isinstance torch.serialization.add_safe_globals
yaml.add_constructor yaml.add_representer csv.field_size_limit faulthandler. mimetypes. tqdm.tqdm.pandas tqdm.auto.tqdm.pandas
builtins.print sys.stdout.
torchvision.disable_beta_transforms_warning torchvision.set_image_backend torchaudio.set_audio_backend copyreg.pickle""".split()
)
CONTAINERS = ("builtins.", "collections.", "typing.")  # what they make is changed by MUTATORS
SAYS = frozenset("debug info warning error critical exception log".split())
# What is asked of the machine or the environment without a trace.
LOOKS = tuple(
    "torch.cuda.is_available torch.cuda.device_count socket.gethostname os.environ os.getenv os.getpid multiprocessing.cpu_count".split()
)
LEAVES = ("builtins.input", "tempfile", "socket", "getpass", "secrets")
# Names of what reaches out of the process, or takes numbers from generators, in libraries that the tables don't know.
REACHES_OUT = re.compile(
    r"load|download|fetch|request|open|connect|init|login|start|run|launch|train|seed|rand|sample|shuffle|creat|pretrained|write|save"
    r"|remove|delete|exec|system|spawn|server|client|session|model|net|http|url|ftp|mail|cloud|storage|bucket|db|sql|cuda|gpu|device"
    r"|thread|process|pool|track|monitor|wandb|mlflow|comet|neptune|clearml|ray|dask|spark|tensorflow|jax|horovod|apex|deepspeed",
    re.IGNORECASE,
)


def import_effect(effects: Effects, module: Module) -> ast.stmt | None:
    """The first statement of a module that does more than define things when it is imported."""
    if module.name not in effects.imports:
        effects.imports[module.name] = _Importing(effects).first(module, module.tree.body)
    return effects.imports[module.name]


def imported_along(program: Program, module: Module) -> Iterator[Module]:
    """The local modules that are imported when `module` is: the packages that it is in, and what its top level imports."""
    parts = module.name.split(".")
    names = [".".join(parts[:count]) for count in range(1, len(parts))]
    pending = list(module.tree.body)
    while pending:
        stmt = pending.pop()
        if isinstance(stmt, (ast.Import, ast.ImportFrom)):
            names += names_in(stmt, module.package)
        elif not isinstance(stmt, FUNCTIONS) and not (isinstance(stmt, ast.If) and (_guards(stmt) or _for_checkers(stmt))):
            pending += [inner for block in blocks(stmt) for inner in block]
    yield from (program.modules[name] for name in dict.fromkeys(names) if name in program.modules)


class _Importing:
    def __init__(self, effects: Effects) -> None:
        self.effects = effects
        self.resolver = effects.resolver
        self.seen: set[int] = set()

    def first(self, module: Module, body: list[ast.stmt]) -> ast.stmt | None:
        for stmt in body:
            if isinstance(stmt, ast.If) and _guards(stmt):
                continue
            if isinstance(stmt, (ast.If, ast.Try, ast.With, ast.For)):
                if not self._head(module, stmt):
                    return stmt
                inner = next((found for block in blocks(stmt) if (found := self.first(module, block)) is not None), None)
                if inner is not None:
                    return inner
            elif not self._harmless(module, stmt):
                return stmt
        return None

    def _head(self, module: Module, stmt: ast.stmt) -> bool:
        """What a compound statement computes before its blocks."""
        if isinstance(stmt, ast.If):
            asks = any(fact.effect == "unstable" for fact in self._facts(module, stmt.test))
            return self._quiet(module, stmt.test) and (not asks or self._marked(module, stmt))
        if isinstance(stmt, ast.With):
            return all(self._entered(module, item.context_expr) for item in stmt.items)
        return self._quiet(module, stmt.iter) if isinstance(stmt, ast.For) else True

    def _marked(self, module: Module, stmt: ast.If) -> bool:
        """An `if` on the environment that only sets names, each to a value of the environment in one of its branches.

        Moved code that reads such a name is refused for that value, then.
        """
        assigned: dict[str, bool] = {}
        for part in [part for block in blocks(stmt) for part in block]:
            target = part.targets[0] if isinstance(part, ast.Assign) and len(part.targets) == 1 else None
            if not isinstance(part, ast.Assign) or not isinstance(target, ast.Name):
                return False
            unstable = any(fact.effect == "unstable" for fact in self._facts(module, part.value))
            assigned[target.id] = assigned.get(target.id, False) or unstable
        return all(assigned.values())

    def _entered(self, module: Module, expr: ast.expr) -> bool:
        name = self.resolver.library(module, expr.func) if isinstance(expr, ast.Call) else None
        known_ones = ("builtins.open", "contextlib.", "warnings.", "torch.no_grad", "io.open", "gzip.open", "numpy.errstate")
        return name is not None and name.startswith(known_ones) and self._quiet(module, expr)

    def _harmless(self, module: Module, stmt: ast.stmt) -> bool:
        match stmt:
            case ast.Import() | ast.ImportFrom() | ast.Pass() | ast.Raise() | ast.Continue() | ast.Break() | ast.Global():
                return True
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return all(self._quiet(module, part) for part in _defined(stmt)) and self._decorated(module, stmt)
            case ast.ClassDef():
                parts = [*stmt.decorator_list, *stmt.bases, *(keyword.value for keyword in stmt.keywords)]
                quiet = all(self._quiet(module, part) for part in parts) and self._decorated(module, stmt)
                return quiet and self.first(module, stmt.body) is None
            case ast.Expr(value=ast.Constant()):
                return True
            case ast.Expr(value=ast.Call() as call):
                return self._effect(module, call) and self._quiet(module, call)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.Delete() | ast.Assert():
                return self._quiet(module, stmt)
        return False

    def _effect(self, module: Module, call: ast.Call) -> bool:
        """A call for its effect: a switch, a change of a global, or a function of the program that does no more than that."""
        targets = self.resolver.targets(module, call.func)
        made = self.resolver.targets(module, call.func.func) if isinstance(call.func, ast.Call) else ()
        if any(isinstance(target, Definition) for target in (*targets, *made)):
            return True  # its body is looked at with all calls, and the functions in it
        name = self._library(module, call.func)
        if name is not None and name.startswith("builtins.") and row(name).effects == {"pure"} and name.count(".") == 1:
            return True
        if name is not None and not (isinstance(call.func, ast.Attribute) and name.startswith(CONTAINERS)):
            switch = name.startswith(SWITCHES) and name.rpartition(".")[2] not in SAYS
            return (switch or "setting" in row(name).effects) and not _on_device(call)
        if not isinstance(call.func, ast.Attribute):
            return False
        if self._method(module, call.func) is not None:
            return True  # its body, too
        inherited = isinstance(call.func.value, ast.Call) and self.resolver.library(module, call.func.value.func) == "builtins.super"
        return call.func.attr in MUTATORS or (inherited and call.func.attr == "__init__")

    def _method(self, module: Module, func: ast.expr) -> Definition | None:
        """The method of a class of the program that is called on an object of it."""
        if not isinstance(func, ast.Attribute):
            return None
        definition = self.effects.kinds.instance_of(module, func.value)
        return self.resolver.method(definition, func.attr) if definition is not None else None

    def _library(self, module: Module, func: ast.expr) -> str | None:
        """The library function that is called, also on an object that a library has made: `logger.setLevel` is logging's."""
        for target in self.resolver.targets(module, func):
            if isinstance(target, Library):
                return target.name
        if isinstance(func, ast.Attribute):
            for target in self.resolver.targets(module, func.value):
                made = target.binding.value if isinstance(target, Value) else None
                if isinstance(target, Value) and isinstance(made, ast.Call):
                    name = self.resolver.library(target.module, made.func)
                    return f"{name}.{func.attr}" if name else None
        return None

    def _quiet(self, module: Module, root: ast.AST, *, whole: bool = False) -> bool:
        """Whether code leaves no trace outside of the globals of the program; `whole`: with the functions in it, as they may be called."""
        for node in ast.walk(root) if whole else _executed(root):
            if isinstance(node, ast.Call) and not self._call(module, node):
                return False
            if any(self._shows(fact) for fact in self.effects.at(module, node)):
                return False
        return True

    def _facts(self, module: Module, root: ast.AST) -> Iterator[Fact]:
        for node in _executed(root):
            yield from self.effects.at(module, node)

    def _shows(self, fact: Fact) -> bool:
        if fact.makes:
            return False
        name = self._library(fact.module, fact.node.func if isinstance(fact.node, ast.Call) else fact.node) or ""  # type: ignore[arg-type]
        if name.startswith(LOOKS):
            return False
        if fact.effect == "unknown":
            return not name.startswith(SWITCHES) and (known(name) or not self._makes(fact))
        return fact.effect in HEAVY or (fact.effect == "unstable" and name.startswith(LEAVES))

    def _makes(self, fact: Fact) -> bool:
        """Whether a library that the tables don't know just makes an object: judged by the name, and by what it is given."""
        call = fact.node
        if not isinstance(call, ast.Call):
            return False
        name = self.resolver.library(fact.module, call.func) or ""
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        plain = all(self.effects.kinds.of(fact.module, value) in ("plain", "tensor") for value in given)
        return plain and name.partition(".")[0] not in sys.stdlib_module_names and REACHES_OUT.search(name) is None

    def _call(self, module: Module, call: ast.Call) -> bool:
        if isinstance(call.func, ast.Attribute) and call.func.attr.startswith(("parse_args", "parse_known_args", "add_argument")):
            return False
        name = self.resolver.library(module, call.func) or ""
        if name.startswith("logging.") and ("FileHandler" in name or any(keyword.arg == "filename" for keyword in call.keywords)):
            return False
        method = self._method(module, call.func)
        return all(self._called(target, call) for target in (*self.resolver.targets(module, call.func), *([method] if method else [])))

    def _decorated(self, module: Module, stmt: Function | ast.ClassDef) -> bool:
        """The decorators that are called without parentheses of their own."""
        bare = [decorator for decorator in stmt.decorator_list if not isinstance(decorator, ast.Call)]
        return all(self._called(target) for decorator in bare for target in self.resolver.targets(module, decorator))

    def _called(self, target: Target, call: ast.Call | None = None) -> bool:
        """The body of a function or constructor of the program, but for what it does with arguments that the call leaves out."""
        if not isinstance(target, Definition):
            return True
        if isinstance(target.node, ast.ClassDef):
            init = self.resolver.method(target, "__init__")
            return init is None or self._called(init, call)
        if id(target.node) in self.seen:
            return True
        bare = call is not None and not call.args and not call.keywords
        if not bare:
            self.seen.add(id(target.node))
        body = [stmt for stmt in target.node.body if not (bare and _needs_argument(target.node, stmt))]
        return all(self._runs(target.module, stmt) for stmt in body)

    def _runs(self, module: Module, stmt: ast.stmt) -> bool:
        """A statement inside a function: no less quiet than at the top, whatever is below it."""
        for node in ast.walk(stmt):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and not self._effect(module, node.value):
                return False
            if isinstance(node, (ast.While, ast.Await, ast.Yield, ast.YieldFrom)):
                return False
        return self._quiet(module, stmt, whole=True)


def _needs_argument(function: Function, stmt: ast.stmt) -> bool:
    """`if path is not None: ...` where path is None unless it is given."""
    match stmt:
        case ast.If(test=ast.Compare(left=ast.Name(id=name), ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]), orelse=[]):
            value = default(function, name)
            return isinstance(value, ast.Constant) and value.value is None
    return False


def _on_device(call: ast.Call) -> bool:
    """torch.set_default_tensor_type(torch.cuda.FloatTensor), set_default_device("cuda:0")"""
    words = (node.value if isinstance(node, ast.Constant) else getattr(node, "attr", "") for arg in call.args for node in ast.walk(arg))
    return any(isinstance(word, str) and word.partition(":")[0] in ("cuda", "xpu", "mps") for word in words)


def _guards(stmt: ast.If) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(stmt.test))


def _for_checkers(stmt: ast.If) -> bool:
    return any(isinstance(node, (ast.Name, ast.Attribute)) and _last(node) == "TYPE_CHECKING" for node in ast.walk(stmt.test))


def _last(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _defined(function: Function) -> list[ast.expr]:
    """What runs when a function is defined."""
    return [*function.decorator_list, *function.args.defaults, *(value for value in function.args.kw_defaults if value)]


def _executed(root: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when `root` does: not the bodies of the functions in it."""
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, FUNCTIONS):
            pending += _defined(node) if isinstance(node, Function) else node.args.defaults
        else:
            pending += ast.iter_child_nodes(node)
