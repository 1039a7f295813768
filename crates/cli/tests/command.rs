//! Error handling of the command: bad input yields one clear message and an exit code, and leaves
//! nothing behind.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::common::{
    RunCommand, ccplane, empty_folder, fails, is_root, printed, printed_json, said, skip,
    unused_path, unwrapped, write_file,
};

/// Existing namespaces of ccplane, of any process.
fn namespaces() -> Vec<String> {
    let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    entries
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .filter(|n| n.starts_with("ccplane-"))
        .collect()
}

#[test]
fn a_program_with_an_error_shows_the_line_and_the_fix() {
    let file = write_file(
        "typo.ccp",
        "(def (Report (volatile acked 0)))\n(when true\n    (:= Report.acked (+ Report.aked Ack.bytes_acked)))\n",
    );
    fails(
        ccplane("check").arg(&file),
        1,
        &["Report.aked", "Report.acked", "3"],
    );
    let file = write_file(
        "open.ccp",
        "(def (Report (volatile acked 0))\n(when true (report))\n",
    );
    fails(ccplane("check").arg(&file), 1, &["("]);
}

#[test]
fn wrapped_messages_are_read_as_one_line() {
    let wrapped = "  × cannot write /dev/\n  │ full: no space\n  │ left\n  help: see 01-one-\n        \
        flow, - or\n        x -\n        y\n";
    assert_eq!(
        unwrapped(wrapped.as_bytes()),
        "× cannot write /dev/full: no space left help: see 01-one-flow, - or x - y"
    );
}

#[test]
fn suspicious_programs_cause_warnings() {
    let file = write_file(
        "warned.ccp",
        "(def)\n(when (> Flow.queue_delay_ns 5ms)\n    (report))\n",
    );
    let (code, said) = said(ccplane("check --quiet").arg(&file));
    assert!(
        code == 0 && said.contains("5000000") && said.contains("2:30"),
        "{said}"
    );
    fails(
        ccplane("check --quiet --strict").arg(&file),
        1,
        &["1 warning", "--strict"],
    );
    let object = printed_json(ccplane("check --json").arg(&file));
    let warning = &object["warnings"][0];
    assert_eq!(
        (warning["code"].as_str(), warning["line"].as_u64()),
        (Some("lang::unit"), Some(2)),
        "{object}"
    );
}

