"""Name columns as fields of schemas that allow fewer names than Arrow does.

Tests: unit/converters/test_avro_converter.py, unit/converters/test_protobuf_converter.py
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote_plus

from extentflow.errors import UnsupportedType


@dataclass(frozen=True, slots=True)
class Names:
    """How columns are named in schemas; `scrub` replaces what is not allowed, as Connect.

    `record` is what has the fields, `first` are the characters that a name may begin with.
    """

    scrub: bool = False
    record: str = "an Avro record"
    first: str = "A-Za-z_"

    def fields(self, names: Sequence[str], path: str) -> list[str]:
        """Return the names of fields; UnsupportedType for one that is not allowed."""
        made = [self._field(name, path) for name in names]
        twice = [name for name, count in Counter(made).items() if count > 1]
        if twice:
            where = f"members of column '{path}'" if path else "columns"
            raise UnsupportedType(
                f"several {where} would be the field '{twice[0]}' of {self.record}; rename all"
                " but one"
            )
        return made

    def _field(self, name: str, path: str) -> str:
        if re.fullmatch(f"[{self.first}][A-Za-z0-9_]*", name):
            return name
        if not self.scrub:
            whole = f"{path}.{name}" if path else name
            first = "no digit first" if "_" in self.first else "a letter first"
            raise UnsupportedType(
                f"column '{whole}' cannot be a field of {self.record}: names are letters, digits"
                f" and _, {first}; rename it, or set scrub.invalid.names=true"
            )
        # As Connect's converters: URL-encoded, a prefix where needed, all else underscores.
        encoded = quote_plus(name, safe="*").replace("~", "%7E")
        if not re.match(f"[{self.first}]", encoded):
            encoded = f"x{encoded}"
        return re.sub(r"[^A-Za-z0-9_]", "_", encoded)
