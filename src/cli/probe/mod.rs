//! `check-config --probe`: every source once, as this user, with a reason for each that does not answer.
//!
//! Each source is asked in a child process of the same binary. A `statvfs` of a dead mount hangs in the kernel, and a
//! thread that hangs there keeps its whole process from ending even after SIGKILL; so the process that the user waits
//! for makes no such call itself. A child that does not answer in time is killed and left behind; its outputs are pipes
//! of ours, so it holds no terminal and no pipeline open.

mod ask;
mod files;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::config::{
    Alertmanager, Config, Email, Engine, Limits, Output, Pool, ProcessSelector, ProgressKind, WatchedVolume, quote,
};
use crate::model::{Failure, FailureKind};

/// For one source, its name lookup, connection and answer included. An engine has the time that it is given in service.
const DEADLINE: Duration = Duration::from_secs(10);

/// What a source said, or why not and what to do.
pub type Answer = std::result::Result<Found, Failure>;

/// Children at a time.
const AT_A_TIME: usize = 16;

/// No answer is longer.
const LONGEST_ANSWER: u64 = 64 << 10;

/// What a good answer amounts to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Found {
    /// It works.
    Ready(String),
    /// Nothing is wrong, and nothing is there yet.
    NotYet(String),
}

/// One thing to try, and from where the machine is seen.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Question {
    /// What.
    pub source: Source,
    /// Where `/proc` is.
    pub procfs: PathBuf,
    /// The prefix of the host's root.
    pub rootfs: PathBuf,
}

/// What can be tried.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Source {
    /// A scrape.
    Engine(Engine, Limits),
    /// Files that name engines, and each of those.
    Pool(Pool, Limits),
    /// A progress source.
    Progress {
        /// Where and how.
        kind: ProgressKind,
        /// What bounds its reader.
        limits: Limits,
        /// Its folder need not be there yet: its job follows another one, or writes it itself.
        later: bool,
    },
    /// The process of a job.
    Process(ProcessSelector),
    /// An output path and the volume it is on.
    Output(Output),
    /// A configured volume.
    Volume(WatchedVolume),
    /// NVML, and how many GPUs it should show.
    Gpus(u32),
    /// The drop-in folder.
    JobsDir(PathBuf, Limits),
    /// The folder of our own state.
    Storage(PathBuf),
    /// A rule file.
    Rules(PathBuf),
    /// The mail server.
    Email(Email),
    /// Whom alerts are posted to.
    Alertmanager(Alertmanager),
}

/// How it went.
#[derive(Debug)]
pub struct Result {
    /// What was tried, as `engine vllm0`.
    pub name: String,
    /// What it said, or why not and what to do.
    pub answer: Answer,
}

/// Everything that the configuration names, in its order.
pub fn sources(config: &Config) -> Vec<(String, Source)> {
    let mut sources = Vec::new();
    let limits = || config.limits.clone();
    for engine in &config.engines {
        sources.push((format!("engine {}", engine.name), Source::Engine(engine.clone(), limits())));
    }
    for pool in &config.pools {
        sources.push((format!("engines {}", pool.name), Source::Pool(pool.clone(), limits())));
    }
    for volume in &config.volumes {
        sources.push((format!("volume {}", volume.path.display()), Source::Volume(volume.clone())));
    }
    if let Some(expected) = config.gpus_expected {
        sources.push(("gpus".into(), Source::Gpus(expected)));
    }
    if let Some(path) = &config.jobs_dir {
        sources.push(("jobs_dir".into(), Source::JobsDir(path.clone(), limits())));
    }
    for job in &config.jobs {
        for progress in &job.progress {
            let name = format!("progress {}/{}", job.name, progress.which);
            let later = !job.after.is_empty() || job.outputs.iter().any(|output| below(&progress.kind, &output.path));
            sources.push((name, Source::Progress { kind: progress.kind.clone(), limits: limits(), later }));
        }
        if let Some(selector) = &job.process {
            sources.push((format!("process {}", job.name), Source::Process(selector.clone())));
        }
        for output in &job.outputs {
            sources.push((format!("output {}", job.name), Source::Output(output.clone())));
        }
    }
    sources.push(("storage".into(), Source::Storage(config.storage.clone())));
    for path in &config.alerting.rule_files {
        sources.push((format!("rules {}", path.display()), Source::Rules(path.clone())));
    }
    if let Some(email) = &config.notify.email {
        sources.push(("email".into(), Source::Email(email.clone())));
    }
    for target in &config.notify.alertmanagers {
        sources.push((target.integration(), Source::Alertmanager(target.clone())));
    }
    sources
}

