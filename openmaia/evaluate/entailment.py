"""The papers' pairing variant: all methods' prompts in one heap, and a judge who picks for each description.

Every description of a unit gives 7 positive and 7 neutral prompts; of all of them the judge picks for each description
the 7 that it entails most, which are its positive ones, and the 7 that it entails least.
"""

import re
from collections.abc import Sequence

from openmaia.evaluate.asking import Asker, Malformed, Question, Unanswered, text
from openmaia.evaluate.claims import Claim
from openmaia.evaluate.writers import PUBLISHED, ROLES, PublishedWriter, Shot
from openmaia.tools.seeds import seed

LINE = re.compile(r"^\W*(most|least)\W*:\W*([\d ,;.and]+?)\W*$", re.IGNORECASE | re.MULTILINE)


def paired(claims: Sequence[Claim], asker: Asker, run_seed: int) -> list[list[Shot] | Unanswered]:
    """claims: of one unit, by several methods. A description without usable prompts puts none into the heap."""
    writer = PublishedWriter(asker, "pairing")
    failed: dict[int, Unanswered] = {}
    heap: dict[str, int] = {}
    for at, claim in enumerate(claims):
        try:
            for shot in [] if claim.is_abstention else writer.write(claim, PUBLISHED, run_seed):
                heap.setdefault(shot.prompt, shot.seed)
        except Unanswered as error:
            failed[at] = error
    prompts = list(heap)
    return [
        failed.get(at) or ([] if claim.is_abstention else _picked(claim, prompts, heap, asker, run_seed))
        for at, claim in enumerate(claims)
    ]


def _picked(
    claim: Claim, prompts: Sequence[str], seeds: dict[str, int], asker: Asker, run_seed: int
) -> list[Shot] | Unanswered:
    numbered = "\n".join(f"{at}. {prompt}" for at, prompt in enumerate(prompts, start=1))
    said = claim.description or "\n".join(claim.labels)
    words = text("entailed", claim=said, prompts=numbered, n=PUBLISHED)
    question = Question(parts=(words,), seed=seed(run_seed, "evaluate", words, 0) >> 32)
    try:
        chosen = asker.ask(question, lambda answer: picks(answer, len(prompts)))
    except Unanswered as error:
        return error
    return [
        Shot(role=role, label="", prompt=prompts[number - 1], seed=seeds[prompts[number - 1]])
        for role, numbers in zip(ROLES, chosen, strict=True)
        for number in numbers
    ]


def picks(answer: str, count: int, n: int = PUBLISHED) -> tuple[list[int], list[int]]:
    """(most, least) of the numbers 1 to count. Raises Malformed."""
    lines = {
        match[1].lower(): [int(number) for number in re.findall(r"\d+", match[2])] for match in LINE.finditer(answer)
    }
    most, least = (lines.get(name, []) for name in ("most", "least"))
    chosen = [*most, *least]
    if len(most) != n or len(least) != n:
        raise Malformed(
            f"{len(most)} and {len(least)} numbers came behind MOST and LEAST where {n} each were asked for"
        )
    if len(set(chosen)) != len(chosen) or not all(1 <= number <= count for number in chosen):
        raise Malformed(f"the numbers have to be different ones between 1 and {count}")
    return most, least
