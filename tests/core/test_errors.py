"""Errors travel between processes, and each boundary has its own."""

import pickle

import pytest

from openmaia.core import errors

KINDS = [errors.UsageError, errors.ServiceError, errors.ToolError, errors.SandboxError, errors.StoreError]


@pytest.mark.parametrize("kind", [*KINDS, errors.ReplayDiverged])
def test_error_survives_pickling_with_its_detail(kind: type[errors.OpenMaiaError]):
    again = pickle.loads(pickle.dumps(kind("what happened", detail="where")))
    assert (type(again), again.message, again.detail, str(again)) == (kind, "what happened", "where", "what happened")


def test_error_types_do_not_catch_each_other():
    assert not any(issubclass(one, other) for one in KINDS for other in KINDS if one is not other)
