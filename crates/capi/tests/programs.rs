//! C programs compiled against the headers and linked with the library, under AddressSanitizer and
//! UBSan if the compiler supports them.

use std::path::{Path, PathBuf};
use std::process::Command;

use ccplane_agent::{Agent, AgentOptions};
use ccplane_algorithms::{Parameters, Registry};
use ccplane_lang::ProgramLimits;
use ccplane_sim::{
    FlowControl, FlowSpec, LinkSpec, SimOptions, Simulation, SteerOptions, topology,
};
use ccplane_units::{Duration, Rate, Time};
use ccplane_wire::v1;

/// Returns a directory for these tests; cargo's is shared by all crates.
fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi");
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn compiler() -> Command {
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-g"]);
    compiler.arg("-I").arg(home().join("include"));
    compiler
}

/// Returns true if there is a C compiler. Without one the tests are skipped, or fail if skipping is
/// disabled.
fn has_compiler() -> bool {
    let there = compiler().arg("--version").output().is_ok();
    if !there {
        eprintln!("SKIPPED: no C compiler: apt-get install gcc, or set CC");
        assert!(
            std::env::var_os("CCPLANE_NO_SKIP").is_none(),
            "no C compiler"
        );
    }
    there
}

/// Compiles a program and links it with the library. Returns its path; `None` without a compiler.
fn program(name: &str, source: &str) -> Option<PathBuf> {
    program_of(name, &[source], &[])
}

fn program_of(name: &str, sources: &[&str], flags: &[&str]) -> Option<PathBuf> {
    if !has_compiler() {
        return None;
    }
    let to = folder().join(name);
    // The library is in the same directory as the test binary.
    let library = std::env::current_exe()
        .expect("it runs")
        .with_file_name("libccplane_capi.a");
    let compile = |sanitized: bool| {
        let mut compiler = compiler();
        if sanitized {
            compiler.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
        }
        compiler
            .args(flags)
            .args(sources.iter().map(|source| home().join(source)));
        compiler
            .arg(&library)
            .args(["-lpthread", "-ldl", "-lm", "-o"])
            .arg(&to);
        compiler.output().expect("a compiler is installed")
    };
    if !compile(true).status.success() {
        eprintln!("without sanitizers, which the compiler does not have");
        let said = compile(false);
        assert!(
            said.status.success(),
            "{}",
            String::from_utf8_lossy(&said.stderr)
        );
    }
    Some(to)
}

/// Runs a program and returns its output.
fn run(program: &Path, words: &[&str]) -> String {
    let said = Command::new(program).args(words).output().expect("it runs");
    let errors = String::from_utf8_lossy(&said.stderr);
    assert!(
        said.status.success(),
        "{} {words:?}: {}\n{errors}",
        program.display(),
        said.status
    );
    String::from_utf8(said.stdout).expect("a text")
}

/// Returns the number after `"name": ` in a line of JSON.
fn number(json: &str, name: &str) -> f64 {
    let (_, rest) = json
        .split_once(&format!("\"{name}\": "))
        .unwrap_or_else(|| panic!("{name} in {json}"));
    let end = rest.find([',', '}']).unwrap_or(rest.len());
    rest[..end].trim().parse().expect("a number")
}

const SECONDS: u64 = 10;

