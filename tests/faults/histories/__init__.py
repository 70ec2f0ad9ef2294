"""Histories of client operations under faults: their form, a checker of anomalies, and clients that write them.

A history is a folder of files with one JSON event a line. `history.py` has its form, `checker.py` the anomalies,
`simulated_broker.py` a correct broker and a broken one of each kind. `roles.py` is the program of clients, `nemesis.py`
does faults, and `bank.py` is a workload with a check of its contents.
"""
