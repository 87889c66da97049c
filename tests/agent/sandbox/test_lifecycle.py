"""Starting, replacing, ending: nothing is left behind, and a replay sees the same world."""

import fcntl
import marshal
import os
import resource
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import pytest

from openmaia.agent.sandbox import Json, Sandbox, SandboxLevel, SandboxLimits, template
from openmaia.agent.sandbox.launch import Launched, pack
from openmaia.agent.sandbox.policy import best_level, find_packages
from openmaia.core.errors import SandboxError
from tests.agent.sandbox.conftest import LIMITS, Agent, children, find_template, make

WORLD = """
import os, random, uuid, time, datetime, numpy, secrets, tempfile
print(hash("text"), list({"a", "b", "c", "d"}), random.random(), random.Random().random(), numpy.random.rand())
print(numpy.random.default_rng().random(), os.urandom(8), uuid.uuid4(), secrets.token_hex(4), id(object()))
print(datetime.date.today(), int(time.time()) // 60, os.getcwd(), tempfile.mktemp())
"""


def test_two_fresh_processes_see_the_same_world(fresh):
    agent: Agent = fresh()
    first = agent.text(WORLD)
    agent.sandbox.restart()
    assert agent.text(WORLD) == first
    assert "2024-01-01" in first


def test_sandboxes_differ_only_in_the_scratch_path(fresh):
    texts = [fresh().text(WORLD).splitlines()[:2] for _ in range(2)]
    assert texts[0] == texts[1]


def test_restart_forgets_variables_and_files(fresh):
    agent: Agent = fresh()
    agent.text("x = 1; open('f', 'w').close()")
    agent.sandbox.restart()
    assert agent.text("import os; print('x' in globals(), os.listdir())") == "False []"


def test_start_returns_at_once():
    with make() as sandbox:
        begun = time.monotonic()
        sandbox.start()
        sandbox.start()
        assert time.monotonic() - begun < 10 and len(children()) == 1


def test_child_outlives_its_starting_thread():
    with make() as sandbox:
        thread = threading.Thread(target=sandbox.start)
        thread.start()
        thread.join()
        time.sleep(0.2)
        assert Agent(sandbox).text("print(1)") == "1"


@pytest.mark.parametrize("attempt", range(3))  # a wrong start hangs in two of three attempts
def test_starts_do_not_wait_for_the_threads_of_a_library(attempt: int):
    """OpenBLAS's handler of a fork waits forever for a thread that multiplies matrices, so the parent must not fork."""
    code = (
        "import os, threading, numpy\nfrom tests.agent.sandbox.conftest import make\nmatrix = numpy.ones((300, 300))\n"
        "def multiply():\n    while True: matrix @ matrix\n"
        "for _ in range(3): threading.Thread(target=multiply, daemon=True).start()\n"
        "for _ in range(10):\n    with make() as sandbox: sandbox.start()\n"
        "print('done', flush=True)\nos._exit(0)\n"
    )
    # Where one thread is asked for, OpenBLAS has none to wait for.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    assert done.stdout == "done\n", done.stderr


