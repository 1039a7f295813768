"""Reads the tables of an experiment, compares results with the published ones, and writes the page.

`ccplane paper NAME` makes the runs, writes NAME.py and this module next to their tables, and runs
`python3 NAME.py FOLDER`. The same works by hand and in a notebook: `Paper(folder="FOLDER")`.
"""

import html
import io
import json
import math
import pathlib
import sys
import textwrap
from dataclasses import dataclass

import matplotlib.pyplot as plt
import polars as pl
import scipy.stats

plt.rcParams.update({
    "figure.figsize": (6.4, 3.6), "figure.constrained_layout.use": True, "axes.grid": True,
    "grid.alpha": 0.3, "axes.spines.top": False, "axes.spines.right": False, "lines.linewidth": 1.5,
    "lines.markersize": 4, "legend.frameon": False, "font.size": 9, "svg.fonttype": "none",
    "svg.hashsalt": "ccplane",
})

# Ends of the part of the page that is written here; the command writes the rest.
BODY_MARKS = ("<!-- results -->", "<!-- /results -->")


@dataclass
class Estimate:
    """Mean over runs with its 95 % confidence interval, which one run does not have."""

    value: float
    low: float | None = None
    high: float | None = None


def mean(values):
    """Returns the mean of values, None if there are none."""
    values = [value for value in values if value is not None]
    return math.fsum(values) / len(values) if values else None


def quantile(values, share):
    """Returns the least value that a share of all values does not exceed."""
    ordered = sorted(value for value in values if value is not None)
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1] if ordered else None


def jain(values):
    """Returns Jain's fairness index (Jain, Chiu and Hawe 1984), None for fewer than two values."""
    squares = math.fsum(value * value for value in values)
    return math.fsum(values) ** 2 / (len(values) * squares) if len(values) > 1 and squares else None


def estimate(values):
    """Returns the mean with the 95 % interval of Student's t."""
    values = [value for value in values if value is not None]
    if len(values) < 2:
        return Estimate(values[0]) if values else None
    centre = mean(values)
    half = float(scipy.stats.sem(values) * scipy.stats.t.ppf(0.975, len(values) - 1))
    return Estimate(centre, centre - half, centre + half)


def paired_ratio(pairs):
    """Returns the geometric mean of ratios of the same seed, with the interval of their logarithms."""
    if not pairs or any(one <= 0 or other <= 0 for one, other in pairs):
        return None
    logs = estimate([math.log(one / other) for one, other in pairs])
    ends = [None if end is None else math.exp(end) for end in (logs.low, logs.high)]
    return Estimate(math.exp(logs.value), *ends)


def verdict(result, low, high):
    """Compares a result with a target range: met, missed or inconclusive.

    An interval is met if all of it is in the range, and missed if nothing of it is."""
    ends = (result.value, result.value) if result.low is None else (result.low, result.high)
    if low <= ends[0] and ends[1] <= high:
        return "met"
    return "missed" if ends[1] < low or ends[0] > high else "inconclusive"


def agents(contenders, algorithm):
    """Returns the contenders `ALGORITHM@ADDRESS`, agents in other processes, with a suffix for the keys of each."""
    own = [one for one in dict.fromkeys(contenders) if "@" in one and one.split("@")[0].split(":")[0] == algorithm]
    return {one: "_process" if number == 1 else f"_process_{number}" for number, one in enumerate(own, 1)}


