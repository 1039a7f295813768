"""Registration of the environments with Gymnasium. `import ccplane` does not import Gymnasium,
which takes longer than all of ccplane."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_GYMNASIUM = "gymnasium"


def register() -> None:
    """Registers `ccplane/Link-v0`. `ccplane.env` is imported only when an environment is made."""
    from gymnasium.envs.registration import register, registry  # pyright: ignore[reportUnknownVariableType]

    if "ccplane/Link-v0" not in registry:
        register("ccplane/Link-v0", entry_point="ccplane.env:Link", vector_entry_point="ccplane.env:LinkVector")


def register_when_imported() -> None:
    """Registers now if Gymnasium is already imported, otherwise right after its import."""
    if _GYMNASIUM in sys.modules:
        register()
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Import hook that finds Gymnasium once, through the other finders, and wraps its loader in
    `_Registering`."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != _GYMNASIUM:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Registering(spec.loader)
        return spec


class _Registering(Loader):
    """Loader that delegates to the module's own loader, then registers the environments."""

    def __init__(self, own: Loader) -> None:
        self._own = own

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # `importlib.resources` and `reload` use the loader of the module.
        module.__loader__ = self._own
        if module.__spec__ is not None:
            module.__spec__.loader = self._own
        self._own.exec_module(module)
        register()
