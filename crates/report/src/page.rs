//! The shell of every page: one file that opens without a network, in the reader's light or dark.

use std::fmt::Write;

use crate::chart;
use crate::html::escape;
use crate::provenance::Provenance;

/// Colours beside those of charts, on a light page and on a dark one.
const LIGHT: &str = "--page: #ffffff; --ink: #1b1f24; --muted: #5b6570; --line: #d9dee4; --soft: #f4f6f8; --grid: #e9edf1; \
                     --guide: #8a949e; --warn: #8a4b00; --warn-soft: #fff4e3; --good: #1a6b3c; --bad: #a3182b;";
/// See [`LIGHT`].
const DARK: &str = "--page: #14171b; --ink: #e7eaee; --muted: #9aa5b1; --line: #2e353d; --soft: #1c2127; --grid: #252b32; \
                    --guide: #75808c; --warn: #f2b766; --warn-soft: #2c2318; --good: #6fcf97; --bad: #ff8f8f;";

/// A page in the making. What is added stands in the order in which it was added.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    subtitle: String,
    beside_title: String,
    style: String,
    body: String,
    scripts: String,
    provenance: String,
}

impl Page {
    /// An empty one. Both are text; the subtitle is a sentence on what it is about.
    pub fn new(title: &str, subtitle: &str) -> Page {
        Page {
            title: escape(title),
            subtitle: escape(subtitle),
            beside_title: String::new(),
            style: String::new(),
            body: String::new(),
            scripts: String::new(),
            provenance: String::new(),
        }
    }

    /// Rules for what only this page has. They may use the custom properties: `--ink`, `--muted`, `--good` and their like.
    pub fn style(&mut self, css: &str) {
        self.style += css;
    }

    /// A piece of HTML at the right of the title.
    pub fn beside_title(&mut self, html: &str) {
        self.beside_title += html;
    }

    /// A piece of HTML.
    pub fn add(&mut self, html: &str) {
        self.body += html;
        self.body.push('\n');
    }

    /// A piece of HTML under a heading.
    pub fn section(&mut self, heading: &str, html: &str) {
        self.add(&format!("<section><h2>{}</h2>{html}</section>", escape(heading)));
    }

    /// How to make the page again: the command, and a piece of HTML on what comes of it.
    pub fn again(&mut self, command: &str, note: &str) {
        let command = escape(command);
        self.section(
            "How to see it again",
            &format!("<pre>{command}</pre><p class=\"note\">{note}</p>"),
        );
    }

    /// Where its figures come from, for the foot of the page.
    pub fn provenance(&mut self, provenance: &Provenance) {
        self.provenance = format!(" Where the figures come from: {}.", escape(&provenance.line()));
    }

    /// A JSON object for scripts, as the text of the element `id`.
    pub fn data(&mut self, id: &str, data: &serde_json::Value) {
        // Inside a script element only this could end it early.
        let data = data.to_string().replace('<', "\\u003c");
        let _ = writeln!(
            self.scripts,
            "<script id=\"{id}\" type=\"application/json\">{data}</script>"
        );
    }

    /// A script that runs when all of the page is there. It is the page's own: never text from outside.
    pub fn script(&mut self, script: &str) {
        let _ = writeln!(self.scripts, "<script>{script}</script>");
    }

    /// The page. `footer` is a piece of HTML that says what else there is.
    pub fn finish(self, footer: &str) -> String {
        let Page {
            title,
            subtitle,
            beside_title,
            style,
            body,
            scripts,
            provenance,
        } = self;
        let css = css();
        let version = env!("CARGO_PKG_VERSION");
        let footer = if footer.is_empty() {
            String::new()
        } else {
            format!(" {footer}")
        };
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
             content=\"width=device-width, initial-scale=1\">\n<title>{title} · ccplane</title>\n<style>\n{css}{style}</style>\n</head>\n\
             <body>\n<main>\n<header>\n<div>\n<h1>{title}</h1>\n<p class=\"muted\">{subtitle}</p>\n</div>\n{beside_title}</header>\n{body}\
             <footer>Made by ccplane {version}.{provenance}{footer}</footer>\n</main>\n{scripts}</body>\n</html>\n"
        )
    }
}

/// The rules of every page. A script may set `data-theme` on the root; else the reader's preference holds, and paper is light.
fn css() -> String {
    format!(
        ":root {{ {LIGHT} {} }}\n@media screen and (prefers-color-scheme: dark) {{ :root:not([data-theme=\"light\"]) {{ {DARK} {} }} }}\n\
         :root[data-theme=\"dark\"] {{ {DARK} {} }}\n{}{}",
        chart::LIGHT,
        chart::DARK,
        chart::DARK,
        include_str!("../assets/page.css"),
        chart::STYLE
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provenance::Build;

    #[test]
    fn a_page_is_whole_and_needs_nothing_from_outside() {
        let mut page = Page::new("a <b>", "of & about");
        page.section("One <", "<p>inside</p>");
        page.again("ccplane run --alg <x>", "the same <em>again</em>");
        page.provenance(&Provenance::now(Build::default(), String::new(), true));
        let html = page.finish("More in <code>x.json</code>.");
        for part in [
            "<!doctype html>",
            "<title>a &lt;b&gt; · ccplane</title>",
            "<h1>a &lt;b&gt;</h1>",
            "of &amp; about",
            "<h2>One &lt;</h2><p>inside</p>",
            "<pre>ccplane run --alg &lt;x&gt;</pre>",
            "the same <em>again</em>",
            "commit unknown",
            "More in <code>x.json</code>.</footer>",
        ] {
            assert!(html.contains(part), "no {part:?} in {html}");
        }
        for outside in ["<script", "src=", "href=", "@import", "url("] {
            assert!(!html.contains(outside), "{outside}");
        }
    }

    #[test]
    fn data_cannot_end_its_element() {
        let mut page = Page::new("", "");
        page.data(
            "data",
            &serde_json::json!({ "label": "</script><script>alert(1)</script>" }),
        );
        page.script("run();");
        let html = page.finish("");
        assert_eq!(html.matches("</script>").count(), 2);
        assert!(!html.contains("<script>alert"));
    }
}
