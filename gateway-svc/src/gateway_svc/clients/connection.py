"""One client connection: bytes in, requests out, answers back in order. It knows no API.

    Wire ── FrameReader ── Requests ──┐
    Wire ── AnswerWriter ── Pipeline ─┘ answered

A complete frame starts unless something holds it back (`frame_gate`).
"""

from __future__ import annotations

import itertools
import math
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from service_chassis import logs

from gateway_svc.clients.answer_writer import AnswerWriter
from gateway_svc.clients.connections import Connections
from gateway_svc.clients.departure import HELD_S
from gateway_svc.clients.entrance import Entry, peer_name
from gateway_svc.clients.frame_gate import FrameGate
from gateway_svc.clients.frame_reader import PROGRESS_BYTES_S, FrameReader
from gateway_svc.clients.pipeline import Pending, Pipeline, release
from gateway_svc.clients.read_control import Pause, ReadControl
from gateway_svc.clients.resources import Requests, Resources
from gateway_svc.clients.slices import MOVED, Part
from gateway_svc.clients.throttle import Throttle
from gateway_svc.clients.wire import Wire
from gateway_svc.errors import RequestRefused
from gateway_svc.request_memory import Share

#: Starts where no other gateway's connections, and none of an earlier run, are likely to be.
_connection_ids: Final = itertools.count(secrets.randbits(63))

#: The principal of a client that has not logged in.
UNKNOWN: Final = ""

_log = logs.get(__name__)


#: The function that makes a connection's `Requests`.
MakeRequests = Callable[["Connection", Pipeline], Requests]


