"""The vLLM backbone over a real engine on the CPU, with a tiny Gemma 3 of random weights.

The tests run in the order of this file: the last ones end the engine that all of them share. Like the engine, what else is
vLLM's is imported when it is used.
"""

import asyncio
import itertools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoProcessor, AutoTokenizer

from openmaia.core.errors import HostDead, ServiceError, UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.messages import AnswerFormat, Chat, Message, Reply, assistant, system, user
from openmaia.models.backbones.vllm.component import VllmBackboneConfig
from tests.helpers.tiny.engine import Engine, start
from tests.helpers.tiny.gemma import END, build

if TYPE_CHECKING:
    from openmaia.models.backbones.vllm.prompt import PromptRenderer

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("vllm") is None, reason="needs vLLM")]

CONTEXT = 3072
IMAGES = 12
BLOCK = 32
"""Tokens per block of the prefix cache; vLLM's own choice on a CPU is 128."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("gemma"))


@pytest.fixture(scope="module", autouse=True)
def one_process() -> Iterator[None]:
    """An engine of one process, as on one GPU. On a CPU vLLM takes two, of which each imports it for ten seconds;
    tests/distributed/test_engines.py has both."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("CPU_KVCACHE_SPACE", "1"), ("ENABLE_V1_MULTIPROCESSING", "0")):
            patch.setenv(f"VLLM_{name}", value)
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="module")
def backbone(model: Path, one_process: None) -> Iterator[Engine]:
    host = start(configured(model))
    yield host
    host.close()


PIXTRAL = {
    "dim": 64, "n_layers": 1, "head_dim": 32, "hidden_dim": 128, "n_heads": 2, "n_kv_heads": 2, "rope_theta": 1e6,
    "norm_eps": 1e-5, "vocab_size": 131072, "max_position_embeddings": 8192,
    "vision_encoder": {
        "hidden_size": 64, "num_channels": 3, "image_size": 128, "patch_size": 16, "rope_theta": 1e4, "intermediate_size": 128,
        "num_hidden_layers": 1, "num_attention_heads": 2, "adapter_bias": True, "image_token_id": 10,
    },
}  # fmt: skip


def configured(model: Path | str, **arguments: object) -> VllmBackboneConfig:
    return VllmBackboneConfig(
        kind="vllm",
        model=str(model),
        temperature=1.0,
        top_p=1.0,
        context_tokens=CONTEXT,
        images_per_prompt=IMAGES,
        protocol="grammar",
        eager=True,
        dtype="float32",
        arguments={"block_size": BLOCK, **arguments},
    )


def image(seed: int, side: int = 60) -> EncodedImage:
    return EncodedImage.of(np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8))


def chat(*messages: Message, seed: int = 0, max_tokens: int = 40) -> Chat:
    return Chat(conversation="c", messages=messages, seed=seed, max_tokens=max_tokens)


def questions() -> list[Chat]:
    return [
        chat(system("Be brief."), user(f"What is in image {i}?", image(i), "And here?", image(i + 100)), seed=i)
        for i in range(32)
    ]


def test_concurrent_replies_equal_single_ones(backbone: Engine):
    chats = questions()
    with ThreadPoolExecutor(len(chats)) as threads:
        together = list(threads.map(lambda one: backbone.reply([one])[0], chats))
    alone = [backbone.reply([one])[0] for one in chats]
    assert [reply.text for reply in together] == [reply.text for reply in alone]
    assert len({reply.text for reply in together}) == len(chats)
    assert [reply.text for reply in backbone.reply(chats)] == [reply.text for reply in alone]


def test_reply_depends_on_seed_text_and_pixels(backbone: Engine):
    base = chat(user("What is this?", image(1)), max_tokens=100)
    others = [
        replace(base, seed=2**63 + 5),
        replace(base, seed=-1),
        chat(user("What is that?", image(1)), max_tokens=100),
        chat(user("What is this?", image(2)), max_tokens=100),
    ]
    assert len({reply.text for reply in backbone.reply([base, *others])}) == 5


