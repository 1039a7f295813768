//! Untrusted processes: namespaces, another user, and a supervisor that ends with the caller.
//!
//! [`start`] clones a supervisor into new namespaces and a session of its own. The supervisor
//! starts the program and waits for its end or the caller's. It is the first process of its PID
//! namespace, so its end kills every other process there. The caller holds one end of a pipe. When
//! that end closes, even because the caller was killed, the supervisor kills the program, which the
//! caller may not be permitted to signal.

mod cgroup;
mod refusal;

use std::ffi::{CString, OsStr, OsString, c_char, c_int, c_long};
use std::fs;
use std::io::{self, PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::ptr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::privilege::{CAPABILITY_VERSION, Data, Header};

pub use cgroup::Cgroup;
pub use refusal::report_refused_calls;

/// Limit of tasks in the user namespace. A lower one breaks linear algebra libraries on hosts with
/// many processors.
const TASKS_MAX: u64 = 512;

/// A program to start.
#[derive(Debug)]
pub struct SandboxProgram<'a> {
    /// Path, or a name that is looked up in PATH.
    pub path: &'a Path,
    /// Arguments after the name.
    pub arguments: Vec<OsString>,
    /// Complete environment.
    pub environment: Vec<(OsString, OsString)>,
    /// User and group; `None` for the caller's. Others require root.
    pub user: Option<(u32, u32)>,
    /// Cgroup to start in.
    pub cgroup: Option<&'a Cgroup>,
}

/// Private namespaces of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespaces(c_int);

impl Namespaces {
    const FLAG_NAMES: [(c_int, &'static str); 4] = [
        (libc::CLONE_NEWUSER, "user"),
        (libc::CLONE_NEWPID, "pid"),
        (libc::CLONE_NEWIPC, "ipc"),
        (libc::CLONE_NEWNET, "net"),
    ];
    const PID_IPC_NET: Namespaces =
        Namespaces(libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWNET);
    const ALL: Namespaces = Namespaces(Namespaces::PID_IPC_NET.0 | libc::CLONE_NEWUSER);

    fn has(self, flag: c_int) -> bool {
        self.0 & flag != 0
    }

    /// Names of the namespaces that the process shares with the caller.
    pub fn missing(self) -> impl Iterator<Item = &'static str> {
        let missing = Namespaces::FLAG_NAMES
            .into_iter()
            .filter(move |(flag, _)| !self.has(*flag));
        missing.map(|(_, name)| name)
    }
}

/// A started program. Dropping it kills the program.
#[derive(Debug)]
pub struct SandboxedProcess {
    /// Namespaces of the program.
    pub namespaces: Namespaces,
    /// Error of the move to the cgroup; the program then runs outside.
    pub cgroup_error: Option<io::Error>,
    supervisor: Pid,
    /// Closing it makes the supervisor kill the program.
    lifeline: Mutex<Option<PipeWriter>>,
    status: PipeReader,
    refused: PipeReader,
}

/// The caller's ends of the program's standard streams.
#[derive(Debug)]
pub struct Streams {
    /// Standard input.
    pub input: PipeWriter,
    /// Standard output.
    pub output: PipeReader,
    /// Standard error.
    pub errors: PipeReader,
}

/// Record in the supervisor's pipe: a failed step of the start with its `errno`, or [`EXIT_RECORD`]
/// with the program's wait status.
type StartRecord = [i32; 2];
const EXIT_RECORD: i32 = -1;

/// Steps of a start, indexed by the step in a record.
const STEP_NAMES: [&str; 7] = [
    "move the descriptors",
    "start a session",
    "switch to the user",
    "drop the capabilities",
    "start and watch a child",
    "limit the number of tasks",
    "run the program",
];

/// Starts a program in all namespaces that this host permits.
pub fn start(program: &SandboxProgram<'_>) -> io::Result<(SandboxedProcess, Streams)> {
    let attempts = [Namespaces::ALL, Namespaces::PID_IPC_NET, Namespaces(0)];
    let mut last = io::Error::from(io::ErrorKind::Unsupported);
    for namespaces in attempts {
        match start_in(program, namespaces) {
            Ok(started) => return Ok(started),
            Err(why) => last = why,
        }
    }
    Err(last)
}

