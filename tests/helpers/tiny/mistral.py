"""A Mistral Small 4 on disk in its makers' own format, small enough for a test. It has no weights: vLLM makes them up
(`load_format=dummy`)."""

import json
import shutil
from pathlib import Path

import mistral_common

PATCH = 16

PARAMS = {
    "dim": 64, "n_layers": 2, "head_dim": 32, "hidden_dim": 128, "n_heads": 2, "n_kv_heads": 2, "rope_theta": 1e4,
    "norm_eps": 1e-6, "vocab_size": 131072, "max_position_embeddings": 16384,
    # vLLM's kernel for CPUs has latents of 512 + 64 numbers alone; the published model's have 256 + 64.
    "q_lora_rank": 32, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 64, "v_head_dim": 64,
    "moe": {
        "num_experts": 4, "num_experts_per_tok": 2, "num_shared_experts": 1, "expert_hidden_dim": 32,
        "first_k_dense_replace": 0, "route_every_n": 1, "routed_scale": 1.0, "num_expert_groups": 1,
        "num_expert_groups_per_tok": 1,
    },
    "yarn": {"original_max_position_embeddings": 8192, "factor": 2.0, "beta": 32.0, "alpha": 1.0, "apply_scale": False},
    "llama_4_scaling": {"original_max_position_embeddings": 8192, "beta": 0.1},
    "vision_encoder": {
        "hidden_size": 64, "num_channels": 3, "image_size": 128, "patch_size": PATCH, "rope_theta": 1e4,
        "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2, "adapter_bias": False,
        "image_token_id": 10,
    },
}  # fmt: skip
"""The keys that vLLM reads of `params.json`: latent attention and a mixture with a shared expert make a Mistral Large 3 of it,
with which Mistral Small 4 has its architecture in common."""

ARGUMENTS = {"config_format": "mistral", "tokenizer_mode": "mistral", "load_format": "dummy"}


def build(folder: Path) -> Path:
    """The tokenizer is the newest that Mistral's package ships."""
    shutil.copy(Path(mistral_common.__file__).parent / "data" / "tekken_240911.json", folder / "tekken.json")
    (folder / "params.json").write_text(json.dumps(PARAMS))
    return folder
