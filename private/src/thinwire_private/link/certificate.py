"""Certificates for a first try on two machines: an authority of our own and a certificate it signs.

Needs the package `cryptography` of the [private] extra. Keys are written with mode 600.
"""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING

from thinwire.errors import PrivateError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

DAYS = 365


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
        path = folder / name
        path.touch(mode=0o600 if name.endswith(".key") else 0o644)
        path.write_bytes(data)
    return {name: folder / name for name in files}


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
