"""Frames that were recorded, made readable: `python -m protocol_lib decode`.

hexdump, pcap    the recorded bytes, as streams: one for each direction of each connection
conversation     the streams' frames, as requests and the responses to them
readable         a message as text
"""
