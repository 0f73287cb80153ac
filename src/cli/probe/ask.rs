//! One question to one source, and its answer in words: by the code that will poll it, called once.
//!
//! Separate so that each source has exactly one place here in which it is tried. What a source says about its failure
//! stands as it is; added is only what it cannot know, such as whether a file that is not there is late or misspelt.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::{Answer, Found, Question, Source, files};
use crate::alerts::Rules;
use crate::clock::Clock;
use crate::config::{self, Alertmanager, Email, Engine, Limits, Pool, ProcessSelector};
use crate::model::engine::{Dialect, EngineSample};
use crate::model::gpu::GpuInventory;
use crate::model::job::Reading;
use crate::model::{Failure, FailureKind};
use crate::notify::email;
use crate::sources::mounts::under;
use crate::sources::processes::Watch;
use crate::sources::{engines, gpus, progress};
use crate::{runtime, text, worker};

/// For one answer of a mail server, and for all of them: below the parent's deadline, so that the reason comes from
/// here.
const MAIL_ANSWER: Duration = Duration::from_secs(7);
const MAIL_IN_ALL: Duration = Duration::from_secs(9);

/// Tries a source once.
pub fn ask(question: &Question) -> Answer {
    match &question.source {
        Source::Engine(engine, limits) => ask_engine(engine, limits),
        Source::Pool(pool, limits) => ask_pool(pool, limits),
        Source::Progress { kind, limits, later } => {
            let opened = worker::rooted(kind, &question.rootfs);
            match progress::open(&opened, limits).poll(Clock::start().now()) {
                // It can be read, and is so large that one slice of time was not enough.
                Ok(Reading { first_pass: Some(words), .. }) => Ok(Found::Ready(words)),
                Ok(reading) => describe_reading(&reading),
                Err(failure) if failure.kind == FailureKind::Missing => files::not_yet(kind, *later, question),
                Err(failure) => Err(failure),
            }
        }
        Source::Process(selector) => ask_process(selector, question),
        Source::Output(output) => files::output(output, question),
        Source::Volume(volume) => files::volume(volume, question),
        Source::Gpus(expected) => ask_gpus(*expected),
        Source::JobsDir(path, limits) => files::jobs_dir(path, limits, question),
        Source::Storage(path) => files::storage(path).map(Found::Ready),
        Source::Rules(path) => ask_rules(path),
        Source::Email(email) => ask_email(email),
        Source::Alertmanager(target) => ask_alertmanager(target),
    }
}

fn ask_engine(engine: &Engine, limits: &Limits) -> Answer {
    describe_sample(&run(engines::scrape(engine, limits.response))??)
}

fn run<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(FailureKind::Internal, format!("cannot start a runtime: {error}")))?;
    let done = runtime.block_on(work);
    // A name lookup that hangs in a thread of the runtime ends with this process.
    runtime.shutdown_background();
    Ok(done)
}

/// All engines that the files name, at the same time. One that does not answer is a failure of its own.
fn ask_pool(pool: &Pool, limits: &Limits) -> Answer {
    let (targets, failure) = engines::targets::Files::new(pool).look();
    match failure {
        Some(failure) if failure.kind == FailureKind::Missing => return Ok(Found::NotYet(failure.message)),
        Some(failure) => return Err(failure),
        None => {}
    }
    let (count, response) = (targets.len(), limits.response);
    let answers = run(async move {
        let mut scrapes = tokio::task::JoinSet::new();
        for target in targets {
            let engine = pool.engine(target.engine, target.url);
            scrapes.spawn(async move { engines::scrape(&engine, response).await });
        }
        scrapes.join_all().await
    })?;
    let answers: Vec<Answer> = answers.into_iter().map(|sample| describe_sample(&sample?)).collect();
    let bad = answers.iter().filter(|answer| answer.is_err()).count();
    if let Some(Err(failure)) = answers.iter().find(|answer| answer.is_err()) {
        let message = format!("{bad} of {count} engines do not answer as they should: {}", failure.message);
        return Err(Failure::new(failure.kind, message));
    }
    let first = answers.into_iter().find_map(Result::ok).map(|found| match found {
        Found::Ready(said) | Found::NotYet(said) => format!("; the first: {said}"),
    });
    Ok(Found::Ready(format!("{count} engines answer{}", first.unwrap_or_default())))
}

fn ask_gpus(expected: u32) -> Answer {
    let nvml = gpus::open()?;
    describe_gpus(&gpus::list(&nvml, &[])?, expected)
}

/// What NVML shows, in words.
fn describe_gpus(inventory: &GpuInventory, expected: u32) -> Answer {
    if let Some(failure) = inventory.gpus.iter().find_map(|gpu| gpu.failure.clone()) {
        return Err(failure);
    }
    let found = inventory.gpus.len();
    let driver = inventory.driver.as_deref().unwrap_or("of an unknown version");
    let names: BTreeSet<&str> = inventory.gpus.iter().filter_map(|gpu| gpu.name.as_deref()).collect();
    let names = names.into_iter().collect::<Vec<_>>().join(", ");
    if u32::try_from(found) == Ok(expected) {
        return Ok(Found::Ready(format!("{found} of {expected} ({names}), driver {driver}")));
    }
    Err(Failure::new(
        FailureKind::GpuLost,
        format!(
            "the driver shows {found} GPUs ({names}), gpus.expected is {expected}: look for NVRM and Xid in dmesg, or at the \
             GPUs that this container was given"
        ),
    ))
}

