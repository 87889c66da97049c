"""Trains a packaged network: `python -m measure.world.training.train NAME SET FOLDER [EPOCHS]`.

Reads the scenes that `drawing` has written to the folder, appends to `NAME.log` beside this file, and writes the weights into
the package.
"""

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from measure.world.training.drawing import KINDS
from openmaia.offline.networks.packaged import ARCHITECTURES, PREPROCESS, WEIGHTS, save_network
from openmaia.offline.scenes.layout import PLACES

ANSWERS = {"kind": KINDS, "place": PLACES}
"""The answers to each question."""

_BATCH = 64
_CPU = torch.device("cpu")

Batch = Callable[[torch.Tensor], tuple[torch.Tensor, Mapping[str, torch.Tensor]]]
"""From numbers of scenes to inputs and answers; -1 where there is no answer."""


def scenes(name: str, folder: Path) -> tuple[int, Batch]:
    """Returns how many scenes a set has, and what gives some of them."""
    images = np.load(folder / f"{name}-images.npy", mmap_mode="r")
    known = {question: torch.from_numpy(np.load(folder / f"{name}-{question}.npy")) for question in ANSWERS}

    def batch(numbers: torch.Tensor) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        inputs = PREPROCESS.batch([images[n] for n in numbers.tolist()], _CPU)
        return inputs.contiguous(memory_format=torch.channels_last), {q: each[numbers] for q, each in known.items()}

    return len(images), batch


def train(module: nn.Module, count: int, batch: Batch, epochs: int, rate: float, say: Callable[[str], None]) -> None:
    """Trains a network whose `answers` are the logits of each question."""
    optimizer = torch.optim.AdamW(module.parameters(), rate, weight_decay=0.02)
    steps = epochs * (count // _BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, pct_start=0.2)
    began, used = time.monotonic(), time.process_time()
    module.train()
    for epoch in range(epochs):
        total = 0.0
        for numbers in torch.randperm(count)[: count // _BATCH * _BATCH].view(-1, _BATCH):
            inputs, known = batch(numbers)
            # A mirrored scene shows the same.
            inputs = inputs.flip(3) if torch.rand(()) < 0.5 else inputs
            with torch.autocast("cpu", torch.bfloat16):
                logits = module.answers(inputs)  # pyright: ignore[reportCallIssue]
            loss = sum(
                functional.cross_entropy(logits[q].float(), each, ignore_index=-1)
                for q, each in known.items()
                if (each >= 0).any()
            )
            optimizer.zero_grad()
            loss.backward()  # pyright: ignore[reportAttributeAccessIssue]
            optimizer.step()
            schedule.step()
            total += float(loss.detach())  # pyright: ignore[reportAttributeAccessIssue]
        wall, cpu = time.monotonic() - began, time.process_time() - used
        say(f"epoch {epoch + 1}: loss {total / (count // _BATCH):.3f}, {wall:.0f} s, {cpu:.0f} s of one core")


def main(name: str, drawn: str, folder: Path, epochs: int) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    architecture, rate = ("transformer", 1e-3) if name.endswith("vit") else ("residual", 4e-3)
    module = ARCHITECTURES[architecture]({question: len(each) for question, each in ANSWERS.items()})
    count, batch = scenes(drawn, folder)
    with Path(__file__).with_name(f"{name}.log").open("w") as log:

        def say(line: str) -> None:
            print(line, file=log, flush=True)

        parameters = sum(each.numel() for each in module.parameters())
        say(
            f"{name}: {architecture}, {parameters} parameters, {count} scenes of the set {drawn}, {epochs} epochs, seed 0"
        )
        train(module.to(memory_format=torch.channels_last), count, batch, epochs, rate, say)
    save_network(module, architecture, ANSWERS, WEIGHTS / f"{name}.safetensors")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]) if sys.argv[4:] else 8)