#[test]
fn a_program_without_errors_shows_what_it_costs() {
    let file = write_file(
        "fine.ccp",
        "(def (Report (volatile n 0)))\n(when true (:= Report.n (+ Report.n 1)) (report))\n",
    );
    let object = printed_json(ccplane("check --json").arg(&file));
    assert_eq!(object["report"], serde_json::json!(["n"]));
    assert_eq!(object["instructions_worst"], 2);
    assert!(object["ebpf_instructions"].as_u64() > Some(2));
    let text = printed(ccplane("check").arg(&file));
    for part in ["# typed tree", "# bytecode", "# eBPF", "at most 2 per ACK"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(
        text.find("no errors") < text.find("# typed tree"),
        "the verdict comes first: {text}"
    );
}

#[test]
fn invalid_quantities_are_usage_errors() {
    for (arguments, says) in [
        ("run --alg reno --rate 96", &["--rate", "mbit"][..]),
        ("run --alg reno --rtt 20", &["--rtt", "ms"]),
        (
            "run --alg reno --queue fifo:1bdp",
            &["fifo", "droptail", "fq_codel"],
        ),
        ("run --alg reno --loss 200%", &["--loss"]),
        ("run", &["--alg"]),
        ("attach --alg reno --percent 0 --system", &["--percent"]),
        ("attach --alg reno --percent 5", &["--system"]),
        (
            "attach --alg reno --limits min_cwnd=30kB,max_cwnd=3kB",
            &["min_cwnd is above max_cwnd: 30kB"],
        ),
        (
            "attach --alg reno --limits max_rat=1mbit",
            &["--limits", "at character 1", "did you mean `max_rate`?"],
        ),
        ("attach --alg reno --to 10.0.0.0/99", &["10.0.0.0/99"]),
        ("attach --alg native:reno", &["kernel algorithm"]),
        (
            "attach --alg dx --dev lo,lo",
            &["--dev: lo is listed twice"],
        ),
    ] {
        fails(arguments, 2, says);
    }
}

/// `--limits` replaces `CCPLANE_LIMITS` as a whole.
#[test]
fn limits_of_the_command_line_replace_those_of_the_environment() {
    // Too many tags: an error that is found after the limits are checked.
    let tags: Vec<String> = (0..9).map(|number| format!("--tag=t{number}=x")).collect();
    let attach = |environment: &str, limits: &[&str]| {
        let output = ccplane("attach --config /dev/null --alg reno --json")
            .args(limits)
            .args(&tags)
            .env("CCPLANE_LIMITS", environment)
            .run();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        told["error"].as_str().unwrap_or_default().to_owned()
    };
    let limits = "min_cwnd=30kB,max_cwnd=3kB";
    let from_environment = attach(limits, &[]);
    assert!(
        from_environment.starts_with("min_cwnd is above max_cwnd: 30kB")
            && from_environment.contains("environment, 3kB"),
        "{from_environment}"
    );
    let from_option = attach(
        "min_cwnd=50kB,max_cwnd=5kB",
        &["--limits", "min_cwnd=40kB,max_cwnd=4kB"],
    );
    assert!(
        from_option.starts_with("min_cwnd is above max_cwnd: 40kB")
            && from_option.contains(", 4kB"),
        "{from_option}"
    );
    for (environment, option) in [
        (limits, "max_rate=1gbit"),
        ("min_cwnd=30kB", "max_cwnd=3kB"),
        ("max_cwnd=3kB", "min_cwnd=30kB"),
    ] {
        let valid = attach(environment, &["--limits", option]);
        assert!(valid.contains("tags"), "{environment}, {option}: {valid}");
    }
}

#[test]
fn bench_python_runs_the_python_package() {
    let bench = |name: &str, python: Option<&str>| {
        let folder = empty_folder(name);
        if let Some(program) = python {
            symlink(program, folder.join("python3")).expect("the test's folder can be written");
        }
        let output = ccplane("bench python --json").env("PATH", &folder).run();
        let told =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (output.status.code(), told.concat())
    };
    let (code, told) = bench("python", Some("/bin/echo"));
    assert_eq!(
        (code, &*told),
        (
            Some(0),
            "-I -c import ccplane\n-I -m ccplane.bench --json\n"
        )
    );
    for (name, python, says) in [
        (
            "no-package",
            Some("/bin/false"),
            "python3 does not find the package ccplane",
        ),
        ("no-python", None, "python3 cannot be run"),
    ] {
        let (code, told) = bench(name, python);
        assert_eq!(code, Some(3), "{told}");
        let told = unwrapped(told.as_bytes());
        assert!(
            told.contains(says) && told.contains("make python"),
            "{told}"
        );
    }
}

#[test]
fn an_unknown_algorithm_is_an_error_with_suggestions() {
    fails("attach --alg cubik", 2, &["cubik", "did you mean `cubic`"]);
    fails(
        "attach --alg cubic:hystart=sometimes",
        2,
        &["sometimes", "hystart"],
    );
    if nix::unistd::geteuid().is_root() {
        for (arguments, says) in [
            ("run --alg cubik --duration 1s", &["cubik", "cubic"][..]),
            ("run --vs native:cubik --duration 1s", &["cubik", "cubic"]),
            ("detach --to cubik", &["cubik"]),
            (
                "run --agent unix:/run/none --vs native:cubic --datapath linux",
                &["nothing to run", "--alg"],
            ),
            (
                "run 02-fairness --agent tls://localhost:4700 --vs native:cubic --datapath linux",
                &["nothing to run", "--alg"],
            ),
        ] {
            fails(arguments, 2, says);
        }
    }
}

#[test]
fn a_bare_number_is_not_a_probability() {
    for loss in ["1", "5"] {
        fails(
            ccplane("run --alg reno --loss").arg(loss),
            2,
            &["without a %", "1%", "100%"],
        );
    }
    for loss in ["1", "1.0"] {
        fails(
            ccplane("emu --loss").arg(loss).args(["--", "true"]),
            2,
            &["without a %"],
        );
    }
    let red = "red:min=20kB:max=60kB:probability=1";
    fails(
        ccplane("run --alg reno --queue").arg(red),
        2,
        &["--queue", "without a %"],
    );
    let scenario = |loss: &str| {
        format!(
            "contenders = [\"reno\"]\nduration = \"1s\"\n[topology.dumbbell]\nrate = \"9mbit\"\nrtt = \"9ms\"\nloss = {loss}\n"
        )
    };
    for loss in ["1", "1.0", "\"1\"", "5"] {
        fails(
            ccplane("run").arg(write_file("loss.toml", &scenario(loss))),
            2,
            &["loss.toml:6", "%"],
        );
    }
}

#[test]
fn algorithms_for_gateways_are_not_attached_to_a_host() {
    for name in ["bundler", "autorate", "bundler:law=basic"] {
        fails(
            ccplane("attach --alg").arg(name).arg("--system"),
            2,
            &["ccplane gateway run", "not single TCP connections"],
        );
        let config = write_file("gateway.toml", &format!("algorithms = [\"{name}\"]\n"));
        fails(
            ccplane("config check").arg(&config),
            2,
            &["ccplane gateway run"],
        );
    }
}

#[test]
fn a_trace_with_garbage_names_file_and_line() {
    let file = write_file("bad.trace", "1\n2\nx\n");
    fails(
        ccplane("run --alg reno --trace").arg(&file),
        2,
        &["bad.trace", "line 3"],
    );
    let file = write_file("back.trace", "5\n3\n");
    fails(
        ccplane("emu --trace").arg(&file).args(["--", "true"]),
        2,
        &["back.trace", "line 2"],
    );
    fails("emu --trace /no/such -- true", 2, &["/no/such"]);
    let file = write_file("empty.trace", "");
    fails(
        ccplane("emu --trace").arg(&file).args(["--", "true"]),
        2,
        &["empty.trace"],
    );
}

/// The diagnostic quotes text of a file that an attacker may have written.
#[test]
fn control_characters_of_a_file_are_escaped() {
    let hostile = "\x1b]0;title\x07\x1b[2J\u{9b}1A";
    let scenario = write_file(
        "hostile.toml",
        &format!("# {hostile}\nname = \"{hostile}\"\n"),
    );
    let program = write_file(
        "hostile.ccp",
        &format!("(def (Report (volatile {hostile} 0)))\n; {hostile}\n"),
    );
    let named = write_file(&format!("{hostile}.ccp"), "(def\n");
    for (command, file) in [
        ("run", &scenario),
        ("check", &program),
        ("check", &named),
        ("run", &named),
    ] {
        let output = ccplane(command).arg(file).run();
        assert!(!output.status.success(), "{command} {file:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        let found = text.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(found, None, "{command} {file:?}: {text:?}");
    }
}

#[test]
fn an_error_as_json_is_one_object() {
    let output = "--json attach --alg native:reno".run();
    let object: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(object["kind"], "usage");
    assert!(
        object["hint"]
            .as_str()
            .is_some_and(|h| h.contains("ccplane algorithms"))
    );
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn doctor_answers_everywhere() {
    let object = printed_json("doctor --json");
    let checks = object["checks"].as_array().expect("a list");
    assert!(
        checks
            .iter()
            .all(|c| c["ok"] == true || c["fix"].is_string()),
        "{object}"
    );
}

#[test]
fn without_privileges_the_error_lists_what_is_missing_and_what_works() {
    if !nix::unistd::geteuid().is_root() {
        fails("run --vs native:reno", 3, &["root", "--datapath sim"]);
        return;
    }
    // Runs as an unprivileged user, who cannot execute files in root's folders.
    let copy = std::env::temp_dir().join(format!("ccplane-test-{}", std::process::id()));
    crate::common::copy_command(&copy);
    let nobody = |arguments: &str| {
        use std::os::unix::process::CommandExt;
        let output = Command::new(&copy)
            .args(arguments.split_whitespace())
            .uid(65534)
            .gid(65534)
            .current_dir("/")
            .output();
        output.expect("the copy starts")
    };
    let before = namespaces();
    let checks: Value =
        serde_json::from_slice(&nobody("doctor --json").stdout).expect("one JSON object");
    // The whole message about what is missing.
    let lacks = |needs: &[&str]| {
        let all = checks["checks"].as_array().expect("a list").iter();
        let missing = all.filter(|check| {
            check["ok"] == false && needs.iter().any(|need| check["need"] == *need)
        });
        let mut text = "this host lacks what the command requires:".to_owned();
        for check in missing {
            let part = |key: &str| check[key].as_str().unwrap_or_default();
            text += &format!("\n  - {}: {}; {}", part("name"), part("found"), part("fix"));
        }
        text
    };
    let unprivileged = "`ccplane run --datapath sim`, `ccplane evaluate`, `ccplane paper \
        --datapath sim`, `ccplane send`, `ccplane recv` and `ccplane check PROGRAM` work without \
        privileges; `ccplane doctor` shows all checks";
    let native = "`native:reno` is a kernel algorithm, so the run uses kernel TCP; to use the \
        simulator's model of it, which needs no privileges, add `--datapath sim`";
    for (arguments, needs, hint) in [
        (
            "run --json --alg reno --vs native:reno",
            &["emulator", "kernel_tcp"][..],
            native,
        ),
        (
            "run --json --alg reno --datapath linux",
            &["emulator", "kernel_tcp"],
            unprivileged,
        ),
        ("attach --json --alg reno", &["kernel_tcp"], unprivileged),
        (
            "emu --json --rate 1mbit -- true",
            &["emulator"],
            unprivileged,
        ),
    ] {
        let output = nobody(arguments);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {output:?}");
        let told: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        let text = lacks(needs);
        assert!(text.contains("root"), "{text}");
        assert_eq!(
            (&told["error"], &told["hint"]),
            (&text.into(), &hint.into()),
            "{arguments:?}"
        );
        // The same text, for a person.
        let shown = unwrapped(&output.stderr);
        assert!(shown.contains(hint), "{arguments:?}: {shown}");
    }
    let out = std::env::temp_dir().join(format!("ccplane-test-nobody-{}", std::process::id()));
    let simulated = nobody(&format!(
        "run --alg reno --duration 1s --out {}",
        out.display()
    ));
    let text = String::from_utf8_lossy(&simulated.stdout).into_owned();
    assert!(
        simulated.status.success() && text.contains("simulator"),
        "{simulated:?}"
    );
    fs::remove_dir_all(&out).expect("root removes what nobody wrote");
    for arguments in ["doctor", "flows"] {
        let output = nobody(arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(3) && text.contains("permission denied"),
            "{arguments:?}: {text}"
        );
    }
    fs::remove_file(&copy).expect("the copy is ours");
    let left: Vec<String> = namespaces()
        .into_iter()
        .filter(|n| !before.contains(n))
        .collect();
    assert!(
        left.iter()
            .all(|n| !n.contains(&std::process::id().to_string())),
        "{left:?}"
    );
}

#[test]
fn new_makes_a_crate_from_the_tested_example() {
    let folder = empty_folder("new");
    let new = |name: &str| ccplane("new").arg(name).current_dir(&folder).run();
    assert!(new("mine").status.success());
    let source =
        fs::read_to_string(folder.join("mine/src/main.rs")).expect("the source was written");
    assert!(
        source.contains("\"mine\"") && source.contains("struct Mine") && !source.contains("aimd"),
        "{source}"
    );
    for (file, has) in [
        // It depends on the core only, and refers to the installed command for the rest.
        ("Cargo.toml", "default-features = false"),
        (".cargo/config.toml", env!("CARGO_BIN_EXE_ccplane")),
        ("Cargo.lock", "ccplane-lab"),
        ("src/fold.ccp", "(report)"),
    ] {
        let text = fs::read_to_string(folder.join("mine").join(file)).expect(file);
        assert!(text.contains(has), "{file}: {text}");
    }
    assert_eq!(new("mine").status.code(), Some(2), "it exists already");
    for bad in ["", "Mine", "a-b", "much_too_long_a_name", "../x"] {
        assert_eq!(new(bad).status.code(), Some(2), "{bad}");
    }
}

#[test]
fn new_makes_files_that_work() {
    let folder = empty_folder("new-files");
    let run = |arguments: &str| {
        let output = ccplane(arguments).current_dir(&folder).run();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        (output.status.code(), text)
    };
    let (code, text) = run("new fast.ccp");
    assert!(
        code == Some(0) && text.contains("run --alg ./fast.ccp"),
        "{text}"
    );
    let source = fs::read_to_string(folder.join("fast.ccp")).expect("the file was written");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/program-files.md");
    let page = fs::read_to_string(page).expect("the page exists");
    assert!(page.contains(&source.replace("fast", "mine")), "{source}");
    let (code, text) = run("check --strict fast.ccp");
    assert!(code == Some(0) && text.contains("fast"), "{text}");
    let (code, text) = run("run --alg ./fast.ccp --duration 2s --json");
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = run("new fast.py");
    assert!(
        code == Some(0) && text.contains("python3 -m ccplane run --alg ./fast.py"),
        "{text}"
    );
    let source = fs::read_to_string(folder.join("fast.py")).expect("the file was written");
    assert!(
        source.contains("class Fast(")
            && source.contains("name = \"fast\"")
            && !source.contains("aimd"),
        "{source}"
    );
    // An existing file stays, and a name that the kernel cannot take is refused.
    fs::write(folder.join("fast.ccp"), "mine").expect("the test's folder can be written");
    let (code, text) = run("new fast.ccp");
    assert!(code == Some(2) && text.contains("already exists"), "{text}");
    let left = fs::read_to_string(folder.join("fast.ccp"));
    assert_eq!(left.expect("the file is there"), "mine");
    for bad in [".ccp", "Fast.ccp", "much_too_long_a_name.py"] {
        assert_eq!(run(&format!("new {bad}")).0, Some(2), "{bad}");
    }
    let (code, text) = run("new my-grid.toml");
    assert!(
        code == Some(0) && text.contains("sweep my-grid.toml --out my-grid"),
        "{text}"
    );
    let (code, text) = run("sweep my-grid.toml --dry-run");
    assert!(code == Some(0) && text.contains("45 runs"), "{text}");
    assert_eq!(run("new my-grid.toml").0, Some(2), "it exists already");
    for file in ["slow.ccp", "slow.py", "slow.toml"] {
        let (code, text) = run(&format!("new {file} --ccplane /"));
        assert!(
            code == Some(2) && text.contains("--ccplane") && text.contains("Rust crates"),
            "{text}"
        );
        assert!(!folder.join(file).exists(), "{file}");
    }
    let (code, text) = run("new absent/fast.ccp");
    assert!(
        code == Some(1) && text.contains("cannot be written"),
        "{text}"
    );
}

#[expect(clippy::disallowed_methods, reason = "it waits for another process")]
#[test]
fn a_page_is_opened_in_the_users_browser() {
    let folder = empty_folder("open");
    let browser = folder.join("browser");
    fs::write(
        &browser,
        "#!/bin/sh\necho \"$1\" > opened.new && mv opened.new opened\n",
    )
    .expect("the test's folder can be written");
    fs::set_permissions(&browser, fs::Permissions::from_mode(0o755)).expect("it is our file");
    let run = |browser: &Path| {
        ccplane("run --alg reno --duration 1s --open --out run --force")
            .env("BROWSER", browser)
            .current_dir(&folder)
            .run()
    };
    let output = run(&browser);
    assert!(output.status.success(), "{output:?}");
    let opened = (0..100).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        fs::read_to_string(folder.join("opened")).ok()
    });
    let page = fs::canonicalize(folder.join("run/report.html")).expect("the page exists");
    assert_eq!(opened.as_deref().map(str::trim), page.to_str());
    // Without a browser, the run still succeeds. BROWSER is not split at spaces.
    let failing = folder.join("my browser");
    fs::write(&failing, "#!/bin/sh\nexit 3\n").expect("the test's folder can be written");
    fs::set_permissions(&failing, fs::Permissions::from_mode(0o755)).expect("it is our file");
    let with_arguments = format!("{} --new-window", browser.display());
    for (browser, says) in [
        (
            Path::new("/nonexistent/browser"),
            "cannot start /nonexistent/browser to open the page",
        ),
        (
            Path::new(&with_arguments),
            "browser --new-window to open the page",
        ),
        (&failing, "my browser cannot open the page: exit status: 3"),
    ] {
        let output = run(browser);
        let text = unwrapped(&output.stderr);
        assert!(
            output.status.success() && text.contains(says) && text.contains("set BROWSER"),
            "{text}"
        );
    }
    // A browser that keeps running does not delay the end.
    fs::write(&browser, "#!/bin/sh\nexec sleep 30\n").expect("the test's folder can be written");
    let start = std::time::Instant::now();
    let output = run(&browser);
    assert!(output.status.success(), "{output:?}");
    assert!(start.elapsed() < std::time::Duration::from_secs(25));
}

#[test]
fn one_algorithm_is_shown_by_its_name() {
    let text = printed("algorithms copa");
    assert!(
        text.starts_with("copa\n") && !text.contains("\ncubic"),
        "{text}"
    );
    let one = printed_json("algorithms copa --json");
    assert_eq!(one["algorithms"].as_array().map(Vec::len), Some(1));
    fails("algorithms copu", 2, &["copu", "copa"]);
}

#[test]
fn a_command_behind_a_link_keeps_its_exit_code_and_leaves_nothing() {
    if !is_root("a_command_behind_a_link_keeps_its_exit_code_and_leaves_nothing") {
        return;
    }
    let script = "test -n \"$CCPLANE_HOST\" && exit 7";
    let output = ccplane("emu --json --rate 10mbit --delay 5ms -- sh -c")
        .arg(script)
        .run();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(7), "{text}");
    let object: Value = serde_json::from_slice(&output.stdout).expect("an account");
    assert_eq!(object["exit_code"], 7);
    assert_eq!(object["audit"]["own_drops"], 0);
    let id = text
        .lines()
        .find_map(|l| l.strip_prefix("ccplane emu ")?.split(':').next())
        .expect("it names itself");
    assert!(
        namespaces().iter().all(|n| !n.contains(id)),
        "{:?}",
        namespaces()
    );
}

