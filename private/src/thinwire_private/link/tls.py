"""TLS 1.3: who may be connected to, and how; without TLS only this very machine."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from pathlib import Path

from thinwire.errors import LinkError

Address = tuple[str, int]


def server_context(
    certificate: str | Path, key: str | Path, client_ca: str | Path | None = None
) -> ssl.SSLContext:
    """TLS for a server; with `client_ca` only clients with a certificate of that authority are let in."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # sessions are never resumed
    _load_chain(context, certificate, key)
    if client_ca is not None:
        _load_ca(context, client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(
    ca: str | Path, certificate: str | Path | None = None, key: str | Path | None = None
) -> ssl.SSLContext:
    """TLS for a client: the server must show a certificate of `ca` for the name it was called by."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    _load_ca(context, ca)
    if certificate is not None:
        _load_chain(context, certificate, certificate if key is None else key)
    return context


def require_tls(address: Address, context: ssl.SSLContext | None) -> None:
    """Refuse an address beyond this machine unless there is TLS."""
    if context is None and not is_loopback(address[0]):
        raise LinkError(
            f"{told(address)} is not this machine, and without TLS everybody on the way could read along: "
            "give certificates (--cert and --key to serve, --ca to infer), or use 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether a name or address stands for this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("8.8.8.8")
    (True, True, False, False)
    """
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host or "0.0.0.0", None)}
    except OSError:
        raise LinkError(f'the host "{host}" is not known: check the name') from None
    return all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in found)


def parse_address(text: str) -> Address:
    """HOST:PORT.

    >>> parse_address("localhost:7000"), parse_address("[::1]:7000")
    (('localhost', 7000), ('::1', 7000))
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise LinkError(f'the address "{text}" cannot be read: write HOST:PORT, such as 127.0.0.1:7000')
    return host.removeprefix("[").removesuffix("]"), int(port)


def told(address: Address) -> str:
    """An address as a user writes it."""
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"{host}:{address[1]}"


def _load_chain(context: ssl.SSLContext, certificate: str | Path, key: str | Path) -> None:
    try:
        context.load_cert_chain(certificate, key)
    except OSError:  # also ssl.SSLError
        raise LinkError(
            f"the certificate {certificate} and the key {key} cannot be used together: "
            "both must be there, in PEM form, and belong to each other"
        ) from None


def _load_ca(context: ssl.SSLContext, ca: str | Path) -> None:
    try:
        context.load_verify_locations(ca)
    except OSError:
        raise LinkError(f"the authority {ca} cannot be used: it must be a certificate in PEM form") from None
