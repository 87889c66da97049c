"""Makes the models beside it with open_clip 3.3.0, and what it answers for an input and texts. Run once:

pip install open_clip_torch==3.3.0 && python -m tests.models.targets.open_clip.make
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoTokenizer

from tests.helpers.tiny import clip

TEXTS = ["a photo of a red boat.", "a photo of a dog at night.", "a photo of a tree."]
VISION = {"image_size": 32, "layers": 2, "width": 16, "head_width": 8, "patch_size": 8}
TEXT = {"context_length": clip.LONGEST, "vocab_size": 514, "width": 12, "heads": 2, "layers": 1}
HERE = Path(__file__).parent


def make(name: str, quick_gelu: bool) -> None:
    from open_clip import CLIP
    from open_clip.push_to_hf_hub import save_for_hf

    config = {"embed_dim": 10, "vision_cfg": VISION, "text_cfg": TEXT} | ({"quick_gelu": True} if quick_gelu else {})
    torch.manual_seed(5)
    model = CLIP(**config).eval()
    with torch.no_grad():
        for each in model.parameters():
            if each.ndim:
                each.normal_(std=0.5)
        for each in (model.visual, model):
            each.image_mean, each.image_std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.25)
    with TemporaryDirectory() as folder:
        tokenizer = AutoTokenizer.from_pretrained(clip.clip(Path(folder)))
    save_for_hf(model, tokenizer, config, str(HERE / name), safe_serialization=True)
    # As open_clip pads texts.
    tokens = [each + [0] * (clip.LONGEST - len(each)) for each in tokenizer(TEXTS)["input_ids"]]
    given = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 3, 32, 32)).astype(np.float32))
    with torch.no_grad():
        answers, _ = model.get_logits(given, torch.tensor(tokens))
    save_file({"input": given, "logits": answers.contiguous()}, HERE / name / "expected.safetensors")


if __name__ == "__main__":
    make("gelu", False)
    make("quick_gelu", True)
