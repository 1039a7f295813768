//! Arguments of callbacks: the flow to control, its properties and the algorithm's timer.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use ccplane_agent::{Control as Steering, FlowId};
use ccplane_datapath::Capabilities;
use ccplane_units::{Bytes, Duration, Rate};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat};

/// Settings made by callbacks, buffered until the callback returns and sent as one command per
/// flow.
#[derive(Clone, Default)]
pub(crate) struct PendingCommands(Arc<Mutex<Vec<(FlowId, FlowCommand)>>>);

enum FlowCommand {
    Cwnd(u64),
    Rate(u64),
    Ssthresh(u64),
    Variable(String, u64),
    Program(String, Vec<(String, u64)>),
    Timer(Duration),
}

impl PendingCommands {
    fn push(&self, flow: FlowId, ask: FlowCommand) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((flow, ask));
    }

    /// Applies all buffered settings. Settings of flows that have ended are dropped.
    pub fn apply(&self, steering: &mut Steering<'_>) {
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let this = steering.flow_id();
        for (flow, ask) in asked.drain(..) {
            if Some(flow) == this || matches!(ask, FlowCommand::Timer(_)) {
                ask.apply(steering);
            } else if let Some(mut other) = steering.flow(flow) {
                ask.apply(&mut other);
            }
        }
    }
}

impl FlowCommand {
    fn apply(self, steering: &mut Steering<'_>) {
        match self {
            FlowCommand::Cwnd(bytes) => steering.set_cwnd(Bytes::new(bytes)),
            FlowCommand::Rate(rate) => steering.set_rate(Rate::from_bytes_per_sec(rate)),
            FlowCommand::Ssthresh(bytes) => steering.set_ssthresh(Bytes::new(bytes)),
            FlowCommand::Variable(name, value) => steering.set_variable(&name, value),
            FlowCommand::Program(name, variables) => {
                let variables: Vec<(&str, u64)> = variables
                    .iter()
                    .map(|(name, value)| (&**name, *value))
                    .collect();
                steering.set_program(&name, &variables);
            }
            FlowCommand::Timer(delay) => steering.set_timer(delay),
        }
    }
}

/// Flow under control. Settings made in a callback reach the datapath as one command when the
/// callback returns.
#[pyclass(module = "ccplane", frozen)]
pub(crate) struct Flow {
    pub number: u64,
    pub id: FlowId,
    pub asked: PendingCommands,
    pub capabilities: Capabilities,
    /// True after a callback of the flow has raised: the flow is no longer controlled.
    pub fallen: AtomicBool,
}

#[pymethods]
impl Flow {
    /// Number of the flow within this algorithm object, from 0.
    #[getter]
    fn id(&self) -> u64 {
        self.number
    }

    /// Capabilities of the flow's datapath.
    #[getter]
    fn capabilities(&self) -> Vec<&'static str> {
        let can = |word: &&str| {
            Capabilities::from_keyword(word).is_some_and(|c| self.capabilities.contains(c))
        };
        Capabilities::keywords().filter(can).collect()
    }

    /// Sets the congestion window, bytes. The datapath clamps it to the operator's limits.
    #[setter]
    fn set_cwnd(&self, bytes: &Bound<'_, PyAny>) -> PyResult<()> {
        self.asked
            .push(self.id, FlowCommand::Cwnd(whole(bytes, "cwnd", "bytes")?));
        Ok(())
    }

    /// Sets the pacing rate, bytes per second.
    #[setter]
    fn set_rate(&self, rate: &Bound<'_, PyAny>) -> PyResult<()> {
        self.asked.push(
            self.id,
            FlowCommand::Rate(whole(rate, "rate", "bytes per second")?),
        );
        Ok(())
    }

    /// Sets the slow-start threshold, bytes: the window to which the datapath's recovery reduces
    /// after a loss.
    #[setter]
    fn set_ssthresh(&self, bytes: &Bound<'_, PyAny>) -> PyResult<()> {
        self.asked.push(
            self.id,
            FlowCommand::Ssthresh(whole(bytes, "ssthresh", "bytes")?),
        );
        Ok(())
    }

    /// Sets a control variable of the flow's program.
    fn set(&self, name: String, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let value = whole(value, &name, "a number")?;
        self.asked.push(self.id, FlowCommand::Variable(name, value));
        Ok(())
    }

    /// Installs one of the algorithm's programs on the flow, with values of its control variables.
    #[pyo3(signature = (name, **variables))]
    fn program(&self, name: String, variables: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        let mut values = Vec::new();
        for (variable, value) in variables.into_iter().flatten() {
            let variable: String = variable.extract()?;
            let value = whole(&value, &variable, "a number")?;
            values.push((variable, value));
        }
        self.asked.push(self.id, FlowCommand::Program(name, values));
        Ok(())
    }

    /// Schedules `on_timer` after a delay such as `"10ms"`. An algorithm has one timer; scheduling
    /// it again replaces the deadline.
    fn after(&self, delay: &str) -> PyResult<()> {
        self.asked
            .push(self.id, FlowCommand::Timer(duration(delay)?));
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!("<ccplane.Flow {}>", self.number)
    }
}

