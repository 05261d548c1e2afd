"""Whether a fault was want of memory, whoever said so: Ray's monitor, torch, numpy or Python itself."""

from __future__ import annotations

from collections.abc import Iterator

ADVICE = (
    "Memory was not enough. Raise training.gradient_accumulation_steps (it changes no weight), lower batch sizes, "
    "lengths or compute.num_workers, or give the job larger machines"
)
# torch says it in words where the memory is the host's, and Ray where the process ended without a word.
_SIGNS = ("can't allocate memory", "cannot allocate memory", "out of memory", "memory pressure")
_MAX_DEPTH = 20


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or one that it came from, is want of memory."""
    return any(_says_so(one) for one in _family(error))


def memory_message(error: BaseException) -> str:
    """For the user: what to do, then the words of whoever noticed."""
    told = next((one for one in _family(error) if _says_so(one)), error)
    return f"{ADVICE}. {type(told).__name__}: {str(told)[:1500]}"


def _says_so(error: BaseException) -> bool:
    # By name: torch, whose class it may be, is not imported everywhere. Ray's errors of tasks carry the name of their
    # cause in brackets, and are told by the cause.
    if isinstance(error, MemoryError) or any(base.__name__ == "OutOfMemoryError" for base in type(error).__mro__):
        return True
    may_say_so = type(error).__name__ in ("WorkerCrashedError", "ActorDiedError", "RuntimeError", "OSError")
    return may_say_so and any(sign in str(error).lower() for sign in _SIGNS)


def _family(error: BaseException) -> Iterator[BaseException]:
    """The error, what caused it, and what its workers raised."""
    waiting: list[tuple[BaseException, int]] = [(error, 0)]
    seen: set[int] = set()
    while waiting:
        one, depth = waiting.pop(0)
        if id(one) in seen or depth > _MAX_DEPTH:
            continue
        seen.add(id(one))
        yield one
        # `cause` is Ray's, of a task; `worker_failures` Ray Train's; `_base_exc` that of a worker with its traceback.
        failures = getattr(one, "worker_failures", None)
        workers = failures.values() if isinstance(failures, dict) else ()
        family = (one.__cause__, getattr(one, "cause", None), getattr(one, "_base_exc", None), *workers)
        waiting += [(other, depth + 1) for other in family if isinstance(other, BaseException)]
