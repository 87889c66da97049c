"""`openmaia.investigate`, which investigates one unit in this process."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmaia.agent import loop
from openmaia.api.inputs import configure
from openmaia.api.progress import PrintedProgress
from openmaia.api.result import UnitResult
from openmaia.api.session import open_unit
from openmaia.core.errors import UsageError
from openmaia.core.secrets import boundary
from openmaia.core.services import Backbone
from openmaia.core.units import FEATURES, Scope
from openmaia.runs.records import Turn

if TYPE_CHECKING:
    from openmaia.api.inputs import NetworkSource
    from openmaia.datasets.memory import IndexedImages
    from openmaia.models.targets.preprocess import Preprocess
    from openmaia.models.targets.transforms import Transform


@boundary()
def investigate(
    model: "NetworkSource",
    layer: str,
    unit: int | str | None = None,
    *,
    images: "str | Path | Mapping[str, Any] | IndexedImages | Iterable[Any] | None" = None,
    preprocess: "Transform | Preprocess | Mapping[str, Any] | None" = None,
    backbone: "str | Mapping[str, Any] | Backbone | None" = None,
    dictionary: str | Path | None = None,
    evaluate: bool | Mapping[str, Any] = True,
    **overrides: Any,
) -> UnitResult:
    """Lets an agent find out what one unit of a network responds to, and tests its description on new images.

    Everything runs in this process, without Ray; only the agent's code runs in a sandbox, a separate process.

    First, the exemplars of all units of the layer are computed. They are kept in the folder that the config key
    `paths.exemplars` names, so that further units of the layer start at once. They are not kept if `preprocess` is a
    function whose steps OpenMAIA does not recognise.

    Args:
        model: A `torch.nn.Module`, which is left as it was; the name of a network, such as `torchvision:resnet18`; or a
            config: a `Config` object, the path of a file, or a list of files and `key=value` overrides.
        layer: The name of a module of the network, as `model.named_modules()` gives it, or `output` for class
            probabilities. It may also name the unit, as `LAYER=INDEX`, such as `layer4=122`.
        unit: The index of the unit in the layer. For the layer `output`, it may be the name of a class. None if `layer`
            names the unit.
        images: The dataset: a folder; a list of files, Pillow images, arrays or tensors; a dataset of PyTorch or
            Hugging Face with `len()`; or a mapping with keys of the config section `pictures`. Exemplars are selected
            from one half of it, and photographs for the test from the other half. None: as the config says, by default
            photographs that ship in Debian packages, and drawn scenes for `backbone="searcher"`.
        preprocess: How an image becomes an input of the network. This may be the evaluation transform of the network, a
            function from a Pillow image to a float tensor of shape (channels, height, width). It may also be a mapping
            with `mean` and `std` (one number for each channel, for pixel values between 0 and 1), `size` (side of the
            input in pixels) and optionally `crop` (fraction of the shorter side that a central crop keeps). None is for
            networks that declare their preprocessing themselves.
        backbone: `openai:MODEL@URL`, `anthropic:MODEL`, another kind of backbone, a mapping with keys of the config
            section `backbone`, or an object with a method `reply(chats)`, see `openmaia.core.services.Backbone`. None:
            as the config says, by default a fixed procedure that needs no language model.
        dictionary: A sparse autoencoder of the layer, in a folder or on the hub, as in `target.dictionaries`. The unit is
            then a feature of it, and no channel of the layer.
        evaluate: Whether to test the description on new images, or a mapping with keys of the config section
            `evaluate`, which says how.
        **overrides: Other settings by their config keys, such as `seed=1` or `limits={"turns": 8}`.

    Returns:
        The description and its labels, the record of the investigation, and the scores of the test.

    Raises:
        UsageError: The layer or unit does not exist, the dictionary cannot be read or does not fit the layer, the network
            does not accept what `preprocess` gives, neither the network nor `preprocess` says how images are preprocessed,
            or another argument is invalid.
        ServiceError: A model failed.
        SandboxError: The sandbox could not be started.

    Example:
        >>> result = openmaia.investigate(model, "layer4", 122, images="photos", preprocess=transform)
        >>> result.description
        'The unit responds to dog (dog: +2.1 above matched controls).'
    """
    if isinstance(evaluate, Mapping):
        overrides = {"evaluate": evaluate, **overrides}
    spec = layer if unit is None else f"{layer}={unit}"
    if dictionary is not None:
        spec, own = _feature(spec, str(dictionary), overrides)
        overrides = {**overrides, **own}
    inputs = configure(
        model,
        spec,
        images=images,
        preprocess=preprocess,
        backbone=backbone,
        overrides=overrides,
        function="openmaia.investigate",
    )
    view = PrintedProgress()

    def observe(turn: Turn) -> None:
        calls = ", ".join(dict.fromkeys(call.name for call in turn.calls)) or "no experiment"
        view.say(f"turn {turn.index + 1}: {calls} ({turn.seconds:.1f} s)")

    with open_unit(inputs, view.say, lambda done, total: view.progress("exemplars", done, total)) as single:
        if single.unit.scope is not Scope.UNIT:
            raise UsageError(
                f"the task {single.task.name!r} is about a {single.unit.scope.value}; openmaia.investigate takes tasks about "
                "a unit. Use openmaia.sweep"
            )
        record = loop.investigate(single.unit, single.task, single.services, single.options, observer=observe)
        is_testable = bool(evaluate and record.description and not single.task.answer.choices)
        if is_testable:
            view.say("testing the description on new images")
        evaluation = single.evaluate(record) if is_testable else None
        exemplars, network = single.store.read(single.unit), single.services.target.info()
    return UnitResult(record=record, exemplars=exemplars, evaluation=evaluation, config=single.config, network=network)


def _feature(spec: str, dictionary: str, overrides: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Returns the unit and the config values for a feature of a dictionary, whose layer is given in `LAYER=INDEX`."""
    target = overrides.get("target")
    if "target.dictionaries" in overrides or (isinstance(target, Mapping) and "dictionaries" in target):
        raise UsageError(
            "target.dictionaries has no effect, because dictionary is given as well; leave one of them out"
        )
    layer, equals, index = spec.partition("=")
    layer = layer.removesuffix(FEATURES)
    return f"{layer}{FEATURES}{equals}{index}", {"target.dictionaries": {layer: dictionary}}
