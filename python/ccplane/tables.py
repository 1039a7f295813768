"""Tables of a run as arrays: its metrics, and the contents of its CSV files
(docs/results-format.md)."""

from __future__ import annotations

import csv
import importlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas
    import polars


class Table(Mapping[str, NDArray[Any]]):
    """Columns by name: integers, floats or strings. An unknown value is NaN, or an empty string.

    `to_pandas` and `to_polars` return data frames. Through Arrow's C interface a table is also
    accepted by `pyarrow.table(table)` and DuckDB, which needs pyarrow.
    """

    def __init__(self, columns: Mapping[str, NDArray[Any]]) -> None:
        self._columns = dict(columns)
        self._rows = len(next(iter(self._columns.values()), ()))
        uneven = {name: len(column) for name, column in self._columns.items() if len(column) != self._rows}
        if uneven:
            raise ValueError(f"columns of a table must have the same length; the first has {self._rows} rows, but {uneven}")

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
        return Table({name: column[chosen] for name, column in self._columns.items()})

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a pandas data frame (`pip install 'ccplane[pandas]'`)."""
        return cast("pandas.DataFrame", _package("pandas").DataFrame(self._columns))

    def to_polars(self) -> polars.DataFrame:
        """Returns a polars data frame (`pip install 'ccplane[polars]'`)."""
        return cast("polars.DataFrame", _package("polars").DataFrame(self._columns))

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._columns:
            raise KeyError(f"unknown column {name}; use one of {', '.join(self._columns)}")
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return _package("pyarrow", extra="arrow").table(self._columns).__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<ccplane.Table of {self._rows} rows: {', '.join(self._columns)}>"


def _package(name: str, *, extra: str | None = None) -> Any:
    """Imports an optional package."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise ModuleNotFoundError(f"this conversion needs {name}; run pip install 'ccplane[{extra or name}]'") from None


def column(cells: Sequence[str], *, is_text: bool = False) -> NDArray[Any]:
    """Returns the cells of a CSV column as numbers, unless some of them are words."""
    if is_text:
        return np.array(cells, np.str_)
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
    tables: dict[str, Table] = {}
    with tempfile.TemporaryDirectory() as folder:
        write(folder)
        for file in sorted(os.listdir(folder)):
            name, ending = os.path.splitext(file)
            if ending == ".csv":
                with open(os.path.join(folder, file), encoding="utf-8", newline="") as lines:
                    names, *rows = csv.reader(lines)
                columns: list[tuple[str, ...]] = list(zip(*rows)) if rows else [()] * len(names)
                tables[name] = Table({name: column(cells) for name, cells in zip(names, columns)})
    return tables


def metrics(contenders: Sequence[Mapping[str, Any]]) -> Table:
    """Returns the scalar metrics in `summary.json`, one row per contender.

    If a metric is a mean over several runs, `NAME_low` and `NAME_high` are the ends of its 95 %
    confidence interval; for two runs, the two values.
    """
    rows: list[dict[str, float]] = []
    for contender in contenders:
        row: dict[str, float] = {}
        spread: Mapping[str, Any] = contender.get("spread") or {}
        low: Mapping[str, float] = spread.get("low") or {}
        high: Mapping[str, float] = spread.get("high") or {}
        for name, value in contender["figures"].items():
            if isinstance(value, list | dict):
                continue
            row[name] = np.nan if value is None else value
            half: float | None = spread.get(name)
            if half is not None and value is not None:
                # No metric is negative.
                row[f"{name}_low"] = low.get(name, max(0.0, row[name] - half))
                row[f"{name}_high"] = high.get(name, row[name] + half)
        rows.append(row)
    names = dict.fromkeys(name for row in rows for name in row)
    columns: dict[str, NDArray[Any]] = {"contender": np.array([str(contender["label"]) for contender in contenders], np.str_)}
    return Table(columns | {name: np.array([row.get(name, np.nan) for row in rows]) for name in names})
