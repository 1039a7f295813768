//! `ccplane detach`: removes everything that `attach` left behind, even after SIGKILL.

use ccplane_linux::{default_control, select};
use clap::Args;

use crate::attach::agent_process;
use crate::exit::{Failure, FailureKind};
use crate::{doctor, paths};

#[derive(Args)]
pub struct DetachArgs {
    /// Congestion control of the kernel to move live flows to first; without it they end on the
    /// fallback.
    #[arg(long, value_name = "NAME")]
    to: Option<String>,
    /// Registration to remove, such as ccp_cubic; without it, all.
    name: Option<String>,
}

pub fn run(args: &DetachArgs, json: bool) -> Result<(), Failure> {
    paths::apply();
    doctor::require(&[doctor::Need::KernelTcp])?;
    agent_process::sweep();
    let fail = |e| Failure::new(FailureKind::Failed, e);
    if let Some(to) = &args.to
        && !ccplane_testbed::traffic::exists(to)
    {
        let known = ccplane_testbed::traffic::available().join(", ");
        return Err(Failure::text(
            FailureKind::Usage,
            format!("the kernel has no congestion control `{to}`"),
        )
        .hint(format!("available: {known}; nothing was changed")));
    }
    let only = args.name.as_deref();
    // Includes time stamps without a registration: `attach` leaves them if it is killed before it
    // registers.
    let mut known = ccplane_linux::attached();
    known.extend(ccplane_linux::stamp::attached());
    let orphans = default_control::defaults()
        .into_iter()
        .filter(|default| default.orphaned);
    known.extend(orphans.map(|default| default.control));
    known.sort();
    known.dedup();
    if let Some(name) = only
        && !known.iter().any(|n| n == name)
    {
        let known = if known.is_empty() {
            "nothing is attached".to_owned()
        } else {
            format!("attached: {}", known.join(", "))
        };
        return Err(
            Failure::text(FailureKind::Usage, format!("`{name}` is not attached")).hint(known),
        );
    }
    // The order matters: stop new connections, move the live ones, remove the registration, then
    // its time stamps. A default congestion control would keep the registration alive.
    let defaults = default_control::restore(only, args.to.as_deref())
        .map_err(|e| Failure::new(FailureKind::Failed, *e))?;
    select::detach(only).map_err(|e| Failure::new(FailureKind::Failed, e))?;
    let moved = match &args.to {
        Some(to) => {
            select::switch_flows(only, to).map_err(|e| Failure::new(FailureKind::Failed, e))?
        }
        None => 0,
    };
    let removed = ccplane_linux::detach(only).map_err(fail)?;
    // Some stamps may be out of reach. The error is reported after the rest has been removed.
    let mut stamps = ccplane_linux::stamp::attached();
    let put_back = ccplane_linux::stamp::detach(only);
    let left = ccplane_linux::stamp::attached();
    stamps.retain(|name| !left.contains(name));
    if json {
        println!(
            "{}",
            serde_json::json!({
                "removed": removed,
                "stamps": stamps,
                "moved_flows": moved,
                "defaults": defaults.iter().map(|(before, to)| serde_json::json!({
                    "namespace": before.namespace,
                    "before": before.control,
                    "now": to,
                })).collect::<Vec<_>>(),
            })
        );
    } else if removed.is_empty() && stamps.is_empty() && defaults.is_empty() && put_back.is_ok() {
        println!("nothing was attached");
    } else {
        for (before, to) in &defaults {
            println!(
                "net.ipv4.tcp_congestion_control of {}: set to {to}, was {}",
                before.namespace_description(),
                before.control
            );
        }
        if !removed.is_empty() {
            println!("removed {}", removed.join(", "));
        }
        if !stamps.is_empty() {
            println!("removed the time stamps of {}", stamps.join(", "));
        }
        if let Some(to) = &args.to {
            println!("moved {moved} live flows to {to}");
        }
    }
    put_back.map(drop).map_err(fail)
}
