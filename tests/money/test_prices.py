"""What a reply and an image cost, by the table of this package, a table of the user, or keys."""

from concurrent.futures import Future
from pathlib import Path

import pytest

from openmaia.config.loading import load, restore, to_dict
from openmaia.config.prices import paid_services
from openmaia.core.errors import ServiceError, UsageError
from openmaia.core.messages import Chat, Reply, user
from openmaia.core.money import FREE, Bill
from openmaia.core.services import ServiceUsage, UsageLedger
from openmaia.models.backbones.anthropic_api import AnthropicConfig
from openmaia.models.backbones.billing import CallBill, cost
from openmaia.models.backbones.openai_api import OpenAiConfig
from openmaia.models.backbones.openai_server import OpenAiBackbone
from openmaia.models.settling import settle
from tests.helpers.misbehaving import Act, answer, misbehaving

LEAST = ["name=x", "units=all", "target.name=t"]
CLAUDE = [*LEAST, "backbone.kind=anthropic", "backbone.model=claude-haiku-4-5-20251001"]
IMAGES = ["generator.kind=openai", "generator.model=gpt-image-1-mini"]


def prices(*sources: str) -> tuple[float | None, ...]:
    settings = load(sources).backbone
    assert isinstance(settings, AnthropicConfig | OpenAiConfig)
    return settings.input_price, settings.cached_price, settings.written_price, settings.output_price


def test_a_model_of_a_vendor_has_the_price_of_the_table_whatever_its_date():
    assert prices(*CLAUDE) == (1, 0.1, 1.25, 5)
    assert prices(*CLAUDE, "backbone.output_price=7") == (1, 0.1, 1.25, 7)


def test_a_server_of_others_has_no_price_of_the_vendor():
    assert prices(*CLAUDE, "backbone.base_url=http://127.0.0.1:1") == (None,) * 4


def test_a_table_of_the_user_goes_before_that_of_the_package(tmp_path: Path):
    table = tmp_path / "mine.yaml"
    table.write_text(
        "{api.anthropic.com: {tokens: {claude-haiku-4-5: {output: 4}}}, 127.0.0.1: {tokens: {m: {input: 2, output: 3}}}}"
    )
    assert prices(*CLAUDE, f"prices.file={table}") == (1, 0.1, 1.25, 4)
    own = [*LEAST, "backbone.kind=openai", "backbone.model=m", "backbone.base_url=http://127.0.0.1:1/v1"]
    assert prices(*own, f"prices.file={table}") == (2, None, None, 3)


def test_prices_of_a_file_stand_in_the_config_without_it(tmp_path: Path):
    table = tmp_path / "mine.yaml"
    table.write_text("{api.anthropic.com: {tokens: {claude-haiku-4-5: {output: 4}}}}")
    config = load([*CLAUDE, f"prices.file={table}"])
    table.unlink()
    again = restore(to_dict(config), "test").backbone
    assert isinstance(again, AnthropicConfig) and again.output_price == 4


def test_the_viewer_of_an_external_agent_needs_a_price():
    viewer = ["backbone.kind=external", "viewer.kind=openai", "viewer.model=m", "viewer.base_url=http://127.0.0.1:1/v1"]
    with pytest.raises(UsageError, match=r"viewer\.input_price"):
        load([*LEAST, *viewer, "limits.budget=1"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", "holds no servers"),
        ("{h: {tokens: {m: {input: cheap}}}}", "h: tokens.m.input is no price"),
        ("{h: {tokens: {m: {words: 1}}}}", "unknown kind of tokens 'words'"),
        ("{h: {token: {}}}", "unknown key 'token'"),
        ("{h: [", "cannot be read"),
    ],
)
def test_a_table_that_is_none_is_refused(tmp_path: Path, text: str, said: str):
    table = tmp_path / "mine.yaml"
    table.write_text(text)
    with pytest.raises(UsageError) as caught:
        load([*CLAUDE, f"prices.file={table}"])
    assert said in caught.value.message


def test_a_negative_price_is_refused():
    with pytest.raises(UsageError, match="backbone.input_price=-1.0 is out of range"):
        load([*CLAUDE, "backbone.input_price=-1"])


