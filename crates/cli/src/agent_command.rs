//! `ccplane agent`: serves datapaths elsewhere on this host, over Unix sockets.

use std::path::PathBuf;

use ccplane_agent::link::{Datagram, Link, Local, Waiting, serve};
use ccplane_agent::{Agent, Options};
use ccplane_lab::Contender;
use clap::Args;

use crate::attach::add;
use crate::exit::{Failure, Kind};
use crate::{Registry, interrupt, version1};

/// Where to listen.
#[derive(Args)]
#[command(group(clap::ArgGroup::new("where").required(true).multiple(true).args(["unix", "ccp"])))]
pub struct AgentArgs {
    /// Algorithms, separated by commas; with parameters: `cubic:report=10ms`. A flow chooses by name; the first one
    /// serves flows that name none of them.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true)]
    alg: Vec<Contender>,
    /// ccplane's own link: a SOCK_SEQPACKET socket, for the owner only.
    #[arg(long, value_name = "PATH")]
    unix: Option<PathBuf>,
    /// A datagram socket with CCP's version-1 messages, for existing CCP datapaths. Which ones it served is kept in
    /// `PATH.peers`, so that after a restart they get its programs without asking.
    #[arg(long, value_name = "PATH")]
    ccp: Option<PathBuf>,
    /// End when standard input does: with the process that holds its other end.
    #[arg(long, hide = true)]
    until_eof: bool,
}

/// Runs the command: until Ctrl-C or SIGTERM.
pub fn run(args: &AgentArgs, registry: &Registry, json: bool) -> Result<(), Failure> {
    let host = || {
        let mut agent = Agent::new(Options::default());
        args.alg
            .iter()
            .try_for_each(|contender| add(&mut agent, contender, registry))
            .map(|()| agent)
    };
    let mut agent = host()?;
    if args.ccp.is_some() {
        refuse_unsayable(host()?)?;
    }
    let fail = |e| Failure::new(Kind::Failed, e);
    let mut local = args.unix.as_deref().map(Local::bind).transpose().map_err(fail)?;
    let mut datagram = args.ccp.as_deref().map(Datagram::bind).transpose().map_err(fail)?;
    let stop = interrupt::flag()?;
    if args.until_eof {
        // Who started it is another user, without privileges over this one's things; the folder is for the two only.
        if let Some(path) = &args.unix {
            let all = std::os::unix::fs::PermissionsExt::from_mode(0o666);
            let opened = std::fs::set_permissions(path, all);
            opened.map_err(|e| Failure::text(Kind::Failed, format!("open {}: {e}", path.display())))?;
        }
        std::thread::spawn(|| {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            // As if it were asked to: what waits is woken.
            let _ = nix::sys::signal::kill(nix::unistd::getpid(), nix::sys::signal::Signal::SIGTERM);
        });
    }
    for path in [&args.unix, &args.ccp].into_iter().flatten() {
        if json {
            println!("{}", serde_json::json!({ "listening": path }));
        } else {
            println!("listening on {}", path.display());
        }
    }
    let mut links: Vec<&mut dyn Link> = Vec::new();
    links.extend(local.as_mut().map(|link| link as &mut dyn Link));
    links.extend(datagram.as_mut().map(|link| link as &mut dyn Link));
    serve(&mut agent, &mut links, Waiting::default(), &stop).map_err(fail)
}

/// CCP's datapaths would refuse such an algorithm's programs one flow after the other; it is said once, before anything is
/// bound.
fn refuse_unsayable(agent: Agent) -> Result<(), Failure> {
    let all = version1::unsayable_of(agent);
    if all.is_empty() {
        return Ok(());
    }
    let what = format!("--ccp cannot serve {}", all.join("; "));
    Err(Failure::text(Kind::Usage, what)
        .hint("`ccplane algorithms` says which ones CCP's datapaths can run; ccplane's own link, --unix, serves all"))
}
