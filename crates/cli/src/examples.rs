//! Examples at the end of every `--help` and man page. A test parses each one as a command line.

use clap::Command;

/// Examples by command path: a short description and the command line. A subcommand's path has both
/// names.
const COMMAND_EXAMPLES: &[(&str, &[(&str, &str)])] = &[
    (
        "run",
        &[
            (
                "compare two algorithms in the simulator, as any user",
                "ccplane run --alg copa,cubic --rate 48mbit --rtt 40ms",
            ),
            (
                "compare ccplane's Cubic with the kernel's on kernel TCP, as root",
                "ccplane run --datapath linux --alg cubic --vs native:cubic --rate 96mbit --rtt 20ms",
            ),
            (
                "simulate three algorithms on a trace with twenty seeds",
                "ccplane run --alg copa,bbr,cubic --trace down.trace --rtt 40ms --seeds 1..20",
            ),
            (
                "run a scenario that comes with ccplane",
                "ccplane run 21-mixed --datapath linux --seeds 1..5",
            ),
        ],
    ),
    (
        "compare",
        &[
            (
                "compare the same experiment before and after a change",
                "ccplane compare ccplane-results/run-1 ccplane-results/run-2 --out both.html",
            ),
            (
                "save the charts for a paper, a file each",
                "ccplane compare ccplane-results/run-1 ccplane-results/run-2 --format svg",
            ),
        ],
    ),
    (
        "check",
        &[
            ("show everything about a program", "ccplane check fold.ccp"),
            (
                "treat warnings as errors, for a build",
                "ccplane check --strict --quiet fold.ccp",
            ),
        ],
    ),
    (
        "new",
        &[
            ("create a program file", "ccplane new mine.ccp"),
            ("create a crate in ./mine", "ccplane new mine"),
            ("create a sweep", "ccplane new grid.toml"),
        ],
    ),
    (
        "attach",
        &[
            (
                "use Cubic for the connections of one cgroup",
                "ccplane attach --alg cubic --cgroup /sys/fs/cgroup/web.slice",
            ),
            (
                "use Copa for a tenth of the connections to a network, with metrics",
                "ccplane attach --alg copa --to 198.51.100.0/24 --percent 10 --metrics 127.0.0.1:9464",
            ),
            (
                "use an agent on another host, and a second one as a standby",
                "ccplane attach --agent tls://192.0.2.10:4700 --agent tls://192.0.2.11:4700 --system",
            ),
            (
                "reload an algorithm file whenever it changes",
                "ccplane attach --alg ./mine.ccp --watch --cgroup /sys/fs/cgroup/lab.slice",
            ),
        ],
    ),
    (
        "config check",
        &[(
            "check a file before a reload",
            "ccplane config check /etc/ccplane/ccplane.toml",
        )],
    ),
    (
        "config show",
        &[(
            "show the effective settings and their sources",
            "ccplane config show --config ccplane.toml",
        )],
    ),
    (
        "detach",
        &[(
            "remove everything that `attach` left behind",
            "ccplane detach",
        )],
    ),
    (
        "flows",
        &[
            (
                "refresh the live flows every second",
                "ccplane flows --watch",
            ),
            (
                "print the flows and the totals of each algorithm as JSON",
                "ccplane flows --json",
            ),
        ],
    ),
    (
        "agent",
        &[
            (
                "serve `attach --agent` and `send --agent` on this host",
                "ccplane agent --alg copa --unix /run/ccplane.sock",
            ),
            (
                "serve `attach --agent` on other hosts",
                "ccplane agent --alg copa --tls 0.0.0.0:4700 --keys /etc/ccplane/keys",
            ),
            (
                "serve CCP datapaths",
                "ccplane agent --alg reno --ccp /tmp/ccp/portus",
            ),
        ],
    ),
    (
        "keys",
        &[(
            "create an authority, a key for the agent and keys for two hosts",
            "ccplane keys /etc/ccplane/keys web1 web2",
        )],
    ),
    (
        "keys revoke",
        &[(
            "revoke the key of a compromised host",
            "ccplane keys revoke web2",
        )],
    ),
    (
        "keys fingerprint",
        &[(
            "print the argument of `ccplane recv --client` on another host",
            "ccplane keys fingerprint",
        )],
    ),
    (
        "algorithms",
        &[("show the parameters of Copa", "ccplane algorithms copa")],
    ),
    (
        "emu",
        &[
            (
                "run a shell behind a link of 96 Mbit/s and 20 ms",
                "ccplane emu --rate 96mbit --delay 10ms --queue droptail:1bdp -- bash",
            ),
            (
                "reach other hosts at the rates of a phone, with a packet log",
                "ccplane emu --nat --down trace=down.trace --up rate=5mbit --delay 25ms --log link.pcapng -- curl -O https://example.org/",
            ),
            ("plot the log on a page", "ccplane emu graph link.pcapng"),
            (
                "emulate a link between two hosts, on a third one with an interface to each",
                "ccplane emu --between eth1,eth2 --rate 50mbit --delay 20ms",
            ),
        ],
    ),
    ("emu list", &[("", "ccplane emu list")]),
    (
        "emu set",
        &[(
            "change the rate towards the command",
            "ccplane emu set 4711 down rate 48mbit",
        )],
    ),
    ("emu show", &[("", "ccplane emu show 4711")]),
    (
        "emu graph",
        &[("write link.html", "ccplane emu graph link.pcapng")],
    ),
    (
        "send",
        &[
            (
                "send a file",
                "ccplane send files.example:4790#0f6dd55c9e9b1f9a6c1c3dd0a6a7b0f0e6c3a1de1f6c2b7a8d9e0f1a2b3c4d5e backup.tar",
            ),
            (
                "send the output of another command to this host",
                "ccplane send 127.0.0.1:4790 -",
            ),
            (
                "send under DX at up to 500 Mbit/s, without checking the fingerprint",
                "ccplane send 198.51.100.2:4790 backup.tar --alg dx --max-rate 500mbit --insecure",
            ),
            (
                "send over QUIC, with an agent in another process",
                "ccplane send --over quic 127.0.0.1:4791 big.iso --alg cubic --agent unix:/run/ccplane.sock",
            ),
        ],
    ),
    (
        "recv",
        &[
            (
                "receive into a folder until Ctrl-C; prints the sender's command",
                "ccplane recv --out incoming/",
            ),
            (
                "accept only one sender, by the fingerprint that `ccplane keys fingerprint` prints \
                 there",
                "ccplane recv --out incoming/ --client 0f6dd55c9e9b1f9a6c1c3dd0a6a7b0f0e6c3a1de1f6c2b7a8d9e0f1a2b3c4d5e",
            ),
            (
                "receive one file over QUIC",
                "ccplane recv --over quic --out big.iso",
            ),
        ],
    ),
    (
        "qdisc setup",
        &[(
            "create priority bands on a device that is not the bottleneck itself",
            "ccplane qdisc setup eth0 --rate 100mbit",
        )],
    ),
    ("qdisc remove", &[("", "ccplane qdisc remove eth0")]),
    ("gateway keys", &[("", "ccplane gateway keys site-a.key")]),
    (
        "gateway check",
        &[("", "ccplane gateway check site-a.toml")],
    ),
    (
        "gateway run",
        &[(
            "measure without limiting the rate",
            "ccplane gateway run site-a.toml --observe",
        )],
    ),
    ("gateway status", &[("", "ccplane gateway status --json")]),
    (
        "gateway events",
        &[("follow new events", "ccplane gateway events --follow")],
    ),
    ("gateway pass", &[("", "ccplane gateway pass site-b")]),
    ("gateway control", &[("", "ccplane gateway control site-b")]),
    ("bench datapath", &[("", "ccplane bench datapath --json")]),
    (
        "bench capi",
        &[
            ("", "ccplane bench capi --json"),
            (
                "compare a transport in C with ours as well",
                "ccplane bench capi --udp ./udp",
            ),
        ],
    ),
    ("bench control-loop", &[("", "ccplane bench control-loop")]),
    ("bench agent", &[("", "ccplane bench agent")]),
    ("bench sweep", &[("", "ccplane bench sweep")]),
    ("bench kernel", &[("", "ccplane bench kernel")]),
    ("bench dx", &[("", "ccplane bench dx")]),
    ("bench transport", &[("", "ccplane bench transport")]),
    ("bench sim", &[("", "ccplane bench sim")]),
    ("bench emu", &[("", "ccplane bench emu")]),
    ("bench gateway", &[("", "ccplane bench gateway")]),
    ("bench quic", &[("", "ccplane bench quic --json")]),
    ("bench arena", &[("", "ccplane bench arena --json")]),
    ("bench python", &[("", "ccplane bench python --json")]),
    (
        "paper",
        &[
            ("list the experiments", "ccplane paper list"),
            (
                "run a short version of one experiment",
                "ccplane paper ccp-fidelity --quick",
            ),
            (
                "run your own experiment",
                "ccplane paper mine.py --datapath linux --repeats 5",
            ),
        ],
    ),
    (
        "sweep",
        &[
            (
                "count the runs and estimate their time",
                "ccplane sweep sweep.toml --dry-run",
            ),
            (
                "run a grid, or what is missing of it",
                "ccplane sweep sweep.toml --out sweep",
            ),
            (
                "make a third of the runs on each of three machines",
                "ccplane sweep sweep.toml --out share-1 --shard 1/3",
            ),
        ],
    ),
    (
        "sweep merge",
        &[(
            "combine the shares of three machines",
            "ccplane sweep merge share-1 share-2 share-3 --out sweep",
        )],
    ),
    (
        "evaluate",
        &[
            ("get a first result", "ccplane evaluate --alg copa --quick"),
            (
                "evaluate only some criteria, with a parameter",
                "ccplane evaluate --alg cubic:report=20ms --only fairness",
            ),
        ],
    ),
    (
        "arena",
        &[
            (
                "score an algorithm file against Cubic, BBR and Copa",
                "ccplane arena ./mine.ccp",
            ),
            (
                "score several candidates on unseen links, as JSON",
                "ccplane arena ./a.ccp ./b.ccp --held-out 7 --json",
            ),
        ],
    ),
    (
        "arena explain",
        &[("explain the worst run", "ccplane arena explain ./mine.ccp")],
    ),
    (
        "doctor",
        &[("print the checks as JSON", "ccplane doctor --json")],
    ),
    (
        "completions",
        &[("print the script for bash", "ccplane completions bash")],
    ),
    (
        "man",
        &[(
            "install the man pages for all users",
            "ccplane man /usr/local/share/man/man1",
        )],
    ),
];

