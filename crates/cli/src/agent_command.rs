//! `ccplane agent`: serves datapaths of other processes, on this host over Unix sockets and on
//! other hosts over TLS.

use std::fs::{self, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ccplane_agent::{Agent, AgentOptions};
use ccplane_lab::Contender;
use ccplane_link::{Datagram, DatapathLink, KEY_DIRECTORY, Local, TlsLink, WaitStrategy, serve};
use clap::Args;

use crate::confine::confine;
use crate::contender::add;
use crate::exceptions::ExceptionReporter;
use crate::exit::{Failure, FailureKind};
use crate::python::enter;
use crate::sandbox::SandboxRequest;
use crate::{Registry, interrupt, version1};

#[derive(Args)]
#[command(group(clap::ArgGroup::new("where").required(true).multiple(true).args(["unix", "ccp", "tls"])))]
pub struct AgentArgs {
    /// Algorithms, separated by commas, with parameters: `cubic:report=10ms`. A flow selects one by
    /// name; the first serves flows that name none of them.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true)]
    alg: Vec<Contender>,
    /// Socket of ccplane's own link (SOCK_SEQPACKET), accessible to the owner only.
    #[arg(long, value_name = "PATH")]
    unix: Option<PathBuf>,
    /// Datagram socket with CCP's version-1 messages, for existing CCP datapaths. The datapaths
    /// served are recorded in `PATH.peers`, so that after a restart they receive its programs
    /// without asking.
    #[arg(long, value_name = "PATH")]
    ccp: Option<PathBuf>,
    /// Address and port to serve over TLS for datapaths on other hosts: `0.0.0.0:4700`. Each side
    /// authenticates with a key (`ccplane keys`).
    #[arg(long, value_name = "ADDRESS:PORT")]
    tls: Option<SocketAddr>,
    /// Folder of the keys for --tls.
    #[arg(long, value_name = "DIR", default_value = KEY_DIRECTORY)]
    keys: PathBuf,
    /// Run untrusted algorithms: confined, with the request read from standard input.
    #[arg(long, hide = true)]
    confined: bool,
}

/// Runs the command until Ctrl-C or SIGTERM.
pub fn run(args: &AgentArgs, registry: &Registry, json: bool) -> Result<(), Failure> {
    let host = || {
        let mut agent = Agent::new(AgentOptions::default());
        args.alg
            .iter()
            .try_for_each(|contender| add(&mut agent, contender, registry))
            .map(|()| agent)
    };
    let fail = |e| Failure::new(FailureKind::Failed, e);
    if let (true, Some(path)) = (args.confined, &args.unix) {
        let given = SandboxRequest::receive()?;
        let mut local = Local::bind(path).map_err(fail)?;
        let stop = interrupt::flag()?;
        confined(path)?;
        enter(given.folder.as_deref())?;
        // Untrusted files are read only after confinement.
        let mut agent = host()?;
        let mut telling = ExceptionReporter::new(&mut local, io::stdout());
        return serve(
            &mut agent,
            &mut [&mut telling],
            WaitStrategy::default(),
            &stop,
        )
        .map_err(fail);
    }
    let mut agent = host()?;
    if args.ccp.is_some() {
        refuse_not_expressible(host()?)?;
    }
    let mut local = args
        .unix
        .as_deref()
        .map(Local::bind)
        .transpose()
        .map_err(fail)?;
    let mut datagram = args
        .ccp
        .as_deref()
        .map(Datagram::bind)
        .transpose()
        .map_err(fail)?;
    let bind = |address| TlsLink::bind(address, &args.keys);
    let mut tls = args.tls.map(bind).transpose().map_err(fail)?;
    let stop = interrupt::flag()?;
    if let Some(address) = tls.as_ref().and_then(|link| link.address().ok()) {
        if json {
            println!(
                "{}",
                serde_json::json!({ "listening": format!("tls://{address}") })
            );
        } else {
            println!("listening on tls://{address}");
        }
    }
    for path in [&args.unix, &args.ccp].into_iter().flatten() {
        if json {
            println!("{}", serde_json::json!({ "listening": path }));
        } else {
            println!("listening on {}", path.display());
        }
    }
    let mut links: Vec<&mut dyn DatapathLink> = Vec::new();
    links.extend(local.as_mut().map(|link| link as &mut dyn DatapathLink));
    links.extend(datagram.as_mut().map(|link| link as &mut dyn DatapathLink));
    links.extend(tls.as_mut().map(|link| link as &mut dyn DatapathLink));
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    serve(&mut agent, &mut links, WaitStrategy::default(), &stop).map_err(fail)
}

/// Opens the socket to the process that started this one, and confines this process.
fn confined(path: &Path) -> Result<(), Failure> {
    // The parent runs as another user without privileges over this user's files. The folder of the
    // socket is accessible to the two only.
    let opened = fs::set_permissions(path, Permissions::from_mode(0o666));
    opened.map_err(|why| {
        Failure::text(
            FailureKind::Failed,
            format!(
                "cannot make the socket {} accessible: {why}",
                path.display()
            ),
        )
    })?;
    confine()
}

/// Refuses algorithms whose programs CCP's datapaths would reject, once and before anything is
/// bound, instead of flow by flow.
fn refuse_not_expressible(agent: Agent) -> Result<(), Failure> {
    let all = version1::not_expressible_in(agent);
    if all.is_empty() {
        return Ok(());
    }
    let what = format!("--ccp does not support {}", all.join("; "));
    Err(Failure::text(FailureKind::Usage, what).hint(
        "use --unix, which supports all algorithms, or see `ccplane algorithms` for those \
            that CCP datapaths can run",
    ))
}
