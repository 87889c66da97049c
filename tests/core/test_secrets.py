"""Secrets are known by what they are, and appear in nothing that is stored, printed or raised."""

import copy
import logging
import pickle
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
import yaml

from openmaia.checks import job
from openmaia.checks.stages import require
from openmaia.config.loading import differing_keys, load, restore, stored_values, to_dict, to_yaml
from openmaia.config.origins import explain
from openmaia.config.schema import Config
from openmaia.core.checks import missing
from openmaia.core.errors import ServiceError, UsageError
from openmaia.core.secrets import boundary, hide_url_secrets, redacted, remember
from openmaia.distributed.launchers import kuberay, ray, slurm
from openmaia.models.server_access import ServerAccess
from openmaia.runs.run import Run
from tests.config.test_config import LEAST

SIGNED = "https://bucket.example/a.tar?X-Amz-Signature=0123456789abcdef&X-Amz-Expires=60"
PRIVATE = "https://user:hunter22hunter@host.example/private-0123456789/a.tar"
HF = ["pictures.kind=hf", "pictures.dataset=webdataset"]
PLANTED = ("0123456789abcdef", "hunter22hunter", "private-0123456789", "planted-token")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_URL", PRIVATE)
    monkeypatch.setenv("MY_TOKEN", "planted-token")


def clean(text: str) -> bool:
    return not any(secret in text for secret in PLANTED)


PLACES = {
    "presigned link": [*HF, f"pictures.data={SIGNED}"],
    "URL from the environment": [*HF, "pictures.data=${oc.env:MY_URL}"],
    "part of a value": [*HF, "pictures.data=https://host.example/${oc.env:MY_TOKEN}/a.tar"],
    "by way of another key": ["exemplars.dataset=${oc.env:MY_TOKEN}"],
    "in a list": ["target.layers=['${oc.env:MY_TOKEN}']"],
    "in a mapping of the user": [
        *("backbone.kind=vllm", "backbone.model=m"),
        "backbone.arguments={hf_token: '${oc.env:MY_TOKEN}', more: [{url: '${oc.env:MY_URL}'}]}",
    ],
    "address of a server": ["backbone.kind=openai", "backbone.model=m", "backbone.base_url=${oc.env:MY_URL}"],
    "store with a client secret": ["paths.runs=abfs://box/runs?client_secret=0123456789abcdef&enable_tls=true"],
    "fields of a request": [
        *("generator.kind=openai", "generator.model=m"),
        f"generator.arguments={{callback: '{SIGNED}'}}",
    ],
}


def stored(config: Config) -> dict[str, object]:
    return yaml.safe_load(to_yaml(config))


@pytest.mark.parametrize("place", PLACES)
def test_stored_and_shown_config_holds_no_secret(place: str):
    sources = [*LEAST, *PLACES[place]]
    config = load(sources)
    assert not clean(repr(config)), "the value itself is there"
    assert clean(to_yaml(config)) and clean(repr(to_dict(config))) and clean("\n".join(explain(config, sources)))
    assert to_dict(pickle.loads(pickle.dumps(copy.deepcopy(config)))) == to_dict(config)


@pytest.mark.parametrize("place", PLACES)
def test_run_resumes_with_the_same_secret(place: str):
    config = load([*LEAST, *PLACES[place]])
    assert differing_keys(stored_values(stored(config), "run"), to_dict(load([*LEAST, *PLACES[place]]))) == []


def test_values_from_the_environment_are_read_again():
    config = load([*LEAST, *PLACES["in a mapping of the user"]])
    assert restore(stored(config), "run") == config


def test_another_value_from_the_environment_is_another_config(monkeypatch: pytest.MonkeyPatch):
    sources = [*LEAST, "exemplars.dataset=${oc.env:MY_TOKEN}"]
    before = stored(load(sources))
    monkeypatch.setenv("MY_TOKEN", "another-token")
    assert differing_keys(before, to_dict(load(sources))) == ["exemplars.dataset"]


