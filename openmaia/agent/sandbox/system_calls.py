"""The seccomp filter that the sandboxed process installs on itself.

`sandlock`'s filter, which is installed before, refuses system calls by name. It cannot test arguments, ignores names
that it does not know, and allows what sandlock needs to start the process: these cases are covered here. If the two
filters disagree, the stricter one decides.

The source of this module is sent to that process, so it may import only the standard library.
"""

import struct

_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_EPERM, _ENOSYS = 0x00050000 | 1, 0x00050000 | 38
_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
MACHINES = tuple(_AUDIT)
"""The machines, as named by `platform.machine`, whose system call numbers are known."""

_COLUMNS = ("x86_64", "aarch64")
_DENIED: dict[str, tuple[int, int | None]] = {
    # Sockets of any family, and what sends to an address or passes descriptors if there were one.
    **{"socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201)},
    **{"accept": (43, 202), "accept4": (288, 242), "sendto": (44, 206), "sendmsg": (46, 211), "sendmmsg": (307, 269)},
    **{"recvfrom": (45, 207), "recvmsg": (47, 212), "recvmmsg": (299, 243)},
    # Leaving the process group that is killed as one; limits, also of another process of the same user.
    **{"setpgid": (109, 154), "setsid": (112, 157), "setrlimit": (160, 164), "prlimit64": (302, 261)},
    # Calls that are too new for sandlock's names, or that `confine` needs before.
    **{"setxattrat": (463, 463), "getxattrat": (464, 464), "listxattrat": (465, 465), "removexattrat": (466, 466)},
    **{"file_getattr": (468, 468), "file_setattr": (469, 469), "open_tree_attr": (467, 467), "cachestat": (451, 451)},
    **{"statmount": (457, 457), "listmount": (458, 458), "chroot": (161, 51), "personality": (135, 92)},
    **{"lsm_get_self_attr": (459, 459), "lsm_set_self_attr": (460, 460), "lsm_list_modules": (461, 461)},
    **{"listns": (470, 470), "seccomp": (317, 277), "capset": (126, 91), "map_shadow_stack": (453, 453)},
}
_FORKS: dict[str, tuple[int, int | None]] = {"fork": (57, None), "vfork": (58, None)}
_CLONE, _CLONE3 = (56, 220), (435, 435)
_CLONE_PARENT, _CLONE_THREAD, _EXIT_SIGNALS, _SIGCHLD = 0x8000, 0x10000, 0xFF, 17

# fcntl: no locks and leases, which other processes would wait for; no signals to other processes (F_SETOWN, F_SETSIG).
_FCNTL, _F_SETFL, _O_ASYNC = (72, 25), 4, 0x2000
_FCNTL_ALLOWED = (0, 1, 2, 3, 1030)  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC
_IOCTL = (16, 29)
_IOCTL_ALLOWED = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS TIOCGWINSZ FIONREAD FIONBIO FIO(N)CLEX
# prctl: not the signal at the parent's death, the adoption of orphans, dumps, ptrace or another filter.
_PRCTL = (157, 167)
_PRCTL_ALLOWED = (15, 16, 0x53564D41)  # PR_SET_NAME, PR_GET_NAME, PR_SET_VMA

FilterStep = tuple[int, int, int, int]


def make_program(machine: str, *, forks: bool) -> bytes:
    """Returns the filter for one of MACHINES as a BPF program. `forks` says whether the process may create others."""
    column = _COLUMNS.index(machine)
    steps: list[FilterStep] = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, _AUDIT[machine]), (_RETURN, 0, 0, _KILL)]
    steps += [(_LOAD, 0, 0, _NUMBER)]
    steps += [(_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _EPERM)]  # x32: the same calls under other numbers
    for numbers in (_DENIED if forks else _DENIED | _FORKS).values():
        if (number := numbers[column]) is not None:
            steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _EPERM)]
    flags: list[FilterStep] = [(_EQUAL, 0, 2, _F_SETFL), (_LOAD, 0, 0, _argument(2)), (_ANY_BIT, 0, 1, _O_ASYNC)]
    flags += [(_RETURN, 0, 0, _EPERM), (_RETURN, 0, 0, _ALLOW)]
    steps += _only(_FCNTL[column], 1, _FCNTL_ALLOWED, flags)
    steps += _only(_IOCTL[column], 1, _IOCTL_ALLOWED)
    steps += _only(_PRCTL[column], 0, _PRCTL_ALLOWED)
    # clone also starts threads; clone3 passes its flags by pointer, and libc works without it.
    steps += [(_EQUAL, 0, 1, _CLONE3[column]), (_RETURN, 0, 0, _ENOSYS)]
    new: list[FilterStep] = [(_LOAD, 0, 0, _argument(0)), (_ANY_BIT, 0, 1, _CLONE_THREAD), (_RETURN, 0, 0, _ALLOW)]
    if forks:  # no siblings, which are not seen as descendants, and no signal at its end that resumes this process
        new += [(_ANY_BIT, 3, 0, _CLONE_PARENT), (_AND, 0, 0, _EXIT_SIGNALS)]
        new += [(_EQUAL, 0, 1, _SIGCHLD), (_RETURN, 0, 0, _ALLOW)]
    steps += [(_EQUAL, 0, len(new) + 1, _CLONE[column]), *new, (_RETURN, 0, 0, _EPERM)]
    steps.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def _argument(index: int) -> int:
    # The lower half suffices: the kernel reads the tested arguments, such as the command of fcntl, as 32 bits.
    return _ARGUMENTS + 8 * index


def _only(
    number: int, index: int, values: tuple[int, ...], special: list[FilterStep] | None = None
) -> list[FilterStep]:
    """Returns the steps that allow a system call only with some values of one argument.

    `special` decides about other values. It begins with the argument loaded; the call is refused if it ends without a
    decision.
    """
    body: list[FilterStep] = [(_LOAD, 0, 0, _argument(index))]
    for value in values:
        body += [(_EQUAL, 0, 1, value), (_RETURN, 0, 0, _ALLOW)]
    body += special or []
    body += [(_RETURN, 0, 0, _EPERM)]
    return [(_EQUAL, 0, len(body), number), *body]
