"""Makes the dictionaries of this folder, with what the libraries' own `encode` and `decode` give for them.

Run it in an environment that has the library: `python make.py saelens` (sae-lens 6.54.12) or `python make.py
dictionary_learning` (dictionary-learning 0.1.0), both with torch 2.13.0. The tests read the files alone.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

HERE = Path(__file__).parent
CHANNELS, FEATURES, INPUTS, K = 5, 12, 20, 3


def randomise(module: torch.nn.Module) -> None:
    """Draws all weights, thresholds above 0, and leaves k and group sizes as they are."""
    generator = torch.Generator().manual_seed(0)
    for name, each in module.state_dict().items():
        if each.is_floating_point():
            values = torch.randn(each.shape, generator=generator, dtype=each.dtype)
            each.copy_(0.5 * values.abs() if "threshold" in name else values)


def inputs() -> torch.Tensor:
    return 2 * torch.randn(INPUTS, CHANNELS, generator=torch.Generator().manual_seed(1))


def expect(name: str, library_dictionary: torch.nn.Module, decodes: bool = True) -> None:
    given = inputs()
    with torch.no_grad():
        features = library_dictionary.encode(given)
        saved = {"input": given, "features": features}
        if decodes:
            saved["decoded"] = library_dictionary.decode(features)
    save_file({key: each.contiguous() for key, each in saved.items()}, HERE / name / "expected.safetensors")


def make_saelens() -> None:
    from sae_lens import SAE
    from sae_lens.registry import get_sae_class, get_sae_training_class

    size = {"d_in": CHANNELS, "d_sae": FEATURES}
    for name, architecture, options in (
        ("standard", "standard", {}),
        ("uncentred", "standard", {"apply_b_dec_to_input": False}),
        ("layer-norm", "standard", {"normalize_activations": "layer_norm"}),
        ("constant-norm", "jumprelu", {"normalize_activations": "constant_norm_rescale"}),
        ("topk", "topk", {"k": K}),
        ("topk-rescaled", "topk", {"k": K, "rescale_acts_by_decoder_norm": True}),
        ("jumprelu", "jumprelu", {}),
        ("gated", "gated", {}),
    ):
        sae_class, config_class = get_sae_class(architecture)
        sae = sae_class(config_class(**size, **options))
        randomise(sae)
        sae.save_model(HERE / f"saelens-{name}")
        expect(f"saelens-{name}", SAE.load_from_disk(HERE / f"saelens-{name}"), "norm" not in name)
    for name, architecture, options in (
        ("batchtopk", "batchtopk", {}),
        ("matryoshka", "matryoshka_batchtopk", {"matryoshka_widths": [4, FEATURES]}),
    ):
        sae_class, config_class = get_sae_training_class(architecture)
        training = sae_class(config_class(**size, k=K, **options))
        randomise(training)
        training.save_inference_model(HERE / f"saelens-{name}")
        training.save_model(HERE / f"saelens-{name}-training")
        usable = SAE.load_from_disk(HERE / f"saelens-{name}")
        for each in (f"saelens-{name}", f"saelens-{name}-training"):
            expect(each, usable)


def make_dictionary_learning() -> None:
    from dictionary_learning import dictionary
    from dictionary_learning.trainers.batch_top_k import BatchTopKSAE
    from dictionary_learning.trainers.matryoshka_batch_top_k import MatryoshkaBatchTopKSAE
    from dictionary_learning.trainers.top_k import AutoEncoderTopK
    from dictionary_learning.utils import load_dictionary

    for each in (
        dictionary.AutoEncoder(CHANNELS, FEATURES),
        dictionary.AutoEncoderNew(CHANNELS, FEATURES),
        dictionary.GatedAutoEncoder(CHANNELS, FEATURES),
        dictionary.JumpReluAutoEncoder(CHANNELS, FEATURES),
        AutoEncoderTopK(CHANNELS, FEATURES, K),
        BatchTopKSAE(CHANNELS, FEATURES, K),
        MatryoshkaBatchTopKSAE(CHANNELS, FEATURES, K, [4, 8]),
    ):
        randomise(each)
        kind = type(each).__name__
        folder = HERE / f"learned-{kind}"
        folder.mkdir(exist_ok=True)
        torch.save(each.state_dict(), folder / "ae.pt")
        (folder / "config.json").write_text(json.dumps({"trainer": {"dict_class": kind, "k": K}}))
        expect(folder.name, load_dictionary(str(folder), "cpu")[0])


if __name__ == "__main__":
    {"saelens": make_saelens, "dictionary_learning": make_dictionary_learning}[sys.argv[1]]()
