# MLflow on PostgreSQL, with artifacts on S3 or a volume.
#   docker build -f deploy/docker/mlflow.Dockerfile -t REGISTRY/electra-mlflow:0.1.0 .
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY constraints.txt ./
RUN pip install --prefix=/install mlflow boto3 "psycopg[binary]" -c constraints.txt

FROM ${PYTHON_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="electra-mlflow" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --uid 10001 --user-group --create-home electra \
    && install -d -o 10001 -g 10001 /var/lib/electra /var/lib/electra/storage
COPY --from=build /install /usr/local
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    MLFLOW_DISABLE_TELEMETRY=true MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false
USER 10001:10001
WORKDIR /home/electra
EXPOSE 5000
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:5000/health', timeout=4)"]
ENTRYPOINT ["mlflow"]
CMD ["server", "--host=127.0.0.1"]
