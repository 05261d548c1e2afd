"""From finished units to what is reported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from pipelines.scoring.pairs import PairScores
from pipelines.scoring.text import TextScores
from pipelines.specs.documents import MinimalPairScores, UnseenTextScores

MAX_REPORT_LINES = 20
_NOT_IN_A_METRIC = re.compile(r"[^\w. :-]")
"""What MLflow does not take in a part of a metric's name; a slash would end the part."""
_LONGEST_PART = 150


def summarise_pairs(
    network: Literal["discriminator", "generator"], files: Mapping[str, PairScores]
) -> MinimalPairScores:
    """One network over all files."""
    right: dict[str, int] = {}
    counted: dict[str, int] = {}
    for scores in files.values():
        for phenomenon, number in scores.num_by_phenomenon.items():
            counted[phenomenon] = counted.get(phenomenon, 0) + number
            right[phenomenon] = right.get(phenomenon, 0) + scores.num_right[phenomenon]
    by_file = {name: scores.accuracy for name, scores in files.items()}
    return MinimalPairScores(
        network=network,
        accuracy=sum(by_file.values()) / len(by_file),
        by_file=by_file,
        by_phenomenon={name: right[name] / counted[name] for name in sorted(counted)},
        num_pairs=sum(scores.num_pairs for scores in files.values()),
        num_alike=sum(scores.num_alike for scores in files.values()),
        num_bad_rows=sum(scores.num_bad_rows for scores in files.values()),
        report=tuple(line for scores in files.values() for line in scores.report)[:MAX_REPORT_LINES],
    )


def summarise_text(source: str, scores: TextScores) -> UnseenTextScores:
    """One source."""
    return UnseenTextScores(
        source=source,
        figures=scores.figures,
        num_rows=scores.num_rows,
        num_tokens=scores.num_tokens,
        num_documents=scores.num_documents,
        num_bad_records=scores.num_bad_records,
        report=scores.report,
    )


def headline(pairs: Sequence[MinimalPairScores], texts: Sequence[UnseenTextScores]) -> dict[str, float]:
    """The figures of the whole job: each network's accuracy, and each source's losses."""
    named = {f"{one.network}_minimal_pairs": one.accuracy for one in pairs}
    for text in texts:
        named |= {f"{text.source}/{name}": value for name, value in text.figures.items()}
    return named


def metrics(pairs: Sequence[MinimalPairScores], texts: Sequence[UnseenTextScores]) -> dict[str, float]:
    """Everything, in names that MLflow takes."""
    named: dict[str, float] = {}
    for one in pairs:
        start = f"minimal_pairs/{one.network}"
        named[f"{start}/accuracy"] = one.accuracy
        for kind, values in (("file", one.by_file), ("phenomenon", one.by_phenomenon)):
            parts = _metric_parts(values)
            named |= {f"{start}/{kind}/{parts[name]}": value for name, value in values.items()}
    for text in texts:
        named |= {f"unseen_text/{text.source}/{name}": value for name, value in text.figures.items()}
    return named


def short_names(uris: Sequence[str]) -> dict[str, str]:
    """Each file by the shortest end of its URI that no other has."""
    distinct = list(dict.fromkeys(uris))
    names = {uri: uri for uri in distinct}
    for uri in distinct:
        parts = uri.split("/")
        for length in range(1, len(parts)):
            end = "/".join(parts[-length:])
            if sum(f"/{other}".endswith(f"/{end}") for other in distinct) == 1:
                names[uri] = end
                break
    return names


def _metric_parts(names: Iterable[str]) -> dict[str, str]:
    """What each name is called within the name of a metric: MLflow's letters, none twice."""
    parts: dict[str, str] = {}
    for name in names:
        part = _NOT_IN_A_METRIC.sub("_", name)[:_LONGEST_PART].strip()
        part = part if part.strip(".") else f"_{part}"  # `.` and `..` would lead elsewhere
        number = 2
        unique = part
        while unique in parts.values():
            unique, number = f"{part} {number}", number + 1
        parts[name] = unique
    return parts


def table(pairs: Sequence[MinimalPairScores], texts: Sequence[UnseenTextScores]) -> str:
    """All of it as Markdown."""
    lines: list[str] = []
    if pairs:
        head = "".join(f" {one.network} |" for one in pairs)
        lines += [f"| minimal pairs |{head}", "|---|" + "---|" * len(pairs)]
        for kind in ("by_phenomenon", "by_file"):
            for name in dict.fromkeys(name for one in pairs for name in getattr(one, kind)):
                cells = "".join(f" {_shown(getattr(one, kind).get(name))} |" for one in pairs)
                lines.append(f"| {kind.removeprefix('by_')} {_cell(name)} |{cells}")
        lines.append("| **mean over files** |" + "".join(f" {one.accuracy:.4f} |" for one in pairs))
        lines += ["", f"{pairs[0].num_pairs:,} pairs; chance is 0.5, and a tie is wrong.", ""]
    if texts:
        names = list(dict.fromkeys(name for text in texts for name in text.figures))
        lines += ["| unseen text |" + "".join(f" {text.source} |" for text in texts), "|---|" + "---|" * len(texts)]
        lines += [
            f"| {name.replace('_', ' ')} |" + "".join(f" {_shown(text.figures.get(name))} |" for text in texts)
            for name in names
        ]
        lines.append("| tokens |" + "".join(f" {text.num_tokens:,} |" for text in texts))
    return "\n".join(lines).rstrip() + "\n"


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _cell(name: str) -> str:
    return name.replace("|", "\\|").replace("\n", " ")
