//! The comparison is of the same conditions, and says what it may say.

use mrc_sim::baseline::Kind;
use mrc_sim::compare::{CompareError, Comparison, compare};
use mrc_sim::run::Options;

fn options(set: &[(&str, &str)]) -> Options {
    let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    Options {
        set: set.iter().map(pair).collect(),
        ..Options::default()
    }
}

fn small() -> Comparison {
    compare(&options(&[("workload.bytes", "4_194_304")])).expect("a comparison")
}

#[test]
fn all_are_alike_without_faults_and_only_mrc_survives_dead_paths() {
    let comparison = small();
    let names: Vec<&str> = comparison.rows.iter().map(|row| row.condition.as_str()).collect();
    let expected = [
        "no loss",
        "0.01 % loss",
        "0.1 % loss",
        "1 % loss",
        "one path dies",
        "one plane dies",
        "incast",
    ];
    assert_eq!(names, expected);
    for row in &comparison.rows {
        let kinds: Vec<Kind> = row.baselines.iter().map(|(kind, _, _)| *kind).collect();
        assert_eq!(kinds, Kind::ALL);
        let mrc_us = row.mrc.completion_us.expect("MRC ends");
        let dies = row.condition.ends_with("dies");
        for (kind, measured, factor) in &row.baselines {
            assert_eq!(measured.completion_us.is_none(), dies, "{kind}, {}", row.condition);
            let expected = measured.completion_us.map_or(20.0, |us| us / mrc_us);
            assert!((factor - expected).abs() < 1e-9, "{kind}, {}", row.condition);
        }
    }
    for (kind, _, factor) in &comparison.rows[0].baselines {
        assert!((0.8..1.1).contains(factor), "{kind}: {factor}");
    }
    let repeated = |row: usize| comparison.rows[row].baselines[0].1.repeated_share;
    assert!(
        repeated(0) < 1e-9 && repeated(3) > 0.02,
        "{} {}",
        repeated(0),
        repeated(3)
    );
}

#[test]
fn the_same_seed_compares_the_same_and_the_table_marks_the_models() {
    let (one, two) = (small(), small());
    assert_eq!(one.json(), two.json());
    let table = one.table();
    assert!(
        table.contains("go-back-N (model)") && table.contains("never") && table.contains(">20.00"),
        "{table}"
    );
    let lines: Vec<&str> = table.lines().skip(1).take(8).collect();
    assert!(
        lines.iter().all(|line| line.len() == lines[0].len()),
        "not aligned:\n{table}"
    );
}

#[test]
fn a_key_that_no_scenario_has_is_refused() {
    let refused = compare(&options(&[("fabric.plane", "2")]));
    assert!(matches!(refused, Err(CompareError::File(_))), "{refused:?}");
}

#[test]
fn a_fabric_that_makes_another_condition_of_one_is_told() {
    let small = ("workload.bytes", "1_048_576");
    let plain = compare(&options(&[small])).expect("a comparison");
    assert!(plain.notes.is_empty(), "{:?}", plain.notes);
    let one_spine = compare(&options(&[small, ("fabric.spines", "1")])).expect("a comparison");
    assert_eq!(
        one_spine.notes,
        ["\"one path dies\": with fabric.spines = 1, that path is all of its plane."]
    );
    assert!(one_spine.table().contains(&one_spine.notes[0]));
}
