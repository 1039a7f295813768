//! SIGHUP: reads the configuration again and applies all of its changes or none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ccplane_linux::{AlgorithmSpec, Arms, OperatorHandle, select};

use super::{AttachArgs, failed, rules};
use crate::Registry;
use crate::config::{self, Settings};
use crate::exit::{Failure, FailureKind};

/// State for a reload.
pub(super) struct Reload<'a> {
    /// Set by the signal.
    pub requested: Arc<AtomicBool>,
    pub args: &'a AttachArgs,
    pub registry: &'a Registry,
    /// Settings in force.
    pub settings: Settings,
    pub specs: Vec<AlgorithmSpec>,
    pub operators: Vec<OperatorHandle>,
    /// Congestion controls of this process.
    pub names: Vec<String>,
}

impl Reload<'_> {
    /// Reloads if a signal has arrived. Logs a configuration that cannot be used, and changes
    /// nothing.
    pub fn poll(&mut self, arms: Option<&Arms>) {
        if !self.requested.swap(false, Ordering::Relaxed) {
            return;
        }
        match self.reload(arms) {
            Ok(()) => crate::log::write(format!("reloaded {}", config::path(self.args).display())),
            Err(failure) => {
                tracing::error!(
                    "reload failed, and the old configuration remains in effect: \
                    {failure}"
                );
                crate::log::write(crate::output::drawn(failure));
            }
        }
    }

    fn reload(&mut self, arms: Option<&Arms>) -> Result<(), Failure> {
        let Some(config) = config::read(self.args, self.registry)? else {
            let text = format!("{} no longer exists", config::path(self.args).display());
            return Err(Failure::text(FailureKind::Failed, text)
                .hint("restore it; to select no connections, use an empty file"));
        };
        let mut settings = Settings::resolve(self.args, Some(&config))?;
        if let Some(round_trip) = self.settings.round_trip() {
            settings.set_round_trip(round_trip);
        }
        if let Some(problem) = self.settings.check_reload(&settings, &config) {
            return Err(Failure::diagnostic(FailureKind::Usage, problem));
        }
        let choices = rules::choices(&settings, Some(&config), &self.specs)?;
        // The only step that can fail. It changes nothing on failure.
        select::replace(&self.names, &choices, arms).map_err(failed)?;
        let limits = settings.limits();
        self.operators
            .iter()
            .for_each(|owner| owner.set_limits(&limits));
        self.settings = settings;
        Ok(())
    }
}
