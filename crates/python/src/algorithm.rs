//! Adapter from a Python class to an algorithm of the agent.
//!
//! An exception in a callback ends the control of its flow only: the flow returns to the NewReno of
//! its datapath. If the datapath cannot take the flow back, the flow runs NewReno as a datapath
//! program.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use ccplane_agent::Refusal;
use ccplane_agent::{
    Algorithm, Control as Steering, DynAlgorithm, Programs, Report, ReportBatch, box_algorithm,
};
use ccplane_algorithms::{
    AlgorithmDoc, BadParameter, ParameterDoc, Parameters, Registry, UnknownAlgorithm,
};
use ccplane_datapath::Capabilities;
use ccplane_lang::ProgramFile;
use ccplane_units::{Bytes, Duration, Rate};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple, PyType};

use crate::flow::{Control, Flow, FlowInfo, FlowStats, PendingCommands, duration};
use crate::thread::visit;

/// Program of a flow after an exception, if its datapath cannot take the flow back.
const RENO: &str = include_str!("../../algorithms/text/reno.ccp");
/// Name of the fallback program. The spaces rule out a clash with a program of the class.
const FALLBACK: &str = "newreno after an exception";

/// Attributes of an algorithm class.
struct ClassDescription {
    /// Name that selects the algorithm.
    name: String,
    /// `name` of the class, from which the kernel's name is derived.
    own_name: String,
    about: String,
    programs: Vec<(String, String)>,
    needs: Capabilities,
    latency: Duration,
    parameters: Vec<(String, String)>,
}

