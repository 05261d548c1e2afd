"""Speed of one training step against Hugging Face Transformers and against its own matrix products, in one run.

    python benchmarks/step.py [--quick] [--json PATH] [--model small --rows 16 --length 128] [--profile]

A step is masking, both networks forward and backward, the clip and the optimizer. Contenders: ours in bf16 and fp32;
Transformers as users write it; Transformers at its best, in every variant worth trying, of which the fastest counts;
the step's matrix products alone. Before any clock starts, all answer the same question from the same weights without
dropout, and losses and gradients must agree; otherwise there are no figures. Then they take turns, each in a process
of its own. Without --model: ELECTRA-Small at 16 × 128 on a CPU; on a GPU Small at 128 × 128 and Base at 32 × 512.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
from collections.abc import Iterable
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from common import Samples, in_turn, option_parser, report
from contenders.agreement import DTYPES, Answer, Contender, DisagreementError, check_agreement
from contenders.homes import Home, SameProcess
from contenders.ours import Ours
from contenders.products import Products
from contenders.sizes import Size, size_of

from pipelines.specs.compute import Precision
from pipelines.training.rate import matrix_product_flops_per_second
from pipelines.training.workers import choose_cpu_kernels, keep_freed_memory

PRECISIONS: tuple[Precision, ...] = ("bf16", "fp32")
REFERENCE = "transformers naive"
# Rows × length of a step measured here, and of the recipe's own batch.
GPU_SIZES = {"small": (128, 128), "base": (32, 512)}
RECIPE_ROWS = {"small": 128, "base": 256}


def build_ours(size: Size, device: torch.device) -> dict[str, Contender]:
    if device.type == "cpu":
        choose_cpu_kernels()
    ours: dict[str, Contender] = {f"ours {precision}": Ours(size, precision, device) for precision in PRECISIONS}
    return ours | {f"products {precision}": Products(size, precision, device) for precision in PRECISIONS}


def build_naive(size: Size, device: torch.device) -> dict[str, Contender]:
    from contenders.theirs import Naive, Settings  # Transformers takes seconds, and our own step does without

    return {REFERENCE: Naive(size, Settings(), device)}


def build_best(size: Size, device: torch.device, is_compiled: bool) -> dict[str, Contender]:
    from contenders.theirs import Best, Settings

    keep_freed_memory()
    routes = (False, True) if device.type == "cpu" and onednn_is_exact() else (False,)
    contenders: dict[str, Contender] = {}
    for precision in PRECISIONS:
        for uses_onednn in routes if precision == "fp32" else (False,):
            for attention in ("eager", "sdpa"):
                if is_compiled and attention != ("eager" if device.type == "cpu" else "sdpa"):
                    continue
                settings = Settings(precision, attention, is_compiled, uses_onednn)
                words = [attention, *["onednn"] * uses_onednn, *["compiled"] * is_compiled]
                contenders[f"transformers best {precision}: {' '.join(words)}"] = Best(size, settings, device)
        if not is_compiled:
            # Compared, but not counted: with this its modules are no longer Transformers'.
            settings = Settings(precision, uses_onednn=routes[-1] and precision == "fp32", own_dropout=True)
            contenders[f"transformers with its dropout replaced {precision}"] = Best(size, settings, device)
    return contenders


def onednn_is_exact() -> bool:
    """Whether oneDNN multiplies float32 without loss when torch lets it: our own test, undone again."""
    from electra_core.kernels import use_onednn_for_float32_products

    before = torch.backends.mkldnn.matmul.fp32_precision
    is_exact = use_onednn_for_float32_products()
    torch.backends.mkldnn.matmul.fp32_precision = before
    return is_exact


def measure(size: Size, device: torch.device, options: argparse.Namespace) -> dict[str, Samples]:
    """Milliseconds per step of every contender.

    Raises:
        DisagreementError: they do not compute the same.
    """
    with contextlib.ExitStack() as stack:
        builds: list[tuple[Any, ...]] = [(build_ours,), (build_naive,), (build_best, False)]
        if options.compile and not options.quick:
            builds.append((build_best, True))
        home = SameProcess if options.one_process else Home
        homes = [stack.enter_context(home(build, size, device, *more)) for build, *more in builds]
        home_of = {name: home for home in homes for name in home.names()}
        answers: dict[str, tuple[str, Answer]] = {}
        for name, home in home_of.items():
            answer = home.ask(name, "answer")  # here a compiled step is compiled, which takes minutes
            if answer is not None:
                answers[name] = ("bf16" if "bf16" in name else "fp32", answer)
                say(f"{name}: losses {answer.generator_loss:.5f} {answer.discriminator_loss:.5f}")
        check_agreement(answers, REFERENCE)
        for name, home in home_of.items():
            home.ask(name, "run", 2)
        times: dict[str, list[float]] = {name: [] for name in home_of}
        for _, name in in_turn(home_of, options.repetitions):
            times[name].append(1000 * home_of[name].ask(name, "run", options.steps))
    return {name: Samples(tuple(values)) for name, values in times.items()}


def figures_of(times: dict[str, Samples]) -> dict[str, float]:
    """Ratios of medians."""
    figures = {}
    for precision in PRECISIONS:
        ours = times[f"ours {precision}"].median
        best = min(samples.median for name, samples in times.items() if f"best {precision}" in name)
        figures[f"{precision}_vs_transformers_naive"] = times[REFERENCE].median / ours
        figures[f"{precision}_vs_transformers_best"] = best / ours
        figures[f"{precision}_matmul_share"] = times[f"products {precision}"].median / ours
    return figures


def details_of(size: Size, times: dict[str, Samples], device: torch.device) -> dict[str, Any]:
    """Everything measured, and what follows from it for our own step."""
    details: dict[str, Any] = {
        "size": {"model": size.name, "rows": size.rows, "length": size.length, "gflop_per_step": size.flops / 1e9},
        "milliseconds_per_step": {name: samples.as_details() for name, samples in times.items()},
    }
    for precision in PRECISIONS:
        ours = times[f"ours {precision}"].median
        counted = {name: s.median for name, s in times.items() if f"best {precision}" in name}
        replaced = times[f"transformers with its dropout replaced {precision}"].median
        details[precision] = {
            "tokens_per_second": 1000 * size.tokens / ours,
            "mfu": 1000 * size.flops / ours / matrix_product_flops_per_second(device, DTYPES[precision]),
            "fastest_of_transformers": min(counted, key=counted.__getitem__),
            "vs_transformers_with_its_dropout_replaced": replaced / ours,
        }
    return details


def gpu_figures(size: Size, times: dict[str, Samples], details: dict[str, Any]) -> dict[str, float]:
    """Those of one size, under names of their own."""
    tokens_per_second = details["bf16"]["tokens_per_second"]
    recipe_tokens = RECIPE_ROWS.get(size.name, size.rows) * size.length
    named = figures_of(times) | {
        "tokens_per_second": tokens_per_second,
        "mfu": details["bf16"]["mfu"],
        "hours_per_million_steps": 1e6 * recipe_tokens / tokens_per_second / 3600,
    }
    return {f"cuda_{size.name}_{name}": value for name, value in named.items()}


def profile(size: Size, device: torch.device) -> None:
    """Print where our step's time goes, by operation."""
    from torch.profiler import ProfilerActivity, record_function

    from electra_core.native.library import NativeLibrary

    plain_call = NativeLibrary.call

    def recorded_call(library: NativeLibrary, name: str, *arguments: Any) -> None:
        with record_function(f"native::{name}"):  # torch does not see these
            plain_call(library, name, *arguments)

    NativeLibrary.call = recorded_call
    if device.type == "cpu":
        choose_cpu_kernels()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    key = "self_cuda_time_total" if device.type == "cuda" else "self_cpu_time_total"
    for precision in PRECISIONS:
        ours = Ours(size, precision, device)
        ours.run(2)
        with torch.profiler.profile(activities=activities) as profiler:
            ours.run(3)
        print(f"\n{size.name} {size.rows} × {size.length}, {precision}, three steps")
        print(profiler.key_averages().table(sort_by=key, row_limit=25, max_name_column_width=60))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def sizes(options: argparse.Namespace, device: torch.device) -> Iterable[Size]:
    if options.model or device.type == "cpu":
        yield size_of(options.model or "small", options.rows or 16, options.length or 128)
    else:
        for name, (rows, length) in GPU_SIZES.items():
            yield size_of(name, options.rows or rows, options.length or length)


