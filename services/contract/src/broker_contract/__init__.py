"""The gRPC contract between Millrace's services: the only thing they know of each other.

`data_pb2`, `topics_pb2`, `groups_pb2`, `producers_pb2`, `transactions_pb2`, `cluster_pb2` and their `_grpc` twins are
generated from `services/contract/proto`; `data` has the objects of the record stream, `frames` their layout in bytes.
"""