/// Runs the algorithm on the same link in the simulator. Returns its goodput in Mbit/s, and the
/// mean queueing delay in ms.
fn simulated(name: &str) -> (f64, f64) {
    let rtt = Duration::from_millis(20);
    let access = LinkSpec::new(Rate::from_bits_per_sec(1_000_000_000), Duration::ZERO);
    let link = LinkSpec::new(Rate::from_bits_per_sec(24_000_000), rtt / 2);
    let queue = "droptail:1bdp".parse().expect("a queue");
    let network =
        topology::dumbbell(1, &access, link.clone().with_queue(queue, rtt), link).expect("small");
    let bottleneck = network
        .find_link("bottleneck")
        .expect("a link of the topology");
    let [from, to] =
        ["left1", "right1"].map(|node| network.find_node(node).expect("a node of the topology"));
    let mut sim = Simulation::new(network, SimOptions::seeded(1)).expect("valid");
    let mut agent = Agent::new(AgentOptions::default());
    let algorithm = Registry::builtin()
        .by_name(name, &Parameters::new())
        .expect("it exists");
    agent.add_boxed(algorithm).expect("it compiles");
    let agent = sim.host_agent(agent, SteerOptions::default());
    let spec = FlowSpec::new(from, to).with_congestion(FlowControl::Steered(agent, name.into()));
    let flow = sim.add_flow(spec).expect("a path");
    sim.run_until(Time::from_micros(SECONDS * 1_000_000))
        .expect("no stall");
    let received = sim.flow(flow).expect("it exists").received;
    let link = sim.link(bottleneck).expect("it exists");
    // Subtracts the serialization time of a packet of 1500 bytes.
    let waited = link.sojourn_sum.as_nanos() as f64 / 1e6 / link.accepted as f64 - 0.5;
    (received as f64 * 8.0 / SECONDS as f64 / 1e6, waited)
}

/// The output shown in docs/c.md is the example's output.
#[test]
fn the_page_shows_what_the_example_prints() {
    let Some(udp) = program("udp-page", "../../examples/c/udp.c") else {
        return;
    };
    let page = std::fs::read_to_string(home().join("../../docs/c.md")).expect("the page");
    let shown = page
        .lines()
        .find(|line| line.starts_with("{\"algorithm\""))
        .expect("an output");
    let (begins, _) = shown.split_once("...").expect("the text is truncated");
    let said = run(&udp, &["cubic", "--seconds", "10"]);
    assert!(
        said.starts_with(begins),
        "docs/c.md shows\n{shown}\nbut the example prints\n{said}"
    );
}

/// A datapath that paces has longer ACK trains, and HyStart waits for a train as long as an RTT, as
/// in Linux. Slow start thus overshoots further. docs/c.md gives both numbers.
#[test]
fn the_losses_of_the_example_are_those_of_a_paced_slow_start() {
    let source =
        std::fs::read_to_string(home().join("../../examples/c/udp.c")).expect("the example");
    let paced = "signals->paced = 1;";
    assert!(source.contains(paced));
    let unpaced = folder().join("unpaced.c");
    std::fs::write(&unpaced, source.replace(paced, "signals->paced = 0;")).expect("a file");
    let sources = [
        "../../examples/c/udp.c",
        unpaced.to_str().expect("a plain path"),
    ];
    let page = std::fs::read_to_string(home().join("../../docs/c.md")).expect("the page");
    for (name, source) in ["udp-paced", "udp-unpaced"].into_iter().zip(sources) {
        let Some(udp) = program(name, source) else {
            return;
        };
        let whole = number(&run(&udp, &["cubic", "--seconds", "10"]), "lost");
        let start = number(&run(&udp, &["cubic", "--seconds", "1"]), "lost");
        let paced = name == "udp-paced";
        assert!(
            if paced {
                start > 0.8 * whole
            } else {
                whole < 15.0
            },
            "{name}: {start} of {whole}"
        );
        let shown = if paced {
            format!("\"lost\": {whole},")
        } else {
            format!("it loses {whole}.")
        };
        assert!(page.contains(&shown), "docs/c.md lacks {shown}");
    }
}

