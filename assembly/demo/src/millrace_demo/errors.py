"""DemoError: the demo cannot go on, and says why. MismatchError: it could, but a count or a value is wrong."""


class DemoError(Exception):
    pass


class MismatchError(DemoError):
    pass
