"""Trains the viewer's network: `python -m measure.world.eyes.train TRAINING TUNING WEIGHTS sides=96,96,128 ...`; see `Course`."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from measure.world.eyes.scenes import ANSWERS
from openmaia.offline.networks.detector import SceneDetector
from openmaia.offline.networks.packaged import load_network, save_network

Targets = Mapping[str, torch.Tensor]
Data = Mapping[str, npt.NDArray[np.generic]]

# Of what less is seen, in shares of the picture, it is neither taught nor forbidden to see it.
_SEEN = 0.004
_WEIGHTS = {"kind": 1.0, "colour": 4.0, "pattern": 0.6, "boxes": 0.5, "place": 0.5, "time": 0.5, "weather": 0.4, "style": 0.4, "ground colour": 1.5, "ground pattern": 0.4}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How the network learns."""

    sides: tuple[int, ...]
    """Side of the pictures in pixels, of each epoch. Small ones take less time."""
    start: str = ""
    """Weights to start from, instead of random ones."""
    seed: int = 1
    rate: float = 4e-3
    batch: int = 64
    only: int = 1000
    """Number of epochs of this run at most. The next run goes on where it ended."""

    @classmethod
    def of(cls, given: Sequence[str]) -> "Course":
        """Reads arguments such as seed=2."""
        values = dict(each.split("=", 1) for each in given)
        sides = tuple(int(each) for each in values.pop("sides").split(","))
        kinds = {"start": str, "seed": int, "rate": float, "batch": int, "only": int}
        return cls(sides=sides, **{name: kinds[name](each) for name, each in values.items()})


def _batches(data: Data, size: int, side: int, r: np.random.Generator) -> Iterator[tuple[torch.Tensor, Targets]]:
    order = r.permutation(len(data["pixels"]))
    for start in range(0, len(order) - size + 1, size):
        chosen = np.sort(order[start : start + size])
        yield varied(batch(data, chosen), side, r)


def batch(data: Data, chosen: npt.NDArray[np.intp] | slice) -> tuple[torch.Tensor, Targets]:
    """Returns pictures between 0 and 1, shape (n, 3, h, w), and their labels."""
    labels = {name: torch.from_numpy(data[name][chosen]) for name in data if name != "pixels"}
    pixels = torch.from_numpy(data["pixels"][chosen]).permute(0, 3, 1, 2).float() / 255
    return pixels, labels


def varied(given: tuple[torch.Tensor, Targets], side: int, r: np.random.Generator) -> tuple[torch.Tensor, Targets]:
    """Returns parts of pictures, some of them mirrored or of few pixels, and the labels of what the parts show."""
    pixels, labels = given
    n = len(pixels)
    is_part = r.random(n) < 0.55
    scale = np.where(is_part[:, None], r.uniform(0.5, 1, (n, 1)) * r.uniform(0.85, 1.18, (n, 2)), 1.0).clip(0.4, 1.0)
    start = r.random((n, 2)) * (1 - scale)
    flip = np.where(r.random(n) < 0.5, -1.0, 1.0)
    theta = np.zeros((n, 2, 3), np.float32)
    theta[:, 0, 0], theta[:, 1, 1] = scale[:, 0] * flip, scale[:, 1]
    theta[:, :, 2] = 2 * start + scale - 1
    grid = functional.affine_grid(torch.from_numpy(theta), [n, 3, side, side], align_corners=False)
    if r.random() < 0.3:
        few = int(r.integers(80, 120))
        pixels = functional.interpolate(pixels, size=(few, few), mode="bilinear", antialias=True, align_corners=False)
    pixels = functional.grid_sample(pixels, grid, mode="bilinear", padding_mode="border", align_corners=False)
    light = torch.from_numpy(r.normal(1, 0.03, (n, 3, 1, 1)).astype(np.float32))
    return (pixels * light).clamp(0, 1), {**labels, "boxes": _in_part(labels["boxes"].numpy(), start, scale, flip)}