/// Returns the namespaces that [`start`] would use for this user, without starting a program.
pub fn namespaces(user: Option<(u32, u32)>) -> Namespaces {
    let program = SandboxProgram {
        path: Path::new(""),
        arguments: Vec::new(),
        environment: Vec::new(),
        user,
        cgroup: None,
    };
    let possible = |namespaces: &Namespaces| {
        let pipes = Pipes::new()?;
        let child = clone_supervisor(&StartPlan::new(&program, *namespaces, &pipes)?)?;
        let admitted = write_id_maps(child, &program, *namespaces);
        // Without the byte in `go` the supervisor exits.
        drop(pipes);
        let _ = waitpid(child, None);
        admitted
    };
    let attempts = [Namespaces::ALL, Namespaces::PID_IPC_NET];
    let found = attempts.into_iter().find(|one| possible(one).is_ok());
    found.unwrap_or(Namespaces(0))
}

/// Returns the highest Landlock ABI version of this kernel; 0 without Landlock.
pub fn landlock_abi() -> u32 {
    const RULESET_VERSION_FLAG: c_int = 1;
    // SAFETY: with this flag the kernel reads no memory and only returns its version.
    let abi = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            ptr::null::<u8>(),
            0,
            RULESET_VERSION_FLAG,
        )
    };
    u32::try_from(abi).unwrap_or(0)
}

fn start_in(
    program: &SandboxProgram<'_>,
    namespaces: Namespaces,
) -> io::Result<(SandboxedProcess, Streams)> {
    let pipes = Pipes::new()?;
    let plan = StartPlan::new(program, namespaces, &pipes)?;
    let supervisor = clone_supervisor(&plan)?;
    let mut outside_cgroup = None;
    let admitted = write_id_maps(supervisor, program, namespaces).and_then(|()| {
        outside_cgroup = program
            .cgroup
            .and_then(|cgroup| cgroup.add(supervisor).err());
        (&pipes.start_gate.1).write_all(&[1])
    });
    if let Err(why) = admitted {
        drop(pipes);
        let _ = waitpid(supervisor, None);
        return Err(why);
    }
    let Pipes {
        input,
        output,
        errors,
        refused,
        status,
        lifeline: life,
        start_gate: _,
    } = pipes;
    let sandboxed = SandboxedProcess {
        namespaces,
        cgroup_error: outside_cgroup,
        supervisor,
        lifeline: Mutex::new(Some(life.1)),
        status: status.0,
        refused: refused.0,
    };
    let streams = Streams {
        input: input.1,
        output: output.0,
        errors: errors.0,
    };
    Ok((sandboxed, streams))
}

/// Writes the ID maps of the user namespace.
fn write_id_maps(
    supervisor: Pid,
    program: &SandboxProgram<'_>,
    namespaces: Namespaces,
) -> io::Result<()> {
    let file = |name: &str| format!("/proc/{supervisor}/{name}");
    if namespaces.has(libc::CLONE_NEWUSER) {
        // Root is mapped too, so that the program sees the owners of files and peers. Becoming root
        // takes a capability that it lacks.
        let map = |id: u32| match id {
            0 => "0 0 1".to_owned(),
            id => format!("{id} {id} 1\n0 0 1"),
        };
        match program.user {
            Some((user, group)) => {
                fs::write(file("gid_map"), map(group))?;
                fs::write(file("uid_map"), map(user))?;
            }
            None => {
                let (user, group) = (nix::unistd::geteuid(), nix::unistd::getegid());
                fs::write(file("setgroups"), "deny")?;
                fs::write(file("gid_map"), format!("{group} {group} 1"))?;
                fs::write(file("uid_map"), format!("{user} {user} 1"))?;
            }
        }
    }
    Ok(())
}

