"""What the sandbox refuses and what it grants: one property each, as code that an experiment runs.

`test_checks.py` runs each at both levels of protection; `python -m tests.agent.sandbox` writes docs/sandbox-checks.md.
"""

import os
import re
from dataclasses import dataclass

PRELUDE = """
import os, sys, errno, ctypes, platform, socket, fcntl, resource, signal
OUTSIDE, FOLDER, PARENT = {outside!r}, {folder!r}, {parent}
SHARED = os.__file__
_libc = ctypes.CDLL(None, use_errno=True)
def call(x86, arm, *arguments):
    number = x86 if platform.machine() == "x86_64" else arm
    values = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    ctypes.set_errno(0)
    result = _libc.syscall(ctypes.c_long(number), *values)
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result
"""

REFUSED = r"PermissionError|Errno 38|Function not implemented"
ABSENT = REFUSED + r"|FileNotFoundError|ProcessLookupError|Read-only file system"
"""A refusal that does not even say whether the file exists."""
EITHER = ABSENT + "|OSError|ValueError"


EXISTENCE = "Existence of files outside"


@dataclass(frozen=True)
class Check:
    """One property of the sandbox."""

    group: str
    what: str
    code: str
    ends: str = REFUSED
    """Pattern of the last line of the traceback or, if the code ends well, of the output."""
    needs_namespaces: bool = False
    """Whether the property holds only where user namespaces are allowed."""

    @property
    def name(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", f"{self.group} {self.what}".lower()).strip("-")


def _many(group: str, ends: str, **codes: str) -> list[Check]:
    return [Check(group, what.replace("_", " "), code, ends) for what, code in codes.items()]


def _calls(group: str, **numbers: tuple[int, int]) -> list[Check]:
    """System calls by number (x86_64, aarch64), with arguments that mean nothing: they are refused before they are read."""
    return [
        Check(group, f"system call {name}", f"call({x86}, {arm}, 0, 0, 0, 0, 0, 0)")
        for name, (x86, arm) in numbers.items()
        if os.uname().machine == "x86_64" or arm >= 0
    ]


FILES = [
    *_many(
        "Files outside",
        ABSENT,
        read="open(OUTSIDE).read()",
        read_of_the_password_file="open('/etc/passwd').read()",
        read_of_the_shadow_file="open('/etc/shadow').read()",
        read_of_the_machine_id="open('/etc/machine-id').read()",
        list="os.listdir(FOLDER)",
        list_of_the_root="os.listdir('/')",
        list_of_the_home_folder="os.listdir('/root' if os.getuid() == 0 else '/home')",
        list_of_the_temporary_folder="os.listdir('/tmp')",
        list_of_devices="os.listdir('/dev')",
        write="open(OUTSIDE, 'w')",
        append="open(OUTSIDE, 'a')",
        create="open(FOLDER + '/new', 'w')",
        truncate="os.truncate(OUTSIDE, 0)",
        truncation_by_open="os.open(OUTSIDE, os.O_RDONLY | os.O_TRUNC)",
        delete="os.unlink(OUTSIDE)",
        rename="os.rename(OUTSIDE, FOLDER + '/renamed')",
        rename_into_scratch="os.rename(OUTSIDE, 'stolen')",
        new_folder="os.mkdir(FOLDER + '/new')",
        folder_removed="os.rmdir(FOLDER)",
        named_pipe="os.mkfifo(FOLDER + '/pipe')",
        mode="os.chmod(OUTSIDE, 0o777)",
        owner="os.chown(OUTSIDE, 1, 1)",
        times="os.utime(OUTSIDE, (1, 1))",
        read_through_a_symbolic_link="os.symlink(OUTSIDE, 'way'); open('way').read()",
        write_to_the_standard_library="open(SHARED, 'a')",
        file_added_to_the_standard_library="open(os.path.dirname(SHARED) + '/evil.py', 'w')",
        write_to_numpy="import numpy; open(numpy.__file__, 'a')",
        execution="os.execv(OUTSIDE, ['x'])",
    ),
    Check("Files outside", "hard link into scratch", "os.link(OUTSIDE, 'hard')", EITHER),
    Check("Files outside", "path through the parent folder", "open('../' * 40 + OUTSIDE[1:]).read()", ABSENT),
    Check("Files outside", "this project's source", "open({source!r}).read()", ABSENT),
    Check("Files outside", "this project's folder", "os.listdir({source!r}.rsplit('/', 1)[0])", ABSENT),
    Check("Files outside", "the folder of installed packages", "import numpy; os.listdir({packages!r})", ABSENT),
    Check("Files outside", "packages beside the standard library", "open({beside!r}).read()", ABSENT),
    Check(
        "Files outside",
        "packages beside it by a link",
        "os.symlink({beside!r}, 'beside'); open('beside').read()",
        ABSENT,
    ),
    Check("Files outside", "another package's source", "open({packages!r} + '/ray/__init__.py').read()", ABSENT),
]

VIEW = [
    Check(EXISTENCE, what, code, "FileNotFoundError|PermissionError.*/proc", needs_namespaces=True)
    for what, code in {
        "size and times": "os.stat(OUTSIDE)",
        "size and times of a folder": "os.stat(FOLDER)",
        "size and times without following links": "os.lstat(OUTSIDE)",
        "this project's source": "os.stat({source!r})",
        "another package": "os.stat({packages!r} + '/ray/__init__.py')",
        "the password file": "os.stat('/etc/passwd')",
        "programs": "os.stat('/usr/bin/env')",
        "the runtime folder": "os.stat('/run')",
        "devices": "os.stat('/dev/zero')",
        "a symbolic link to it": "os.symlink(OUTSIDE, 'link'); os.stat('link')",
        "the path through the parent folder": "os.stat('../' * 40 + OUTSIDE[1:])",
        "the path through the root of a process": "os.stat('/proc/self/root' + OUTSIDE)",
        "the path through the root of the parent": "os.stat(f'/proc/{PARENT}/root' + OUTSIDE)",
        "the target of a link": "os.readlink('/etc/mtab')",
        "free space": "os.statvfs(FOLDER)",
    }.items()
]

ATTRIBUTES = [
    *_many(
        "Extended attributes",
        REFUSED,
        read="os.getxattr(OUTSIDE, 'user.a')",
        read_of_a_symbolic_link="os.getxattr(OUTSIDE, 'user.a', follow_symlinks=False)",
        read_of_an_open_file="os.getxattr(os.open(SHARED, os.O_RDONLY), 'user.a')",
        list="os.listxattr(OUTSIDE)",
        list_of_a_symbolic_link="os.listxattr(OUTSIDE, follow_symlinks=False)",
        list_of_an_open_file="os.listxattr(os.open(SHARED, os.O_RDONLY))",
        write="os.setxattr(OUTSIDE, 'user.a', b'1')",
        removal="os.removexattr(OUTSIDE, 'user.a')",
    ),
    *_calls(
        "Extended attributes",
        setxattrat=(463, 463),
        getxattrat=(464, 464),
        listxattrat=(465, 465),
        removexattrat=(466, 466),
        file_getattr=(468, 468),
        file_setattr=(469, 469),
    ),
]

_LOCK = "import struct; lock = struct.pack('hhqqi4x', {kind}, 0, 0, 0, 0); fcntl.fcntl(open(SHARED), {command}, lock)"
LOCKS = [
    *_many(
        "Locks and leases on shared files",
        REFUSED,
        flock_shared="fcntl.flock(open(SHARED), fcntl.LOCK_SH)",
        flock_exclusive="fcntl.flock(open(SHARED), fcntl.LOCK_EX | fcntl.LOCK_NB)",
        lock_of_a_range=_LOCK.format(kind=0, command="fcntl.F_SETLK"),
        lock_of_a_range_that_waits=_LOCK.format(kind=0, command="fcntl.F_SETLKW"),
        lock_of_an_open_file_description=_LOCK.format(kind=0, command=37),
        locks_of_others=_LOCK.format(kind=1, command="fcntl.F_GETLK"),
        read_lease="fcntl.fcntl(open(SHARED), 1024, 0)",
        write_lease="fcntl.fcntl(open(SHARED), 1024, 1)",
        notification_of_changes="fcntl.fcntl(os.open('.', os.O_RDONLY), 1026, 1)",
        write_hint="fcntl.fcntl(open(SHARED), 1036, b'x' * 8)",
        size_of_a_pipe="fcntl.fcntl(os.pipe()[0], 1031, 1 << 20)",
        watch_by_inotify="call(254, 27, 0, SHARED.encode(), 2)",
        watch_of_a_mount_by_fanotify="call(300, 262, 0, 0)",
    ),
]

_OWNER = "r, w = os.pipe(); fcntl.fcntl(r, {command}, {value})"
SIGNALS = [
    *_many(
        "Signals",
        REFUSED,
        to_the_parent="os.kill(PARENT, signal.SIGCONT)",
        to_the_parent_number_0="os.kill(PARENT, 0)",
        to_all_processes="os.kill(-1, 0)",
        to_a_process_group="os.killpg(1, 0)",
        to_a_thread="call(200, 130, PARENT, 0)",
        to_a_thread_of_a_process="call(234, 131, PARENT, PARENT, 0)",
        with_a_value="call(129, 138, PARENT, 0, b'x' * 128)",
        by_a_process_descriptor="os.pidfd_open(PARENT)",
        owner_of_a_pipe=_OWNER.format(command=8, value="PARENT"),
        owner_by_type=_OWNER.format(command=15, value="b'x' * 8"),
        signal_of_a_pipe=_OWNER.format(command=10, value="signal.SIGKILL"),
        notice_by_signal=_OWNER.format(command=4, value=0x2000),
        notice_by_ioctl="fcntl.ioctl(os.pipe()[0], 0x5452, b'x' * 4)",
        owner_by_ioctl="fcntl.ioctl(os.pipe()[0], 0x8901, b'x' * 4)",
        signal_at_the_end_of_the_parent="call(157, 167, 1, 0, 0, 0, 0)",
    ),
]

NETWORK = [
    *_many(
        "Network",
        REFUSED,
        TCP="socket.create_connection(('127.0.0.1', 1), timeout=1)",
        TCP_over_IPv6="socket.socket(socket.AF_INET6)",
        UDP="socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
        raw_packets="socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
        ping_sockets="socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1)",
        unix_sockets="socket.socket(socket.AF_UNIX)",
        netlink="socket.socket(16, socket.SOCK_DGRAM)",
        packet_sockets="socket.socket(17, socket.SOCK_DGRAM)",
        vsock="socket.socket(40, socket.SOCK_STREAM)",
        kernel_crypto_sockets="socket.socket(38, 5)",
        bluetooth_sockets="socket.socket(31, 3)",
        pairs_of_stream_sockets="socket.socketpair()",
        pairs_of_datagram_sockets="socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
        datagram_to_an_address="call(44, 206, 0, b'x', 1, 0, b'\\x01\\x00\\x00abstract', 11)",
        message_with_descriptors="call(46, 211, 0, b'x' * 56, 0)",
        several_messages="call(307, 269, 0, b'x' * 64, 1, 0)",
        received_descriptors="call(47, 212, 0, b'x' * 56, 0)",
        list_of_interfaces="socket.if_nameindex()",
    ),
    Check("Network", "names of hosts", "socket.gethostbyname('example.com')", "gaierror|PermissionError"),
    Check(
        "Network",
        "system calls under their x32 numbers",
        "call(41 | 0x40000000, 198 | 0x40000000, 2, 1, 0)",
        REFUSED + "|signal 31",
    ),
]

PROCESSES = [
    *_many(
        "Other processes",
        ABSENT,
        memory_by_proc="open(f'/proc/{PARENT}/mem', 'rb')",
        environment_by_proc="open(f'/proc/{PARENT}/environ').read()",
        command_line_by_proc="open(f'/proc/{PARENT}/cmdline').read()",
        open_files_by_proc="os.listdir(f'/proc/{PARENT}/fd')",
        list_of_processes="os.listdir('/proc')",
        own_environment_by_proc="open('/proc/self/environ').read()",
        own_memory_by_proc="open('/proc/self/mem', 'r+b')",
        attach_by_ptrace="call(101, 117, 16, PARENT, 0, 0)",
        memory_read="call(310, 270, PARENT, 0, 0, 0, 0, 0)",
        memory_written="call(311, 271, PARENT, 0, 0, 0, 0, 0)",
        descriptors_taken="call(438, 438, 3, 0, 0)",
        comparison="call(312, 272, PARENT, PARENT, 0, 0, 0)",
        limits="resource.prlimit(PARENT, resource.RLIMIT_CORE, (0, 0))",
        processors="os.sched_setaffinity(PARENT, [0])",
        priority="os.setpriority(os.PRIO_PROCESS, PARENT, 5)",
        priority_read="os.getpriority(os.PRIO_PROCESS, PARENT)",
        scheduler="os.sched_setscheduler(PARENT, 0, os.sched_param(0))",
        scheduler_read="os.sched_getscheduler(PARENT)",
        process_group_read="os.getpgid(PARENT)",
        session_read="os.getsid(PARENT)",
        pages_moved="call(256, 238, PARENT, 0, 0, 0)",
        locks_of_its_threads="call(274, 100, PARENT, 0, 0)",
        new_session="os.setsid()",
        new_process_group="os.setpgid(0, 0)",
    ),
]

KERNEL = [
    *_calls(
        "Ways past the limits",
        timer_create=(222, 107),
        vmsplice=(278, 75),
        splice=(275, 76),
        tee=(276, 77),
        fallocate=(285, 47),
    ),
    *_calls(
        "Kernel",
        mount=(165, 40),
        umount2=(166, 39),
        pivot_root=(155, 41),
        chroot=(161, 51),
        fsopen=(430, 430),
        open_tree=(428, 428),
        move_mount=(429, 429),
        mount_setattr=(442, 442),
        statmount=(457, 457),
        listmount=(458, 458),
        unshare=(272, 97),
        setns=(308, 268),
        personality=(135, 92),
        bpf=(321, 280),
        perf_event_open=(298, 241),
        userfaultfd=(323, 282),
        io_uring_setup=(425, 425),
        io_setup=(206, 0),
        keyctl=(250, 219),
        add_key=(248, 217),
        request_key=(249, 218),
        seccomp=(317, 277),
        kexec_load=(246, 104),
        init_module=(175, 105),
        finit_module=(313, 273),
        delete_module=(176, 106),
        reboot=(169, 142),
        swapon=(167, 224),
        acct=(163, 89),
        syslog=(103, 116),
        quotactl=(179, 60),
        sync=(162, 81),
        mincore=(27, 232),
        cachestat=(451, 451),
        name_to_handle_at=(303, 264),
        open_by_handle_at=(304, 265),
        lsm_list_modules=(461, 461),
        capset=(126, 91),
        iopl=(172, -1),
        modify_ldt=(154, -1),
    ),
    Check("Kernel", "clone with new namespaces", "call(56, 220, 0x10000000 | 17, 0, 0, 0, 0)"),
    Check("Kernel", "clone of a sibling", "call(56, 220, 0x8000 | 17, 0, 0, 0, 0)"),
    Check("Kernel", "clone that resumes its parent", "call(56, 220, 18, 0, 0, 0, 0)"),
    Check("Kernel", "clone3", "call(435, 435, 0, 0)"),
    Check("Kernel", "prctl: another seccomp filter", "call(157, 167, 22, 2, 0, 0, 0)"),
    Check("Kernel", "prctl: adoption of orphans", "call(157, 167, 36, 0, 0, 0, 0)"),
    Check("Kernel", "prctl: dumpable", "call(157, 167, 4, 1, 0, 0, 0)"),
    Check("Kernel", "ioctl: input to a terminal", "fcntl.ioctl(0, 0x5412, b'x')"),
    Check("Kernel", "ioctl: flags of a file", "fcntl.ioctl(open(SHARED), 0x80086601, b'x' * 8)"),
    Check("Kernel", "wall clock", "import time; time.clock_settime(time.CLOCK_REALTIME, 0)"),
    Check("Kernel", "host name", "print(os.uname().nodename)", "^sandbox-"),
]

_BIG = "try: open('big', 'wb').write(bytes(20 << 20))\nfinally: os.unlink('big')"
_PIPES_IN_A_LIST = """
kept = []
try:
    while True: kept.extend(os.pipe())
finally:
    for fd in kept: os.close(fd)
"""
MEMORY = [
    *_many(
        "Memory and limits",
        REFUSED + "|not allowed to raise maximum limit",
        memory_file="os.memfd_create('x')",
        System_V_shared_memory="call(29, 194, 0, 4096, 0o1600)",
        System_V_semaphores="call(64, 190, 0, 1, 0o1600)",
        System_V_messages="call(68, 186, 0, 0o1600)",
        POSIX_message_queue="call(240, 180, b'/x', 0o102, 0o600, 0)",
        limit_raised="resource.setrlimit(resource.RLIMIT_DATA, (-1, -1))",
        limit_of_open_files_raised="resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))",
    ),
    Check("Memory and limits", "secret memory", "call(447, 447, 0)", REFUSED),
    Check("Memory and limits", "a gigabyte at once", "bytearray(1 << 30)", "MemoryError"),
    Check("Memory and limits", "a gigabyte in numpy", "import numpy; numpy.ones(1 << 27)", "MemoryError"),
    Check("Memory and limits", "a file above the limit", _BIG, "File too large"),
    Check("Memory and limits", "more open files", _PIPES_IN_A_LIST, "Too many open files"),
    Check("Memory and limits", "limits read", "resource.getrlimit(resource.RLIMIT_CORE)"),
]

_NAMES = "{'LC_CTYPE', 'OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'PYTHONHASHSEED'}"
_OWN = "print([name for name in sys.modules if name.startswith(('openmaia.', 'sandlock'))])"
_FOUND = """
for name in ("torch", "sandlock", "openmaia", "pytest", "ray", "wandb", "openai"):
    try: __import__(name); print(name)
    except ImportError: pass
print("end")
"""
_PIPES = """
import stat
kinds = []
for fd in range(1024):
    try: kinds.append(stat.S_ISFIFO(os.fstat(fd).st_mode))
    except OSError: pass
print(len(kinds), all(kinds))
"""
SECRETS = [
    Check("What the code sees", "an environment of constants", f"print(set(os.environ) == {_NAMES})", "^True"),
    Check("What the code sees", "no variables of the parent", "print(os.environ.get('HOME'))", "^None"),
    Check("What the code sees", "descriptors that are pipes, and no other", _PIPES, "^5 True"),
    Check("What the code sees", "no modules of this project", _OWN, r"^\[\]"),
    Check("What the code sees", "no packages but numpy, Pillow and scipy", _FOUND, "^end"),
    Check("What the code sees", "no arguments of the program", "print(sys.orig_argv)", r"^\[\]"),
    Check("What the code sees", "no capabilities", "call(126, 91, 0, 0)", REFUSED),
    Check("What the code sees", "a random source that repeats", "print(os.urandom(4) != os.urandom(4))", "^True"),
    Check(
        "What the code sees",
        "a clock that starts in 2024",
        "import time; print(time.gmtime(time.time()).tm_year)",
        "^2024",
    ),
]

_THREAD = "import threading\nt = threading.Thread(target=print, args=('ran',)); t.start(); t.join()"
_SAVED = "import numpy\nnumpy.save('a.npy', numpy.arange(3)); print(numpy.load('a.npy').sum())"
_PICTURE = "import PIL.Image\nPIL.Image.new('RGB', (2, 2)).save('a.png'); print(PIL.Image.open('a.png').size)"
GRANTED = [
    Check("Granted", "files in scratch", "open('a', 'w').write('x'); print(open('a').read())", "^x"),
    Check("Granted", "folders in scratch", "os.makedirs('d/e'); print(os.listdir('d'))", "^.'e'"),
    Check(
        "Granted", "temporary files", "import tempfile\nwith tempfile.TemporaryFile() as f: print(f.write(b'x'))", "^1"
    ),
    Check("Granted", "threads", _THREAD, "^ran"),
    Check("Granted", "arrays in files", _SAVED, "^3"),
    Check("Granted", "pictures in files", _PICTURE, r"^\(2, 2\)"),
    Check("Granted", "scipy", "import scipy.ndimage as n; print(n.sum([1, 2]))", "^3"),
    Check("Granted", "linear algebra", "import numpy; print(numpy.linalg.inv(numpy.eye(2) * 2)[0, 0])", "^0.5"),
    Check("Granted", "any module of the standard library", "import sqlite3, ssl, decimal, csv; print(1)", "^1"),
    Check("Granted", "sleep", "import time; time.sleep(0.01); print(1)", "^1"),
    Check("Granted", "descriptors copied", "print(os.dup(0) > 2)", "^True"),
    Check("Granted", "pipes that do not block", "r, w = os.pipe(); os.set_blocking(r, False); print(1)", "^1"),
]

CHECKS = (*FILES, *VIEW, *ATTRIBUTES, *LOCKS, *SIGNALS, *NETWORK, *PROCESSES, *KERNEL, *MEMORY, *SECRETS, *GRANTED)
