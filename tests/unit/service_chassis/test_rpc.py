import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from service_chassis import rpc

Status = health_pb2.HealthCheckResponse


@pytest.mark.parametrize("kind", ["unix", "tcp"])
async def test_health_over_each_kind_of_address(kind, tmp_path):
    server = rpc.server()
    service = rpc.HealthService(server)
    port = rpc.listen(server, f"unix:{tmp_path}/s" if kind == "unix" else "127.0.0.1:0")
    await server.start()
    async with rpc.channel(f"unix:{tmp_path}/s" if kind == "unix" else f"127.0.0.1:{port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for serving, status in ((True, Status.SERVING), (False, Status.NOT_SERVING)):
            await service.set_serving(serving)
            assert (await stub.Check(health_pb2.HealthCheckRequest(), timeout=5)).status == status
    await server.stop(None)


async def test_messages_of_any_length(tmp_path):
    server = rpc.server()

    async def echo(request, _context):
        return request

    handler = grpc.unary_unary_rpc_method_handler(echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("x", {"Echo": handler}),))
    rpc.listen(server, f"unix:{tmp_path}/s")
    await server.start()
    async with rpc.channel(f"unix:{tmp_path}/s") as channel:
        answer = await channel.unary_unary("/x/Echo")(bytes(20_000_000), timeout=20)
        assert len(answer) == 20_000_000
    await server.stop(None)


async def test_no_call_of_a_burst_is_refused(tmp_path):
    """gRPC alone cancels some of a thousand that wait, and all beyond three thousand."""
    server = rpc.server()

    async def echo(request, _context):
        return request

    handler = grpc.unary_unary_rpc_method_handler(echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("x", {"Echo": handler}),))
    rpc.listen(server, f"unix:{tmp_path}/s")
    await server.start()
    async with rpc.channel(f"unix:{tmp_path}/s") as channel:
        await channel.channel_ready()
        call = channel.unary_unary("/x/Echo")
        # All are sent in one turn of the event loop, which is the server's, too: none is taken up meanwhile.
        answers = await asyncio.gather(*(call(b"%d" % number, timeout=60) for number in range(3500)))
        assert answers == [b"%d" % number for number in range(3500)]
    await server.stop(None)


async def test_taken_address_is_an_error():
    first, second = rpc.server(), rpc.server()
    port = rpc.listen(first, "127.0.0.1:0")
    await first.start()
    with pytest.raises(OSError, match="cannot listen at"):
        rpc.listen(second, f"127.0.0.1:{port}")
    await first.stop(None)
