"""The client's calls for registered models."""

from __future__ import annotations

from collections.abc import Sequence

import httpx

from pipelines.specs.prediction import PredictAnswer, PredictInput, PredictRequest
from service.client.connection import Connection, segment
from service.client.errors import SlowAnswerError, UnreachableError

# The service's own limit, two minutes unless set otherwise, with room for what it does before and after.
PREDICT_TIMEOUT_SECONDS = 180.0


class ModelCalls(Connection):
    """Part of `ElectraClient`."""

    def predict(
        self,
        name: str,
        inputs: Sequence[PredictInput],
        *,
        alias: str = "newest",
        timeout_seconds: float = PREDICT_TIMEOUT_SECONDS,
    ) -> PredictAnswer:
        """What a registered model says to a few texts.

        Args:
            name: of the registered model.
            inputs: 1 to 32.
            alias: of a version in MLflow's registry, or the version's number.
            timeout_seconds: longest silence of the service, which waits for a process on the cluster; no less than its
                own `predict_timeout_seconds`.

        Raises:
            ValidationError: there are no inputs, or too many.
            SlowAnswerError: there was no answer in that time.
        """
        body = PredictRequest(inputs=tuple(inputs)).model_dump(mode="json", exclude_none=True)
        timeout = httpx.Timeout(timeout_seconds, connect=min(timeout_seconds, 10.0))
        # Not repeated when the answer is lost: another prediction beside the first would take its place on the cluster.
        url = f"/v1/models/{segment(name)}/{segment(alias)}:predict"
        try:
            answer = self._call("POST", url, is_safe=False, json=body, timeout=timeout)
        except UnreachableError as error:
            if isinstance(error.__cause__, httpx.ReadTimeout):
                raise SlowAnswerError(f"the service took longer than {timeout_seconds:g} s to answer") from error
            raise
        return self._read(PredictAnswer, answer)
