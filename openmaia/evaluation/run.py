"""Tests and scores the descriptions of a run."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, replace
from itertools import groupby

from openmaia.config.schema import Config, prompt_writer
from openmaia.core.components import BackboneConfig
from openmaia.evaluation.analysis.agreement import Agreement, ClaimSimilarity
from openmaia.evaluation.analysis.overlap import explored
from openmaia.evaluation.analysis.reliability import (
    compare_replicates,
    has_reliability,
    measure_reliability,
    read_agreements,
    write_agreements,
    write_reliability,
)
from openmaia.evaluation.analysis.significance import is_current, write_significance
from openmaia.evaluation.claims import Claim, read_claims
from openmaia.evaluation.controls import ReferenceData, prepare_reference
from openmaia.evaluation.protocol import evaluate_investigation, run_trials
from openmaia.evaluation.random_words import measure_random_words
from openmaia.evaluation.services import EvaluationDesign, EvaluationServices
from openmaia.evaluation.storage import StoredTrials, to_parquet
from openmaia.evaluation.together import each_at_once
from openmaia.evaluation.truth import KnownTruths, has_truth, match_truth, write_truth
from openmaia.runs.results import basis
from openmaia.runs.run import EVALUATION, RANDOM_WORDS, TRIALS, InvestigationId, Run
from openmaia.runs.snapshot import Snapshot


def evaluate_run(
    run: Run,
    services: EvaluationServices,
    design: EvaluationDesign,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Evaluates in this process every finished investigation that has no evaluation yet. Each trial is stored when it
    is done, so that an interrupted evaluation goes on.

    `progress` gets the number of investigations tested so far, earlier ones included, and that of all unevaluated ones.
    """
    unevaluated, untested = unevaluated_claims(run), untested_claims(run)
    without_words = _without_random_words(run, {each.unit.layer for each in run.evaluated()}, design)
    if untested or without_words:
        layers = {claim.unit.layer for claim in untested} | without_words
        reference = prepare_run(run, layers, services, design)

        def test(claim: Claim) -> None:
            drawn = explored(run.drawn_prompts(claim.investigation))
            trial = evaluate_investigation(claim, services, design, reference, drawn)
            run.write_artifact(TRIALS, claim.investigation, trial)

        tested = each_at_once(test, untested, services.at_once)
        for done, _ in enumerate(tested, start=len(unevaluated) - len(untested) + 1):
            progress(done, len(unevaluated))
    if unevaluated or without_words or (run.evaluated() and not is_current(run)):
        score_run(run, compare_claims(run, services.similarities, services.truths))
    elif run.evaluated() and not has_reliability(run):  # was interrupted
        agreements = compare_claims(run, services.similarities, services.truths)
        write_reliability(run, measure_reliability(run, agreements))
    elif services.truths and not has_truth(run):
        _measure_truth(run, services.similarities, services.truths)


def compare_claims(run: Run, similarities: Sequence[ClaimSimilarity], truths: KnownTruths) -> tuple[Agreement, ...]:
    """Compares claims with known truths, and those of replicates with each other. Both results are stored."""
    if truths:
        _measure_truth(run, similarities, truths)
    agreements = compare_replicates(run, similarities)
    write_agreements(run, agreements)
    return agreements


def score_run(run: Run, agreements: tuple[Agreement, ...]) -> None:
    """Scores the stored trials of a run, and stores all measures of it, without any model.

    `agreements` is the result of `compare_claims`.
    """
    run = Snapshot.of_run(run)  # each test asks for its record several times
    score_trials(run, unevaluated_claims(run))
    # Last, because its stamp tells that nothing was interrupted.
    write_reliability(run, measure_reliability(run, agreements))


def _measure_truth(run: Run, similarities: Sequence[ClaimSimilarity], truths: KnownTruths) -> None:
    write_truth(run, match_truth(read_claims(run), truths, similarities))


