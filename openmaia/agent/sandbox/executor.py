"""Runs one experiment in the persistent namespace of the sandboxed process.

The source of this module is sent to that process, so it may import only the standard library.
"""

import ast
import inspect
import linecache
import signal
import traceback
from collections.abc import Callable
from typing import Any

_ENTRY_POINTS = ("run_experiment", "execute_command")
_MAX_ERROR = 20_000
"""Characters of a traceback."""
_MAX_REPR = 10_000
"""Characters that are printed of the result of an entry point."""
_FILE = "<experiment "


def execute(code: str, number: int, namespace: dict[str, Any]) -> tuple[str, str]:
    """Runs the code of an experiment. Returns a value of `contract.Status` ("timeout" for a KeyboardInterrupt) and the
    traceback of any exception.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _run(code, f"{_FILE}{number}>", namespace)
        return "ok", ""
    except KeyboardInterrupt as error:
        return "timeout", _format(error)
    except MemoryError as error:
        return "memory", _format(error)
    except SystemExit as error:
        return "error", f"{_format(error)}exit() ends the experiment; variables are kept.\n"
    except BaseException as error:  # the boundary: any exception of the agent's code is an observation
        return "error", _format(error)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.alarm(0)


def _run(code: str, filename: str, namespace: dict[str, Any]) -> None:
    linecache.cache[filename] = (len(code), None, code.splitlines(keepends=True), filename)
    tree = ast.fix_missing_locations(ExemplarsAsLists().visit(ast.parse(code, filename)))
    exec(compile(tree, filename, "exec", dont_inherit=True), namespace)
    for name in find_uncalled_entry_points(tree):
        function = namespace.get(name)
        if callable(function):
            result = function(*_arguments(function, namespace))
            if result is not None:
                print(repr(result)[:_MAX_REPR])


class ExemplarsAsLists(ast.NodeTransformer):
    """Adds as_lists=True to calls of the form `activations, images = tools.dataset_exemplars(...)`. Code for the
    published MAIA expects two lists; by default, the tool returns a list of pairs.
    """

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        """Adds the argument where the result is assigned to two names."""
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


def find_uncalled_entry_points(tree: ast.Module) -> list[str]:
    """Returns the functions in _ENTRY_POINTS that an experiment defines but does not call. Code for the published MAIA
    expects the program to call them.
    """
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    called = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    return [name for name in _ENTRY_POINTS if name in defined - called]


def _arguments(function: Callable[..., Any], namespace: dict[str, Any]) -> list[Any]:
    available = [namespace.get("system"), namespace.get("tools")]
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return available
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return available[: len(positional)]


def _format(error: BaseException) -> str:
    try:
        summary = traceback.TracebackException.from_exception(error)
        _keep_own_frames(summary, set())
        text = "".join(summary.format())
    except BaseException as failure:  # a hostile exception, or too little memory to describe this one
        text = f"{type(error).__name__} (its text could not be made: {type(failure).__name__})\n"
    if len(text) > _MAX_ERROR:
        half = _MAX_ERROR // 2
        text = f"{text[:half]}\n[...]\n{text[-half:]}"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _keep_own_frames(summary: traceback.TracebackException, visited: set[int]) -> None:
    if id(summary) in visited:
        return
    visited.add(id(summary))
    # The agent cannot change the code of libraries and of this program.
    own = [frame for frame in summary.stack if frame.filename.startswith(_FILE)]
    summary.stack = traceback.StackSummary.from_list(own)
    for linked in (summary.__cause__, summary.__context__, *(getattr(summary, "exceptions", None) or ())):
        if linked is not None:
            _keep_own_frames(linked, visited)
