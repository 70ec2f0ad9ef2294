"""HTTP/2 (RFC 9113) as gRPC uses it, on asyncio, for both ends of a connection.

frames      numbers of the protocol, and frames as bytes
headers     blocks of header fields: HPACK, the rules for requests, metadata of gRPC
limits      limits for hostile peers, and counters of frames that cost a peer nothing
stream      one call: messages out, messages in, windows
connection  the streams of a connection, the turns in which they send, its end
file_sender ranges of files as messages, by sendfile
lane        the client's end of a connection whose messages go on to another socket, by splice
pipes       what a lane's bytes go through
reader      bytes as frames, and DATA
control     all other frames
keepalive   PING for a silent peer

A message that fits the windows leaves with one write of 14 bytes and its body. A DATA frame that is one message goes to
its receiver in the protocol's callback, without a copy. There is no thread and no task a message.
"""
