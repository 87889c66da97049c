"""Where a reply ends while a model is still writing it."""

import time

import pytest

from openmaia.agent.tasks.ending import cut, ending
from openmaia.core.messages import Cut

EXPERIMENT = "[HYPOTHESIS LIST]:\n1. dogs\n\n[CODE]:\n```python\nprint(system.call_neuron(['a dog']))\n```\n"
INVENTED = "The output shows that dogs excite it.\n\n[DESCRIPTION]: dogs\n[LABEL 1]: dog\n"


def test_turn_ends_after_its_experiment():
    assert cut(EXPERIMENT + INVENTED, is_turn=True) == (EXPERIMENT, Cut.EXPERIMENT)


def test_turn_goes_on_until_its_fence_is_closed():
    assert all(ending(EXPERIMENT[:length], is_turn=True) is None for length in range(len(EXPERIMENT)))


def test_other_replies_do_not_end_after_code():
    assert cut(EXPERIMENT + INVENTED, is_turn=False) == (EXPERIMENT + INVENTED, Cut.NONE)


def test_block_that_calls_no_tool_does_not_end_a_turn():
    imports = "```python\nimport numpy as np\n```\n"
    assert cut(imports + EXPERIMENT + INVENTED, is_turn=True) == (imports + EXPERIMENT, Cut.EXPERIMENT)


def test_complete_experiment_is_not_called_cut():
    assert cut(EXPERIMENT + "\n", is_turn=True)[1] is Cut.NONE


@pytest.mark.parametrize(
    "passage", ["The unit responds to dogs. ", "H{}: dogs with fur\n", " ", "```\n", "    print('a', {})\n"]
)
def test_repetition_ends_a_reply(passage: str):
    text = "[HYPOTHESIS LIST]:\n" + "".join(passage.replace("{}", str(n % 10)) for n in range(2_000))
    ends = next(length for length in range(len(text)) if ending(text[:length], is_turn=True))
    kept, reason = cut(text[:ends], is_turn=True)
    assert reason is Cut.REPETITION
    assert ends < 1_200 and len(kept) < 300


def test_long_reply_without_repetition_goes_on():
    prompts = "".join(
        f'    "a photo of a {word} on a {place} background",\n' for word in WORDS for place in WORDS[::-1]
    )
    assert ending(f"[CODE]:\n```python\nprompts = [\n{prompts}]", is_turn=True) is None


def test_ending_is_found_in_linear_time():
    began = time.thread_time()
    ending("```\n" * 250_000, is_turn=True)
    assert time.thread_time() - began < 5


WORDS = ["dog", "lighthouse", "bicycle", "red", "wooden", "violin", "snow", "tiger"]