/// Argument of `on_timer`: access to all flows, and the timer.
#[pyclass(module = "ccplane", frozen)]
pub(crate) struct Control {
    pub asked: PendingCommands,
    pub flows: Mutex<std::collections::BTreeMap<u64, Py<Flow>>>,
}

#[pymethods]
impl Control {
    /// Returns the live flow with this number, or `None`.
    fn flow(&self, py: Python<'_>, id: u64) -> Option<Py<Flow>> {
        let flows = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
        flows.get(&id).map(|flow| flow.clone_ref(py))
    }

    /// Returns all live flows, ordered by number.
    fn flows(&self, py: Python<'_>) -> Vec<Py<Flow>> {
        let flows = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
        flows.values().map(|flow| flow.clone_ref(py)).collect()
    }

    /// Schedules `on_timer` after a delay such as `"10ms"`.
    fn after(&self, delay: &str) -> PyResult<()> {
        self.asked
            .push(FlowId::default(), FlowCommand::Timer(duration(delay)?));
        Ok(())
    }
}

/// Properties of a flow when it opens.
#[pyclass(module = "ccplane", frozen, get_all)]
pub(crate) struct FlowInfo {
    /// Payload of a full segment, bytes.
    pub mss: u64,
    /// Initial congestion window, bytes.
    pub init_cwnd: u64,
    /// Current congestion window, bytes.
    pub cwnd: u64,
    /// Current slow-start threshold, bytes; 2**64-1 before the first loss.
    pub ssthresh: u64,
    /// Current pacing rate, bytes per second; 0 if not paced.
    pub rate: u64,
    /// Smoothed RTT, microseconds; 0 before the first sample.
    pub srtt_us: u64,
    /// True if the flow is taken over while it is running: continue from `cwnd`.
    pub live: bool,
    /// Address and port of the sender.
    pub local: String,
    /// Address and port of the receiver.
    pub peer: String,
    /// Tags that the operator has set for the datapath's flows (`attach --tag`).
    pub tags: HashMap<String, String>,
}

#[pymethods]
impl FlowInfo {
    fn __repr__(&self) -> String {
        format!(
            "<ccplane.FlowInfo {} to {}, mss {}, cwnd {}>",
            self.local, self.peer, self.mss, self.cwnd
        )
    }
}

impl From<&ccplane_agent::FlowInfo> for FlowInfo {
    fn from(info: &ccplane_agent::FlowInfo) -> FlowInfo {
        FlowInfo {
            mss: info.mss.get(),
            init_cwnd: info.init_cwnd.get(),
            cwnd: info.cwnd.get(),
            ssthresh: info.ssthresh.get(),
            rate: info.rate.bytes_per_sec(),
            srtt_us: info.srtt.as_nanos() / 1000,
            live: info.live,
            local: info.local.to_string(),
            peer: info.peer.to_string(),
            tags: info
                .tags
                .as_slice()
                .iter()
                .map(|tag| (tag.key().to_owned(), tag.value().to_owned()))
                .collect(),
        }
    }
}

/// Totals over the lifetime of a flow; zero if the datapath does not count them.
#[pyclass(module = "ccplane", frozen, get_all)]
pub(crate) struct FlowStats {
    /// Bytes acknowledged.
    pub bytes_acked: u64,
    /// Packets marked lost.
    pub packets_lost: u64,
    /// Reports sent.
    pub reports: u64,
    /// Lifetime, seconds.
    pub lifetime_s: f64,
}

impl From<&ccplane_agent::FlowStats> for FlowStats {
    fn from(stats: &ccplane_agent::FlowStats) -> FlowStats {
        FlowStats {
            bytes_acked: stats.bytes_acked.get(),
            packets_lost: stats.packets_lost,
            reports: stats.reports,
            lifetime_s: stats.lifetime.as_secs_f64(),
        }
    }
}

/// Extracts an unsigned 64-bit integer; an error names the value and its unit.
fn whole(value: &Bound<'_, PyAny>, name: &str, unit: &str) -> PyResult<u64> {
    if value.is_instance_of::<PyFloat>() {
        let text = format!("{name} is {value}, but must be whole {unit}; write int(…)");
        return Err(PyTypeError::new_err(text));
    }
    value.extract::<u64>().map_err(|why| {
        let text = format!("{name} is {value}, but must be {unit} from 0 to 2**64-1");
        match why.is_instance_of::<PyOverflowError>(value.py()) {
            true => PyValueError::new_err(text),
            false => PyTypeError::new_err(text),
        }
    })
}

/// Parses a duration such as `10ms`.
pub(crate) fn duration(text: &str) -> PyResult<Duration> {
    text.parse().map_err(|why| {
        PyValueError::new_err(format!(
            "`{text}` is not a time: {why}; write it as \"10ms\""
        ))
    })
}
