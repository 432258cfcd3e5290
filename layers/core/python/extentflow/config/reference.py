"""Renders a table of keys as a Markdown section."""

from collections.abc import Callable, Iterator

from extentflow.config.table import Key, Table


def sections(table: Table, *, variable: Callable[[str], str] | None = None) -> Iterator[str]:
    """Yield the Markdown of a table, block by block.

    `variable` gives the environment variable of a key; without it keys have none.
    """
    for group in table.groups:
        yield f"### {group.title}"
        rows = [_row(key, variable) for key in group.keys]
        yield "\n".join(_grid(rows))
    for family in table.families:
        yield f"### `{family.prefix}*`"
        yield family.doc


def _row(key: Key, variable: Callable[[str], str] | None) -> dict[str, str]:
    row = {
        "key": f"`{key.name}`",
        "default": _default(key),
        "meaning": key.doc[0].upper() + key.doc[1:],
    }
    if variable is None:
        row["applies only where"] = "; ".join(only.says for only in key.only)
        row["also called"] = ", ".join(_alias(a.name, a.origin, a.values) for a in key.aliases)
    else:
        row["variable"] = f"`{variable(key.name)}`"
    return row


def _default(key: Key) -> str:
    if key.required:
        return "required"
    if key.shown is not None:
        return key.shown
    text = key.kind.write(key.default)
    return f"`{text}`" if text else "empty"


def _alias(name: str, origin: str, values: object) -> str:
    listed = f"={' or '.join(values)}" if isinstance(values, dict) and values else ""
    return f"`{name}{listed}` ({origin})"


def _grid(rows: list[dict[str, str]]) -> Iterator[str]:
    titles = [title for title in rows[0] if any(row[title] for row in rows)]
    yield _line(titles)
    yield _line(["---"] * len(titles))
    for row in rows:
        yield _line([row[title].replace("|", r"\|") for title in titles])


def _line(cells: list[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"
