"""Too much of something, forged messages, and deaths: the parent notices, and the next experiment runs."""

import os
import select
import signal
import threading
import time

import pytest

from openmaia.agent.sandbox import Json, SandboxLevel
from tests.agent.sandbox.conftest import Agent
from tests.helpers.permissions import obeyed_permissions


@pytest.fixture
def works(agent: Agent):
    """After the test, the sandbox still does."""
    yield
    assert agent.text("print(6 * 7)") == "42"


pytestmark = pytest.mark.usefixtures("works")


def test_memory_bomb_keeps_the_variables(agent: Agent):
    agent.text("kept = 5")
    outcome, _ = agent.run("a = []\nwhile True: a.append(bytearray(10 << 20))")
    assert outcome.status == "memory" and "MemoryError" in outcome.error and not outcome.replaced
    assert agent.text("del a; print(kept)") == "5"


def test_numpy_bomb_is_a_memory_error(agent: Agent):
    outcome, _ = agent.run("import numpy; numpy.ones(10**9)")
    assert outcome.status == "memory" and not outcome.replaced


def test_shared_memory_is_bounded(agent: Agent):
    code = "import mmap\nmaps = []\nfor i in range(100):\n    maps.append(mmap.mmap(-1, 100 << 20)); print(i)"
    outcome, text = agent.run(code)
    assert outcome.status in ("error", "memory") and "20" not in text
    agent.sandbox.restart()


def test_endless_loop_is_a_timeout(fresh):
    agent: Agent = fresh(seconds=0.5)
    agent.text("x = 1")
    outcome, _ = agent.run("def f():\n    while True: pass\nf()")
    assert outcome.status == "timeout" and outcome.replaced and 0.5 <= outcome.seconds < 15
    assert "while True: pass" in outcome.error and "0.5 s" in outcome.error
    assert "NameError" in agent.run("print(x)")[0].error


def test_interrupt_cannot_be_caught(fresh):
    agent: Agent = fresh(seconds=0.5)
    code = "print('begun')\nwhile True:\n    try:\n        while True: pass\n    except BaseException: pass"
    outcome, text = agent.run(code)
    assert outcome.status == "timeout" and outcome.replaced and text == "begun\n"
    assert agent.text("print(1)") == "1"


def test_call_after_the_deadline_is_not_served(fresh):
    agent: Agent = fresh(seconds=0.5)
    outcome, text = agent.run("try:\n    while True: pass\nexcept KeyboardInterrupt:\n    tools.echo(1)")
    assert outcome.status == "timeout" and text == ""


def test_endless_output_is_capped(fresh):
    agent: Agent = fresh(seconds=0.5)
    outcome, text = agent.run("while True: print('x' * 1000)")
    assert outcome.status == "timeout"
    assert 20_000 <= len(text) < 20_200 and "more bytes of output dropped" in text


def test_output_is_capped_and_the_rest_counted(agent: Agent):
    outcome, text = agent.run("print('é' * 50_000)")
    assert outcome.status == "ok" and "[80001 more bytes of output dropped" in text


def test_one_file_is_capped_by_the_kernel(agent: Agent):
    outcome, _ = agent.run("f = open('big', 'wb')\nfor _ in range(100): f.write(bytes(1 << 20))")
    assert outcome.status == "error" and "File too large" in outcome.error
    agent.run("import os; f.close(); os.unlink('big')")


@pytest.mark.parametrize("unlink", ["", "    os.unlink(str(i))\n"])
def test_sum_of_files_is_capped_by_the_watch(agent: Agent, unlink: str):
    code = "import os, time\nfs = []\nfor i in range(50):\n"
    code += "    fs.append(open(str(i), 'wb', 0)); fs[-1].write(bytes(1 << 20))\n"
    outcome, _ = agent.run(code + unlink + "    time.sleep(0.02)")
    assert outcome.status == "died" and "8 MB" in outcome.error and outcome.replaced
    assert agent.text("import os; print(os.listdir())") == "[]"


FILES = {
    "memory": "    fd = os.open('/dev/urandom', os.O_RDONLY)\n",
    "scratch": "    fd = os.open('f', os.O_RDWR | os.O_CREAT)\n    os.unlink('f')\n    os.write(fd, bytes(1 << 20))\n",
}
"""Files of 1 MB without a name. Sandlock gives a file in memory in place of /dev/urandom."""
KEPT = {
    "open": "    kept.append(fd)\n",
    "mapped": "    kept.append(mmap.mmap(fd, 1 << 20, access=mmap.ACCESS_READ)); os.close(fd)\n",
}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("how", KEPT)
def test_files_without_names_count(agent: Agent, kind: str, how: str):
    code = "import mmap, os, time\nkept = []\nfor i in range(40):\n" + FILES[kind] + KEPT[how]
    outcome, _ = agent.run(code + "time.sleep(1)")
    assert outcome.status == "died" and "8 MB" in outcome.error and outcome.replaced