impl SandboxedProcess {
    /// Waits for the end of the program, at most `longest`.
    ///
    /// # Errors
    /// The program could not be started.
    pub fn wait(&self, timeout: Duration) -> io::Result<Option<ExitStatus>> {
        let mut waited = [PollFd::new(self.status.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
        match poll(&mut waited, timeout) {
            Ok(0) | Err(Errno::EINTR) => return Ok(None),
            Ok(_) => {}
            Err(why) => return Err(why.into()),
        }
        let mut bytes = [0; size_of::<StartRecord>()];
        if (&self.status).read_exact(&mut bytes).is_err() {
            // The supervisor was killed, and so was the program.
            return Ok(Some(ExitStatus::from_raw(libc::SIGKILL)));
        }
        let (kind, value) = bytes.split_at(4);
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, i32::from_ne_bytes);
        match number(kind) {
            EXIT_RECORD => Ok(Some(ExitStatus::from_raw(number(value)))),
            step => {
                let why = io::Error::from_raw_os_error(number(value));
                let step = usize::try_from(step)
                    .ok()
                    .and_then(|step| STEP_NAMES.get(step));
                Err(io::Error::new(
                    why.kind(),
                    format!("{}: {why}", step.unwrap_or(&"start")),
                ))
            }
        }
    }

    /// Returns the number of the rejected system call that ended the program.
    pub fn refused_syscall(&self) -> Option<i64> {
        let mut number = [0; size_of::<c_int>()];
        let read = (&self.refused).read(&mut number).ok()?;
        (read == number.len()).then(|| c_int::from_ne_bytes(number).into())
    }

    /// Makes the supervisor kill the program, and waits up to `longest` for the supervisor.
    #[expect(clippy::disallowed_methods, reason = "waits for another process")]
    pub fn kill(&self, timeout: Duration) {
        drop(
            self.lifeline
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        let begun = std::time::Instant::now();
        while let Ok(nix::sys::wait::WaitStatus::StillAlive) =
            waitpid(self.supervisor, Some(WaitPidFlag::WNOHANG))
        {
            if begun.elapsed() > timeout {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for SandboxedProcess {
    fn drop(&mut self) {
        self.kill(Duration::from_secs(3));
    }
}

/// Pipes of a program and its supervisor, read end first.
struct Pipes {
    input: (PipeReader, PipeWriter),
    output: (PipeReader, PipeWriter),
    errors: (PipeReader, PipeWriter),
    refused: (PipeReader, PipeWriter),
    status: (PipeReader, PipeWriter),
    lifeline: (PipeReader, PipeWriter),
    /// One byte releases the supervisor.
    start_gate: (PipeReader, PipeWriter),
}

impl Pipes {
    fn new() -> io::Result<Pipes> {
        let pipes = Pipes {
            input: pipe()?,
            output: pipe()?,
            errors: pipe()?,
            refused: pipe()?,
            status: pipe()?,
            lifeline: pipe()?,
            start_gate: pipe()?,
        };
        let nonblocking = nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK);
        nix::fcntl::fcntl(&pipes.refused.0, nonblocking)?;
        Ok(pipes)
    }
}

/// Everything that the supervisor needs, allocated before the clone: a copy of a multi-threaded
/// process must not allocate.
struct StartPlan {
    /// Owns the strings that the vectors below point to.
    _strings: Vec<CString>,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    user: Option<(u32, u32)>,
    namespaces: Namespaces,
    /// Become descriptors 0 to 5: input, output, errors, refused, life, status.
    descriptors: [RawFd; 6],
    go: RawFd,
    /// The caller's ends of `go` and `life`.
    parent_fds: [RawFd; 2],
}

const REFUSED_FD: RawFd = 3;
const LIFE_FD: RawFd = 4;
const STATUS_FD: RawFd = 5;

impl StartPlan {
    fn new(
        program: &SandboxProgram<'_>,
        namespaces: Namespaces,
        pipes: &Pipes,
    ) -> io::Result<StartPlan> {
        let string = |text: &OsStr| CString::new(text.as_bytes()).map_err(io::Error::from);
        let mut strings = vec![string(program.path.as_os_str())?];
        for argument in &program.arguments {
            strings.push(string(argument)?);
        }
        let count = strings.len();
        for (name, value) in &program.environment {
            let mut both = name.clone();
            both.push("=");
            both.push(value);
            strings.push(string(&both)?);
        }
        let pointers = |strings: &[CString]| -> Vec<*const c_char> {
            let all = strings.iter().map(|string| string.as_ptr());
            all.chain([ptr::null()]).collect()
        };
        let (arguments, environment) = strings.split_at(count);
        Ok(StartPlan {
            arguments: pointers(arguments),
            environment: pointers(environment),
            _strings: strings,
            user: program.user,
            namespaces,
            descriptors: [
                pipes.input.0.as_raw_fd(),
                pipes.output.1.as_raw_fd(),
                pipes.errors.1.as_raw_fd(),
                pipes.refused.1.as_raw_fd(),
                pipes.lifeline.0.as_raw_fd(),
                pipes.status.1.as_raw_fd(),
            ],
            go: pipes.start_gate.0.as_raw_fd(),
            parent_fds: [pipes.start_gate.1.as_raw_fd(), pipes.lifeline.1.as_raw_fd()],
        })
    }
}

fn clone_supervisor(plan: &StartPlan) -> io::Result<Pid> {
    // SAFETY: the child calls only `supervise`, which makes system calls only and never returns.
    let pid = unsafe { fork(plan.namespaces.0) };
    match pid {
        // SAFETY: this is the fresh, single-threaded child.
        0 => unsafe { supervise(plan) },
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid as i32)),
    }
}

/// Forks without the C library's atfork handlers, which may wait for other threads.
///
/// # Safety
/// The child may only make system calls: it must not allocate, lock or return to the caller's code.
unsafe fn fork(namespaces: c_int) -> c_long {
    let flags = c_long::from(namespaces | libc::SIGCHLD);
    // SAFETY: without CLONE_VM the child has a copy of the memory, and a null stack means the same
    // stack address.
    unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) }
}

/// Prepares the process, starts the program, and waits for its end or the caller's.
///
/// # Safety
/// Must run in a fresh child of [`fork`]. It makes system calls only, and by number where the C
/// library would address threads that the child does not have.
unsafe fn supervise(plan: &StartPlan) -> ! {
    // SAFETY: the caller guarantees a fresh child. All pointers passed are to locals or into
    // `plan`.
    unsafe {
        for descriptor in plan.parent_fds {
            libc::close(descriptor);
        }
        let mut go = 0u8;
        if libc::read(plan.go, (&raw mut go).cast(), 1) != 1 {
            libc::_exit(0);
        }
        for signal in 1..32 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let none: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());

        // Moved above the target numbers first, so that none is overwritten before it is moved.
        let mut high = [0; 6];
        for (to, from) in high.iter_mut().zip(plan.descriptors) {
            *to = libc::fcntl(from, libc::F_DUPFD_CLOEXEC, 16);
            check(0, c_long::from(*to));
        }
        for (number, from) in (0..).zip(high) {
            let flags = if number >= LIFE_FD {
                libc::O_CLOEXEC
            } else {
                0
            };
            check(0, c_long::from(libc::dup3(from, number, flags)));
        }
        check(
            0,
            libc::syscall(libc::SYS_close_range, STATUS_FD + 1, u32::MAX, 0),
        );
        check(1, c_long::from(libc::setsid()));
        if let Some((user, group)) = plan.user {
            check(2, libc::syscall(libc::SYS_setgroups, 0, ptr::null::<u32>()));
            check(2, libc::syscall(libc::SYS_setresgid, group, group, group));
            check(2, libc::syscall(libc::SYS_setresuid, user, user, user));
        }
        check(
            3,
            c_long::from(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)),
        );
        let header = Header {
            version: CAPABILITY_VERSION,
            pid: 0,
        };
        let data = [Data::default(); 2];
        check(
            3,
            libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()),
        );
        let child = fork(0);
        check(4, child);
        match child {
            0 => exec_program(plan),
            child => wait_for_end(child as libc::pid_t),
        }
    }
}

