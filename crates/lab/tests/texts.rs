//! Shipped program files, compared with the same algorithms in Rust that an agent controls: equal
//! goodput and queue.

use std::path::Path;

use ccplane_algorithms::Registry;
use ccplane_lab::result::ContenderMetrics;
use ccplane_lab::scenario::Scenario;
use ccplane_lab::{NoProgress, RunOptions, Sim, run};
use ccplane_lang::{ProgramFile, ProgramLimits, compile};

/// Allowed relative difference of goodput and delay: the agent answers the previous report, a
/// program file the current ACK.
const MARGIN: f64 = 0.03;

/// Returns each contender's metrics on this link.
fn metrics(contenders: [&str; 2], link: &str) -> Vec<ContenderMetrics> {
    let registry = Registry::builtin().with_files(|path| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../algorithms/text");
        std::fs::read_to_string(folder.join(path))
    });
    let text = format!(
        "contenders = [\"{}\", \"{}\"]\nduration = \"40s\"\n[topology.dumbbell]\n{link}\n\
         [[workload]]\nbulk = {{ flows = 1 }}\n",
        contenders[0], contenders[1]
    );
    let scenario =
        Scenario::parse("texts", &text, Path::new(".")).unwrap_or_else(|why| panic!("{why:?}"));
    let options = RunOptions {
        seeds: scenario.seeds,
        threads: 1,
        command: String::new(),
        repeat_command: String::new(),
    };
    let result = run(&Sim::default(), &scenario, &registry, &options, &NoProgress)
        .unwrap_or_else(|why| panic!("{why}"));
    result
        .contenders
        .into_iter()
        .map(|contender| contender.metrics)
        .collect()
}

/// Compares two contenders. In a short queue a difference of one packet is allowed, since Vegas may
/// rest anywhere within its band.
fn alike(contenders: [&str; 2], (link, packet_ms): (&str, f64)) {
    let metrics = metrics(contenders, link);
    let [text, rust] = metrics.as_slice() else {
        panic!("two contenders");
    };
    let apart = |one: f64, other: f64| (one - other).abs() / other.abs().max(1e-9);
    let goodput = apart(text.goodput_mbit, rust.goodput_mbit);
    let delay = apart(text.delay_mean_ms, rust.delay_mean_ms);
    let a_packet = (text.delay_mean_ms - rust.delay_mean_ms).abs() <= packet_ms;
    assert!(
        goodput <= MARGIN && (delay <= MARGIN || a_packet),
        "{contenders:?} at {link}: {} and {} Mbit/s, {} and {} ms",
        text.goodput_mbit,
        rust.goodput_mbit,
        text.delay_mean_ms,
        rust.delay_mean_ms
    );
}

/// Links, each with the transmission time of a packet of 1500 bytes, ms.
const CLEAN: (&str, f64) = (
    "rate = \"24mbit\"\nrtt = \"40ms\"\nqueue = \"droptail:1bdp\"",
    0.5,
);
const FAST_LINK: (&str, f64) = (
    "rate = \"96mbit\"\nrtt = \"20ms\"\nqueue = \"droptail:2bdp\"",
    0.125,
);
const LOSSY: (&str, f64) = (
    "rate = \"24mbit\"\nrtt = \"40ms\"\nqueue = \"droptail:1bdp\"\nloss = \"0.05%\"",
    0.5,
);

#[test]
fn reno() {
    for link in [CLEAN, FAST_LINK, LOSSY] {
        alike(["reno.ccp", "reno"], link);
    }
}

#[test]
fn cubic() {
    for link in [CLEAN, FAST_LINK, LOSSY] {
        alike(["cubic.ccp", "cubic:hystart=off"], link);
    }
}

#[test]
fn copa() {
    for link in [CLEAN, FAST_LINK, LOSSY] {
        alike(["copa.ccp", "copa:mode=default"], link);
    }
    alike(
        ["copa.ccp:packets=10", "copa:mode=default:delta=0.1"],
        CLEAN,
    );
}

#[test]
fn vegas() {
    for link in [CLEAN, FAST_LINK, LOSSY] {
        alike(["vegas.ccp", "vegas"], link);
    }
    alike(
        ["vegas.ccp:alpha=10:beta=20", "vegas:alpha=10:beta=20"],
        CLEAN,
    );
}

#[test]
fn bbr() {
    for link in [CLEAN, FAST_LINK, LOSSY] {
        alike(["bbr.ccp", "bbr:policer=false"], link);
    }
}

/// First program file of the documentation, on the default link of `ccplane run` and on a longer
/// one.
#[test]
fn the_first_text_of_the_documentation_fills_the_link() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/program-files.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let (_, text) = page.split_once("```ccp\n").expect("the page has a text");
    let (text, _) = text.split_once("```").expect("the code block is closed");
    let text = text.to_owned();
    let registry = Registry::builtin().with_files(move |_| Ok(text.clone()));
    for (rtt, least) in [("20ms", 0.98), ("100ms", 0.94)] {
        let scenario = format!(
            "contenders = [\"mine.ccp\"]\nduration = \"15s\"\n[topology.dumbbell]\n\
             rate = \"96mbit\"\nrtt = \"{rtt}\"\n\
             queue = \"droptail:1bdp\"\n[[workload]]\nbulk = {{ flows = 1 }}\n"
        );
        let scenario = Scenario::parse("first", &scenario, Path::new("."))
            .unwrap_or_else(|why| panic!("{why:?}"));
        let options = RunOptions::single(1, "");
        let result = run(&Sim::default(), &scenario, &registry, &options, &NoProgress)
            .unwrap_or_else(|why| panic!("{why}"));
        let used = result.contenders[0].metrics.utilisation;
        assert!(used >= least, "{rtt}: {used}");
    }
}

#[test]
fn shipped_and_documented_programs_are_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder =
        std::fs::read_dir(root.join("crates/algorithms/text")).expect("the folder is there");
    let mut texts: Vec<String> = folder
        .map(|entry| {
            std::fs::read_to_string(entry.expect("a readable directory entry").path())
                .expect("valid UTF-8")
        })
        .collect();
    let page =
        std::fs::read_to_string(root.join("docs/program-files.md")).expect("the page is there");
    texts.extend(
        page.split("```ccp\n")
            .skip(1)
            .filter_map(|block| Some(block.split_once("```")?.0.to_owned())),
    );
    assert!(texts.len() >= 3);
    for text in texts {
        assert!(ProgramFile::has_header(&text));
        let read = ProgramFile::read(&text).unwrap_or_else(|problems| panic!("{problems:#}"));
        let program = read.program(&[]).expect("defaults are valid");
        let compiled =
            compile(&program, &ProgramLimits::default()).expect("it has compiled before");
        let warned = compiled.warnings().map(|warnings| warnings.to_string());
        assert!(
            !read.description().is_empty(),
            "{} says nothing of itself",
            read.name()
        );
        assert!(
            warned.as_deref().is_none_or(|text| text.contains("report")),
            "{warned:?}"
        );
    }
}
