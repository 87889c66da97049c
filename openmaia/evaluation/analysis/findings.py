"""What a run found, in a few sentences: the first thing that terminal and report show."""

from collections import Counter
from collections.abc import Mapping, Sequence

from openmaia.evaluation.analysis.significance import RANDOM, SHUFFLED, supported_shares
from openmaia.evaluation.analysis.summary import PooledScores
from openmaia.evaluation.analysis.verdict import TESTED, UnitVerdict, Verdict
from openmaia.evaluation.truth import TruthMatch, read_truth
from openmaia.runs.run import InvestigationId, Run


def findings(run: Run, verdicts: Mapping[InvestigationId, UnitVerdict], scores: PooledScores | None) -> list[str]:
    """Returns a sentence each about units of known truth, descriptions, and wrong descriptions as a control."""
    return [each for each in (_truth(read_truth(run)), _described(run, verdicts, scores), _wrong(run)) if each]


def _truth(matches: Sequence[TruthMatch]) -> str:
    methods = list(dict.fromkeys(each.by for each in matches))
    if not methods:
        return ""
    # Of several methods, the first one compares words and needs no model.
    compared = [each for each in matches if each.by == methods[0]]
    exact = sum(each.exact for each in compared)
    following = [*compared[1:], *compared[:1]]
    foreign = sum(_folded(each.labels) == _folded(other.truth) for each, other in zip(compared, following, strict=True))
    noun = "unit" if len(compared) == 1 else "units"
    control = f" (with another unit's labels: {foreign})" if len(compared) > 1 else ""
    return f"{exact} of {len(compared)} {noun} of known truth found: labels name exactly what excites them{control}"


def _folded(texts: Sequence[str]) -> set[str]:
    return {" ".join(text.casefold().split()) for text in texts}


def _described(run: Run, verdicts: Mapping[InvestigationId, UnitVerdict], scores: PooledScores | None) -> str:
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
    parts = [f"{len(described)} of {len(verdicts)} {noun} described"]
    if described and not tested:
        parts.append("no description is tested" if scores else "no description is tested yet")
    elif tested:
        if tested < len(described):
            parts[0] += f", {tested} of them tested"
        parts += filter(None, [_worth(scores)])
    listed = [*TESTED, Verdict.ABSTAINED, Verdict.FAILED] if described or not tested else TESTED
    said = {Verdict.SUPPORTED: _shown(verdicts)}
    parts.append(", ".join(f"{counts[each]} {each.value}{said.get(each, '')}" for each in listed if counts[each]))
    return "; ".join(filter(None, parts))


def _shown(verdicts: Mapping[InvestigationId, UnitVerdict]) -> str:
    supported = [each.shown for each in verdicts.values() if each.verdict is Verdict.SUPPORTED]
    known = [each for each in supported if each is not None]
    if not known:
        return ""
    unknown = f", of {len(supported) - len(known)} not known" if len(known) < len(supported) else ""
    return f" ({sum(each.is_shown for each in known)} of them shown by their exemplars{unknown})"


def _worth(scores: PooledScores | None) -> str:
    if scores is None or not scores.counts["auc"]:
        return ""
    own, other, words = (scores.measures[name].mean for name in ("auc", "auc_other", "auc_words"))
    beside = f" (random words {words:.2f})" if words == words else ""
    if other != other:
        return f"AUC {own:.2f} against matched neutral images, where 0.50 is chance{beside}"
    difference = scores.measures["auc_minus_other"]
    more = "more than" if difference.low > 0 else "less than" if difference.high < 0 else "not clearly more than"
    return f"their images excite them {more} other descriptions do: AUC {own:.2f} against {other:.2f}{beside}"


def _wrong(run: Run) -> str:
    shares = supported_shares(run)
    kinds = {SHUFFLED: "other units' descriptions", RANDOM: "random words"}
    found = [f"{shares[name][0]:.0%} of {text}" for name, text in kinds.items() if name in shares]
    return f"for comparison, the same rule supports {' and '.join(found)}" if found else ""
