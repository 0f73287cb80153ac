//! One scrape of one engine: the request, the judgement of its status, the reading of its body.
//!
//! Separate from the loop around it because `check-config --probe` asks once too. What an operator should look at
//! depends on how it failed, so the failures that mean something special for an inference engine say so: a port that
//! refuses is often a model that still loads, and silence is often a batch that takes its time.

use super::dialect;
use crate::config;
use crate::model::engine::EngineSample;
use crate::model::{Failure, FailureKind};
use crate::sources::http::{self, Limits, Request, Response};

/// Asks an engine once, within its timeout and at most `response_limit` bytes.
pub async fn scrape(engine: &config::Engine, response_limit: u64) -> Result<EngineSample, Failure> {
    let limits = Limits { deadline: engine.timeout, body: response_limit };
    ask(&request(engine)?, limits).await
}

/// What to send to an engine. Made once for all of its scrapes, so that a token file on a file system that hangs
/// occupies one thread and not one more with each scrape.
pub(super) fn request(engine: &config::Engine) -> Result<Request, Failure> {
    let request = Request::new(&engine.url)?;
    Ok(request.bearer_token_file(engine.bearer_token_file.clone()).ca_file(engine.ca_file.clone()))
}

/// Sends a request made before.
pub(super) async fn ask(request: &Request, limits: Limits) -> Result<EngineSample, Failure> {
    let response = http::get(request, limits).await.map_err(with_engine_advice)?;
    if response.status != 200 {
        return Err(refused(request, &response));
    }
    dialect::read(&response.body).map_err(|failure| request.failure(failure.kind, failure.message))
}

/// Adds what a failure of the network means for an engine.
fn with_engine_advice(mut failure: Failure) -> Failure {
    failure.message.push_str(match failure.kind {
        FailureKind::Refused => " (vLLM opens its port only when the model is loaded)",
        FailureKind::Timeout => " (if it is only slow, raise the engine's `timeout`)",
        _ => "",
    });
    failure
}

/// An answer that is not 200.
fn refused(request: &Request, response: &Response) -> Failure {
    let status = response.status;
    let (kind, advice) = match status {
        401 | 403 => (FailureKind::Auth, "put a token that it accepts into bearer_token_file"),
        404 | 405 => (FailureKind::Status, "does the url point at /metrics of the engine?"),
        500 => (
            FailureKind::Status,
            "its log says why; with several API servers, is PROMETHEUS_MULTIPROC_DIR on a local disk?",
        ),
        502..=504 => (FailureKind::Status, "is the engine behind this proxy started and healthy?"),
        _ => (FailureKind::Status, "its log says why"),
    };
    let said = first_words(&response.body).map(|words| format!(" ({words:?})")).unwrap_or_default();
    request.failure(kind, format!("answers {status}{said}: {advice}"))
}

/// The first 80 characters of a body that is text, its blanks and line ends as single spaces.
fn first_words(body: &[u8]) -> Option<String> {
    let text = match std::str::from_utf8(body) {
        Ok(text) => text,
        // The body may have been cut in the middle of a character; anything else is not text.
        Err(error) if error.error_len().is_none() => std::str::from_utf8(body.get(..error.valid_up_to())?).ok()?,
        Err(_) => return None,
    };
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let words: String = words.chars().take(80).collect();
    (!words.is_empty() && !words.contains(|character: char| character.is_control())).then_some(words)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::EngineName;
    use crate::model::engine::Dialect;
    use crate::sources::http::testing::{Act, Server, answer, answer_ok, unused_address};

    fn engine(url: String, timeout: Duration) -> config::Engine {
        config::Engine {
            name: EngineName::new("vllm0"),
            url,
            bearer_token_file: None,
            ca_file: None,
            interval: Duration::from_secs(5),
            timeout,
            discovered: false,
        }
    }

    #[tokio::test]
    async fn a_good_answer_is_a_sample() {
        let server = Server::always(answer_ok("vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3.0\n")).await;
        let sample = scrape(&engine(server.url(), Duration::from_secs(30)), 1000).await.unwrap();
        assert_eq!(sample.models["m"].ranks["0"].running, Some(3.0));

        let server = Server::always(answer_ok("up 1\n")).await;
        let sample = scrape(&engine(server.url(), Duration::from_secs(30)), 1000).await.unwrap();
        assert_eq!((sample.dialect, sample.warnings.len()), (Dialect::None, 1));
    }

    #[tokio::test]
    async fn bad_answers_each_have_their_kind_and_advice() {
        use FailureKind::{Auth, Network, Parse, Status, Timeout, TooLarge};
        let status =
            |head: &str, body: &str| answer(format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
        let page = "<!DOCTYPE html><html><body>Grafana</body></html>";
        let forty_mib = vec![
            Act::Read,
            Act::Write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 40 << 20).into_bytes(), 1),
            Act::Write(vec![b'x'; 1 << 20], 40),
        ];
        let long_reason = "no ".repeat(100);
        let cases = [
            (answer_ok(page), Parse, "is a page of HTML or XML, not metrics (\"<!DOCTYPE html>"),
            (answer_ok("{\"error\": \"no\"}"), Parse, "is JSON, not metrics"),
            (answer_ok("\0\x01\x02"), Parse, "is binary data, not metrics"),
            (answer("SSH-2.0-OpenSSH_9.2\r\n"), Parse, "answers with something that is not HTTP"),
            (
                forty_mib,
                TooLarge,
                "answers with more than 16777216 bytes: is the url right? If so, raise limits.response",
            ),
            (
                status("500 Internal Server Error", " Internal\n\n Server  Error\n"),
                Status,
                "answers 500 (\"Internal Server Error\"): its log says why; with several API servers",
            ),
            (status("500 No", ""), Status, "answers 500: its log"),
            (status("500 No", "\0\x01"), Status, "answers 500: its log"),
            (status("503 No", &long_reason), Status, &format!("answers 503 ({:?}): is the engine", &long_reason[..80])),
            (status("404 No", page), Status, &format!("answers 404 ({page:?}): does the url point at /metrics")),
            (status("401 No", "{}"), Auth, "answers 401 (\"{}\"): put a token that it accepts into bearer_token_file"),
            (status("302 Found\r\nlocation: http://other/x", ""), Status, "answers 302 and sends us to http://other:"),
            (vec![Act::Read], Network, "closed the connection without an answer"),
            (vec![Act::Read, Act::Reset], Network, "broke the connection without an answer"),
            (
                answer("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nvllm:num_requests_running 3"),
                Network,
                "closed the connection in the middle of its answer, after 27 bytes",
            ),
        ];
        for (script, kind, message) in cases {
            let server = Server::always(script).await;
            let failure = scrape(&engine(server.url(), Duration::from_secs(30)), 16 << 20).await.unwrap_err();
            let expected = format!("{}: {message}", server.url());
            assert!(failure.message.starts_with(&expected), "{}\n{expected}", failure.message);
            assert_eq!(failure.kind, kind, "{message}");
        }
        let silent = Server::always(vec![Act::Hang]).await;
        let failure = scrape(&engine(silent.url(), Duration::from_millis(200)), 1000).await.unwrap_err();
        assert_eq!(failure.kind, Timeout);
        assert!(failure.message.ends_with("raise the engine's `timeout`)"), "{}", failure.message);
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_may_be_loading() {
        let url = format!("http://{}/metrics", unused_address().await);
        let failure = scrape(&engine(url, Duration::from_secs(30)), 1000).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Refused);
        assert!(
            failure.message.ends_with("(vLLM opens its port only when the model is loaded)"),
            "{}",
            failure.message
        );
    }
}