/// Adds classes to the algorithms offered to the command line and to experiments.
pub(crate) fn register(mut registry: Registry, classes: &[Bound<'_, PyAny>]) -> PyResult<Registry> {
    for class in classes {
        let described = describe(class)?;
        let doc = doc(&described);
        let class = class.clone().unbind();
        registry = registry.add(doc, move |given| {
            visit(|py| make(class.bind(py), given, None))
        });
    }
    Ok(registry)
}

/// Adds the loader of Python files, which are selected by path.
pub(crate) fn with_files(registry: Registry) -> Registry {
    let read = |path: &str, given: &Parameters| {
        visit(|py| {
            let file =
                ccplane::given_file(path).map(|file| (file.path, PyBytes::new(py, &file.bytes)));
            let load = py
                .import("ccplane._script")
                .and_then(|script| script.getattr("load"));
            let class = load
                .and_then(|load| load.call1((path, file)))
                .map_err(|why| UnknownAlgorithm::Text(why.value(py).to_string()))?;
            let described =
                describe(&class).map_err(|why| UnknownAlgorithm::Text(format!("{path}: {why}")))?;
            let known = described.parameters.iter().map(|(name, _)| name.clone());
            if let Some(stray) = given
                .names()
                .find(|given| known.clone().all(|name| name != *given))
            {
                return Err(UnknownAlgorithm::Parameter(BadParameter::Unknown {
                    algorithm: path.to_owned(),
                    name: stray.to_owned(),
                    known: known.collect(),
                }));
            }
            // A flow selects the algorithm by the path of its file.
            let named = ClassDescription {
                name: path.to_owned(),
                ..described
            };
            Ok(make(&class, given, Some(named))?)
        })
    };
    registry
        .with_files(|path| std::fs::read_to_string(path))
        .with_python(interpreter(), read)
}

/// Returns the path of this interpreter. In a virtual environment it differs from the executable of
/// the process.
fn interpreter() -> PathBuf {
    let named = visit(|py| {
        py.import("sys")?
            .getattr("executable")?
            .extract::<PathBuf>()
    })
    .ok();
    let named = named.filter(|path| !path.as_os_str().is_empty());
    named
        .or_else(|| std::env::current_exe().ok())
        .unwrap_or_else(|| "python3".into())
}

/// Returns the registry entry of a class, which lives as long as the process. Equal classes share
/// an entry: a search runs one class many times, and each entry is leaked.
fn doc(described: &ClassDescription) -> AlgorithmDoc {
    static KNOWN: Mutex<Vec<AlgorithmDoc>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let is_it = |doc: &&AlgorithmDoc| {
        let parameters = doc.parameters.iter().map(|p| (p.name, p.default));
        let ours = described
            .parameters
            .iter()
            .map(|(name, default)| (&**name, &**default));
        doc.name == described.name && doc.doc == described.about && parameters.eq(ours)
    };
    if let Some(doc) = known.iter().find(is_it) {
        return *doc;
    }
    let keep = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
    let parameter = |(name, default): &(String, String)| ParameterDoc {
        name: keep(name),
        values: "as the class accepts it",
        default: keep(default),
        doc: "",
    };
    let doc = AlgorithmDoc {
        name: keep(&described.name),
        doc: keep(&described.about),
        parameters: Vec::leak(described.parameters.iter().map(parameter).collect()),
    };
    known.push(doc);
    doc
}

/// Reads and validates the attributes of a class. Checked before anything runs, with errors that
/// state the fix.
fn describe(class: &Bound<'_, PyAny>) -> PyResult<ClassDescription> {
    let called = class
        .getattr("__name__")
        .map_or_else(|_| class.to_string(), |name| name.to_string());
    let wrong = |what: &str| PyTypeError::new_err(format!("{called}: {what}"));
    if !class.is_callable() {
        return Err(wrong(
            "an algorithm must be a class, or a function that returns an object of one",
        ));
    }
    // The methods of `ccplane.Algorithm` only raise NotImplementedError, so they do not count.
    let base = class.py().import("ccplane")?.getattr("Algorithm")?;
    let has = |method: &str| {
        let bare = base.getattr(method).ok();
        let is_own = |found: &Bound<'_, PyAny>| bare.is_none_or(|bare| !found.is(&bare));
        class
            .getattr(method)
            .is_ok_and(|found| found.is_callable() && is_own(&found))
    };
    if !has("open") {
        return Err(wrong(
            "it has no method `open`; an algorithm needs `open` and `on_report`",
        ));
    }
    if !has("on_report") && !has("on_reports") {
        return Err(wrong(
            "it has neither `on_report` nor `on_reports`; an algorithm needs one of them",
        ));
    }
    let name: String = match class.getattr("name") {
        Ok(name) => name
            .extract()
            .map_err(|_| wrong("`name` is not a string"))?,
        Err(_) => {
            return Err(wrong(
                "it has no `name`; write name = \"mine\" in the class",
            ));
        }
    };
    let programs = class
        .getattr("programs")
        .map_err(|_| wrong("it has no `programs`; set a dict of names and program texts"))?;
    let programs: Vec<(String, String)> = programs
        .cast_into::<PyDict>()
        .map_err(|_| wrong("`programs` is not a dict of names and program texts"))?
        .iter()
        .map(|(name, program)| {
            // `programs` maps to `Fold` classes or to plain text.
            let text = program.getattr("text").unwrap_or(program);
            Ok((name.extract()?, text.extract()?))
        })
        .collect::<PyResult<_>>()?;
    if programs.is_empty() {
        return Err(wrong("`programs` is empty; flows need a program to report"));
    }
    for (program, text) in &programs {
        ccplane_lang::compile(text, &ccplane_lang::ProgramLimits::default()).map_err(|why| {
            PyValueError::new_err(format!(
                "{called}: program `{program}` does not compile\n{why}"
            ))
        })?;
    }
    let mut needs = Capabilities::CWND;
    if let Ok(words) = class.getattr("needs") {
        needs = Capabilities::default();
        for word in words.try_iter()? {
            let word: String = word?.extract()?;
            let known: Vec<_> = Capabilities::keywords().collect();
            let one = Capabilities::from_keyword(&word).ok_or_else(|| {
                wrong(&format!(
                    "`needs` has an unknown capability `{word}`; use {}",
                    known.join(", ")
                ))
            })?;
            needs = needs.union(one);
        }
    }
    let latency = match class.getattr("latency") {
        Ok(text) => duration(&text.extract::<String>()?)?,
        Err(_) => Duration::from_millis(1),
    };
    let parameters = match class.getattr("parameters") {
        Ok(all) => all
            .cast_into::<PyDict>()
            .map_err(|_| wrong("`parameters` is not a dict of names and defaults"))?
            .iter()
            .map(|(name, default)| Ok((name.extract()?, default.str()?.to_string())))
            .collect::<PyResult<_>>()?,
        Err(_) => Vec::new(),
    };
    let about = class
        .getattr("__doc__")
        .ok()
        .and_then(|doc| doc.extract::<String>().ok());
    let about = about.and_then(|doc| doc.trim().lines().next().map(str::to_owned));
    Ok(ClassDescription {
        own_name: name.clone(),
        name,
        about: about.unwrap_or_else(|| format!("the Python class {called}")),
        programs,
        needs,
        latency,
        parameters,
    })
}

/// Instantiates a class. Each parameter is converted from text to the type of its default.
fn make(
    class: &Bound<'_, PyAny>,
    given: &Parameters,
    described: Option<ClassDescription>,
) -> Result<Box<dyn DynAlgorithm>, BadParameter> {
    let py = class.py();
    let failed = |why: PyErr| {
        let (name, value) = given.iter().next().unwrap_or_default();
        BadParameter::value(name, value, format!("the class does not accept it: {why}"))
    };
    let described = described.map_or_else(|| describe(class).map_err(failed), Ok)?;
    let parameters = PyDict::new(py);
    for (name, value) in given.iter() {
        let default = class
            .getattr("parameters")
            .and_then(|all| all.get_item(name))
            .map_err(failed)?;
        let kind = default.get_type();
        let converted = kind.call1((value,)).map_err(|_| {
            let kind = kind
                .name()
                .map_or_else(|_| "a value".to_owned(), |name| name.to_string());
            BadParameter::value(name, value, kind)
        })?;
        parameters.set_item(name, converted).map_err(failed)?;
    }
    let object = class.call((), Some(&parameters)).map_err(failed)?;
    PyAlgorithm::new(&object, described)
        .map(box_algorithm)
        .map_err(failed)
}

/// Instance of a Python class.
struct PyAlgorithm {
    description: ClassDescription,
    fallback: Option<String>,
    open: Py<PyAny>,
    on_report: Option<Py<PyAny>>,
    on_reports: Option<Py<PyAny>>,
    on_timer: Option<Py<PyAny>>,
    on_refused: Option<Py<PyAny>>,
    on_close: Option<Py<PyAny>>,
    pending_commands: PendingCommands,
    control: Py<Control>,
    /// Number of flows opened so far.
    flows: u64,
    /// Report class by program id.
    reports: HashMap<u32, Py<PyType>>,
    /// `ccplane._report.report_class` and `tuple.__new__`, which makes a report from its fields.
    report_class: Py<PyAny>,
    new_report: Py<PyAny>,
    /// `ccplane.batch.ReportBatch`; `None` if the class has no `on_reports`.
    batch_class: Option<Py<PyAny>>,
    /// True after the first exception, the only one that is logged.
    raised: bool,
}

/// State of a flow.
struct PyFlowState {
    flow: Py<Flow>,
    /// Return value of `open`; `None` if `open` raised.
    state: Option<Py<PyAny>>,
}

impl PyFlowState {
    /// Returns the algorithm's state unless a callback of the flow has raised.
    fn live_state(&self) -> Option<&Py<PyAny>> {
        let fallen = self.flow.get().fallen.load(Ordering::Relaxed);
        self.state.as_ref().filter(|_| !fallen)
    }
}

/// Reports of one program in one wake-up, from which a `ccplane.batch.ReportBatch` is made.
#[derive(Default)]
struct GatheredReports {
    program: Option<u32>,
    names: Vec<String>,
    ids: Vec<u8>,
    fields: Vec<u8>,
    urgent: Vec<u8>,
    states: Vec<Py<PyAny>>,
    flows: Vec<Py<Flow>>,
}

impl PyAlgorithm {
    fn new(object: &Bound<'_, PyAny>, described: ClassDescription) -> PyResult<PyAlgorithm> {
        let py = object.py();
        let method = |name: &str| {
            object
                .getattr(name)
                .ok()
                .filter(|m| m.is_callable())
                .map(Bound::unbind)
        };
        let asked = PendingCommands::default();
        let control = Control {
            asked: asked.clone(),
            flows: Default::default(),
        };
        let on_reports = method("on_reports");
        let batch_class = match &on_reports {
            Some(_) => Some(py.import("ccplane.batch")?.getattr("Batch")?.unbind()),
            None => None,
        };
        let text = ProgramFile::read(RENO)
            .ok()
            .and_then(|text| text.program(&[]).ok());
        Ok(PyAlgorithm {
            description: described,
            fallback: text,
            open: object.getattr("open")?.unbind(),
            on_report: method("on_report"),
            on_reports,
            on_timer: method("on_timer"),
            on_refused: method("on_refused"),
            on_close: method("on_close"),
            pending_commands: asked,
            control: Py::new(py, control)?,
            flows: 0,
            reports: HashMap::new(),
            report_class: py
                .import("ccplane._report")?
                .getattr("report_class")?
                .unbind(),
            new_report: py
                .import("builtins")?
                .getattr("tuple")?
                .getattr("__new__")?
                .unbind(),
            batch_class,
            raised: false,
        })
    }

    /// Handles an exception: logs the first with its traceback, and returns the flows to NewReno.
    fn on_exception(
        &mut self,
        py: Python<'_>,
        why: PyErr,
        flows: &[&Flow],
        steering: Option<&mut Steering<'_>>,
    ) {
        if !std::mem::replace(&mut self.raised, true) {
            let what = match flows.len() {
                0 => "the timer is not set again",
                1 => "its flow continues with NewReno",
                _ => "the flows of the batch continue with NewReno",
            };
            tracing::error!(
                "{}: a callback raised an exception; {what}. Further exceptions are not shown",
                self.description.name
            );
            why.display(py);
        }
        let Some(steering) = steering else { return };
        steering.count_exception();
        for flow in flows {
            flow.fallen.store(true, Ordering::Relaxed);
            if steering.flow_id() == Some(flow.id) {
                steering.release();
            } else if let Some(mut other) = steering.flow(flow.id) {
                other.release();
            }
        }
    }

    fn deliver_report(
        &mut self,
        py: Python<'_>,
        state: &mut PyFlowState,
        report: &Report<'_>,
        steering: &mut Steering<'_>,
    ) {
        let (Some(own), Some(on_report)) = (state.live_state(), &self.on_report) else {
            return;
        };
        let on_report = on_report.clone_ref(py);
        let outcome = self.report_object(py, report, steering).and_then(|object| {
            on_report
                .bind(py)
                .call1((own.bind(py), object, state.flow.bind(py)))
        });
        match outcome {
            Ok(_) => self.pending_commands.apply(steering),
            Err(why) => {
                self.pending_commands.apply(steering);
                self.on_exception(py, why, &[state.flow.get()], Some(steering));
            }
        }
    }

    /// Passes the reports of a wake-up as arrays, one batch per run of reports of one program.
    fn deliver_batches(
        &mut self,
        py: Python<'_>,
        batch: &mut ReportBatch<'_, PyFlowState>,
        steering: &mut Steering<'_>,
    ) {
        let mut gathered = GatheredReports::default();
        while let Some((state, report)) = batch.next(steering) {
            let Some(own) = state.live_state() else {
                continue;
            };
            if gathered.program != Some(report.program().uid) {
                self.call_on_reports(py, std::mem::take(&mut gathered), steering);
                gathered.program = Some(report.program().uid);
                gathered.names = report.program().report_names().map(str::to_owned).collect();
            }
            let flow = state.flow.clone_ref(py);
            gathered.ids.extend(flow.get().number.to_ne_bytes());
            gathered
                .fields
                .extend(report.fields().iter().flat_map(|value| value.to_ne_bytes()));
            gathered.urgent.push(u8::from(report.is_urgent()));
            gathered.states.push(own.clone_ref(py));
            gathered.flows.push(flow);
        }
        self.call_on_reports(py, gathered, steering);
    }

    /// Calls `on_reports` and applies what it set.
    fn call_on_reports(
        &mut self,
        py: Python<'_>,
        gathered: GatheredReports,
        steering: &mut Steering<'_>,
    ) {
        let (Some(on_reports), Some(class)) = (&self.on_reports, &self.batch_class) else {
            return;
        };
        if gathered.flows.is_empty() {
            return;
        }
        let now = steering.now().as_nanos() / 1000;
        let outcome = PyTuple::new(py, &gathered.names).and_then(|names| {
            let batch = class.bind(py).call1((
                PyBytes::new(py, &gathered.ids),
                PyBytes::new(py, &gathered.fields),
                names,
                PyBytes::new(py, &gathered.urgent),
                now,
                gathered.states,
            ))?;
            on_reports.bind(py).call1((&batch,))?;
            batch
                .getattr("_asked")?
                .extract::<Vec<(String, Bound<'_, PyBytes>)>>()
        });
        self.pending_commands.apply(steering);
        let asked = match outcome {
            Ok(asked) => asked,
            Err(why) => {
                let flows: Vec<&Flow> = gathered.flows.iter().map(|flow| flow.get()).collect();
                return self.on_exception(py, why, &flows, Some(steering));
            }
        };
        for (n, flow) in gathered.flows.iter().enumerate() {
            let Some(mut control) = steering.flow(flow.get().id) else {
                continue;
            };
            for (name, values) in &asked {
                let Some(value) = values.as_bytes().as_chunks().0.get(n) else {
                    continue;
                };
                let value = u64::from_ne_bytes(*value);
                match &**name {
                    "cwnd" | "rate" | "ssthresh" if value == 0 => {}
                    "cwnd" => control.set_cwnd(Bytes::new(value)),
                    "rate" => control.set_rate(Rate::from_bytes_per_sec(value)),
                    "ssthresh" => control.set_ssthresh(Bytes::new(value)),
                    variable => control.set_variable(variable.trim_start_matches('='), value),
                }
            }
        }
    }

    /// Makes a report: a tuple with named fields.
    fn report_object<'py>(
        &mut self,
        py: Python<'py>,
        report: &Report<'_>,
        steering: &Steering<'_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let uid = report.program().uid;
        let class = match self.reports.get(&uid) {
            Some(class) => class,
            None => {
                let names = PyTuple::new(py, report.program().report_names())?;
                let class = self
                    .report_class
                    .bind(py)
                    .call1((names,))?
                    .cast_into::<PyType>()?;
                self.reports.entry(uid).or_insert(class.unbind())
            }
        };
        let now = steering.now().as_nanos() / 1000;
        let fields = report.fields().iter().copied();
        let values: Vec<u64> = fields.chain([u64::from(report.is_urgent()), now]).collect();
        self.new_report
            .bind(py)
            .call1((class.bind(py), PyTuple::new(py, values)?))
    }
}

impl Algorithm for PyAlgorithm {
    type Flow = PyFlowState;

    fn name(&self) -> &str {
        &self.description.name
    }

    fn kernel_name(&self) -> String {
        let allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
        let own = self.description.own_name.chars().filter(allowed);
        "ccp_".chars().chain(own).take(15).collect()
    }

    fn programs(&self) -> Programs {
        let own = self.description.programs.iter();
        let own = own.fold(Programs::new(), |all, (name, text)| {
            all.with(name.clone(), text.clone())
        });
        match &self.fallback {
            Some(text) => own.with(FALLBACK, text.clone()),
            None => own,
        }
    }

    fn required_capabilities(&self) -> Capabilities {
        self.description.needs
    }

    fn latency(&self) -> Duration {
        self.description.latency
    }

    fn open(&mut self, info: &ccplane_agent::FlowInfo, steering: &mut Steering<'_>) -> PyFlowState {
        visit(|py| {
            let number = self.flows;
            self.flows += 1;
            let flow = Flow {
                number,
                id: steering.flow_id().unwrap_or_default(),
                asked: self.pending_commands.clone(),
                capabilities: steering.capabilities(),
                fallen: AtomicBool::new(false),
            };
            // Allocation fails only if memory is exhausted.
            let flow = Py::new(py, flow).unwrap_or_else(|why| panic!("{why}"));
            let known = self.control.get().flows.lock();
            known
                .unwrap_or_else(PoisonError::into_inner)
                .insert(number, flow.clone_ref(py));
            let mut state = PyFlowState { flow, state: None };
            match self
                .open
                .bind(py)
                .call1((FlowInfo::from(info), state.flow.bind(py)))
            {
                Ok(own) => {
                    state.state = Some(own.unbind());
                    self.pending_commands.apply(steering);
                }
                Err(why) => {
                    self.pending_commands.apply(steering);
                    self.on_exception(py, why, &[state.flow.get()], Some(steering));
                }
            }
            state
        })
    }

    fn on_report(
        &mut self,
        state: &mut PyFlowState,
        report: &Report<'_>,
        steering: &mut Steering<'_>,
    ) {
        visit(|py| self.deliver_report(py, state, report, steering));
    }

    fn on_reports(
        &mut self,
        batch: &mut ReportBatch<'_, PyFlowState>,
        steering: &mut Steering<'_>,
    ) {
        visit(|py| match self.on_reports {
            Some(_) => self.deliver_batches(py, batch, steering),
            None => {
                while let Some((state, report)) = batch.next(steering) {
                    self.deliver_report(py, state, &report, steering);
                }
            }
        });
    }

    fn on_timer(&mut self, steering: &mut Steering<'_>) {
        visit(|py| {
            let Some(on_timer) = &self.on_timer else {
                return;
            };
            let outcome = on_timer.bind(py).call1((self.control.bind(py),));
            self.pending_commands.apply(steering);
            if let Err(why) = outcome {
                self.on_exception(py, why, &[], Some(steering));
            }
        });
    }

    fn on_refused(&mut self, state: &mut PyFlowState, why: &Refusal, steering: &mut Steering<'_>) {
        if *why == Refusal::NoRelease {
            if self.fallback.is_some() {
                steering.set_program(FALLBACK, &[]);
            }
            return;
        }
        visit(|py| {
            let (Some(on_refused), Some(own)) = (&self.on_refused, state.live_state()) else {
                return;
            };
            let outcome =
                on_refused
                    .bind(py)
                    .call1((own.bind(py), why.to_string(), state.flow.bind(py)));
            self.pending_commands.apply(steering);
            if let Err(why) = outcome {
                self.on_exception(py, why, &[state.flow.get()], Some(steering));
            }
        });
    }

    fn on_close(&mut self, state: PyFlowState, last: &ccplane_agent::FlowStats) {
        visit(|py| {
            let known = self.control.get().flows.lock();
            known
                .unwrap_or_else(PoisonError::into_inner)
                .remove(&state.flow.get().number);
            let (Some(on_close), Some(own)) = (&self.on_close, state.live_state()) else {
                return;
            };
            if let Err(why) = on_close
                .bind(py)
                .call1((own.bind(py), FlowStats::from(last)))
            {
                self.on_exception(py, why, &[], None);
            }
        });
    }
}
