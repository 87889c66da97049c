"""What model servers write when they refuse a request: the only place of the project that knows their words.

Servers have no common error codes, so a refusal is recognised by its text. A pattern names what servers mean, and not one
server's sentence, so that it also matches servers that nobody has tried. To teach the project another server, add its
sentence to the tests and widen the pattern that should match it.
"""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum


class Refusal(StrEnum):
    """Why a server refused a request that it could read."""

    CONTENT = "content"
    """A moderation, of the provider or of a proxy, refuses what this conversation says."""
    NO_CREDIT = "no credit"
    """The account has no money or no quota left, and will not get any by waiting."""
    NO_IMAGES = "no images"
    """The model takes no images at all."""
    IMAGES = "images"
    """The conversation has more images than the server takes."""
    REPLY = "reply"
    """The server does not generate as many tokens as the request allows for the reply."""
    CONTEXT = "context"
    """The conversation is too long."""
    ROLES = "roles"
    """The server, or the chat template, refuses the roles of the messages or their order."""


def _pattern(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives), re.IGNORECASE)


_NOT = r"(?:not|n't|no longer)"
_IMAGE = (
    r"(?:images?|pictures?|photos?|media|image\(s\)|multi-?modal (?:items?|inputs?|data))(?!\w)(?! tokens?| inputs?,)"
)
_MOST = r"(?:too (?:many|much)|at most|up to|\bmax(?:imum)?\b|limit\w*|exceed\w*|(?:more|fewer|less|greater|larger) than|\bonly\b|\ballows?\b)"
_TEXT = r"(?:context|prompts?|inputs?|tokens?|sequence|conversation|chat history)"
_LONG = (
    r"(?:too (?:long|large|many|big)|exceed\w*|(?:longer|larger|greater|bigger|more|less|fewer|smaller) than|at most|<=|≤"
    r"|over(?:flow|run)\w*|out of range|reduce|shorten|shorter|over the)"
)

