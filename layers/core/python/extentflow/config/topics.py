"""Topic names and topic templates, checked by Kafka's rules for names.

Slashes become dots, because object keys are full of them. No other character is replaced: a name
that Kafka does not accept is an error.

    {bucket}     the bucket
    {prefix}     aws.s3.prefix, without slashes at its ends
    {key}        the object's whole key, likewise
    {extension}  the key's extension, lower case, without the one of a compression
"""

import re

from extentflow.errors import nearest, plain

PLACEHOLDERS = ("bucket", "prefix", "key", "extension")
MAX_TOPIC_CHARACTERS = 249

# Our own topics (progress, jobs): a key must never lead to them, nor may anybody write there.
RESERVED_PREFIX = "extentflow."

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]")


def illegal(topic: str) -> str | None:
    """Return why `topic` cannot be a name, for Kafka or for us; None where it can."""
    match = _ILLEGAL.search(topic)
    if match:
        return f"{match[0]!r} is no character of a topic name; use letters, digits, . _ -"
    if topic in {"", ".", ".."}:
        return "no topic name; write one with letters or digits"
    if topic.startswith(RESERVED_PREFIX):
        return f"names that begin with {RESERVED_PREFIX} are extentflow's own; choose another"
    if len(topic) > MAX_TOPIC_CHARACTERS:
        return f"{len(topic)} characters; a topic name has {MAX_TOPIC_CHARACTERS} at most"
    return None


def fill(template: str, values: dict[str, str]) -> str:
    """Return `template` with the placeholders in `values` filled in, the others left alone."""

    def value(match: re.Match[str]) -> str:
        filled = values.get(match[1])
        return match[0] if filled is None else filled.strip("/").replace("/", ".")

    return _PLACEHOLDER.sub(value, template)


def template(text: str) -> str:
    """Read a topic template; raises ValueError with the remedy."""
    text = text.strip()
    for name in _PLACEHOLDER.findall(text):
        if name not in PLACEHOLDERS:
            known = ", ".join(f"{{{known}}}" for known in PLACEHOLDERS)
            hint = nearest(name, PLACEHOLDERS).partition(";")[0]
            hint = f" {hint}" if hint.startswith("did") else ""
            raise ValueError(f"no placeholder {{{plain(name)}}};{hint} there are {known}")
    problem = illegal(_PLACEHOLDER.sub("x", text))
    if problem:
        raise ValueError(problem)
    return text


def depends_on_object(text: str) -> bool:
    """Whether the topic is known only once an object's key is."""
    return bool({"key", "extension"} & set(_PLACEHOLDER.findall(text)))
