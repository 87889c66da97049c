"""Runs one experiment in the child's persistent namespace. Stdlib only; its source is sent to the child."""

import ast
import inspect
import linecache
import signal
import traceback
from collections.abc import Callable
from typing import Any

ENTRY_POINTS = ("run_experiment", "execute_command")
MAX_ERROR = 20_000
MAX_REPR = 10_000
_FILE = "<experiment "


def execute(code: str, number: int, namespace: dict[str, Any]) -> tuple[str, str]:
    """(status, error) of `contract.Status`, "timeout" for an interrupt; never raises what the agent's code raised."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _run(code, f"{_FILE}{number}>", namespace)
        return "ok", ""
    except KeyboardInterrupt as error:
        return "timeout", _text(error)
    except MemoryError as error:
        return "memory", _text(error)
    except SystemExit as error:
        return "error", f"{_text(error)}exit() ends the experiment; variables are kept.\n"
    except BaseException as error:  # the boundary: whatever the agent's code raises is an observation
        return "error", _text(error)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.alarm(0)


def _run(code: str, filename: str, namespace: dict[str, Any]) -> None:
    linecache.cache[filename] = (len(code), None, code.splitlines(keepends=True), filename)
    tree = ast.fix_missing_locations(AsLists().visit(ast.parse(code, filename)))
    exec(compile(tree, filename, "exec", dont_inherit=True), namespace)
    for name in uncalled_entry_points(tree):
        function = namespace.get(name)
        if callable(function):
            result = function(*_arguments(function, namespace))
            if result is not None:
                print(repr(result)[:MAX_REPR])


class AsLists(ast.NodeTransformer):
    """`activations, images = tools.dataset_exemplars(...)` is the 2024 style: it expects two lists."""

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        self.generic_visit(node)
        call = node.value
        if (
            len(node.targets) == 1
            and isinstance(target := node.targets[0], ast.Tuple)
            and len(target.elts) == 2
            and all(isinstance(item, ast.Name) for item in target.elts)
            and isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr == "dataset_exemplars"
            and all(keyword.arg != "as_lists" for keyword in call.keywords)
        ):
            call.keywords.append(ast.keyword(arg="as_lists", value=ast.Constant(True)))
        return node


def uncalled_entry_points(tree: ast.Module) -> list[str]:
    """Both published styles define a function that the harness is expected to call."""
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    called = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    return [name for name in ENTRY_POINTS if name in defined - called]


def _arguments(function: Callable[..., Any], namespace: dict[str, Any]) -> list[Any]:
    available = [namespace.get("system"), namespace.get("tools")]
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return available
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return available[: len(positional)]


def _text(error: BaseException) -> str:
    try:
        summary = traceback.TracebackException.from_exception(error)
        _own_frames(summary, set())
        text = "".join(summary.format())
    except BaseException as failure:  # a hostile exception, or no memory left to describe this one
        text = f"{type(error).__name__} (its text could not be made: {type(failure).__name__})\n"
    if len(text) > MAX_ERROR:
        half = MAX_ERROR // 2
        text = f"{text[:half]}\n[...]\n{text[-half:]}"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _own_frames(summary: traceback.TracebackException, seen: set[int]) -> None:
    """Frames of libraries and of this program tell the agent nothing it can change."""
    if id(summary) in seen:
        return
    seen.add(id(summary))
    own = [frame for frame in summary.stack if frame.filename.startswith(_FILE)]
    summary.stack = traceback.StackSummary.from_list(own)
    for linked in (summary.__cause__, summary.__context__, *(getattr(summary, "exceptions", None) or ())):
        if linked is not None:
            _own_frames(linked, seen)
