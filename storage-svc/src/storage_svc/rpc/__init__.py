"""One service object per proto service: translate, call, translate back. Without transport; server.py adds gRPC."""
