//! `ccplane qdisc`: queues of a Linux host or router that serve the lower classes of the second
//! loop last.

use ccplane_host::queues::{self, Bands, QueueError, TcError};
use ccplane_qdisc::marking::{LOW_CLASS_COUNT, dscp_of};
use ccplane_units::Rate;
use clap::{Args, Subcommand};
use serde_json::json;

use crate::exit::{Failure, FailureKind};

#[derive(Subcommand)]
pub enum QdiscCommand {
    /// Print the `tc` commands that give a device a strict-priority queue: one band for ordinary
    /// traffic, and four below it for packets that `ccplane send --rc3` marks as low priority.
    Setup(SetupArgs),
    /// Remove the queue that `setup --apply` created, which restores the kernel's default queue.
    Remove(RemoveArgs),
}

#[derive(Args)]
pub struct SetupArgs {
    /// Device whose outgoing packets are queued, such as eth0.
    #[arg(value_name = "DEVICE")]
    dev: String,
    /// Rate limit of the device: slightly below the rate of the modem or of the slower link behind
    /// it, so that packets queue here, in the bands, rather than there. Required for a device
    /// without a queue of its own.
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Run the commands now, as root. An existing queue is never replaced.
    #[arg(long)]
    apply: bool,
}

#[derive(Args)]
pub struct RemoveArgs {
    /// Device whose queue is removed.
    #[arg(value_name = "DEVICE")]
    dev: String,
}

pub fn run(command: &QdiscCommand, json: bool) -> Result<(), Failure> {
    match command {
        QdiscCommand::Setup(args) => setup(args, json),
        QdiscCommand::Remove(args) => {
            queues::remove(&args.dev).map_err(failure)?;
            if json {
                println!("{}", json!({ "dev": args.dev, "removed": true }));
            } else {
                println!(
                    "{}: removed the priority bands, restored the kernel's default queue",
                    args.dev
                );
            }
            Ok(())
        }
    }
}

fn setup(args: &SetupArgs, json: bool) -> Result<(), Failure> {
    let bands = Bands::new(&args.dev, args.rate).map_err(failure)?;
    if args.apply {
        bands.install().map_err(failure)?;
    }
    let (commands, removal) = (bands.commands(), bands.removal_command());
    if json {
        let levels: Vec<_> = (0..=LOW_CLASS_COUNT)
            .map(|class| json!({ "class": class, "dscp": dscp_of(class), "band": class }))
            .collect();
        let object = json!({
            "dev": args.dev, "applied": args.apply, "commands": commands, "removal": removal,
            "classes": levels,
        });
        println!("{object}");
    } else if args.apply {
        println!(
            "{}: created {} priority bands; remove them with `ccplane qdisc remove {0}`",
            args.dev,
            LOW_CLASS_COUNT + 1
        );
    } else {
        println!("{}", commands.join("\n"));
        println!("# To remove it:\n# {removal}");
    }
    Ok(())
}

fn failure(why: QueueError) -> Failure {
    let kind = match &why {
        QueueError::UnknownDevice { .. }
        | QueueError::Occupied { .. }
        | QueueError::Installed(_)
        | QueueError::NotInstalled { .. } => FailureKind::Usage,
        QueueError::Tc(TcError::NoTc(_) | TcError::Lacking { .. } | TcError::NotPermitted(_)) => {
            FailureKind::Unsupported
        }
        _ => FailureKind::Failed,
    };
    Failure::new(kind, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removing_a_foreign_queue_is_a_usage_error() {
        let failure = failure(QueueError::NotInstalled {
            device: "eth0".to_owned(),
            kind: "fq_codel".to_owned(),
            handle: "0:".to_owned(),
        });
        assert_eq!(failure.kind, FailureKind::Usage);
        let text = failure.to_string();
        assert!(
            text.contains("no priority bands")
                && text.contains("fq_codel 0:")
                && text.contains("nothing was changed"),
            "{text}"
        );
    }
}
