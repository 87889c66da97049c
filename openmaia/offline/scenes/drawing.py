"""From a request to an image."""

from collections.abc import Sequence

from openmaia.core.images import EncodedImage
from openmaia.core.services import Edit, GeneratedImage, Generation
from openmaia.offline.scenes.edits import edit
from openmaia.offline.scenes.grammar import read, tokens
from openmaia.offline.scenes.graph import Scene
from openmaia.offline.scenes.layout import settle
from openmaia.offline.scenes.render import render


def draw(request: Generation, size: int, without: Sequence[str] = ()) -> GeneratedImage:
    """Draws a prompt. The words in `without` count as not known."""
    scene, missing = read(request.prompt, request.seed, without)
    return GeneratedImage(image=_encoded(settle(scene), size), missing_terms=missing, verified_by="scenes")


def redraw(request: Edit, without: Sequence[str] = ()) -> GeneratedImage:
    """Draws an image after an instruction. One that is no drawn scene stays as it is, and so does one that cannot be changed so,
    or by an instruction with one of the words in `without`."""
    if silent := tuple(each.text for each in tokens(request.instruction)[0] if each.name in without):
        return GeneratedImage(image=request.image, missing_terms=silent)
    try:
        before = Scene.loads(request.image.recipe)
    except ValueError:
        return GeneratedImage(image=request.image, missing_terms=(request.instruction[:80],))
    after, missing = edit(before, request.instruction)
    if after == before:
        return GeneratedImage(image=request.image, missing_terms=missing)
    image = _encoded(after, min(request.image.size), request.image.sources)
    return GeneratedImage(image=image, missing_terms=missing)


def _encoded(scene: Scene, size: int, sources: Sequence[str] = ()) -> EncodedImage:
    return EncodedImage.of(render(scene, size), sources, scene.dumps())
