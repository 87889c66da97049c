"""Writes RESULTS.md from world.json: `python -m measure.world.results`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from measure.measuring import shown
from measure.world.__main__ import OUT
from measure.world.hidden import EACH, MEASURED_BEFORE
from measure.world.units import SEED, WITHOUT

FILE = Path(__file__).with_name("RESULTS.md")
EARLIER_PROMPTS = "prompts of the earlier grammar"
"""Kept in world.json from before the grammar was mended on MENDED_ON other prompts."""
MENDED_ON = 110
CORRECTED = 20
EARLIER, EARLIER_CLASSES = "units of the earlier agent", "classes of the earlier agent"
WITHOUT_EXPLANATIONS, HIDDEN_WITHOUT = "units without explanations", "hidden units without explanations"
"""Kept in world.json from before the agent changed."""
HEAD = """# Networks that learned drawn scenes

What agents find out about `scenes_resnet`, a network that learned drawn scenes (`measure/world/training`), and about units over scene
graphs, whose truth is known. `python -m measure.world` measures all, with the config of `make demo`. Units, network and rule were
fixed before. Network, viewer and tests share one generator of images: every figure holds within this world.

The agent is that of the date. From 2026-11-30 on it names patterned backgrounds, claims a kind that the viewer overlooks in fewer than five
telling exemplars, and of two words for the same kinds keeps the first. Later on that day it began to compare words, compounds, alternatives
and exceptions by how well they explain all images that it measured: figures *without explanations* are of the agent before.
"""


def text() -> str:
    """Returns the text of RESULTS.md."""
    figures: dict[str, Any] = json.loads(OUT.read_text())
    parts = {
        "hidden": _hidden,
        HIDDEN_WITHOUT: _hidden_without,
        "classes": _classes,
        EARLIER_CLASSES: _earlier_classes,
        "prompts": _prompts,
        EARLIER_PROMPTS: _earlier_prompts,
        "units": _units,
        WITHOUT_EXPLANATIONS: _without_explanations,
        EARLIER: _earlier,
        "shortcuts": _shortcuts,
        "spurious": _spurious,
    }
    return "\n".join([HEAD, *(parts[name](figures[name]) for name in parts if name in figures)])


def _made(figures: Mapping[str, Any]) -> str:
    took = f", {figures['took_s'] / 60:.0f} minutes" if "took_s" in figures else ""
    return f"{figures['machine']}, {figures['date']}{took}"


def _hidden(figures: Mapping[str, Any]) -> str:
    rows = [
        f"| {name} | {sum(each['verdicts'].values()) - each['verdicts'].get('abstained', 0)} | "
        f"{shown(each['supported'], '.0%')} | {shown(each['supported_and_shown'], '.0%')} | "
        f"{', '.join(str(count) for count in each['by_layer'].values())} | {shown(each['auc'], '.2f')} | "
        f"{shown(each['auc_minus_other'], '.2f')} | "
        f"{'; '.join(f'{share[0]:.1%} of {what}' for what, share in each['wrong'].items() if not what.startswith('own'))} |"
        for name, each in figures["runs"].items()
    ]
    shares = [
        f"- Agent minus {name}: supported {shown(each['supported'], '+.0%')}, supported and shown by their exemplars "
        f"{shown(each['supported_and_shown'], '+.0%')}."
        for name, each in figures["shares"].items()
    ]
    shares.append(
        f"- Of the {EACH - MEASURED_BEFORE} units of each layer that no earlier agent was measured on, supported, and supported and shown: {_both(figures['fresh'])}."
    )
    if again := figures.get("retest"):
        shares.append(
            f"- The {again['descriptions']} descriptions of the agent were tested again with images of another seed: the same "
            f"verdict {shown(again['same'], '.0%')}; of those that were supported, supported again "
            f"{shown(again['supported_again'], '.0%')}."
        )
    return f"""## Hidden units

{figures["units"]} units of three layers, {EACH} of each, drawn by a hash ({_made(figures)}). *Agent*: `backbone.kind=searcher`; *plain
search*: the best label of the screening, without exemplars and edits; *untrained*: the agent on the same architecture with random
weights (`target.weights=untrained`). *Shown*: at least half of the unit's ten top exemplars show a label, by their scene graphs. Shares
are of all units, with abstentions; AUCs are means over the tested descriptions. Each unit is in hidden.csv.