def test_link_that_was_signed_anew_is_the_same_config():
    links = [f"https://bucket.example/a.tar?X-Amz-Signature={letter * 16}" for letter in "ab"]
    one, other = (to_dict(load([*LEAST, *HF, f"pictures.data={link}"])) for link in links)
    assert differing_keys(one, other) == []


def test_variable_that_is_not_set_is_no_obstacle_to_reading_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    Run.create(load([*LEAST, *HF, "pictures.data=${oc.env:MY_URL}", f"paths.runs={tmp_path}"]))
    monkeypatch.delenv("MY_URL")
    run = Run.open(str(tmp_path / "x"))
    assert run.config()["pictures"]["data"] == "${oc.env:MY_URL}"
    with pytest.raises(UsageError, match="'MY_URL' not found"):
        restore(run.config(), "x")


def test_reference_to_another_key_is_stored_as_what_that_reads(tmp_path: Path):
    (tmp_path / "mine.yaml").write_text(
        "paths: {runs: '${oc.env:MY_TOKEN}/runs', exemplars: '${paths.runs}/exemplars'}\n"
    )
    config = load([*LEAST, str(tmp_path / "mine.yaml")])
    assert config.paths.exemplars == "planted-token/runs/exemplars"
    assert to_dict(config)["paths"]["exemplars"] == "${oc.env:MY_TOKEN}/runs/exemplars"
    assert restore(stored(config), "run") == config
    with pytest.raises(UsageError, match=r"exemplars.dataset=.*is read by \$\{oc.env:NAME\} alone"):
        load([*LEAST, "exemplars.dataset=${oc.decode:${oc.env:MY_TOKEN}}"])


def test_stored_config_is_a_source_of_another_run(tmp_path: Path):
    config = load([*LEAST, "exemplars.dataset=${oc.env:MY_TOKEN}"])
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    assert load([str(tmp_path / "config.yaml")]) == config


@pytest.mark.parametrize(
    "given",
    [
        f"picturs.data={SIGNED}",
        f"pictures.data={SIGNED}",
        "limits.turns=${oc.env:MY_TOKEN}",
        "backbone.kind=${oc.env:MY_TOKEN}",
        f"seed={SIGNED}",
        f"name={SIGNED}",
        "pictures.folder=https://user:hunter22hunter@host.example/x",
        f"job.runtime_env.pip=['{SIGNED}']",
        "job.runtime_env.uv=['${oc.env:MY_URL}']",
    ],
)
def test_errors_about_a_config_hold_no_secret(given: str):
    with pytest.raises(UsageError) as caught:
        load([*LEAST, given])
    assert clean("".join(traceback.format_exception(caught.value)))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"cannot open {SIGNED}: 403", "cannot open https://bucket.example/a.tar?***: 403"),
        (f"('{SIGNED}', 3)", "('https://bucket.example/a.tar?***', 3)"),
        ("see http://host/a#token=abc.", "see http://host/a#***."),
        ("ftp://me:secret@host/x", "ftp://***@host/x"),
        ("s3://bucket/a?.tar", "s3://bucket/a?.tar"),
        ("s3://b/runs?region=eu&scheme=http", "s3://b/runs?region=eu&scheme=http"),
        ("abfs://b/r?client_secret=x&enable_tls=true", "abfs://b/r?enable_tls=true&***"),
        ("http://127.0.0.1:8000/v1 answers", "http://127.0.0.1:8000/v1 answers"),
        ("what? a=b", "what? a=b"),
    ],
)
def test_secret_parts_of_urls_are_found_in_texts(text: str, shown: str):
    assert hide_url_secrets(text) == shown


class LibraryError(Exception):
    """Like those of aiohttp: what it shows is not in its arguments."""

    def __str__(self) -> str:
        return f"403, url={PRIVATE!r}, Max retries exceeded with url: /a.tar?{SIGNED.partition('?')[2]}"


