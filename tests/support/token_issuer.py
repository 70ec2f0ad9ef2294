"""An issuer of tokens for SASL OAUTHBEARER, whose keys are in a file."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa


class Issuer:
    """`settings` are those of a broker that accepts its tokens."""

    def __init__(self, folder: Path) -> None:
        """Make a key, and list it in a file of the folder."""
        self.path = folder / "keys.json"
        self._listed: list[dict[str, Any]] = []
        self.add_key()

    def add_key(self) -> None:
        """Make another key, which signs from now on. Tokens of the others count."""
        self.key = rsa.generate_private_key(65537, 2048)
        listed = jwt.get_algorithm_by_name("RS256").to_jwk(self.key.public_key(), as_dict=True)
        self._listed.append({**listed, "kid": str(len(self._listed) + 1)})
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({"keys": self._listed}))
        new.replace(self.path)

    @property
    def settings(self) -> dict[str, str]:
        return {
            "sasl_oauthbearer_jwks_endpoint_url": self.path.as_uri(),
            "sasl_oauthbearer_expected_issuer": "https://id.example",
            "sasl_oauthbearer_expected_audience": "kafka",
        }

    def token(self, user: str = "alice", lifetime_s: float = 600, **claims: Any) -> str:
        now = time.time()  # wall clock: of a token
        end = now + lifetime_s
        body = {"iss": "https://id.example", "aud": "kafka", "sub": user, "iat": min(now, end) - 60, "exp": end}
        return jwt.encode({**body, **claims}, self.key, "RS256", headers={"kid": str(len(self._listed))})