/// The example has its own loss detection, retransmission and pacing, and sends packets through
/// sockets. Here it runs in virtual time.
#[test]
fn algorithms_fill_a_link_behind_a_transport_in_c_as_they_do_behind_ours() {
    let Some(udp) = program("udp", "../../examples/c/udp.c") else {
        return;
    };
    for name in ["reno", "cubic", "bbr", "copa"] {
        let said = run(&udp, &[name, "--seconds", &SECONDS.to_string()]);
        let (goodput, waited) = (
            number(&said, "goodput_mbit"),
            number(&said, "queue_mean_ms"),
        );
        let (ours, waited_ours) = simulated(name);
        println!(
            "{name}: {goodput:.2} and ours {ours:.2} Mbit/s, {waited:.2} and ours {waited_ours:.2} \
            ms; {said}"
        );
        assert!(
            (0.8..=1.25).contains(&(goodput / ours)),
            "{goodput} and ours {ours}: {said}"
        );
        // Within 20 %, or half a packet's serialization time if the queue is nearly empty.
        let apart = (waited - waited_ours).abs();
        assert!(
            apart <= f64::max(0.2 * waited_ours, 0.25),
            "{waited} ms and ours {waited_ours}: {said}"
        );
        assert!(goodput > 0.9 * 24.0, "{said}");
        assert_eq!(
            (number(&said, "fallbacks"), number(&said, "corrupt")),
            (0.0, 0.0),
            "{said}"
        );
        assert!(number(&said, "reports") > 100.0, "{said}");
    }
}

/// Briefly runs in real time with the algorithm on a thread.
#[test]
fn the_example_runs_in_real_time() {
    let Some(udp) = program("udp-real", "../../examples/c/udp.c") else {
        return;
    };
    let said = run(&udp, &["cubic", "--seconds", "1", "--mbit", "8", "--real"]);
    assert!(
        number(&said, "goodput_mbit") > 2.0 && number(&said, "corrupt") == 0.0,
        "{said}"
    );
}

#[test]
fn calls_in_any_order_and_structs_of_any_size_read_no_byte_too_many() {
    let Some(native) = program("native", "tests/c/native.c") else {
        return;
    };
    let said = run(&native, &[]);
    assert!(
        number(&said, "outcomes") > 1_000.0 && number(&said, "reports") > 100.0,
        "{said}"
    );
}

/// A typical CCP program: a fold, reports on a loss and at an interval, and a window and a rate set
/// by the agent.
const FOLD: &str = "
(def (Report (volatile acked 0) (volatile loss 0) (volatile timeout false) (volatile rtt +infinity))
    (reportTime 5000) (cap 100))
(when true (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (:= Report.loss (+ Report.loss Ack.lost_pkts_sample)) (:= Report.timeout Flow.was_timeout)
    (:= Report.rtt (min Report.rtt Flow.rtt_sample_us)) (fallthrough))
(when (|| Report.timeout (> Report.loss 0)) (:= Cwnd (* cap 1460)) (report) (:= Micros 0))
(when (> Micros reportTime) (:= Rate (/ Report.acked 3)) (report) (:= Micros 0))";

/// Returns messages of a version 1 agent: two programs, one of them set on a connection with a
/// variable, and updates of variables, window and rate.
fn an_agents_words() -> Vec<u8> {
    let compiled =
        |source| ccplane_lang::compile(source, &ProgramLimits::default()).expect("it compiles");
    let fold = compiled(FOLD);
    let other = compiled(
        "(def (Report (volatile x 0))) (when true (:= Report.x (/ Ack.bytes_acked 2)) (report))",
    );
    let mut words = Vec::new();
    v1::install(&mut words, 2, other.code()).expect("CCP can encode it");
    v1::install(&mut words, 1, fold.code()).expect("CCP can encode it");
    let set = |target, value| ccplane_datapath::Update { target, value };
    let control = |at: u8| ccplane_datapath::CommandTarget::Var(4 + at);
    v1::change_program(&mut words, 1, 2, other.code(), &[]).expect("no value");
    v1::change_program(&mut words, 1, 1, fold.code(), &[set(control(0), 3_000)])
        .expect("a control variable");
    let all = [
        set(control(1), 200),
        set(ccplane_datapath::CommandTarget::Cwnd, 29_200),
        set(ccplane_datapath::CommandTarget::Rate, 1 << 20),
    ];
    v1::update_fields(&mut words, 1, Some(fold.code()), &all).expect("all values can be set");
    words
}

/// Each message is truncated at every length and modified in every byte. It must be rejected and
/// counted without an access outside its bounds, and the datapath must continue to work.
#[test]
fn a_datapath_of_the_reference_survives_whatever_its_agent_says() {
    let Some(dropin) = program("dropin", "tests/c/dropin.c") else {
        return;
    };
    let words = folder().join("an-agents-words");
    std::fs::write(&words, an_agents_words()).expect("the file is writable");
    let said = run(&dropin, &[words.to_str().expect("a path")]);
    println!("{said}");
    assert!(number(&said, "tried") > 5_000.0, "{said}");
    for reason in ["malformed", "programs", "updates", "unknown", "logged"] {
        assert!(number(&said, reason) > 0.0, "{reason}: {said}");
    }
}

/// Compiles the picoquic example against the declarations in `tests/c/picoquic` and runs it without
/// picoquic. Each loss counts once, even if the packet is longer than the current MTU.
#[test]
fn the_picoquic_example_compiles_and_follows_its_algorithm() {
    let sources = [
        "../../examples/picoquic/ccplane_cc.c",
        "tests/c/picoquic/drive.c",
    ];
    let headers = format!("-I{}/tests/c/picoquic", home().display());
    let Some(picoquic) = program_of(
        "picoquic",
        &sources,
        &[&headers, "-Wl,--wrap=ccplane_on_ack"],
    ) else {
        return;
    };
    for name in ["reno", "cubic", "bbr", "copa", "dx"] {
        let said = run(&picoquic, &[name]);
        println!("{name}: {said}");
        assert!(number(&said, "most") > 20.0 * 1440.0, "{name}: {said}");
        if ["reno", "cubic"].contains(&name) {
            assert!(
                number(&said, "least") < number(&said, "most") / 2.0,
                "{name}: {said}"
            );
        }
    }
}

/// Runs a shell command; a failure fails the test.
fn shell(line: &str) {
    let said = Command::new("sh")
        .args(["-ec", line])
        .output()
        .expect("a shell");
    let errors = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success(), "{line}\n{errors}");
}

