use std::path::PathBuf;

use super::*;
use crate::progress::NoProgress;
use crate::sim::Sim;

const SCENARIO: &str = "\
duration = \"1s\"
contenders = [\"reno\"]
[topology.dumbbell]
rate = \"10mbit\"
rtt = \"20ms\"
loss = \"0.5%\"
[[workload]]
bulk = {}
";

const SWEEP: &str = "\
scenario = \"base.toml\"
seeds = \"1..2\"
[grid]
contenders = [\"cubic\", \"cubic:report={report}\"]
report = [\"10ms\", \"20ms\"]
topology.dumbbell.rate = [\"5mbit\", \"10mbit\"]
";

/// Folder of one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("ccplane-sweep-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("base.toml"), SCENARIO).unwrap();
        Folder(path)
    }

    fn plan(&self, text: &str) -> SweepPlan {
        let sweep = Sweep::parse("sweep.toml", text, &self.0).unwrap();
        SweepPlan::new(sweep, &Sim::default(), &Registry::builtin()).unwrap()
    }

    fn run(&self, text: &str, out: &str, options: &SweepOptions) -> (usize, String) {
        let plan = self.plan(text);
        let mut store = RunStore::open(&self.0.join(out)).unwrap();
        let (sim, registry) = (Sim::default(), Registry::builtin());
        let made = run(&plan, &sim, &registry, options, &mut store, &NoProgress).unwrap();
        (made, RunTable::of_runs(&plan.planned, &store).to_csv())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn options() -> SweepOptions {
    SweepOptions {
        threads: 1,
        shard: None,
        limit: None,
        keep: None,
        flows: false,
        cpu_time: || None,
        machine: "test".to_owned(),
    }
}

#[test]
fn the_table_depends_on_neither_threads_nor_shards_nor_interruptions() {
    let folder = Folder::new("table");
    let (made, csv) = folder.run(SWEEP, "one", &options());
    // Cubic alone with two rates, and with two intervals of reports: six points, two seeds.
    assert_eq!((made, csv.lines().count()), (12, 13));
    let two = SweepOptions {
        threads: 2,
        ..options()
    };
    assert_eq!(folder.run(SWEEP, "two", &two), (12, csv.clone()));
    // Interrupted after five runs, and then in the middle of a line.
    let five = SweepOptions {
        limit: Some(5),
        ..options()
    };
    assert_eq!(folder.run(SWEEP, "cut", &five).0, 5);
    let file = folder.0.join("cut").join(store::FINISHED_FILE);
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 7]).unwrap();
    assert_eq!(folder.run(SWEEP, "cut", &options()), (8, csv.clone()));
    assert_eq!(folder.run(SWEEP, "cut", &options()), (0, csv.clone()));
    // Three machines.
    let mut store = RunStore::in_memory();
    for index in 1..=3 {
        let shard = SweepOptions {
            shard: Some(Shard { index, count: 3 }),
            ..options()
        };
        let out = format!("shard-{index}");
        assert_eq!(folder.run(SWEEP, &out, &shard).0, 4);
        store.read(&folder.0.join(out)).unwrap();
    }
    let planned = folder.plan(SWEEP).planned;
    assert_eq!(RunTable::of_runs(&planned, &store).to_csv(), csv);
    // The plan is data that survives its file.
    let text = serde_json::to_string(&planned).unwrap();
    assert_eq!(
        serde_json::from_str::<PlannedSweep>(&text).unwrap(),
        planned
    );
}

#[test]
fn a_changed_grid_keeps_what_was_done() {
    let folder = Folder::new("changed");
    folder.run(SWEEP, "out", &options());
    let more = SWEEP
        .replace("\"5mbit\", \"10mbit\"", "\"10mbit\", \"20mbit\"")
        .replace("1..2", "1..3");
    // Of nine runs per rate, six with 10 Mbit/s exist.
    assert_eq!(folder.run(&more, "out", &options()).0, 18 - 6);
    // Another scenario is another run.
    std::fs::write(folder.0.join("base.toml"), SCENARIO.replace("20ms", "30ms")).unwrap();
    assert_eq!(folder.run(&more, "out", &options()).0, 18);
}

#[test]
fn values_with_units_are_numbers() {
    let folder = Folder::new("units");
    let (_, csv) = folder.run(SWEEP, "out", &options());
    let mut lines = csv.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    assert_eq!(
        names[..7],
        [
            "run",
            "contender",
            "report_ms",
            "rate_mbit",
            "algorithm",
            "seed",
            "goodput_mbit"
        ]
    );
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0][1..6], ["cubic", "", "5", "cubic", "1"]);
    assert_eq!(
        rows[11][1..6],
        ["cubic", "20", "10", "cubic:report=20ms", "2"]
    );
    for row in &rows {
        let (rate, goodput): (f64, f64) = (row[3].parse().unwrap(), row[6].parse().unwrap());
        assert!(goodput > 0.3 * rate && goodput < rate, "{row:?}");
    }
}

