"""How much of a conversation a server takes: what the config says, or less if the server refuses that."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from openmaia.models.backbones.served import ServedConfig
from openmaia.models.backbones.wordings import image_limit, token_limit

_MARGIN = 0.95
"""Share of the tokens that a server admits which are used, because our numbers of tokens are estimates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The largest conversation that is sent."""

    tokens: int
    """Largest number of tokens of the messages and the reply, by our estimate."""
    images: int
    """Largest number of images."""

    def with_images(self, text: str, sent: int) -> Iterator["Bounds"]:
        """Yields the bounds with fewer images: as many as a refusal admits, or half of those that were sent.

        Args:
            text: The message of the server.
            sent: Number of images in the refused request.
        """
        images = image_limit(text, sent) or sent // 2
        if images:
            yield replace(self, images=images)

    def with_tokens(self, text: str, sent: int, reply_tokens: int, share: float) -> Iterator["Bounds"]:
        """Yields the bounds with fewer tokens: as many as a refusal admits, and, should this be impossible, a share.

        Args:
            text: The message of the server.
            sent: Estimated tokens of the messages in the refused request.
            reply_tokens: Largest number of tokens of the reply.
            share: The share of `sent`.
        """
        shared = int(share * sent)
        if limits := token_limit(text):
            limit, requested = limits
            # The server counts other tokens than we do. The ratio holds for both.
            named = (sent + reply_tokens) * limit / requested * _MARGIN if requested > limit else limit * _MARGIN
            yield replace(self, tokens=min(int(named), shared + reply_tokens))
        yield replace(self, tokens=shared + reply_tokens)

    def lower(self, other: "Bounds") -> "Bounds":
        """Returns the smaller of both numbers of tokens, and of both numbers of images."""
        return Bounds(tokens=min(self.tokens, other.tokens), images=min(self.images, other.images))

    def difference(self, config: ServedConfig, section: str) -> str:
        """Returns the config keys that promise more than these bounds, with the bounds, for a message."""
        pairs = {"context_tokens": self.tokens, "images_per_prompt": self.images}
        said = [
            f"{section}.{key}={getattr(config, key)} is more than the server takes; from now on {bound} are sent at most"
            for key, bound in pairs.items()
            if bound < getattr(config, key)
        ]
        return "; ".join(said)
