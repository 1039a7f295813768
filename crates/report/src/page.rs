//! Shell of every page: a single self-contained file in the reader's light or dark theme.

use crate::chart;
use crate::html::escape;

/// Page colours besides those of charts, light theme.
const LIGHT_COLOURS: &str = "--line: #d9dee4; --soft: #f4f6f8; --warn: #8a4b00; \
                             --warn-soft: #fff4e3; --good: #1a6b3c; --bad: #a3182b;";
/// Dark counterpart of [`LIGHT_COLOURS`].
const DARK_COLOURS: &str = "--line: #2e353d; --soft: #1c2127; --warn: #f2b766; \
                            --warn-soft: #2c2318; --good: #6fcf97; --bad: #ff8f8f;";

/// Page under construction. Fragments appear in the order in which they were added.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    subtitle: String,
    body: String,
    live: bool,
    provenance: String,
}

impl Page {
    /// Starts an empty page. Both arguments are plain text; the subtitle is one sentence on the
    /// subject.
    pub fn new(title: &str, subtitle: &str) -> Page {
        Page {
            title: escape(title),
            subtitle: escape(subtitle),
            body: String::new(),
            live: false,
            provenance: String::new(),
        }
    }

    /// Appends an HTML fragment.
    pub fn add(&mut self, html: &str) {
        self.body += html;
        self.body.push('\n');
    }

    /// Appends an HTML fragment under a heading; the heading is plain text.
    pub fn add_section(&mut self, heading: &str, html: &str) {
        self.add(&format!(
            "<section><h2>{}</h2>{html}</section>",
            escape(heading)
        ));
    }

    /// Appends the section on reproducing the page: the command, and an HTML note on its result.
    pub fn add_reproduce_section(&mut self, command: &str, note: &str) {
        let command = escape(command);
        self.add_section(
            "Reproduce",
            &format!("<pre>{command}</pre><p class=\"note\">{note}</p>"),
        );
    }

    /// Sets the provenance in the footer: the fields of [`Provenance`](crate::Provenance) that
    /// apply.
    pub fn set_provenance(&mut self, provenance: &str) {
        self.provenance = format!(": {}", escape(provenance));
    }

    /// Adds the script for zooming and reading [live](chart::live) charts, saving charts, hiding
    /// lines by their keys and choosing the theme. Other pages contain no script.
    pub fn enable_live(&mut self) {
        self.live = true;
    }

    /// Renders the page. `footer` is an HTML fragment that points to further material.
    pub fn finish(self, footer: &str) -> String {
        let Page {
            title,
            subtitle,
            body,
            live,
            provenance,
        } = self;
        let css = css();
        let body = chart::distinct_names(&body);
        let (button, script) = match live {
            // Has no effect without the script, which unhides it.
            true => (
                "<button class=\"theme\" type=\"button\" hidden>Dark</button>\n",
                format!("<script>\n{}</script>\n", chart::CHART_SCRIPT),
            ),
            false => ("", String::new()),
        };
        let version = env!("CARGO_PKG_VERSION");
        let footer = if footer.is_empty() {
            String::new()
        } else {
            format!(" {footer}")
        };
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title} · ccplane</title>\n<style>\n{css}</style>\n</head>\n\
             <body>\n<main>\n<header>\n<div>\n<h1>{title}</h1>\n\
             <p class=\"muted\">{subtitle}</p>\n</div>\n{button}</header>\n{body}\
             <footer>Made by ccplane {version}{provenance}.{footer}</footer>\n</main>\n\
             {script}</body>\n</html>\n"
        )
    }
}

/// Style sheet of every page. A `data-theme` attribute on the root, set by the script, overrides
/// the reader's colour-scheme preference; print is always light.
fn css() -> String {
    let dark = format!("{DARK_COLOURS} {}", chart::dark_properties());
    format!(
        ":root {{ {LIGHT_COLOURS} {} }}\n\
         @media screen {{ :root[data-theme=\"dark\"] {{ {dark} }} }}\n\
         @media screen and (prefers-color-scheme: dark) {{ :root:not([data-theme=\"light\"]) \
         {{ {dark} }} }}\n{}{}",
        chart::light_properties(),
        include_str!("../assets/page.css"),
        chart::chart_style()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provenance::Build;

    #[test]
    fn pages_are_self_contained() {
        let mut page = Page::new("a <b>", "of & about");
        page.add_section("One <", "<p>inside</p>");
        page.add_reproduce_section("ccplane run --alg <x>", "the same <em>again</em>");
        page.set_provenance(&Build::default().to_string());
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
    fn only_a_live_page_has_a_script() {
        let mut page = Page::new("", "");
        page.add("<p>text</p>");
        assert!(!page.clone().finish("").contains("<button"));
        page.enable_live();
        let html = page.finish("");
        assert_eq!(html.matches("</script>").count(), 1);
        assert!(html.contains("class=\"theme\" type=\"button\" hidden"));
    }
}