def test_machine_without_user_namespaces_confines_by_landlock_alone():
    """A user namespace that allows no further ones stands for such a machine."""
    code = (
        "from tests.agent.sandbox.conftest import Agent, make\nwith make() as sandbox:\n"
        "    print(sandbox.level, sandbox.hides_files, Agent(sandbox).text('import os; print(os.path.exists(\\'/etc\\'))'))"
    )
    limited = [
        "unshare",
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"',
    ]
    if subprocess.run([*limited, "sh", "true"], capture_output=True).returncode:
        pytest.skip("user namespaces are not allowed here at all")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([*limited, "sh", sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.split() == [str(best_level()[0]), "False", "True"], done.stderr


@pytest.mark.parametrize("level", [best_level()[0], SandboxLevel.NONE])
def test_process_that_cannot_be_started_is_our_error(level: SandboxLevel, tmp_path: Path):
    with pytest.raises(SandboxError, match=f"could not be started at level {level}: "):
        Launched(level, SandboxLimits(**LIMITS), str(tmp_path / "missing"), "pass")
    assert children() == set()


def test_agent_goes_on_in_a_new_process_when_the_supervisor_dies(fresh):
    agent: Agent = fresh()
    child = os.pidfd_open(int(agent.text("import os; print(os.getpid())")))
    [supervisor] = children()
    os.kill(supervisor, signal.SIGKILL)
    assert select.select([child], [], [], 5)[0], "the process has not ended with its supervisor"
    os.close(child)
    outcome, _ = agent.run("print(2)")
    assert outcome.replaced and outcome.status != "ok"
    assert agent.text("print(3)") == "3" and len(children()) == 1


def test_agent_goes_on_when_the_template_dies(fresh):
    agents: list[Agent] = [fresh(), fresh()]
    processes = [os.pidfd_open(int(agent.text("import os; print(os.getpid())"))) for agent in agents]
    first = find_template()
    assert first is not None
    os.kill(first, signal.SIGKILL)
    for process in processes:
        assert select.select([process], [], [], 30)[0], "a process has not ended with its template"
        os.close(process)
    for agent in agents:
        assert agent.run("print(2)")[0].replaced
        assert agent.text("print(3)") == "3"
    assert find_template() not in (None, first) and len(children()) == 2


def test_start_is_repeated_when_the_template_dies_before_it_forks(fresh):
    fresh().text("")
    used, first = template._current, find_template()
    assert used is not None and first is not None
    os.kill(first, signal.SIGSTOP)
    agent: Agent = fresh()
    start = threading.Thread(target=agent.sandbox.start)
    start.start()
    try:
        deadline = time.monotonic() + 30
        while not struct.unpack("i", fcntl.ioctl(used._socket, termios.TIOCOUTQ, bytes(4)))[0]:
            assert time.monotonic() < deadline, "the template was not asked"
            time.sleep(0.01)
    finally:
        os.kill(first, signal.SIGKILL)
    start.join(30)
    assert agent.text("print(1)") == "1" and find_template() not in (None, first)


SLOW = "import time\ntime.sleep(60)\n"
"""Before the API of a process: it is not ready at once."""


@pytest.mark.parametrize("killed", ["template", "supervisor", "process"])
def test_start_is_repeated_when_a_process_is_killed_before_it_is_ready(fresh, killed: str):
    template.end()
    agent: Agent = fresh()
    api, agent.sandbox._api_source = agent.sandbox._api_source, SLOW + agent.sandbox._api_source
    agent.sandbox.start()
    agent.sandbox._api_source = api
    child = agent.sandbox._child
    assert child is not None
    process, [supervisor] = os.pidfd_open(child.pid), children()
    first = find_template()
    assert first is not None
    os.kill({"template": first, "supervisor": supervisor, "process": child.pid}[killed], signal.SIGKILL)
    assert select.select([process], [], [], 30)[0], "the process has not ended"
    os.close(process)
    outcome, text = agent.run("print(1)")
    assert (outcome.status, outcome.replaced, text) == ("ok", False, "1\n")
    assert agent.sandbox._child is not child and len(children()) == 1


def test_start_whose_process_is_killed_each_time_is_our_error(fresh):
    agent: Agent = fresh()
    agent.sandbox._api_source = SLOW
    killed, has_ended = set[int](), threading.Event()

    def kill() -> None:
        while not has_ended.wait(0.02):
            child = agent.sandbox._child
            if child is not None and child.pid not in killed:
                killed.add(child.pid)
                os.kill(child.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with pytest.raises(SandboxError, match="did not start: it was killed from outside"):
            agent.run("print(1)")
    finally:
        has_ended.set()
        killer.join()
    assert len(killed) == 3 and children() == set()


def test_result_is_kept_when_the_next_process_cannot_be_started(fresh):
    agent: Agent = fresh()
    agent.text("")
    child, folder = agent.sandbox._child, agent.sandbox._folder
    assert child is not None and folder is not None
    process = os.pidfd_open(child.pid)

    def serve(name: str, args: list[Json], kwargs: dict[str, Json]) -> Json:
        os.kill(child.pid, signal.SIGKILL)
        assert select.select([process], [], [], 30)[0], "the process has not ended"
        shutil.rmtree(folder)
        folder.touch()

    outcome = agent.sandbox.run("print(5); tools.echo(1)", serve, agent.log.append)
    os.close(process)
    assert outcome.status == "memory" and outcome.replaced and agent.log == ["5\n"]
    with pytest.raises(SandboxError, match="could not be started: .*Not a directory"):
        agent.run("print(1)")
    folder.unlink()
    folder.mkdir()
    assert agent.text("print(2)") == "2"


def test_template_that_cannot_be_replaced_is_replaced_later(fresh):
    agent: Agent = fresh()
    agent.text("")
    used = template._current
    assert used is not None
    os.kill(used._process.pid, signal.SIGKILL)
    used._process.wait()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # so that none can be opened
    try:
        with pytest.raises(OSError, match="Too many open files"):
            template.hand_over("", [0])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert fresh().text("print(2)") == "2"


def test_end_of_the_template_ends_its_sandboxes_and_leaves_no_process(fresh):
    agent: Agent = fresh()
    process = os.pidfd_open(int(agent.text("import os; print(os.getpid())")))
    template.end()
    assert select.select([process], [], [], 30)[0], "the process has not ended"
    os.close(process)
    assert find_template() is None
    assert agent.run("print(2)")[0].replaced and agent.text("print(3)") == "3"


def test_supervisors_hold_nothing_of_each_other_and_of_the_template(fresh):
    agents: list[Agent] = [fresh(), fresh()]
    assert [agent.text("print(1)") for agent in agents] == ["1", "1"]
    parent = find_template()
    assert len(os.listdir(f"/proc/{parent}/task")) == 1, "a process with threads may not fork"
    sockets = [
        {link for fd in Path(f"/proc/{pid}/fd").iterdir() if (link := os.readlink(fd)).startswith(("socket:", "pipe:"))}
        for pid in (parent, *children())
    ]
    assert len(sockets) == 3 and not any(a & b for i, a in enumerate(sockets) for b in sockets[i + 1 :])
    for pid in (parent, *children()):
        names = {each.partition(b"=")[0] for each in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if each}
        assert names == {b"PYTHONHASHSEED", b"LC_CTYPE", b"OPENBLAS_NUM_THREADS", b"OMP_NUM_THREADS", b"HOME"}


def test_forked_process_has_a_template_of_its_own(tmp_path: Path):
    code = (
        "import os\nfrom tests.agent.sandbox.conftest import Agent, find_template, make\n"
        "with make() as sandbox:\n    Agent(sandbox).text('1')\nfirst = find_template()\n"
        "if os.fork() == 0:\n"
        "    with make() as sandbox:\n        print(Agent(sandbox).text('print(5)'), find_template() != first, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "with make() as sandbox:\n    print(Agent(sandbox).text('print(6)'), find_template() == first)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.splitlines() == ["5 True", "6 True"], done.stderr


def test_threads_that_start_sandboxes_together_share_a_template(fresh):
    template.end()
    agents: list[Agent] = [fresh() for _ in range(3)]
    threads = [threading.Thread(target=agent.sandbox.start) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [agent.text(f"print({n})") for n, agent in enumerate(agents)] == ["0", "1", "2"]
    assert len(children()) == 3


def test_sandboxes_of_a_template_that_is_left_go_on(fresh):
    kept: Agent = fresh()
    assert kept.text("a = 1; print(a)") == "1"
    used = template._current
    assert used is not None and template.leave(used) == ""
    other: Agent = fresh()
    assert other.text("print(2)") == "2" and template._current is not used
    assert kept.text("print(a)") == "1"
    template.end()
    assert find_template() is None


def test_sandbox_of_a_process_with_many_open_files_starts_and_ends(tmp_path: Path):
    code = (
        "import os, resource\nfrom tests.agent.sandbox.conftest import Agent, make\n"
        "most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4096), most))\n"
        "opened = [open(os.devnull) for _ in range(1100)]\n"
        "before = len(os.listdir('/proc/self/fd'))\n"
        "for _ in range(2):\n"
        "    with make() as sandbox:\n        print(Agent(sandbox).text('print(7)'), flush=True)\n"
        "print(len(os.listdir('/proc/self/fd')) - before)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    # What stays open is the socket and the output of the template.
    assert done.stdout.splitlines() == ["7", "7", "2"], done.stderr


def test_exception_of_serve_propagates(fresh):
    agent: Agent = fresh()
    before = children()
    with pytest.raises(ZeroDivisionError, match="ours"):
        agent.run("tools.crash()")
    assert children() == before
    assert agent.text("print(1)") == "1"


def test_writer_that_raises_leaves_no_process(fresh):
    agent: Agent = fresh()

    def broken(text: str) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        agent.sandbox.run("print(1)", agent.serve, broken)
    assert children() == set()


def test_api_that_does_not_start_is_our_error():
    with make() as sandbox:
        sandbox._api_source = "1 / 0"  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(SandboxError) as caught:
            sandbox.run("print(1)", lambda name, args, kwargs: None, lambda text: None)
    assert "ZeroDivisionError" in (caught.value.detail or "") and children() == set()


def test_restarts_leak_nothing():
    with make() as sandbox:
        sandbox.start()
        sandbox.restart()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            sandbox.restart()
        assert len(os.listdir("/proc/self/fd")) < before + 5  # the last child's supervisor may be halfway through
        assert len(children()) == 1
        assert Agent(sandbox).text("print(1)") == "1"
        home = sandbox._folder  # pyright: ignore[reportPrivateUsage]
        assert home is not None and home.exists()
    assert not home.exists() and children() == set()
    sandbox.close()


def test_child_dies_with_a_killed_parent(tmp_path: Path):
    script = tmp_path / "parent.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[3])!r})\n"
        "from tests.agent.sandbox.conftest import find_template, make, Agent\nfrom pathlib import Path\n"
        "sandbox = make(); agent = Agent(sandbox); agent.text('1')\n"
        "print(sandbox._child.pid, find_template(), sandbox._folder, flush=True)\n"
        "agent.run('while True: pass')\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        *pids, home = parent.stdout.readline().split()
        processes = [os.pidfd_open(int(pid)) for pid in pids]
        parent.send_signal(signal.SIGKILL)
    try:
        for process in processes:
            assert select.select([process], [], [], 30)[0], "the child or the template is still alive"
    finally:
        for process in processes:
            os.close(process)
        subprocess.run(["rm", "-rf", "--", home], check=True)


def test_level_none_is_refused_without_consent():
    sandbox = Sandbox(api_source="", manifest=None, limits=SandboxLimits(**LIMITS), _level=SandboxLevel.NONE)
    with pytest.raises(SandboxError, match=r"sandbox\.allow_none=true"):
        sandbox.start()


def test_level_none_runs_with_consent(fresh):
    agent: Agent = fresh(SandboxLevel.NONE)
    assert agent.sandbox.level is SandboxLevel.NONE
    assert agent.text("print(tools.echo(1))") == "<echo>1"
    assert "PermissionError" in agent.run("import socket; socket.socket()")[0].error


def test_modules_on_the_users_path_do_not_reach_the_process(tmp_path: Path):
    (tmp_path / "statistics.py").write_text("raise SystemExit('taken from the path of the user')")
    code = (
        "from tests.agent.sandbox.conftest import Agent, make\nwith make() as sandbox:\n"
        "    print(Agent(sandbox).text('print(statistics.mean([1, 3]), statistics.__file__)'))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.stdout.split() == ["2", f"{os.path.dirname(os.path.realpath(os.__file__))}/statistics.py"], done.stderr


def test_code_of_imported_modules_is_packed():
    own, modules, missing, libraries = marshal.loads(pack())
    assert list(own)[-1] == "openmaia.agent.sandbox.child" and all(modules.values())
    assert {"json", "typing", "numpy", "numpy.random.mtrand", "PIL.Image"} <= modules.keys()
    assert not any(name.partition(".")[0] in ("openmaia", "sandlock") for name in modules)
    assert not modules.keys() & set(missing) and "org" in missing  # pickle looks for it
    assert any("numpy.libs" in file or "openblas" in file for file in libraries) or not libraries
    folders = (os.path.dirname(os.path.realpath(os.__file__)), *find_packages().values())
    assert all(os.path.realpath(file).startswith(folders) for file, _, _ in modules.values())


def test_sandlock_is_imported_only_when_needed():
    code = "import sys, openmaia.agent.sandbox\nprint({m.split('.')[0] for m in sys.modules} & {'sandlock', 'ray'})"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "set()"
