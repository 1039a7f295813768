//! Files installed with the command, and Unix conventions of the command line.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{RunCommand, ccplane, empty_folder, fails, printed, unused_path, write_file};

/// Returns what bash offers for the last word, which the script asks the command for.
fn completed(words: &str) -> Vec<String> {
    let last = words.split(' ').count() - 1;
    let offered = printed(
        ccplane("--")
            .args(words.split(' '))
            .env("CCPLANE_COMPLETE", "bash")
            .env("_CLAP_IFS", "\n")
            .env("_CLAP_COMPLETE_INDEX", last.to_string()),
    );
    offered.lines().map(str::to_owned).collect()
}

#[test]
fn names_of_algorithms_and_scenarios_are_completed() {
    for (words, expected) in [
        ("ccplane eval", &["evaluate"][..]),
        ("ccplane run --alg cu", &["cubic"]),
        ("ccplane run --alg copa,cu", &["copa,cubic"]),
        ("ccplane run --vs native:r", &["native:reno"]),
        ("ccplane run 02", &["02-fairness"]),
        ("ccplane attach --alg veg", &["vegas"]),
        ("ccplane algorithms di", &[]),
        ("ccplane algorithms dct", &["dctcp"]),
    ] {
        assert_eq!(completed(words), expected, "{words}");
    }
    let queues = completed("ccplane run --qu");
    assert!(
        queues.iter().any(|option| option.starts_with("--queue")),
        "{queues:?}"
    );
}

#[test]
fn paths_are_completed_next_to_names() {
    let file = empty_folder("completed")
        .join("mine.ccp")
        .display()
        .to_string();
    fs::write(&file, "").expect("the test's folder can be written");
    let begun = file.strip_suffix("ne.ccp").expect("its name");
    let run = "ccplane run --alg";
    assert_eq!(completed(&format!("{run} {begun}")), [&*file]);
    let whole = format!("reno,{file}");
    assert_eq!(completed(&format!("{run} reno,{begun}")), [whole]);
}

#[test]
fn every_shell_has_a_script() {
    for (shell, part) in [
        ("bash", "complete "),
        ("zsh", "#compdef ccplane"),
        ("fish", "complete "),
    ] {
        let script = printed(ccplane("completions").arg(shell));
        assert!(script.contains(part), "{shell}: {script}");
    }
    fails("completions tcsh", 2, &[]);
}

/// The completion script, tested with bash itself.
#[test]
fn bash_takes_its_script_and_completes() {
    let file = write_file("completions.bash", &printed("completions bash"));
    let command = Path::new(env!("CARGO_BIN_EXE_ccplane"));
    let folder = command.parent().expect("the command is in a folder");
    let completed = |word: &str| {
        let ask = format!(
            "PATH={}:$PATH; source {}; COMP_WORDS=(ccplane run --alg {word}); COMP_CWORD=3; \
             _clap_complete_ccplane ccplane {word} --alg; echo ${{COMPREPLY[@]}}",
            folder.display(),
            file.display()
        );
        let said = Command::new("bash")
            .args(["-c", &ask])
            .output()
            .expect("bash");
        String::from_utf8_lossy(&said.stdout).trim().to_owned()
    };
    assert_eq!(completed("cu"), "cubic");
    assert_eq!(completed("reno@c"), "reno@ccp:/");
}

#[test]
fn every_command_has_a_page() {
    let folder = unused_path("man");
    printed(ccplane("man").arg(&folder));
    let help = printed("--help");
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
    fails("man /proc/nowhere", 1, &[]);
}

#[test]
fn nothing_is_coloured_where_there_is_no_terminal() {
    let plain = |arguments: &str| {
        let mut command = ccplane(arguments);
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        command
    };
    let bad = "check -v /nonexistent/file.ccp";
    let mut log = plain("-vv run --datapath sim --alg reno --duration 100ms --out");
    log.arg(unused_path("coloured"));
    for mut command in [plain(bad), log] {
        let said = command.run();
        for bytes in [&said.stdout, &said.stderr] {
            assert!(!bytes.contains(&0x1b), "{}", String::from_utf8_lossy(bytes));
        }
    }
    let forced = plain(bad).env("CLICOLOR_FORCE", "1").run();
    assert!(forced.stderr.contains(&0x1b), "{forced:?}");
    let neither = plain(bad)
        .env("CLICOLOR_FORCE", "1")
        .env("NO_COLOR", "1")
        .run();
    assert!(!neither.stderr.contains(&0x1b), "{neither:?}");
}