/// Whether a progress source is what the job itself writes to one of its output paths.
fn below(kind: &ProgressKind, output: &Path) -> bool {
    match kind {
        ProgressKind::Log { path, .. } | ProgressKind::Directory { path, .. } => path.starts_with(output),
        ProgressKind::Jsonl { glob, .. } | ProgressKind::Json { glob, .. } => Path::new(glob).starts_with(output),
    }
}

/// Tries all sources, several at a time.
pub fn all(config: &Config) -> anyhow::Result<Vec<Result>> {
    let program = std::env::current_exe().context("cannot find the program's own file to start it again")?;
    let sources = sources(config);
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(Vec::new());
    std::thread::scope(|scope| -> std::io::Result<()> {
        for _ in 0..AT_A_TIME.min(sources.len()) {
            std::thread::Builder::new().name("probe".into()).spawn_scoped(scope, || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some((_, source)) = sources.get(index) else { break };
                    let deadline = deadline(source);
                    let question = Question {
                        source: source.clone(),
                        procfs: config.procfs.clone(),
                        rootfs: config.rootfs.clone(),
                    };
                    let answer =
                        in_child(Command::new(&program).args(["check-config", "--probe-child"]), &question, deadline);
                    answers.lock().unwrap_or_else(PoisonError::into_inner).push((index, answer));
                }
            })?;
        }
        Ok(())
    })
    .context("cannot start a thread")?;
    let mut answers = answers.into_inner().unwrap_or_else(PoisonError::into_inner);
    answers.sort_by_key(|(index, _)| *index);
    Ok(sources.into_iter().zip(answers).map(|((name, _), (_, answer))| Result { name, answer }).collect())
}

/// How long a source may take: its own deadline, where it has one, has to come first, since it gives the reason.
fn deadline(source: &Source) -> Duration {
    match source {
        Source::Engine(engine, _) => DEADLINE.max(engine.timeout + Duration::from_secs(2)),
        // The files first, then its engines at the same time.
        Source::Pool(pool, _) => DEADLINE + pool.timeout,
        Source::Alertmanager(_) => DEADLINE + Duration::from_secs(2),
        _ => DEADLINE,
    }
}

/// One aligned line a source.
pub fn table(results: &[Result]) -> String {
    let names: Vec<String> = results.iter().map(|result| quote(&result.name).into_owned()).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, result) in names.iter().zip(results) {
        let (word, said) = match &result.answer {
            Ok(Found::Ready(said)) => ("ok  ", said),
            Ok(Found::NotYet(said)) => ("wait", said),
            Err(failure) => ("FAIL", &failure.message),
        };
        // What a server or file said stays on its line.
        let said: String = said.chars().map(|character| if character.is_control() { ' ' } else { character }).collect();
        text.push_str(&format!("{word}  {name:<width$}  {said}\n"));
    }
    let failed = results.iter().filter(|result| result.answer.is_err()).count();
    let waiting = results.iter().filter(|result| matches!(result.answer, Ok(Found::NotYet(_)))).count();
    text.push_str(&match (failed, waiting) {
        (0, 0) => format!("all {} are good\n", results.len()),
        (0, _) => format!("{} of {} are good, {waiting} not there yet\n", results.len() - waiting, results.len()),
        _ => format!("{failed} of {} failed\n", results.len()),
    });
    text
}

