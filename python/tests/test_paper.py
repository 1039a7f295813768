"""Published experiments: the module that all scripts share, and the example of docs/papers.md."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "papers"))

try:
    import matplotlib  # noqa: F401
    import polars  # noqa: F401
except ModuleNotFoundError:
    if not os.environ.get("CCPLANE_NO_PACKAGES"):
        raise
    print("SKIPPED: test_paper needs polars and matplotlib", file=sys.stderr)
    raise unittest.SkipTest("polars and matplotlib are not installed") from None

import bundles  # noqa: E402
import paper  # noqa: E402


class Statistics(unittest.TestCase):
    def test_a_quantile_is_the_least_value_that_the_share_does_not_exceed(self):
        values = [4, 1, None, 3, 2]
        self.assertEqual([paper.quantile(values, share) for share in (0, 0.25, 0.26, 0.5, 1)], [1, 1, 2, 2, 4])
        self.assertIsNone(paper.quantile([None], 0.5))

    def test_an_estimate_has_the_interval_of_students_t(self):
        found = paper.estimate([1.0, 2.0, 3.0])
        self.assertEqual(found.value, 2.0)
        self.assertAlmostEqual(found.high, 2.0 + 4.303 / 3**0.5)
        self.assertAlmostEqual(found.low, 2.0 - 4.303 / 3**0.5)
        self.assertIsNone(paper.estimate([1.0]).low)
        self.assertIsNone(paper.estimate([None]))

    def test_a_ratio_is_of_pairs(self):
        found = paper.paired_ratio([(2.0, 1.0), (1.0, 2.0)])
        self.assertAlmostEqual(found.value, 1.0)
        self.assertAlmostEqual(found.low * found.high, 1.0)
        self.assertIsNone(paper.paired_ratio([(1.0, 0.0)]))

    def test_the_whole_interval_decides(self):
        estimates = [(1, None, None), (1, 0.8, 1.1), (1, 0.5, 2.0), (3, 2.0, 4.0)]
        found = [paper.verdict(paper.Estimate(*one), 0.7, 1.2) for one in estimates]
        self.assertEqual(found, ["met", "met", "inconclusive", "missed"])

    def test_jain_is_one_for_equal_shares(self):
        self.assertEqual(paper.jain([2, 2]), 1)
        self.assertEqual(paper.jain([1, 0]), 0.5)
        self.assertIsNone(paper.jain([1]))


class Example(unittest.TestCase):
    """The example of the documentation runs as printed."""

    def test_the_example_writes_a_page_with_its_figure(self):
        page = (ROOT / "docs/papers.md").read_text()
        block = {kind: re.search(f"```{kind}\n(.*?)```", page, re.S)[1] for kind in ("toml", "python")}
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "mine.toml").write_text(block["toml"])
            (folder / "mine.py").write_text(block["python"])
            out = folder / "results"
            command = [os.environ["CCPLANE_PAPER"], str(folder / "mine.py"), "--quick", "--out", str(out), "--json"]
            done = subprocess.run(
                command, env={**os.environ, "CCPLANE_PYTHON": sys.executable}, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            results = json.loads(done.stdout)
            self.assertEqual(results, json.loads((out / "results.json").read_text()))
            self.assertGreater(results["utilisation_cubic"], 0.3)
            self.assertLess(results["utilisation_cubic_low"], results["utilisation_cubic_high"])
            self.assertIn(results["utilisation_reno_verdict"], ("met", "missed", "inconclusive"))
            self.assertEqual(len(results["deviations"]), 1)
            self.assertTrue(results["provenance"]["quick"])
            report = (out / "report.html").read_text()
            for part in ("<svg", "Utilisation by the size of the buffer", "at least 0.7", "Deviations from the paper"):
                self.assertIn(part, report)
            # The page is made again without the command, with the same bytes.
            again = subprocess.run([sys.executable, "mine.py", "."], cwd=out, capture_output=True, text=True)
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertEqual((out / "report.html").read_text(), report)


if __name__ == "__main__":
    unittest.main()