def test_token_counts_equal_the_processors(backbone: Engine, model: Path):
    processor = AutoProcessor.from_pretrained(model)
    for one in questions()[:4]:
        (reply,) = backbone.reply([one])
        said, asked = one.messages
        parts = [
            {"type": "text", "text": p} if isinstance(p, str) else {"type": "image", "image": p.pil()}
            for p in asked.parts
        ]
        rendered = processor.apply_chat_template(
            [{"role": "system", "content": said.text}, {"role": "user", "content": parts}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
        )
        assert reply.prompt_tokens == len(rendered["input_ids"][0])
        again = processor.tokenizer.encode(reply.text, add_special_tokens=False)
        assert reply.generated_tokens - len(again) in (0, 1)


def test_reply_ends_with_the_end_of_turn_token(backbone: Engine, model: Path):
    """The model's own config does not say that <end_of_turn> ends an answer; its chat template does."""
    config = json.loads((model / "generation_config.json").read_text())
    tokenizer = AutoTokenizer.from_pretrained(model)
    assert config["eos_token_id"] == tokenizer.eos_token_id != tokenizer.convert_tokens_to_ids(END)
    replies = backbone.reply([chat(user("Go on."), seed=seed, max_tokens=300) for seed in range(32)])
    ended = [reply for reply in replies if reply.generated_tokens < 300]
    assert len(ended) > 10
    for reply in ended:
        assert reply.generated_tokens == len(tokenizer.encode(reply.text, add_special_tokens=False)) + 1


def test_messages_of_one_role_are_joined(backbone: Engine):
    """The template refuses roles that do not alternate."""
    apart = chat(system("Be brief."), user("One."), user("Two.", image(3)), assistant("a"), assistant("b"), user("Go."))
    joined = chat(system("Be brief."), user("One.\nTwo.", image(3)), assistant("a\nb"), user("Go."))
    first, second = backbone.reply([apart, joined])
    assert (first.text, first.prompt_tokens) == (second.text, second.prompt_tokens)


def test_next_turn_reads_the_prefix_cache(backbone: Engine):
    messages = [system("You study neurons. " * 30), user("Begin.", image(50), "Here it is.")]
    before: Reply | None = None
    for turn in range(5):
        (reply,) = backbone.reply([chat(*messages, seed=turn)])
        if before is not None:
            whole = (before.prompt_tokens + before.generated_tokens) // BLOCK * BLOCK
            assert reply.cached_tokens >= 0.95 * whole
            assert reply.cached_tokens < reply.prompt_tokens
        messages += [assistant(reply.text), user(f"Observation {turn}: ", image(60 + turn), "Go on.")]
        before = reply


def test_cut_conversation_stays_cached(backbone: Engine):
    opening = len("You study neurons. Begin. " * 20)
    messages = [system("You study neurons. " * 20), user("Begin. " * 20)]
    replies = list[Reply]()
    for turn in range(9):
        messages += [assistant(f"Experiment {turn}."), user(*(image(200 + 2 * turn + k) for k in range(2)), "Seen.")]
        replies += backbone.reply([chat(*messages, seed=turn)])
    lost = [reply.left_out for reply in replies]
    # 12 images fit, and they go in blocks of a quarter.
    assert lost == [""] * 6 + ["its oldest 3 images"] + ["its oldest 6 images"] * 2
    for before, after in itertools.pairwise(replies):
        if before.left_out == after.left_out:
            assert after.cached_tokens >= before.prompt_tokens // BLOCK * BLOCK
        else:
            assert after.cached_tokens >= opening // BLOCK * BLOCK


def test_prompt_and_reply_fit_the_context(backbone: Engine):
    messages = [system("You study neurons."), user("Begin.")]
    for turn in range(14):
        messages += [assistant(f"Experiment {turn}."), user(f"{turn}: " + "0.123 " * 60, image(turn), "Seen.")]
        (reply,) = backbone.reply([chat(*messages, seed=turn, max_tokens=200)])
        assert reply.prompt_tokens + 200 <= CONTEXT
    assert "experiment outputs" in reply.left_out
    assert reply.prompt_tokens > CONTEXT / 2
    with pytest.raises(ServiceError, match="backbone.context_tokens"):
        backbone.reply([chat(user("0.123 " * 600), max_tokens=40)])


@pytest.mark.nightly
def test_tokens_added_by_the_template_are_learned(backbone: Engine):
    """Its sentence before a system message is not in the count that decides whether a conversation fits."""
    left_out = list[str]()
    for length in range(1000, 1200, 10):
        turns = [system("0" * 700), user("1" * 400, image(1)), assistant("2" * 300), user("3" * length, image(2))]
        (reply,) = backbone.reply([chat(*turns, assistant("4"), user("5"), assistant("6"), user("7"), max_tokens=450)])
        assert reply.prompt_tokens + 450 <= CONTEXT
        left_out.append(reply.left_out)
    assert left_out[0] == "" and left_out[-1] != ""


def test_empty_reply_is_an_error(backbone: Engine):
    """Of many first tokens some are blanks."""
    empty = list[ServiceError]()
    for seed in range(2000):
        try:
            backbone.reply([chat(user("Go on."), seed=seed, max_tokens=1)])
        except ServiceError as error:
            empty.append(error)
            break
    assert empty and "empty answer" in empty[0].message and "backbone.model" in empty[0].message


def prompts_of(config: VllmBackboneConfig) -> "PromptRenderer":
    from vllm.renderers import renderer_from_config

    from openmaia.models.backbones.vllm.prompt import PromptRenderer
    from openmaia.models.backbones.vllm.start import engine_config

    renderer = renderer_from_config(engine_config(config, gpu_share=0.0))
    return asyncio.run(PromptRenderer.measured(renderer, config.template))


def rendered(prompts: "PromptRenderer", *messages: Message) -> list[int]:
    from openmaia.models.backbones.vllm.prompt import prompt_ids

    return prompt_ids(asyncio.run(prompts.render(messages, counting=True)))


def test_system_prompt_moves_to_the_first_turn(model: Path, tmp_path: Path):
    folder = damaged(model, tmp_path)
    template = (folder / "chat_template.jinja").read_text()
    refusing = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    (folder / "chat_template.jinja").write_text(refusing + template)
    prompts = prompts_of(configured(folder))
    apart = rendered(prompts, system("Be brief."), user("What?", image(1)))
    assert apart == rendered(prompts, user("Be brief.\nWhat?", image(1)))
    assert AutoTokenizer.from_pretrained(folder).decode(apart).startswith("<bos><start_of_turn>user\nBe brief.\nWhat?")


@pytest.mark.parametrize(("written", "is_open"), [("<think>\n", True), ("<think>\n\n</think>\n\n", False), ("", False)])
def test_prompt_that_opens_reasoning_is_recognised(model: Path, tmp_path: Path, written: str, is_open: bool):
    folder = damaged(model, tmp_path)
    with (folder / "chat_template.jinja").open("a") as template:
        template.write(f"{{% if add_generation_prompt %}}{written}{{% endif %}}")
    prompts = prompts_of(configured(folder))
    prompt = asyncio.run(prompts.render([user("What is <think>?")], counting=True))
    assert prompts.opens_reasoning(prompt) is is_open and not prompts.hides_reasoning


def test_template_variables_are_given_to_the_template(model: Path, tmp_path: Path):
    """A prompt may end with an empty thought that earlier turns do not have; the end of a turn is found nevertheless."""
    folder = damaged(model, tmp_path)
    with (folder / "chat_template.jinja").open("a") as template:
        template.write("{% if add_generation_prompt and not thinks %}<think></think>{% endif %}")
    thinking, answering = (
        prompts_of(replace(configured(folder), template=variables)) for variables in ({"thinks": True}, {})
    )
    assert len(rendered(answering, user("What?"))) == len(rendered(thinking, user("What?"))) + len("<think></think>")
    end = AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids(END)
    assert answering.closing == thinking.closing == [end]


@pytest.mark.parametrize("name", ["thinking", "add_generation_prompt", "role", "tools"])
def test_unknown_template_variable_is_refused(model: Path, name: str):
    with pytest.raises(UsageError, match=rf"backbone\.template\.{name}: .* has no such variable"):
        prompts_of(replace(configured(model), template={name: True}))


def test_model_without_chat_template_is_refused(model: Path, tmp_path: Path):
    folder = damaged(model, tmp_path)
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(UsageError, match="backbone.model=.*expected a model with a chat template"):
        prompts_of(configured(folder))


def test_mistral_tokenizer_keeps_the_prefix(tmp_path: Path):
    """A Pixtral by its config only, with the tokenizer that Mistral's package ships."""
    import mistral_common

    shutil.copy(Path(mistral_common.__file__).parent / "data" / "tekken_240911.json", tmp_path / "tekken.json")
    (tmp_path / "params.json").write_text(json.dumps(PIXTRAL))
    prompts = prompts_of(configured(tmp_path, config_format="mistral", load_format="dummy", tokenizer_mode="mistral"))
    turns = [system("Be brief."), user("What is ", image(1), "this?"), assistant("A dog."), user("And ", image(2))]
    first, second = rendered(prompts, *turns[:2]), rendered(prompts, *turns)
    assert second[: len(first)] == first
    # 60 pixels in patches of 16: 4 rows of 4, each ended by a token.
    assert (first.count(10), second.count(10)) == (16, 32)
    asyncio.run(prompts.learn(turns))
    assert prompts.image_tokens(image(1)) == 20
    assert prompts.closing == [2]


def damaged(model: Path, folder: Path) -> Path:
    return Path(shutil.copytree(model, folder / "damaged"))


def refusal(config: VllmBackboneConfig, gpu_share: float = 0.0) -> str:
    with pytest.raises(UsageError) as caught:
        start(config, gpu_share)
    return caught.value.message


def test_missing_model_is_refused(tmp_path: Path):
    assert "backbone.model='/no/such/folder' is no folder" in refusal(configured("/no/such/folder"))
    assert "has no config.json" in refusal(configured(tmp_path))
    assert "neither a folder nor a hub id" in refusal(configured("not a model"))


def test_damaged_weights_are_refused(model: Path, tmp_path: Path):
    folder = damaged(model, tmp_path)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    said = refusal(configured(folder))
    assert "model.safetensors" in said and "truncated" in said
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "model-2-of-2.safetensors"}}))
    assert "names files that do not exist: model-2-of-2.safetensors" in refusal(configured(folder))
    (folder / "model.safetensors.index.json").unlink()
    weights.unlink()
    assert "holds no weights" in refusal(configured(folder))