def test_descriptors_of_a_thread_count(agent: Agent):
    """With CLOSE_RANGE_UNSHARE, a thread gets a table of descriptors of its own."""
    code = "import ctypes, os, threading, time\ndef hide():\n"
    code += "    assert ctypes.CDLL(None).close_range(900, 900, 2) == 0\n    for i in range(40):\n"
    code += "        os.open('/dev/urandom', os.O_RDONLY)\n    time.sleep(2)\n"
    outcome, _ = agent.run(code + "t = threading.Thread(target=hide); t.start(); t.join()")
    assert outcome.status == "died" and "8 MB" in outcome.error


def test_folder_that_cannot_be_read_is_a_death_and_removed(agent: Agent):
    with obeyed_permissions():
        outcome, _ = agent.run("import os, time\nos.makedirs('d/e')\nos.mkdir('d/f', 0o300)\ntime.sleep(1)")
        assert outcome.status == "died" and "cannot be read" in outcome.error
        assert agent.text("import os; print(os.listdir())") == "[]"


def test_number_of_files_is_capped(agent: Agent):
    outcome, _ = agent.run("import os\ni = 0\nwhile True: os.mkdir(str(i)); i += 1")
    assert outcome.status == "died" and "files" in outcome.error


def test_deep_tree_is_removed(agent: Agent):
    outcome, _ = agent.run("import os\nwhile True: os.mkdir('d'); os.chdir('d')")
    assert outcome.status in ("died", "error")
    agent.sandbox.restart()


def test_threads_are_capped(agent: Agent):
    code = "import _thread, time\n_thread.stack_size(65536)\n"
    code += "for _ in range(200): _thread.start_new_thread(time.sleep, (9,))\ntime.sleep(9)"
    outcome, _ = agent.run(code)
    assert outcome.status == "died" and "threads" in outcome.error


def test_fork_bomb_is_bounded_and_swept(agent: Agent):
    code = """
import os, time
n = 0
try:
    while n < 100:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        n += 1
except OSError:
    print(n)
"""
    outcome, _ = agent.run(code)
    assert outcome.status == "ok" and outcome.replaced and int(agent.log[0]) <= 3


def test_one_process_means_no_fork_but_threads(fresh):
    agent: Agent = fresh(processes=1)
    for code in ("os.fork()", "subprocess.run(['/bin/true'])", "os.posix_spawn('/bin/true', ['true'], {})"):
        outcome, _ = agent.run("import os, subprocess\n" + code)
        assert outcome.status == "error" and "PermissionError" in outcome.error and not outcome.replaced
    assert agent.text("import threading; t = threading.Thread(target=print, args=(7,)); t.start(); t.join()") == "7"


def test_cpu_limit_kills_and_names_the_cause(fresh):
    agent: Agent = fresh(cpu_seconds=2)
    outcome, _ = agent.run("while True: pass")
    assert outcome.status == "died" and "CPU" in outcome.error and outcome.replaced
    assert agent.text("print(1)") == "1"


def test_cpu_limit_is_named_also_if_its_signal_is_ignored(fresh):
    agent: Agent = fresh(cpu_seconds=1)
    outcome, _ = agent.run("import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass")
    assert outcome.status == "died" and "more than 1 seconds of CPU time" in outcome.error
    assert "memory" not in outcome.error


def test_kill_from_outside_is_named(fresh):
    agent: Agent = fresh()
    agent.text("")
    child = agent.sandbox._child
    assert child is not None
    threading.Timer(0.5, os.kill, (child.pid, signal.SIGKILL)).start()
    outcome, _ = agent.run("while True: pass")
    assert outcome.status == "memory" and "killed from outside (SIGKILL)" in outcome.error


def test_kill_from_outside_during_a_call_is_named(fresh):
    agent: Agent = fresh()
    agent.text("")
    child = agent.sandbox._child
    assert child is not None
    process = os.pidfd_open(child.pid)

    def serve(name: str, args: list[Json], kwargs: dict[str, Json]) -> Json:
        os.kill(child.pid, signal.SIGKILL)
        assert select.select([process], [], [], 30)[0], "the process has not ended"
        return None

    outcome = agent.sandbox.run("tools.echo(1)", serve, agent.log.append)
    os.close(process)
    assert outcome.status == "memory" and "killed from outside (SIGKILL)" in outcome.error and outcome.replaced


