//! Groups of the commands in `ccplane --help`.

use std::fmt::Write;

use clap::Command;

/// Commands by what a user wants to do.
const COMMAND_GROUPS: &[(&str, &[&str])] = &[
    (
        "Try",
        &["run", "compare", "new", "check", "algorithms", "arena"],
    ),
    ("Measure", &["sweep", "evaluate", "emu"]),
    (
        "Deploy",
        &[
            "attach", "detach", "flows", "agent", "keys", "config", "doctor",
        ],
    ),
    ("Move data", &["send", "recv"]),
    ("Gateway", &["gateway", "qdisc"]),
    (
        "Reproduce and develop",
        &["paper", "bench", "completions", "man"],
    ),
];

/// Column of the descriptions.
const DESCRIPTION_COLUMN: usize = 15;
/// Width of a line, as of the other help texts.
const LINE_WIDTH: usize = 100;

/// Lists the commands of a help text in groups.
pub fn with_groups(command: Command) -> Command {
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}Options:\n{{options}}{{after-help}}",
        groups(&command)
    );
    command.help_template(template)
}

fn groups(command: &Command) -> String {
    let mut text = String::new();
    for (group, names) in COMMAND_GROUPS {
        // A program of the core has only a few of the commands.
        let found = names
            .iter()
            .filter_map(|name| command.find_subcommand(name));
        let mut listed = found.peekable();
        if listed.peek().is_none() {
            continue;
        }
        let _ = writeln!(text, "{group}:");
        for one in listed {
            let about = one.get_about().map(ToString::to_string);
            let about =
                ccplane_report::wrap(&about.unwrap_or_default(), LINE_WIDTH - DESCRIPTION_COLUMN);
            let about = about.replace('\n', &format!("\n{:DESCRIPTION_COLUMN$}", ""));
            let name = format!("  {}", one.get_name());
            let _ = writeln!(text, "{name:DESCRIPTION_COLUMN$}{about}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let command = crate::Cli::command();
        let mut grouped: Vec<&str> = COMMAND_GROUPS
            .iter()
            .flat_map(|(_, all)| *all)
            .copied()
            .collect();
        let visible = command.get_subcommands().filter(|one| !one.is_hide_set());
        let mut all: Vec<&str> = visible.map(Command::get_name).collect();
        grouped.sort_unstable();
        all.sort_unstable();
        assert_eq!(grouped, all);
        let text = groups(&command);
        assert!(
            !text.contains('{') && text.lines().all(|line| line.chars().count() <= LINE_WIDTH),
            "{text}"
        );
        let help = with_groups(command).render_help().to_string();
        assert!(
            help.contains("\nDeploy:\n  attach") && help.contains("--json"),
            "{help}"
        );
    }
}
