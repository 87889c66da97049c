"""What hostile code tries, at both levels of protection. One property each, named for it."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from openmaia.agent.sandbox import Sandbox, SandboxLevel
from openmaia.agent.sandbox.policy import best_level
from tests.agent.sandbox.conftest import Agent, make

REFUSED = "PermissionError"


@pytest.fixture(scope="module", params=[SandboxLevel.FULL, SandboxLevel.DEGRADED])
def shared(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    if request.param is SandboxLevel.FULL and best_level()[0] is not SandboxLevel.FULL:
        pytest.skip(f"full protection is not to be had here: {best_level()[1]}")
    with make(request.param) as sandbox:
        assert sandbox.level is request.param
        yield sandbox


def refused(agent: Agent, code: str) -> None:
    outcome, text = agent.run(code)
    assert outcome.status == "error" and REFUSED in outcome.error, (outcome, text)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_text("untouched")
    path.chmod(0o600)
    return path


def test_reading_a_file_outside(agent: Agent, victim: Path):
    refused(agent, f"open({str(victim)!r}).read()")
    refused(agent, "open('/etc/passwd').read()")


def test_reading_the_source_of_this_project(agent: Agent):
    refused(agent, f"open({__file__!r}).read()")
    refused(agent, f"import os; os.listdir({str(Path(__file__).parent)!r})")


def test_writing_outside_scratch(agent: Agent, victim: Path):
    refused(agent, f"open({str(victim)!r}, 'w')")
    refused(agent, f"open({str(victim.parent / 'new')!r}, 'w')")
    refused(agent, f"import os; os.truncate({str(victim)!r}, 0)")
    refused(agent, f"import os; os.open({str(victim)!r}, os.O_RDONLY | os.O_TRUNC)")
    refused(agent, f"import os; os.unlink({str(victim)!r})")
    assert victim.read_text() == "untouched"


def test_modes_owners_and_times_of_files_outside(agent: Agent, victim: Path):
    before = victim.stat()
    for call in ("chmod(p, 0o777)", "utime(p, (1, 1))", "chown(p, 1, 1)", "setxattr(p, 'user.a', b'1')"):
        refused(agent, f"import os; p = {str(victim)!r}; os.{call}")
    after = victim.stat()
    assert stat.S_IMODE(after.st_mode) == 0o600 and after.st_mtime == before.st_mtime and after.st_uid == before.st_uid


def test_links_out_of_scratch(agent: Agent, victim: Path):
    refused(agent, f"import os\nos.symlink({str(victim)!r}, 'way'); open('way').read()")
    outcome, _ = agent.run(f"import os\nos.link({str(victim)!r}, 'hard')")
    assert outcome.status == "error"


def test_writing_inside_scratch_works(agent: Agent):
    code = "import tempfile\nopen('a', 'w').write('x')\nwith tempfile.TemporaryFile() as f: f.write(b'y')\n"
    assert agent.text(code + "print(open('a').read())") == "x"


def test_network_connect(agent: Agent):
    refused(agent, "import socket; socket.create_connection(('127.0.0.1', 1), timeout=1)")
    refused(agent, "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)")
    refused(agent, "import socket; socket.socket(socket.AF_INET6)")


def test_dns(agent: Agent):
    outcome, _ = agent.run("import socket; socket.gethostbyname('example.com')")
    assert outcome.status == "error" and "gaierror" in outcome.error


def test_unix_sockets(agent: Agent):
    refused(agent, "import socket; socket.socket(socket.AF_UNIX).connect('/run/x')")


def test_netlink_packet_and_vsock(agent: Agent):
    for family in (16, 17, 40):
        refused(agent, f"import socket; socket.socket({family}, socket.SOCK_DGRAM)")


def test_raw_system_calls_open_no_socket(agent: Agent):
    code = "import ctypes, platform\nn = 41 if platform.machine() == 'x86_64' else 198\nl = ctypes.CDLL(None)\n"
    assert agent.text(code + "print(l.syscall(n, 2, 1, 0))") == "-1"
    outcome, text = agent.run(code + "print(l.syscall(n | 0x40000000, 2, 1, 0))")
    assert outcome.status == "died" or text == "-1\n"


def test_signals_to_the_parent(agent: Agent):
    refused(agent, "import os, signal; os.kill(os.getppid(), signal.SIGCONT)")
    refused(agent, "import os; os.kill(os.getppid(), 0)")
    refused(agent, "import os; os.killpg(1, 0)")


def test_limits_and_priorities_of_the_parent(agent: Agent):
    before = os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)
    refused(agent, "import resource, os; resource.prlimit(os.getppid(), resource.RLIMIT_CORE, (0, 0))")
    refused(agent, "import os; os.sched_setaffinity(os.getppid(), [0])")
    refused(agent, "import os; os.setpriority(os.PRIO_PROCESS, os.getppid(), 5)")
    assert (os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)) == before


def test_its_own_limits_cannot_be_raised(agent: Agent):
    outcome, _ = agent.run("import resource; resource.setrlimit(resource.RLIMIT_DATA, (-1, -1))")
    assert outcome.status == "error"


def test_memory_of_the_parent(agent: Agent):
    refused(agent, "import os; open(f'/proc/{os.getppid()}/mem', 'rb')")
    refused(agent, "import os; os.listdir(f'/proc/{os.getppid()}/fd')")
    code = "import ctypes, os\nl = ctypes.CDLL(None, use_errno=True)\n"
    assert agent.text(code + "print(l.ptrace(16, os.getppid(), 0, 0), ctypes.get_errno())") == "-1 1"
    assert agent.text(code + "print(l.process_vm_readv(os.getppid(), 0, 0, 0, 0, 0), ctypes.get_errno())") == "-1 1"


def test_environment_holds_four_constants(agent: Agent):
    names = {"PYTHONHASHSEED", "LC_CTYPE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"}
    assert set(agent.text("import os; print(*os.environ)").split()) == names
    refused(agent, "open('/proc/self/environ').read()")


def test_descriptors_are_pipes_and_nothing_more(agent: Agent):
    code = """
