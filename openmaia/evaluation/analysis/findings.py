"""What a run found, in a few sentences: the first thing that terminal and report show."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openmaia.core.text import percent
from openmaia.evaluation.analysis.significance import RANDOM, SHUFFLED, supported_shares
from openmaia.evaluation.analysis.summary import PooledScores
from openmaia.evaluation.analysis.verdict import TESTED, UnitVerdict, Verdict
from openmaia.evaluation.truth import TruthMatch, read_truth
from openmaia.runs.run import InvestigationId, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a run found. All texts begin with a small letter and have no full stop."""

    headline: str
    """In a few words, as the heading of a page."""
    details: tuple[str, ...] = ()
    """What stands below the heading."""
    sentence: str
    """Headline and details as the terminal says them."""


def findings(run: Run, verdicts: Mapping[InvestigationId, UnitVerdict], scores: PooledScores | None) -> list[Finding]:
    """Returns what was found about units of known truth, descriptions, and wrong descriptions as a control."""
    found = (_truth(read_truth(run)), _described(run, verdicts, scores), _wrong(run))
    return [each for each in found if each is not None]


def _truth(matches: Sequence[TruthMatch]) -> Finding | None:
    methods = list(dict.fromkeys(each.by for each in matches))
    if not methods:
        return None
    # Of several methods, the first one compares words and needs no model.
    compared = [each for each in matches if each.by == methods[0]]
    exact = sum(each.exact for each in compared)
    following = [*compared[1:], *compared[:1]]
    foreign = sum(_folded(each.labels) == _folded(other.truth) for each, other in zip(compared, following, strict=True))
    noun = "unit" if len(compared) == 1 else "units"
    control = f" (another unit's labels do for {foreign})" if len(compared) > 1 else ""
    headline = f"{exact} of {len(compared)} {noun} of known truth found"
    detail = f"their labels name exactly what excites them{control}"
    return Finding(headline=headline, details=(detail,), sentence=f"{headline}: {detail}")


def _folded(texts: Sequence[str]) -> set[str]:
    return {" ".join(text.casefold().split()) for text in texts}


def _described(run: Run, verdicts: Mapping[InvestigationId, UnitVerdict], scores: PooledScores | None) -> Finding:
    counts = Counter(each.verdict for each in verdicts.values())
    described = {
        each
        for header in run.headers()
        if (header["labels"] or header["description"])
        and (each := InvestigationId.of_row(header)) in verdicts
        and verdicts[each].verdict is not Verdict.ABSTAINED
    }
    noun = "investigations" if any(each.replicate for each in verdicts) else "units"
    noun = noun if len(verdicts) != 1 else "unit"
    tested = sum(counts[verdict] for verdict in TESTED)
    whole, worth = f"{len(described)} of {len(verdicts)} {noun} described", ""
    if described and not tested:
        worth = "no description is tested" if scores else "no description has a verdict yet"
    elif tested:
        whole += f", {tested} of them tested" if tested < len(described) else ""
        worth = _worth(scores)
    listed = [*TESTED, Verdict.ABSTAINED, Verdict.FAILED] if described or not tested else TESTED
    counted = {each: f"{counts[each]} {each.value}" for each in listed if counts[each]}
    shown = _shown(verdicts)
    with_shown = {Verdict.SUPPORTED: f" ({shown})"} if shown else {}
    verdict = ", ".join(f"{text}{with_shown.get(each, '')}" for each, text in counted.items())
    head = ", ".join(counted.values())
    return Finding(
        headline=f"{whole}: {head}" if head else whole,
        details=tuple(filter(None, [worth, f"supported: {shown}" if shown else ""])),
        sentence="; ".join(filter(None, [whole, worth, verdict])),
    )


def _shown(verdicts: Mapping[InvestigationId, UnitVerdict]) -> str:
    supported = [each.shown for each in verdicts.values() if each.verdict is Verdict.SUPPORTED]
    known = [each for each in supported if each is not None]
    if not known:
        return ""
    unknown = f", of {len(supported) - len(known)} not known" if len(known) < len(supported) else ""
    return f"{sum(each.is_shown for each in known)} of them shown by their exemplars{unknown}"


def _worth(scores: PooledScores | None) -> str:
    if scores is None or not scores.counts["auc"]:
        return ""
    own, other, words = (scores.measures[name].mean for name in ("auc", "auc_other", "auc_words"))
    beside = f" (random words {words:.2f})" if words == words else ""
    if other != other:
        return f"AUC {own:.2f} against matched neutral images, where 0.50 is chance{beside}"
    difference = scores.measures["auc_minus_other"]
    more = "more than" if difference.low > 0 else "less than" if difference.high < 0 else "not clearly more than"
    mean = f"{own:.2f} ({scores.measures['auc'].low:.2f} to {scores.measures['auc'].high:.2f})"
    return (
        f"images of their descriptions excite them {more} images of other units' descriptions do: AUC {mean} against "
        f"{other:.2f}{beside}"
    )


def _wrong(run: Run) -> Finding | None:
    shares = supported_shares(run)
    kinds = {SHUFFLED: "other units' descriptions", RANDOM: "random words"}
    found = [
        f"{percent(shares[name][0])} of {text} (at most {percent(shares[name][2])})"
        for name, text in kinds.items()
        if name in shares
    ]
    said = f"for comparison, the same rule supports {' and '.join(found)}"
    return Finding(headline=said, sentence=said) if found else None
