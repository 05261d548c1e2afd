# The control plane: no torch, no Ray, no MLflow.
#   docker build -f deploy/docker/service.Dockerfile -t REGISTRY/electra-service:0.1.0 .
# Give PYTHON_IMAGE with a digest (python:3.11.14-slim-bookworm@sha256:…) for builds that are the same every time.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY pyproject.toml constraints.txt deploy/docker/requirements.py ./
RUN python requirements.py pyproject.toml service postgres tracing > requirements.txt \
    && pip install --prefix=/install -r requirements.txt -c constraints.txt
COPY README.md LICENSE ./
COPY electra_core electra_core
COPY pipelines pipelines
COPY service service
RUN pip install --prefix=/install --no-deps .

FROM ${PYTHON_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="electra-service" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --uid 10001 --user-group --create-home electra \
    && install -d -o 10001 -g 10001 /var/lib/electra /var/lib/electra/home /var/lib/electra/storage
COPY --from=build /install /usr/local
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 ELECTRA_HOME=/var/lib/electra/home
USER 10001:10001
WORKDIR /home/electra
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/healthz', timeout=4)"]
ENTRYPOINT ["electra"]
CMD ["serve"]
