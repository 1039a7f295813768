//! Which algorithms there are: the built-in ones, and those that a user's own program adds.

use ccplane_agent::DynAlgorithm;

use crate::{
    BadParameter, ParameterDoc, Parameters, autorate, bbr, bundler, constant, copa, cubic, dctcp, dx, ledbat, nimbus,
    reno, swift, timely, vegas, vivace,
};

/// Algorithms by name. A value, so that a user's own `main` can add to it what the command then offers everywhere.
pub struct Registry(Vec<Entry>);

struct Entry {
    doc: AlgorithmDoc,
    make: Box<Make>,
}

type Make = dyn Fn(&Parameters) -> Result<Box<dyn DynAlgorithm>, BadParameter> + Send + Sync;

/// What an algorithm is, for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlgorithmDoc {
    /// Its name.
    pub name: &'static str,
    /// One line.
    pub doc: &'static str,
    /// Its parameters.
    pub parameters: &'static [ParameterDoc],
}

/// Why no algorithm could be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnknownAlgorithm {
    /// No such name.
    #[error("there is no algorithm `{name}`{}; there are {}", closest.as_ref().map(|c| format!(", did you mean `{c}`?")).unwrap_or_default(), .known.join(", "))]
    Name {
        /// What was asked for.
        name: String,
        /// The name that is most like it.
        closest: Option<String>,
        /// What there is.
        known: Vec<String>,
    },
    /// The algorithm is there, a parameter is not right.
    #[error(transparent)]
    Parameter(#[from] BadParameter),
}

impl Default for Registry {
    fn default() -> Registry {
        Registry::builtin()
    }
}

impl Registry {
    /// No algorithms.
    pub fn empty() -> Registry {
        Registry(Vec::new())
    }

    /// Those of this crate.
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
    }

    /// One more; it replaces one of the same name.
    #[must_use]
    pub fn add(
        mut self,
        doc: AlgorithmDoc,
        make: impl Fn(&Parameters) -> Result<Box<dyn DynAlgorithm>, BadParameter> + Send + Sync + 'static,
    ) -> Registry {
        self.0.retain(|entry| entry.doc.name != doc.name);
        self.0.push(Entry {
            doc,
            make: Box::new(make),
        });
        self
    }

    /// Makes an algorithm. A parameter that it does not have is an error that lists those it has.
    pub fn by_name(&self, name: &str, parameters: &Parameters) -> Result<Box<dyn DynAlgorithm>, UnknownAlgorithm> {
        let Some(entry) = self.0.iter().find(|entry| entry.doc.name == name) else {
            return Err(UnknownAlgorithm::Name {
                name: name.to_owned(),
                closest: self.closest(name),
                known: self.names().map(str::to_owned).collect(),
            });
        };
        let known = || entry.doc.parameters.iter().map(|p| p.name);
        if let Some(stray) = parameters.names().find(|given| known().all(|name| name != *given)) {
            return Err(UnknownAlgorithm::Parameter(BadParameter::Unknown {
                algorithm: name.to_owned(),
                name: stray.to_owned(),
                known: known().map(str::to_owned).collect(),
            }));
        }
        Ok((entry.make)(parameters)?)
    }

    /// All names, in order of addition.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|entry| entry.doc.name)
    }

    /// What there is, for a person.
    pub fn docs(&self) -> impl Iterator<Item = &AlgorithmDoc> {
        self.0.iter().map(|entry| &entry.doc)
    }

    /// The name at the smallest edit distance, if that is at most 2.
    fn closest(&self, name: &str) -> Option<String> {
        let (distance, closest) = self
            .names()
            .map(|known| (strsim::levenshtein(known, name), known))
            .min()?;
        (distance <= 2).then(|| closest.to_owned())
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
            "there is no algorithm `cubik`, did you mean `cubic`?; there are reno, cubic"
        );
        assert_eq!(
            error("quic-bbr", ""),
            "there is no algorithm `quic-bbr`; there are reno, cubic"
        );
    }

    #[test]
    fn a_parameter_that_is_not_there_lists_those_that_are() {
        assert_eq!(
            error("reno", "hystart=off"),
            "`reno` has no parameter `hystart`; it has report, slow_start"
        );
        assert!(error("cubic", "hystart=on").contains("`on` is no value for `hystart`"));
        assert!(error("reno", "report=sometimes").contains("`sometimes` is no value for `report`"));
        assert_eq!(
            "report".parse::<Parameters>(),
            Err(BadParameter::Form("report".to_owned()))
        );
    }

    #[test]
    fn every_default_that_is_documented_is_accepted_as_a_value() {
        for doc in Registry::builtin().docs() {
            let all = doc
                .parameters
                .iter()
                .fold(Parameters::new(), |p, doc| p.with(doc.name, doc.default));
            assert!(Registry::builtin().by_name(doc.name, &all).is_ok(), "{}", doc.name);
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
        assert_eq!(registry.names().collect::<Vec<_>>(), ["reno", "cubic", "mine"]);
    }
}