/// Executes the program.
///
/// # Safety
/// Same contract as [`supervise`].
unsafe fn exec_program(plan: &StartPlan) -> ! {
    // SAFETY: same contract as `supervise`. The pointer vectors end with null, and `plan` owns the
    // strings.
    unsafe {
        // Without a PID namespace the end of the supervisor does not end this process.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        check(1, c_long::from(libc::setsid()));
        let bound = |resource, most| {
            let limit = libc::rlimit {
                rlim_cur: most,
                rlim_max: most,
            };
            check(5, c_long::from(libc::setrlimit(resource, &raw const limit)));
        };
        bound(libc::RLIMIT_CORE, 0);
        // The count of a user namespace starts at zero. Elsewhere all processes of the user count,
        // and no fixed limit is right.
        if plan.namespaces.has(libc::CLONE_NEWUSER) {
            bound(libc::RLIMIT_NPROC, TASKS_MAX);
        }
        libc::chdir(c"/".as_ptr());
        if let Some(program) = plan.arguments.first() {
            libc::execvpe(*program, plan.arguments.as_ptr(), plan.environment.as_ptr());
        }
        check(6, -1);
        libc::_exit(1)
    }
}

/// Waits for the program or the caller to end, and kills the program's process group.
///
/// # Safety
/// Same contract as [`supervise`]. `child` must be an unreaped child of this process.
unsafe fn wait_for_end(child: libc::pid_t) -> ! {
    // SAFETY: same contract as `supervise`. All pointers passed are to locals.
    unsafe {
        for descriptor in 0..=REFUSED_FD {
            libc::close(descriptor);
        }
        let ended = libc::syscall(libc::SYS_pidfd_open, child, 0);
        check(4, ended);
        let entry = |fd, events| libc::pollfd {
            fd,
            events,
            revents: 0,
        };
        let mut waited = [entry(LIFE_FD, 0), entry(ended as c_int, libc::POLLIN)];
        while libc::poll(waited.as_mut_ptr(), 2, -1) < 0 {}
        // Kills before reaping, since the PID may be reused afterwards.
        libc::kill(-child, libc::SIGKILL);
        libc::kill(child, libc::SIGKILL);
        let mut status = 0;
        while libc::waitpid(child, &raw mut status, 0) < 0
            && *libc::__errno_location() == libc::EINTR
        {}
        write_record([EXIT_RECORD, status]);
        libc::_exit(0)
    }
}

