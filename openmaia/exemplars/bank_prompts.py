"""The prompts of the bank: of a file of the user, of the words that a generator draws, or of a list of this package."""

from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from random import Random

from openmaia.agent.tools.arguments import MAX_TEXT
from openmaia.agent.tools.seeds import seed
from openmaia.agent.vocabulary import Vocabulary
from openmaia.config.schema import Config
from openmaia.core.components import of_config
from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path
from openmaia.core.services import Generation
from openmaia.core.text import printable

LISTED = Path(__file__).with_name("bank_prompts.txt")
"""Prompts for generators that draw anything."""

_MAX_BYTES = 4 * 2**20

_TRIES = 20
"""Random pairs of words that are drawn for each image, at most: most words do not make so many different ones."""


def list_requests(config: Config) -> list[Generation]:
    """Returns the requests for the `bank.images` images of a bank that is drawn, the same for every run.

    Raises:
        UsageError: `bank.prompts` cannot be read, or is no list of prompts.
    """
    count = config.bank.images
    prompts = list_prompts(config)[:count]
    repeated = islice(cycle(prompts), count)
    return [
        Generation(prompt=prompt, seed=seed(0, "bank", prompt, number // len(prompts)))
        for number, prompt in enumerate(repeated)
    ]


def list_prompts(config: Config) -> list[str]:
    """Returns the different prompts of a bank that is drawn. No test image has one of them. Raises as `list_requests`."""
    if config.bank.prompts:
        return read_prompts(user_path(config.bank.prompts))
    vocabulary: Vocabulary | None = of_config(config.generator).vocabulary(config.generator)
    if vocabulary is not None:
        return list(islice(_combined(vocabulary.words, config.bank.images), config.bank.images))
    listed = read_prompts(LISTED)
    # The list is ordered by what the prompts show, and a small bank should show something of everything.
    Random("bank").shuffle(listed)
    return listed


def _combined(words: Sequence[str], count: int) -> Iterator[str]:
    """Yields the words, then different random pairs of them."""
    stream = Random("bank")
    yield from words
    made = set[frozenset[str]]()
    for _ in range(count * _TRIES if len(words) > 1 else 0):
        first, second = stream.sample(words, 2)
        if (pair := frozenset((first, second))) not in made:
            made.add(pair)
            yield f"{first} {second}"


def read_prompts(path: Path) -> list[str]:
    """Reads a list of prompts, one on each line. Empty lines and repeated prompts are left out.

    Raises:
        UsageError: The file cannot be read, is too large, is no text in UTF-8, or has no prompt or an invalid one.
    """
    said = f"bank.prompts={path}"
    try:
        # A pipe or a device may have no end.
        size = path.stat().st_size if path.is_file() else None
        if size is None:
            raise UsageError(f"{said} is no file; give a text file with a prompt on each line")
        if size > _MAX_BYTES:
            raise UsageError(f"{said} has {size:,} bytes, and at most {_MAX_BYTES:,} are read; give fewer prompts")
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(
            f"{said} cannot be read ({error.strerror}); give a text file with a prompt on each line"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{said} is no text in UTF-8 (byte {error.start}); save it as UTF-8") from error
    prompts: dict[str, None] = {}
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        prompt = line.strip()
        if len(prompt) > MAX_TEXT:
            raise UsageError(
                f"{said}, line {number}: a prompt of {len(prompt):,} characters; expected at most {MAX_TEXT:,}"
            )
        if not prompt.isprintable():
            shown = printable(prompt[:40], replacement="?")
            raise UsageError(f"{said}, line {number}: {shown!r} has a control character; leave it out")
        if prompt:
            prompts[prompt] = None
    if not prompts:
        raise UsageError(f"{said} holds no prompt; expected one on each line")
    return list(prompts)
