"""DemoError: the demo cannot continue; the message has the reason. MismatchError: a count or a value is wrong."""


class DemoError(Exception):
    pass


class MismatchError(DemoError):
    pass
