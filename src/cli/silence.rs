//! `longhaul silence`: which alerts nobody is to be mailed about, for how long and why.
//!
//! Words and flags are those of `amtool silence`, which works as well
//! (`amtool --alertmanager.url=http://127.0.0.1:10787 silence add …`); this one needs nothing else installed.

use std::time::Duration;

use anyhow::{Context, bail};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::say;
use super::status::{self, Column, Table};
use crate::clock::Clock;
use crate::model::silence::{Matcher, SilenceState};
use crate::sources::http::Response;
use crate::text;
use crate::web::silences::parse;

/// Where silences are.
const ALL: &str = "/api/v2/silences";
const ONE: &str = "/api/v2/silence/";

/// Characters of a refusal.
const LONGEST_NO: usize = 1000;

/// The flags.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where the running instance listens: http://HOST:PORT or unix:/PATH
    #[arg(long, global = true, value_name = "URL", default_value = status::DEFAULT_URL)]
    url: String,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Make a silence and print its id; needs an instance with --web.enable-lifecycle.
    Add(Add),
    /// List silences that mute or will.
    #[command(visible_alias = "query")]
    List(List),
    /// End silences now.
    Expire(Expire),
}

#[derive(Debug, clap::Args)]
struct Add {
    /// What alerts have to be: NAME=VALUE, NAME!=VALUE, NAME=~PATTERN, NAME!~PATTERN; a first one without an operator
    /// is an alertname.
    #[arg(required = true, value_name = "MATCHER")]
    matchers: Vec<String>,
    /// For how long.
    #[arg(short, long, value_name = "DURATION", default_value = "1h", value_parser = humantime::parse_duration)]
    duration: Duration,
    /// From when on, as 2026-12-01T08:00:00Z; now when left out.
    #[arg(long, value_name = "TIME")]
    start: Option<Timestamp>,
    /// Until when, instead of --duration.
    #[arg(long, value_name = "TIME", conflicts_with = "duration")]
    end: Option<Timestamp>,
    /// Who says so; $USER when left out.
    #[arg(short, long, value_name = "NAME")]
    author: Option<String>,
    /// Why.
    #[arg(short, long, value_name = "TEXT", required = true)]
    comment: String,
}

#[derive(Debug, clap::Args)]
struct List {
    /// Only silences that have these matchers.
    #[arg(value_name = "MATCHER")]
    matchers: Vec<String>,
    /// Those that ended, instead.
    #[arg(long)]
    expired: bool,
    /// Only the ids.
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Debug, clap::Args)]
struct Expire {
    /// The ids that `add` and `list` print.
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
}

/// As it is answered.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    id: String,
    status: Status,
    comment: String,
    created_by: String,
    starts_at: Moment,
    ends_at: Moment,
    matchers: Vec<Matcher>,
}

#[derive(Deserialize)]
struct Status {
    state: SilenceState,
}

/// A moment of an answer.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Moment(Timestamp);

impl TryFrom<String> for Moment {
    type Error = jiff::Error;

    fn try_from(text: String) -> Result<Self, jiff::Error> {
        text.parse().map(Self)
    }
}

/// Does it.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let Args { url, what } = args;
    match what {
        What::Add(add) => {
            let id = self::add(&url, add).await?;
            say::print(format!("{id}\n"))?;
        }
        What::List(list) => {
            let found = self::list(&url, &list).await?;
            let ids = || found.iter().map(|silence| format!("{}\n", silence.id)).collect();
            say::print(if list.quiet { ids() } else { table(&found) })?;
        }
        What::Expire(Expire { ids }) => {
            for id in ids {
                let request = status::request(&url, &format!("{ONE}{}", encoded(&id)))?.deleting();
                judge(&url, &status::ask(&url, &request).await?)?;
            }
        }
    }
    Ok(())
}

async fn add(url: &str, add: Add) -> anyhow::Result<String> {
    let matchers = matchers(&add.matchers)?;
    let start = match add.start {
        Some(start) => start,
        None => Timestamp::from_microsecond(Clock::start().now().micros())?,
    };
    let end = match add.end {
        Some(end) => end,
        None => start.checked_add(SignedDuration::try_from(add.duration)?).context("--duration is too long")?,
    };
    let author = add.author.or_else(|| std::env::var("USER").ok()).unwrap_or_default();
    let body = json!({
        "matchers": matchers, "startsAt": start.to_string(), "endsAt": end.to_string(), "createdBy": author,
        "comment": add.comment,
    });
    let request = status::request(url, ALL)?.posting(body.to_string().into_bytes());
    let answer = judge(url, &status::ask(url, &request).await?)?;
    let answer: Value = serde_json::from_slice(&answer).context("its answer is no JSON")?;
    answer.get("silenceID").and_then(Value::as_str).map(str::to_owned).context("its answer has no silenceID")
}

