"""Prompts as a pipeline takes them: encoded once, and kept for when they are asked for again."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch

from openmaia.generators.diffusion.loading import device, parameters

CAPACITY = 512 * 1024**2
"""Bytes of main memory for encodings; a prompt of FLUX takes 2 MB at 256 tokens."""

RETURNED = {
    ("prompt_embeds", "pooled_prompt_embeds"): ("prompt_embeds", "pooled_prompt_embeds", "text_ids"),
    ("prompt_embeds", "negative_prompt_embeds"): ("prompt_embeds", "negative_prompt_embeds"),
    ("prompt_embeds", "negative_prompt_embeds", "pooled_prompt_embeds", "negative_pooled_prompt_embeds"): (
        "prompt_embeds",
        "negative_prompt_embeds",
        "pooled_prompt_embeds",
        "negative_pooled_prompt_embeds",
    ),
}
"""The encodings that encode_prompt accepts, in order -> what it returns: FLUX, Stable Diffusion 1 and 2, XL and 3.
The prompts of any other pipeline are handed to it as text, and so are those of one that returns anything else than one
tensor for each of these, or tensors as long as the prompt."""

Encoding = dict[str, torch.Tensor]


class Kept:
    """Encodings by prompt, the least recently used dropped first when they exceed `capacity` bytes."""

    def __init__(self, capacity: int):
        self._capacity = capacity
        self._bytes = 0
        self._kept: OrderedDict[str, Encoding] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, prompt: str) -> Encoding | None:
        if prompt in self._kept:
            self._kept.move_to_end(prompt)
        return self._kept.get(prompt)

    def put(self, prompt: str, encoding: Encoding) -> None:
        self._kept[prompt] = encoding
        self._bytes += _bytes(encoding)
        while self._bytes > self._capacity and self._kept:
            self._bytes -= _bytes(self._kept.popitem(last=False)[1])


class Prompts:
    def __init__(self, pipeline: Any, guidance: float | None, max_tokens: int, capacity: int = CAPACITY):
        """guidance: as the pipeline will be called with, None where it takes none."""
        self._pipeline = pipeline
        self._accepted = parameters(pipeline.__call__)
        encode = getattr(pipeline, "encode_prompt", None)
        known = parameters(encode) if encode else []
        taken = tuple(name for name in known if name.endswith(("_embeds", "_mask")))
        self._returned = RETURNED.get(taken, ())
        arguments = {
            "prompt_2": None,
            "prompt_3": None,
            "device": device(),
            "num_images_per_prompt": 1,
            "do_classifier_free_guidance": guidance is not None and guidance > 1,
            "max_sequence_length": max_tokens,
        }
        self._arguments = {name: value for name, value in arguments.items() if name in known}
        self._kept = Kept(capacity)

    def arguments(self, prompts: Sequence[str]) -> dict[str, Any]:
        """What a call of the pipeline is to be given for these prompts, one picture each."""
        # Each prompt is encoded by itself: its encoding must not depend on the prompts it happened to come with.
        encodings = [encoding for prompt in prompts if (encoding := self._encoding(prompt))]
        shapes = {tuple(tensor.shape for tensor in encoding.values()) for encoding in encodings}
        if len(encodings) < len(prompts) or len(shapes) > 1:
            return {"prompt": list(prompts)}
        return {
            name: torch.cat([encoding[name] for encoding in encodings]).to(device())
            for name in encodings[0]
            if name in self._accepted
        }

    def _encoding(self, prompt: str) -> Encoding | None:
        """None where the pipeline's encodings are not of a kind that is known here."""
        encoding = self._kept.get(prompt)
        if encoding is None and self._returned:
            with torch.no_grad():
                returned = self._pipeline.encode_prompt(prompt=prompt, **self._arguments)
            known = len(returned) == len(self._returned)
            if not known or not all(value is None or isinstance(value, torch.Tensor) for value in returned):
                self._returned = ()
                return None
            named = zip(self._returned, returned, strict=True)
            encoding = {name: value.cpu() for name, value in named if value is not None}
            self._kept.put(prompt, encoding)
        return encoding

    def cut(self, prompt: str) -> tuple[str, ...]:
        """The end of a prompt that no text encoder of the pipeline gets to see."""
        names = ("tokenizer_3", "tokenizer_2", "tokenizer")
        tokenizer = next((found for name in names if (found := getattr(self._pipeline, name, None))), None)
        if tokenizer is None:
            return ()
        limit = int(self._arguments.get("max_sequence_length", tokenizer.model_max_length))
        tokens = tokenizer(prompt)["input_ids"]
        # The last token of those that are seen is the end mark.
        return (tokenizer.decode(tokens[limit - 1 : -1]),) if len(tokens) > limit else ()


def _bytes(encoding: Encoding) -> int:
    return sum(tensor.nbytes for tensor in encoding.values())