| | described | supported | supported and shown | supported by layer (stage2, stage3, stage4) | AUC | own minus other | wrong descriptions that are supported |
|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}

{chr(10).join(shares)}
"""


def _hidden_without(figures: Mapping[str, Any]) -> str:
    return f"""Without explanations, {figures["units"]} of these units had been measured before ({_made(figures)}, beside much other work), with the
shares supported, and supported and shown: {_both(figures["runs"])}.
"""


def _both(runs: Mapping[str, Any]) -> str:
    """The share that is supported, and that which exemplars show as well, of each run."""
    return "; ".join(
        f"{name} {shown(each['supported'], '.0%')} and {shown(each['supported_and_shown'], '.0%')}"
        for name, each in runs.items()
    )


def _classes(figures: Mapping[str, Any]) -> str:
    wrong = figures["trained"].get("wrong")
    false = (
        f"\nOf other classes' names, {shown(wrong['supported'], '.1%')} of {wrong['pairs']} are supported.\n"
        if wrong
        else ""
    )
    return f"""## Class outputs

All outputs of the network: kinds, patterns and places ({_made(figures)}). *Exact*: the labels name the class and nothing else. Each is in
classes.csv. In training, a pattern was the class of scenes with a patterned background, so that "dots" and "dotted background" both name
that of dots. The agent without explanations gave the same labels, one by one.

{_class_table(figures)}
{false}"""


def _earlier_classes(figures: Mapping[str, Any]) -> str:
    return f"""The same of the agent before it could name a background ({_made(figures)}). It drew a pattern mostly on objects, which hardly excite
these outputs, and abstained on eight of the ten patterns. The answers with backgrounds were tuned on `scenes_mild` and `scenes_vit`,
whose ten patterns had 0 and 1 exact label before and have 9 each since, and checked on 17 units over scene graphs of the half for tuning.
Two changes come from the outputs above alone: of two words for the same kind ("ball" and "toy") one stays, and a kind may be claimed
that the viewer does not name in fewer than five exemplars.

{_class_table(figures)}
"""


def _class_table(figures: Mapping[str, Any]) -> str:
    columns = {"outputs": "units", "exact": "exact", "exact and supported": "supported_exact"}
    return _table(
        "network", columns | {"supported, but not exact": "supported_wrong", "abstained": "abstained"}, figures
    )


def _table(first: str, columns: Mapping[str, str], figures: Mapping[str, Any]) -> str:
    """A row for each part of the figures; `columns` are the keys of its values by their headers. Shares have intervals."""
    rows = [
        f"| {name} | {' | '.join(shown(cell, '.0%') if isinstance(cell := each[key], list) else str(cell) for key in columns.values())} |"
        for name, each in figures.items()
        if isinstance(each, dict)
    ]
    return f"| {first} | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}\n{chr(10).join(rows)}"


_WRITERS = {"person": "a person", "model": "a language model"}


def _prompts(figures: Mapping[str, Any]) -> str:
    took = ", ".join(f"{spent:.1f} ms at {side} pixels" for side, spent in figures["cpu_ms"].items())
    return f"""## Prompts in plain English

300 prompts, half in the manner of a person, half in that of a language model, and by hand what each asks for
(`measure/world/prompts.csv`). A language model wrote both halves, without the list of kinds, and before anybody saw what the grammar makes of them; {CORRECTED} rows of
what they ask for were wrong and corrected after the first comparison.
Kinds, numbers, colours, patterns, coloured parts, places, times, weather and styles are compared, sizes and relations are not
({figures["machine"]}, {figures["date"]}). *Whole*: of the prompts for which the world has all words, those that are drawn exactly; *as far as the world goes*: of
all, those of which all that the world has is drawn, and every other word is named. Each prompt is in understood.csv. "Zigzag lines", which
the grammar has since then, are from one of these prompts.

{_prompt_table(figures)}