async fn list(url: &str, list: &List) -> anyhow::Result<Vec<Shown>> {
    let filters: Vec<String> =
        matchers(&list.matchers)?.iter().map(|matcher| format!("filter={}", encoded(&matcher.to_string()))).collect();
    let request = status::request(url, &format!("{ALL}?{}", filters.join("&")))?;
    let body = judge(url, &status::ask(url, &request).await?)?;
    let mut found: Vec<Shown> = serde_json::from_slice(&body).context("its answer is no list of silences")?;
    found.retain(|silence| (silence.status.state == SilenceState::Expired) == list.expired);
    Ok(found)
}

fn matchers(texts: &[String]) -> anyhow::Result<Vec<Matcher>> {
    let read = |(place, text): (usize, &String)| {
        let named = || (place == 0 && !text.contains(['=', '!'])).then(|| format!("alertname={text}"));
        parse(&named().unwrap_or_else(|| text.clone())).with_context(|| {
            format!("{text:?} is no matcher: it looks like job_name=\"synth\" or mountpoint=~\"/data.*\"")
        })
    };
    texts.iter().enumerate().map(read).collect()
}

/// The body of a good answer, or what the instance says against it.
fn judge(url: &str, answer: &Response) -> anyhow::Result<Vec<u8>> {
    if answer.status == 200 {
        return Ok(answer.body.clone());
    }
    let words = serde_json::from_slice::<String>(&answer.body);
    let is_ours = words.is_ok();
    let said = words.unwrap_or_else(|_| String::from_utf8_lossy(&answer.body).into_owned());
    match answer.status {
        404 if said.starts_with("nothing is here") => bail!("the longhaul at {url} is older and knows no silences"),
        404 if !is_ours => bail!("something else than longhaul answers at {url} (404)"),
        // A stranger may say anything, at any length.
        status => bail!("{url} says no ({status}): {}", status::cut(status::printable(&said).trim(), LONGEST_NO)),
    }
}

fn table(found: &[Shown]) -> String {
    let columns = ["ID", "MATCHERS", "STATE", "UNTIL", "BY", "COMMENT"].map(|title| (title, Column::Text));
    let mut table = Table::new(&columns);
    for silence in found {
        let matchers: Vec<String> = silence.matchers.iter().map(ToString::to_string).collect();
        let moment = |moment: &Moment| {
            #[allow(clippy::cast_precision_loss)] // A moment of this century.
            let unix = moment.0.as_second() as f64;
            text::utc(unix)
        };
        let state = match silence.status.state {
            SilenceState::Pending => format!("from {}", moment(&silence.starts_at)),
            state => state.as_str().to_owned(),
        };
        table.row([
            silence.id.clone(),
            matchers.join(" "),
            state,
            moment(&silence.ends_at),
            silence.created_by.clone(),
            silence.comment.clone(),
        ]);
    }
    let mut text = String::new();
    // Whole, since ids and matchers are copied from it.
    table.write(&mut text, usize::MAX);
    text
}

/// For a path or a query.
fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stranger_says_is_neither_shown_at_length_nor_obeyed() {
        let no = |status: u16, body: &str| {
            let answer = Response { status, content_type: None, body: body.as_bytes().to_vec() };
            judge("http://h", &answer).unwrap_err().to_string()
        };
        assert_eq!(no(404, "\"silence x not found\""), "http://h says no (404): silence x not found");
        assert_eq!(no(404, "nothing is here; there is:\n"), "the longhaul at http://h is older and knows no silences");
        assert_eq!(no(404, "<html>\n..."), "something else than longhaul answers at http://h (404)");
        assert_eq!(no(403, "start it with\n"), "http://h says no (403): start it with");
        assert_eq!(no(502, "\x1b[2Jbad\ngateway\n"), "http://h says no (502): \u{fffd}[2Jbad gateway");
        assert!(no(500, &"x".repeat(4096)).chars().count() < 1100);
    }
}
