"""Gemma 4, Qwen 3.5, GLM-4.6V and Mistral Small 4 over real engines of vLLM on the CPU, tiny and of random weights: prompts, images, thoughts, ends."""

import asyncio
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from transformers import AutoProcessor

import openmaia
from openmaia.core.errors import UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.messages import AnswerFormat, Chat, Message, Reply, assistant, system, user
from openmaia.models.backbones.vllm.component import VllmBackboneConfig
from tests.helpers.mine import TRANSFORM, redness
from tests.helpers.tiny import gemma4, glm, mistral, qwen
from tests.helpers.tiny.engine import Engine, start
from tests.prepare import CACHE

if TYPE_CHECKING:
    from openmaia.models.backbones.vllm.prompt import PromptRenderer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.skipif(find_spec("vllm") is None, reason="needs vLLM"),
]

BUILDERS: dict[str, Callable[[Path], Path]] = {
    "gemma4": gemma4.build,
    "gemma4-mixture": partial(gemma4.build, experts=4),
    "qwen3.5": qwen.build,
    "qwen3.5-mixture": partial(qwen.build, experts=4),
    "glm4.6v": glm.build,
    "glm4.6v-mixture": partial(glm.build, experts=4),
}
ENDS = {"gemma4": gemma4.END, "qwen3.5": qwen.END, "glm4.6v": glm.END}
IMAGES = 4
CONTEXT = 12288  # a task is long in tokens of one letter
# On a CPU, the engine reads each prompt in one step, and vLLM's cache of linear layers needs several. The CPU kernel of linear
# layers wants 16 bits.
ENGINE = {
    "gemma4": dict[str, Any](),
    "qwen3.5": {"enable_prefix_caching": False},
    "glm4.6v": {},
    "mistral4": mistral.ARGUMENTS,
}
DTYPES = {"gemma4": "float32", "qwen3.5": "bfloat16", "glm4.6v": "float32", "mistral4": "bfloat16"}


def family(name: str) -> str:
    return name.partition("-")[0]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: build(tmp_path_factory.mktemp(name)) for name, build in BUILDERS.items()}


def configured(folder: Path, name: str, **settings: Any) -> VllmBackboneConfig:
    return VllmBackboneConfig(
        kind="vllm",
        model=str(folder),
        temperature=1.0,
        top_p=1.0,
        context_tokens=CONTEXT,
        images_per_prompt=IMAGES,
        eager=True,
        dtype=DTYPES[family(name)],
        arguments=ENGINE[family(name)],
        **settings,
    )


def image(seed: int, height: int = 60, width: int = 60) -> EncodedImage:
    return EncodedImage.of(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def chat(*messages: Message, seed: int = 0, max_tokens: int = 60) -> Chat:
    return Chat(conversation="c", messages=messages, seed=seed, max_tokens=max_tokens)


# -- prompts, without an engine ---------------------------------------------------------------------------------------


def prompts_of(config: VllmBackboneConfig) -> "PromptRenderer":
    from vllm.renderers import renderer_from_config

    from openmaia.models.backbones.vllm.prompt import PromptRenderer
    from openmaia.models.backbones.vllm.start import engine_config

    renderer = renderer_from_config(engine_config(config, gpu_share=0.0))
    return asyncio.run(PromptRenderer.measured(renderer, config.template))


def tokens(prompts: "PromptRenderer", *messages: Message) -> list[int]:
    from openmaia.models.backbones.vllm.prompt import prompt_ids

    return prompt_ids(asyncio.run(prompts.render(messages, counting=True)))


@pytest.mark.parametrize(
    ("name", "size", "expected"),
    [
        # Patches of 16 pixels, of which 2 x 2 become a token: sides are rounded to 32, and areas limited to 64 x 64 to 256 x 256.
        ("qwen3.5", (60, 60), 2 * 2),
        ("qwen3.5", (64, 200), 2 * 6),
        ("qwen3.5", (1024, 1024), 8 * 8),
        # 3 x 3 patches become a token: the largest image of these proportions with at most 70 of them.
        ("gemma4", (60, 60), 8 * 8),
        ("gemma4", (64, 200), 4 * 14),
        ("gemma4", (1024, 1024), 8 * 8),
        # Patches of 14 pixels, of which 2 x 2 become a token. An image counts as two pictures of a film: its area is limited to
        # half of the limits.
        ("glm4.6v", (60, 60), 3 * 3),
        ("glm4.6v", (64, 200), 2 * 7),
        ("glm4.6v", (1024, 1024), 6 * 6),
    ],
)
def test_image_tokens_follow_the_image_and_equal_the_processors(
    folders: dict[str, Path], name: str, size: tuple[int, int], expected: int
):
    prompts = prompts_of(configured(folders[name], name))
    shown = image(1, *size)
    messages = [system("Be brief."), user("What is ", shown, "?"), assistant("A dog."), user("Go on.")]
    asyncio.run(prompts.learn(messages))
    # Each is between two marks.
    assert prompts.image_tokens(shown) == expected + 2
    processor = AutoProcessor.from_pretrained(folders[name])
    parts = [
        {"type": "text", "text": "What is "},
        {"type": "image", "image": shown.pil()},
        {"type": "text", "text": "?"},
    ]
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": "A dog."},
        {"role": "user", "content": "Go on."},
    ]
    rendered = processor.apply_chat_template(turns, add_generation_prompt=True, tokenize=True, return_dict=True)
    assert tokens(prompts, *messages) == list(np.ravel(rendered["input_ids"]))
    assert prompts.counted(messages) >= len(tokens(prompts, *messages))


