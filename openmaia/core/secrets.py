"""Keeps secrets out of everything that is written, printed and raised.

A secret is known by what it is: a value that came from the environment, or the query, fragment, user or password in a
URL. What stands for it is the expression that reads the environment, or three asterisks.
"""

import hashlib
import logging
import re
import sys
import threading
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import lru_cache
from types import TracebackType
from typing import Any, cast
from urllib.parse import parse_qsl, quote, unquote, urlsplit

MARK = "***"

# Options of pyarrow in the URL of a store. All others are taken for secrets, and the whole query of an https URL.
STORE_OPTIONS = (
    *("region", "scheme", "endpoint_override", "allow_delayed_open", "allow_bucket_creation", "allow_bucket_deletion"),
    *("force_virtual_addressing", "tls_ca_file_path", "retry_limit_seconds", "project_id", "enable_tls"),
)

# Shorter values occur in other words, and are no secrets.
SHORTEST = 6

_URL = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*)://([^\s'\"<>`]*)")
_USER = re.compile(r"^[^/?#@]*@")
_QUERY = re.compile(r"[?#].*", re.DOTALL)

_known: dict[str, str] = {}  # what stands for each secret
_lock = threading.Lock()


class Secret(str):
    """A text that is or holds a secret.

    Args:
        stored: What is stored and shown instead.
        expression: The interpolation that gives the value, such as `${oc.env:NAME}`. Empty if it was written out.
    """

    stored: str
    expression: str

    def __new__(cls, value: str, stored: str, expression: str = ""):
        made = super().__new__(cls, value)
        made.stored, made.expression = stored, expression
        remember(value, stored)
        return made

    def __reduce__(self):
        return Secret, (str(self), self.stored, self.expression)

    @property
    def digest(self) -> str:
        """Without the secret parts of URLs, so that a link that was signed anew counts as equal. Slow (scrypt), so that
        short values cannot be found by trying."""
        return _digest(hide_url_secrets(str(self)), self.expression)


@lru_cache(1024)
def _digest(value: str, salt: str) -> str:
    return hashlib.scrypt(value.encode(errors="surrogatepass"), salt=salt.encode(), n=2**14, r=8, p=1, dklen=8).hex()


def hide_url_secrets(text: str) -> str:
    """Replaces user, password, query and fragment of each URL by three asterisks."""

    def shown(url: re.Match[str]) -> str:
        end = len(url[2].rstrip(",.:;)]}"))  # of the sentence around it
        return f"{url[1]}://{_stripped(url[1].lower(), url[2][:end])}{url[2][end:]}"

    return _URL.sub(shown, text) if "://" in text else text


def _stripped(scheme: str, rest: str) -> str:
    rest = _USER.sub(f"{MARK}@", rest)
    if scheme in ("http", "https"):
        return _QUERY.sub(lambda found: f"{found[0][0]}{MARK}", rest, count=1)
    start, mark, query = rest.partition("?")
    if "=" not in query:
        return rest  # a pattern such as s3://bucket/a?.tar
    options = query.split("&")
    kept = [option for option in options if option.partition("=")[0] in STORE_OPTIONS]
    return f"{start}{mark}{'&'.join([*kept, *([MARK] if len(kept) < len(options) else [])])}"


def remember(value: str, stored: str) -> None:
    """Makes `redacted` replace a secret, also in what loggers and uncaught exceptions of this process print.

    Args:
        value: The secret, or a text that holds URLs with secret parts.
    """
    found = {value: stored} if value != stored else {}
    for url in _URL.finditer(value):
        found |= dict.fromkeys(_parts(url[0]), MARK)
    forms = {
        form: mark
        for each, mark in found.items()
        for form in (each, quote(each, safe=""), quote(each), repr(each)[1:-1])
    }
    with _lock:
        if not _known:
            _watch_output()
        _known.update({each: mark for each, mark in forms.items() if len(each) >= SHORTEST and MARK not in each})


def _parts(url: str) -> set[str]:
    """The secret parts of a URL as libraries quote them: the query, its values, user and password."""
    if hide_url_secrets(url) == url:
        return set()
    try:
        parts = urlsplit(url)
        user = parts.netloc.rpartition("@")[0]
        values = [value for name, value in parse_qsl(parts.query) if name not in STORE_OPTIONS]
    except ValueError:
        return set()
    if hide_url_secrets(url) == url.replace(f"{user}@", f"{MARK}@", 1):
        values, parts = [], parts._replace(query="", fragment="")
    given = {parts.query, parts.fragment, user, *values, *user.split(":")}
    return {each for part in given for each in (part, unquote(part)) if len(each) >= SHORTEST}


def redacted(text: str) -> str:
    """Replaces the secrets of this process, and the secret parts of any URL."""
    if _known:
        with _lock:
            known = dict(_known)
        if found := sorted((secret for secret in known if secret in text), key=len, reverse=True):
            # In one pass, because what stands for one secret may hold another one, such as a short word.
            text = re.sub("|".join(map(re.escape, found)), lambda secret: known[secret[0]], text)
    return hide_url_secrets(text)


def is_clean(text: str) -> bool:
    """Returns whether a text holds no secret."""
    return redacted(text) == text


# -- exceptions ----------------------------------------------------------------------------------------------------------


@contextmanager
def boundary(wrap: Callable[[str], Exception] = RuntimeError) -> Generator[None]:
    """Replaces an exception whose text holds a secret by `wrap(clean text)`, and cleans its causes."""
    try:
        yield
    except Exception as error:
        clean = clean_exception(error, wrap)
        if clean is error:
            raise
        raise clean from clean.__cause__


def clean_exception(error: BaseException, wrap: Callable[[str], Exception] = RuntimeError) -> BaseException:
    """Returns the exception with clean causes, or `wrap(its clean text)` if its own text holds a secret."""
    links = [error]
    while (link := links[-1].__cause__ or links[-1].__context__) is not None and link not in links:
        links.append(link)
    below: BaseException | None = None
    for link in reversed(links):
        text = str(link)
        clean = link if is_clean(text) else wrap(f"{type(link).__name__}: {redacted(text)}")
        if clean is not link:
            clean.__traceback__ = link.__traceback__
        if below is not None or clean is not link:
            clean.__cause__, clean.__suppress_context__ = below, True
            clean.__context__ = None
        below = clean
    return cast(BaseException, below)


# -- loggers and uncaught exceptions -------------------------------------------------------------------------------------


def _watch_output() -> None:
    make, show = logging.getLogRecordFactory(), sys.excepthook

    def record(*args: Any, **kwargs: Any) -> logging.LogRecord:
        made = make(*args, **kwargs)
        text = made.getMessage()
        if made.exc_info and made.exc_info[1]:
            trace = "".join(traceback.format_exception(*made.exc_info))
            if not is_clean(trace):
                text, made.exc_info = f"{text}\n{trace}", None
        if not is_clean(text):
            made.msg, made.args = redacted(text), ()
        return made

    def uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        text = "".join(traceback.format_exception(kind, error, trace))
        if is_clean(text):
            show(kind, error, trace)
        else:
            sys.stderr.write(redacted(text))

    logging.setLogRecordFactory(record)
    sys.excepthook = uncaught