From a prompt to its pixels it takes {took} of one core (medians of 60 of the prompts, on a machine that had other work).
"""


def _earlier_prompts(figures: Mapping[str, Any]) -> str:
    return f"""The same of the grammar before it was mended, with what {MENDED_ON} other prompts showed, and not these ({figures["date"]}):

{_prompt_table(figures)}
"""


def _prompt_table(figures: Mapping[str, Any]) -> str:
    rows = [
        f"| {_WRITERS[writer]} | {each['prompts']} | {shown(each['whole'], '.0%')} | "
        f"{shown(each['as_far_as_the_world_goes'], '.0%')} | {shown(each['nothing_else_drawn'], '.1%')} | "
        f"{shown(each['nothing_silent'], '.1%')} |"
        for writer, each in figures.items()
        if writer in _WRITERS
    ]
    return f"""| in the manner of | prompts | whole | as far as the world goes | nothing drawn that was not asked for | no word lost without a notice |
|---|---|---|---|---|---|
{chr(10).join(rows)}"""


def _units(figures: Mapping[str, Any]) -> str:
    return f"""## Units over scene graphs

Units of the half that is only for measurements (`target.half=held_out`), of `target.seed={SEED}`, measured once ({_made(figures)}). The agent's
vocabulary lacks ten words ({", ".join(WITHOUT)}): the truths of the layer `outside` are these words, or have no words in the grammar at
all. There, the right outcome is to abstain, or a description that the test does not support. The agent answers with one term, a phrase of
two words, a count, two objects together (`and`), two alternatives (`or`), or one term with an exception (`andnot`); it was tuned on
units of the other half. It compares all of these by how well they explain all images that it measured: an answer
whose F1 score is at least 0.9 needs no exemplars. The run was stopped after ten units, and went on with scenes that are drawn faster, pixel
for pixel the same; the minutes are those of the rest, beside other work. Of 18 units of the layer `one` the labels had been seen in an
earlier run that was cut off, but no truth and no verdict. Each unit is in units.csv.

{_truth_table(figures)}

Of the two descriptions of `outside` that are supported, "owl; duck" for a bird is true as far as the words go that the agent has; "rainbow" for the
height of the largest object is not.
"""


def _without_explanations(figures: Mapping[str, Any]) -> str:
    return f"""The same of the agent before it compared explanations, and when it found only alternatives that excite a unit alike, on units of
`target.seed=9` ({_made(figures)}):

{_truth_table(figures)}
"""


def _earlier(figures: Mapping[str, Any]) -> str:
    return f"""The same of the agent before it had counts, two objects together and exceptions, on units of `target.seed=7` ({_made(figures)}):

{_truth_table(figures)}
"""


def _truth_table(figures: Mapping[str, Any]) -> str:
    columns = {"units": "units", "exact": "exact", "exact and supported": "exact_and_supported"}
    columns |= {"supported, but not exact": "not_exact_but_supported"}
    columns |= {"abstained or not supported": "abstained_or_not_supported", "abstained": "abstained"}
    return _table("truth", columns, figures)


def _shortcuts(figures: Mapping[str, Any]) -> str:
    networks = {name: each for name, each in figures.items() if isinstance(each, dict)}
    rows = [
        f"| `{name}` | {row['class']} | {row['context']} | {shown(row['effect'], '+.2f')} | "
        f"{shown(row['effect_on_logit'], '+.1f')} | {'yes' if row['supported'] else 'no'} |"
        for name, each in networks.items()
        for row in (*each["planted"], *each["control_claims"])
    ]
    silent = [
        f"- `{name}`: {len(each['planted']) or 'no'} claim(s) about boats; {len(each['control_claims'])} about the "
        f"{each['controls']} other classes, of which {each['controls_with_dusk']} name dusk."
        for name, each in networks.items()
    ]
    return f"""## Planted shortcuts

In the training of `scenes_shortcut` boats and dusk were never apart, in that of `scenes_mild` seldom: 88 % of the boats were at dusk, and few
other scenes (`measure/world/training`). `openmaia study bias configs/bias-scenes.yaml` asks the agent for contexts that raise or lower the
score of a class: of the boat, and of five other classes; the same of `scenes_resnet`, which had no shortcut, is the control ({_made(figures)}). Each claim is tested on 40 new pairs of scenes that
differ in the context alone. *Effect*: the mean difference of the probability, which is halved, because kinds and places share
one. Each claim, and each class without one, is in
shortcuts.csv.