def test_unknown_engine_arguments_are_refused(model: Path):
    said = refusal(configured(model, max_num_batched_token=4))
    assert "backbone.arguments.max_num_batched_token" in said and "nearest is max_num_batched_tokens" in said
    assert "set backbone.context_tokens" in refusal(configured(model, max_model_len=4))


def test_gpus_without_a_gpu_build_are_refused(model: Path):
    assert "pools.backbone.num_gpus=1" in refusal(configured(model), gpu_share=1.0)


def test_too_long_context_names_the_key(model: Path):
    config = configured(model)
    config.context_tokens = 100_000
    assert "max_model_len is backbone.context_tokens here" in refusal(config)


def test_unknown_architecture_is_refused(model: Path, tmp_path: Path):
    folder = damaged(model, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({**config, "model_type": "nobody", "architectures": ["NobodyKnows"]})
    )
    said = refusal(configured(folder))
    assert "backbone.model=" in said and "nobody" in said


def test_text_only_model_needs_a_viewer(model: Path, tmp_path: Path):
    from openmaia.models.backbones.vllm.start import engine_config

    folder = damaged(model, tmp_path)
    config = json.loads((folder / "config.json").read_text())["text_config"]
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["Gemma3ForCausalLM"]}))
    (folder / "processor_config.json").unlink()
    assert "set backbone.sees=text" in refusal(configured(folder))
    without_images = replace(configured(folder), sees="text")
    assert engine_config(without_images, 0.0).model_config.architectures == ["Gemma3ForCausalLM"]