CONTENT = _pattern(
    r"moderat(?:ion|ed)|\bflagged\b|content[ _-]?(?:polic|filter|management|violation|moderation)|guardrail",
    r"safety[ _]?(?:system|filter|setting|polic|reason|check|guideline)|usage (?:polic|guideline)|responsible ?ai",
    r"(?:inappropriate|prohibited|unsafe|sensitive|harmful)[ _](?:content|words?|information|material)|data_?inspection",
    r"content exists risk|new_sensitive|敏感|violat\w+ [^.\n]{0,40}(?:polic|guideline|terms|rules)",
)
NO_CREDIT = _pattern(
    r"insufficient[ _-](?:quota|balance|credits?|funds)|(?:exceeded|over) (?:your|the) (?:current|monthly) quota|billing",
    r"(?:credit|account) balance|requires more credits|(?:out of|not enough) credits|exceeded_current_quota|spend\w* limit",
)
NO_IMAGES = _pattern(
    r"(?:image|multi-?modal|vision)(?! (?:format|type|size|url|mime|detail))[\w ]*(?:is|are|input|inputs) "
    rf"{_NOT} (?:supported|enabled|allowed|available|accepted)",
    # "Could not process image" is about one damaged image, "cannot process more than 4 images" about a limit.
    rf"{_NOT} (?:support|accept|allow|take|have|(?:process|handle)(?=[\w ]* (?:images|image input|vision|multi)))"
    r"(?![\w ]* (?:more|over|than|\d))[\w ]* (?:images?|vision|multi-?modal)(?! (?:format|type|size|url))",
    r"\bimages?(?: inputs?)? (?:is|are) disabled|\bimage_url['\"`]* (?:is|are) (?:not|only) supported|invalid type: sequence, expected a string",
    r"\bcontent\b['\"`]*:? (?:must|should) be a (?:valid )?string|\bmessages\.\d+\.content: input should be a valid string",
    r"mmproj|at most 0 image|only (?:supports? |accepts? )?text (?:content|input|message|prompt)s?|text[- ]only model",
    r"no endpoints found that support image|not a (?:multi-?modal|vision) model|only text is supported",
    r"(?:unknown|unsupported|invalid|unexpected)[^.\n]{0,40}\bimage_url\b",
)
_IMAGE_SIZE = _pattern(
    r"\b(?:image|file)s?\b[^.\n]{0,50}(?:\bsizes?\b|dimension|pixel|\bbytes\b|[KM]i?B\b|resolution|width|height|aspect|too (?:large|small|big))"
)
_IMAGES = _pattern(
    rf"{_MOST}[^.\n]{{0,60}}\b{_IMAGE}",
    rf"\b{_IMAGE}[^\n]{{0,60}}?(?:{_MOST}|> ?\d)",
    r"\b(?:one|a single|1) image(?! size)|too_many_(?:images|media)|image_limit|max_images|images_per",
)
REPLY = _pattern(
    r"max_(?:completion_|output_|new_)?tokens\b[^.\n]{0,60}"
    r"(?:too (?:large|high|big|long)|(?:must|should) be (?:<|less|at most|smaller|below|between|in|\[)|exceed|at most|<|>|less than|greater than|above|range|supports|maximum|limit)",
    r"maximum tokens you requested|maximum (?:allowed )?number of output tokens|maximum value for .?max_",
)
_TOKENS = _pattern(r"\d tokens|(?:context|sequence|prompt) length|context window")
"""Matches messages about the length of a conversation, which may also speak of its images."""
_INPUT = _pattern(r"context(?![_ ]window.? for this model)|\binputs?\b|prompt|model_len|seq(?:uence)?_len|total tokens")
"""Matches messages about the sum of conversation and reply, which begin like those about the reply."""
CONTEXT = _pattern(
    rf"\b{_TEXT}\b[^\n]{{0,80}}?{_LONG}",
    rf"{_LONG}[^.\n]{{0,60}}\b{_TEXT}\b",
    r"context[ _-]?(?:length|window|size|limit|budget)|max(?:imum)?[ _](?:model|seq(?:uence)?|prompt|input|context)[ _]?len",
    r"\b(?:prompt|input|sequence|conversation) length|session_len|n_ctx|token limit|request[ _](?:entity[ _])?(?:is )?too[ _](?:large|long)",
    r"\b(?:messages?|texts?|string|body|payload|request)\b[^.\n]{0,30} (?:too (?:long|large)|(?:length|size) exceed)|string_above_max|reduce (?:the|your) (?:length|number|size|message|prompt)",
    r"\b(?:tokens?|context|prompt)\b[^.\n]{0,60}(?:not fit|\d > \d|limit is|maximum is)|max_(?:total|input)_tokens|only \d+ tokens",
    r"\bmax(?:imum)?(?: of)? \d+ tokens|\blength of messages\b",
    "超长|上下文|输入长度|长度超",
)
_ROLES = _pattern(
    rf"\b(?:system|developer)\b.{{0,30}}\b(?:roles?|messages?|prompts?|instructions?)\b.{{0,40}}(?:{_NOT} (?:be )?|un|in)(?:supported|allow|enabled|accept|valid|permit|used)",
    r"\b(?:no|cannot use|can't use)\b[^.\n]{0,15}\bsystem (?:roles?|prompts?|messages?)|\bsystem\b['\"`]* is not one of",
    r"supported roles|(?:invalid|unsupported) value:? ['\"`]system|\bsystem\b['\"`]* parameter is not|\broles?\b[^.\n]{0,30}\bgot ['\"`]?system",
    rf"{_NOT} (?:support|allow|accept)\w*[^.\n]{{0,30}}\b(?:system|developer)\b",
    r"roles? must|alternat\w+|unexpected (?:message )?role|role[^.\n]{0,30} after |message_order|(?:message|role) (?:order|sequence)",
    r"expected last role|consecutive [^.\n]{0,20}(?:user|assistant|messages|roles)|only [^.\n]{0,10}\buser\b[^.\n]{0,30}\bassistant\b",
    r"first message[^.\n]{0,30}user|(?:start|begin) with[^.\n]{0,20}user|(?:invalid|unknown|unsupported)[^.\n]{0,20}\brole\b",
    r"\broles?\b[^\n]{0,40}(?:(?:not|n't) (?:be )?(?:supported|used|allowed)|invalid|unsupported|must be|should be|unknown|expected)",
    r"unknown variant .?(?:system|tool|developer)\b|\brole\b[^\n]{0,20}['\"]user['\"]",
)
UNSUPPORTED = _pattern(
    rf"unsupported|{_NOT} (?:an? )?(?:support|permit|allow|available|enabled|implemented|accept|recogni|compatible|valid|set\b)\w*|not_supported",
    r"unknown|unrecogni[sz]ed|unexpected|forbidden|deprecated|cannot|can't|extra (?:inputs|fields)|incompatible",
    r"must not be (?:set|used|present|given|specified)|(?:may|can|must) only be|only [\d.]+ is|\binstead\b",
    r"\bdisabled\b|no such|(?:not|no|non)[ -](?:be )?stream|\bstream\b['\"`]*(?:=| to | : )false|stream\W+true|only [^.\n]{0,10}auto\b",
    r"only [\w-]+ (?:requests|responses|replies|mode)|must be (?:verified|false|omitted|unset|null|none|empty|disabled)|only the default|additional properties",
    r"no endpoints found that support|requires --|invalid (?:parameter|argument|field)",
)
"""Matches messages about parameters that a server does not support."""
UNSUPPORTED_SURELY = _pattern(rf"unsupported|{_NOT} support|no endpoints found that support|must be verified")
"""Matches such messages with a status whose other texts report all kinds of accidents, such as 403, 404 and 500."""

