"""What all commands share: where they print, how they fail, and the options they have in common."""

from __future__ import annotations

import importlib.util
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from pipelines.specs.spec_errors import SpecError
from service.client import ApiError, ClientError, UnexpectedAnswerError, UnreachableError
from service.local import StackError

FAILED = 1
WRONG_INPUT = 2
UNREACHABLE = 3
REFUSED = 4
INTERRUPTED = 130

_PIPE_WIDTH = 160

UrlOption = Annotated[
    str | None,
    typer.Option("--url", envvar="ELECTRA_URL", help="Address of the service; that of the running stack by default."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


class InputError(Exception):
    """Something on the command line cannot be used."""


class ReadableErrors(TyperGroup):
    """Turns the errors people can do something about into sentences and exit codes."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except SpecError as error:
            lines = ["The spec is not valid:", *(f"  {problem}" for problem in error.problems)]
            code = WRONG_INPUT
        except InputError as error:
            lines, code = [str(error)], WRONG_INPUT
        except ApiError as error:
            lines, code = _refusal(error), REFUSED
        except UnreachableError as error:
            lines = [
                _sentence(str(error)),
                "Start one here with:  electra up",
                f"or name another with {error.named_by}.",
            ]
            code = UNREACHABLE
        except (UnexpectedAnswerError, ClientError) as error:
            lines, code = [_sentence(str(error))], UNREACHABLE
        except StackError as error:
            lines, code = [_sentence(str(error))], FAILED
        except BrokenPipeError:
            # The reader has gone, as after `| head`. Its complaint at our exit would be one line too many.
            sys.stderr.close()
            raise typer.Exit(0) from None
        for line in lines:
            stderr().print(line, markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(code)


def check_installed(purpose: str, packages: Sequence[str]) -> None:
    """Say what to install where a command needs more than the command line brings.

    Raises:
        InputError: one of the packages is not there.
    """
    absent = [name for name in packages if importlib.util.find_spec(name) is None]
    if absent:
        raise InputError(
            f"{purpose} needs {', '.join(absent)}. Install them with:  pip install 'electra-pretraining[training]'"
        )


def program(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of ours in a process of its own.

    With `-P`: without it Python takes modules from the folder it is started in before all others, and this is whatever
    folder the user stands in.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def exit_like(return_code: int) -> None:
    """End as a process of ours has ended, if not well; it has said why, unless something killed it."""
    if return_code < 0:
        name = signal.strsignal(-return_code) or "unknown"
        message = f"The process that did the work was killed by signal {-return_code} ({name}). Is there memory enough?"
        stderr().print(message, markup=False, soft_wrap=True)
        raise typer.Exit(FAILED)
    if return_code:
        raise typer.Exit(return_code)


def stdout() -> Console:
    """The console of results. Made anew, as tests and pipes exchange the stream."""
    console = Console(highlight=False)
    # A file or a pipe has no width of its own: tables should not be cut for one.
    return console if console.is_terminal else Console(highlight=False, width=_PIPE_WIDTH)


def stderr() -> Console:
    """The console of everything that is not the result."""
    return Console(stderr=True, highlight=False)


def _refusal(error: ApiError) -> list[str]:
    problem = error.problem
    lines = [f"{problem.title}:" if problem.errors else problem.detail or problem.title]
    for item in problem.errors:
        value = "" if item.value is None else f" (got {item.value})"
        lines.append(f"  {_field(item.pointer)}: {item.rule}{value}")
    lines.append(f"({problem.code}, status {problem.status}, request {problem.request_id})")
    return lines


def _field(pointer: str) -> str:
    """`/spec/training/seed` is the field people know as training.seed, and `/overrides/0` the first --set."""
    place, *parts = pointer.strip("/").split("/")
    if place == "overrides" and parts and parts[0].isdecimal():
        return f"--set, number {int(parts[0]) + 1}"
    return ".".join(parts if place == "spec" else [place, *parts]) or "spec"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