class Paper:
    """Results of one experiment, added in the order of the page."""

    def __init__(self, deviations=(), remarks=(), folder=None):
        self.folder = pathlib.Path(folder or sys.argv[1])
        self.about = json.loads((self.folder / "experiment.json").read_text(encoding="utf-8"))
        self.quick = self.about["quick"]
        self.deviations, self.remarks = list(deviations), list(remarks)
        self.results, self.rows, self.parts = {}, [], []

    def runs(self, datapath="sim"):
        """Returns the table with one row per run; it has no rows if there are no such runs."""
        return self._read(datapath, "runs.parquet")

    def flows(self, datapath="sim", columns=None):
        """Returns the flows of all runs with the axes of their run, or only `columns`."""
        return self._joined("flows.parquet", datapath, columns)

    def series(self, name, datapath="sim", columns=None):
        """Returns a time series of all runs with the axes of their run, or only `columns`."""
        return self._joined(f"{name}/*.parquet", datapath, columns)

    def _read(self, datapath, name, columns=None):
        folder = self.folder / datapath
        if not any(folder.glob(name)):
            return pl.DataFrame()
        table = pl.scan_parquet(folder / name)
        names = [one for one in table.collect_schema().names() if columns is None or one in ("run", *columns)]
        return table.select(names).collect()

    def _joined(self, name, datapath, columns):
        """Joins a table with its runs. Millions of flows with all columns of their runs would need gigabytes."""
        table, runs = self._read(datapath, name, columns), self.runs(datapath)
        if not len(table):
            return table
        # In a sweep the axes come before the seed. All columns of a program's runs describe the run.
        axes = columns or runs.columns[:runs.columns.index("seed") + 1 if "seed" in runs.columns else None]
        own = [one for one in runs.columns if one == "run" or one in axes and one not in table.columns]
        table = table.join(runs.select(own), on="run", maintain_order="left")
        return table.select(columns) if columns else table

    def compare(self, key, what, result, paper="", at_least=None, at_most=None):
        """Adds a result next to the paper's value, and to the target if there is one."""
        result = self.record(key, result)
        low, high = (-math.inf if at_least is None else at_least), (math.inf if at_most is None else at_most)
        target = {(True, True): "", (False, True): f"at least {at_least}", (True, False): f"at most {at_most}"}.get(
            (at_least is None, at_most is None), f"{at_least} to {at_most}")
        found = verdict(result, low, high) if target and result else "inconclusive" if target else ""
        if target:
            self.results[f"{key}_verdict"] = found
        ours = "–" if result is None else f"{result.value:.3f}"
        if result is not None and result.low is not None:
            ours += f" ({result.low:.3f} to {result.high:.3f})"
        self.rows.append([what, ours, paper or "–", target, found])

    def state(self, key, what, holds, paper=""):
        """Adds a statement that is true or false."""
        self.results[key] = holds
        found = "inconclusive" if holds is None else "met" if holds else "missed"
        self.results[f"{key}_verdict"] = found
        self.rows.append([what, {True: "yes", False: "no"}.get(holds, "–"), paper or "–", "yes", found])

    def record(self, key, result):
        """Adds a result to results.json only, with four decimals. Returns it as an estimate.

        A result that is not finite, such as a ratio to zero, is none."""
        result = result if isinstance(result, Estimate) or result is None else Estimate(result)
        result = result if result is not None and math.isfinite(result.value) else None
        self.results[key] = None if result is None else round(result.value, 4)
        if result is not None and result.low is not None:
            self.results[f"{key}_low"], self.results[f"{key}_high"] = round(result.low, 4), round(result.high, 4)
        return result

    def table(self, title, headings, rows):
        """Adds a table. Numbers are formatted by the caller; None is a dash."""
        cells = [["–" if cell is None else str(cell) for cell in row] for row in rows]
        self.parts.append(f"<h3>{html.escape(title)}</h3>{to_html(headings, cells)}")
        self.text_of(title, headings, cells)

    def text_of(self, title, headings, rows):
        print(f"{title}\n\n{to_text(headings, rows)}\n")

    def figure(self, figure, caption):
        """Adds a figure, and writes it as SVG and PDF."""
        number = sum(part.startswith("<figure") for part in self.parts) + 1
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
        figure.savefig(self.folder / f"figure-{number}.pdf", metadata={"CreationDate": None})
        svg = drawn.getvalue()
        (self.folder / f"figure-{number}.svg").write_text(svg, encoding="utf-8")
        plt.close(figure)
        # Identifiers must differ from those of other figures, also of other experiments on one page.
        own = f"{self.about['name']}-{number}-"
        svg = svg[svg.index("<svg"):].replace('id="', f'id="{own}')
        svg = svg.replace("url(#", f"url(#{own}").replace('href="#', f'href="#{own}')
        label = html.escape(caption)
        svg = svg.replace("<svg", f'<svg role="img" aria-label="{label}" style="max-width:100%;height:auto;background:#fff"', 1)
        self.parts.append(f'<figure>{svg}<figcaption class="note">{label}</figcaption></figure>')

    def finish(self):
        """Writes results.json and report.html, and prints the comparison."""
        for datapath in ("sim", "linux"):
            self._describe(self.runs(datapath), datapath)
        heading = ["result", "ours", "the paper's", "target", ""]
        if self.rows:
            self.text_of(self.about["title"], heading, self.rows)
        for text in self.remarks:
            print(textwrap.fill(text, 100))
        if self.deviations:
            print("Deviations from the paper:")
        for text in self.deviations:
            print(textwrap.fill(text, 100, initial_indent="- ", subsequent_indent="  "))
        whole = {**self.results, "deviations": self.deviations, "provenance": self.about["provenance"]}
        text = json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        (self.folder / "results.json").write_text(text, encoding="utf-8")
        listed = "".join(f"<li>{html.escape(text)}</li>" for text in self.deviations)
        body = (
            f'<p class="note">{html.escape(self.about["source"])}</p>'
            + (to_html(heading, self.rows) if self.rows else "") + "".join(self.parts)
            + "".join(f"<p>{html.escape(text)}</p>" for text in self.remarks)
            + (f"<h3>Deviations from the paper</h3><ul>{listed}</ul>" if listed else ""))
        page = self.about["page"].replace("".join(BODY_MARKS), body.join(BODY_MARKS))
        (self.folder / "report.html").write_text(page, encoding="utf-8")

    def _describe(self, runs, datapath):
        """Adds what the audit of runs found, and the runs that failed or were disturbed."""
        if not len(runs):
            return
        if "error" in runs.columns:
            for row in runs.filter(pl.col("error").is_not_null()).iter_rows(named=True):
                self.remarks.append(f"The run {row['run']} ({datapath}) failed: {row['error']}.")
        if "complaints" in runs.columns:
            complaints = runs["complaints"].drop_nulls().unique(maintain_order=True)
            self.remarks += [f"Audit ({datapath}): {text}." for text in complaints]
        if datapath != "sim":
            disturbed = runs["disturbances"].count() if "disturbances" in runs.columns else 0
            self.results["unsound_runs"] = disturbed
            if disturbed:
                self.remarks.append(
                    f"{disturbed} of {len(runs)} runs on real packets were disturbed by other load of this machine: "
                    "the column `disturbances` of runs.csv has the reasons.")


