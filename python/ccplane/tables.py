"""Tables of a run as arrays: the columns and rows of its CSV files (docs/results-format.md)."""

from __future__ import annotations

import csv
import importlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Table(Mapping[str, NDArray[Any]]):
    """Columns by name: integers, floats or strings. An unknown value is NaN, or an empty string.

    Accepted by `pandas.DataFrame(table.numpy())` and `polars.DataFrame(table)`, and, through
    Arrow's C interface, by `pyarrow.table(table)` and DuckDB. Arrow needs pyarrow.
    """

    def __init__(self, names: list[str], rows: list[list[str]]) -> None:
        cells = list(zip(*rows)) if rows else [()] * len(names)
        self._columns = {name: _column(column) for name, column in zip(names, cells)}
        self._rows = len(rows)

    @property
    def columns(self) -> list[str]:
        """Column names."""
        return list(self._columns)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self._rows

    def numpy(self) -> dict[str, NDArray[Any]]:
        """Returns all columns."""
        return dict(self._columns)

    def where(self, **values: Any) -> Table:
        """Returns the rows with these values: `series.where(contender="cubic", flow=1)`."""
        chosen = np.ones(self._rows, np.bool_)
        for name, value in values.items():
            chosen &= self[name] == value
        found = Table([], [])
        found._columns = {name: column[chosen] for name, column in self._columns.items()}
        found._rows = int(chosen.sum())
        return found

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._columns:
            raise KeyError(f"unknown column {name}; use one of {', '.join(self._columns)}")
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        try:
            pyarrow = importlib.import_module("pyarrow")
        except ModuleNotFoundError:
            raise ModuleNotFoundError("conversion to Arrow needs pyarrow; run pip install 'ccplane[arrow]'") from None
        return pyarrow.table(self._columns).__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<ccplane.Table of {self._rows} rows: {', '.join(self._columns)}>"


def _column(cells: tuple[str, ...]) -> NDArray[Any]:
    try:
        return np.array([int(cell) for cell in cells], np.int64)
    except (ValueError, OverflowError):
        pass
    try:
        return np.array([float(cell) if cell else np.nan for cell in cells], np.float64)
    except ValueError:
        return np.array(cells, np.str_)


def read(write: Callable[[str], object]) -> dict[str, Table]:
    """Reads all tables that `write` writes to a folder."""
    tables = {}
    with tempfile.TemporaryDirectory() as folder:
        write(folder)
        for file in sorted(os.listdir(folder)):
            name, ending = os.path.splitext(file)
            if ending == ".csv":
                with open(os.path.join(folder, file), encoding="utf-8", newline="") as lines:
                    names, *rows = csv.reader(lines)
                tables[name] = Table(names, rows)
    return tables
