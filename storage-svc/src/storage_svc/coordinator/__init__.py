"""Group coordination: a pure state machine (group_machine.py) and the ring that performs its instructions."""