_NAMES: Mapping[str, str] = {
    "stream": r"\bstream(?:ing|ed)?\b",
    "stream_options": r"\bstream_options\b|\binclude_usage\b",
    "tools": r"\btools\b|\btool (?:use|calls?|calling)\b|function[ _-]call",
    "tool_choice": r"\btool[ _-]choice\b",
    "structured_outputs": r"\bstructured[ _]outputs?\b|\bguided_\w+",
}
"""Patterns of the parameters that servers also call otherwise. All others are looked for by their names."""

LEFT_OUT: Mapping[str, str] = {
    "temperature": "its own value replaces {section}.temperature",
    "top_p": "its own value replaces {section}.top_p",
    "seed": "the same request may give another reply each time",
    "tool_choice": "the model may write text instead of a call",
    "stream": "replies arrive as a whole, within {section}.timeout",
    "quality": "its own value replaces {section}.quality",
}
"""What changes for the user if a parameter is left out."""

_KEYS: Mapping[str, str] = {
    "images_per_prompt": r"\bimages?\b",
    "context_tokens": r"\b(?:context|long|length|inputs?|prompt)\b",
    "temperature": r"\btemperature\b",
    "top_p": r"\btop_p\b",
    "protocol": r"\b(?:tools?|tool_choice|tool_calls?|function|grammar|structured_outputs)\b",
    "reply_tokens": r"\bmax_\w*tokens\b",
    "model": r"\bmodel\b",
    "size": r"\b(?:size|width|height|resolution)\b",
    "quality": r"\bquality\b",
    "seed": r"\bseed\b",
}
"""Words in messages that are not understood, by the last part of the config key that they are about."""

_WAIT = re.compile(
    r"(?:try again|retry|wait|available|resets?)\W*(?:in|after|delay|for|at least|_after|_after_seconds)?\W{0,4}(?:about |at least |another )?"
    r"(?:(\d+)\s*h(?:ou)?(?:rs?)?)?\s*(?:(\d+)\s*m(?:in(?:ute)?s?)?(?!s))?\s*(?:(\d+(?:\.\d+)?)\s*(ms|s)(?:ec(?:ond)?s?)?)?\b",
    re.IGNORECASE,
)
"""Matches "Please try again in 1m2.5s", "Retry after 24 seconds" and "retryDelay": "34s"."""


def refusal(text: str, status: int) -> Refusal | None:
    """Returns why a server refused a request, or None if its text is not understood.

    Args:
        text: The text of the response.
        status: The HTTP status, see `Failure.status`.
    """
    # pydantic's and TGI's messages about single parameters are no messages about the input of the model.
    text = re.sub(r"input (?:should be|validation error)", "", text.replace("\\", ""), flags=re.IGNORECASE)
    if status == 413:
        return Refusal.IMAGES if _is_about_images(text) else Refusal.CONTEXT
    if status == 402 or (status in (400, 403, 429) and NO_CREDIT.search(text) and waiting_time(text) is None):
        return Refusal.NO_CREDIT
    if status == 429:
        # A single request above the limit of tokens per minute is refused however long the client waits.
        return Refusal.CONTEXT if re.search(r"request too large|must be reduced", text, re.IGNORECASE) else None
    if status not in (400, 403, 404, 422, 451, 500, 501):
        return None
    if status < 500 and status != 404 and CONTENT.search(text):
        return Refusal.CONTENT
    if NO_IMAGES.search(text):
        return Refusal.NO_IMAGES
    if status in (403, 404):
        return None
    if _is_about_images(text) and not (_TOKENS.search(text) and CONTEXT.search(text)):
        return Refusal.IMAGES
    if REPLY.search(text) and not _INPUT.search(text):
        return Refusal.REPLY
    return Refusal.ROLES if _ROLES.search(text) else Refusal.CONTEXT if CONTEXT.search(text) else None


