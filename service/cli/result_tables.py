"""The tables a finished job is shown by, whatever its kind."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from pipelines.specs.documents import JobResult
from service.cli.render import figures_table, tasks_table
from service.cli.trial_tables import search_tables


def result_tables(result: JobResult) -> Iterator[Table]:
    """What there is to show of a result."""
    if result.search is not None:
        yield from search_tables(result.search)
    if result.tasks:
        yield tasks_table(result)
    elif result.minimal_pairs or result.unseen_text:
        if result.minimal_pairs:
            yield pairs_table(result)
        if result.unseen_text:
            yield texts_table(result)
    elif result.evaluation:
        yield figures_table(result)


def pairs_table(result: JobResult) -> Table:
    """Each network's accuracy on minimal pairs, by phenomenon."""
    networks = result.minimal_pairs
    table = Table(title="Minimal pairs: share of better sentences preferred (chance is 0.5)", title_justify="left")
    table.add_column("phenomenon", overflow="fold")
    for one in networks:
        table.add_column(one.network, justify="right")
    for name in dict.fromkeys(name for one in networks for name in one.by_phenomenon):
        cells = [one.by_phenomenon.get(name) for one in networks]
        table.add_row(Text(name), *("" if cell is None else f"{cell:.3f}" for cell in cells))
    table.add_row("mean over files", *(f"{one.accuracy:.3f}" for one in networks), style="bold")
    return table


def texts_table(result: JobResult) -> Table:
    """Both networks' figures on each source of unseen text."""
    texts = result.unseen_text
    table = Table(title="On unseen text", title_justify="left")
    table.add_column("figure")
    for text in texts:
        table.add_column(text.source, justify="right")
    for name in dict.fromkeys(name for text in texts for name in text.figures):
        cells = [text.figures.get(name) for text in texts]
        table.add_row(name.replace("_", " "), *("" if cell is None else f"{cell:.4g}" for cell in cells))
    table.add_row("tokens", *(f"{text.num_tokens:,}" for text in texts))
    return table