def test_os_exit_is_a_death(agent: Agent):
    outcome, text = agent.run("import os; print('last words'); os._exit(3)")
    assert outcome.status == "died" and "exit code 3" in outcome.error and outcome.replaced and text == "last words\n"


def test_crash_in_c_is_a_death(agent: Agent):
    outcome, _ = agent.run("import ctypes; ctypes.string_at(0)")
    assert outcome.status == "died" and "signal 11 (Segmentation fault)" in outcome.error and outcome.replaced


def test_lingering_threads_replace_the_process(agent: Agent):
    code = "x = 1\nimport threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\nprint('kept')"
    outcome, text = agent.run(code)
    assert outcome.status == "ok" and outcome.replaced and text == "kept\n"
    assert "NameError" in agent.run("x")[0].error


def test_threads_hidden_from_python_are_seen(agent: Agent):
    code = "import _thread, threading, time\nthreading.active_count = lambda: 1\n"
    outcome, _ = agent.run(code + "_thread.start_new_thread(time.sleep, (60,))")
    assert outcome.status == "ok" and outcome.replaced


@pytest.mark.parametrize(
    "forged",
    [
        "b'garbage' * 1000",
        "b'OMF1' + bytes([255] * 8)",
        "b'OMF1' + (2).to_bytes(4, 'big') + bytes(4) + b'[]'",
        "b'OMF1' + (13).to_bytes(4, 'big') + bytes(4) + b'{\"kind\":\"xx\"}'",
        "__import__('pickle').dumps([1] * 100)",
    ],
)
def test_forged_frame_is_a_death(agent: Agent, forged: str):
    code = f"import os\nsent = {forged}\nfor fd in range(3, 16):\n"
    code += "    try: os.write(fd, sent)\n    except OSError: pass\n"
    outcome, text = agent.run(code + "while True: pass")
    assert outcome.status == "died" and outcome.replaced
    assert "malformed" in outcome.error or "unknown" in outcome.error
    assert "<" not in text


def test_second_call_before_the_answer_is_a_death(agent: Agent):
    frame = 'b\'{"kind":"call","name":"echo","args":[1],"kwargs":{}}\''
    code = f"import os, time\nj = {frame}\nsent = 2 * (b'OMF1' + len(j).to_bytes(4, 'big') + bytes(4) + j)\n"
    code += "for fd in range(3, 16):\n    try: os.write(fd, sent)\n    except OSError: pass\n"
    outcome, text = agent.run(code + "time.sleep(2)")
    assert outcome.status == "died" and "another message" in outcome.error and text == ""


def test_forged_end_stops_the_code(agent: Agent):
    agent.sandbox.restart()
    frame = 'b\'{"kind":"done","number":1,"status":"ok","error":"","threads":1}\''
    code = f"import os, time\nj = {frame}\nsent = b'OMF1' + len(j).to_bytes(4, 'big') + bytes(4) + j\n"
    code += "for fd in range(3, 16):\n    try: os.write(fd, sent)\n    except OSError: pass\n"
    outcome, _ = agent.run(code + "time.sleep(0.2)")
    assert outcome.status == "ok"
    assert state(agent) == "T"
    outcome, _ = agent.run("print(1)")  # answered by the true end of the first
    assert outcome.status == "died" and outcome.replaced
    assert "another experiment" in outcome.error or "another message" in outcome.error


def test_nothing_runs_between_experiments(agent: Agent):
    agent.text("x = 1")
    assert state(agent) == "T"


def state(agent: Agent) -> str:
    assert agent.sandbox._child is not None  # pyright: ignore[reportPrivateUsage]
    path = f"/proc/{agent.sandbox._child.pid}/stat"  # pyright: ignore[reportPrivateUsage]
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        with open(path) as file:
            found = file.read().rsplit(")", 1)[1].split()[0]
        if found == "T":
            return found
    return found


def test_closing_every_descriptor_is_a_death(agent: Agent):
    outcome, _ = agent.run("import os; os.closerange(0, 64)")
    assert outcome.status == "died" and outcome.replaced


def test_level_none_still_bounds_memory_and_time(fresh):
    agent: Agent = fresh(SandboxLevel.NONE, seconds=0.5)
    assert agent.run("bytes(10**9)")[0].status == "memory"
    assert agent.run("while True: pass")[0].status == "timeout"
    assert agent.text("print(1)") == "1"
