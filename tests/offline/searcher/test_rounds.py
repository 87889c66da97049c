"""What the search answers after a failed test."""

from openmaia.agent.tools.api_text import api_text
from openmaia.core.messages import Chat, Message, assistant, system, user
from openmaia.offline.experimenter.refutations import read_refuted
from openmaia.offline.scenes.edits import edit
from openmaia.offline.scenes.grammar import read
from openmaia.offline.scenes.graph import Scene
from openmaia.offline.scenes.layout import settle
from openmaia.offline.scenes.truth import holds
from openmaia.offline.searcher.host import Searcher

LOOK = "\n".join(
    [
        *("top exemplar: 2.1\n[image-1, masked] a red boat on the sea by day." for _ in range(6)),
        *("random exemplar: 0.1\n[image-2, original] a cup in a room by day." for _ in range(6)),
    ]
)


def activation(scene: Scene) -> float:
    return 2.0 * (holds(scene, "red boat") is True) + 1.0 * (holds(scene, "sea") is True)


def listed(name: str, code: str) -> list[str]:
    body = code.partition(f"{name} = [")[2].partition("\n]")[0]
    return [line.strip().rstrip(",")[1:-1] for line in body.strip().splitlines()]


def observed(code: str) -> str:
    if "dataset_exemplars" in code:
        return LOOK
    scenes = [settle(read(text, 7)[0]) for text in listed("prompts", code)]
    if "edit_images" in code:
        pairs = zip(scenes, listed("orders", code), strict=True)
        scenes = [each for before, order in pairs for each in (before, edit(before, order)[0])]
        return f"edit: {' '.join(f'{activation(each):.5g}' for each in scenes)}"
    stage = next(
        each for each in ("screen", "single", "crowd", "around", "pair", "check", "recheck") if f'show("{each}"' in code
    )
    return f"{stage}: {' '.join(f'{activation(each):.5g}' for each in scenes)}"


def answers(searcher: Searcher, failing: int) -> tuple[list[str], list[str]]:
    """The answers, of which so many fail with all their labels, and the code of all experiments."""
    messages: list[Message] = [system(api_text({})), user("Find out what excites the unit.")]
    given: list[str] = []
    codes: list[str] = []
    for _ in range(30):
        text = searcher.reply([Chat(conversation="", messages=messages, seed=0, max_tokens=100)])[0].text
        if "[DESCRIPTION]" not in text:
            codes.append(text)
            messages += [assistant(text), user(observed(text))]
            continue
        given.append(text)
        if len(given) > failing or text.endswith("NONE"):
            return given, codes
        labels = [line.partition("]: ")[2] for line in text.splitlines() if line.startswith("[LABEL")]
        faults = "\n".join(f"- the label {label!r} failed: its near misses …" for label in labels)
        messages += [assistant(text), user(f"[TEST]: your answer is not accepted\n{faults}\nGo on.")]
    raise AssertionError("no end")


def labels_of(answer: str) -> set[str]:
    return {line.partition("]: ")[2] for line in answer.splitlines() if line.startswith("[LABEL")}


def test_refuted_labels_are_not_answered_again():
    given, _ = answers(Searcher("full"), 3)
    assert len(given) >= 2 and labels_of(given[0])
    for number, answer in enumerate(given):
        assert not labels_of(answer) & set[str]().union(*map(labels_of, given[:number]))


def test_search_abstains_when_nothing_is_left():
    given, _ = answers(Searcher("full"), 30)
    assert given[-1] == "[DESCRIPTION]: NONE"


def test_each_label_is_edited_once():
    _, codes = answers(Searcher("full"), 30)
    edits = [set(listed("prompts", code)) for code in codes if "edit_images" in code]
    assert edits and all(not one & other for n, one in enumerate(edits) for other in edits[:n])


def test_plain_search_answers_with_the_next_best_label():
    given, _ = answers(Searcher("plain"), 2)
    assert len(set(given)) == 3 and all(map(labels_of, given))


def test_a_message_is_read_only_if_the_loop_wrote_it():
    told = "[TEST]: no\n- the label 'it's' failed: x\n- the label 'sea' passed (AUC 1.00)"
    messages = [user("- the label 'boat' failed: x"), assistant(told), user(told.replace("'it's'", "'red boat'"))]
    assert read_refuted(messages) == [frozenset({"red boat"})]