def _in_part(
    boxes: npt.NDArray[np.float32],
    start: npt.NDArray[np.float64],
    scale: npt.NDArray[np.float64],
    flip: npt.NDArray[np.float64],
) -> torch.Tensor:
    low, high = boxes[..., :2], boxes[..., 2:4]
    low, high = ((each - start[:, None]) / scale[:, None] for each in (low, high))
    mirrored = flip[:, None] < 0
    left, right = np.where(mirrored, 1 - high[..., 0], low[..., 0]), np.where(mirrored, 1 - low[..., 0], high[..., 0])
    top, bottom = low[..., 1], high[..., 1]
    whole = np.maximum((right - left) * (bottom - top), 1e-9)
    left, right, top, bottom = (each.clip(0, 1) for each in (left, right, top, bottom))
    kept = (right - left) * (bottom - top) / whole
    area = boxes[..., 4] * kept / scale.prod(axis=1)[:, None]
    # Of a figure that is mostly cut off nothing can be learned: its area is below what counts as seen.
    area = np.where(kept < 0.35, np.where(kept > 0, 1e-5, 0.0), area)
    return torch.from_numpy(np.stack([left, top, right, bottom, area], -1).astype(np.float32))


def loss(outputs: Mapping[str, torch.Tensor], labels: Targets) -> dict[str, torch.Tensor]:
    """Returns the loss of each question, weighted."""
    side = outputs["kind"].shape[2]
    image, slot = torch.nonzero((labels["figures"][..., 0] >= 0) & (labels["boxes"][..., 4] > 0), as_tuple=True)
    boxes = labels["boxes"][image, slot]
    kind, pattern = labels["figures"][image, slot].long().T
    middle = (boxes[:, :2] + boxes[:, 2:4]) / 2
    size = boxes[:, 2:4] - boxes[:, :2]
    is_seen = boxes[:, 4] >= _SEEN
    heat, ignored = _heat(outputs["kind"], image, kind, middle, size, is_seen)
    parts = {"kind": _focal(outputs["kind"].float(), heat, ignored)}
    image, slot, kind, pattern, middle, size, boxes = (
        each[is_seen] for each in (image, slot, kind, pattern, middle, size, boxes)
    )
    column, row = (middle * side).long().clamp(0, side - 1).T
    looks = {name: outputs[name].float()[image, :, row, column] for name in ("colour", "pattern", "boxes")}
    parts["colour"] = _some_of(looks["colour"], labels["colours"][image, slot])
    parts["pattern"] = functional.cross_entropy(looks["pattern"], pattern)
    target = torch.cat([size, boxes[:, 4:]], 1).clamp_min(1e-3).log()
    parts["boxes"] = functional.smooth_l1_loss(looks["boxes"], target)
    for name in ("place", "time", "weather", "style", "ground pattern"):
        parts[name] = functional.cross_entropy(outputs[name].float(), labels[name].long(), ignore_index=-1)
    parts["ground colour"] = _some_of(outputs["ground colour"].float(), labels["ground colour"])
    return {name: _WEIGHTS[name] * torch.nan_to_num(each) for name, each in parts.items()}