#[test]
fn queues_are_printed_for_a_device_that_exists() {
    let text = printed("qdisc setup lo");
    assert!(
        text.starts_with("tc qdisc add dev lo root handle cc0: prio bands 5 priomap 0 0 0"),
        "{text}"
    );
    assert!(
        text.contains("match ip dsfield 0x04 0xfc flowid cc0:2"),
        "{text}"
    );
    assert!(
        text.trim_end()
            .ends_with("# tc qdisc del dev lo root handle cc0:"),
        "{text}"
    );
    let object = printed_json("qdisc setup lo --rate 1gbit --json");
    assert_eq!(
        (&object["applied"], &object["classes"][1]["dscp"]),
        (&false.into(), &1.into())
    );
    fails("qdisc setup no-such-device", 2, &["`no-such-device`", "lo"]);
    fails("qdisc setup lo --rate 0mbit", 2, &["a rate of zero"]);
}

#[test]
fn an_algorithm_that_ccp_datapaths_cannot_run_is_refused_before_anything_is_bound() {
    let path = unused_path("unsayable.sock");
    fails(
        ccplane("agent --alg reno,bbr --ccp").arg(&path),
        2,
        &[
            "does not support bbr",
            "program",
            "CCP's format does not support",
            "--unix",
        ],
    );
    assert!(!path.exists());
    let all = printed_json("algorithms --json");
    let sayable: Vec<&str> = all["algorithms"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|one| one["ccp_error"].is_null())
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert!(
        sayable.contains(&"reno") && sayable.contains(&"cubic"),
        "{sayable:?}"
    );
    assert!(!sayable.contains(&"bbr"), "{sayable:?}");
}