/// Starts `command`, gives it the source and takes its answer, or kills it and leaves it behind.
fn in_child(command: &mut Command, question: &Question, deadline: Duration) -> Answer {
    let own =
        |what: &str, error: &dyn std::fmt::Display| Failure::new(FailureKind::Internal, format!("{what}: {error}"));
    let question = serde_json::to_vec(question).map_err(|error| own("cannot write the source down", &error))?;
    // Not waited for: a child in the kernel's hands cannot be. It becomes init's when this command ends.
    #[allow(clippy::zombie_processes)]
    let mut child: Child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| own("cannot start a process to try it in", &error))?;
    let (sender, receiver) = mpsc::channel();
    if let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) {
        std::thread::Builder::new()
            .name("probe-pipe".into())
            .spawn(move || {
                // Nobody listens after the deadline, which is fine.
                let _ = sender.send(converse(stdin, stdout, &question));
            })
            .map_err(|error| own("cannot start a thread", &error))?;
    }
    let answer = match receiver.recv_timeout(deadline) {
        Ok(answer) => answer
            .and_then(|answer| Ok(serde_json::from_slice(&answer)?))
            .unwrap_or_else(|_| Err(own("trying it ended a process without an answer", &"this is a bug"))),
        Err(_) => Err(Failure::new(
            FailureKind::Timeout,
            format!("no answer in {} s: it hangs; is its server or mount alive?", deadline.as_secs()),
        )),
    };
    let _ = child.kill();
    let _ = child.try_wait();
    answer
}

fn converse(mut stdin: ChildStdin, stdout: ChildStdout, question: &[u8]) -> std::io::Result<Vec<u8>> {
    stdin.write_all(question)?;
    drop(stdin);
    let mut answer = Vec::new();
    stdout.take(LONGEST_ANSWER).read_to_end(&mut answer)?;
    Ok(answer)
}

/// The other side: one source in, one answer out.
pub fn child(input: &mut dyn Read, output: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let question: Question = serde_json::from_reader(input).context("--probe-child is for check-config itself")?;
    let answer = ask::ask(&question);
    output.write_all(&serde_json::to_vec(&answer)?)?;
    output.flush()?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hanging_source_is_left_behind() {
        let source = Question { source: Source::Storage("/none".into()), procfs: "/".into(), rootfs: "/".into() };
        let mut hanging = Command::new("sleep");
        hanging.arg("1000");
        let failure = in_child(&mut hanging, &source, Duration::from_millis(100)).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Timeout);
        let failure = in_child(&mut Command::new("true"), &source, DEADLINE).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Internal);
    }

    #[test]
    fn lines_are_aligned_and_stay_lines() {
        let results = [
            Result { name: "engine a".into(), answer: Ok(Found::Ready("3\nmodels".into())) },
            Result { name: "volume /d".into(), answer: Err(Failure::new(FailureKind::Missing, "is not there")) },
        ];
        assert_eq!(table(&results), "ok    engine a   3 models\nFAIL  volume /d  is not there\n1 of 2 failed\n");
    }

    #[test]
    fn a_source_survives_the_pipe() {
        let loaded = crate::config::parse(
            "engines: [{name: e, url: 'http://h/metrics'}, {name: p, file_sd: [/e/*.json]}]\nvolumes: [{path: /}]\njobs: [{job_name: j, \
             progress: [{log: /l}, {jsonl: /a.jsonl}, {json: /p.json}], outputs: [{path: /o}]}]\n\
             alerting: {rule_files: [/r.yml]}\nnotify: {email: {smarthost: 'm:25', from: a@b.c, to: [a@b.c]}, alertmanagers: [{url: 'http://h:9093'}]}",
            "f",
        );
        let sources = sources(&loaded.config.unwrap());
        assert_eq!(sources.len(), 12);
        for (name, source) in sources {
            let text = serde_json::to_string(&source).unwrap();
            assert!(serde_json::from_str::<Source>(&text).is_ok(), "{name}: {text}");
        }
    }
}
