"""From what stands on the command line to spec documents and addresses."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines.specs.parsing import MAX_SPEC_BYTES, parse_document
from pipelines.specs.presets import PRESETS
from service.cli.console import InputError, stderr
from service.client import ElectraClient, UnreachableError
from service.local import StackState, default_home, read_state

_URI_FIELDS = ("uri", "discriminator_uri", "generator_uri")
_FILE_FIELDS = ("uri", "uris", "tokenizer_uri", "train", "validation", "test")
"""Of the sections below, at any depth."""
_SECTIONS_WITH_FILES = {
    "finetune": ("model", "task", "suite"),
    "search": ("objective",),
    "evaluate": ("discriminator", "generator", "minimal_pairs", "unseen_text"),
}
"""By kind of job."""

SpecArgument = Annotated[str, typer.Argument(help="A YAML or JSON file, - for standard input, or a preset's name.")]
ProjectOption = Annotated[
    str | None, typer.Option(envvar="ELECTRA_PROJECT", help="What the job belongs to; your own project by default.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Override one field, such as training.seed=7. May be repeated."),
]


def read_spec_document(source: str) -> dict[str, Any]:
    """The document of a file, of standard input, or the one that asks for a preset.

    Paths in it that are relative are taken from here, where the user wrote them: the job runs elsewhere.

    Raises:
        InputError: there is no such file or preset.
        SpecError: the file is not a spec document.
    """
    if source == "-":
        return absolute_paths(parse_document(sys.stdin.buffer.read(MAX_SPEC_BYTES + 1)))
    path = Path(source)
    if source in PRESETS and not path.is_file():
        return {"kind": "pretrain", "preset": source}
    try:
        with path.open("rb") as file:
            text = file.read(MAX_SPEC_BYTES + 1)
    except OSError as error:
        presets = ", ".join(PRESETS)
        raise InputError(f"{source} cannot be read: {error.strerror}. A spec is a file or one of {presets}.") from error
    return absolute_paths(parse_document(text))


def absolute_paths(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with local files of corpus, tokenizer and initial weights named from the root. What has another form
    than a spec should have is left for the check to name.
    """
    result = dict(document)
    if isinstance(result.get("base"), dict):  # of a search
        result["base"] = absolute_paths(result["base"])
    corpus = result.get("corpus")
    if isinstance(corpus, dict) and isinstance(corpus.get("sources"), list):
        result["corpus"] = {**corpus, "sources": [_absolute_source(source) for source in corpus["sources"]]}
    for name in ("tokenizer", "initialization"):
        section = result.get(name)
        if isinstance(section, dict):
            uris = {key: uri for key, uri in section.items() if key in _URI_FIELDS and isinstance(uri, str)}
            result[name] = {**section, **{key: _absolute(uri) for key, uri in uris.items()}}
    if "probe" in result:
        result["probe"] = _absolute_files(result["probe"])
    sections = _SECTIONS_WITH_FILES.get(str(result.get("kind")))
    for name in sections or ():
        if name in result:
            result[name] = _absolute_files(result[name])
    return result


def open_client(url: str | None) -> ElectraClient:
    """The service of `--url`, of `ELECTRA_URL`, or of the stack that runs here.

    Raises:
        UnreachableError: none is named and none runs.
    """
    if url:
        client = ElectraClient(url)
        if client.is_key_in_the_clear:
            message = f"Your key crosses the network in the clear to {client.base_url}: give an https:// address."
            stderr().print(message, markup=False, soft_wrap=True)
        return client
    state = running_stack()
    if state is None:
        raise UnreachableError(f"no service is named and no stack runs with {default_home()}")
    return ElectraClient(state.service_url)


def running_stack() -> StackState | None:
    """The stack of `ELECTRA_HOME`, if it runs."""
    return read_state(default_home())


def _absolute_source(source: object) -> object:
    if not isinstance(source, dict) or "uris" not in source:
        return source
    uris = source["uris"]
    if isinstance(uris, str):
        return {**source, "uris": _absolute(uris)}
    if isinstance(uris, list):
        return {**source, "uris": [_absolute(uri) if isinstance(uri, str) else uri for uri in uris]}
    return source


def _absolute_files(section: object) -> object:
    """A section of a finetuning spec, at any depth, with the files it names."""
    if not isinstance(section, dict):
        return section
    return {
        key: _absolute_file(value) if key in _FILE_FIELDS else _absolute_files(value) for key, value in section.items()
    }


def _absolute_file(value: object) -> object:
    if isinstance(value, str):
        return _absolute(value)
    if isinstance(value, list):
        return [_absolute(uri) if isinstance(uri, str) else uri for uri in value]
    return _absolute_files(value)


def _absolute(uri: str) -> str:
    # Not resolved: a glob must stay one, and a link may be what is meant to change.
    return uri if not uri or "://" in uri else str(Path(uri).expanduser().absolute())