fn ask_process(selector: &ProcessSelector, question: &Question) -> Answer {
    let pid_file = match selector {
        ProcessSelector::PidFile(path) => Some(under(&question.rootfs, path)),
        _ => None,
    };
    let clock = Clock::start();
    let reading = Watch::new(question.procfs.clone(), selector.clone(), pid_file).poll(clock.now(), clock)?;
    Ok(match reading.living {
        Some(living) => {
            let more = living.processes - 1;
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            Found::Ready(format!("process {}{more}, {selector}", living.pid))
        }
        None if reading.ended => Found::NotYet(format!("the process of {selector} is not there any more")),
        None => Found::NotYet(format!("no process is there yet, {selector}")),
    })
}

fn ask_rules(path: &Path) -> Answer {
    let text = config::read_text(path)
        .map_err(|error| Failure::new(FailureKind::Io, format!("{} {error}", path.display())))?;
    match Rules::parse(&[(path.display().to_string(), text)]) {
        Ok(rules) => Ok(Found::Ready(format!("{} alerts", rules.iter().count()))),
        Err(problems) => {
            let first = problems.first().map(ToString::to_string).unwrap_or_default();
            Err(Failure::new(FailureKind::Parse, format!("{first} ({} problems in all)", problems.len())))
        }
    }
}

fn ask_email(email: &Email) -> Answer {
    let probed = email::probe(email, MAIL_ANSWER, MAIL_IN_ALL)?;
    let tls = if probed.tls { "encrypted, its certificate is good" } else { "not encrypted" };
    let auth = match &email.username {
        Some(username) if probed.authenticated => format!("it takes the password of {username}"),
        _ => "without a password".to_owned(),
    };
    Ok(Found::Ready(format!("{}:{} answers, {tls}, {auth}; no mail was sent", email.host, email.port)))
}

fn ask_alertmanager(target: &Alertmanager) -> Answer {
    run(runtime::probe_alertmanager(target))??;
    Ok(Found::Ready("takes alerts from here; none was posted".to_owned()))
}

/// What a scrape found, in words.
pub fn describe_sample(sample: &EngineSample) -> Answer {
    let odd = sample.warnings.first();
    let dialect = match sample.dialect {
        Dialect::Vllm => "vLLM",
        Dialect::Sglang => "SGLang",
        Dialect::None => {
            let why = odd.map_or("answers with the metrics of no engine that we know", String::as_str);
            return Err(Failure::new(FailureKind::Parse, format!("{why} ({} series in all)", sample.series)));
        }
    };
    let odd = odd.map(|warning| format!("; {warning}")).unwrap_or_default();
    let models: Vec<&str> = sample.models.keys().map(String::as_str).collect();
    Ok(Found::Ready(format!("{dialect}, {} series, serves {}{odd}", sample.series, models.join(", "))))
}

/// What a progress source knows, in words.
pub fn describe_reading(reading: &Reading) -> Answer {
    let mut said = match (reading.done, reading.total) {
        (Some(done), Some(total)) => format!("{} of {} done", text::count(done), text::count(total)),
        (Some(done), None) => format!("{} done", text::count(done)),
        (None, Some(total)) => format!("{} in all, none counted yet", text::count(total)),
        (None, None) => "can be read, and says nothing about progress yet".into(),
    };
    for (number, of) in [(reading.failed, "failed"), (reading.tokens, "tokens")] {
        if let Some(number) = number.filter(|number| *number > 0.0) {
            said.push_str(&format!(", {} {of}", text::count(number)));
        }
    }
    if let Some(unread) = &reading.unread {
        said.push_str(&format!("; {} not understood: {}", unread.lines, unread.reason));
    }
    let nothing = |number: Option<f64>| number.is_none_or(|number| number == 0.0);
    if nothing(reading.done) && nothing(reading.failed) && reading.unread.is_some() {
        // Lines were read and none of them counts: it is another file, or of another format.
        return Err(Failure::new(FailureKind::Parse, said));
    }
    Ok(if reading.done.is_none() && reading.total.is_none() { Found::NotYet(said) } else { Found::Ready(said) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::job::Unread;

    #[test]
    fn answers_in_words() {
        let reading = Reading { done: Some(300.0), total: Some(25000.0), failed: Some(2.0), ..Reading::default() };
        assert_eq!(describe_reading(&reading), Ok(Found::Ready("300 of 25,000 done, 2 failed".into())));
        assert!(matches!(describe_reading(&Reading::default()), Ok(Found::NotYet(_))));
        let unread = Some(Unread { lines: 87, reason: "no JSON".into() });
        let nothing_counts = Reading { done: Some(0.0), unread: unread.clone(), ..Reading::default() };
        assert_eq!(describe_reading(&nothing_counts).unwrap_err().message, "0 done; 87 not understood: no JSON");
        assert!(describe_reading(&Reading { unread, ..reading }).is_ok());
        assert!(describe_sample(&EngineSample::default()).unwrap_err().message.contains("no engine that we know"));
    }
}
