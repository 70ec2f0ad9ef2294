"""Schemas of a schema registry: their look-up, and records that are decoded and encoded by them.

    settings → client (HTTP, cached) → codec (the process that decodes) ⇢ program (what runs in it)

What a registry or a record says is hostile. Look-ups are bounded in time and bytes. The work of a schema runs in a
process with limits of memory and processor time, which the next call replaces.
"""
