"""Addresses of webhooks, the key of their secrets and the pauses between attempts: what takes no receiver."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.errors import InvalidRequestError
from service.settings import Settings
from service.webhooks import addresses
from service.webhooks.delivering import delay_seconds


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/",
        "https://127.0.0.1/",
        "https://127.1/",
        "https://0x7f000001/",
        "https://[::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://169.254.169.254/latest/meta-data",
        "https://10.0.0.8:8443/",
        "https://localhost/",
        "https://user:secret@93.184.216.34/",
        "https://93.184.216.34/#x",
        "ftp://93.184.216.34/",
        "https:///x",
        "https://93.184.216.34:99999/",
        "https://a..b/",
        "https://93.184.216.34/\r\nX: y",
        "no url",
    ],
)
def test_addresses_that_nothing_is_sent_to(url: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        addresses.check_url(url, ())
    assert caught.value.faults[0].pointer == "/url"
    assert "secret" not in str(caught.value.faults)


def test_a_public_address_and_a_named_host_may_be_asked() -> None:
    addresses.check_url("https://93.184.216.34/hook?team=nlp", ())
    addresses.check_url("http://chat.internal:8065/hook", ("Chat.internal",))


@pytest.mark.parametrize("text", ["", "k" * 31])
def test_a_file_that_is_too_short_for_a_secret_is_no_key(settings: Settings, tmp_path: Path, text: str) -> None:
    path = tmp_path / "key"
    path.write_text(text)
    assert Settings(home=settings.home, webhook_key_path=path).read_webhook_key() is None


def test_a_service_of_one_user_makes_its_own_key_for_itself_alone(settings: Settings) -> None:
    key = settings.read_webhook_key()
    path = settings.home / "webhook-key"
    assert key == settings.read_webhook_key() == path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("attempts", [1, 2, 8, 16, 1000])
def test_pauses_double_up_to_hours(attempts: int) -> None:
    assert delay_seconds(attempts, 0.0) == delay_seconds(attempts, 1.0) / 2
    assert delay_seconds(attempts, 1.0) == min(4 * 3600, 10 * 2 ** (attempts - 1))
