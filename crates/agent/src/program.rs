//! Programs of a hosted algorithm, compiled once and shared by all its flows.

use std::any::TypeId;
use std::borrow::Cow;
use std::sync::Arc;

use ccplane_datapath::{Capabilities, Program};
use ccplane_lang as lang;
use ccplane_units::Duration;

use crate::{Fields, StandaloneProgram};

/// Programs that an algorithm declares: names and sources in the datapath language.
#[derive(Clone, Debug, Default)]
pub struct Programs(Vec<ProgramSource>);

/// Program before compilation.
#[derive(Clone, Debug)]
pub(crate) struct ProgramSource {
    pub name: Cow<'static, str>,
    pub source: Cow<'static, str>,
    /// Struct into which its reports are read.
    pub report_type: Option<ReportType>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportType {
    id: TypeId,
    pub type_name: &'static str,
    pub names: &'static [&'static str],
}

impl Programs {
    /// Creates an empty list.
    pub fn new() -> Programs {
        Programs::default()
    }

    /// Adds a program. It replaces a program of the same name.
    #[must_use]
    pub fn with(
        mut self,
        name: impl Into<Cow<'static, str>>,
        source: impl Into<Cow<'static, str>>,
    ) -> Programs {
        self.insert(name.into(), source.into(), None);
        self
    }

    /// Adds a program whose reports are read into `T`. The struct and the program must have the
    /// same fields in the same order, which is checked when the algorithm is added.
    #[must_use]
    pub fn with_report<T: Fields>(
        mut self,
        name: impl Into<Cow<'static, str>>,
        source: impl Into<Cow<'static, str>>,
    ) -> Programs {
        let reports = ReportType {
            id: TypeId::of::<T>(),
            type_name: std::any::type_name::<T>(),
            names: T::NAMES,
        };
        self.insert(name.into(), source.into(), Some(reports));
        self
    }

    fn insert(
        &mut self,
        name: Cow<'static, str>,
        source: Cow<'static, str>,
        report_type: Option<ReportType>,
    ) {
        self.0.retain(|declared| declared.name != name);
        self.0.push(ProgramSource {
            name,
            source,
            report_type,
        });
    }

    pub(crate) fn sources(&self) -> &[ProgramSource] {
        &self.0
    }

    /// Names and sources, in order of declaration.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|declared| (&*declared.name, &*declared.source))
    }
}

/// Algorithm hosted by an agent, with the data that a driver needs to offer it to a datapath.
#[derive(Debug)]
pub struct HostedAlgorithm {
    /// Name by which flows choose it.
    pub name: Arc<str>,
    /// Name among the kernel's congestion controls.
    pub kernel_name: String,
    /// Required capabilities.
    pub required: Capabilities,
    /// Required and optional capabilities.
    pub requested: Capabilities,
    /// Maximum delay of a report that is not urgent.
    pub latency: Duration,
    /// Compiled programs.
    pub programs: Vec<HostedProgram>,
    /// Standalone program, if there is one.
    pub standalone: Option<StandaloneProgram>,
}

impl HostedAlgorithm {
    /// Returns the standalone program, if there is one, and the index of the control variable that
    /// is set to 1 on a flow that was already live.
    pub fn standalone_program(&self) -> Option<(&HostedProgram, Option<u8>)> {
        let alone = self.standalone?;
        let program = &self.programs[self.program_by_name(alone.program)?];
        Some((
            program,
            alone.live_flag.and_then(|name| program.control(name)),
        ))
    }

    /// Returns true if the algorithm or one of its programs declares that it sets pacing rates.
    pub fn sets_rate(&self) -> bool {
        let sets = |needs: Capabilities| needs.contains(Capabilities::PACING);
        sets(self.requested)
            || self
                .programs
                .iter()
                .any(|program| sets(program.code.required_capabilities()))
    }

    pub(crate) fn program_by_name(&self, name: &str) -> Option<usize> {
        self.programs.iter().position(|p| p.name == name)
    }
}

