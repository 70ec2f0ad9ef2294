"""The common parts of every Millrace service: settings, logs, metrics, health, lifecycle, addresses and gRPC factories.

Each module works alone and is imported by name; importing this package imports none of them. Only `rpc` imports grpc.
"""