class Connection:
    """Lives from accept to close; `Connections` knows all of them."""

    #: The function that returns where to put bytes that have arrived; `received` must follow. Set by `began`.
    room: Callable[[], memoryview]

    def __init__(
        self,
        listener: str,
        connections: Connections,
        resources: Resources,
        make_requests: MakeRequests,
        entry: Entry,
    ) -> None:
        self.listener = listener
        #: The address that the client counts under.
        self.address = entry.key
        self._entry = entry
        #: The part of the memory for requests that its address has.
        self.share: Share = cast(Share, None)
        self.connection_id = next(_connection_ids)
        self.host = ""
        self.peer = ""
        #: The client's user; nobody's before `log_in`.
        self.principal = UNKNOWN
        #: The state that handlers keep for this connection, by API key.
        self.handler_states: dict[int, Any] = {}
        self._connections = connections
        self._resources = resources
        self._make_requests = make_requests
        self._loop = resources.loop
        self._pipeline = Pipeline()
        # All of these are made by `began`.
        self._wire: Wire = cast(Wire, None)
        self._reading: ReadControl = cast(ReadControl, None)
        self._gate: FrameGate = cast(FrameGate, None)
        self._frames: FrameReader = cast(FrameReader, None)
        self._writer: AnswerWriter = cast(AnswerWriter, None)
        #: None until the wire is ready.
        self._requests: Requests | None = None
        #: Whether requests are being started: answers that are ready at once leave together, when all have started.
        self._starting = False
        #: Whether answers may leave and have not been sent yet.
        self._flush_due = False
        #: Whether a held frame may have become free to start while others were being started.
        self._restart_due = False
        #: None until the client is throttled for the first time.
        self._throttle: Throttle | None = None
        #: Whether it closes once all requests in service are answered.
        self._is_ending = False
        #: The event loop's time when the client last sent bytes, or was found to have read some (`check_time`).
        self.active_at = 0.0
        #: `AnswerWriter.moves` at the last check.
        self._moves_seen = 0
        #: The event loop's time when the client was last found to have read some bytes.
        self._read_at = 0.0
        #: The event loop's time at which the connection is closed unless its client was let in by then.
        self._enter_until = math.inf

    # -- the wire --------------------------------------------------------------------------------------------------

    def began(self, wire: Wire) -> None:
        """Count the connection, and hold memory for it."""
        self._wire = wire
        self._reading = ReadControl(wire)
        host, port = wire.peer
        self.host = host.removeprefix("::ffff:")
        self.peer = peer_name(host, port)
        self.active_at = self._loop.time()
        self._enter_until = self.active_at + wire.ready_within_s
        self._connections.add(self)
        resources = self._resources
        self.share = resources.requests.enter(self.address)
        self._writer = AnswerWriter(
            wire,
            resources.answers,
            drained=self.start_held_frames,
            failed=lambda _reason: self.abort(),
            overfull=self._connections.relieve_soon,
        )
        self._gate = FrameGate(
            self._pipeline, self._reading, self._writer, resources.window, self._loop, self.start_held_frames
        )
        self._frames = FrameReader(
            self._gate,
            self._reading,
            self._connections.shared_view,
            resources.requests,
            self.share,
            self._loop,
        )
        self.room = self._frames.room

    def ready(self) -> None:
        """Start requests from now on."""
        self.serve(self._make_requests(self, self._pipeline))

    def serve(self, requests: Requests) -> None:
        """Start frames by these requests from the next one on: at first, and when a login has ended."""
        if self._reading.closed:
            requests.close()
            return
        if self._requests is not None:
            self._requests.close()
        self._requests = requests
        limit = self._resources.request_bytes_max
        self._frames.serve(requests, limit if requests.frame_bytes_max is None else requests.frame_bytes_max)
        self._enter_until = self._loop.time() + requests.deadline_s

    @property
    def wire_principal(self) -> str:
        """The user that the client's certificate names."""
        return self._wire.principal

    def log_in(self, principal: str) -> None:
        """Note the client's user. What handlers keep for the user before is forgotten."""
        self.principal = principal
        self.handler_states.clear()

    def lost(self) -> None:
        self._entry.leave()
        if not self._reading.closed and self._frames.is_incomplete:
            self._log_refusal(RequestRefused("frame_cut", "the connection ended in the middle of a request"))
        self._reading.close()
        if self._throttle is not None:
            self._throttle.close()
            self._throttle = None
        for pending in self._pipeline.unanswered():
            self._resources.requests.give(self.share, pending.size)
        self._pipeline.close()
        if self._requests is not None:
            self._requests.close()
        self._writer.close()
        self._frames.close()
        self._gate.close()
        self._resources.requests.leave(self.address)
        self._connections.remove(self)
        # All of them refer to this connection: it is freed now, not when Python's collector comes.
        self._frames = cast(FrameReader, None)
        self._writer = cast(AnswerWriter, None)
        self._requests = None
        del self.room

    def ended(self) -> bool:
        """Return whether the client, which sends no more, may still be owed answers.

        Kafka reads the end of a connection after it has answered all requests. Here work that can be ended is ended
        with its client: most of those that send no more have left.
        """
        if self._reading.closed or self._frames.is_incomplete:
            return False
        if self._pipeline.only_abandonable() and not self._writer.busy and not self._flush_due:
            return False
        self.close_when_answered()  # mutant: answers-after-end
        return True

    def pause_writing(self) -> None:
        self._writer.pause()

    def resume_writing(self) -> None:
        self._writer.resume()

    def received(self, count: int) -> None:
        self.active_at = now = self._loop.time()
        if self._reading.closed:
            return
        if not self._connections.prompt_from <= now <= self._connections.prompt_until:
            self._drop_requests_of_a_closed_socket()
        self._starting = True
        try:
            try:
                self._frames.received(count, now)
            finally:
                self._starting = False
                if self._flush_due:
                    self._send_answers()
        except RequestRefused as refusal:
            self.end_with(refusal)
        if self._gate.held_for is not None:
            self.start_held_frames()

    # -- requests --------------------------------------------------------------------------------------------------

    @property
    def requests_in_service(self) -> int:
        return self._pipeline.requests

    @property
    def has_parked(self) -> bool:
        """Whether a request that may take minutes is not answered yet."""
        return self._pipeline.any_parked()

    def start_held_frames(self) -> None:
        """Start the held frames that may start now; read the connection again when none is left."""
        if self._starting:
            self._restart_due = True
            return
        if self._is_ending:
            self.finish()
        gate = self._gate
        if gate.held_for is not None and self._loop.time() - gate.held_since > HELD_S:
            self._drop_requests_of_a_closed_socket()
        # A loop: the answer to a request that starts here may be what the next one waits for.
        # mutant: no-start-while-finishing
        while gate.held_for is not None and Pause.FINISHING not in self._reading.reasons:
            if self._reading.closed:
                return
            self._starting = True  # mutant: no-nested-start
            self._restart_due = started = False
            try:
                try:
                    started = self._frames.start_next_frames(self._loop.time())
                finally:
                    self._starting = False
                    if self._flush_due:
                        self._send_answers()
                        # A frame that was held for the order of answers may start now.
                        self._restart_due = True  # mutant: held-request-continues
            except RequestRefused as refusal:
                self.end_with(refusal)
                return
            except Exception:  # the caller goes on to other connections
                self._fail()
                return
            if not self._frames.holds:
                gate.end_hold()
            elif not started and not self._restart_due:
                return

    def _drop_requests_of_a_closed_socket(self) -> None:
        """Tell the waiting requests if the client has closed its end."""
        if self._requests is not None and not self.peer_is_open():
            self._requests.client_left()

    def peer_is_open(self) -> bool:
        """Return whether the client still has its end of the connection open."""
        return not self._reading.closed and self._wire.peer_is_open()

    def block_later_requests(self) -> None:
        """Start no request after the one opened last, until `unblock_later_requests`."""
        self._pipeline.block()

    def unblock_later_requests(self) -> None:
        """Start requests again, beginning with the held ones."""
        self._pipeline.unblock()
        if self._gate.held_for is not None:
            self.start_held_frames()

    def mute(self, milliseconds: int) -> None:
        """Start no request of the client for so long, and read none: it is throttled."""
        if self._reading.closed:
            return
        if self._throttle is None:
            self._throttle = Throttle(self._gate, self._frames, self._reading, self._loop, self.start_held_frames)
        self._throttle.mute(milliseconds)

    # -- answers ---------------------------------------------------------------------------------------------------

    def answered(self, pending: Pending, parts: Sequence[Part]) -> None:
        """Send a request's answer after the answers to all requests before it.

        It is written at once if no other request is in service, else together with all that may leave in this turn.
        """
        if self._pipeline.closed:
            release(parts)
            return
        self._resources.requests.give(self.share, pending.size)  # mutant: answered-memory-released
        if not self._pipeline.answer(pending, parts) or self._flush_due:
            return
        self._flush_due = True
        if not self._starting:
            if len(self._pipeline.order) == 1:
                self._flush()
            else:
                self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._flush_due:
            try:
                self._send_answers()
            except Exception:
                self._fail()
            if self._gate.held_for is not None:
                self.start_held_frames()

    def _send_answers(self) -> None:
        self._flush_due = False
        parts = self._pipeline.take()
        if self._reading.closed or self._wire.is_closing():
            release(parts)
        elif parts:
            self._writer.send(parts)
            self._resources.polling.expect_more()
        if self._is_ending:
            self.finish()

    def failed(self, reason: str, detail: str) -> None:
        """Log and count why the wire closes, once."""
        if not self._reading.closed:
            self._log_refusal(RequestRefused(reason, detail))
            self._reading.close()

    # -- for tests -------------------------------------------------------------------------------------------------

    @property
    def memory_held(self) -> tuple[int, int]:
        """Bytes of the budgets for requests and for answers."""
        requests = sum(pending.size for pending in self._pipeline.unanswered())
        return requests + self._frames.memory_held, self._writer.memory_held

    def check_invariants(self) -> None:
        """Assert that the reasons not to read are those that hold."""
        self._pipeline.check_invariants()
        reasons = self._reading.reasons
        held_for, muted = self._gate.held_for, Pause.QUOTA
        assert reasons & {Pause.ORDER, Pause.ANSWERS, Pause.WINDOW, Pause.LONG} == {held_for} - {None, muted}
        assert (muted in reasons) == self._gate.is_muted
        assert self._reading.closed or self._gate.is_muted == (self._throttle is not None and self._throttle.is_on)
        assert self._reading.closed or self._frames.holds == (self._gate.held_for is not None)
        assert not self._starting

    # -- the end ---------------------------------------------------------------------------------------------------

    def close_refused(self, refusal: RequestRefused) -> None:
        """Log and count the refusal, once, and close."""
        if not self._reading.closed:
            self._log_refusal(refusal)
            self.abort()

    def end_with(self, refusal: RequestRefused) -> None:
        """Close after the answers to requests before one that cannot be served, as Kafka does, but for parked ones."""
        if self._reading.closed or self.idle:  # mutant: answers-before-refusal
            self.close_refused(refusal)
            return
        self._log_refusal(refusal)
        self.close_when_answered()
        self._frames.drop()
        self._gate.end_hold()

    def _log_refusal(self, refusal: RequestRefused) -> None:
        fields = dict(refusal.fields)
        if refusal.detail:
            fields["detail"] = refusal.detail
        self._resources.refusals.request(refusal.reason, peer=self.peer, **fields)

    def _fail(self) -> None:
        """Log the error of ours that is being handled, and close: an answer or a request may be lost."""
        _log.exception("connection failed", peer=self.peer)
        self.abort()

    def abort(self) -> None:
        """Close at once; answers that were not sent are lost."""
        self._reading.close()
        self._wire.abort()

    def finish(self) -> None:
        """Start no more requests, and close if none in service needs an answer. Called again until it is closed."""
        if self._reading.closed:
            return
        if self.idle:
            self._reading.close()
            self._wire.close()
        else:
            self._reading.pause(Pause.FINISHING)

    def close_when_answered(self) -> None:
        """Start no more requests, and close once those in service are answered. Called before the last answer."""
        self._is_ending = True
        self._pipeline.block()  # mutant: nothing-starts-after-close
        self.finish()

    @property
    def idle(self) -> bool:
        """Whether closing the connection loses no answer. A parked request does not count: its client asks again."""
        return self._pipeline.only_parked() and not self._writer.busy and not self._flush_due

    def stalled(self, now: float) -> tuple[int, float, Share]:
        """Return the bytes of requests that have not started, for how long they have stalled, and their share."""
        frames = self._frames
        if self._reading.closed:
            return 0, 0.0, self.share
        return frames.memory_held, frames.stalled_s(now), frames.share

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers in memory that the client has not read, those that wait for earlier ones included."""
        if self._reading.closed:
            return 0
        waiting = sum(
            len(part) for pending in self._pipeline.order for part in pending.parts or () if type(part) not in MOVED
        )
        return self._writer.memory_held + waiting

    def unread(self, now: float) -> tuple[int, float]:
        """Return the bytes of answers that wait for the client, and the seconds since it last read some."""
        if self._reading.closed:
            return 0, 0.0
        if self._writer.moves != self._moves_seen:
            return self._writer.memory_held, 0.0
        return self._writer.memory_held, now - self._read_at

    def check_time(self, now: float, frame_timeout_s: float, idle_max_s: float) -> None:
        """Close the connection if a request takes too long to arrive, or if the client was idle for too long."""
        if self._reading.closed:
            return
        if now > self._enter_until:
            login = self._requests
            reason = "handshake_timeout" if login is None else "login_timeout"
            within_s = self._wire.ready_within_s if login is None else login.deadline_s
            self.close_refused(RequestRefused(reason, f"not within {within_s:g} s"))
            return
        frames = self._frames
        if frames.started_at is not None and frames.is_read:
            late_s = now - frames.started_at - frame_timeout_s
            if late_s > frames.arrived / PROGRESS_BYTES_S:
                detail = f"{frames.arrived} bytes of a request arrived in {now - frames.started_at:.1f} s"
                self.close_refused(RequestRefused("frame_timeout", detail))
                return
        waits = self._gate.held_for is Pause.ORDER and now - self._gate.held_since > HELD_S
        if waits and self._pipeline.can_be_lost() and not self.peer_is_open():
            # A connection that holds requests is not read, so the event loop would not notice its end.
            self.abort()
            return
        self._writer.count_buffered()
        if self._writer.moves != self._moves_seen:  # mutant: slow-reader-is-active
            self._moves_seen = self._writer.moves
            self.active_at = self._read_at = now
        elif now - self.active_at > idle_max_s and (self._writer.busy or not self._pipeline.order):
            self._resources.refusals.closed("idle", peer=self.peer, listener=self.listener)
            self.abort()