def _is_about_images(text: str) -> bool:
    return _IMAGES.search(text) is not None and _IMAGE_SIZE.search(text) is None


def refused_parameter(text: str, blamed: str | None, parameters: Iterable[str], *, surely: bool) -> str | None:
    """Returns the name of the request parameter that a server does not support, or None if the text names none.

    Args:
        text: The text of the response.
        blamed: The parameter that the response names in a field of its own.
        parameters: Names of the optional parameters in the request.
        surely: Whether only unmistakable words count.
    """
    if not (UNSUPPORTED_SURELY if surely else UNSUPPORTED).search(text):
        return None
    # Some servers refuse temperature beside top_p. In reverse order top_p is removed, and temperature stays.
    names = sorted(parameters, reverse=True)
    if blamed in names:
        return blamed
    return next((name for name in names if re.search(_NAMES.get(name, rf"\b{name}\b"), text, re.IGNORECASE)), None)


def image_limit(text: str, sent: int) -> int | None:
    """Returns the largest number of images that a refusal admits, or None if it names none.

    Args:
        text: The message, without the name of the model.
        sent: Number of images in the refused request. The limit is smaller than this number.
    """
    if re.search(r"\b(?:one|a single) image", text, re.IGNORECASE):
        return 1
    # Messages also count the images of the request, or documents. Numbers in names and versions do not count.
    numbers = [int(each) for each in re.findall(r"(?<![\w.\-\[])\d+(?![\w.\]]*\w)", text)]
    named = re.findall(
        r"(?:max\w*|limit\w*|at most|up to|only|than|exceed\w*|>)[^\d\n]{0,40}(?<![\w.\-\[])(\d+)(?![\w.\]]*\w)",
        text,
        re.IGNORECASE,
    )
    for candidates in ([int(each) for each in named], numbers):
        if admitted := [number for number in candidates if 0 < number < sent]:
            return max(admitted)
    return None


_LIMITS = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?:<=|≤|>|\d/|tokens exceeds)\s*(\d+)",
        r"(\d+)(?:[ -]tokens?)? (?:max(?:imum)?|limit|context)\b",
        r"\[\d+, ?(\d+)\]",
        r"(?:context|model)[ _]?(?:length|window|size|limit|len)\D{0,40}(\d+)",
        r"(?:maximum|limit|less than|at most|not exceed|max_\w+?_len|max_num_tokens|session_len|n_ctx|allowed)\D{0,40}(\d+)",
        r"(?:max\w*|only|up to|than|exceeds?(?: the)? (?:context|model|window)|not fit)\D{0,40}(\d+)",
    )
]


def token_limit(text: str) -> tuple[int, int] | None:
    """Returns the largest number of tokens that a refusal admits, and the largest number that it names.

    The second is most often the number of the refused request. Returns None if the text names no limit.
    """
    text = re.sub(r"(?<=\d)[, \u00a0\u202f](?=\d{3}\b)", "", re.sub(r"\b[A-Za-z][\w.]*(?:-[\w.]+)*-\d+\b", "", text))
    text = re.sub(r"\b(\d+)k\b", r"\g<1>000", text, flags=re.IGNORECASE)
    text = re.sub(
        r"exceed\w* by \d+|max_(?:completion_|output_)?tokens\W+(?:is )?too (?:large|long|high): \d+", "", text
    )
    for pattern in _LIMITS:
        if (found := pattern.search(text)) and int(found[1]) >= 64:
            return int(found[1]), max(int(each) for each in re.findall(r"\d+", text))
    return None


def waiting_time(text: str) -> float | None:
    """Returns the seconds after which a message allows another request, or None if it names no time."""
    for hours, minutes, rest, unit in _WAIT.findall(text):
        if hours or minutes or rest:
            seconds = float(rest or 0) * (0.001 if unit.lower() == "ms" else 1.0)
            return int(hours or 0) * 3600 + int(minutes or 0) * 60 + seconds
    return None


def key_hint(text: str, keys: Iterable[str]) -> str:
    """Returns the config keys that a refusal may be about, for a message to the user.

    Args:
        text: The text of the response.
        keys: The config keys that shape the request.
    """
    all_keys = list(keys)
    named = [
        key for key in all_keys if (word := _KEYS.get(key.rpartition(".")[2])) and re.search(word, text, re.IGNORECASE)
    ]
    return ", ".join(named or all_keys)
