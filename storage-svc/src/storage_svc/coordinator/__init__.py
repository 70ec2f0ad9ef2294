"""Group coordination: pure state machines (group.py) and the ring that performs their instructions."""
