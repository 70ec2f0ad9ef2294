"""Records over HTTP: reading them through the gateway, filtering, and writing them as JSON."""
