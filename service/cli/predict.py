"""`electra predict`: ask a model something, registered or in a folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pipelines.specs.prediction import PredictAnswer, PredictInput, PredictRequest
from service.cli.console import (
    FAILED,
    InputError,
    JsonOption,
    UrlOption,
    check_installed,
    exit_like,
    program,
    stderr,
    stdout,
)
from service.cli.inputs import open_client
from service.cli.prediction_tables import print_answer
from service.client import PREDICT_TIMEOUT_SECONDS

_NEEDED = ("torch", "transformers", "safetensors", "tokenizers", "numpy", "scipy")
_MODEL = re.compile(r"(?:models:/)?(?P<name>[^@/]+)(?:@(?P<alias>[^@/]+)|/(?P<version>[1-9][0-9]{0,8}))?")
_REGISTRY_PREFIX = "models:/"
_FOLDER_TIMEOUT_SECONDS = 600.0
_MAX_STDIN_BYTES = 1 << 20
"""Far more than a text may have, so that it is the rule for texts that refuses a long one, with its length."""
_MAX_SHOWN_CHARACTERS = 100


def predict(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A registered model: NAME, NAME@ALIAS or NAME/VERSION, NAME@newest by default; or a folder in the "
            "layout of Transformers, which needs no service.",
        ),
    ],
    texts: Annotated[
        list[str],
        typer.Option("--text", help="What is read; - for standard input. A question, for a model that answers them."),
    ],
    text_pairs: Annotated[
        list[str] | None,
        typer.Option(
            "--text-pair",
            help="The second text of each pair, or the context of each question; or one of all. - for standard input.",
        ),
    ] = None,
    choices: Annotated[
        list[str] | None, typer.Option("--choice", help="For multiple choice: what goes with the text? Two or more.")
    ] = None,
    timeout_seconds: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            min=1,
            help=f"Seconds to wait for the answer: {PREDICT_TIMEOUT_SECONDS:g} unless given, "
            f"{_FOLDER_TIMEOUT_SECONDS:g} for a folder. The service stops sooner if it is set to.",
        ),
    ] = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Try a model on a few texts: which tokens were replaced, what the mask hides, which label, which answer."""
    request = _request(texts, text_pairs or [], choices or [])
    folder = _folder(model)
    if folder is not None:
        answer = _ask_folder(folder, request, timeout_seconds or _FOLDER_TIMEOUT_SECONDS)
    else:
        answer = _ask_service(model, request, url, timeout_seconds or PREDICT_TIMEOUT_SECONDS)
    if as_json:
        typer.echo(answer.model_dump_json(indent=2))
    else:
        print_answer(stdout(), answer, request.inputs)


def _request(texts: list[str], text_pairs: list[str], choices: list[str]) -> PredictRequest:
    num_from_stdin = (texts + text_pairs).count("-")
    if num_from_stdin > 1:
        raise InputError(
            f"--text - and --text-pair - must be given once in all: there is one standard input; got {num_from_stdin}"
        )
    texts, text_pairs = _filled_in(texts, "--text"), _filled_in(text_pairs, "--text-pair")
    if len(text_pairs) == 1:
        text_pairs = text_pairs * len(texts)
    if text_pairs and len(text_pairs) != len(texts):
        raise InputError(f"--text-pair must be given once, or as often as --text, {len(texts)}; got {len(text_pairs)}")
    try:
        return PredictRequest(
            inputs=tuple(
                PredictInput(
                    text=text, text_pair=text_pairs[index] if text_pairs else None, choices=tuple(choices) or None
                )
                for index, text in enumerate(texts)
            )
        )
    except ValidationError as error:
        raise InputError("\n".join(map(_fault, error.errors()))) from error


def _filled_in(texts: list[str], option: str) -> list[str]:
    """The texts, with what standard input holds in place of `-`."""
    return [_read_stdin(option) if text == "-" else text for text in texts]


def _read_stdin(option: str) -> str:
    content = sys.stdin.buffer.read(_MAX_STDIN_BYTES + 1)
    if len(content) > _MAX_STDIN_BYTES:
        raise InputError(f"{option}: standard input must hold at most {_MAX_STDIN_BYTES} bytes, got more")
    try:
        # A file from Windows may begin with a mark of its encoding, which is no text.
        return content.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise InputError(f"{option}: standard input must be UTF-8: {error}") from error


def _fault(item: ErrorDetails) -> str:
    """The option that a field came from, the rule that it breaks and what it was, unless the rule says it."""
    options = {"text": "--text", "text_pair": "--text-pair", "choices": "--choice", "inputs": "--text"}
    option = next(options[str(part)] for part in item["loc"] if part in options)
    rule = item["msg"].removeprefix("Value error, ")
    if ", got " in rule:
        return f"{option}: {rule}"
    shown = repr(item["input"])
    shown = shown if len(shown) <= _MAX_SHOWN_CHARACTERS else shown[:_MAX_SHOWN_CHARACTERS] + "…"
    return f"{option}: {rule} (got {shown})"


def _folder(model: str) -> Path | None:
    """The folder that is meant; None where it is a registered model.

    Raises:
        InputError: there is such a folder, and no model in it.
    """
    if model.startswith(_REGISTRY_PREFIX):
        return None
    try:
        folder = Path(model).expanduser()
        if (folder / "config.json").is_file():
            return folder
        is_folder = folder.is_dir()
    except (OSError, ValueError):  # no path at all
        return None
    except RuntimeError as error:
        raise InputError(f"MODEL must be a model's name or a folder; got {model!r}, and {error}") from error
    if is_folder:
        hint = f" If a registered model is meant, write {_REGISTRY_PREFIX}{model}." if _named(model) else ""
        raise InputError(f"MODEL must hold a config.json where it is a folder, and {model} holds none.{hint}")
    return None


def _named(model: str) -> re.Match[str] | None:
    """Name and alias or version of a registered model; None where it can be none."""
    named = _MODEL.fullmatch(model)
    # Paths are shortened by dots on their way to the service.
    return None if named is None or {named["name"], named["alias"]} & {".", ".."} else named


def _ask_service(model: str, request: PredictRequest, url: str | None, timeout_seconds: float) -> PredictAnswer:
    named = _named(model)
    if named is None:
        raise InputError(
            f"MODEL must be NAME, NAME@ALIAS or NAME/VERSION, or a folder that holds a config.json; got {model!r}"
        )
    alias = named["alias"] or named["version"] or "newest"
    with open_client(url) as client:
        stderr().print("Asking the cluster: starting Python there takes some seconds …", style="dim", markup=False)
        return client.predict(named["name"], request.inputs, alias=alias, timeout_seconds=timeout_seconds)


def _ask_folder(folder: Path, request: PredictRequest, timeout_seconds: float) -> PredictAnswer:
    check_installed("Trying a folder", _NEEDED)
    # A process of its own: this package carries no torch. Texts go through its standard input and not its arguments.
    asking = program("pipelines.predict", "--model", str(folder.absolute()))
    asked = request.model_dump_json().encode()
    try:
        done = subprocess.run(  # noqa: S603 - our own module, and no shell
            asking, input=asked, stdout=subprocess.PIPE, timeout=timeout_seconds, check=False
        )
    except subprocess.TimeoutExpired:
        message = f"The model of {folder} gave no answer within {timeout_seconds:g} s, and was stopped."
        stderr().print(message, markup=False, soft_wrap=True)
        raise typer.Exit(FAILED) from None
    exit_like(done.returncode)
    return PredictAnswer.model_validate_json(done.stdout)
