//! Files installed with the command, and Unix conventions of the command line.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn ccplane(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccplane"));
    for variable in ["CCPLANE_LOG", "NO_COLOR", "CLICOLOR_FORCE"] {
        command.env_remove(variable);
    }
    command.args(arguments).envs(environment.iter().copied());
    command.output().expect("the binary under test starts")
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns what bash offers for the last word, which the script asks the command for.
fn completed(words: &[&str]) -> Vec<String> {
    let last = (words.len() - 1).to_string();
    let environment = [
        ("CCPLANE_COMPLETE", "bash"),
        ("_CLAP_IFS", "\n"),
        ("_CLAP_COMPLETE_INDEX", &*last),
    ];
    let offered = text(&ccplane(&[&["--"], words].concat(), &environment));
    offered.lines().map(str::to_owned).collect()
}

#[test]
fn names_of_algorithms_and_scenarios_are_completed() {
    assert_eq!(completed(&["ccplane", "eval"]), ["evaluate"]);
    assert_eq!(completed(&["ccplane", "run", "--alg", "cu"]), ["cubic"]);
    assert_eq!(
        completed(&["ccplane", "run", "--alg", "copa,cu"]),
        ["copa,cubic"]
    );
    assert_eq!(
        completed(&["ccplane", "run", "--vs", "native:r"]),
        ["native:reno"]
    );
    assert_eq!(completed(&["ccplane", "run", "02"]), ["02-fairness"]);
    assert_eq!(completed(&["ccplane", "attach", "--alg", "veg"]), ["vegas"]);
    assert_eq!(
        completed(&["ccplane", "algorithms", "di"]),
        Vec::<String>::new()
    );
    assert_eq!(completed(&["ccplane", "algorithms", "dct"]), ["dctcp"]);
    let queues = completed(&["ccplane", "run", "--qu"]);
    assert!(
        queues.iter().any(|option| option.starts_with("--queue")),
        "{queues:?}"
    );
}

#[test]
fn paths_are_completed_next_to_names() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("completed");
    fs::create_dir_all(&folder).expect("the test's folder can be written");
    let file = folder.join("mine.ccp").display().to_string();
    fs::write(&file, "").expect("the test's folder can be written");
    let begun = file.strip_suffix("ne.ccp").expect("its name");
    assert_eq!(completed(&["ccplane", "run", "--alg", begun]), [&*file]);
    let (list, whole) = (format!("reno,{begun}"), format!("reno,{file}"));
    assert_eq!(completed(&["ccplane", "run", "--alg", &list]), [whole]);
}

#[test]
fn every_shell_has_a_script() {
    for (shell, part) in [
        ("bash", "complete "),
        ("zsh", "#compdef ccplane"),
        ("fish", "complete "),
    ] {
        let script = text(&ccplane(&["completions", shell], &[]));
        assert!(script.contains(part), "{shell}: {script}");
    }
    let refused = ccplane(&["completions", "tcsh"], &[]);
    assert_eq!(refused.status.code(), Some(2));
}

/// The completion script, tested with bash itself.
#[test]
fn bash_takes_its_script_and_completes() {
    let script = text(&ccplane(&["completions", "bash"], &[]));
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("completions.bash");
    fs::write(&file, script).expect("the test's folder can be written");
    let command = Path::new(env!("CARGO_BIN_EXE_ccplane"));
    let folder = command.parent().expect("the command is in a folder");
    let ask = format!(
        "PATH={}:$PATH; source {}; COMP_WORDS=(ccplane run --alg cu); COMP_CWORD=3; \
         _clap_complete_ccplane ccplane cu --alg; echo ${{COMPREPLY[@]}}",
        folder.display(),
        file.display()
    );
    let said = Command::new("bash")
        .args(["-c", &ask])
        .output()
        .expect("bash");
    assert_eq!(
        String::from_utf8_lossy(&said.stdout).trim(),
        "cubic",
        "{said:?}"
    );
}

#[test]
fn every_command_has_a_page() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("man");
    let _ = fs::remove_dir_all(&folder);
    text(&ccplane(&["man", &folder.display().to_string()], &[]));
    let help = text(&ccplane(&["--help"], &[]));
    let mut commands: Vec<&str> = help
        .lines()
        .take_while(|line| *line != "Options:")
        .filter_map(|line| line.strip_prefix("  "))
        .filter(|line| !line.starts_with(' '))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.len() > 15, "{commands:?}");
    commands.push("gateway-run");
    for command in commands {
        let page = fs::read_to_string(folder.join(format!("ccplane-{command}.1")));
        let page = page.unwrap_or_else(|why| panic!("{command}: {why}"));
        assert!(page.contains(".SH SYNOPSIS"), "{command}");
    }
    assert!(folder.join("ccplane.1").is_file() && !folder.join("ccplane-echo.1").exists());
    let nowhere = ccplane(&["man", "/proc/nowhere"], &[]);
    assert_eq!(nowhere.status.code(), Some(1), "{nowhere:?}");
}

#[test]
fn nothing_is_coloured_where_there_is_no_terminal() {
    let bad = ["check", "-v", "/nonexistent/file.ccp"];
    let log = [
        "-vv",
        "run",
        "--datapath",
        "sim",
        "--alg",
        "reno",
        "--duration",
        "100ms",
    ];
    let here = Path::new(env!("CARGO_TARGET_TMPDIR")).join("coloured");
    let _ = fs::remove_dir_all(&here);
    let out = here.display().to_string();
    let mut log = log.to_vec();
    log.extend(["--out", &out]);
    for arguments in [&bad[..], &log] {
        let said = ccplane(arguments, &[]);
        for bytes in [&said.stdout, &said.stderr] {
            assert!(!bytes.contains(&0x1b), "{}", String::from_utf8_lossy(bytes));
        }
    }
    let forced = ccplane(&bad, &[("CLICOLOR_FORCE", "1")]);
    assert!(forced.stderr.contains(&0x1b), "{forced:?}");
    let neither = ccplane(&bad, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]);
    assert!(!neither.stderr.contains(&0x1b), "{neither:?}");
}
