//! The few questions that `init` asks on a terminal, for what no flag said.
//!
//! An empty answer takes the default; a wrong one is explained and asked again; the end of input takes all defaults
//! that are left.

use std::io::{self, BufRead, Write};
use std::path::Path;

use super::Args;
use crate::config::{quote, values};

/// Asks for what is missing.
pub fn ask_missing(args: &mut Args, folder: &Path, input: &mut dyn BufRead, output: &mut dyn Write) -> io::Result<()> {
    let mut console = Console { input, output, ended: false };
    let absolute = |text: &str| {
        let joined =
            if text.starts_with(['/', '~', '$']) { text.to_owned() } else { folder.join(text).display().to_string() };
        values::pattern(&joined)
    };
    let folder_path = |text: &str| {
        let joined =
            if text.starts_with(['/', '~', '$']) { text.to_owned() } else { folder.join(text).display().to_string() };
        values::path(&joined).map(|_| joined)
    };
    if args.job_name.is_none() {
        args.job_name = console.ask("Name of the job", Some("job"), &values::name)?;
    }
    if args.log.is_none() && args.jsonl.is_none() && args.json.is_none() {
        args.log = console.ask("A log with its progress (a file; empty for none)", None, &absolute)?;
        args.jsonl = console.ask("Output with one line an item (files; empty for none)", None, &absolute)?;
    }
    if args.engine.is_empty() {
        let url = |text: &str| if text == "-" { Ok("-".into()) } else { values::url(text).map(|url| url.text) };
        let answer = console.ask("vLLM's metrics (- for none)", Some("http://127.0.0.1:8000/metrics"), &url)?;
        args.engine.extend(answer.filter(|answer| answer != "-"));
    }
    if args.total.is_none() {
        let number = |text: &str| {
            values::number(text)
                .and_then(|number| if number > 0.0 { Ok(text.to_owned()) } else { Err("must be above 0".into()) })
        };
        args.total = console.ask("Items in all (empty: the log says it)", None, &number)?;
    }
    if args.output_dir.is_none() {
        args.output_dir = console.ask("Folder that it writes to (empty for none)", None, &folder_path)?;
    }
    if args.mail_to.is_empty() {
        args.mail_to.extend(console.ask("Mail alerts to (empty: to nobody)", None, &values::mailbox)?);
    }
    if !args.mail_to.is_empty() && args.smarthost.is_none() {
        let server = |text: &str| values::host_and_port(text).map(|_| text.to_owned());
        args.smarthost = console.ask("Mail server, host:port", Some("localhost:25"), &server)?;
        if args.tls.is_none() && args.smarthost.as_deref() == Some("localhost:25") {
            args.tls = Some("none".into());
        }
    }
    Ok(())
}

struct Console<'a> {
    input: &'a mut dyn BufRead,
    output: &'a mut dyn Write,
    ended: bool,
}

impl Console<'_> {
    fn ask(
        &mut self,
        question: &str,
        default: Option<&str>,
        check: &dyn Fn(&str) -> Result<String, String>,
    ) -> io::Result<Option<String>> {
        let default_shown = default.map(|default| format!(" [{default}]")).unwrap_or_default();
        while !self.ended {
            write!(self.output, "{question}{default_shown}: ")?;
            self.output.flush()?;
            let mut answer = String::new();
            self.ended = self.input.read_line(&mut answer)? == 0;
            let answer = answer.trim();
            if answer.is_empty() {
                break;
            }
            match check(answer) {
                Ok(checked) => return Ok(Some(checked)),
                Err(reason) => writeln!(self.output, "  {}: {reason}", quote(answer))?,
            }
        }
        Ok(default.map(str::to_owned))
    }
}
