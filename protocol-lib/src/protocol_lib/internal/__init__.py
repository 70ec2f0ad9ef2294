"""The records of Kafka's internal topics: __consumer_offsets, __transaction_state, control records.

A record's key and value each start with a version as i16. The version of a key is also its kind; a null value deletes
it. `record` reads and writes both; the other modules declare them, one noun each.
"""
