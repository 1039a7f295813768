//! Captures libbpf's log, so that an error can include the verifier's reason.

use std::sync::{Mutex, MutexGuard};

use libbpf_rs::PrintLevel;

/// libbpf has one print callback per process; a listener holds this lock.
static LISTENER_LOCK: Mutex<()> = Mutex::new(());
static LOG_LINES: Mutex<String> = Mutex::new(String::new());

/// Bytes kept: enough for the verifier's reason and the path to it. Its whole log can have
/// megabytes.
const LOG_BYTES_MAX: usize = 256 * 1024;
const REASON_LINES_MAX: usize = 12;

/// Collects libbpf's log until it is dropped.
pub(crate) struct LibbpfLog {
    _guard: MutexGuard<'static, ()>,
    previous: Option<(PrintLevel, libbpf_rs::PrintCallback)>,
}

impl LibbpfLog {
    pub fn new() -> LibbpfLog {
        // The lock guards no data that a panic could corrupt.
        let only = LISTENER_LOCK
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        lines().clear();
        let before = libbpf_rs::set_print(Some((PrintLevel::Info, append_line)));
        LibbpfLog {
            _guard: only,
            previous: before,
        }
    }

    /// Returns the log since `new`.
    pub fn text(&self) -> String {
        lines().clone()
    }
}

impl Drop for LibbpfLog {
    fn drop(&mut self) {
        libbpf_rs::set_print(self.previous);
    }
}

fn lines() -> MutexGuard<'static, String> {
    LOG_LINES
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn append_line(level: PrintLevel, text: String) {
    tracing::trace!(?level, "{}", text.trim_end());
    let mut lines = lines();
    let room = LOG_BYTES_MAX.saturating_sub(lines.len());
    // Keeps the end of an oversized text, where the verifier states the reason.
    let mut start = text.len().saturating_sub(room);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    lines.push_str(&text[start..]);
}

/// Returns the name of the rejected program and the verifier's last lines.
pub(crate) fn verifier_reason(log: &str) -> Option<(String, String)> {
    let begin = log.find("-- BEGIN PROG LOAD LOG --")?;
    let program = log[..begin]
        .rsplit("prog '")
        .next()?
        .split('\'')
        .next()?
        .to_owned();
    let body = &log[begin..];
    let body = body.split("-- END PROG LOAD LOG --").next().unwrap_or(body);
    let said: Vec<&str> = body
        .lines()
        .skip(1)
        .filter(|line| {
            !line.is_empty()
                && !line.starts_with("processed ")
                && !line.starts_with("verification time")
        })
        .collect();
    Some((
        program,
        said[said.len().saturating_sub(REASON_LINES_MAX)..].join("\n"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::asm::{Assembler, Reg};
    use crate::testing::{missing_requirement, skip};

    /// A real rejection by this kernel's verifier: a pad that reads through an uninitialised
    /// register.
    #[test]
    fn verifier_messages_are_passed_on() {
        if let Some(reason) = missing_requirement() {
            return skip("verifier_messages_are_passed_on", &reason);
        }
        let mut bytes = include_bytes!("../../bpf/prebuilt/probe.bpf.o").to_vec();
        let mut wild = Assembler::default();
        wild.load(Reg::R3, Reg::R2, 0);
        crate::codegen::pad::patch(&mut bytes, 0, &wild.finish()).expect("there is room");
        let listener = LibbpfLog::new();
        let open = libbpf_rs::ObjectBuilder::default()
            .open_memory(&bytes)
            .expect("an object");
        assert!(open.load().is_err());
        let (program, reason) = verifier_reason(&listener.text()).expect("the log has the reason");
        assert_eq!(program, "probe");
        assert!(reason.contains("R2 !read_ok"), "{reason}");
    }

    #[test]
    fn the_reason_is_found_in_the_log() {
        let log = "libbpf: prog 'cong_control': BPF program load failed: -13\n\
                   libbpf: prog 'cong_control': -- BEGIN PROG LOAD LOG --\n\
                   0: R1=ctx() R10=fp0\n1: (79) r3 = *(u64 *)(r1 +32)\n\
                   R1 invalid mem access 'scalar'\n\
                   processed 2 insns\n-- END PROG LOAD LOG --\nlibbpf: failed to load object\n";
        let (program, reason) = verifier_reason(log).expect("the log has a reason");
        assert_eq!(program, "cong_control");
        assert!(
            reason.ends_with("R1 invalid mem access 'scalar'"),
            "{reason}"
        );
        assert_eq!(verifier_reason("libbpf: nothing of the kind"), None);
    }
}
