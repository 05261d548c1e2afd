"""The embedded stack: Ray, an MLflow server and the service as children of one process, on this machine only.

    with LocalStack(Path("~/.electra").expanduser()) as stack:
        ElectraClient(stack.service_url).submit({"kind": "pretrain", "preset": "tiny"})

`ports` finds and checks ports, `processes` runs one child and sweeps up what children leave behind, `components`
says what each child is told, `stack` starts and stops them together, `state` tells other commands where they are.
"""

from service.local.errors import AlreadyRunningError, ComponentFailedError, PortInUseError, StackError
from service.local.stack import LocalStack, StackOptions
from service.local.state import StackState, default_home, read_state

__all__ = [
    "AlreadyRunningError",
    "ComponentFailedError",
    "LocalStack",
    "PortInUseError",
    "StackError",
    "StackOptions",
    "StackState",
    "default_home",
    "read_state",
]
