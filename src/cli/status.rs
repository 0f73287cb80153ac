//! `longhaul status`: what a running Longhaul sees, as a table in the terminal.
//!
//! It asks the running instance for its snapshot instead of looking by itself: the table, the page and `/metrics` then
//! cannot disagree, and it needs no permission that the instance has. Rendering is pure ([`render`]); only [`run`]
//! touches the network and the terminal. The hazard is text from elsewhere: a control character in a job's name or a
//! log's line would reach the terminal, so every cell is made printable.

use std::time::Duration;

use anyhow::{Context, bail};

use super::say;
use crate::model::{FailureKind, Snapshot};
use crate::sources::http::{self, Limits, Request};
use crate::web::SNAPSHOT;

mod gpus;
mod table;
mod view;

pub(super) use table::{Column, Table};

pub(super) use table::{cut, printable};
pub use view::render;

/// Where Longhaul listens by default.
pub(super) const DEFAULT_URL: &str = "http://127.0.0.1:10787";
/// For the whole exchange: the answer is ready, so what takes longer is broken.
const DEADLINE: Duration = Duration::from_secs(10);
/// Bytes of an answer; two hundred jobs are one megabyte.
const MAX_ANSWER: u64 = 64 * 1024 * 1024;
/// Columns where there is no terminal: enough for everything.
const DEFAULT_WIDTH: usize = 140;

/// Show what a running longhaul sees.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Print the snapshot as JSON, as the running instance gives it
    #[arg(long)]
    pub json: bool,
    /// Where the running instance listens: http://HOST:PORT or unix:/PATH
    #[arg(long, value_name = "URL", default_value = DEFAULT_URL)]
    pub url: String,
}

/// Asks and prints.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let body = fetch(&args.url).await?;
    let text = if args.json {
        body
    } else {
        let snapshot: Snapshot = serde_json::from_slice(&body).with_context(|| {
            format!("{} answers, but not with a snapshot of this version of longhaul; try --json", args.url)
        })?;
        let colour = say::in_colour(&std::io::stdout());
        let text = render(&snapshot, width());
        if colour { view::paint(&text) } else { text }.into_bytes()
    };
    say::print(text)
}

/// The columns of the terminal, if there is one.
pub(super) fn terminal_columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Columns: what COLUMNS says, else the terminal itself.
fn width() -> usize {
    let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    told.or_else(terminal_columns).filter(|columns| *columns > 0).unwrap_or(DEFAULT_WIDTH)
}

/// A GET of `path` at the instance.
pub(super) fn request(url: &str, path: &str) -> anyhow::Result<Request> {
    match url.strip_prefix("unix:") {
        Some(socket) => Ok(Request::unix(socket.strip_prefix("//").unwrap_or(socket), path)),
        None => Request::new(&format!("{}{path}", url.trim_end_matches('/')))
            .map_err(|failure| anyhow::anyhow!("{url:?}: {}; or write unix:/PATH", failure.message)),
    }
}

/// Its answer, whatever the status.
pub(super) async fn ask(url: &str, request: &Request) -> anyhow::Result<http::Response> {
    let answer = http::get(request, Limits { deadline: DEADLINE, body: MAX_ANSWER }).await;
    answer.map_err(|failure| match failure.kind {
        FailureKind::Refused | FailureKind::Missing => anyhow::anyhow!("{} ({})", nobody(url), failure.message),
        _ => anyhow::anyhow!("cannot read its answer: {}", failure.message),
    })
}

/// The snapshot of the instance at `url`, as it is.
async fn fetch(url: &str) -> anyhow::Result<Vec<u8>> {
    let response = ask(url, &request(url, SNAPSHOT)?).await?;
    match response.status {
        200 => Ok(response.body),
        503 => bail!("{url} has just started and has no snapshot yet; ask again"),
        404 => bail!("something else than longhaul answers at {url} (404)"),
        status => bail!("{url} answers with status {status}"),
    }
}

fn nobody(url: &str) -> String {
    format!(
        "no longhaul answers at {url}; start one with `longhaul` (or `longhaul demo` to see it work), or say where it \
         listens with --url"
    )
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that answers one connection with `answer`.
    async fn scripted(answer: &'static str) -> (String, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            assert!(request.starts_with(b"GET /api/v1/snapshot HTTP/1.1\r\n"));
            stream.write_all(answer.as_bytes()).await.unwrap();
        });
        (url, task)
    }

    #[tokio::test]
    async fn what_the_instance_says_is_returned_as_it_is() {
        let (url, task) = scripted("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{}\n").await;
        assert_eq!(fetch(&url).await.unwrap(), b"{}\n");
        task.await.unwrap();
    }

    #[tokio::test]
    async fn what_goes_wrong_is_said_with_what_to_do() {
        for (answer, word) in [
            ("HTTP/1.1 503 Unavailable\r\ncontent-length: 0\r\n\r\n", "ask again"),
            ("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "something else"),
            ("HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n", "500"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 30\r\n\r\n{}", "cannot read"),
            ("SSH-2.0-OpenSSH\r\n", "cannot read"),
        ] {
            let (url, task) = scripted(answer).await;
            let error = format!("{:#}", fetch(&url).await.unwrap_err());
            assert!(error.contains(word) && error.contains(&url), "{error}");
            task.await.unwrap();
        }
        for url in ["127.0.0.1:10787", "ftp://x", "http://", "::"] {
            let error = format!("{:#}", fetch(url).await.unwrap_err());
            assert!(error.contains("unix:/PATH"), "{url}: {error}");
        }
    }

    #[tokio::test]
    async fn nobody_there_says_how_to_start_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        for url in [url.as_str(), "unix:/nonexistent/l.sock"] {
            let error = format!("{:#}", fetch(url).await.unwrap_err());
            assert!(error.contains(url) && error.contains("start one with `longhaul`"), "{error}");
        }
    }
}
