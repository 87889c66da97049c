"""The target `clip`: a CLIP, SigLIP or OWL-ViT whose output has one unit for each text that the user gives."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from openmaia.core.components import Site
from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path
from openmaia.models.targets.network import NetworkConfig, StudiedNetwork, declared, given_preprocess, named_preset
from openmaia.models.weights import WeightSource

if TYPE_CHECKING:
    from openmaia.models.targets.preprocess import TargetNetwork

OPEN_CLIP_CONFIG = "open_clip_config.json"
OPEN_CLIP_WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
"""Files of open_clip in a folder, the first weights preferred."""

_SHOWN = 12  # prompts of a remark, which stands in titles and tables


@dataclass
class ClipConfig(NetworkConfig):
    """A CLIP, SigLIP or OWL-ViT (`target.network=hf:ID`, or `hf:FOLDER` of open_clip) with texts as classes. The activation of a unit of `output` is the similarity
    of the image to a text, as the model scales it; with `target.output=softmax` or `sigmoid` it is a probability. Of an OWL-ViT, a detector, it
    is the largest score of the text among all boxes."""

    prompts: list[str] = field(default_factory=list[str])
    """The texts, one for each unit of `output`."""
    prompts_file: str = ""
    """Instead of `prompts`, a text file with one of them in each line. Empty lines are skipped."""
    template: str = "{}"
    """The sentence in which each of them is put in the place of `{}`, such as `a photo of a {}`. The class has the name of
    what is put there."""


class PromptedClip(StudiedNetwork):
    """A CLIP, SigLIP or OWL-ViT with texts as classes."""

    Config: ClassVar = ClipConfig

    @staticmethod
    def network(config: Any, weights: str) -> "TargetNetwork":
        from openmaia.models.targets.networks import prompted
        from openmaia.models.targets.networks.loading import prepare

        names = read_names(config)
        network = prompted.load(
            config.network.removeprefix("hf:"),
            weights,
            names,
            [config.template.replace("{}", name) for name in names],
        )
        return declared(config, prepare(network, config.network, named_preset(config), given_preprocess(config)))

    @staticmethod
    def problems(config: Any, site: Site) -> Iterator[str]:
        yield from StudiedNetwork.problems(config, site)
        if not config.network.startswith("hf:"):
            yield f"target.network={config.network!r}: target.kind=clip reads a CLIP, SigLIP or OWL-ViT as hf:ID, an id of the hub or a folder"
        if bool(config.prompts) == bool(config.prompts_file):
            yield "target.kind=clip has a unit for each text; give either target.prompts=[TEXT,TEXT] or target.prompts_file"
        if config.template.count("{}") != 1:
            yield f"target.template={config.template!r}: expected a sentence with one {{}}, such as 'a photo of a {{}}'"
        yield from _unusable(config.prompts, "target.prompts")

    @staticmethod
    def files(config: Any, site: Site) -> Iterator[tuple[str, str, Literal["file", "folder"]]]:
        yield from StudiedNetwork.files(config, site)
        if config.prompts_file:
            yield "prompts_file", config.prompts_file, "file"

    @staticmethod
    def weights(config: Any, site: Site) -> Iterator[WeightSource]:
        for source in StudiedNetwork.weights(config, site):
            is_own = source.key == "target.network" and open_clip_folder(source.given) is not None
            names = "|".join(map(re.escape, OPEN_CLIP_WEIGHTS))
            yield replace(source, pattern=re.compile(f"(?P<part>)(?:{names})")) if is_own else source

    @staticmethod
    def remark(config: Any) -> str:
        texts = [config.template.replace("{}", name) for name in config.prompts]
        said = ", ".join(map(repr, texts[:_SHOWN])) + (
            f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
        )
        own = f"output by the {f'texts {said}' if texts else f'lines of {config.prompts_file} as {config.template!r}'}"
        return "; ".join(filter(None, (own, StudiedNetwork.remark(config))))

    @staticmethod
    def published_name(config: Any) -> str:
        return ""  # publications study its image encoder


def open_clip_folder(model: str) -> Path | None:
    """Returns the folder of a model that open_clip saved. None if it is none, or has the form of transformers, too."""
    folder = user_path(model)
    is_own = (folder / OPEN_CLIP_CONFIG).is_file() and not (folder / "config.json").is_file()
    return folder if is_own else None


def read_names(config: ClipConfig) -> tuple[str, ...]:
    """Returns the names of the classes, from the config or its file.

    Raises:
        UsageError: The file cannot be read, or has no usable names.
    """
    if not config.prompts_file:
        return tuple(name.strip() for name in config.prompts)
    what = f"target.prompts_file={config.prompts_file!r}"
    try:
        text = user_path(config.prompts_file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{what} cannot be read ({error}); give a text file in UTF-8") from error
    names = [line.strip() for line in text.splitlines() if line.strip()]
    for problem in _unusable(names, what) if names else [f"{what} is empty; give one text in each line"]:
        raise UsageError(problem)
    return tuple(names)


def _unusable(names: Sequence[str], what: str) -> Iterator[str]:
    for name in names:
        if not name.strip() or not name.isprintable():
            yield f"{what} has {name[:40]!r}; expected a text of one line"
    repeated = [name for name, count in Counter(name.strip() for name in names).items() if count > 1]
    if repeated:
        yield f"{what} has {repeated[0][:40]!r} more than once; a text is one unit"
