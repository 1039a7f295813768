//! Algorithms defined by a program file. The datapath program makes every decision, and the agent
//! only installs it.

use std::sync::Arc;

use ccplane_agent::{
    Algorithm, Control, DynAlgorithm, FlowInfo, Programs, Report, StandaloneProgram, box_algorithm,
};
use ccplane_datapath::Capabilities;
use ccplane_lang::{ProgramFile, ProgramLimits, compile};

use crate::{BadParameter, Parameters};

/// Name of the only program.
const PROGRAM_NAME: &str = "text";

/// Creates the algorithm of the program file at `path`. Flows select it by that path.
pub(crate) fn make(
    path: &str,
    text: &Arc<ProgramFile>,
    parameters: &Parameters,
) -> Result<Box<dyn DynAlgorithm>, BadParameter> {
    let given: Vec<(&str, &str)> = parameters.iter().collect();
    let program = text.program(&given).map_err(|bad| BadParameter::Value {
        name: bad.name,
        value: bad.value,
        expected: bad.expected,
    })?;
    // The program compiled with its defaults. A value of the same kind changes only a constant,
    // which may overflow in constant folding.
    let compiled = compile(&program, &ProgramLimits::default()).map_err(|why| {
        let (name, value) = given.first().copied().unwrap_or_default();
        BadParameter::value(
            name,
            value,
            format!("the program does not compile with it: {why}"),
        )
    })?;
    Ok(box_algorithm(StandaloneFile {
        path: path.to_owned(),
        text: text.clone(),
        needs: text.needs().union(compiled.code().required_capabilities()),
        program,
    }))
}

/// Agent side of a program file: installs the program and ignores its reports.
struct StandaloneFile {
    path: String,
    text: Arc<ProgramFile>,
    program: String,
    needs: Capabilities,
}

impl Algorithm for StandaloneFile {
    type Flow = ();

    fn name(&self) -> &str {
        &self.path
    }

    fn kernel_name(&self) -> String {
        format!("ccp_{}", self.text.name())
    }

    fn programs(&self) -> Programs {
        Programs::new().with(PROGRAM_NAME, self.program.clone())
    }

    fn required_capabilities(&self) -> Capabilities {
        self.needs
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) {
        // A flow that is taken over keeps its window instead of starting again from the initial
        // one.
        let begun = (ProgramFile::INIT_DONE_VARIABLE, u64::from(info.live));
        let set = [begun];
        control.set_program(PROGRAM_NAME, if self.text.has_init() { &set } else { &[] });
    }

    fn on_report(&mut self, (): &mut (), _report: &Report<'_>, _control: &mut Control<'_>) {}

    fn standalone(&self) -> Option<StandaloneProgram> {
        Some(StandaloneProgram {
            program: PROGRAM_NAME,
            live_flag: self
                .text
                .has_init()
                .then_some(ProgramFile::INIT_DONE_VARIABLE),
        })
    }
}

#[cfg(test)]
mod tests {
    use ccplane_units::Duration;

    use super::*;
    use crate::script::{MSS, Script};
    use crate::{Registry, UnknownAlgorithm};

    const USER_PROGRAM: &str =
        "(algorithm mine (needs cwnd) (param step 2 1 9) (init Cwnd (* 20 Flow.mss)))
(def (grown 0))
(when (> Ack.packets_acked 0) (:= Cwnd (+ Cwnd (* step Flow.mss))) (:= grown (+ grown 1)))";

    fn registry() -> Registry {
        Registry::empty().with_files(|path| match path {
            "./mine.ccp" => Ok(USER_PROGRAM.to_owned()),
            "bad.ccp" => Ok("(algorithm bad) (def) (when true (:= Cwnd mss))".to_owned()),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        })
    }

    fn refused(name: &str, parameters: &str) -> String {
        let parameters = parameters.parse().expect("well-formed");
        match registry().by_name(name, &parameters) {
            Ok(_) => panic!("{name} was accepted"),
            Err(why) => why.to_string(),
        }
    }

    #[test]
    fn paths_name_program_files() {
        let made = registry().by_name("./mine.ccp", &Parameters::new().with("step", "3"));
        let mine = made.unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(
            (mine.name(), mine.kernel_name().as_str()),
            ("./mine.ccp", "ccp_mine")
        );
        let mut script = Script::of(mine).expect("it needs a window only");
        script.ack(Duration::from_millis(1), |_| {});
        assert_eq!(
            script.transport.cwnd,
            23 * MSS,
            "twenty to begin with, and three"
        );
        script.ack(Duration::from_millis(1), |_| {});
        assert_eq!(script.transport.cwnd, 26 * MSS);
    }

    #[test]
    fn errors_name_the_program_file() {
        assert!(refused("./absent.ccp", "").contains("./absent.ccp"));
        let why = refused("bad.ccp", "");
        assert!(
            why.contains("bad.ccp:1:43") && why.contains("`mss`"),
            "{why}"
        );
        assert!(refused("./mine.ccp", "step=10").contains("between 1 and 9"));
        assert!(
            refused("./mine.ccp", "stop=1")
                .contains("`./mine.ccp` has no parameter `stop`; it has step")
        );
        let without = Registry::empty().by_name("./mine.ccp", &Parameters::new());
        assert!(matches!(without, Err(UnknownAlgorithm::Name { .. })));
    }
}
