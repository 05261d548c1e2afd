"""What a user may have meant by a name that is none."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Mapping, Sequence

from pipelines.specs.fields import Model, Pattern, Place, paths_to, types_of

MAX_OPTIONS = 3
"""That a question names."""
MAX_LISTED_FIELDS = 12
_SURE = 0.8
"""How like a field of the section an unknown one must be to be looked for nowhere else."""


def near(name: str, names: Iterable[str]) -> list[str]:
    """Names that are much like this one, the likest first; then those that have its words among their own."""
    known, words = list(names), set(name.split("_"))
    close = difflib.get_close_matches(name, known, MAX_OPTIONS, cutoff=0.65)
    return list(dict.fromkeys([*close, *(one for one in known if words <= set(one.split("_")))]))


def did_you_mean(options: Sequence[str]) -> str:
    """The question to put behind a rule, with the semicolon before it; empty where there is nothing to ask."""
    return f"; did you mean {_either(options[:MAX_OPTIONS])}?" if options else ""


def instead_of(
    name: str, above: Place, root: Model, inner: Mapping[str, Model] | None = None, missing: Sequence[str] = ()
) -> str:
    """What to write in place of an unknown field: an advice to put behind the rule, or nothing.

    Args:
        name: of the unknown field.
        above: the section that it stands in.
        root: what the whole document should be.
        inner: sections of the document that are documents themselves, and are checked apart.
        missing: fields that the section lacks and must have.
    """
    fields = {field: None for model in above.models for field in model.model_fields}
    options = near(name, fields)
    if len(missing) == 1 and not options:
        options = list(missing)
    types = types_of([model for model in above.others if name in model.model_fields])
    if types:
        return f"; it is a field of type {_either(list(map(repr, types)))}{did_you_mean(options)}"
    if not difflib.get_close_matches(name, fields, cutoff=_SURE):
        options = [*_elsewhere(name, above, root, inner or {}), *options]
    if options or len(fields) > MAX_LISTED_FIELDS or not fields:
        return did_you_mean(options)
    return f"; the fields here are {', '.join(fields)}"


def _elsewhere(name: str, above: Place, root: Model, inner: Mapping[str, Model]) -> list[str]:
    """Fields of the same name in the nearest other sections, unless there are many."""

    def distance(path: Pattern) -> tuple[int, int]:
        pairs = zip(path, above.pattern, strict=False)
        return -len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))), len(path)

    around = [above.pattern[:length] for length in range(len(above.pattern) + 1)]
    paths = [path for path in paths_to(root, name, inner) if path not in around and path[:-1] != above.pattern]
    least = min(map(distance, paths), default=None)
    nearest = [path for path in paths if distance(path) == least]
    return [_shown(path) for path in nearest] if len(nearest) <= MAX_OPTIONS else []


def _shown(path: Pattern) -> str:
    return ".".join(path) if len(path) > 1 else f"{path[0]} at the top"


def _either(options: Sequence[str]) -> str:
    return " or ".join([", ".join(options[:-1]), options[-1]] if len(options) > 1 else options)
