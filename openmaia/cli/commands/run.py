"""`openmaia run`, `openmaia investigate` and `openmaia exemplars`."""

import shlex
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from openmaia.cli.commands import estimate as estimates
from openmaia.cli.commands.common import (
    UNPAID,
    ConfigSources,
    RepeatFlag,
    fail,
    print_failures,
    print_left,
    print_left_out,
    print_report,
    repeat_damaged,
)


def run(
    config: ConfigSources,
    estimate: estimates.EstimateFlag = False,
    rates: estimates.RatesOption = "",
    gpus: estimates.GpusOption = "",
    units: estimates.UnitsOption = "",
    card: estimates.CardOption = "",
    repeat: RepeatFlag = False,
) -> None:
    """Investigates and tests the units of a config, with a report.

    It works on Ray, and computes missing exemplars first. Continues where an earlier run stopped. A file with `sweeps: [A.yaml, B.yaml]` runs several sweeps side by side,
    with a run directory each.

    Example: openmaia run configs/demo.yaml seed=1
    """
    from openmaia.checks.one_gpu import share_gpu
    from openmaia.config.loading import load_sweeps, refuse_unused_by
    from openmaia.runs.run import Run

    if estimate:
        shares, sentence = ([], "") if gpus else share_gpu(config, load_sweeps(config))
        if sentence:
            print(sentence)
        estimates.print_estimate([*shares, *config], rates, gpus, units, card)
        return
    estimates.refuse_without_estimate(rates, gpus, units, card)
    settings = load_sweeps(config)
    refuse_unused_by("openmaia run", config)
    print_left_out(config)
    shares, sentence = share_gpu(config, settings)
    if sentence:
        print(sentence)
        settings = load_sweeps([*shares, *config])
    runs = [Run.of(each) for each in settings]
    for each in runs if repeat else ():
        if each.files.exists("config.yaml"):
            repeat_damaged(each, records=True)
    from openmaia.assembly.sweeps import run_sweeps
    from openmaia.cli.terminal.costs import show_costs
    from openmaia.cli.terminal.live import running_investigations
    from openmaia.cli.terminal.output import Terminal, say
    from openmaia.cli.terminal.runs import show_findings, show_units

    with Terminal(running_investigations(runs)) as terminal:
        outcomes = run_sweeps(settings, terminal)
    is_complete = all(outcome.was_complete for outcome in outcomes)
    done, failed = sum(outcome.done for outcome in outcomes), sum(len(outcome.failed) for outcome in outcomes)
    say("everything was done already" if is_complete else f"investigations: {done} done, {failed} failed")
    say("reading the results")
    for outcome, each in zip(outcomes, settings, strict=True):
        show_units(outcome.run, each.evaluate.bootstrap)
        show_costs(outcome.run)
    failed_sweeps = [outcome for outcome in outcomes if print_failures(outcome.run)]
    roots = [outcome.run.files.root for outcome in outcomes]
    for own in roots[1:]:
        print_report([own])
    print_report(roots)
    show_findings([(outcome.run, each.evaluate.bootstrap) for outcome, each in zip(outcomes, settings, strict=True)])
    unpaid = [each for outcome, each in zip(outcomes, settings, strict=True) if outcome.is_unpaid]
    for each in unpaid:
        print_left(each)
    if failed_sweeps:
        raise SystemExit(1)
    if unpaid:
        raise SystemExit(UNPAID)


