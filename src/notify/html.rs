//! The HTML alternative of a mail: the same words as the text, escaped by the template. No images, links or styles that
//! load anything: mail programs block them, and a mail about a sick machine has to be readable without it.

use askama::Template;

use super::compose::{Body, Section};

#[derive(Template)]
#[template(
    ext = "html",
    source = r#"<!DOCTYPE html>
<html lang="en"><body style="font-family: sans-serif; font-size: 14px; line-height: 1.4; overflow-wrap: anywhere">
<p style="font-size: 17px"><strong>{{ headline }}</strong></p>
{% for section in sections %}
{%- if let Some(title) = section.title %}<h3>{{ title }}</h3>
{% endif %}
{%- for entry in section.entries %}<p><strong>{{ entry.title }}</strong><br>{{ entry.when }}
{%- for line in entry.description.lines() %}<br>{{ line }}{% endfor %}
{%- if !entry.labels.is_empty() %}<br><small>{{ entry.labels }}</small>{% endif %}
{%- if let Some(url) = entry.runbook %}<br>What to do: {% if self.is_link(url) %}<a href="{{ url }}">{{ url }}</a>{% else %}{{ url }}{% endif %}{% endif %}</p>
{% endfor %}
{%- if section.more > 0 %}<p>… and {{ section.more }} more</p>
{% endif %}
{%- endfor %}
{%- for (name, message) in jobs %}<h3>Status of {{ name }}</h3>
<pre style="font-size: 13px; white-space: pre-wrap">{{ message }}</pre>
{% endfor %}<p><small>{{ footer }}</small></p>
</body></html>
"#
)]
struct Page<'a> {
    headline: &'a str,
    sections: &'a [Section],
    jobs: &'a [(String, String)],
    footer: &'a str,
}

/// The body as HTML; `None` would leave the mail with its text, which says the same.
pub(super) fn render(body: &Body) -> Option<String> {
    Page { headline: &body.headline, sections: &body.sections, jobs: &body.jobs, footer: &body.footer }.render().ok()
}

impl Page<'_> {
    /// Only these become links: a `javascript:` one from a rule file does not.
    #[allow(clippy::unused_self)]
    fn is_link(&self, url: &str) -> bool {
        url.starts_with("https://") || url.starts_with("http://")
    }
}
