# The types of `_walker.py` when it is compiled. Numbers of the wire are unsigned until zig-zag is undone.
cimport cython

cdef long long _MIN, _MAX
cdef int _CHECK, _READ, _SCAN
cdef int _BETWEEN, _NO_TIMESTAMP


@cython.no_gc
@cython.freelist(8)
cdef class RecordWalker:
    cdef bytes _bytes
    cdef const unsigned char[::1] _view
    cdef Py_ssize_t _size
    cdef Py_ssize_t _stop
    cdef long long _count
    cdef long long _base_offset
    cdef long long _base_timestamp
    cdef bint _has_append_time
    cdef long long _append_time
    cdef long long _earliest
    cdef long long _latest
    cdef bint _keys_required
    cdef long long _faults_max
    cdef readonly long long index
    cdef readonly Py_ssize_t position
    cdef readonly long long max_timestamp
    cdef readonly long long max_timestamp_offset
    cdef readonly bint in_order
    cdef readonly bint is_over
    cdef readonly list keyless
    cdef readonly list mistimed
    cdef tuple _begun
    cdef long long _headers_left
    cdef list _headers

    cpdef bint check(self, long long steps) except? -1
    cpdef bint read(self, kind, list records, long long steps) except? -1
    cpdef bint scan(self, tuple columns, long long steps) except? -1
    cpdef bint pass_over(self, Py_ssize_t end, long long steps) except? -1
    cpdef Py_ssize_t find(self, bytes wanted, Py_ssize_t start, Py_ssize_t end) except? -2
    @cython.locals(
        view="const unsigned char[::1]",
        data=cython.p_uchar,
        size=cython.Py_ssize_t,
        stop=cython.Py_ssize_t,
        count=cython.longlong,
        index=cython.longlong,
        position=cython.Py_ssize_t,
        left=cython.longlong,
        start=cython.Py_ssize_t,
        end=cython.Py_ssize_t,
        offset=cython.longlong,
        timestamp=cython.longlong,
        key_at=cython.Py_ssize_t,
        key_size=cython.Py_ssize_t,
        value_at=cython.Py_ssize_t,
        value_size=cython.Py_ssize_t,
        number=cython.ulonglong,
        room=cython.ulonglong,
        byte=cython.ulonglong,
        delta=cython.longlong,
        offset_delta=cython.longlong,
        base_offset=cython.longlong,
        base_timestamp=cython.longlong,
        has_append_time=cython.bint,
        is_keyless=cython.bint,
        headers=list,
        starts=list,
        timestamps=list,
        offsets=list,
        keys=list,
        tombstones=list,
    )
    cdef int _walk(self, long long steps, int mode, kind, list records, tuple columns) except -1
    @cython.locals(
        view="const unsigned char[::1]",
        size=cython.Py_ssize_t,
        number=cython.ulonglong,
        name_at=cython.Py_ssize_t,
        name_end=cython.Py_ssize_t,
        content_at=cython.Py_ssize_t,
    )
    cdef (long long, long long, Py_ssize_t) _walk_headers(
        self, unsigned char *data, long long left, long long steps, Py_ssize_t position, list headers, long long index
    ) except *
    cdef int _note_fault(self, long long index, long long timestamp, long long offset, bint is_keyless) except -1
    @cython.locals(byte=cython.ulonglong, value=cython.ulonglong, shift=cython.int)
    cdef (unsigned long long, Py_ssize_t) _read_on(self, Py_ssize_t position, unsigned long long first, int bits) except *


@cython.locals(walker=RecordWalker)
cpdef long long largest_timestamp(
    batch,
    Py_ssize_t start,
    long long count,
    long long base_timestamp,
    long long now,
    long long before_max,
    long long after_max,
    bint keys_required,
    long long steps,
) except? -3
