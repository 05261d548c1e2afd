"""`electra convert`: weights from elsewhere as folders that Transformers reads. Needs no service."""

from __future__ import annotations

import json
import subprocess
from enum import StrEnum
from typing import Annotated

import typer

from service.cli.console import JsonOption, check_installed, exit_like, program

_STDERR = 2
_NEEDED = ("torch", "transformers", "safetensors", "tokenizers", "pyarrow", "numpy")


class Network(StrEnum):
    """What to write."""

    BOTH = "both"
    DISCRIMINATOR = "discriminator"
    GENERATOR = "generator"


def convert(
    source: Annotated[
        str,
        typer.Argument(
            help="A checkpoint of google-research/electra (what stands before .index), a job's directory or one of its "
            "checkpoints, or a folder in the layout of Transformers. Local, s3://, gs:// or https://."
        ),
    ],
    destination: Annotated[str, typer.Argument(help="Gets a folder for each network, such as `discriminator`.")],
    network: Annotated[Network, typer.Option(help="Which network to write.")] = Network.BOTH,
    vocab: Annotated[
        str | None,
        typer.Option(help="A vocab.txt, a tokenizer.json or a folder with one; that beside the source by default."),
    ] = None,
    cased: Annotated[bool, typer.Option("--cased", help="A bare vocab.txt is not for lowercased text.")] = False,
    num_attention_heads: Annotated[
        int | None, typer.Option(min=1, help="Heads of the discriminator, where the source does not say.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write weights as Transformers reads them: from TensorFlow, from a job's checkpoint, or from an older export."""
    check_installed("Converting", _NEEDED)
    arguments = ["--network", network.value]
    arguments += ["--vocab", vocab] if vocab is not None else []
    arguments += ["--cased"] if cased else []
    arguments += ["--num-attention-heads", str(num_attention_heads)] if num_attention_heads is not None else []
    # A process of its own: this package carries no torch.
    converting = program("pipelines.convert", *arguments, "--", source, destination)
    # With --json standard output is for the document alone.
    told = _STDERR if as_json else None
    done = subprocess.run(converting, check=False, stdout=told)  # noqa: S603 - our own module, and no shell
    exit_like(done.returncode)
    if as_json:
        typer.echo(json.dumps({"source": source, "destination": destination, "network": network.value}))
