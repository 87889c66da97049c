"""How much of a conversation a server takes: what the config says, or less if it refuses that."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from openmaia.models.backbones.served import ServedConfig
from openmaia.models.backbones.wordings import image_limit, token_limit

# Our numbers of tokens are estimates.
_MARGIN = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The largest conversation that is sent."""

    tokens: int
    """Largest number of tokens of messages and reply together, by our estimate."""
    images: int

    def with_images(self, text: str, sent: int) -> Iterator["Bounds"]:
        """Yields the bounds with as many images as a refusal admits, or half of those that were `sent`."""
        images = image_limit(text, sent) or sent // 2
        if images:
            yield replace(self, images=images)

    def with_tokens(self, text: str, sent: int, reply_tokens: int, share: float) -> Iterator["Bounds"]:
        """Yields the bounds with as many tokens as a refusal admits, and, should this be impossible, with a share of
        `sent`.

        Args:
            text: The server's message.
            sent: Estimated tokens of the messages in the refused request.
        """
        shared = int(share * sent)
        if limits := token_limit(text):
            limit, requested = limits
            # The server counts other tokens than we do. The ratio holds for both.
            named = (sent + reply_tokens) * limit / requested * _MARGIN if requested > limit else limit * _MARGIN
            yield replace(self, tokens=min(int(named), shared + reply_tokens))
        yield replace(self, tokens=shared + reply_tokens)

    def lower(self, other: "Bounds") -> "Bounds":
        """Returns the smaller number of tokens, and the smaller number of images."""
        return Bounds(tokens=min(self.tokens, other.tokens), images=min(self.images, other.images))

    def difference(self, config: ServedConfig, section: str) -> str:
        """Says which config keys promise more than these bounds."""
        pairs = {"context_tokens": self.tokens, "images_per_prompt": self.images}
        said = [
            f"{section}.{key}={getattr(config, key)} is more than the server takes; from now on {bound} are sent at most"
            for key, bound in pairs.items()
            if bound < getattr(config, key)
        ]
        return "; ".join(said)
