"""Schemas of a schema registry, and records that are decoded and encoded by them.

    service_chassis.schema_registry (look-ups) → codec (the process that decodes) ⇢ program (what runs in it)

What a registry or a record says is hostile. The work of a schema runs in a process with limits of memory and processor
time, which the next call replaces.
"""
