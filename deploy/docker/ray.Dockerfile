# Head and workers of Ray, and every job.
#   CUDA:  docker build -f deploy/docker/ray.Dockerfile --build-arg VARIANT=cuda -t REGISTRY/electra-ray:0.1.0-cuda .
#   CPU:   docker build -f deploy/docker/ray.Dockerfile --build-arg TORCH_INDEX_URL=… -t REGISTRY/electra-ray:0.1.0 .
# PyPI's torch for Linux carries CUDA; TORCH_INDEX_URL names an index with the CPU builds, as PyTorch's own pages tell.
# The CUDA libraries come with torch: of NVIDIA, the node needs the driver and the container runtime.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ARG VARIANT=cpu
ARG TORCH_INDEX_URL=
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY pyproject.toml constraints.txt deploy/docker/requirements.py ./
RUN python requirements.py pyproject.toml training > requirements.txt \
    && pip install --prefix=/install ${TORCH_INDEX_URL:+--extra-index-url "${TORCH_INDEX_URL}"} \
        -r requirements.txt -c constraints.txt
# An image whose name says one thing and whose torch another would be found out on the first GPU node.
RUN PYTHONPATH=/install/lib/python3.11/site-packages python -c \
    "import sys, torch; found = 'cuda' if torch.version.cuda else 'cpu'; \
     sys.exit(None if found == '${VARIANT}' else f'VARIANT=${VARIANT}, but this torch is for {found}')"
COPY README.md LICENSE ./
COPY electra_core electra_core
COPY pipelines pipelines
COPY service service
RUN pip install --prefix=/install --no-deps .

FROM ${PYTHON_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="electra-ray" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"
# g++ compiles the kernels of training on CPUs and what torch.compile makes for GPUs: it is no leftover. wget is what
# KubeRay asks after a node's health with.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ wget \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --user-group --create-home electra \
    && install -d -o 10001 -g 10001 /var/lib/electra /var/lib/electra/storage
# Into /usr/local: KubeRay starts Ray in a login shell, which forgets any other PATH.
COPY --from=build /install /usr/local
ENV PYTHONUNBUFFERED=1 RAY_USAGE_STATS_ENABLED=0 MLFLOW_DISABLE_TELEMETRY=true \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility RAY_HEALTH_ADDRESS=127.0.0.1:6379
USER 10001:10001
WORKDIR /home/electra
EXPOSE 6379 8265
HEALTHCHECK --interval=60s --timeout=20s --start-period=60s \
    CMD ["sh", "-c", "exec ray health-check --address \"$RAY_HEALTH_ADDRESS\""]
CMD ["ray", "start", "--head", "--block"]