def measure_together(
    runs: Sequence[Run],
    services: EvaluationServices,
    design: EvaluationDesign,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Tests the claims of several runs (one for each method) about the same units with the same control images, and
    stores the trials.

    Claims of the same unit and replicate belong together. In the preset `pairing` they share their prompts, too. A unit
    is left out if its claims of all runs are tested already. No test image has a prompt of an investigation of the unit
    in any of the runs. `evaluate_run` scores the trials afterwards. `progress` gets the number of units that are done
    and that of all.
    """
    claims = [{claim.investigation: claim for claim in read_claims(run)} for run in runs]
    untested = [{claim.investigation for claim in untested_claims(run)} for run in runs]
    wanted = sorted({*untested[0]}.union(*untested[1:]))
    layers = {investigation.unit.layer for investigation in wanted}
    if not wanted:
        return
    reference = prepare_run(runs[0], layers, services, design)
    # The first description of a layer is written last, as in `prepare_run`.
    for words in sorted(runs[0].artifacts(RANDOM_WORDS), reverse=True):
        for run in runs[1:]:
            run.write_artifact(RANDOM_WORDS, words, runs[0].artifact(RANDOM_WORDS, words) or b"")

    def test(investigation: InvestigationId) -> None:
        members = [number for number, own in enumerate(claims) if investigation in own]
        drawn = frozenset[str]().union(*(explored(runs[n].drawn_prompts(investigation)) for n in members))
        missing = [number for number in members if investigation in untested[number]]
        together = members if design.preset == "pairing" else missing
        trials = run_trials([claims[n][investigation] for n in together], services, design, reference, drawn)
        for number, trial in zip(together, trials, strict=True):
            if number in missing:
                runs[number].write_artifact(TRIALS, investigation, to_parquet(trial))

    for done, _ in enumerate(each_at_once(test, wanted, services.at_once), start=1):
        progress(done, len(wanted))


def prepare_run(
    run: Run, layers: Collection[str], services: EvaluationServices, design: EvaluationDesign
) -> ReferenceData:
    """Prepares the data that all trials of these layers share. Trials of random words are stored in the run, unless
    they are stored already.
    """
    reference = prepare_reference(layers, services, design)
    trials = list(measure_random_words(_without_random_words(run, layers, design), services, design, reference))
    # The first description is written last, because its file says that those of its layer are complete.
    identity = run.identity()
    for trial in reversed(trials):
        row = asdict(trial.claim.unit) | asdict(trial.claim) | {"drawn": ""}
        claim = replace(trial.claim, basis=basis(row, identity))
        run.write_artifact(RANDOM_WORDS, claim.investigation, to_parquet(replace(trial, claim=claim)))
    words = StoredTrials(run, ()).words
    return replace(reference, words={layer: words(layer) for layer in layers})


def _without_random_words(run: Run, layers: Collection[str], design: EvaluationDesign) -> set[str]:
    """Returns the layers whose random words have to be measured."""
    measured = {each.unit.layer for each in run.belonging(RANDOM_WORDS) if each.replicate == 0}
    return {*layers} - measured if design.random_words else set()


def unevaluated_claims(run: Run) -> list[Claim]:
    """Returns the claims of finished investigations that have no evaluation yet."""
    evaluated = run.evaluated()
    return [claim for claim in read_claims(run) if claim.investigation not in evaluated]


def untested_claims(run: Run) -> list[Claim]:
    """Returns the claims of finished investigations that have neither an evaluation nor a stored trial."""
    tried = run.belonging(TRIALS)
    return [claim for claim in unevaluated_claims(run) if claim.investigation not in tried]


def needs_models(run: Run, config: Config) -> bool:
    """Returns whether models have to answer before a run can be scored: something is left to investigate or to test, or
    the language model of `config` has claims to compare.
    """
    if not run.planned() or next(run.iter_pending(), None) or untested_claims(run):
        return True
    return isinstance(prompt_writer(config), BackboneConfig) and read_agreements(run) is None


def score_trials(run: Run, claims: Sequence[Claim]) -> None:
    """Replaces the stored trials of claims by evaluations, and computes the p-values of the run again, because they
    depend on each other.
    """
    stored, wanted = run.belonging(TRIALS) | run.evaluated(), {claim.investigation for claim in claims}
    for _, layer in groupby(sorted(stored), lambda each: (each.unit.target, each.unit.layer)):
        trials = StoredTrials(run, members := list(layer))
        # Earlier evaluations are scored again if the new descriptions change with which ones they are compared.
        new, outdated = [each for each in members if each in wanted], trials.outdated()
        for evaluation in trials.evaluations([*new, *outdated], images=True):
            run.write_artifact(EVALUATION, evaluation.trial.claim.investigation, to_parquet(evaluation))
    for claim in claims:
        run.delete_artifact(TRIALS, claim.investigation)
    write_significance(run)