fn has_tool(name: &str) -> bool {
    Command::new(name).arg("--version").output().is_ok()
}

const CMAKE: &str = "cmake_minimum_required(VERSION 3.13)
project(uses C)
find_package(ccplane 0.1 REQUIRED)
add_executable(native native.c)
target_link_libraries(native ccplane::ccplane)
add_executable(dropin dropin.c)
target_link_libraries(dropin ccplane::libccp)
add_executable(fixed native.c)
target_link_libraries(fixed ccplane::static)
";

/// The installed library is found by -lccp, pkg-config and CMake, and works.
#[test]
fn the_installation_is_found_by_pkg_config_and_cmake() {
    if !has_compiler() {
        return;
    }
    let to = folder().join("installed");
    let _ = std::fs::remove_dir_all(&to);
    let built = std::env::current_exe().expect("it runs");
    let built = built.parent().expect("in a directory").display();
    let (home, to) = (home().display(), to.display());
    std::fs::create_dir_all(format!("{to}/cmake")).expect("the directory can be created");
    std::fs::write(format!("{to}/words"), an_agents_words()).expect("the file is writable");
    std::fs::write(format!("{to}/cmake/CMakeLists.txt"), CMAKE).expect("the file is writable");
    shell(&format!("{home}/../../scripts/install-c {to} {built}"));
    let cc = "${CC:-cc} -std=c11";
    shell(&format!(
        "{cc} -I {to}/include/ccplane {home}/tests/c/dropin.c -L {to}/lib/ccplane \
         -lccp -Wl,-rpath,{to}/lib -o {to}/dropin; {to}/dropin {to}/words"
    ));
    if has_tool("pkg-config") {
        shell(&format!(
            "export PKG_CONFIG_PATH={to}/lib/pkgconfig; {cc} {home}/../../examples/c/udp.c \
             $(pkg-config --cflags --libs ccplane) -o {to}/udp; \
             {to}/udp reno --seconds 0.1; pkg-config --exists ccplane-libccp"
        ));
    }
    if has_tool("cmake") {
        shell(&format!(
            "cd {to}/cmake; cp {home}/tests/c/*.c .; cmake -DCMAKE_PREFIX_PATH={to} . ; \
             cmake --build . ; ./native; ./fixed; ./dropin {to}/words"
        ));
    }
}
