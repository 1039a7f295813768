"""What Gymnasium reads to find the environments; it imports nothing of ours before one is made."""

from __future__ import annotations


def register() -> None:
    """`ccplane/Link-v0`. Gymnasium calls it when it is imported, as an entry point."""
    from gymnasium.envs.registration import register, registry

    if "ccplane/Link-v0" not in registry:
        register("ccplane/Link-v0", entry_point="ccplane.env:Link", vector_entry_point="ccplane.env:LinkVector")