/// Adds the examples to the command.
pub fn with_examples(command: Command) -> Command {
    // A program of the core has only a few of the commands.
    let names: Vec<String> = command
        .get_subcommands()
        .map(|one| one.get_name().to_owned())
        .collect();
    let is_there = |path: &str| {
        let first = path.split(' ').next().unwrap_or_default();
        names.iter().any(|name| name == first)
    };
    let examples = COMMAND_EXAMPLES.iter().filter(|(path, _)| is_there(path));
    examples.fold(command, |command, (path, examples)| {
        let text = text(examples);
        match path.split_once(' ') {
            None => command.mut_subcommand(path, |of| of.after_help(text)),
            Some((outer, inner)) => command.mut_subcommand(outer, |of| {
                of.mut_subcommand(inner, |of| of.after_help(text))
            }),
        }
    })
}

fn text(examples: &[(&str, &str)]) -> String {
    let heading = if examples.len() == 1 {
        "Example:"
    } else {
        "Examples:"
    };
    examples
        .iter()
        .fold(heading.to_owned(), |text, (what, how)| match *what {
            "" => format!("{text}\n  {how}"),
            what => format!("{text}\n  # {what}\n  {how}"),
        })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    /// Collects the paths of all commands that can be run.
    fn commands(command: &Command, path: &str, found: &mut Vec<String>) {
        let inner = || {
            command
                .get_subcommands()
                .filter(|one| !one.is_hide_set() && one.get_name() != "help")
        };
        if !path.is_empty() && (inner().next().is_none() || !command.is_subcommand_required_set()) {
            found.push(path.to_owned());
        }
        for one in inner() {
            commands(one, format!("{path} {}", one.get_name()).trim(), found);
        }
    }

    #[test]
    fn every_command_has_an_example_that_parses() {
        let mut all = Vec::new();
        commands(&Cli::command(), "", &mut all);
        let mut known: Vec<String> = COMMAND_EXAMPLES
            .iter()
            .map(|(path, _)| (*path).to_owned())
            .collect();
        all.sort();
        known.sort();
        assert_eq!(known, all);
        for (path, examples) in COMMAND_EXAMPLES {
            assert!(!examples.is_empty(), "{path}");
            for (_, how) in *examples {
                let words: Vec<&str> = how.split_whitespace().collect();
                assert!(
                    how.starts_with(&format!("ccplane {path} "))
                        || *how == format!("ccplane {path}")
                        || path.starts_with("emu"),
                    "{how}"
                );
                let read = with_examples(Cli::command()).try_get_matches_from(words);
                assert!(
                    read.is_ok(),
                    "{how}: {}",
                    read.err().map(|e| e.to_string()).unwrap_or_default()
                );
            }
        }
    }
}