#[test]
fn check_says_whether_ccp_datapaths_can_run_a_program() {
    let can = write_file(
        "can.ccp",
        "(def (Report (volatile x 0))) (when true (:= Report.x (* 65536 65536)) (report))",
    );
    let cannot = write_file(
        "cannot.ccp",
        "(def (Report (volatile x 0))) (when true (:= Report.x Flow.mss) (report))",
    );
    let text = printed(ccplane("check --quiet").arg(&can));
    assert!(text.contains("CCP datapaths      can run it"), "{text}");
    let text = printed(ccplane("check --quiet").arg(&cannot));
    assert!(text.contains(
        "CCP datapaths      cannot run it: CCP's format does not support the signal `Flow.mss`"
    ));
}

#[test]
fn closed_standard_output_is_silent_and_a_full_one_an_error() {
    let program = write_file(
        "printed.ccp",
        "(def (Report (volatile n 0)))\n(when true (:= Report.n (+ Report.n 1)) (report))\n",
    );
    let scenario = format!(
        "{}/../../scenarios/01-one-flow.toml",
        env!("CARGO_MANIFEST_DIR")
    );
    let results = unused_path("printed");
    let closed_pipe = || std::io::pipe().expect("a pipe").1;
    let commands = || {
        let mut check = ccplane("check -v");
        check.arg(&program);
        let mut run = ccplane("run --force");
        run.arg(&scenario).arg("--out").arg(&results);
        [
            ccplane("algorithms"),
            ccplane("algorithms --json"),
            check,
            run,
        ]
    };
    for mut command in commands() {
        let (code, text) = said(command.stdout(closed_pipe()));
        assert_eq!(code, 141, "{command:?}: {text}");
        assert!(!text.contains("×"), "{text}");
    }
    for mut command in commands() {
        let full = fs::OpenOptions::new().write(true).open("/dev/full");
        fails(
            command.stdout(full.expect("it is there")),
            1,
            &["cannot write to standard output: No space left"],
        );
    }
    assert!(results.exists(), "what it had to do is done");
    let (code, _) = said(ccplane("no-such-command --json").stdout(closed_pipe()));
    assert_eq!(code, 2);
}

