"""An issuer of tokens for SASL OAUTHBEARER, whose keys are in a file."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa


@dataclass
class Issuer:
    """`settings` are those of a broker that accepts its tokens."""

    path: Path
    key: rsa.RSAPrivateKey

    @classmethod
    def made(cls, folder: Path) -> Issuer:
        """Make a key, and list it in a file of the folder."""
        key = rsa.generate_private_key(65537, 2048)
        listed = {**jwt.get_algorithm_by_name("RS256").to_jwk(key.public_key(), as_dict=True), "kid": "1"}
        path = folder / "keys.json"
        path.write_text(json.dumps({"keys": [listed]}))
        return cls(path, key)

    @property
    def settings(self) -> dict[str, str]:
        return {
            "sasl_oauthbearer_jwks_endpoint_url": self.path.as_uri(),
            "sasl_oauthbearer_expected_issuer": "https://id.example",
            "sasl_oauthbearer_expected_audience": "kafka",
        }

    def token(self, user: str = "alice", lifetime_s: float = 600, **claims: Any) -> str:
        now = time.time()  # wall clock: of a token
        body = {"iss": "https://id.example", "aud": "kafka", "sub": user, "iat": now - 60, "exp": now + lifetime_s}
        return jwt.encode({**body, **claims}, self.key, "RS256", headers={"kid": "1"})