def _heat(
    logits: torch.Tensor,
    image: torch.Tensor,
    kind: torch.Tensor,
    middle: torch.Tensor,
    size: torch.Tensor,
    is_seen: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    # The target is 1 in the cell of a figure's middle and falls off around it; figures that are hardly seen count nowhere.
    n, kinds, side, _ = logits.shape
    place = (torch.arange(side) + 0.5) / side
    cell = ((middle * side).long().clamp(0, side - 1).float() + 0.5) / side
    width = (0.16 * size).clamp_min(0.6 / side)
    fall = [torch.exp(-((place[None] - cell[:, axis, None]) ** 2) / (2 * width[:, axis, None] ** 2)) for axis in (0, 1)]
    bumps = fall[1][:, :, None] * fall[0][:, None, :]
    index = (image * kinds + kind)[:, None].expand(-1, side * side)
    flat = torch.zeros(n * kinds, side * side)
    heat = flat.scatter_reduce(0, index[is_seen], bumps[is_seen].flatten(1), "amax")
    ignored = flat.scatter_reduce(0, index[~is_seen], (bumps[~is_seen] > 0.1).float().flatten(1), "amax")
    return heat.view(logits.shape), ignored.view(logits.shape)


def _focal(logits: torch.Tensor, heat: torch.Tensor, ignored: torch.Tensor) -> torch.Tensor:
    # As in "Objects as Points" (Zhou et al., 2019), equation 1.
    is_middle = heat > 0.999
    p = logits.sigmoid()
    own = -(functional.logsigmoid(logits) * (1 - p) ** 2)[is_middle].sum()
    other = -(functional.logsigmoid(-logits) * p**2 * (1 - heat) ** 4 * (1 - ignored))[~is_middle].sum()
    return (own + other) / is_middle.sum().clamp_min(1)


def _some_of(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    known = target[:, 0] >= 0
    return functional.binary_cross_entropy_with_logits(logits[known], target[known].float())


def tensor_of(pixels: torch.Tensor) -> torch.Tensor:
    """Returns what the network takes."""
    return ((pixels - 0.5) / 0.25).contiguous(memory_format=torch.channels_last)


def train(training: Path, tuning: Path, weights: Path, course: Course) -> None:
    """Writes the weights after each epoch, and prints the losses of training and tuning scenes."""
    torch.set_num_threads(1)
    torch.manual_seed(course.seed)
    data, held = (dict(np.load(path).items()) for path in (training, tuning))
    network = SceneDetector({name: len(each) for name, each in ANSWERS.items()}).to(memory_format=torch.channels_last)
    if course.start:
        network.load_state_dict(load_network(Path(course.start))[0].state_dict())
    steps, sides = len(data["pixels"]) // course.batch, course.sides
    optimizer = torch.optim.AdamW(network.parameters(), course.rate, weight_decay=0.02)
    rise = 0.05 if course.start else 0.15
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, course.rate, total_steps=len(sides) * steps, pct_start=rise
    )
    parts = {"network": network, "optimizer": optimizer, "schedule": schedule}
    kept, first = weights.with_suffix(".state"), 0
    if kept.exists():
        state = torch.load(kept, weights_only=True)
        first = int(state.pop("epochs"))
        for name, each in state.items():
            parts[name].load_state_dict(each)
    else:
        print(
            f"{sum(each.numel() for each in network.parameters())} parameters, {len(data['pixels'])} scenes; {course}"
        )
    for epoch in range(first, min(first + course.only, len(sides))):
        began, sums = time.process_time(), dict[str, float]()
        network.train()
        for pixels, labels in _batches(data, course.batch, sides[epoch], np.random.default_rng((course.seed, epoch))):
            with torch.autocast("cpu", torch.bfloat16):
                outputs = network(tensor_of(pixels))
            losses = loss(outputs, labels)
            optimizer.zero_grad()
            torch.stack(list(losses.values())).sum().backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 5.0)
            optimizer.step()
            schedule.step()
            sums = {name: sums.get(name, 0.0) + each.item() for name, each in losses.items()}
        seconds = time.process_time() - began
        print(f"epoch {epoch + 1} of {len(sides)}, {sides[epoch]} px, {seconds:.0f} s of one core")
        print(f"  training {_shown(sums, steps)}\n  tuning   {_shown(*_held_out(network, held))}", flush=True)
        save_network(network, "detector", ANSWERS, weights)
        torch.save({"epochs": epoch + 1, **{name: each.state_dict() for name, each in parts.items()}}, kept)


@torch.no_grad()
def _held_out(network: SceneDetector, data: Data) -> tuple[dict[str, float], int]:
    network.eval()
    sums, count = dict[str, float](), len(data["pixels"]) // 100
    for start in range(count):
        pixels, labels = batch(data, slice(start * 100, start * 100 + 100))
        with torch.autocast("cpu", torch.bfloat16):
            outputs = network(tensor_of(pixels))
        sums = {name: sums.get(name, 0.0) + each.item() for name, each in loss(outputs, labels).items()}
    return sums, count


def _shown(sums: Mapping[str, float], count: int) -> str:
    return ", ".join(f"{name} {each / count:.3f}" for name, each in sums.items())


if __name__ == "__main__":
    train(*(Path(each) for each in sys.argv[1:4]), Course.of(sys.argv[4:]))