/// `--alg ./mine.py` passes the arguments to Python, which must not import modules from the working
/// directory.
#[test]
fn python_is_started_isolated() {
    let folder = empty_folder("isolated");
    let environment = folder.join("environment");
    let made = Command::new("python3")
        .args(["-m", "venv", "--without-pip"])
        .arg(&environment)
        .status();
    if !made.is_ok_and(|status| status.success()) {
        return skip("python_is_started_isolated", "needs python3 with venv");
    }
    // A stub of the package that imports a module of the standard library, like the package.
    let code = "import pathlib, sysconfig; print(sysconfig.get_path('purelib'))";
    let packages = Command::new(environment.join("bin/python3"))
        .args(["-c", code])
        .output()
        .expect("python3");
    let package = Path::new(String::from_utf8_lossy(&packages.stdout).trim()).join("ccplane");
    fs::create_dir_all(&package).expect("the environment is ours");
    fs::write(package.join("__init__.py"), "import json").expect("the environment is ours");
    let main = "import os, sys; print(sys.flags.isolated, os.getcwd(), *sys.argv[1:])";
    fs::write(package.join("__main__.py"), main).expect("the environment is ours");
    fs::write(folder.join("json.py"), "open('ran', 'w')")
        .expect("the test's folder can be written");
    fs::write(folder.join("mine.py"), "").expect("the test's folder can be written");
    for words in [
        "run --alg ./mine.py:back=0.7",
        "arena mine.py",
        "attach --alg ./mine.py --system",
    ] {
        let output = ccplane(words)
            .current_dir(&folder)
            .env("PATH", environment.join("bin"))
            .env("PYTHONPATH", &folder)
            .run();
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        // Paths in the arguments are relative, so the working directory must not change.
        assert_eq!(
            told.trim(),
            format!("1 {} {words}", folder.display()),
            "{output:?}"
        );
        assert!(
            !folder.join("ran").exists(),
            "a module of the folder ran: {words}"
        );
    }
}