import os, stat
kinds = {}
for fd in range(1024):
    try: kinds[fd] = stat.S_ISFIFO(os.fstat(fd).st_mode)
    except OSError: pass
print(len(kinds), all(kinds.values()))
"""
    assert agent.text(code) == "5 True"


def test_process_it_starts_is_confined_too(agent: Agent, victim: Path):
    command = f"import sys; print(open({str(victim)!r}).read())"
    start = f"[sys.executable, '-S', '-c', {command!r}]"
    outcome, text = agent.run(f"import subprocess, sys\nprint(subprocess.run({start}, capture_output=True))")
    assert "untouched" not in text
    assert REFUSED in text + outcome.error
    outcome, text = agent.run("import subprocess; print(subprocess.check_output(['/bin/cat', '/etc/passwd']))")
    assert "root:" not in text and outcome.status == "error"


def test_new_session_or_process_group(agent: Agent):
    refused(agent, "import os; os.setsid()")
    refused(agent, "import os; os.setpgid(0, 0)")


def test_memory_that_no_limit_counts(agent: Agent):
    refused(agent, "import os; os.memfd_create('x')")


def test_proxies_expose_only_the_pipe(agent: Agent):
    code = """
import gc, sys
seen, todo = [], [system.call]
while todo:
    f = todo.pop()
    for cell in (getattr(f, "__closure__", None) or ()):
        value = cell.cell_contents
        seen.append(type(value).__name__)
        if callable(value) and value not in todo: todo.append(value)
frame, depth = sys._getframe(), 0
while frame: frame, depth = frame.f_back, depth + 1
names = {type(o).__name__ for o in gc.get_objects()}
print("int" in seen, depth > 2, names & {"Sandbox", "Child", "Experiment", "Process"})
"""
    assert agent.text(code) == "True True set()"


def test_own_modules_are_not_importable(agent: Agent):
    assert agent.text("import sys; print([m for m in sys.modules if m.startswith(('openmaia.', 'sandlock'))])") == "[]"


def test_call_from_a_second_thread(agent: Agent):
    code = """
import threading
def f():
    try: tools.echo(1)
    except RuntimeError as e: print(e)
t = threading.Thread(target=f); t.start(); t.join()
"""
    outcome, text = agent.run(code)
    assert outcome.status == "ok" and text.startswith("tools can only be called") and not outcome.replaced


def test_argument_of_a_gigabyte(agent: Agent):
    outcome, text = agent.run("import numpy\ntools.echo(memoryview(numpy.broadcast_to(numpy.uint8(0), (1 << 30,))))")
    assert outcome.status == "error" and "can be sent at once" in outcome.error and "<echo>" not in text


def test_oversized_result_is_an_error(agent: Agent):
    outcome, _ = agent.run("tools.big(9 << 20)")
    assert outcome.status == "error" and "too large" in outcome.error and not outcome.replaced