def to_html(headings, rows):
    head = "".join(f'<th scope="col">{html.escape(text)}</th>' for text in headings)
    lines = ("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table class="figures"><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def to_text(headings, rows):
    lines = [list(map(str, row)) for row in (headings, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    aligned = ([cell.ljust(width) if not column else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(line, widths))] for line in lines)
    return "\n".join("  ".join(line).rstrip() for line in aligned)


def cell(value, digits=2):
    """Returns a number as text, None if there is none."""
    return None if value is None else f"{value:.{digits}f}"


def bars(axis, groups, estimates, published=None):
    """Draws a group of bars per name in `groups`, with intervals, and the paper's values as diamonds.

    `estimates` and `published` have a list with one element per group for each label of the legend."""
    width = 0.8 / len(estimates)
    for number, (label, values) in enumerate(estimates.items()):
        places = [group - 0.4 + (number + 0.5) * width for group in range(len(groups))]
        axis.bar(places, [math.nan if one is None else one.value for one in values], 0.95 * width, label=label)
        ends = [(place, one) for place, one in zip(places, values) if one is not None and one.low is not None]
        axis.vlines([place for place, _ in ends], [one.low for _, one in ends], [one.high for _, one in ends], "0.3")
        if published:
            axis.plot(places, published[label], "kD", label=None if number else "paper")
    axis.set_xticks(range(len(groups)), groups)


def line(axis, x, estimates, label, **style):
    """Draws estimates over x as a line with intervals; None is a gap."""
    drawn = axis.plot(x, [math.nan if one is None else one.value for one in estimates], "o-", label=label, **style)
    ends = [(at, one) for at, one in zip(x, estimates) if one is not None and one.low is not None]
    axis.vlines([at for at, _ in ends], [one.low for _, one in ends], [one.high for _, one in ends],
                drawn[0].get_color(), linewidth=1)


def distribution(values, points=200):
    """Returns values and shares of the cumulative distribution of a series, enough of them for a line."""
    ordered = values.drop_nulls().sort()
    ranks = sorted({math.ceil(len(ordered) * step / points) for step in range(1, points + 1)} - {0})
    return ordered.gather([rank - 1 for rank in ranks]), [rank / len(ordered) for rank in ranks]
