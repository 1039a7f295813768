"""Datapath programs written as Python classes.

A subclass of `Fold` is translated to program text (docs/language.md) and compiled when the class is
defined; its methods never run as Python. A construct that the language cannot express raises
`FoldError`, which points at its position in the Python file.

>>> class Totals(Fold):
...     acked: Report[int] = volatile(0)
...     every: int = 10_000
...
...     def on_ack(self, ack: AckSignals, flow: FlowSignals) -> None:
...         self.acked += ack.bytes_acked
...         if flow.micros > self.every:
...             flow.micros = 0
...             report()
>>> print(Totals.text)
(def
    (Report (volatile acked 0))
    (every 10000))
(when true
    (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (fallthrough))
(when (> Micros every)
    (:= Micros 0)
    (report))
<BLANKLINE>
"""

from __future__ import annotations

import ast
import builtins
import difflib
import json
import linecache
import types
import warnings
from bisect import bisect_right
from typing import Annotated, Any, ClassVar, NoReturn, TypeVar, cast

from . import _ccplane
from ._ccplane import Error

T = TypeVar("T", int, bool)

Report = Annotated[T, "report"]
"""Type of a report variable: `acked: Report[int] = volatile(0)`. A variable of another type is a
control variable, which the agent sets."""

infinity = 4294967295
"""Value of an unknown time."""


class FoldError(Error, SyntaxError):
    """A `Fold` class contains a construct that a program cannot express. Points at its position."""


class FoldWarning(UserWarning):
    """A program is valid but probably not what was intended (docs/language.md, Warnings)."""


class AckSignals:
    """Signals of the current ACK (docs/language.md, Signals). Times are in microseconds unless the
    name contains another unit."""

    bytes_acked: int
    bytes_misordered: int
    ecn_bytes: int
    ecn_packets: int
    lost_pkts_sample: int
    now: int
    packets_acked: int
    packets_misordered: int
    owd_ns: int
    rtt_ns: int


class FlowSignals:
    """State of the flow. `cwnd`, `rate`, `ssthresh` and `micros` can be assigned; the others are
    read-only signals."""

    cwnd: int
    rate: int
    ssthresh: int
    micros: int
    bytes_in_flight: int
    bytes_pending: int
    packets_in_flight: int
    rate_incoming: int
    rate_outgoing: int
    rtt_sample_us: int
    was_timeout: bool
    srtt_us: int
    min_rtt_us: int
    mss: int
    app_limited: bool
    in_recovery: bool
    undone: bool
    cwnd_limited: bool
    min_owd_ns: int
    min_rtt_ns: int
    queue_delay_ns: int
    queue_delay_valid: bool
    paced: bool


WRITTEN = {"cwnd": "Cwnd", "rate": "Rate", "ssthresh": "Ssthresh", "micros": "Micros"}


class _Volatile:
    def __init__(self, value: int | bool) -> None:
        self.value = value


def volatile(value: T) -> T:
    """Declares the initial value of a variable, to which it is reset after each report."""
    return cast(T, _Volatile(value))


def _only_in_a_fold(name: str) -> NoReturn:
    raise TypeError(f"{name}() can only be used in `on_ack` of a Fold, which is translated and never runs")


def report() -> None:
    """Sends a report after this ACK has been processed."""
    _only_in_a_fold("report")


def reset() -> None:
    """Resets the volatile variables to their initial values, without a report."""
    _only_in_a_fold("reset")


def ewma(weight: float, value: int) -> int:
    """Exponentially weighted moving average of the assigned variable: `weight` is the share of the
    old value."""
    _only_in_a_fold("ewma")


def diff(a: int, b: int) -> int:
    """Returns `a - b`, or 0 if `b` is larger, without a fault."""
    _only_in_a_fold("diff")


def wrapped_max(a: int, b: int) -> int:
    """Returns the later of two 32-bit sequence numbers."""
    _only_in_a_fold("wrapped_max")


