"""Connections between two machines: TLS 1.3, time-outs, and certificates for a first try.

Without TLS only this machine can be reached. Keys are written with mode 600.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from thinwire.errors import LinkError, PrivateError
from thinwire_private.link.stream import DEFAULT_TIMEOUT_S, SocketChannel

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey


Address = tuple[str, int]
CONNECT_TIMEOUT_S = 10.0
DAYS = 365


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


def require_tls(address: Address, context: ssl.SSLContext | None, reached: str | None = None) -> None:
    """Refuse an address beyond this machine unless there is TLS.

    A name may resolve to something else from one moment to the next: once a socket is there, what it has
    `reached` counts.
    """
    if context is None and not is_loopback(reached or address[0]):
        raise LinkError(
            f"{format_address(address)} is another machine, and "
            "without TLS others on the network could read along: "
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


def format_address(address: Address) -> str:
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


def listen(address: Address, context: ssl.SSLContext | None = None) -> socket.socket:
    """A socket that waits for clients; port 0 takes a free one."""
    require_tls(address, context)
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    try:
        listener = socket.create_server(address, family=family, backlog=64)
    except OSError as error:
        raise LinkError(
            f"cannot listen on {format_address(address)} ({error.strerror or error}): "
            "another program uses this port, or the address is not of this machine; choose another port"
        ) from None
    with contextlib.ExitStack() as undo:
        undo.callback(listener.close)
        require_tls(address, context, listener.getsockname()[0])
        undo.pop_all()
    return listener


def accept(
    connection: socket.socket, context: ssl.SSLContext | None, timeout_s: float = DEFAULT_TIMEOUT_S
) -> SocketChannel:
    """The server's end of an accepted connection."""
    try:
        return SocketChannel(_wrapped(connection, context, None, timeout_s), timeout_s)
    except (ssl.SSLError, OSError) as error:
        connection.close()
        raise LinkError(
            f"TLS with a client failed ({reason(error)}): "
            "it does not use TLS, rejects this certificate, or lacks the certificate that is asked for"
        ) from None


def connect(
    address: Address, context: ssl.SSLContext | None = None, timeout_s: float = DEFAULT_TIMEOUT_S
) -> SocketChannel:
    """The client's end of a new connection."""
    require_tls(address, context)
    try:
        connection = socket.create_connection(address, timeout=min(CONNECT_TIMEOUT_S, timeout_s))
    except OSError as error:
        raise LinkError(
            f"no server answers at {format_address(address)} ({error.strerror or error}): "
            "check that `thinwire private serve` runs there and that the port is open"
        ) from None
    with contextlib.ExitStack() as undo:
        undo.callback(connection.close)
        require_tls(address, context, connection.getpeername()[0])
        undo.pop_all()
    try:
        return SocketChannel(_wrapped(connection, context, address[0], timeout_s), timeout_s)
    except ssl.SSLCertVerificationError as error:
        connection.close()
        raise LinkError(
            f"the certificate of {format_address(address)} is not accepted ({error.verify_message}): "
            "check --ca, and that the certificate names this host"
        ) from None
    except (ssl.SSLError, OSError) as error:
        connection.close()
        raise LinkError(
            f"TLS with {format_address(address)} failed ({reason(error)}): "
            "start the server with --cert and --key, and use TLS 1.3"
        ) from None


def reason(error: OSError) -> str:
    """Why TLS failed, in a few words."""
    if isinstance(error, TimeoutError):
        return "time-out"
    named = error.reason if isinstance(error, ssl.SSLError) else None
    return (named or error.strerror or "connection closed").lower().replace("_", " ")


def _wrapped(
    connection: socket.socket, context: ssl.SSLContext | None, name: str | None, timeout_s: float
) -> socket.socket:
    connection.settimeout(min(CONNECT_TIMEOUT_S, timeout_s))
    if context is None:
        return connection
    with contextlib.ExitStack() as undo:
        undo.callback(connection.close)
        wrapped = context.wrap_socket(connection, server_side=name is None, server_hostname=name)
        undo.pop_all()
    return wrapped


def write_certificates(folder: Path, hosts: list[str]) -> dict[str, Path]:
    """Write ca.pem, server.pem, server.key, client.pem, client.key; the server's name is `hosts`."""
    try:
        from cryptography.hazmat.primitives import serialization
    except ImportError:
        raise PrivateError(
            "certificates need the package cryptography: run pip install cryptography"
        ) from None

    folder.mkdir(parents=True, exist_ok=True)
    ca_key, ca = _made("thinwire private CA", None, None, [])
    files = {"ca.pem": ca.public_bytes(serialization.Encoding.PEM)}
    for name, names in (("server", hosts), ("client", [])):
        key, certificate = _made(f"thinwire private {name}", ca_key, ca, names)
        files[f"{name}.pem"] = certificate.public_bytes(serialization.Encoding.PEM)
        files[f"{name}.key"] = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    for name, data in files.items():
        _write_new(folder / name, data, 0o600 if name.endswith(".key") else 0o644)
    return {name: folder / name for name in files}


def _write_new(path: Path, data: bytes, mode: int) -> None:
    """A file of its own with this mode, whatever was there: an old one may be readable, or a link."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)


def _made(
    name: str,
    signer: EllipticCurvePrivateKey | None,
    issuer: x509.Certificate | None,
    hosts: list[str],
) -> tuple[EllipticCurvePrivateKey, x509.Certificate]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if hosts:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False
        )
    return key, builder.sign(key if signer is None else signer, hashes.SHA256())


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
