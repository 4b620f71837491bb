"""Disguise a source, as an author would disguise a known cheat: same meaning, other words.

Everything that the source names itself gets another name, and modules are imported under other
names. Imports, definitions and independent assignments come in another order, branches are the
other way round, results go into variables, and Python's own formatting is used. The meaning stays,
except for code that looks at names or reads its own text.
"""

from __future__ import annotations

import ast
import random

KEPT = {"ModelNew", "Model", "forward", "self", "cls"}
"""Names that a judge, or Python's custom, needs as they are."""


def disguised(source: str, *, seed: int = 0, keep_attributes: bool = False) -> str:
    """Return the source in disguise; the same one for the same seed.

    Args:
        source: of a module.
        seed: of the choices.
        keep_attributes: whether attributes stay as they are: a module's parameters are known by
            their names.
    """
    rng = random.Random(f"{seed}:{source}")
    tree = ast.parse(source)
    names = _Names(rng)
    names.visit(tree)
    if keep_attributes:
        names.attributes.clear()
    tree = _Rewriting(names, rng).visit(tree)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


class _Names(ast.NodeVisitor):
    """A visitor that finds the names that a source gives, and chooses other ones."""

    def __init__(self, rng: random.Random) -> None:
        self.names: dict[str, str] = {}
        self.attributes: dict[str, str] = {}
        self._numbers = rng.sample(range(1000, 9999), 2000)

    def _new(self, known: dict[str, str], name: str) -> None:
        is_own = name not in KEPT and not (name.startswith("__") and name.endswith("__"))
        if is_own and name not in known:
            known[name] = f"v{self._numbers.pop()}"

    def visit_Name(self, node: ast.Name) -> None:
        """Take a variable."""
        if isinstance(node.ctx, ast.Store):
            self._new(self.names, node.id)

    def visit_arg(self, node: ast.arg) -> None:
        """Take a parameter."""
        self._new(self.names, node.arg)

    def visit_alias(self, node: ast.alias) -> None:
        """Take a module, or what comes from one."""
        if node.name != "*" and ("." not in node.name or node.asname):
            self._new(self.names, node.asname or node.name)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        """Take an error's name."""
        if node.name:
            self._new(self.names, node.name)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Take a function; one that takes `self` is an attribute, too."""
        is_method = bool(node.args.args) and node.args.args[0].arg in ("self", "cls")
        self._new(self.attributes if is_method else self.names, node.name)
        self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Take a class."""
        self._new(self.names, node.name)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Take an attribute that an object gives itself."""
        on_self = isinstance(node.value, ast.Name) and node.value.id == "self"
        if on_self and isinstance(node.ctx, ast.Store):
            self._new(self.attributes, node.attr)
        self.generic_visit(node)


class _Rewriting(ast.NodeTransformer):
    """A transformer that writes the other names, and the same steps in another way."""

    def __init__(self, names: _Names, rng: random.Random) -> None:
        self._names, self._attributes, self._rng = names.names, names.attributes, rng

    def visit(self, node: ast.AST) -> ast.AST:
        """Change every node: its names, then its blocks, then itself."""
        self.generic_visit(node)
        for block in ("body", "orelse", "finalbody"):
            steps = getattr(node, block, None)
            if isinstance(steps, list):
                setattr(node, block, self._reordered([t for s in steps for t in self._steps(s)]))
        match node:
            case ast.Name():
                node.id = self._names.get(node.id, node.id)
            case ast.arg():
                node.arg = self._names.get(node.arg, node.arg)
            case ast.alias() if (node.asname or node.name) in self._names:
                node.asname = self._names[node.asname or node.name]
            case ast.ExceptHandler() if node.name:
                node.name = self._names.get(node.name, node.name)
            case ast.FunctionDef() | ast.ClassDef():
                node.name = self._names.get(node.name) or self._attributes.get(node.name, node.name)
            case ast.Attribute(value=ast.Name(id="self")):
                node.attr = self._attributes.get(node.attr, node.attr)
            case ast.Global() | ast.Nonlocal():
                node.names = [self._names.get(name, name) for name in node.names]
            case ast.If(body=body, orelse=[_, *_] as other):
                node.test = ast.UnaryOp(ast.Not(), node.test)
                node.body, node.orelse = other, body
            case _:
                pass
        return node

    def _steps(self, node: ast.stmt) -> list[ast.stmt]:
        """Return one step, perhaps as two."""
        match node:
            case ast.Return(value=ast.Call() | ast.BinOp() as value):
                name = f"r{self._rng.randrange(1000, 9999)}"
                stored = ast.Assign([ast.Name(name, ast.Store())], value)
                return [stored, ast.Return(ast.Name(name, ast.Load()))]
            case ast.AugAssign(target=ast.Name(id=name)):
                sum_ = ast.BinOp(ast.Name(name, ast.Load()), node.op, node.value)
                return [ast.Assign([ast.Name(name, ast.Store())], sum_)]
            case _:
                return [node]

    def _reordered(self, block: list[ast.stmt]) -> list[ast.stmt]:
        """Return a block in any order of neighbours that do not depend on each other."""
        ordered, run, kind = list[ast.stmt](), list[ast.stmt](), ""
        for node in [*block, ast.Pass()]:
            if not (_kind(node) == kind != "" and all(_are_free(node, other) for other in run)):
                self._rng.shuffle(run)
                ordered += run
                run = []
            run.append(node)
            kind = _kind(node)
        return ordered


def _kind(node: ast.stmt) -> str:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return "import"
    if isinstance(node, ast.FunctionDef):
        return "function"
    simple = isinstance(node, ast.Assign) and not any(
        isinstance(inner, ast.Call | ast.Attribute) for inner in ast.walk(node)
    )
    return "assignment" if simple else ""


def _are_free(one: ast.stmt, other: ast.stmt) -> bool:
    """Return whether neither statement binds a name that the other one mentions."""
    if isinstance(one, ast.Import | ast.ImportFrom):
        return True
    if isinstance(one, ast.FunctionDef) and isinstance(other, ast.FunctionDef):
        return not one.decorator_list and not other.decorator_list
    return not (_names_in(one) & _names_in(other))


def _names_in(node: ast.stmt) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
