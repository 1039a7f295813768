//! Two arms of connections for comparison: the connections selected by a rule, and an equal number
//! that keep their own congestion control. The programs of all rules share the maps. Readers first
//! call `look`, which updates the totals.

use std::cell::Cell;
use std::io::{ErrorKind, Read};

use libbpf_rs::{Iter, Link, MapCore, MapFlags, MapHandle, Object};

use crate::error::LoadError;
use crate::map::totals::ConnectionTotals;
use crate::select::{self, SelectError};

/// Entries of the map, `ARMS`.
const MAP_ENTRIES: usize = 64;
/// `NO_ARM`: the rule's connections are not watched.
pub(crate) const NO_ARM: u32 = u32::MAX;

/// Results of the rules of one algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arm {
    /// Kernel name of the congestion control.
    pub algorithm: String,
    /// Totals of the selected connections.
    pub steered: ConnectionTotals,
    /// Totals of the control group.
    pub control: ConnectionTotals,
}

/// The watched connections, counted from its creation.
pub struct Arms {
    names: Vec<String>,
    watched: MapHandle,
    arms: MapHandle,
    iterator: Link,
    /// A rule may be watching connections.
    active: Cell<bool>,
    _object: Object,
}

impl Arms {
    /// Creates the arms for rules of these congestion controls.
    ///
    /// # Errors
    /// The kernel rejects the program, or a capability is missing.
    pub fn new(names: &[String]) -> Result<Arms, SelectError> {
        let object = select::load("look", &select::SelectionRules::default(), None)?;
        let handle = |name: &str| {
            let map = object.maps().find(|map| map.name() == name);
            let map = map.ok_or_else(|| LoadError::Mismatch(format!("it has no map {name}")))?;
            MapHandle::try_from(&map).map_err(select::bpf(format!("opening the map {name}")))
        };
        let (watched, arms) = (handle("watched")?, handle("arms")?);
        let look = select::program(&object, "look")?
            .attach()
            .map_err(select::bpf("attaching the iterator of watched sockets"))?;
        Ok(Arms {
            names: names.to_vec(),
            watched,
            arms,
            iterator: look,
            active: Cell::new(false),
            _object: object,
        })
    }

    /// Updates the totals from every watched connection of this thread's network namespace: adds
    /// the growth of the counters and one sample of RTT and rate. Connections of other namespaces
    /// are added only when they end.
    pub fn sample(&self) -> Result<(), SelectError> {
        if !self.active.get() {
            return Ok(());
        }
        let mut sockets = Iter::new(&self.iterator)
            .map_err(select::bpf("opening the iterator of watched sockets"))?;
        let mut buffer = [0; 64];
        loop {
            match sockets.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(_) => (),
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                Err(error) => {
                    return Err(LoadError::io("walking the watched sockets")(error).into());
                }
            }
        }
    }

    /// Returns the results per algorithm.
    pub fn read_totals(&self) -> Result<Vec<Arm>, SelectError> {
        let totals = |entry: usize| -> Result<ConnectionTotals, SelectError> {
            let value = self
                .arms
                .lookup(&(entry as u32).to_ne_bytes(), MapFlags::ANY);
            let value =
                value.map_err(select::bpf("reading the counters of watched connections"))?;
            let value = value.unwrap_or_default();
            let words = value
                .as_chunks::<8>()
                .0
                .iter()
                .map(|word| u64::from_ne_bytes(*word));
            Ok(ConnectionTotals::from_words(words))
        };
        let names = self.names.iter().take(MAP_ENTRIES / 2).enumerate();
        names
            .map(|(index, name)| {
                Ok(Arm {
                    algorithm: name.clone(),
                    steered: totals(2 * index)?,
                    control: totals(2 * index + 1)?,
                })
            })
            .collect()
    }

    /// Returns the entry for selected connections of rules for this congestion control.
    pub(crate) fn entry(&self, name: &str) -> u32 {
        self.active.set(true);
        let index = self
            .names
            .iter()
            .take(MAP_ENTRIES / 2)
            .position(|known| known == name);
        index.map_or(NO_ARM, |index| 2 * index as u32)
    }

    /// Returns the map of this name, for use by another object.
    pub(crate) fn map(&self, name: &std::ffi::OsStr) -> Option<&MapHandle> {
        match name.to_str() {
            Some("watched") => Some(&self.watched),
            Some("arms") => Some(&self.arms),
            _ => None,
        }
    }
}
