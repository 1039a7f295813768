//! The systemd units of the repository: exposure, limits and watchdogs.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::skip;

/// Upper limit of each unit's exposure, in tenths, from `systemd-analyze security` of systemd 252
/// (Debian 12).
const EXPOSURE_TENTHS: [(&str, u32); 3] = [
    ("docs/ccplane.service", 25),
    ("docs/ccplane-agent.service", 15),
    ("examples/gateway/ccplane-gateway.service", 20),
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns every unit below a folder, relative to the repository.
fn units(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(repository().join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            found.extend(units(&path));
        } else if path.ends_with(".service") {
            found.push(path);
        }
    }
    found
}

#[test]
fn every_unit_has_limits_and_a_reason_for_what_it_leaves_open() {
    let known = EXPOSURE_TENTHS.map(|(unit, _)| unit);
    for unit in ["docs", "examples", "contrib"].into_iter().flat_map(units) {
        assert!(
            known.contains(&&*unit),
            "{unit} has no level: add it to EXPOSURE_TENTHS"
        );
        let text = std::fs::read_to_string(repository().join(&unit)).unwrap();
        let has = |setting: &str| text.lines().any(|line| line.starts_with(setting));
        for setting in [
            "MemoryMax=",
            "TasksMax=",
            "NoNewPrivileges=yes",
            "UMask=0077",
        ] {
            assert!(has(setting), "{unit} has no {setting}");
        }
        // The agent needs no watchdog, since its flows fall back; for the other units only a
        // watchdog detects a stuck process.
        let agent = unit.ends_with("ccplane-agent.service");
        assert!(agent || has("WatchdogSec="), "{unit} has no WatchdogSec=");
        for setting in [
            "User=",
            "PrivateDevices=yes",
            "PrivateUsers=yes",
            "ProtectKernelTunables=yes",
            "ProcSubset=pid",
            "ProtectProc=invisible",
        ] {
            let name = setting.split('=').next().unwrap();
            let reason = |line: &str| line.starts_with("# Not ") && line.contains(name);
            assert!(
                has(setting) || text.lines().any(reason),
                "{unit} has neither {setting} nor a reason: # Not {name}: …"
            );
        }
    }
}

#[test]
fn no_unit_is_more_exposed_than_it_has_to_be() {
    const TEST: &str = "no_unit_is_more_exposed_than_it_has_to_be";
    let analyze = |unit: &str, tenths: u32| {
        Command::new("systemd-analyze")
            .args(["security", "--no-pager", "--offline=true"])
            .arg(format!("--threshold={tenths}"))
            .arg(repository().join(unit).canonicalize().unwrap())
            .env("LC_ALL", "C")
            .output()
    };
    for (unit, tenths) in EXPOSURE_TENTHS {
        let analyzed = match analyze(unit, tenths) {
            Ok(analyzed) => analyzed,
            Err(missing) => {
                let hint = "apt-get install systemd";
                return skip(TEST, format!("systemd-analyze: {missing}; {hint}"));
            }
        };
        let said =
            String::from_utf8_lossy(&analyzed.stdout) + String::from_utf8_lossy(&analyzed.stderr);
        assert!(
            analyzed.status.success(),
            "{unit}, at most {tenths} tenths:\n{said}"
        );
    }
}
