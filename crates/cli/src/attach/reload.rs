//! SIGHUP: the configuration is read again, and what may change does, all of it or nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ccplane_linux::{AlgorithmSpec, Arms, Owner, select};

use super::{AttachArgs, failed, rules};
use crate::Registry;
use crate::config::{self, Settings};
use crate::exit::{Failure, FailureKind};

/// What it takes.
pub(super) struct Reload<'a> {
    /// Raised by the signal.
    pub again: Arc<AtomicBool>,
    pub args: &'a AttachArgs,
    pub registry: &'a Registry,
    /// Those that hold.
    pub settings: Settings,
    pub known: Vec<AlgorithmSpec>,
    pub owners: Vec<Owner>,
    /// The congestion controls that are this process's.
    pub names: Vec<String>,
}

impl Reload<'_> {
    /// Reads again if a signal came since. A file that cannot be used is told, and changes nothing.
    pub fn if_asked(&mut self, arms: Option<&Arms>) {
        if !self.again.swap(false, Ordering::Relaxed) {
            return;
        }
        match self.reload(arms) {
            Ok(()) => crate::log::write(format!("reloaded {}", config::path(self.args).display())),
            Err(failure) => {
                tracing::error!("not reloaded, nothing changed: {failure}");
                crate::log::write(crate::output::drawn(failure));
            }
        }
    }

    fn reload(&mut self, arms: Option<&Arms>) -> Result<(), Failure> {
        let Some(config) = config::read(self.args, self.registry)? else {
            let text = format!("{} is gone", config::path(self.args).display());
            return Err(Failure::text(FailureKind::Failed, text)
                .hint("an empty file says that nothing is to be chosen"));
        };
        let mut settings = Settings::of(self.args, Some(&config))?;
        if let Some(round_trip) = self.settings.round_trip() {
            settings.measured(round_trip);
        }
        if let Some(problem) = self.settings.frozen(&settings, &config) {
            return Err(Failure::diagnostic(FailureKind::Usage, problem));
        }
        let choices = rules::choices(&settings, Some(&config), &self.known)?;
        // The only step that can fail, and it leaves all as it was.
        select::replace(&self.names, &choices, arms).map_err(failed)?;
        let limits = settings.limits();
        self.owners
            .iter()
            .for_each(|owner| owner.set_limits(&limits));
        self.settings = settings;
        Ok(())
    }
}
