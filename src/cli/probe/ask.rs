//! One question to one source, and its answer in words.
//!
//! Separate so that each source has exactly one place here in which it is tried.

use std::io::{BufRead, BufReader, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use super::{Source, files};
use crate::config::{Email, Engine, Limits, ProgressKind, SmtpTls};
use crate::model::engine::{Dialect, EngineSample};
use crate::model::job::Reading;
use crate::model::{Failure, FailureKind};

type Answer = Result<String, Failure>;

/// Below the parent's deadline, so that the reason comes from here.
const PATIENCE: Duration = Duration::from_secs(8);

/// Tries a source once.
pub fn ask(source: &Source) -> Answer {
    match source {
        Source::Engine(engine, limits) => {
            ask_engine(engine, limits).map_err(|why| hint(why, "check the path, or write the file"))
        }
        Source::Progress(kind, limits) => ask_progress(kind, limits)
            .map_err(|why| hint(why, "right if the job has not started yet, else check the path")),
        Source::Output(output) => files::output(output),
        Source::Volume(volume) => files::volume(volume).map_err(|why| hint(why, "mount it, or correct the path")),
        Source::JobsDir(path) => files::jobs_dir(path),
        Source::Storage(path) => files::storage(path),
        Source::Rules(path) => ask_rules(path).map_err(|why| hint(why, "check the path")),
        Source::Email(email) => ask_email(email).map_err(|why| hint(why, "check the path, or write the file")),
    }
}

/// What to do about a path that is not there, which only the source knows.
fn hint(mut failure: Failure, what_to_do: &str) -> Failure {
    if failure.kind == FailureKind::Missing {
        failure.message.push_str(": ");
        failure.message.push_str(what_to_do);
    }
    failure
}

fn ask_engine(engine: &Engine, _limits: &Limits) -> Answer {
    engine.bearer_token_file.as_deref().map_or(Ok(()), files::secret)?;
    engine.ca_file.as_deref().map_or(Ok(()), |path| files::open(path).map(drop))?;
    let uri: hyper::Uri = engine
        .url
        .parse()
        .map_err(|error| Failure::new(FailureKind::Parse, format!("{} is no URL: {error}", engine.url)))?;
    let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    connect(host, uri.port_u16().unwrap_or(default))?;
    Ok(format!("{} accepts connections", engine.url))
}

fn ask_progress(kind: &ProgressKind, _limits: &Limits) -> Answer {
    match kind {
        ProgressKind::Log { path, .. } => {
            let size = files::open(path)?.metadata().map_or(0, |kind| kind.len());
            Ok(format!("{} has {}", path.display(), files::binary(size)))
        }
        ProgressKind::Jsonl { glob, .. } | ProgressKind::Json { glob, .. } => {
            if glob.contains(['*', '?', '[']) {
                return Ok(format!("{glob} is a pattern"));
            }
            files::open(Path::new(glob))?;
            Ok(format!("{glob} can be read"))
        }
    }
}

fn ask_rules(path: &Path) -> Answer {
    files::open(path)?;
    Ok("can be read".into())
}

fn ask_email(email: &Email) -> Answer {
    email.password_file.as_deref().map_or(Ok(()), files::secret)?;
    email.ca_file.as_deref().map_or(Ok(()), |path| files::open(path).map(drop))?;
    let stream = connect(&email.host, email.port)?;
    let server = format!("{}:{}", email.host, email.port);
    if email.tls == SmtpTls::Implicit {
        return Ok(format!("{server} accepts connections"));
    }
    let network = |error: &std::io::Error| {
        let message = format!(
            "{server} accepted the connection and said nothing ({error}): is it a mail server, and is tls right?"
        );
        Failure::new(FailureKind::Timeout, message)
    };
    stream.set_read_timeout(Some(PATIENCE)).map_err(|error| network(&error))?;
    let mut greeting = Vec::new();
    BufReader::new(stream.take(512)).read_until(b'\n', &mut greeting).map_err(|error| network(&error))?;
    let greeting = String::from_utf8_lossy(&greeting).trim().to_owned();
    if greeting.starts_with("220") {
        return Ok(format!("{server} greets: {}", crate::config::quote(&greeting)));
    }
    let message = format!("{server} does not greet as a mail server does: {}", crate::config::quote(&greeting));
    Err(Failure::new(FailureKind::Status, message))
}

/// The first address that accepts.
fn connect(host: &str, port: u16) -> Result<TcpStream, Failure> {
    let server = format!("{host}:{port}");
    let addresses = (host, port).to_socket_addrs().map_err(|error| {
        Failure::new(FailureKind::Network, format!("the name {host} cannot be looked up ({error}): is it right?"))
    })?;
    let mut last = Failure::new(FailureKind::Network, format!("the name {host} has no address"));
    for address in addresses {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => {
                last = match error.kind() {
                    std::io::ErrorKind::ConnectionRefused => Failure::new(
                        FailureKind::Refused,
                        format!("nobody listens on {server}: is it running, and is the port right?"),
                    ),
                    std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock => Failure::new(
                        FailureKind::Timeout,
                        format!("{server} does not answer in {} s: a firewall?", PATIENCE.as_secs()),
                    ),
                    _ => Failure::new(FailureKind::Network, format!("{server}: {error}")),
                };
            }
        }
    }
    Err(last)
}

/// What a scrape found, in words.
pub fn describe_sample(sample: &EngineSample) -> String {
    let dialect = match sample.dialect {
        Dialect::Vllm => "vLLM",
        Dialect::None => return format!("answers with {} series, none of an engine we know", sample.series),
    };
    let models: Vec<&str> = sample.models.keys().map(String::as_str).collect();
    format!("{dialect}, {} series, serves {}", sample.series, models.join(", "))
}

/// What a progress source knows, in words.
pub fn describe_reading(reading: &Reading) -> String {
    match (reading.done, reading.total) {
        (Some(done), Some(total)) => format!("{done} of {total} done"),
        (Some(done), None) => format!("{done} done"),
        (None, Some(total)) => format!("{total} in all, none counted yet"),
        (None, None) => "can be read, and has no progress yet".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_in_words() {
        let reading = Reading { done: Some(300.0), total: Some(25000.0), ..Reading::default() };
        assert_eq!(describe_reading(&reading), "300 of 25000 done");
        assert!(describe_reading(&Reading::default()).contains("no progress yet"));
        assert!(describe_sample(&EngineSample::default()).contains("none of an engine we know"));
    }

    #[test]
    fn a_mail_server_is_told_from_another() {
        use std::io::Write;
        for (greeting, good) in [("220 mail.example.org ESMTP\r\n", true), ("HTTP/1.1 400 Bad\r\n", false)] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let server = std::thread::Builder::new()
                .spawn(move || listener.accept().unwrap().0.write_all(greeting.as_bytes()).unwrap())
                .unwrap();
            let text =
                format!("notify: {{email: {{smarthost: '127.0.0.1:{port}', tls: none, from: a@b.c, to: [a@b.c]}}}}");
            let email = crate::config::parse(&text, "f").config.unwrap().notify.email.unwrap();
            assert_eq!(ask_email(&email).is_ok(), good);
            server.join().unwrap();
            // The listener is gone: nobody listens there now.
            assert_eq!(ask_email(&email).unwrap_err().kind, FailureKind::Refused);
        }
    }
}