def parse() -> argparse.Namespace:
    parser = option_parser(__doc__, "3 repetitions, and nothing compiled: a minute or two")
    parser.add_argument("--model", choices=("tiny", "small", "base", "large"))
    parser.add_argument("--rows", type=int, help="of a step")
    parser.add_argument("--length", type=int, help="of a row, in tokens")
    parser.add_argument("--repetitions", type=int, help="turns of each contender: 9, 3 with --quick")
    parser.add_argument("--steps", type=int, help="steps in a turn: 1, on a GPU 20")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--one-process", action="store_true", help="starts sooner, but settings of torch leak")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="leave torch.compile out")
    parser.add_argument("--profile", action="store_true", help="only print where our step's time goes")
    options = parser.parse_args()
    options.repetitions = options.repetitions or (3 if options.quick else 9)
    options.steps = options.steps or (20 if options.device.startswith("cuda") else 1)
    return options


def main() -> None:
    options = parse()
    device = torch.device(options.device)
    figures: dict[str, float] = {}
    details: dict[str, Any] = {}
    for size in sizes(options, device):
        if options.profile:
            profile(size, device)
            continue
        try:
            times = measure(size, device, options)
        except DisagreementError as error:
            sys.exit(f"no figures, for the contenders do not compute the same: {error}")
        found = details_of(size, times, device)
        details[size.name] = found
        figures |= gpu_figures(size, times, found) if device.type == "cuda" else figures_of(times)
        print(f"{size.name} {size.rows} × {size.length} on {device.type}, milliseconds per step (median, least, most)")
        for name, samples in times.items():
            values = samples.values
            print(f"  {name:48} {statistics.median(values):10.1f} {min(values):10.1f} {max(values):10.1f}")
    if not options.profile:
        report(figures, details, options.json)


if __name__ == "__main__":
    main()
