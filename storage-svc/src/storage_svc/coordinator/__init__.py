"""The group coordinator: consumer groups of both protocols, and their committed offsets.

    group_coordinator, group_offsets   the calls of clients
    repeatable_commits, limits         commits by their offsets alone; checks that need no group
    hosting/                           the groups of this broker: performs outcomes, keeps timers and waiting calls
    stored/                            their records in `__consumer_offsets`
    consumer/                          the machine of KIP-848 groups, and migration from and to classic ones
    classic/                           the machine of classic groups
    machine/                           the idiom of both: an event in, an Outcome out
    topic_pattern                      subscriptions by pattern

Each may import only those below it. Groups change in their machines alone.
"""