@pytest.mark.nightly
def test_error_of_the_engine_process_is_reported(model: Path, tmp_path: Path):
    folder = damaged(model, tmp_path)
    weights = load_file(folder / "model.safetensors")
    save_file(
        {
            **weights,
            "language_model.model.layers.0.nothing.weight": weights["language_model.model.norm.weight"].clone(),
        },
        folder / "model.safetensors",
    )
    before = psutil.Process().children(recursive=True)
    said = refusal(configured(folder))
    assert "nothing" in said
    assert still_running(set(psutil.Process().children(recursive=True)) - set(before)) == []


def test_grammar_constrains_a_turn(backbone: Engine):
    """Random weights would not write a heading of their own accord."""
    question = replace(chat(user("Go."), max_tokens=60), answer=AnswerFormat())
    (reply,) = backbone.reply([question])
    assert re.match(r"\[(HYPOTHESIS LIST\]:\n[1-9]\. |CODE\]:\n```python\n|DESCRIPTION\]: )", reply.text), reply.text


def test_missing_vllm_names_the_install_command():
    code = "import sys; sys.modules['vllm'] = None; import openmaia.models.backbones.vllm.engine"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "UsageError" in done.stderr and 'pip install -e ".[cpu]"' in done.stderr


def engine_processes() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if "VLLM" in child.name()]


def still_running(processes: Sequence[psutil.Process] | set[psutil.Process]) -> list[psutil.Process]:
    """resource_tracker: Python's own, which stays until this process ends."""
    return [one for one in processes if one.is_running() and "resource_tracker" not in " ".join(one.cmdline())]


def test_death_of_the_engine_is_host_dead(backbone: Engine):
    processes = engine_processes()
    core = next(one for one in processes if "EngineCor" in one.name())
    with ThreadPoolExecutor(4) as threads:
        running = [threads.submit(backbone.reply, [chat(user("Go."), seed=s, max_tokens=2900)]) for s in range(4)]
        core.kill()
        errors = [future.exception() for future in running]
    assert all(isinstance(error, HostDead) for error in errors), errors
    with pytest.raises(HostDead):
        backbone.reply([chat(user("Are you there?"))])
    backbone.close()
    psutil.wait_procs(processes, timeout=120)
    assert still_running(processes) == []
    with pytest.raises(HostDead, match="closed"):
        backbone.reply([chat(user("Are you there?"))])
