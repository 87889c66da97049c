"""What the agent can rely on: variables, styles, output, errors."""

import time

from openmaia.agent.sandbox.policy import find_packages
from tests.agent.sandbox.conftest import Agent


def test_variables_persist(agent: Agent):
    agent.text("x = 41")
    assert agent.text("x += 1; print(x)") == "42"


def test_functions_see_earlier_variables(agent: Agent):
    agent.text("import math\nfactor = 2\nclass Point:\n    x = factor")
    code = "def f():\n    return [type(system).__name__, tools.echo(factor), math.floor(2.5), Point.x]\nprint(f())"
    assert agent.text(code) == "<echo>['System', 2, 2, 2]"


def test_comprehensions_nest_in_functions(agent: Agent):
    code = "k = 3\ndef f(n):\n    return [[i*j*k + n for i in range(2)] for j in range(2) if all(j < k for _ in [0])]"
    code += "\nprint(f(1))"
    assert agent.text(code) == "[[1, 1], [1, 4]]"


def test_manifest_reaches_the_api(agent: Agent):
    assert agent.text("print(manifest)") == "{'unit': 7}"


def test_only_numpy_pillow_and_scipy_are_importable(agent: Agent):
    code = """
import numpy, PIL.Image, scipy.ndimage
print(numpy.asarray(PIL.Image.new("L", (2, 2), 7)).sum(), scipy.ndimage.sum(numpy.ones(3)))
for name in ("torch", "sandlock", "openmaia", "pytest", "ray"):
    try: print("found", __import__(name))
    except ImportError: pass
"""
    assert agent.text(code) == "28 3.0"


def test_modules_imported_at_the_start_are_like_any_other(agent: Agent):
    code = """
import importlib, inspect, json, sys, numpy
print(inspect.getsource(json.loads).split("(")[0], numpy.__file__.endswith("/numpy/__init__.py"), numpy.__spec__.origin)
print(importlib.reload(json).__name__, [getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path])
"""
    first, second = agent.text(code).splitlines()
    assert first == f"def loads True {find_packages()['numpy']}/__init__.py"
    assert second == "json ['BuiltinImporter', 'FrozenImporter', 'PathFinder', 'PackageFinder']"


def test_bytes_travel_both_ways(agent: Agent):
    code = "b = bytes(range(256)) * 4000; print(tools.echo({'k': [b, 1]}) == {'k': [b, 1]})"
    assert agent.text(code) == "<echo>True"


def test_uncalled_run_experiment_is_called(agent: Agent):
    assert agent.text("def run_experiment(system, tools):\n    print(type(tools).__name__)\n    return 5") == "Tools\n5"


def test_uncalled_execute_command_is_called(agent: Agent):
    assert agent.text("def execute_command(system):\n    print(type(system).__name__)") == "System"


def test_entry_point_without_parameters_is_called(agent: Agent):
    assert agent.text("def run_experiment():\n    return 'done'") == "'done'"


def test_called_entry_point_is_not_called_twice(agent: Agent):
    code = "def execute_command(system, tools):\n    print('once')\nexecute_command(system, tools)"
    assert agent.text(code) == "once"


def test_earlier_entry_point_is_not_called_again(agent: Agent):
    agent.text("def run_experiment(system, tools):\n    print('again')")
    assert agent.text("print('later')") == "later"


def test_exemplars_assigned_to_two_names_are_lists(agent: Agent):
    assert agent.text("a, b = tools.dataset_exemplars(system)\nprint(a, b)") == "[1, 2] [3, 4]"


def test_exemplars_assigned_to_one_name(agent: Agent):
    assert agent.text("a = tools.dataset_exemplars(system)\nprint(a)") == "exemplars"


def test_output_and_calls_keep_their_order(agent: Agent):
    code = """
import sys, os, ctypes
print("a", end="")
tools.echo(1)
sys.stderr.write("b"); print("c", end=""); sys.stdout.flush()
os.write(1, b"d"); ctypes.CDLL(None).write(2, b"e", 1)
tools.echo(2)
print("f")
"""
    assert agent.text(code) == "a<echo>bcde<echo>f"


