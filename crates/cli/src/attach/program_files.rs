//! `ccplane attach --watch`: reloads a program file that changes while it is attached.

use std::time::Duration;

use ccplane_agent::{Agent, AgentOptions};
use ccplane_lab::Contender;
use ccplane_linux::{AlgorithmSpec, Kernel};

use crate::exit::{Failure, FailureKind};
use crate::{Parameters, Registry, log, program_file};

/// Polling interval of watched files. A change counts once two polls find the same contents, since
/// an editor may write in pieces.
pub(super) const FILE_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A watched program file.
pub(super) struct WatchedProgram {
    path: String,
    parameters: Parameters,
    /// Name declared in the file, and name in the kernel.
    declared_name: String,
    kernel_name: String,
    /// Contents in force.
    source: String,
    /// Contents found by the last poll, if different.
    pending_source: Option<String>,
    /// Contents refused last, so that the reason is reported once.
    refused_source: Option<String>,
}

/// Returns the program files among these algorithms, with their kernel name if one is given. Fails
/// if there are none.
pub(super) fn open_watched(
    wanted: &[Contender],
    kernel_name: Option<&str>,
) -> Result<Vec<WatchedProgram>, Failure> {
    let mut texts = Vec::new();
    for contender in wanted {
        if let Contender::Ccplane { name, parameters } = contender
            && name.ends_with(".ccp")
        {
            let parameters = parameters
                .iter()
                .fold(Parameters::new(), |all, (key, value)| all.with(key, value));
            let source = program_file::read(name).map_err(|e| {
                Failure::text(FailureKind::Usage, format!("{name} cannot be read: {e}"))
            })?;
            let spec = compile(name, &source, &parameters)
                .map_err(|why| Failure::text(FailureKind::Usage, why))?;
            texts.push(WatchedProgram {
                path: name.clone(),
                parameters,
                kernel_name: kernel_name.unwrap_or(&spec.kernel_name).to_owned(),
                declared_name: spec.kernel_name,
                source,
                pending_source: None,
                refused_source: None,
            });
        }
    }
    match texts.is_empty() {
        true => Err(Failure::text(
            FailureKind::Usage,
            "--watch: none of the algorithms is an algorithm file",
        )
        .hint("name a file, such as --alg ./mine.ccp (docs/program-files.md)")),
        false => Ok(texts),
    }
}

/// Compiles a program file with these parameters, or returns what is wrong with it.
fn compile(path: &str, source: &str, parameters: &Parameters) -> Result<AlgorithmSpec, String> {
    let text = source.to_owned();
    let registry = Registry::empty().with_files(move |_| Ok(text.clone()));
    let made = registry
        .by_name(path, parameters)
        .map_err(|why| why.to_string())?;
    let name = made.name().to_owned();
    let mut agent = Agent::new(AgentOptions::default());
    agent.add_boxed(made).map_err(|why| why.to_string())?;
    let hosted = agent.hosted_algorithms().next().ok_or(name)?;
    Ok(AlgorithmSpec::from(&**hosted))
}

impl WatchedProgram {
    /// Polls the file and loads changed contents into the kernel registration with its name.
    pub fn poll(&mut self, kernels: &mut [&mut Kernel]) {
        // A missing file is being rewritten.
        let Ok(now) = program_file::read(&self.path) else {
            return;
        };
        if now == self.source {
            (self.pending_source, self.refused_source) = (None, None);
            return;
        }
        if self.pending_source.as_ref() != Some(&now) {
            self.pending_source = Some(now);
            return;
        }
        self.pending_source = None;
        if self.refused_source.as_ref() == Some(&now) {
            return;
        }
        match self.install(&now, kernels) {
            Ok(()) => {
                log::write(format!("{}: the changed file is in effect", self.path));
                (self.source, self.refused_source) = (now, None);
            }
            Err(why) => {
                log::write(format!(
                    "{why}\n{}: the previous version remains in effect",
                    self.path
                ));
                self.refused_source = Some(now);
            }
        }
    }

    fn install(&self, source: &str, kernels: &mut [&mut Kernel]) -> Result<(), String> {
        let WatchedProgram {
            path,
            declared_name: own_name,
            kernel_name,
            ..
        } = self;
        let mut spec = compile(path, source, &self.parameters)?;
        if spec.kernel_name != *own_name {
            let name = spec.kernel_name;
            return Err(format!(
                "{path}: the algorithm's name changed to {name}, but it is registered as \
                 {kernel_name}; restart `attach` to rename it"
            ));
        }
        spec.kernel_name.clone_from(kernel_name);
        let has_it =
            |kernel: &&mut &mut Kernel| kernel.counters().any(|(_, name, _)| name == kernel_name);
        let kernel = kernels.iter_mut().find(has_it);
        let kernel = kernel.ok_or_else(|| format!("{path}: {kernel_name} is not registered"))?;
        kernel
            .replace(&spec)
            .map_err(|why| format!("{path}: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_error_is_logged_again_only_after_the_file_was_valid() {
        let file = std::env::temp_dir().join(format!("ccplane-texts-{}.ccp", std::process::id()));
        let right = "(algorithm watched (needs cwnd)) (def) (when true (:= Cwnd (* 10 Flow.mss)))";
        fs::write(&file, right).expect("a temporary file");
        let path = file.display().to_string();
        let mut texts =
            open_watched(&[Contender::ccplane(&path)], None).unwrap_or_else(|why| panic!("{why}"));
        let text = &mut texts[0];
        fs::write(&file, "nonsense").expect("a temporary file");
        text.poll(&mut []);
        assert_eq!(
            text.refused_source, None,
            "a file may be written in several steps"
        );
        text.poll(&mut []);
        assert_eq!(text.refused_source.as_deref(), Some("nonsense"));
        fs::write(&file, right).expect("a temporary file");
        text.poll(&mut []);
        assert_eq!(
            (
                text.pending_source.as_deref(),
                text.refused_source.as_deref()
            ),
            (None, None)
        );
        fs::remove_file(&file).expect("the file exists");
    }
}