#[test]
fn a_mistake_of_a_late_point_is_found_before_the_first_run() {
    let folder = Folder::new("mistake");
    let wrong = |grid: &str| {
        let text = format!("scenario = \"base.toml\"\n[grid]\n{grid}\n");
        let sweep = Sweep::parse("sweep.toml", &text, &folder.0).unwrap();
        let Err(error) = SweepPlan::new(sweep, &Sim::default(), &Registry::builtin()) else {
            panic!("{grid} is wrong")
        };
        error.to_string()
    };
    let text = wrong("topology.dumbbell.rate = [\"5mbit\", \"5mbt\"]");
    assert!(text.starts_with("sweep.toml:3: `5mbt`"), "{text}");
    let text = wrong("contenders = [\"cubic\", \"cubik\"]");
    assert!(text.contains("cubik"), "{text}");
    // Found when the network is built, not in the text.
    let text = wrong("workload.1.from = [\"left1\", \"left9\"]");
    assert!(text.contains("left9"), "{text}");
}

#[test]
fn a_run_that_fails_is_a_row() {
    let folder = Folder::new("failure");
    let planned = folder.plan(SWEEP).planned;
    let mut store = RunStore::in_memory();
    let timing = || RunTiming::new(None, None, "test");
    let failed = RunRow::failed(
        &planned.ids[3],
        "the simulation panicked: x, \"y\"",
        timing(),
    );
    store.add(failed).unwrap();
    let csv = RunTable::of_runs(&planned, &store).to_csv();
    let row = csv.lines().nth(1).unwrap();
    assert!(row.starts_with(&planned.ids[3]), "{row}");
    assert!(
        row.ends_with("\"the simulation panicked: x, \"\"y\"\"\""),
        "{row}"
    );
    let html = page(&planned, &RunTable::of_runs(&planned, &store), "", "");
    assert!(html.contains("11 runs are missing"));
    assert!(html.contains("the simulation panicked"));
}

#[test]
fn a_page_shows_lines_heat_maps_and_points() {
    let folder = Folder::new("page");
    let plan = folder.plan(SWEEP);
    let mut store = RunStore::in_memory();
    let (sim, registry) = (Sim::default(), Registry::builtin());
    run(&plan, &sim, &registry, &options(), &mut store, &NoProgress).unwrap();
    let table = RunTable::of_runs(&plan.planned, &store);
    let html = page(&plan.planned, &table, "ccplane sweep x.toml", "test");
    for part in [
        "12 runs: 6 points × 2 seeds",
        "Goodput over delay",
        "Over report, ms",
        "Over rate, Mbit/s",
        "report, ms and rate, Mbit/s",
        "class=\"heat\"",
        "ccplane sweep x.toml",
    ] {
        assert!(html.contains(part), "{part}");
    }
}

