"""Requests that are answered where they are received."""

from gateway_svc.clients.pipeline import Pipeline
from gateway_svc.requests.path import RequestStarter


class Writer:
    def __init__(self):
        self.sent = []

    def send(self, parts):
        self.sent += parts


class Ahead:
    """What the next fetch is answered with is known."""

    def answer(self, store, begin, end, services, send):
        send((bytes(store[begin:end]),))
        return True


def test_a_known_fetch_is_answered_without_a_place_in_the_order():
    pipeline, writer = Pipeline(), Writer()
    starter = RequestStarter(None, None, None, pipeline, writer, bytearray(64))
    starter._fetches.ahead = Ahead()
    store = b"\0\0\0\x0cknown fetch.behind"
    assert starter.start(store, 4, 16, len(store)) == 16
    assert writer.sent == [b"known fetch."]
    assert not pipeline.order
