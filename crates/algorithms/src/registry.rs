//! Registry of algorithms: the built-in ones and those added by a user's program.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ccplane_agent::DynAlgorithm;
use ccplane_lang::ProgramFile;

use crate::{
    BadParameter, ParameterDoc, Parameters, autorate, bbr, bundler, constant, copa, cubic, dctcp,
    dx, group, ledbat, nimbus, program_file, reno, swift, timely, vegas, vivace,
};

/// Algorithms by name. A value, so that a custom `main` can add algorithms to every subcommand.
pub struct Registry {
    entries: Vec<RegistryEntry>,
    files: Option<ProgramFiles>,
    python: Option<(PathBuf, Box<Python>)>,
}

/// Program files by path. Each file is read once, so an edit does not affect a run in progress.
struct ProgramFiles {
    read: Box<Read>,
    known: Mutex<BTreeMap<String, Arc<ProgramFile>>>,
}

type Read = dyn Fn(&str) -> io::Result<String> + Send + Sync;

type Python =
    dyn Fn(&str, &Parameters) -> Result<Box<dyn DynAlgorithm>, UnknownAlgorithm> + Send + Sync;

/// Suffix of program files.
const PROGRAM_FILE_SUFFIX: &str = ".ccp";
/// Suffix of Python files.
const PYTHON_FILE_SUFFIX: &str = ".py";

struct RegistryEntry {
    doc: AlgorithmDoc,
    make: Box<Constructor>,
}

type Constructor = dyn Fn(&Parameters) -> Result<Box<dyn DynAlgorithm>, BadParameter> + Send + Sync;

/// Documentation of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlgorithmDoc {
    /// Name.
    pub name: &'static str,
    /// Description, in one line.
    pub doc: &'static str,
    /// Parameters.
    pub parameters: &'static [ParameterDoc],
}

/// Failure to create an algorithm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnknownAlgorithm {
    /// Unknown name.
    #[error(
        "there is no algorithm `{name}`; {}available: {}",
        closest.as_ref().map(|c| format!("did you mean `{c}`? ")).unwrap_or_default(),
        .known.join(", ")
    )]
    Name {
        /// Name requested.
        name: String,
        /// Most similar known name.
        closest: Option<String>,
        /// Known names.
        known: Vec<String>,
    },
    /// Program file that is unreadable or invalid, with one line per problem.
    #[error("{0}")]
    Text(String),
    /// Invalid parameter of a known algorithm.
    #[error(transparent)]
    Parameter(#[from] BadParameter),
}

impl Default for Registry {
    fn default() -> Registry {
        Registry::builtin()
    }
}

impl Registry {
    /// Creates a registry without algorithms.
    pub fn empty() -> Registry {
        Registry {
            entries: Vec::new(),
            files: None,
            python: None,
        }
    }

    /// Creates a registry with the algorithms of this crate.
    pub fn builtin() -> Registry {
        Registry::empty()
            .add(reno::DOC, reno::make)
            .add(cubic::DOC, cubic::make)
            .add(bbr::DOC, bbr::make)
            .add(bbr::DOC3, bbr::make3)
            .add(dctcp::DOC, dctcp::make)
            .add(dx::DOC, dx::make)
            .add(swift::DOC, swift::make)
            .add(timely::DOC, timely::make)
            .add(constant::DOC, constant::make)
            .add(vegas::DOC, vegas::make)
            .add(copa::DOC, copa::make)
            .add(ledbat::DOC, ledbat::make)
            .add(nimbus::DOC, nimbus::make)
            .add(vivace::DOC, vivace::make)
            .add(bundler::DOC, bundler::make)
            .add(autorate::DOC, autorate::make)
            .add(group::DOC, group::make)
    }

    /// Adds an algorithm, replacing one of the same name.
    #[must_use]
    pub fn add(
        mut self,
        doc: AlgorithmDoc,
        make: impl Fn(&Parameters) -> Result<Box<dyn DynAlgorithm>, BadParameter>
        + Send
        + Sync
        + 'static,
    ) -> Registry {
        self.entries.retain(|entry| entry.doc.name != doc.name);
        self.entries.push(RegistryEntry {
            doc,
            make: Box::new(make),
        });
        self
    }

    /// Enables program files: names that end in `.ccp` are paths, whose contents `read` returns.
    #[must_use]
    pub fn with_files(
        self,
        read: impl Fn(&str) -> io::Result<String> + Send + Sync + 'static,
    ) -> Registry {
        let files = ProgramFiles {
            read: Box::new(read),
            known: Mutex::default(),
        };
        Registry {
            files: Some(files),
            ..self
        }
    }

    /// Enables Python files: names that end in `.py` are paths, from which `read` creates the
    /// algorithm. `python` is the path of the running interpreter.
    #[must_use]
    pub fn with_python(
        self,
        python: PathBuf,
        read: impl Fn(&str, &Parameters) -> Result<Box<dyn DynAlgorithm>, UnknownAlgorithm>
        + Send
        + Sync
        + 'static,
    ) -> Registry {
        Registry {
            python: Some((python, Box::new(read))),
            ..self
        }
    }

    /// Returns the path of the interpreter if Python files are enabled.
    pub fn python(&self) -> Option<&Path> {
        self.python.as_ref().map(|(python, _)| python.as_path())
    }

