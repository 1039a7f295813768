"""Results of bundles from their samples (`bundles`) and changes of mode (`bundle_changes`).

Modes: 0 open, 1 delay control, 2 pass-through. Samples of a span are those with start <= time < end.
"""
