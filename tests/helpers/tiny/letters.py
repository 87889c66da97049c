"""A tokenizer with a token for each printable ASCII character, and never a merged one, so that a generated text is tokenized
again to what was generated."""

import string
from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

CHARACTERS = string.digits + string.ascii_letters + string.punctuation + " "
BREAKS = ["\n" * count for count in range(1, 5)]


def letters(
    special: Sequence[str],
    template: str,
    *,
    named: Mapping[str, str],
    plain: Sequence[str] = (),
    vocabulary: int = 0,
    **roles: Any,
) -> PreTrainedTokenizerFast:
    """Args:
    special: All special tokens.
    named: Those that a processor looks up, such as `image_token`.
    plain: Tokens that stay in decoded text, such as `<think>`.
    vocabulary: Number of tokens; filled up with tokens that no text has.
    roles: `bos_token`, `eos_token`, `pad_token`, `unk_token`.
    """
    tokens = [*special, *CHARACTERS, *BREAKS, *plain]
    tokens += [f"<unused{i}>" for i in range(vocabulary - len(tokens))]
    vocab = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token=roles["unk_token"]))
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        chat_template=template,
        extra_special_tokens=dict(named),
        clean_up_tokenization_spaces=False,
        **roles,
    )
    others = [token for token in special if token not in [*roles.values(), *named.values()]]
    fast.add_special_tokens({"additional_special_tokens": others}, replace_extra_special_tokens=False)
    fast.add_tokens([*BREAKS, *plain])
    return fast
