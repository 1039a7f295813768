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
    import polars
    import scipy  # noqa: F401
except ModuleNotFoundError:
    if not os.environ.get("CCPLANE_NO_PACKAGES"):
        raise
    print("SKIPPED: test_paper needs polars, matplotlib and scipy", file=sys.stderr)
    raise unittest.SkipTest("polars, matplotlib or scipy is not installed") from None

import bundles  # noqa: E402
import distributions  # noqa: E402
import paper  # noqa: E402


class Statistics(unittest.TestCase):
    def test_a_quantile_is_the_least_value_that_the_share_does_not_exceed(self):
        values = [4, 1, None, 3, 2]
        self.assertEqual([paper.quantile(values, share) for share in (0, 0.25, 0.26, 0.5, 1)], [1, 1, 2, 2, 4])
        self.assertIsNone(paper.quantile([None], 0.5))

    def test_an_estimate_has_the_interval_of_students_t(self):
        found = paper.estimate([1.0, 2.0, 3.0])
        self.assertEqual(found.value, 2.0)
        self.assertAlmostEqual(found.high, 2.0 + 4.303 / 3**0.5, 3)
        self.assertAlmostEqual(found.low, 2.0 - 4.303 / 3**0.5, 3)
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


class Distances(unittest.TestCase):
    def test_a_distance_is_the_largest_gap_of_two_distribution_functions(self):
        pairs = [([1, 2], [2, 1]), ([1], [2]), ([1, 2, 3, 4], [3, 4, 5, 6])]
        self.assertEqual([distributions.ks(*pair) for pair in pairs], [0, 1, 0.5])
        self.assertIsNone(distributions.ks([], [1]))
        # At 1, half of one side and nothing of the other; from 2 on, all of both.
        self.assertEqual([distributions.gap_from([1, 2], [2, 2], least) for least in (0, 1, 2)], [0.5, 0.5, 0])

    def test_halves_of_equal_runs_have_no_distance(self):
        self.assertEqual(distributions.distance_within([[1, 2]] * 4), 0)
        self.assertEqual(distributions.distance([[1, 2]] * 3, [[1, 2]] * 3), 0)
        self.assertEqual(distributions.distance([[1]] * 20, [[2]] * 20), 1)

    def test_the_jackknife_of_a_mean_is_its_standard_error(self):
        found = distributions.jackknife([1, 2, 3], [0, 0, 0], lambda one, other: paper.mean(one) - paper.mean(other))
        self.assertEqual(found.value, 2)
        self.assertAlmostEqual(found.high - found.value, 1.96 * (1 / 3) ** 0.5)
        self.assertIsNone(distributions.jackknife([1], [0, 0], lambda one, other: paper.mean(one) or 0).low)


class Bundles(unittest.TestCase):
    """A bundle that was in pass-through mode from 2 to 5 s and from 8 s on; cross traffic from 1 to 6 s."""

    def test_reactions_are_times_from_start_and_stop_of_cross_traffic(self):
        changes = polars.DataFrame({"time_s": [0.0, 2.0, 5.0, 8.0], "mode": ["delay", "passing", "delay", "passing"]})
        spans = bundles.pass_through_spans(changes, 10.0)
        self.assertEqual(spans, [(2.0, 5.0), (8.0, 10.0)])
        self.assertEqual(bundles.detection_s(spans, 1.0, 6.0), 1.0)
        self.assertEqual(bundles.detection_s([], 1.0, 6.0), 5.0)
        self.assertEqual(bundles.false_exits(spans, 1.0, 6.0), 1)
        # Out of pass-through mode for 1 s at once, and for 3 s only at the end of the run.
        self.assertEqual(bundles.resume_s(spans, 6.0, 10.0, 1.0), 0.0)
        self.assertEqual(bundles.resume_s(spans, 6.0, 10.0, 3.0), 4.0)

    def test_samples_of_a_span_have_a_mode_and_a_queue(self):
        samples = polars.DataFrame({
            "time_ns": [0, 10**9, 2 * 10**9], "mode": [1, 2, 2], "limit_mbit": [8.0, 0.0, 8.0],
            "waiting_bytes": [1000, 1000, 2000], "rtt_ms": [30.0, 40.0, 20.0], "min_rtt_ms": [20.0, 20.0, 0.0]})
        found = samples.filter(bundles.within(0, 2.5)).select(
            share=bundles.mode_share(bundles.PASS_THROUGH), queue=bundles.sendbox_queue_ms(1, 2),
            network=bundles.network_queue_ms(0.5)).row(0)
        self.assertEqual(found, (2 / 3, 1.5, 10.0))
        # The sample without a rate limit does not count; a run without others in this mode has no mean.
        passing = polars.concat([samples.with_columns(run=polars.lit(run)) for run in ("a", "b")])
        self.assertEqual(bundles.passing_queue_ms(passing.with_columns(waiting_bytes=polars.lit(3000))), 3.0)


