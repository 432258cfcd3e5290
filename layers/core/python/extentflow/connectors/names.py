"""Object names that never hold data, such as markers and temporary files."""

HIDDEN = ("_", ".")


def hidden(key: str, prefix: str) -> bool:
    """Whether a name in `key` that begins behind `prefix` says that it is no data.

    A partition's folder (`_year=2026/`) is data.
    """
    begin = prefix.rfind("/") + 1
    names = key[begin:].split("/")
    if begin < len(prefix):  # the first name begins within the prefix: it is written out
        names = names[1:]
    return any(name.startswith(HIDDEN) and "=" not in name for name in names)
