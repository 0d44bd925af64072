//! One page for people, with everything in it.

use std::fmt::Write as _;

use super::{curves, draw, figure};
use crate::run::Record;
use crate::verdict::{Finding, Verdict};

const STYLE: &str = "
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 990px; margin: 2rem auto; padding: 0 1rem; background: #fff; }
h1 { font-size: 1.6rem; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .4rem; border-bottom: 1px solid #ddd; }
.sub { color: #555; margin: 0 0 1rem; }
.badge { display: inline-block; padding: .1rem .6rem; border-radius: 4px; color: #fff; font-weight: 600; font-size: 1rem; vertical-align: middle; }
.passed { background: #1d7a3a; } .failed { background: #b01e1e; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; } th, td { text-align: left; padding: .25rem .5rem; border-bottom: 1px solid #e4e4e4; vertical-align: top; }
td.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; } td.w { white-space: nowrap; font-weight: 600; }
.ok { color: #1d7a3a; } .bad { color: #b01e1e; }
figure { margin: .6rem 0 1.4rem; break-inside: avoid; } figcaption { color: #444; font-size: .88rem; }
svg { max-width: 100%; height: auto; } pre { background: #f6f6f6; padding: .7rem; overflow-x: auto; font-size: .82rem; line-height: 1.35; }
.doubt { border-left: 4px solid #b01e1e; background: #fbefef; padding: .4rem .8rem; }
@media print { html, body { font-size: 11px; } body { max-width: none; margin: 0; padding: 0; } h2 { break-after: avoid; } pre { white-space: pre-wrap; background: none; border: 1px solid #ccc; }
  .badge { color: #000; background: none; border: 1px solid #000; } details::details-content { content-visibility: visible; } @page { margin: 15mm; } }
";

/// The page.
pub(super) fn html(record: &Record, verdict: &Verdict) -> String {
    let scenario = &record.scenario;
    let (class, word) = if verdict.passed {
        ("passed", "passed")
    } else {
        ("failed", "FAILED")
    };
    let paper = scenario
        .paper
        .as_ref()
        .map_or_else(String::new, |paper| format!(", {} of the paper", escape(paper)));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{name}: {title}</title><style>{STYLE}</style></head><body>\n\
         <h1>{title} <span class=\"badge {class}\">{word}</span></h1>\n<p class=\"sub\">Scenario {name}{paper}; {seconds:.1} s</p>\n",
        name = escape(&record.name),
        title = escape(&scenario.title),
        seconds = record.seconds,
    );
    for paragraph in scenario
        .about
        .split("\n\n")
        .filter(|paragraph| !paragraph.trim().is_empty())
    {
        let _ = writeln!(page, "<p>{}</p>", escape(paragraph.trim()));
    }
    for doubt in &verdict.doubts {
        let _ = writeln!(
            page,
            "<p class=\"doubt\">The figures cannot be trusted: {}</p>",
            escape(doubt)
        );
    }
    page += &criteria(&verdict.findings);
    let _ = write!(
        page,
        "<h2>What was built</h2>\n<figure>{}<figcaption>{}</figcaption></figure>\n",
        draw::svg(&record.shape),
        escape(&built(record))
    );
    page += &happened(record);
    for figure in curves::figures(record) {
        let _ = write!(
            page,
            "<h2>{}</h2>\n<figure>{}<figcaption>{}</figcaption></figure>\n",
            figure.title,
            figure.svg,
            escape(&figure.caption)
        );
    }
    page += &workloads(record);
    page += &machine(record);
    page + "</body></html>\n"
}

fn criteria(findings: &[Finding]) -> String {
    let mut text = "<h2>Criteria</h2>\n<table><tr><th></th><th>what must hold</th><th>found and demanded</th><th>where</th></tr>\n".to_owned();
    for finding in findings {
        let (class, word) = if finding.holds {
            ("ok", "holds")
        } else {
            ("bad", "FAILED")
        };
        let _ = writeln!(
            text,
            "<tr><td class=\"w {class}\">{word}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&finding.name),
            escape(&figure(finding)),
            escape(&finding.detail)
        );
    }
    text + "</table>\n"
}

fn built(record: &Record) -> String {
    let mut text = format!("{} hosts, {} planes", record.hosts, record.planes);
    if let Some(bps) = record.scenario.topology.host_link_bps() {
        let _ = write!(text, ", {} Mbit/s a host link", super::number(bps as f64 / 1e6));
    }
    text += &record.scenario.topology.describe();
    if !record.shape.broken_nodes.is_empty() || record.shape.links.iter().any(|link| link.broke) {
        text += ". Dashed and crossed: what the timeline breaks";
    }
    text + "."
}

fn happened(record: &Record) -> String {
    let mut rows: Vec<(f64, String)> = record.happened.iter().map(|one| (one.at, one.what.clone())).collect();
    for (place, workload) in record.scenario.workload.iter().enumerate() {
        let ran = &record.workloads[place];
        let label = workload.transport.label();
        rows.push((
            ran.start,
            format!("{} begins ({}, {label})", workload.name, workload.kind.name()),
        ));
        rows.push((ran.end, format!("{} has ended", workload.name)));
    }
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut text = "<h2>What happened</h2>\n<table><tr><th>seconds</th><th></th></tr>\n".to_owned();
    for (at, what) in rows {
        let _ = writeln!(
            text,
            "<tr><td class=\"n\" style=\"width:5rem\">{at:.2}</td><td>{}</td></tr>",
            escape(&what)
        );
    }
    text + "</table>\n"
}

fn workloads(record: &Record) -> String {
    let mut text = "<h2>Figures</h2>\n<table><tr><th>workload</th><th>over</th><th>size</th><th>messages</th><th>mean, ms</th><th>p50</th><th>p99</th><th>max</th><th>Mbit/s</th></tr>\n".to_owned();
    for (place, workload) in record.scenario.workload.iter().enumerate() {
        for row in super::results::rows(record, place) {
            let ms = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), super::number);
            let _ = writeln!(
                text,
                "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
                escape(&workload.name),
                workload.transport.label(),
                row.size,
                row.count,
                ms(row.mean_ms),
                ms(row.p50_ms),
                ms(row.p99_ms),
                ms(row.max_ms),
                super::number(row.mbps),
            );
        }
    }
    text + "</table>\n"
}

fn machine(record: &Record) -> String {
    let machine = &record.machine;
    let scenario = toml::to_string_pretty(&record.scenario).unwrap_or_default();
    format!(
        "<h2>How to repeat it</h2>\n<p>{cores} cores of {processor}, {memory} MiB, Linux {kernel}, {build} build. Seed {seed}: \
         <code>netns-lab run {name} --seed {seed}</code></p>\n<details><summary>The scenario as it was run</summary><pre>{text}</pre></details>\n",
        cores = machine.cores,
        processor = escape(&machine.processor),
        memory = machine.memory_mib,
        kernel = escape(&machine.kernel),
        build = machine.build,
        seed = record.scenario.seed,
        name = escape(&record.name),
        text = escape(&scenario),
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn what_a_file_says_cannot_change_the_page() {
        assert_eq!(escape("<b>\"a\" & b</b>"), "&lt;b&gt;&quot;a&quot; &amp; b&lt;/b&gt;");
    }
}