def evaluate(script, tables, simulated=None, files=()):
    """Runs a script of `papers` with tables in place of those of kernel TCP and of the simulator.

    Returns its results, and the content of `files` under their names."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        both = {"linux": tables, "sim": simulated or {}}
        for datapath, name, rows in ((datapath, *table) for datapath in both for table in both[datapath].items()):
            path = folder / datapath / (name if name in ("runs", "flows", "flows/flows") else f"{name}/{name}")
            path.parent.mkdir(parents=True, exist_ok=True)
            polars.DataFrame(rows, infer_schema_length=None).write_parquet(path.with_suffix(".parquet"))
        about = {"name": "test", "title": "test", "source": "test", "quick": False, "provenance": {},
                 "page": "".join(paper.BODY_MARKS)}
        (folder / "experiment.json").write_text(json.dumps(about))
        path = os.pathsep.join([str(ROOT / "papers"), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run([sys.executable, str(ROOT / "papers" / script), str(folder)], capture_output=True,
                              text=True, env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"})
        if done.returncode:
            raise AssertionError(done.stderr)
        results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        return results | {name: (folder / name).read_bytes() for name in files}


def loopback(contender, gbit, flows=64, place="loopback", cpu=100.0, matched=None):
    """Returns the runs of a contender in rounds, one for each goodput."""
    return [{"run": f"{place} {flows} {contender} {matched} {turn}", "place": place, "flows": flows,
             "contender": contender, "round": turn, "matched": matched, "rate_gbit": 5, "goodput_gbit": one,
             "machine_cpu_percent": cpu, "agent_cpu_percent": 10.0, "reports_per_s": 100.0, "fallbacks": 0}
            for turn, one in enumerate(gbit)]


def loopback_tables(*runs):
    runs = [run for several in runs for run in several]
    samples = [{"run": run["run"], "goodput_gbit": run["goodput_gbit"] + more,
                "cpu_percent": run["machine_cpu_percent"] + more} for run in runs for more in (-1.0, 1.0)]
    return {"runs": runs, "samples": samples}


class Loopback(unittest.TestCase):
    """Contenders over loopback, in turns."""

    def test_a_report_per_ack_is_compared_with_native_of_the_same_round(self):
        found = evaluate("ccp/interval.py", loopback_tables(
            loopback("native:reno", [43, 43, 10], 1), loopback("reno:report=ack", [29, 29, 29], 1),
            loopback("reno:report=10ms", [41, 41, 9], 1),
            *(loopback(f"reno:split=agent:report={report}", [43, 43, 5], 1) for report in ("ack", "rtt", "10ms"))))
        self.assertEqual(found["interval_per_ack_ratio"], 0.6744)
        self.assertEqual(found["interval_10ms_ratio"], 0.9535)
        self.assertEqual(found["interval_native_gbit"], 32.0)
        self.assertEqual(found["interval_agent_10ms_ratio"], 1.0)
        self.assertEqual(found["interval_per_ack_reports_per_s"], 100.0)
        self.assertEqual(found["interval_per_ack_agent_cpu_percent"], 10.0)
        self.assertEqual(found["interval_per_ack_ratio_verdict"], "inconclusive")

    def test_goodput_and_cpu_are_compared_at_their_paths(self):
        paths = {"loopback": [40, 30, 39, 40, 30, 39], "limited": [5] * 6}
        cpu = {"loopback": [200] * 6, "limited": [100, 200, 104, 100, 200, 104]}
        contenders = [name.format(one) for one in ("reno", "cubic")
                      for name in ("native:{}", "{}:report=ack", "{}:report=10ms")]
        found = evaluate("ccp/scalability.py", loopback_tables(*(
            loopback(contender, [paths[place][n]], 64, place, cpu[place][n])
            for place in paths for n, contender in enumerate(contenders))))
        self.assertEqual(found["goodput_ratio_64"], 0.975)
        self.assertEqual(found["goodput_ratio_per_ack_64"], 0.75)
        self.assertEqual((found["cpu_ratio_64"], found["cpu_ratio_64_verdict"]), (1.04, "met"))
        self.assertEqual(found["cpu_ratio_per_ack_64_cubic"], 2.0)
        self.assertEqual((found["cubic_to_reno_goodput"], found["wire_gbit"]), (1.0, 5))
        # Two seconds, 1 % below and above the run's CPU use.
        self.assertEqual((found["wire_cpu_percent_64"], found["wire_cpu_percent_sd_64"]), (104.0, 1.4142))

    def test_a_slow_algorithm_is_compared_with_as_much_computation(self):
        runs = [loopback("native:reno", [40, 40], flows) for flows in (1, 8)]
        for takes in ("0us", "100us", "1ms", "10ms"):
            runs += [loopback(f"slow_reno:takes={takes}", [30, 30], flows) for flows in (1, 8)]
        runs += [loopback("native:reno", [30.3, 30.3], 1, matched="slow_reno:takes=1ms"),
                 loopback("native:reno", [31, 31], 8, matched="slow_reno:takes=1ms")]
        found = evaluate("ccp/slow-algorithm.py", loopback_tables(*runs))
        self.assertEqual(found["slow_10ms_ratio_1"], 0.75)
        self.assertEqual(found["slow_1ms_ratio_fair_1"], 0.9901)
        self.assertEqual((found["slow_1ms_ratio_fair"], found["slow_1ms_ratio_fair_verdict"]), (0.9677, "met"))


CUBIC, SIZES = "native:cubic-without-hystart", (1460, 7300, 14600, 73000, 146000, 730000, 1460000)


class CompletionTimes(unittest.TestCase):
    """RC3's figure 15: flows of seven sizes, whose times in ms are their size over a rate."""

    def test_times_of_ten_flows_have_extremes_and_figures_are_files(self):
        simulated = [{"rate_mbit": rate, "size": size, "start": start, "contender": contender, "acks": acks,
                      "completion_mean_ms": size / rate * (1 if start == "rc3" else 2)}
                     for rate in (10_000, 1000) for size in SIZES for start in ("tcp", "rc3")
                     for contender in (CUBIC, "native:reno") for acks in (1, 2, 4, 8, 16)]
        rates = {"kernel_cubic": 500, "kernel_reno": 500, "udp_tcp": 500, "udp": 1000, "udp_reno": 1010}
        stretch = {"1g": 1, "1g_by10": 10, "10g_by100": 100}
        runs = [{"run": f"{setup} {sender}", "setup": setup, "sender": sender, "rtt_ms": 20 * factor, "stretch": factor}
                for setup, factor in stretch.items() for sender in rates]
        flows = [{"run": run["run"], "bytes": size, "took_ms": run["stretch"] * (size / rates[run["sender"]] + more)}
                 for run in runs for size in SIZES for more in (-1, 0, 3)]
        found = evaluate("rc3/fct.py", {"runs": runs, "flows/flows": flows}, {"runs": simulated},
                         [f"figure-1.{kind}" for kind in ("svg", "pdf")])
        ends = [found[f"fct_1460000_1g_by10_udp{suffix}_ms"] for suffix in ("", "_min", "_max")]
        self.assertEqual(ends, [1470.0, 1469.0, 1473.0])
        # 10 ms of half a round trip, and 1445.5446 and 1460 ms.
        self.assertEqual(found["rc3_cubic_reno_1g_max_difference_pct"], 0.9931)
        self.assertEqual(found["cubic_reno_1g_max_difference_pct"], 0)
        self.assertIn(b"<svg", found["figure-1.svg"])
        self.assertTrue(found["figure-1.pdf"].startswith(b"%PDF"))