/// Each kind of time series of a run with two flows and a bundle.
#[test]
fn a_run_keeps_its_time_series() {
    let text = "\
base = \"22-bundle\"
seeds = 3
[scenario]
contenders = [\"bundler\"]
duration = \"3s\"
warm = \"0s\"
sample = \"100ms\"
workload = [
    { name = \"a\", from = \"server\", to = \"client\", bulk = { flows = 2, stagger = \"1s\" } },
    { name = \"b\", from = \"server\", to = \"client\", requests = { response = { fixed = \"5kB\" }, think = \"20ms\" } },
]
";
    let folder = Folder::new("series");
    let plan = folder.plan(text);
    let (sent, tables) = std::sync::mpsc::channel();
    let keep = move |id: &str, scenario: &Scenario, result: &RunResult| {
        let contender = result.contenders.first().ok_or(Error::NoContender)?;
        let tables = RunSeries::ALL.map(|kind| kind.table(id, scenario, contender));
        let _ = sent.send((id.to_owned(), tables));
        Ok(())
    };
    let options = SweepOptions {
        keep: Some(Box::new(keep)),
        ..options()
    };
    let mut store = RunStore::in_memory();
    let (sim, registry) = (Sim::default(), Registry::builtin());
    run(&plan, &sim, &registry, &options, &mut store, &NoProgress).unwrap();
    let (id, [samples, bundles, changes, delays, bins]) = tables.recv().unwrap();
    assert_eq!(id, plan.planned.ids[0]);
    let samples = samples.unwrap();
    let names: Vec<&str> = samples.columns.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "run",
            "workload",
            "flow",
            "start_s",
            "end_s",
            "time_ns",
            "received_bytes",
            "cwnd_segments",
            "srtt_us"
        ]
    );
    let cell = |name: &str, row| samples.column(name).unwrap().text(row);
    let rows = || 0..samples.rows();
    let of_flow = |flow: &str| rows().filter(|row| cell("flow", *row) == flow).count();
    // Both flows, and the courses of both workloads.
    assert!(of_flow("1") > 20 && of_flow("2") > 20 && of_flow("") > 40);
    let second = rows().find(|row| cell("flow", *row) == "2").unwrap();
    assert_eq!(
        (cell("workload", second), cell("start_s", second)),
        ("a".to_owned(), "1".to_owned())
    );
    assert!(rows().any(|row| cell("workload", row) == "b"));
    assert!(bundles.unwrap().column("rtt_ms").unwrap().number(20) > Some(0.0));
    assert_eq!(changes.unwrap().column("mode").unwrap().text(0), "delay");
    let delays = delays.unwrap();
    let last = delays.column("share").unwrap().number(delays.rows() - 1);
    assert_eq!((delays.rows(), last), (1_001, Some(1.0)));
    let bins = bins.unwrap();
    let peak = |name: &str| {
        let column = bins.column(name).unwrap();
        (0..bins.rows())
            .filter_map(|row| column.number(row))
            .fold(0.0, f64::max)
    };
    assert!(peak("throughput_mbit") > 10.0 && peak("delay_ms") > 0.0);
}

#[test]
fn two_different_results_of_a_run_are_a_conflict() {
    let row = |digest: &str| RunRow {
        id: "a".to_owned(),
        metrics: Vec::new(),
        digest: digest.to_owned(),
        error: None,
        complaints: Vec::new(),
        disturbances: Vec::new(),
        flows: Vec::new(),
        timing: RunTiming::default(),
    };
    let mut store = RunStore::in_memory();
    store.add(row("1")).unwrap();
    store.add(row("1")).unwrap();
    assert!(matches!(
        store.add(row("2")),
        Err(StoreError::Conflict { .. })
    ));
}

/// A repeated run replaces one that was disturbed more, also when the file is read again.
#[test]
fn a_less_disturbed_run_replaces_another() {
    let folder = Folder::new("disturbed");
    let row = |goodput: f64, disturbances: &[&str]| RunRow {
        id: "a".to_owned(),
        metrics: vec![("goodput_mbit".to_owned(), goodput)],
        digest: String::new(),
        error: None,
        complaints: Vec::new(),
        disturbances: disturbances.iter().map(|text| (*text).to_owned()).collect(),
        flows: Vec::new(),
        timing: RunTiming::default(),
    };
    let mut store = RunStore::open(&folder.0).unwrap();
    let of = |store: &RunStore| {
        (
            store.row("a").unwrap().metrics[0].1,
            store.is_disturbed("a"),
        )
    };
    store.add(row(1.0, &["busy", "late"])).unwrap();
    store.add(row(2.0, &["busy", "late"])).unwrap();
    assert_eq!(of(&store), (1.0, true));
    store.add(row(3.0, &[])).unwrap();
    store.add(row(4.0, &["busy"])).unwrap();
    assert_eq!(of(&store), (3.0, false));
    drop(store);
    assert_eq!(of(&RunStore::open(&folder.0).unwrap()), (3.0, false));
}

#[test]
fn a_second_process_is_refused() {
    let folder = Folder::new("lock");
    let _first = RunStore::open(&folder.0).unwrap();
    assert!(matches!(
        RunStore::open(&folder.0),
        Err(StoreError::InUse { .. })
    ));
}

#[test]
fn shards_are_counted_from_one() {
    assert_eq!(
        "3/16".parse(),
        Ok(Shard {
            index: 3,
            count: 16
        })
    );
    for wrong in ["0/2", "3/2", "1", "a/b", "1/0"] {
        assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
    }
}
