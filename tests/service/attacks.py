"""What somebody with a key of project `clinical` may try, and what each gets. `docs/security.md` shows this table."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from access_world import AccessWorld
from service_shelf import keep_corpus

JSON = {"Content-Type": "application/json"}


@dataclass
class Target:
    """What is attacked: a service with a job of each project, and files that are nobody's business."""

    world: AccessWorld
    folder: Path
    local_port: int = 1

    def __post_init__(self) -> None:
        self.data = self.folder / "data"
        (self.data / "deep").mkdir(parents=True)
        (self.folder / "data-of-others").mkdir()
        for name in ("secret.txt", "data-of-others/a.txt", "data/a.txt", "diagnostic.tsv"):
            (self.folder / name).write_text("text " * 50)
        (self.data / "link.txt").symlink_to(self.folder / "secret.txt")
        (self.data / "deep" / "link.txt").symlink_to(self.folder / "secret.txt")
        self.hidden = self.world.job("eve", "law").job_id
        self.bens = self.world.job("ben").job_id
        self.storage = self.world.settings.storage_uri
        self.corpus = keep_corpus(self.world.settings, self.hidden)
        self.world.registry.add("law--secret", aliases={"newest": 1}, tags={"electra.job_id": self.hidden})


@dataclass(frozen=True)
class Attack:
    title: str
    body: Callable[[Target], Any] | None = None
    status: int = 422
    code: str = "source_not_allowed"
    method: str = "POST"
    path: Callable[[Target], str] = lambda _: "/v1/jobs"
    headers: dict[str, str] = field(default_factory=dict)
    who: str | None = "ada"


def text(uri: Callable[[Target], str] | str) -> Callable[[Target], Any]:
    """A pretraining spec whose corpus lies there."""

    def body(target: Target) -> Any:
        uris = uri if isinstance(uri, str) else uri(target)
        return pretrain(corpus={"sources": [{"type": "text", "uris": uris}]})

    return body


def pretrain(**sections: Any) -> dict[str, Any]:
    return {"spec": {"kind": "pretrain", "preset": "tiny", **sections}}


def finetune(**sections: Any) -> dict[str, Any]:
    return {"spec": {"kind": "finetune", "model": {"type": "registered", "name": "m"}, **sections}}


def search(**sections: Any) -> dict[str, Any]:
    spec = {
        "kind": "search",
        "preset": "lambda",
        "base": {"preset": "tiny"},
        "objective": {"type": "fixed_corruption"},
        "budget": {"flops": 4.0e12},
    }
    return {"spec": {**spec, **sections}}


def overridden(*overrides: str) -> dict[str, Any]:
    return {**pretrain(), "overrides": list(overrides)}


def at(path: str) -> Callable[[Target], str]:
    return lambda target: path.format(hidden=target.hidden, bens=target.bens, corpus=target.corpus)


def webhook(title: str, status: int, code: str, who: str, **body: str) -> Attack:
    return Attack(title, lambda _: body, status, code, path=lambda _: "/v1/webhooks", who=who)


NOT_A_KEY = {"Authorization": f"Bearer elk_{'0' * 16}_{'A' * 43}"}

