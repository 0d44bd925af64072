//! Every stored input passes, and so does what lies near it.

use mrc_fuzz::TARGETS;
use mrc_fuzz::run::{corpora, corpus, mutate, try_input};

#[test]
fn every_stored_input_passes() {
    for target in TARGETS {
        let inputs = corpus(&corpora().join(target.name)).expect("each target has a corpus");
        assert!(!inputs.is_empty(), "the corpus of {} is empty", target.name);
        for input in inputs {
            if let Err(failure) = try_input(target, &input.data) {
                panic!("{} fails on {}: {failure}", target.name, input.path.display());
            }
        }
    }
}

#[test]
fn a_short_mutation_run_finds_nothing() {
    for target in TARGETS {
        let inputs = corpus(&corpora().join(target.name)).expect("each target has a corpus");
        let mut known: Vec<_> = inputs.into_iter().map(|input| input.data).collect();
        known.extend(target.seeds.map_or_else(Vec::new, |seeds| seeds()));
        if let Err(failure) = mutate(target, &known, 2000, 1) {
            panic!(
                "{} fails on {failure}; to keep the input: cargo run -p mrc-fuzz -- {} --iterations 2000 --seed 1",
                target.name, target.name
            );
        }
    }
}

#[test]
fn no_corpus_is_without_a_target() {
    for entry in std::fs::read_dir(corpora()).expect("the corpora are in the source tree") {
        let name = entry.expect("a directory entry").file_name();
        let known = TARGETS.iter().any(|target| name.to_str() == Some(target.name));
        assert!(known, "no target is called {name:?}");
    }
}