/// Ends the process with a record if the result of a system call is an error.
///
/// # Safety
/// Same contract as [`supervise`].
unsafe fn check(step: i32, result: c_long) {
    if result < 0 {
        // SAFETY: same contract as `supervise`; `record` gets a local.
        unsafe {
            write_record([step, *libc::__errno_location()]);
            libc::_exit(1);
        }
    }
}

/// # Safety
/// Same contract as [`supervise`].
unsafe fn write_record(record: StartRecord) {
    // SAFETY: `record` is a local of this size. A short write cannot happen in an empty pipe.
    unsafe {
        libc::write(STATUS_FD, record.as_ptr().cast(), size_of::<StartRecord>());
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Instant;

    use super::*;

    /// Starts a shell in these namespaces, as an unprivileged user if the test runs as root.
    fn shell(namespaces: Namespaces, text: &str) -> (SandboxedProcess, Streams) {
        let program = SandboxProgram {
            path: Path::new("/bin/sh"),
            arguments: ["-c", text].map(OsString::from).into(),
            environment: vec![
                ("PATH".into(), "/usr/bin:/bin".into()),
                ("ONLY".into(), "this".into()),
            ],
            user: nix::unistd::geteuid().is_root().then_some((54_321, 54_322)),
            cgroup: None,
        };
        start_in(&program, namespaces).unwrap()
    }

    /// The namespaces that this host permits, and none.
    fn both() -> [Namespaces; 2] {
        [namespaces(None), Namespaces(0)]
    }

    #[expect(clippy::disallowed_methods, reason = "waits for another process")]
    fn ended(sandboxed: &SandboxedProcess) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = sandboxed.wait(Duration::from_millis(100)).unwrap() {
                return status;
            }
            assert!(begun.elapsed() < Duration::from_secs(20));
        }
    }

    fn text(mut from: impl Read) -> String {
        let mut text = String::new();
        from.read_to_string(&mut text).unwrap();
        text
    }

    /// Counts processes of this host that run `sleep SECONDS`.
    fn sleepers(seconds: &str) -> usize {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let commands =
            processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
        let wanted = format!("sleep\0{seconds}\0");
        commands
            .filter(|command| command == wanted.as_bytes())
            .count()
    }

    /// Waits until no process runs `sleep SECONDS`. A killed process takes a moment to disappear.
    #[expect(clippy::disallowed_methods, reason = "waits for other processes")]
    fn no_sleepers(seconds: &str) {
        let begun = Instant::now();
        while sleepers(seconds) > 0 {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "sleep {seconds} is still running"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn background_processes_end_with_their_program() {
        for namespaces in both() {
            // One child leaves the session; a PID namespace ends it nevertheless.
            let escapes = if namespaces.has(libc::CLONE_NEWPID) {
                "setsid sleep 3141 &"
            } else {
                ""
            };
            let script = format!(
                "for n in 1 2 3 4 5; do sleep 3141 & done; {escapes} sleep 0.3; echo started; \
                 exit 7"
            );
            let (sandboxed, streams) = shell(namespaces, &script);
            assert_eq!(ended(&sandboxed).code(), Some(7));
            sandboxed.kill(Duration::from_secs(3));
            assert_eq!(text(streams.output), "started\n");
            no_sleepers("3141");
        }
    }

    #[test]
    fn a_program_ends_with_its_caller() {
        for namespaces in both() {
            let (sandboxed, streams) = shell(namespaces, "trap '' TERM HUP; sleep 2718 & wait");
            drop(streams);
            assert!(matches!(
                sandboxed.wait(Duration::from_millis(300)),
                Ok(None)
            ));
            assert!(sleepers("2718") > 0);
            // Simulates the kill of the caller.
            drop(sandboxed.lifeline.lock().unwrap().take());
            assert_eq!(ended(&sandboxed).signal(), Some(libc::SIGKILL));
            drop(sandboxed);
            no_sleepers("2718");
        }
    }

    #[test]
    fn the_sandbox_inherits_nothing_from_the_caller() {
        let kept = fs::File::open("/dev/null").unwrap();
        nix::fcntl::fcntl(
            &kept,
            nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()),
        )
        .unwrap();
        let script = "echo $(id -u) $(id -G); echo $(ls /proc/self/fd); echo $(env)";
        let (sandboxed, streams) = shell(namespaces(None), script);
        drop(streams.input);
        let (told, errors) = (text(streams.output), text(streams.errors));
        let lines: Vec<&str> = told.lines().collect();
        if nix::unistd::geteuid().is_root() {
            assert_eq!(lines[0], "54321 54322", "{told}{errors}");
        }
        // 3 is the pipe for rejected calls, and 4 the folder that `ls` reads.
        assert_eq!(lines[1], "0 1 2 3 4", "{told}{errors}");
        assert!(
            lines[2].contains("ONLY=this") && !lines[2].contains("CARGO"),
            "{told}"
        );
        drop(sandboxed);
    }

    #[test]
    fn a_program_that_cannot_run_is_an_error() {
        let program = SandboxProgram {
            path: &PathBuf::from("/nowhere/python3"),
            arguments: Vec::new(),
            environment: Vec::new(),
            user: None,
            cgroup: None,
        };
        let (sandboxed, _streams) = start(&program).unwrap();
        let why = sandboxed.wait(Duration::from_secs(5)).unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::NotFound);
        assert!(why.to_string().starts_with("run the program: "), "{why}");
    }
}