/// Compiled program with its identity.
#[derive(Debug)]
pub struct HostedProgram {
    /// Name under which the algorithm declared it.
    pub name: String,
    /// Identity in reports and commands: a hash of algorithm, name and source. A restarted agent
    /// finds its own programs under the same identity, and never those of another algorithm.
    pub uid: u32,
    /// Compiler output with names, tree and source.
    pub compiled: Arc<lang::Program>,
    /// Code for the datapath, including the uid.
    pub code: Arc<Program>,
    report_names: Vec<Box<str>>,
    controls: Vec<(Box<str>, u8)>,
    report_type: Option<TypeId>,
}

impl HostedProgram {
    pub(crate) fn compile(
        algorithm: &str,
        declared: &ProgramSource,
        is_taken: impl Fn(u32) -> bool,
    ) -> Result<HostedProgram, lang::Diagnostics> {
        let (name, source) = (&*declared.name, &*declared.source);
        let compiled = lang::compile(source, &lang::ProgramLimits::default())?;
        let mut uid = fnv1a([algorithm, name, source]);
        while uid == 0 || is_taken(uid) {
            uid = uid.wrapping_add(1);
        }
        let report_names = compiled
            .report_names()
            .map(|n| n.trim_start_matches("Report.").into())
            .collect();
        let controls = compiled
            .control_names()
            .filter_map(|n| Some((n.into(), compiled.var_index(n)?)))
            .collect();
        let code = Arc::new(compiled.code().with_uid(uid));
        Ok(HostedProgram {
            name: name.to_owned(),
            uid,
            code,
            compiled: Arc::new(compiled),
            report_names,
            controls,
            report_type: declared.report_type.map(|reports| reports.id),
        })
    }

    /// Returns true if its reports are read into `T`.
    pub(crate) fn reports_into<T: Fields>(&self) -> bool {
        self.report_type == Some(TypeId::of::<T>())
    }

    /// Index of a report field; both `acked` and `Report.acked` are accepted.
    pub fn field(&self, name: &str) -> Option<usize> {
        let short = name.strip_prefix("Report.").unwrap_or(name);
        self.report_names.iter().position(|n| **n == *short)
    }

    /// Index of a control variable.
    pub fn control(&self, name: &str) -> Option<u8> {
        self.controls
            .iter()
            .find(|(n, _)| **n == *name)
            .map(|(_, index)| *index)
    }

    /// Names of the report fields, in order, without `Report.`.
    pub fn report_names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.report_names.iter().map(|n| &**n)
    }
}

/// FNV-1a, 32 bits, with a separator between the parts.
fn fnv1a<const N: usize>(parts: [&str; N]) -> u32 {
    parts
        .iter()
        .flat_map(|part| part.bytes().chain([0]))
        .fold(0x811c_9dc5, |hash: u32, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vectors of the algorithm's authors, with a 0 after each part: "" and "foobar".
    #[test]
    fn hashes_are_those_of_fnv_1a() {
        assert_eq!(fnv1a([]), 0x811c_9dc5);
        assert_eq!(fnv1a(["foobar"]), 0xbf9c_f968_u32.wrapping_mul(0x0100_0193));
        assert_ne!(fnv1a(["ab", "c"]), fnv1a(["a", "bc"]));
    }

    /// 0 stands for no program, and a number is given once.
    #[test]
    fn numbers_in_use_are_skipped() {
        let declared =
            Programs::new().with("fold", "(def (Report (acked 0))) (when true (report))");
        let compile = |taken: &dyn Fn(u32) -> bool| {
            let declared = &declared.sources()[0];
            HostedProgram::compile("alg", declared, taken)
                .expect("it compiles")
                .uid
        };
        let first = compile(&|_| false);
        assert_eq!(compile(&|uid| uid == first), first + 1);
        assert_eq!(compile(&|uid| uid == first || uid == first + 1), first + 2);
        // Past the largest number it begins again at 1.
        assert_eq!(compile(&|uid| uid >= first), 1);
    }
}