def test_an_image_has_the_price_of_its_size_and_quality():
    found = [load([*CLAUDE, *IMAGES, *more]).generator.image_price for more in ([], ["generator.quality=low"])]
    assert found == [None, 0.005]


def test_only_what_costs_something_is_paid():
    assert paid_services(load(LEAST)) == frozenset()
    assert paid_services(load([*CLAUDE, *IMAGES])) == {"backbone", "generator"}
    assert paid_services(load([*LEAST, "prices.gpu_hour=2", "pools.target.num_gpus=1"])) == {"target"}
    free = ["backbone.input_price=0", "backbone.output_price=0"]
    assert paid_services(load([*CLAUDE, *free])) == frozenset()


def test_an_editor_that_stands_for_the_generator_is_paid_as_that_one_and_not_as_the_generator_of_tests():
    tests = ["evaluate.generator.kind=openai", "evaluate.generator.model=gpt-image-1-mini"]
    one = [*LEAST, "configs/models/flux2-klein.yaml", *tests]
    assert paid_services(load(one)) == {"generator"}
    assert paid_services(load([*one, "prices.gpu_hour=2", "pools.generator.num_gpus=1"])) == {"generator", "editor"}


def test_each_kind_of_token_has_its_price():
    config = AnthropicConfig(
        kind="anthropic", model="m", input_price=10, cached_price=1, written_price=12, output_price=100
    )
    reply = Reply(text="", prompt_tokens=1000, cached_tokens=500, written_tokens=200, generated_tokens=50)
    assert cost(reply, config) == pytest.approx((300 * 10 + 500 * 1 + 200 * 12 + 50 * 100) / 1e6)
    config.cached_price = config.written_price = None
    assert cost(reply, config) == pytest.approx((1000 * 10 + 50 * 100) / 1e6)


def test_failed_requests_that_were_billed_count():
    chat = Chat(conversation="", messages=[user("?")], seed=0, max_tokens=9)
    with misbehaving() as server:
        config = OpenAiConfig(
            kind="openai", model="m", base_url=f"{server.base}/v1", input_price=10, output_price=100, tries=2
        )
        backbone = OpenAiBackbone(config)
        usage = {"prompt_tokens": 1000, "completion_tokens": 100}
        server.otherwise = lambda asked: Act(body=answer(asked, "", usage=usage))
        with pytest.raises(ServiceError) as caught:
            backbone.reply([chat])
        assert caught.value.bill == Bill(pytest.approx(0.02), 0)
        server.otherwise = lambda asked: Act(body=answer(asked, "yes", usage=usage))
        server.then(Act(pieces=("half",), ends=False))
        assert backbone.reply([chat])[0].bill == Bill(pytest.approx(0.02), 1)
        server.then(Act(body=answer(server.asked[0], "yes", usage={"completion_tokens": 0})))
        assert backbone.reply([chat])[0].bill == Bill(unpriced=1)


def test_a_call_of_several_requests_keeps_answers_and_their_bills_although_one_fails():
    done: Future[Reply] = Future()
    done.set_result(Reply(text="a", bill=Bill(1.0)))
    failed: Future[Reply] = Future()
    error = ServiceError("no")
    error.bill = Bill(0.5, 1)
    failed.set_exception(error)
    with pytest.raises(ServiceError) as caught:
        settle([failed, done, Future()])
    assert caught.value.bill == Bill(0.5, 1)
    assert caught.value.answers == {1: Reply(text="a", bill=Bill(1.0))}


def test_gpus_cost_what_an_hour_costs():
    ledger = UsageLedger()
    ledger.add("target", 4, 1800.0, 0.5)
    assert ledger.spent()["target"].dollars == 0
    ledger.terms = type(ledger.terms)(gpu_hour=2.0)
    ledger.add("target", 4, 1800.0, 0.5)
    assert ledger.spent()["target"] == ServiceUsage(requests=8, seconds=3600.0, gpu_seconds=1800.0, dollars=0.5)


def test_what_is_not_known_is_not_counted_as_free():
    bill = CallBill(OpenAiConfig(kind="openai", model="m"))
    bill.begin()
    bill.add(Reply(text="", prompt_tokens=5, generated_tokens=5))
    assert bill.total == Bill(unpriced=1)
    assert bill.total.words == "$0.0000 and 1 call of unknown cost"
    bill.begin()
    assert bill.total == FREE
