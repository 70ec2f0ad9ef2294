"""Strongly connected components of a graph, by Tarjan's algorithm without recursion."""

from __future__ import annotations

from collections.abc import Sequence


def cycles(successors: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the components of more than one node, each sorted. Takes time linear in nodes and edges."""
    count = len(successors)
    numbers, lowest = [-1] * count, [0] * count
    waiting: list[int] = []
    is_waiting = bytearray(count)
    found: list[list[int]] = []
    last = 0
    for root in range(count):
        if numbers[root] >= 0 or not successors[root]:
            continue
        path: list[int] = []
        edges = [iter((root,))]
        while edges:
            for node in edges[-1]:
                if numbers[node] < 0:
                    numbers[node] = lowest[node] = last
                    last += 1
                    waiting.append(node)
                    is_waiting[node] = True
                    path.append(node)
                    edges.append(iter(successors[node]))
                    break
                if is_waiting[node] and path and numbers[node] < lowest[path[-1]]:
                    lowest[path[-1]] = numbers[node]
            else:
                edges.pop()
                if not path:
                    continue
                done = path.pop()
                if path and lowest[done] < lowest[path[-1]]:
                    lowest[path[-1]] = lowest[done]
                if lowest[done] == numbers[done]:
                    component = [waiting.pop()]
                    while component[-1] != done:
                        component.append(waiting.pop())
                    for node in component:
                        is_waiting[node] = False
                    if len(component) > 1:
                        found.append(sorted(component))
    return found
