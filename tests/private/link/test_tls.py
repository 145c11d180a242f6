"""TLS between two ends of this machine: certificates that fit, and those that do not."""

from __future__ import annotations

import ssl
import threading
from pathlib import Path

import pytest

from thinwire.errors import LinkError
from thinwire_private.link.stream import SocketChannel
from thinwire_private.link.tls import (
    accept,
    client_context,
    connect,
    listen,
    parse_address,
    require_tls,
    server_context,
    write_certificates,
)

Files = dict[str, Path]
DemoResult = dict[str, str]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return write_certificates(tmp_path_factory.mktemp("own"), ["127.0.0.1", "localhost"])


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Of another authority, and for another host."""
    return write_certificates(tmp_path_factory.mktemp("other"), ["hospital.example"])


def server_side(files: Files, mutual: bool = False) -> ssl.SSLContext:
    return server_context(files["server.pem"], files["server.key"], files["ca.pem"] if mutual else None)


def talk(server: ssl.SSLContext | None, client: ssl.SSLContext | None) -> tuple[DemoResult, SocketChannel]:
    """One message each way; what each side got or was refused with."""
    outcome: DemoResult = {}
    with listen(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            try:
                with accept(listener.accept()[0], server, timeout_s=120) as channel:
                    channel.send(b"pong")
                    outcome["server"] = bytes(channel.receive(4)).decode()
            except LinkError as error:
                outcome["server"] = str(error)

        thread = threading.Thread(target=serve)
        thread.start()
        channel = None
        try:
            with connect(listener.getsockname()[:2], client, timeout_s=120) as channel:
                channel.send(b"ping")
                outcome["client"] = bytes(channel.receive(4)).decode()
                outcome["below"] = str(channel.tcp_bytes)
        except LinkError as error:
            outcome["client"] = str(error)
        thread.join(120)
    return outcome, channel  # type: ignore[return-value]


def test_tls_carries_messages_and_its_records_are_not_counted(files: Files) -> None:
    outcome, channel = talk(server_side(files), client_context(files["ca.pem"]))
    assert (outcome["server"], outcome["client"]) == ("ping", "pong")
    assert channel.counters.total_bytes == 32
    assert outcome["below"] == "None" or int(outcome["below"]) > 500


def test_both_can_show_certificates(files: Files) -> None:
    mutual = client_context(files["ca.pem"], files["client.pem"], files["client.key"])
    assert talk(server_side(files, mutual=True), mutual)[0]["server"] == "ping"


def test_a_client_without_the_certificate_asked_for_is_refused(files: Files) -> None:
    outcome, _ = talk(server_side(files, mutual=True), client_context(files["ca.pem"]))
    assert "lacks the certificate that is asked for" in outcome["server"]
    assert "TLS has failed" in outcome["client"]
    assert "certificate" in outcome["client"]


def test_a_server_of_another_authority_is_refused(files: Files, others: Files) -> None:
    outcome, _ = talk(server_side(files), client_context(others["ca.pem"]))
    assert "is not accepted" in outcome["client"]
    assert "TLS with a client failed" in outcome["server"]


def test_a_server_of_another_name_is_refused(others: Files) -> None:
    outcome, _ = talk(server_side(others), client_context(others["ca.pem"]))
    assert "is not accepted" in outcome["client"]
    assert "names this host" in outcome["client"]


def test_a_plain_server_is_refused_by_a_tls_client(files: Files) -> None:
    outcome, _ = talk(None, client_context(files["ca.pem"]))
    assert "start the server with --cert and --key" in outcome["client"]
    assert outcome["server"]


def test_a_plain_client_is_refused_by_a_tls_server(files: Files) -> None:
    outcome, _ = talk(server_side(files), None)
    assert "it does not use TLS" in outcome["server"]
    assert outcome["client"]


def test_older_tls_is_refused(files: Files) -> None:
    old = client_context(files["ca.pem"])
    old.minimum_version = ssl.TLSVersion.TLSv1_2
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert "use TLS 1.3" in talk(server_side(files), old)[0]["client"]


def test_another_machine_needs_tls() -> None:
    for host in ("192.0.2.1", "0.0.0.0", ""):
        with pytest.raises(LinkError, match="without TLS others on the network could read along"):
            require_tls((host, 1), None)


def test_a_port_in_use_is_refused() -> None:
    with listen(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(LinkError, match=f"cannot listen on 127.0.0.1:{port} .*choose another port"):
            listen(("127.0.0.1", port))


def test_a_server_that_is_not_there_is_told() -> None:
    with listen(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()[:2]
    with pytest.raises(LinkError, match="no server answers"):
        connect(address)


def test_files_that_are_no_certificates_are_refused(files: Files, tmp_path: Path) -> None:
    with pytest.raises(LinkError, match="cannot be used together"):
        server_context(files["server.pem"], files["client.key"])
    with pytest.raises(LinkError, match="must be a certificate"):
        client_context(tmp_path / "none.pem")


@pytest.mark.parametrize("text", ["7000", "host:", ":7000", "host:99999", "host:x"])
def test_an_address_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(LinkError, match="write HOST:PORT"):
        parse_address(text)


def test_keys_are_for_their_owner_only(files: Files) -> None:
    assert files["server.key"].stat().st_mode & 0o077 == 0
