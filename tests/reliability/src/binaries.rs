//! Running the binaries.

use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a command may wait for something that does not come. On a busy machine one that computes takes long, too.
const PATIENCE: Duration = Duration::from_secs(600);

/// `train` and `bt`.
pub struct Binaries {
    pub train: PathBuf,
    pub bt: PathBuf,
}

impl Binaries {
    /// Those in `folder`, or beside this program.
    pub fn find(folder: Option<PathBuf>) -> Result<Self> {
        let own = std::env::current_exe()?;
        let folder = match folder {
            Some(folder) => folder.canonicalize()?,
            None => own.parent().context("this program lies in a folder")?.to_owned(),
        };
        let at = |name: &str| folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
        let found = Binaries { train: at("train"), bt: at("bt") };
        for path in [&found.train, &found.bt] {
            ensure!(path.is_file(), "{} is not there: cargo build -p hankel-train -p hankel-tools", path.display());
        }
        Ok(found)
    }
}

/// A command in a folder, with one thread and nothing to read.
pub fn command<S: AsRef<OsStr>>(program: &Path, arguments: &[S], folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).env("RAYON_NUM_THREADS", "1").env("RUST_BACKTRACE", "0");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a command to its end.
pub fn run<S: AsRef<OsStr>>(program: &Path, arguments: &[S], folder: &Path) -> Result<Output> {
    Ok(command(program, arguments, folder).output()?)
}

/// As [`command`], with at most 4 GiB of address space and a minute of processor time where a shell can say so.
fn limited<S: AsRef<OsStr>>(program: &Path, arguments: &[S], folder: &Path) -> Command {
    if cfg!(not(unix)) {
        return command(program, arguments, folder);
    }
    let mut limited = command(Path::new("sh"), &["-c", "ulimit -v 4194304; ulimit -t 60; exec \"$0\" \"$@\""], folder);
    limited.arg(program).args(arguments);
    limited
}

/// What is wrong with how a command ended: a signal, a panic, another exit code than 0, 1 and 2, no message, no end.
pub fn run_and_judge<S: AsRef<OsStr>>(program: &Path, arguments: &[S], folder: &Path) -> Result<(i32, Option<String>)> {
    let mut command = limited(program, arguments, folder);
    // Nothing is printed that fills a pipe; errors are read when it has ended.
    let mut child = command.stdout(Stdio::null()).spawn()?;
    if !ends(&mut child)? {
        child.kill()?;
        child.wait()?;
        return Ok((-1, Some("no end".to_owned())));
    }
    let output = child.wait_with_output()?;
    Ok((output.status.code().unwrap_or(-1), problem_of(&output)))
}

fn ends(child: &mut Child) -> Result<bool> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if child.try_wait()?.is_some() {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(false)
}

/// What is wrong with how a process ended.
pub fn problem_of(output: &Output) -> Option<String> {
    let text = String::from_utf8_lossy(&output.stderr);
    let last = || text.chars().rev().take(200).collect::<Vec<_>>().into_iter().rev().collect::<String>();
    match output.status.code() {
        None => Some(format!("ended by {}: {}", output.status, last())),
        Some(_) if text.contains("panicked at") => Some(format!("panic: {}", last())),
        Some(0 | 1) => None,
        Some(2) if text.contains("error: ") => None,
        Some(2) => Some(format!("exit 2 without a message: {}", last())),
        Some(code) => Some(format!("exit {code}: {}", last())),
    }
}