@pytest.mark.parametrize(
    ("name", "template", "is_open"),
    [
        ("qwen3.5", {}, True),
        ("qwen3.5", {"enable_thinking": False}, False),
        ("gemma4", {}, False),
        ("gemma4", {"enable_thinking": True}, False),
        ("glm4.6v", {}, False),
        ("glm4.6v", {"enable_thinking": False}, False),
    ],
)
def test_template_variables_decide_whether_a_reply_begins_inside_of_reasoning(
    folders: dict[str, Path], name: str, template: dict[str, Any], is_open: bool
):
    """Neither model's files need to name the token that ends a turn: two replies in a prompt show it, although a prompt may end
    with an empty thought that earlier turns do not have."""
    prompts = prompts_of(configured(folders[name], name, template=template))
    prompt = asyncio.run(prompts.render([system("Be brief."), user("What?")], counting=True))
    assert prompts.opens_reasoning(prompt) is is_open
    # Gemma's marks are special tokens, which the engine would leave out of its text.
    assert prompts.hides_reasoning is (name == "gemma4")
    assert AutoProcessor.from_pretrained(folders[name]).tokenizer.convert_ids_to_tokens(prompts.closing) == [ENDS[name]]
    assert tokens(prompts, system("Be brief."), user("What?")) != tokens(prompts, user("Be brief.\nWhat?"))


def test_prefix_cache_of_linear_layers_on_a_cpu_is_refused_with_the_remedy(folders: dict[str, Path]):
    from openmaia.models.backbones.vllm.start import engine_config

    config = replace(configured(folders["qwen3.5"], "qwen3.5"), arguments={})
    with pytest.raises(UsageError, match=r"set backbone\.arguments\.enable_prefix_caching=false"):
        engine_config(config, gpu_share=0.0)