def responses(cases, seeds=(11, 12), **columns):
    """Returns the runs of cases, whose median slowdowns are given, of each seed."""
    sizes = ("", "size.<= 10kB.", "size.<= 1MB.", "size.> 1MB.")
    means = {f"{size}slowdown_p{share}": None for size in sizes for share in (50, 99)}
    link = dict.fromkeys(("goodput_mbit", "delay_p50_ms", "delay_p95_ms", "drops_anywhere", "flows_unfinished",
                          "bundle.near -> far.box_queue_ms", "bundle.near -> far.open_share"), 1.0)
    return [{"run": f"{axes} {seed}", **axes, "seed": seed} | means | link | dict.fromkeys(means, median) | columns
            for axes, median in cases for seed in seeds]


class Sites(unittest.TestCase):
    """Bundler's experiments in the simulator and on kernel TCP."""

    def test_medians_under_each_algorithm_of_the_hosts_are_recorded(self):
        medians = {"reno": (1.5, 1.2), "cubic": (1.6, 1.1), "bbr": (2.5, 1.0)}
        cases = [({"hosts": hosts, "case": case}, median) for hosts, both in medians.items()
                 for case, median in zip(("status_quo", "bundler"), both)]
        found = evaluate("bundler/endhost-cc.py", {"runs": responses(cases)}, {"runs": responses(cases)})
        for prefix in ("", "kernel_"):
            self.assertEqual(found[f"{prefix}median_status_quo_bbr"], 2.5)
            self.assertEqual(found[f"{prefix}median_bundler_cubic"], 1.1)
            self.assertEqual((found[f"{prefix}reduction_reno_pct"], found[f"{prefix}reduction_reno_pct_verdict"]),
                             (20.0, "met"))
            self.assertEqual(found[f"{prefix}reduction_bbr_pct"], 60.0)

    def test_medians_under_each_algorithm_of_the_sendbox_are_recorded(self):
        medians = {"status_quo": 1.8, "copa": 1.1, "basic": 1.2, "bbr": 1.9, "bundler": 1.15, "autorate": 1.05}
        cases = [({"case": case}, median) for case, median in medians.items()]
        found = evaluate("bundler/sendbox-cc.py", {"runs": responses(cases[:4])}, {"runs": responses(cases)})
        self.assertEqual([found[f"{prefix}median_basic"] for prefix in ("", "kernel_")], [1.2, 1.2])
        self.assertEqual(found["kernel_median_bbr"], 1.9)
        self.assertNotIn("kernel_median_bundler", found)

    def test_the_timeline_has_the_queue_in_pass_through_mode_by_both_rules(self):
        def tables(entries):
            """Returns the tables of cases that enter pass-through mode at a time, and leave it at 125 s."""
            runs = [{"run": case, "third": "cbr", "case": case, "seed": 11} for case in entries]
            flows = [{"run": case, "workload": "web", "bytes": 1000, "start_s": start, "completion_ms": 10.0,
                      "slowdown": 2.0 if case == "status_quo" else 1.5}
                     for case in entries for start in (30.0, 90.0, 150.0)]
            samples = [{"run": case, "time_ns": second * 10**9, "mode": 2 if entry and entry <= second < 125 else 1,
                        "limit_mbit": 80.0, "waiting_bytes": 100_000 if second < 119 else 700_000,
                        "received_mbit": 80.0, "capacity_mbit": 96.0, "rtt_ms": 60.0, "min_rtt_ms": 50.0}
                       for case, entry in entries.items() for second in range(180)]
            changes = [{"run": case, "time_s": time_s, "mode": mode} for case, entry in entries.items() if entry
                       for time_s, mode in ((0.0, "delay"), (float(entry), "passing"), (125.0, "delay"))]
            return {"runs": runs, "flows": flows, "bundles": samples, "bundle_changes": changes}

        found = evaluate("bundler/timeline.py", tables({"copa": 63, "paper": 100}),
                         tables({"status_quo": None, "copa": 63, "basic": 64, "paper": 61}))
        keys = ("detect", "paper_detect", "kernel_detect", "kernel_paper_detect", "resume")
        self.assertEqual([found[f"{key}_s"] for key in keys], [3.0, 1.0, 3.0, 40.0, 5.0])
        # 56 samples of 10 ms and one of 70 ms, and 19 of 10 ms and one of 70 ms.
        self.assertEqual((found["kernel_passing_queue_ms"], found["kernel_paper_passing_queue_ms"]), (11.0526, 13.0))

    def test_both_of_two_bundles_benefit(self):
        def runs(splits, larger):
            return [{"run": f"{split} {case} 11", "split": split, "case": case, "seed": 11, "goodput_mbit": 90.0,
                     "delay_p50_ms": 8.0, "delay_p95_ms": 18.0}
                    | {f"workload.web{number}.slowdown_p{share}": median + number / 10 if number <= split.count(":") + 1
                       else None for number in (1, 2, 3) for share in (50, 99)}
                    for split in splits for case, median in (("status_quo", 2.4), ("copa", larger), ("basic", 1.3))]

        simulated = runs(("1:1", "2:1", "1:1:1"), 1.2)
        bundles = [{"run": run["run"], "bundle": f"near{number} -> far{number}", "time_ns": second * 10**9, "mode": 1,
                    "limit_mbit": 40.0, "waiting_bytes": 5000} for run in simulated for number in (1, 2, 3)
                   for second in range(5, 9)]
        found = evaluate("bundler/two.py", {"runs": runs(("1:1", "2:1"), 2.25)},
                         {"runs": simulated, "bundles": bundles})
        self.assertEqual((found["median_2_1_copa_1"], found["both_benefit_verdict"]), (1.3, "met"))
        self.assertEqual(found["median_2_1_max"], 1.5)
        self.assertEqual((found["kernel_median_2_1_copa_2"], found["kernel_median_2_1_status_quo_2"]), (2.45, 2.6))
        self.assertEqual((found["kernel_both_benefit"], found["kernel_two_median_max"]), (True, 2.45))


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
            self.assertEqual(results, json.loads((out / "results.json").read_text(encoding="utf-8")))
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
