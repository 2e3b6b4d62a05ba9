"""Certificates for tests over TLS, made by the openssl program."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_COMMAND = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"


def self_signed(folder: Path) -> tuple[str, str]:
    """The files of a certificate for localhost that vouches for itself, and of its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl program to make a certificate")
    certificate, key = str(folder / "certificate.pem"), str(folder / "key.pem")
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate]
    subprocess.run([*_COMMAND.split(), *names], check=True, capture_output=True, timeout=60)
    return certificate, key