def investigate(
    config: ConfigSources, unit: Annotated[str, typer.Option(help="The unit, such as layer4=122.")]
) -> None:
    """Investigates one unit in this process and shows the turns.

    It uses no Ray, and the description is not tested. Continues where an earlier command stopped. What is finished is shown again and not repeated.

    Example: openmaia investigate configs/demo.yaml --unit stage4=66
    """
    from openmaia.agent.loop import investigate_and_publish
    from openmaia.agent.tasks.task import load as load_task
    from openmaia.assembly import targets
    from openmaia.assembly.investigations import purse
    from openmaia.assembly.single import prepare, select_unit
    from openmaia.checks import named, stages
    from openmaia.cli.terminal.conversation import ConversationView
    from openmaia.cli.terminal.output import Terminal, say
    from openmaia.config.loading import given_keys, load, refuse_unused_by, to_dict
    from openmaia.evaluation.analysis.verdict import write_summary
    from openmaia.runs.control import obeyed, take_retries
    from openmaia.runs.files import safe
    from openmaia.runs.lease import held
    from openmaia.runs.run import InvestigationId, Run

    settings = load([*config, f"units={unit}"])
    refuse_unused_by("openmaia investigate", config)
    if "units" in given_keys(config):
        print(f"not used: units=… (--unit {unit})")
    print_left_out(config)
    stages.require(named.files(settings), named.inputs(settings))
    say("loading the network")
    target = targets.target(settings)
    chosen = select_unit(unit, target.info(), load_task(settings.task.name).scope)
    settings.name = safe(f"{settings.name}-{str(chosen).partition('/')[2].replace('/', '-') or 'network'}")
    record_run = Run.create(settings)
    record_run.bind(target.info())
    record_run.set_plan([chosen], settings.replicates)
    take_retries(record_run, say)
    investigation = InvestigationId(unit=chosen, replicate=0)
    view = ConversationView(record_run.files)
    if record_run.is_done(investigation):
        view.show_all(record_run.record(investigation).turns)
        order = shlex.join(["openmaia", "ctl", record_run.files.root, "retry", f"{chosen.layer}={chosen.index}"])
        say(f"investigated before; `{order}`, and then this command again, repeats it; or give another name=…")
        print_report([record_run.files.root])
        return
    with held(record_run.investigations), obeyed(record_run, say):
        with Terminal() as terminal:
            terminal.say("loading images and the other models")
            single = prepare(settings, unit, terminal.say, partial(terminal.progress, "exemplars"), target=target)
        single.services.ledger.terms = purse(record_run, settings).terms(str(chosen))
        view.show_all(record_run.journal(investigation).turns())
        result = investigate_and_publish(
            investigation,
            single.task,
            single.services,
            replace(single.options, config=to_dict(settings)),
            record_run,
            observer=view.show,
        )
    if result.is_unpaid:
        print_left(settings)
        raise SystemExit(UNPAID)
    if result.summary is None:
        fail(f"{result.cause}\nrun the same command again to continue after the last turn", 1)
    write_summary(record_run)
    print_report([record_run.files.root])


def exemplars(
    config: ConfigSources,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure", help="Measure imported exemplars on the config's pictures: percentiles and deviations."
        ),
    ] = False,
) -> None:
    """Computes the exemplars of all units of the config's layers.

    Exemplars are the dataset images that excite a unit most. Contact sheets, pages with the exemplars of many units, are
    drawn, too. Continues what was stopped.

    Examples:

    openmaia exemplars configs/demo.yaml

    openmaia exemplars configs/resnet152.yaml exemplars.dataset=imagenet exemplars.folder=~/pictures --measure
    """
    from openmaia.config.loading import load

    settings = load(config)
    from openmaia.assembly.sweeps import compute_exemplars
    from openmaia.checks import named, stages
    from openmaia.cli.terminal.output import Terminal
    from openmaia.cli.terminal.runs import show_exemplars
    from openmaia.core.components import target_class
    from openmaia.core.units import Unit
    from openmaia.exemplars.measured import measure_imported
    from openmaia.interop.synthetic import write
    from openmaia.reporting.browser.sheets import write_sheets

    stages.require(named.files(settings), named.inputs(settings))
    with Terminal() as terminal:
        terminal.say("starting Ray and loading the network")
        progress = partial(terminal.progress, "exemplars")
        if measure:
            store, layers = measure_imported(settings, lambda own: compute_exemplars(own, progress, terminal.say))
        else:
            store, layers = compute_exemplars(settings, progress, terminal.say), []
    if layers:
        print(f"measured the imported exemplars of {', '.join(layers)}")
    show_exemplars(store, settings.target.name)
    print("drawing contact sheets")
    pages = write_sheets(store, settings.target.name, store.layers())
    print("\n".join(f"contact sheet: {page}" for page in pages))
    own, folder = target_class(settings.target).concepts(settings.target), store.files.local
    if own and folder is not None:
        ((mode, concepts),) = own.items()
        units = [Unit(target=settings.target.name, layer=mode, index=index) for index in range(len(concepts))]
        root = folder / "label-folders"
        labels = write(root, mode, concepts, [store.read(unit) for unit in units])
        print(f"label folders: {root} ({', '.join(labels)})")