# -- engines ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=BUILDERS)
def named(request: pytest.FixtureRequest, folders: dict[str, Path]) -> Iterator[tuple[str, Engine]]:
    """One engine after the other."""
    name: str = request.param
    thinks = {"enable_thinking": family(name) == "gemma4"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        host = start(configured(folders[name], name, template=thinks, protocol="grammar"))
    yield name, host
    host.close()


def ask(engine: Engine, *chats: Chat) -> list[Reply]:
    return engine.reply(chats)


def test_reply_depends_on_seed_text_and_pixels(named: tuple[str, Engine]):
    base = chat(system("Be brief."), user("What is this?", image(1), "And this?", image(2, 64, 200)))
    others = [
        replace(base, seed=5),
        chat(system("Be brief."), user("What is that?", image(1), "And this?", image(2, 64, 200))),
        chat(system("Be brief."), user("What is this?", image(3), "And this?", image(2, 64, 200))),
    ]
    # Of a random model that may end at once, single replies can be equal by chance.
    asked = [replace(each, seed=each.seed + 10 * n) for each in (base, *others) for n in range(3)]
    texts = [reply.text for reply in ask(named[1], *asked)]
    assert len({tuple(texts[at : at + 3]) for at in range(0, len(texts), 3)}) == 4
    assert [ask(named[1], one)[0].text for one in asked[::3]] == texts[::3]


def test_reply_ends_with_the_token_that_ends_a_turn(named: tuple[str, Engine], folders: dict[str, Path]):
    name, engine = named
    replies = ask(engine, *(chat(user("Go on."), seed=seed, max_tokens=400) for seed in range(16)))
    ended = [reply for reply in replies if reply.generated_tokens < 400]
    assert len(ended) > 5
    tokenizer = AutoProcessor.from_pretrained(folders[name]).tokenizer
    for reply in ended:
        written = len(tokenizer.encode(reply.text + reply.reasoning, add_special_tokens=False))
        assert reply.generated_tokens >= written and ENDS[family(name)] not in reply.text


def test_more_images_than_allowed_leave_the_oldest_out(named: tuple[str, Engine]):
    turns = [message for turn in range(6) for message in (user("See: ", image(turn)), assistant("Seen."))]
    (reply,) = ask(named[1], chat(system("Be brief."), *turns, user("Which was the first?")))
    assert reply.left_out == "its oldest 2 images"


def test_grammar_constrains_a_turn(named: tuple[str, Engine]):
    (reply,) = ask(named[1], replace(chat(user("Go."), max_tokens=60), answer=AnswerFormat()))
    assert re.match(r"\[(HYPOTHESIS LIST\]:\n[1-9]\. |CODE\]:\n```python\n|DESCRIPTION\]: )", reply.text), reply.text


def test_whole_investigation(named: tuple[str, Engine], settings: list[str], exemplars_folder: Path, tmp_path: Path):
    investigate_with(named[1], exemplars_folder, tmp_path)


@pytest.fixture(scope="module")
def mistral4(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    config = configured(mistral.build(tmp_path_factory.mktemp("mistral4")), "mistral4", protocol="grammar")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        host = start(config)
    yield host
    host.close()


def test_mistral_small_4_answers_by_the_grammar_and_by_its_seed(mistral4: Engine):
    """Its weights are made up by vLLM, so that nothing is said here about what it sees."""
    base = replace(chat(system("Be brief."), user("What is this?", image(1)), max_tokens=60), answer=AnswerFormat())
    first, again, other = (mistral4.reply([replace(base, seed=seed)])[0] for seed in (0, 0, 1))
    assert first.text == again.text != other.text
    assert first.text.startswith(("[HYPOTHESIS LIST]:\n", "[CODE]:\n```python\n", "[DESCRIPTION]: "))
    many = [message for turn in range(6) for message in (user("See: ", image(turn)), assistant("Seen."))]
    assert mistral4.reply([chat(*many, user("Which?"))])[0].left_out == "its oldest 2 images"


def test_mistral_small_4_whole_investigation(
    mistral4: Engine, settings: list[str], exemplars_folder: Path, tmp_path: Path
):
    investigate_with(mistral4, exemplars_folder, tmp_path)


def investigate_with(backbone: Engine, exemplars_folder: Path, tmp_path: Path) -> None:
    """Random weights within the grammar: every turn is read, and the record counts its tokens."""
    found = openmaia.investigate(
        redness(),
        "maps",
        0,
        images=sorted((CACHE / "packages-v1/photos").rglob("*.jpg"))[:40],
        preprocess=TRANSFORM,
        backbone=backbone,
        evaluate=False,
        limits={"turns": 3, "soft_turns": 2, "reply_tokens": 120},
        paths={"cache": str(CACHE), "exemplars": str(exemplars_folder / "api"), "runs": str(tmp_path)},
        **{"exemplars.k": 6},
    )
    assert found.record.turns
    assert all(turn.prompt_tokens > 100 and turn.generated_tokens for turn in found.record.turns)
