"""A schema registry: its settings, look-ups in it, and a compiler with limits for the schemas of Protobuf.

settings → client → schema          protoc
"""
