"""How any Millrace service lives: settings, logs, metrics, health, lifecycle, addresses and gRPC factories.

Each module stands alone and is imported by name; importing this package imports none of them. Only `rpc` imports grpc.
"""
