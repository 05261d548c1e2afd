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

from pipelines.specs.prediction import MAX_TEXT_CHARACTERS, PredictAnswer, PredictInput, PredictRequest
from service.cli.console import FAILED, InputError, JsonOption, UrlOption, check_installed, stderr, stdout
from service.cli.inputs import open_client
from service.cli.prediction_tables import print_answer

_NEEDED = ("torch", "transformers", "safetensors", "tokenizers", "numpy", "scipy")
_MODEL = re.compile(r"(?:models:/)?(?P<name>[^@/]+)(?:@(?P<alias>[^@/]+)|/(?P<version>[1-9][0-9]{0,8}))?")
_FOLDER_TIMEOUT_SECONDS = 600.0
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
            "--text-pair", help="The second text of each pair, or the context of each question; or one of all."
        ),
    ] = None,
    choices: Annotated[
        list[str] | None, typer.Option("--choice", help="For multiple choice: what goes with the text? Two or more.")
    ] = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Try a model on a few texts: which tokens were replaced, what the mask hides, which label, which answer."""
    request = _request(texts, text_pairs or [], choices or [])
    folder = Path(model).expanduser()
    answer = _ask_folder(folder, request) if _is_model(folder) else _ask_service(model, request, url)
    if as_json:
        typer.echo(answer.model_dump_json(indent=2))
    else:
        print_answer(stdout(), answer, request.inputs)


def _request(texts: list[str], text_pairs: list[str], choices: list[str]) -> PredictRequest:
    if len(text_pairs) == 1:
        text_pairs = text_pairs * len(texts)
    if text_pairs and len(text_pairs) != len(texts):
        raise InputError(f"--text-pair must be given once, or as often as --text, {len(texts)}; got {len(text_pairs)}")
    if texts.count("-") > 1:
        raise InputError(f"--text - must be given once: there is one standard input; got it {texts.count('-')} times")
    # A character more than is allowed is enough to be refused.
    texts = [sys.stdin.read(MAX_TEXT_CHARACTERS + 1).strip() if text == "-" else text for text in texts]
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


def _fault(item: ErrorDetails) -> str:
    """The option that a field came from, the rule that it breaks and what it was."""
    options = {"text": "--text", "text_pair": "--text-pair", "choices": "--choice", "inputs": "--text"}
    option = next(options[str(part)] for part in item["loc"] if part in options)
    shown = repr(item["input"])
    shown = shown if len(shown) <= _MAX_SHOWN_CHARACTERS else shown[:_MAX_SHOWN_CHARACTERS] + "…"
    return f"{option}: {item['msg'].removeprefix('Value error, ')} (got {shown})"


def _is_model(folder: Path) -> bool:
    try:
        return (folder / "config.json").is_file()
    except (OSError, ValueError):  # no path at all
        return False


def _ask_service(model: str, request: PredictRequest, url: str | None) -> PredictAnswer:
    named = _MODEL.fullmatch(model)
    if named is None:
        raise InputError(
            f"MODEL must be NAME, NAME@ALIAS or NAME/VERSION, or a folder that holds a config.json; got {model!r}"
        )
    alias = named["alias"] or named["version"] or "newest"
    with open_client(url) as client:
        stderr().print("Asking the cluster: starting Python there takes some seconds …", style="dim", markup=False)
        return client.predict(named["name"], request.inputs, alias=alias)


def _ask_folder(folder: Path, request: PredictRequest) -> PredictAnswer:
    check_installed("Trying a folder", _NEEDED)
    # A process of its own: this package carries no torch. Texts go through its standard input and not its arguments.
    program = [sys.executable, "-m", "pipelines.predict", "--model", str(folder.absolute())]
    asked = request.model_dump_json().encode()
    try:
        done = subprocess.run(  # noqa: S603 - our own module, and no shell
            program, input=asked, stdout=subprocess.PIPE, timeout=_FOLDER_TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        message = f"The model of {folder} gave no answer within {_FOLDER_TIMEOUT_SECONDS:g} s, and was stopped."
        stderr().print(message, markup=False, soft_wrap=True)
        raise typer.Exit(FAILED) from None
    if done.returncode:
        raise typer.Exit(done.returncode)
    return PredictAnswer.model_validate_json(done.stdout)