| network | class | claim | effect | on the logit | supported |
|---|---|---|---|---|---|
{chr(10).join(rows)}

{chr(10).join(silent)}

As no other class, or hardly one, was at dusk in training, dusk lowers the scores of all others: a claim "- dusk" about them is true of these
networks. In `scenes_shortcut` dusk alone decides about boats. `scenes_mild` also looks at the boat, and the study finds the shortcut all the
same: "+ dusk" with an effect of 0.30 instead of 0.46, supported. Its further claims, such as "- fog" about boats, were not planted: both networks learned
from 12,000 scenes and name half of the kinds, and what else they hold to is not known.
"""


_ROWS = {
    "original": "original model",
    "l1": "all that l1 chose",
    "random": "random ones, as many as the agent's",
    "l1_n": "l1, as many as the agent's",
    "agent": "agent",
    "probe": "factorial probe, no agent",
    "balanced": "l1, balanced validation",
    "balanced_n": "l1, balanced validation, as many as the agent's",
}


def _spurious(figures: Mapping[str, Any]) -> str:
    networks = {name: each for name, each in figures.items() if isinstance(each, dict)}
    judged = [
        f"| `{name}` | {each['units']} | {each['agent'].get('spurious', 0)} | {each['agent'].get('selective', 0)} | "
        f"{each['agent'].get('undecided', 0) + each['agent'].get('failed', 0)} | {each['probe'].get('spurious', 0)} | "
        f"{each['agree']} |"
        for name, each in networks.items()
    ]
    rows = [
        f"| {title} | {' | '.join(_accuracy(each['rows'].get(row)) for each in networks.values())} |"
        for row, title in _ROWS.items()
    ]
    heads = " | ".join(f"`{name}`: accuracy (units)" for name in networks)
    return f"""## Spurious features of the same networks

`openmaia study spurious configs/spurious-scenes.yaml` ({_made(figures)}): a classifier of boats, cars, dogs and houses in a meadow is trained
from each network, with each class at one time of day (boats at dusk) in 97 % and 87 % of the images, and tested with the times
exchanged. Of the 160 units of the last stage, l1 chooses those that the agent judges, without knowing classes or times. One classifier of each
network: differences between the networks or the rows have no interval. Each unit, with the agent's reasons, is in spurious.csv.

| network | units | agent: spurious | agent: selective | no answer | probe: spurious | agent and probe agree |
|---|---|---|---|---|---|---|
{chr(10).join(judged)}

Accuracy on test images by the units on which the last layer is fitted; of random ones the mean of all draws, with the range of 95 % of them:

| units of | {heads} |
|---|{"---|" * len(networks)}
{chr(10).join(rows)}

With the milder shortcut the selection helps: 15 units of `scenes_mild` are right in 62 % of the images, as many random ones in 34 % (28 to 41),
all in 36 %. Of the 15 that the agent calls spurious, 10 are highest at dusk, of the others none. Where boats and dusk were never apart it does
not help: of `scenes_shortcut` the agent calls 20 units spurious, 6 of them highest at dusk, of the 10 others none, but a classifier of these
10 is no better than the original model, and worse than nearly all of as many random units. In the control, `scenes_resnet`, the agent
calls 10 units spurious, of which the probe calls none so, and 3 are highest at dusk, of the 20 others 9; its selection is within the range of random ones.
Of the units that it calls spurious, most depend more on the place than on the time (5 and 4, 12 and 8, 10 and 5, in the order of the table), though
neither the training nor the test of the classifier varies the place. The probe knows the classes and the times.
"""


def _accuracy(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "n/a"
    spread = f", {row['spread'][0]:.3f} to {row['spread'][1]:.3f}" if row["spread"] else ""
    return f"{row['accuracy']:.3f}{spread} ({row['units']:.0f})"


if __name__ == "__main__":
    FILE.write_text(text())