ATTACKS = (
    # ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────
    Attack("a file outside the roots: `/etc/passwd`", text("/etc/passwd")),
    Attack("`..` out of a root", text(lambda t: f"{t.data}/../secret.txt")),
    Attack("`..` behind a wildcard", text(lambda t: f"{t.data}/*/../../secret.txt")),
    Attack("`..` written `%2e%2e` in a `file://` URI", text(lambda t: f"file://{t.data}/%2e%2e/secret.txt")),
    Attack("a sibling whose name begins like a root", text(lambda t: f"{t.data}-of-others/a.txt")),
    Attack("a pattern that begins in a root's name", text(lambda t: f"{t.data}*/a.txt")),
    Attack("a pattern from the root of the disk: `/**/passwd`", text("/**/passwd")),
    Attack("a relative path", text("../../etc/passwd")),
    Attack("a path of the service's user: `~/.ssh/id_rsa`", text("~/.ssh/id_rsa")),
    Attack("a variable: `$HOME/.aws/credentials`", text("$HOME/.aws/credentials")),
    Attack("a link in a root that leads out of it", text(lambda t: f"{t.data}/link.txt")),
    Attack("a folder that holds such a link", text(lambda t: f"{t.data}/deep"), code="corpus_unreadable"),
    Attack("a NUL in a path", text("/data/a\x00.txt"), code="invalid_spec"),
    Attack("a file by another machine's name: `file://evil/etc/passwd`", text("file://evil/etc/passwd")),
    Attack("the service's database", text(lambda t: f"{t.world.settings.home}/service.sqlite")),
    Attack("a folder above the storage", text(lambda t: str(t.folder))),
    Attack("another project's job folder", text(lambda t: f"{t.storage}/jobs/{t.hidden}/spec.json")),
    Attack("all job folders by a pattern", text(lambda t: f"{t.storage}/jobs/*/spec.json")),
    Attack("the prepared text of all projects", text(lambda t: f"{t.storage}/corpora")),
    Attack(
        "another project's checkpoint as initial weights",
        lambda t: pretrain(
            tokenizer={"type": "pretrained", "uri": f"{t.data}/a.txt"},
            initialization={"type": "checkpoint", "uri": f"{t.storage}/jobs/{t.hidden}"},
        ),
    ),
    Attack("a tokenizer outside the roots", lambda t: pretrain(tokenizer={"type": "pretrained", "uri": "/etc/hosts"})),
    Attack(
        "a model's folder outside the roots",
        lambda t: finetune(
            model={"type": "files", "uri": "/root"}, task={"type": "glue", "name": "RTE", "uri": f"{t.data}"}
        ),
    ),
    Attack(
        "a tokenizer outside the roots beside a model within",
        lambda t: finetune(
            model={"type": "files", "uri": f"{t.data}", "tokenizer_uri": "/etc"},
            task={"type": "glue", "name": "RTE", "uri": f"{t.data}"},
        ),
    ),
    Attack(
        "labelled files outside the roots",
        lambda t: finetune(task={"type": "classification", "data": {"train": f"{t.folder}/secret.csv"}}),
    ),
    Attack(
        "MNLI's diagnostics, looked for beside its folder",
        lambda t: finetune(task={"type": "glue", "name": "MNLI", "uri": f"{t.data}"}),
    ),
    Attack(
        "a probe's files outside the roots",
        lambda t: pretrain(
            probe={"tasks": {"a": {"type": "glue", "name": "RTE", "uri": "/etc"}}, "interval_steps": 10_000}
        ),
    ),
    Attack(
        "unseen text outside the roots",
        lambda t: {
            "spec": {
                "kind": "evaluate",
                "generator": {"type": "registered", "name": "m"},
                "unseen_text": {"sources": {"a": {"type": "text", "uris": "/etc/passwd"}}},
            }
        },
    ),
    Attack(
        "a corpus outside the roots in the base of a search",
        lambda t: search(base={"preset": "tiny", "corpus": {"sources": [{"type": "text", "uris": "/etc/passwd"}]}}),
    ),
    Attack(
        "pairs outside the roots in the objective of a search",
        lambda t: search(objective={"type": "minimal_pairs", "pairs": {"uris": "/etc/pairs.jsonl"}}),
    ),
    Attack(
        "a space that changes the corpus",
        lambda t: search(space={"corpus.sources": {"type": "choice", "values": ["/etc/passwd", "/etc/hosts"]}}),
        code="invalid_spec",
    ),
    Attack(
        "a file outside the roots in an override",
        lambda t: overridden("corpus.sources=[{type: text, uris: /etc/passwd}]"),
    ),
    Attack("a plan that measures a file outside the roots", text("/etc/passwd"), path=at("/v1/jobs:plan")),
    # ── object stores ─────────────────────────────────────────────────────────────────────────────────────────────
    Attack("another bucket, with the service's credentials", text("s3://payroll/2026/*.txt")),
    Attack("another project's part of a bucket", text("s3://corpora/law/a.txt")),
    Attack("`..` in a key", text("s3://corpora/clinical/../law/a.txt")),
    # ── the network ───────────────────────────────────────────────────────────────────────────────────────────────
    Attack("SSRF: loopback", text(lambda t: f"http://127.0.0.1:{t.local_port}/a.txt")),
    Attack("SSRF: loopback by name", text("http://db.localhost/a.txt")),
    Attack("SSRF: loopback as a number: `http://2130706433/`", text("http://2130706433/a.txt")),
    Attack("SSRF: loopback in hexadecimal and short: `http://0x7f.1/`", text("http://0x7f.1/a.txt")),
    Attack("SSRF: loopback of IPv6, and IPv4 inside IPv6", text("http://[::ffff:127.0.0.1]/a.txt")),
    Attack("SSRF: loopback in IPv6's form of old: `http://[::127.0.0.1]/`", text("http://[::127.0.0.1]/a.txt")),
    Attack("SSRF: a cloud's metadata server", text("http://169.254.169.254/latest/meta-data/")),
    Attack("SSRF: a private network", text("https://10.0.0.7/a.txt")),
    Attack(
        "SSRF: a host that is allowed and redirects to one that is not",
        text(lambda t: f"http://localhost:{t.local_port}/redirect.txt"),
        code="corpus_unreadable",
    ),
    Attack("another scheme: `gopher://`", text("gopher://127.0.0.1:6379/_FLUSHALL"), code="invalid_spec"),
    # ── secrets ───────────────────────────────────────────────────────────────────────────────────────────────────
    Attack("a password in a URI", text("https://ada:hunter2@example.org/a.txt"), code="secret_in_request"),
    Attack("a password in a bucket's URI", text("s3://key:secret@corpora/clinical/a.txt"), code="secret_in_request"),
    Attack("a presigned URL", text("https://example.org/a.txt?X-Amz-Signature=abc"), code="secret_in_request"),
    Attack("a shared access signature", text("https://example.org/a.txt?sv=1&sig=abc"), code="secret_in_request"),
    # ── models ────────────────────────────────────────────────────────────────────────────────────────────────────
    Attack(
        "trying another project's model",
        lambda t: {"inputs": [{"text": "a"}]},
        404,
        "model_not_found",
        path=at("/v1/models/law--secret/newest:predict"),
    ),
    Attack(
        "registering as another project from `default`",
        lambda t: {**pretrain(name="law--best"), "project": "default"},
        code="invalid_spec",
        who="root",
    ),
    Attack(
        "the same, joined of a name and its suffix: `law-` and `-generator`",
        lambda t: {**pretrain(record={"model_name": "law-"}), "project": "default"},
        code="invalid_spec",
        who="root",
    ),
    Attack("reading another project's model", None, 404, "model_not_found", "GET", at("/v1/models/law--secret")),
    Attack("its versions", None, 404, "model_not_found", "GET", at("/v1/models/law--secret/versions")),
    Attack("one of them", None, 404, "model_not_found", "GET", at("/v1/models/law--secret/versions/1")),
    Attack("where it comes from", None, 404, "model_not_found", "GET", at("/v1/models/law--secret/versions/1/lineage")),
    Attack("downloading it", None, 404, "model_not_found", "GET", at("/v1/models/law--secret/versions/1/export")),
    Attack(
        "promoting another project's model",
        lambda t: {"version": 1},
        404,
        "model_not_found",
        "PUT",
        at("/v1/models/law--secret/aliases/champion"),
    ),
    Attack(
        "taking its alias away", None, 404, "model_not_found", "DELETE", at("/v1/models/law--secret/aliases/newest")
    ),
    Attack(
        "a path for a version: `1/../../../spec`",
        None,
        404,
        "not_found",
        "GET",
        at("/v1/models/clinical--m/versions/1%2f..%2f..%2f..%2fspec/export"),
    ),
    Attack(
        "a pattern for a model: `%`",
        None,
        422,
        "invalid_request",
        "GET",
        at("/v1/models/clinical--%25/versions"),
    ),
    Attack("a corpus that only another project uses", None, 404, "corpus_not_found", "GET", at("/v1/corpora/{corpus}")),
    Attack("a path for a corpus: `../jobs`", None, 404, "not_found", "GET", at("/v1/corpora/..%2fjobs")),
    Attack("a folder's name for a corpus", None, 422, "invalid_request", "GET", at("/v1/corpora/jobs")),
    Attack("cleaning the storage", lambda t: {"dry_run": False}, 403, "permission_denied", path=at("/v1/clean")),
    # ── shells ────────────────────────────────────────────────────────────────────────────────────────────────────
    Attack("a shell's words for a name: `$(reboot)`", lambda t: pretrain(name="$(reboot)"), code="invalid_spec"),
    Attack("an entrypoint in a spec", lambda t: pretrain(entrypoint="reboot"), code="invalid_spec"),
    Attack("a runtime environment in a request", lambda t: {**pretrain(), "runtime_env": {}}, code="invalid_request"),
    Attack("a shell's words for a job", None, 422, "invalid_request", "GET", at("/v1/jobs/pt-1;reboot")),
    Attack(
        "a shell's words for an alias",
        lambda t: {"inputs": [{"text": "a"}]},
        422,
        "invalid_request",
        path=at("/v1/models/clinical--m/$(reboot):predict"),
    ),
    # ── other people's ────────────────────────────────────────────────────────────────────────────────────────────
    Attack("reading another project's job", None, 404, "job_not_found", "GET", at("/v1/jobs/{hidden}")),
    Attack("its log", None, 404, "job_not_found", "GET", at("/v1/jobs/{hidden}/logs")),
    Attack("stopping it", None, 404, "job_not_found", path=at("/v1/jobs/{hidden}/cancel")),
    Attack("stopping a colleague's job", None, 403, "permission_denied", path=at("/v1/jobs/{bens}/cancel")),
    Attack("ending a colleague's job at once", None, 403, "permission_denied", path=at("/v1/jobs/{bens}/kill")),
    Attack("pausing a colleague's job", None, 403, "permission_denied", path=at("/v1/jobs/{bens}/pause")),
    Attack(
        "a job of one's own before all others",
        lambda _: {**pretrain(), "priority": 100},
        403,
        "permission_denied",
    ),
    Attack(
        "a job of one's own that may be silent for a year",
        lambda _: {**pretrain(), "limits": {"silence_seconds": 3e7}},
        403,
        "permission_denied",
    ),
    Attack(
        "raising a colleague's job in the queue",
        lambda t: {"priority": 100},
        403,
        "permission_denied",
        "PATCH",
        at("/v1/jobs/{bens}"),
    ),
    Attack("ending another project's job", None, 404, "job_not_found", path=at("/v1/jobs/{hidden}/kill")),
    Attack("writing notes on it", lambda t: {"notes": "x"}, 404, "job_not_found", "PATCH", at("/v1/jobs/{hidden}")),
    Attack("taking over its checkpoint by a retry", None, 404, "job_not_found", path=at("/v1/jobs/{hidden}/retry")),
    Attack("reading its spec in a clone", None, 404, "job_not_found", path=at("/v1/jobs/{hidden}/clone")),
    Attack(
        "a clone that goes into another project",
        lambda t: {"project": "law"},
        code="invalid_request",
        path=at("/v1/jobs/{bens}/clone"),
    ),
    Attack(
        "a file outside the roots in an override of a clone",
        lambda t: {"overrides": ["corpus.sources=[{type: text, uris: /etc/passwd}]"]},
        path=at("/v1/jobs/{bens}/clone"),
    ),
    Attack("following another project's job", None, 404, "job_not_found", "GET", at("/v1/jobs/{hidden}/events")),
    Attack("the names of its processes", None, 404, "job_not_found", "GET", at("/v1/jobs/{hidden}/logs/sources")),
    Attack("the figures of all projects", None, 403, "permission_denied", "GET", at("/metrics")),
    Attack("the same without a key", None, 401, "not_authenticated", "GET", at("/metrics"), who=None),
    Attack("submitting into another project", lambda t: {**pretrain(), "project": "law"}, 404, "project_not_found"),
    Attack("a path for a project: `../law`", lambda t: {**pretrain(), "project": "../law"}, code="invalid_request"),
    Attack("an owner of one's choice", lambda t: {**pretrain(), "owner": "root"}, code="invalid_request"),
    Attack(
        "making oneself a key", lambda t: {"name": "k", "owner": "ada"}, 403, "permission_denied", path=at("/v1/keys")
    ),
    Attack("reading the audit log", None, 403, "permission_denied", "GET", at("/v1/audit")),
    # ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────────
    Attack("no key", lambda t: pretrain(), 401, "not_authenticated", who=None),
    Attack("a key that was never made", lambda t: pretrain(), 401, "not_authenticated", who=None, headers=NOT_A_KEY),
    Attack("a revoked key", lambda t: pretrain(), 401, "not_authenticated", who="revoked"),
    Attack("an expired key", lambda t: pretrain(), 401, "not_authenticated", who="expired"),
    Attack("a key's id with another's secret", lambda t: pretrain(), 401, "not_authenticated", who="mixed"),
    Attack(
        "SQL for a key",
        lambda t: pretrain(),
        401,
        "not_authenticated",
        who=None,
        headers={"Authorization": "Bearer elk_' OR 1=1 --_x"},
    ),
    Attack(
        "a key in the address", lambda t: pretrain(), 401, "not_authenticated", path=at("/v1/jobs?key=elk_1"), who=None
    ),
    Attack(
        "an unsigned token, `alg: none`",
        lambda t: pretrain(),
        401,
        "not_authenticated",
        who=None,
        headers={"Authorization": "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ."},
    ),
    # ── bombs ─────────────────────────────────────────────────────────────────────────────────────────────────────
    Attack("a body above the limit", lambda t: b" " * 300_000, 413, "body_too_large", headers=JSON),
    Attack(
        "a zip bomb: 10 MB in 10 kB",
        lambda t: gzip.compress(b" " * 10_000_000),
        400,
        "malformed_json",
        headers={**JSON, "Content-Encoding": "gzip"},
    ),
    Attack("JSON nested 100 000 deep", lambda t: b"[" * 100_000, 400, "malformed_json", headers=JSON),
    Attack(
        "a number of 100 000 digits",
        lambda t: b'{"spec": ' + b"9" * 100_000 + b"}",
        400,
        "malformed_json",
        headers=JSON,
    ),
    Attack("a key twice in one object", lambda t: b'{"spec": {}, "spec": {}}', 400, "malformed_json", headers=JSON),
    Attack(
        "a YAML bomb in an override: aliases of aliases",
        lambda t: overridden("corpus.sources=[&a [x, x], &b [*a, *a], &c [*b, *b]]"),
        code="invalid_spec",
    ),
    Attack(
        "YAML that makes an object of Python",
        lambda t: overridden("name=!!python/object/apply:os.system [id]"),
        code="invalid_spec",
    ),
    Attack("YAML nested 2 000 deep", lambda t: overridden("name=" + "[" * 2000), code="invalid_spec"),
    # ── the protocol ──────────────────────────────────────────────────────────────────────────────────────────────
    Attack(
        "a web page's own name for this machine", None, 400, "host_not_allowed", "GET", headers={"Host": "evil.example"}
    ),
    Attack(
        "a form posted by a web page",
        lambda t: json.dumps(pretrain()).encode(),
        415,
        "unsupported_media_type",
        headers={"Content-Type": "text/plain"},
    ),
    Attack("a line end in a job's name", None, 422, "invalid_request", "GET", at("/v1/jobs/pt-1%0aevent=login")),
    Attack("a cursor of one's own making", None, 422, "invalid_cursor", "GET", at("/v1/jobs?cursor=J29yIDE9MS0t")),
    # ── webhooks ──────────────────────────────────────────────────────────────────────────────────────────────────
    webhook(
        "a webhook to the metadata server of a cloud",
        422,
        "invalid_request",
        "admin",
        url="https://169.254.169.254/latest/",
    ),
    webhook(
        "a webhook to this machine, written short: `https://127.1/`",
        422,
        "invalid_request",
        "admin",
        url="https://127.1/",
    ),
    webhook(
        "a webhook to this machine, as IPv4 in IPv6", 422, "invalid_request", "admin", url="https://[::ffff:127.0.0.1]/"
    ),
    webhook(
        "a webhook that would carry a password",
        422,
        "invalid_request",
        "admin",
        url="https://ada:hunter2@93.184.216.34/",
    ),
    webhook(
        "a webhook for another project's jobs",
        404,
        "project_not_found",
        "admin",
        url="https://93.184.216.34/",
        project="law",
    ),
    webhook("a webhook made by a member", 403, "permission_denied", "ada", url="https://93.184.216.34/"),
)