def failing() -> None:
    try:
        raise LibraryError
    except LibraryError as error:
        raise ValueError("no images") from error


def test_exceptions_of_libraries_are_cleaned_at_the_boundary():
    load([*LEAST, *PLACES["presigned link"]])
    load([*LEAST, *PLACES["URL from the environment"]])
    with pytest.raises(ValueError, match="no images") as caught, boundary():
        failing()
    trace = "".join(traceback.format_exception(caught.value))
    assert clean(trace) and "LibraryError: 403" in trace and "in failing" in trace
    with pytest.raises(RuntimeError, match="LibraryError: 403") as replaced, boundary():
        raise LibraryError
    assert clean("".join(traceback.format_exception(replaced.value)))


def test_own_errors_and_checks_are_clean(caplog: pytest.LogCaptureFixture):
    load([*LEAST, *PLACES["URL from the environment"]])
    error = ServiceError(f"{PRIVATE} failed", detail=f"GET {SIGNED}")
    assert error.message == "${oc.env:MY_URL} failed" and clean(str(error.detail))
    assert clean(missing(f"pictures.data={PRIVATE} is missing").message)
    logging.getLogger("somebody").warning("GET %s", PRIVATE)
    assert clean(caplog.text) and "GET" in caplog.text


def test_uncaught_exceptions_are_printed_without_secrets(tmp_path: Path):
    code = (
        "import sys\nfrom openmaia.config.loading import load\n"
        "config = load(sys.argv[1:])\nraise OSError(f'cannot read {config.pictures.data}')\n"
    )
    (tmp_path / "s.py").write_text(code)
    given = [*LEAST, *PLACES["presigned link"]]
    done = subprocess.run([sys.executable, str(tmp_path / "s.py"), *given], capture_output=True, text=True)
    assert done.returncode == 1 and "cannot read https://bucket.example/a.tar?***" in done.stderr
    assert clean(done.stderr)


def test_jobs_hold_no_secret(tmp_path: Path):
    shared = [f"paths.runs={tmp_path}/runs", f"paths.exemplars={tmp_path}/exemplars"]
    literal = [*LEAST, *shared, *PLACES["presigned link"]]
    for prepare in (
        lambda: require(job.of_slurm([load(literal)], literal)),
        lambda: require(job.of_ray([load(literal)], literal)),
        lambda: kuberay.prepare(load([*LEAST, *PLACES["presigned link"]]), None, "", by_pool=False),
    ):
        with pytest.raises(UsageError, match=r"oc.env:NAME") as caught:
            prepare()
        assert clean(caught.value.message)
    read = [*LEAST, *shared, *PLACES["URL from the environment"]]
    jobs = [slurm.prepare([load(read)], read, []), ray.prepare([load(read)], read, None)]
    jobs += [kuberay.prepare(load([*LEAST, *PLACES["URL from the environment"]]), None, "", by_pool=False)]
    assert all("${oc.env:MY_URL}" in str(each) and clean(str(each)) for each in jobs)


@pytest.mark.parametrize("part", ["hiddenpart", "hiddenpart-987654", "987654321", "A_LONG_KEY"])
def test_a_secret_that_is_part_of_another_does_not_uncover_the_rest(monkeypatch: pytest.MonkeyPatch, part: str):
    key = "sk-hiddenpart-987654321-the-rest"
    monkeypatch.setenv("A_LONG_KEY", key)
    access = ServerAccess(
        **{"section": "backbone", "kind": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1"},
        **{"address": "", "address_hint": "", "key_variable": "A_LONG_KEY"},
    )
    remember(part, "${oc.env:A_PART}")
    assert "sk-" not in access.shown(f"key {key}.")  # the key of a server is known to none but the class
    remember(key, "${oc.env:A_LONG_KEY}")
    for said in (redacted(f"key {key}."), access.shown(f"key {key}.")):
        assert "sk-" not in said and "the-rest" not in said
    assert redacted(f"key {key}.") == "key ${oc.env:A_LONG_KEY}."