    /// Creates an algorithm. Parameters that the algorithm does not have are rejected.
    pub fn by_name(
        &self,
        name: &str,
        parameters: &Parameters,
    ) -> Result<Box<dyn DynAlgorithm>, UnknownAlgorithm> {
        if let Some(files) = self
            .files
            .as_ref()
            .filter(|_| name.ends_with(PROGRAM_FILE_SUFFIX))
        {
            let text = files.text(name)?;
            let known = text.parameters().iter().map(|p| p.name.as_str());
            reject_unknown(name, parameters, known)?;
            return Ok(program_file::make(name, &text, parameters)?);
        }
        if name.ends_with(PYTHON_FILE_SUFFIX) {
            return match &self.python {
                Some((_, read)) => read(name, parameters),
                None => Err(UnknownAlgorithm::Text(format!(
                    "{name} is a Python file; run the same command as `python3 -I -m ccplane …`, \
                     with ccplane's Python package"
                ))),
            };
        }
        let Some(entry) = self.entries.iter().find(|entry| entry.doc.name == name) else {
            return Err(UnknownAlgorithm::Name {
                name: name.to_owned(),
                closest: self.closest(name),
                known: self.names().map(str::to_owned).collect(),
            });
        };
        reject_unknown(
            name,
            parameters,
            entry.doc.parameters.iter().map(|p| p.name),
        )?;
        Ok((entry.make)(parameters)?)
    }

    /// Returns all names, in order of addition.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.doc.name)
    }

    /// Returns the documentation of every algorithm, in order of addition.
    pub fn docs(&self) -> impl Iterator<Item = &AlgorithmDoc> {
        self.entries.iter().map(|entry| &entry.doc)
    }

    /// Returns the name at the smallest edit distance, up to a distance of 2.
    fn closest(&self, name: &str) -> Option<String> {
        let (distance, closest) = self
            .names()
            .map(|known| (strsim::levenshtein(known, name), known))
            .min()?;
        (distance <= 2).then(|| closest.to_owned())
    }
}

/// Rejects parameters that the algorithm does not have.
fn reject_unknown<'k>(
    algorithm: &str,
    parameters: &Parameters,
    known: impl Iterator<Item = &'k str> + Clone,
) -> Result<(), BadParameter> {
    match parameters
        .names()
        .find(|given| known.clone().all(|name| name != *given))
    {
        None => Ok(()),
        Some(stray) => Err(BadParameter::Unknown {
            algorithm: algorithm.to_owned(),
            name: stray.to_owned(),
            known: known.map(str::to_owned).collect(),
        }),
    }
}

impl ProgramFiles {
    fn text(&self, path: &str) -> Result<Arc<ProgramFile>, UnknownAlgorithm> {
        // No code path panics while holding the lock, so a poisoned lock is still consistent.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = known.get(path) {
            return Ok(text.clone());
        }
        let source = (self.read)(path)
            .map_err(|e| UnknownAlgorithm::Text(format!("{path} cannot be read: {e}")))?;
        let text = ProgramFile::read(&source).map_err(|problems| {
            UnknownAlgorithm::Text(format!("{:#}", problems.with_name(path)))
        })?;
        let text = Arc::new(text);
        known.insert(path.to_owned(), text.clone());
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Registry {
        Registry::empty()
            .add(reno::DOC, reno::make)
            .add(cubic::DOC, cubic::make)
    }

    fn error(name: &str, parameters: &str) -> String {
        match two().by_name(name, &parameters.parse().expect("well-formed")) {
            Ok(_) => panic!("{name} with {parameters} was accepted"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_misspelt_name_is_corrected() {
        assert_eq!(
            error("cubik", ""),
            "there is no algorithm `cubik`; did you mean `cubic`? available: reno, cubic"
        );
        assert_eq!(
            error("quic-bbr", ""),
            "there is no algorithm `quic-bbr`; available: reno, cubic"
        );
    }

    #[test]
    fn unknown_parameters_list_the_known_ones() {
        assert_eq!(
            error("reno", "hystart=off"),
            "`reno` has no parameter `hystart`; it has report, slow_start, split"
        );
        assert!(error("cubic", "hystart=on").contains("invalid value `on` for `hystart`"));
        assert!(
            error("reno", "report=sometimes").contains("invalid value `sometimes` for `report`")
        );
        assert_eq!(
            "report".parse::<Parameters>(),
            Err(BadParameter::Malformed("report".to_owned()))
        );
    }

    #[test]
    fn documented_defaults_are_valid_values() {
        for doc in Registry::builtin().docs() {
            let all = doc
                .parameters
                .iter()
                .fold(Parameters::new(), |p, doc| p.with(doc.name, doc.default));
            assert!(
                Registry::builtin().by_name(doc.name, &all).is_ok(),
                "{}",
                doc.name
            );
        }
    }

    #[test]
    fn a_user_adds_an_algorithm() {
        let doc = AlgorithmDoc {
            name: "mine",
            doc: "mine",
            parameters: &[],
        };
        let registry = two().add(doc, reno::make);
        assert!(registry.by_name("mine", &Parameters::new()).is_ok());
        assert_eq!(
            registry.names().collect::<Vec<_>>(),
            ["reno", "cubic", "mine"]
        );
    }
}