def test_traceback_shows_only_own_frames(agent: Agent):
    outcome, _ = agent.run("import json\ndef f():\n    return json.loads('{')\nf()")
    assert outcome.status == "error" and not outcome.replaced
    assert "return json.loads('{')" in outcome.error and '", line 4, in <module>' in outcome.error
    assert "JSONDecodeError" in outcome.error and "decoder.py" not in outcome.error and "/" not in outcome.error


def test_syntax_error_is_an_error(agent: Agent):
    outcome, _ = agent.run("print('never')\nx = = 1")
    assert outcome.status == "error" and "SyntaxError" in outcome.error and "x = = 1" in outcome.error


def test_tool_error_has_its_message(agent: Agent):
    assert "ToolError: no such layer" in agent.run("tools.refuse('no such layer')")[0].error
    assert agent.text("try: tools.refuse('nein')\nexcept RuntimeError as e: print(e)") == "<refuse>nein"
    assert agent.text("try: tools.refuse('nein')\nexcept ToolError as e: print(e)") == "<refuse>nein"


def test_exit_keeps_the_variables(agent: Agent):
    agent.text("kept = 1")
    for code in ("exit()", "import sys; sys.exit(3)", "raise SystemExit"):
        outcome, _ = agent.run(code)
        assert outcome.status == "error" and "exit()" in outcome.error and not outcome.replaced
    assert agent.text("print(kept)") == "1"


def test_own_keyboard_interrupt_is_an_error(agent: Agent):
    outcome, _ = agent.run("raise KeyboardInterrupt")
    assert outcome.status == "error" and not outcome.replaced


def test_deep_recursion_is_an_error_and_no_death(agent: Agent):
    outcome, _ = agent.run("def f(): return f()\nf()")
    assert outcome.status == "error" and "RecursionError" in outcome.error and not outcome.replaced
    outcome, _ = agent.run("x = " + "(" * 5000 + ")" * 5000)
    assert outcome.status in ("error", "memory") and not outcome.replaced


def test_indescribable_exception_is_an_error(agent: Agent):
    outcome, _ = agent.run("class E(BaseException):\n    def __str__(self): raise SystemExit\nraise E")
    assert outcome.status == "error" and "E" in outcome.error and not outcome.replaced


def test_standard_input_is_empty(agent: Agent):
    assert "EOFError" in agent.run("input()")[0].error


def test_sleeping_takes_as_long_as_it_says(agent: Agent):
    code = "import time; t = time.monotonic(); time.sleep(0.05); d = time.monotonic() - t; print(0.05 <= d < 1)"
    assert agent.text(code) == "True"


def test_broken_proxies_hurt_only_the_agent(agent: Agent):
    agent.text("import json, os, sys\nold = json.dumps, os.read, os.write, type(tools).echo")
    agent.text("json.dumps = os.read = os.write = type(tools).echo = sys.stdout = None")
    assert agent.text("json.dumps, os.read, os.write, type(tools).echo = old\nprint(tools.echo(5))") == "<echo>5"


def test_broken_builtins_replace_the_process(agent: Agent):
    outcome, _ = agent.run("import builtins\nbuiltins.len = builtins.memoryview = builtins.isinstance = None")
    assert outcome.status == "died" and outcome.replaced
    assert agent.text("print(len('abc'))") == "3"


def test_clock_stops_while_a_call_is_served(agent: Agent):
    def slow(name: str, args: list[object], kwargs: dict[str, object]) -> None:
        time.sleep(1.0)

    began = time.monotonic()
    outcome = agent.sandbox.run("tools.echo(1)", slow, lambda text: None)
    assert outcome.status == "ok" and time.monotonic() - began - outcome.seconds >= 1.0
