"""What Kafka's brokers keep in topics of their own: __consumer_offsets, __transaction_state, control records.

A record's key and value each start with a version as i16. The version of a key says what it is the key of; a null value
deletes it. `record` reads and writes both; the other modules declare them, one noun each.
"""