class Fold:
    """Base class of datapath programs. Annotated class variables are the variables of the program,
    and `on_ack` runs at every ACK and at every timeout. See the module documentation for an
    example."""

    text: ClassVar[str]
    """Text of the program."""

    def on_ack(self, ack: AckSignals, flow: FlowSignals) -> None:
        """Body of the program.

        Available are assignments, `if`, `report()` and `reset()`, the operators `+ - * //`,
        comparisons, `and or not`, the functions `min max diff ewma wrapped_max`, constants of the
        module, and local variables. `-` never goes below 0.

        A top-level `if` that compares `flow.micros` is a timer: it must have no `elif` or `else`,
        or be the last statement, with all its `elif`.
        """
        raise NotImplementedError

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.text = _Translation(cls).text


OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "/",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.And: "&&",
    ast.Or: "||",
}
# Number of arguments per function; `None` is two or more.
FUNCTIONS: dict[Any, tuple[str, int | None]] = {
    builtins.min: ("min", None),
    builtins.max: ("max", None),
    diff: ("diff", 2),
    wrapped_max: ("wrapped_max", 2),
}
STATEMENTS: dict[Any, str] = {report: "(report)", reset: "(reset)"}
INDENT = "    "


class _Translation:
    """Translation of a class to program text. Records the source position of each part."""

    def __init__(self, cls: type[Fold]) -> None:
        self.cls = cls
        function = cls.__dict__.get("on_ack")
        if not isinstance(function, types.FunctionType):
            raise FoldError(f"{cls.__qualname__} has no method on_ack(self, ack, flow)")
        self.function = function
        self.file = function.__code__.co_filename
        tree, method = self.find()
        arguments = [a.arg for a in method.args.args]
        if len(arguments) != 3 or method.args.vararg or method.args.kwarg or method.args.kwonlyargs:
            self.fail(method, "on_ack must have three arguments: on_ack(self, ack, flow)")
        self.self_name, self.ack_name, self.flow_name = arguments
        self.parts: list[str] = []
        self.length = 0
        self.marks: list[tuple[int, ast.AST]] = []
        self.fields: dict[str, str] = {}
        self.locals: set[str] = set()
        self.declare(tree)
        self.clauses(method.body)
        self.text = "".join(self.parts)
        self.compile()

    def find(self) -> tuple[ast.ClassDef, ast.FunctionDef]:
        """Returns the syntax trees of the class and its method."""
        line = self.function.__code__.co_firstlineno
        lines = linecache.getlines(self.file, self.function.__globals__)
        if not lines:
            raise FoldError(f"{self.cls.__qualname__}: its source is not available; define a Fold in a file, not interactively or with -c")
        self.lines = lines
        for node in ast.walk(ast.parse("".join(lines))):
            for inner in node.body if isinstance(node, ast.ClassDef) else ():
                first = min([inner.lineno, *(d.lineno for d in getattr(inner, "decorator_list", ()))])
                if isinstance(inner, ast.FunctionDef) and inner.name == "on_ack" and first == line:
                    assert isinstance(node, ast.ClassDef)
                    return node, inner
        raise FoldError(f"{self.cls.__qualname__}: its source has changed since it was imported")

    def fail(self, node: ast.AST, why: str) -> NoReturn:
        """Raises a `FoldError` that points at a node."""
        line = getattr(node, "lineno", 1)
        column = getattr(node, "col_offset", 0) + 1
        source = self.lines[line - 1] if line <= len(self.lines) else ""
        one_line = getattr(node, "end_lineno", line) == line
        end = getattr(node, "end_col_offset", column) + 1 if one_line else len(source)
        raise FoldError(why, (self.file, line, column, source, line, end))

    # Output

    def put(self, text: str, node: ast.AST | None = None) -> None:
        if node is not None:
            self.marks.append((self.length, node))
        self.parts.append(text)
        self.length += len(text)

    def compile(self) -> None:
        """Compiles the program and maps the compiler's errors and warnings to the Python file."""
        found = json.loads(_ccplane.compile(self.text))
        starts = [start for start, _ in self.marks]
        for problem in found["problems"]:
            at = bisect_right(starts, problem["at"]) - 1
            node = self.marks[max(at, 0)][1]
            fix = problem["fix"]
            why = problem["message"] + (f"; {fix}" if fix else "")
            if not problem["warning"]:
                self.fail(node, why)
            warnings.warn_explicit(f"{self.cls.__qualname__}: {why}", FoldWarning, self.file, getattr(node, "lineno", 1))

    # Declarations

    def declare(self, tree: ast.ClassDef) -> None:
        reports: list[tuple[ast.AST, str]] = []
        controls: list[tuple[ast.AST, str]] = []
        for base in reversed(self.cls.__mro__[1:]):
            if issubclass(base, Fold) and base is not Fold:
                self.fail(tree, "a Fold cannot inherit from another Fold; declare its variables here")
        for node in (statement for statement in tree.body if isinstance(statement, ast.AnnAssign)):
            if not isinstance(node.target, ast.Name) or node.value is None:
                self.fail(node, "a variable needs an initial value: `acked: Report[int] = volatile(0)`")
            name = node.target.id
            kind = node.annotation
            reported = isinstance(kind, ast.Subscript) and ast.unparse(kind.value).split(".")[-1] == "Report"
            value = self.cls.__dict__.get(name)
            initial = value.value if isinstance(value, _Volatile) else value
            text = self.literal(node.value, initial)
            declared = f"(volatile {name} {text})" if isinstance(value, _Volatile) else f"({name} {text})"
            (reports if reported else controls).append((node, declared))
            self.fields[name] = f"Report.{name}" if reported else name
        self.put("(def", tree)
        if reports:
            self.put(f"\n{INDENT}(Report")
            for at, declared in reports:
                self.put(" ")
                self.put(declared, at)
            self.put(")")
        for at, declared in controls:
            self.put(f"\n{INDENT}")
            self.put(declared, at)
        self.put(")\n")

    def literal(self, node: ast.AST, value: Any) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int) and 0 <= value < 2**64:
            return str(value)
        self.fail(node, f"{value!r} is not a valid initial value; use a whole number from 0 to 2**64-1, True or False")

    # Statements

    def clauses(self, body: list[ast.stmt]) -> None:
        body = self.doing(body)
        at, known = 0, set[str]()
        while at < len(body):
            statement = body[at]
            if isinstance(statement, ast.If) and not statement.orelse:
                self.clause(statement.test, statement.body, set(known), last=at + 1 == len(body))
                at += 1
            elif isinstance(statement, ast.If) and at + 1 == len(body):
                # An `elif` chain at the end maps to clauses without fallthrough: the first true one
                # ends.
                branch: list[ast.stmt] = body[at:]
                while len(branch) == 1 and isinstance(branch[0], ast.If):
                    self.clause(branch[0].test, branch[0].body, set(known), last=True)
                    branch = branch[0].orelse
                if branch:
                    self.clause(None, branch, set(known), last=True)
                return
            else:
                end = at + 1
                while end < len(body) and not (isinstance(body[end], ast.If) and (not self.orelse(body[end]) or end + 1 == len(body))):
                    end += 1
                self.clause(None, body[at:end], known, last=end == len(body))
                at = end

    @classmethod
    def doing(cls, body: list[ast.stmt]) -> list[ast.stmt]:
        """Returns the statements that have an effect: drops `pass`, docstrings, and an `if` with
        two empty branches."""
        found = list[ast.stmt]()
        for statement in body:
            nothing = isinstance(statement, ast.Pass)
            nothing |= isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            nothing |= isinstance(statement, ast.If) and not cls.doing([*statement.body, *statement.orelse])
            if not nothing:
                found.append(statement)
        return found

    @staticmethod
    def orelse(statement: ast.stmt) -> bool:
        return isinstance(statement, ast.If) and bool(statement.orelse)

    def clause(self, test: ast.expr | None, body: list[ast.stmt], known: set[str], *, last: bool) -> None:
        self.put("(when ")
        if test is None:
            self.put("true", body[0])
        else:
            self.value(test, known)
        for statement in self.doing(body):
            self.put(f"\n{INDENT}")
            self.statement(statement, known, INDENT)
        if not self.doing(body):
            # A branch that does nothing still ends the chain. A clause needs a body, so write a
            # no-op.
            self.put(f"\n{INDENT}(:= Cwnd Cwnd)", body[0])
        self.put(")\n" if last else f"\n{INDENT}(fallthrough))\n")

    def statement(self, node: ast.stmt, known: set[str], indent: str) -> None:
        """Writes a statement, and adds to `known` the local variables that are definitely assigned
        after it."""
        if isinstance(node, ast.Assign):
            if len(node.targets) != 1:
                self.fail(node, "an assignment sets only one variable")
            self.assign(node, node.targets[0], node.value, known)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self.assign(node, node.target, node.value, known)
        elif isinstance(node, ast.AugAssign):
            fields: dict[str, Any] = {**vars(node.target), "ctx": ast.Load()}
            target: Any = type(node.target)(**fields)
            value = ast.copy_location(ast.BinOp(target, node.op, node.value), node)
            self.assign(node, node.target, value, known)
        elif isinstance(node, ast.If):
            then, otherwise = set(known), set(known)
            self.put("(if " if self.doing(node.body) else "(!if ", node)
            self.value(node.test, known)
            for block, names in ((node.body, then), (node.orelse, otherwise)):
                self.block(self.doing(block), names, indent + INDENT)
            known |= then & otherwise
            self.put(")")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and self.known(node.value.func) in STATEMENTS:
            if node.value.args or node.value.keywords:
                self.fail(node, "it takes no arguments: a report contains the variables of type Report")
            self.put(STATEMENTS[self.known(node.value.func)], node)
        else:
            what = type(node).__name__.lower()
            self.fail(node, f"a program cannot contain `{what}`; use assignments, `if`, report() and reset()")

    def block(self, body: list[ast.stmt], known: set[str], indent: str) -> None:
        if not body:
            return
        self.put(f"\n{indent}(do")
        for statement in body:
            self.put(f"\n{indent}{INDENT}")
            self.statement(statement, known, indent + INDENT)
        self.put(")")

    def assign(self, node: ast.AST, target: ast.expr, value: ast.expr, known: set[str]) -> None:
        self.put("(:= ", node)
        if isinstance(target, ast.Name):
            if target.id in self.fields:
                self.fail(target, f"{target.id} is a variable of the class; write {self.self_name}.{target.id}")
            self.put(target.id, target)
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            owner = target.value.id
            if owner == self.ack_name or owner == self.flow_name and target.attr not in WRITTEN:
                self.fail(target, f"a signal cannot be assigned; of {self.flow_name}, only {', '.join(WRITTEN)} can")
            self.value(target, known)
        else:
            self.fail(target, f"cannot assign to this; assign to a variable, as {self.self_name}.acked, or to one of {self.flow_name}: {', '.join(WRITTEN)}")
        self.put(" ")
        if isinstance(value, ast.Call) and self.known(value.func) is ewma:
            if len(value.args) != 2 or value.keywords:
                self.fail(value, "ewma takes the weight of the old value and the new one: ewma(7 / 8, flow.rtt_sample_us)")
            self.put("(ewma ", value)
            self.value(value.args[0], known)
            self.put(" ")
            self.value(value.args[1], known)
            self.put(")")
        else:
            self.value(value, known)
        self.put(")")
        if isinstance(target, ast.Name):
            known.add(target.id)
            self.locals.add(target.id)

    # Values

    def value(self, node: ast.expr, known: set[str]) -> None:
        if isinstance(node, ast.BinOp):
            ratio = self.ratio(node)
            if ratio is not None:
                self.put(ratio, node)
            elif isinstance(node.op, ast.Div):
                self.fail(node, "numbers are integers; divide with //, which rounds down, or multiply by a ratio of two constants, as 7 / 8")
            elif type(node.op) not in OPERATORS:
                self.fail(node, "a program can only use the operators + - * and //")
            else:
                self.apply(node, OPERATORS[type(node.op)], [node.left, node.right], known)
        elif isinstance(node, ast.BoolOp):
            self.apply(node, OPERATORS[type(node.op)], node.values, known)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self.apply(node, "!", [node.operand], known)
        elif isinstance(node, ast.Compare):
            self.compare(node, known)
        elif isinstance(node, ast.IfExp):
            self.apply(node, "if", [node.test, node.body, node.orelse], known)
        elif isinstance(node, ast.Call):
            function = self.known(node.func)
            name, takes = FUNCTIONS.get(function, ("", 0)) if callable(function) else ("", 0)
            if not name:
                extra = ": it must be the whole right side of an assignment" if function is ewma else "; use min, max, diff, wrapped_max and ewma"
                self.fail(node, f"a program cannot call {ast.unparse(node.func)} here{extra}")
            if node.keywords or len(node.args) < 2 or takes not in (None, len(node.args)):
                self.fail(node, f"{name} takes {'two' if takes else 'two or more'} values")
            self.apply(node, name, node.args, known)
        elif isinstance(node, ast.Constant):
            self.constant(node, node.value)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in (self.self_name, self.ack_name, self.flow_name):
            self.attribute(node, node.value.id)
        elif isinstance(node, ast.Name) and node.id in self.locals:
            if node.id not in known:
                self.fail(node, f"{node.id} may be unset here; set a local variable before it is read, on every path")
            self.put(node.id, node)
        elif isinstance(node, (ast.Name, ast.Attribute)):
            value = self.known(node)
            if not isinstance(value, (bool, int, float)):
                self.fail(node, f"{ast.unparse(node)} is not a number; use variables, signals, and constants of the module")
            self.constant(node, value)
        else:
            self.fail(node, f"a program cannot contain `{ast.unparse(node)}`")

    def apply(self, node: ast.AST, operator: str, values: list[ast.expr], known: set[str]) -> None:
        self.put(f"({operator}", node)
        for value in values:
            self.put(" ")
            self.value(value, known)
        self.put(")")

    def compare(self, node: ast.Compare, known: set[str]) -> None:
        values = [node.left, *node.comparators]
        if len(node.ops) > 1:
            self.put("(&&", node)
        for operator, left, right in zip(node.ops, values, values[1:]):
            if type(operator) not in OPERATORS:
                self.fail(node, "a comparison must use > >= < <= == or !=")
            self.put(" " if len(node.ops) > 1 else "")
            self.apply(node, OPERATORS[type(operator)], [left, right], known)
        if len(node.ops) > 1:
            self.put(")")

    def ratio(self, node: ast.expr) -> str | None:
        """Returns `7/8` for a quotient of two integer literals."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            sides = [side.value for side in (node.left, node.right) if isinstance(side, ast.Constant)]
            if len(sides) == 2 and all(type(side) is int for side in sides):
                return "/".join(map(repr, sides))
        return None

    def constant(self, node: ast.AST, value: Any) -> None:
        if isinstance(value, bool):
            self.put("true" if value else "false", node)
        elif isinstance(value, int) and value >= 0:
            self.put(str(value), node)
        elif isinstance(value, float) and 0 <= value < 2**63:
            self.put(f"{value:.12f}".rstrip("0") + ("0" if value.is_integer() else ""), node)
        else:
            self.fail(node, f"{value!r} is not a valid value; use whole numbers from 0, ratios, True and False")

    def attribute(self, node: ast.Attribute, owner: str) -> None:
        name = node.attr
        if owner == self.self_name:
            if name in self.fields:
                self.put(self.fields[name], node)
            elif name in self.cls.__dict__:
                self.constant(node, self.cls.__dict__[name])
            else:
                self.fail(node, f"unknown variable {name}{self.closest(name, self.fields)}")
        elif owner == self.flow_name and name in WRITTEN:
            self.put(WRITTEN[name], node)
        else:
            signals = AckSignals if owner == self.ack_name else FlowSignals
            if name not in signals.__annotations__:
                self.fail(node, f"unknown signal {name}{self.closest(name, signals.__annotations__)}")
            self.put(f"{'Ack' if signals is AckSignals else 'Flow'}.{name}", node)

    @staticmethod
    def closest(name: str, known: Any) -> str:
        like = difflib.get_close_matches(name, list(known), n=1)
        return f": did you mean {like[0]}?" if like else f"; use one of {', '.join(known)}"

    def known(self, node: ast.AST) -> Any:
        """Resolves a name outside the class to its value; returns `None` if it cannot be resolved.
        """
        if isinstance(node, ast.Attribute):
            return getattr(self.known(node.value), node.attr, None)
        if not isinstance(node, ast.Name):
            return None
        code, closure = self.function.__code__, self.function.__closure__ or ()
        for name, cell in zip(code.co_freevars, closure):
            if name == node.id:
                try:
                    return cell.cell_contents
                except ValueError:
                    return None
        return self.function.__globals__.get(node.id, getattr(builtins, node.id, None))
