//! `evaluate` compared with the literature on known algorithms. Its results are the same on any
//! number of threads and after an interruption.

use std::sync::atomic::{AtomicUsize, Ordering};

use ccplane_algorithms::Registry;
use ccplane_lab::evaluate::{self, Evaluation, Options, Verdict};
use ccplane_lab::{Error, NoProgress, Progress, Sim};
use ccplane_report::Provenance;

fn options(algorithm: &str, only: &[&str]) -> Options {
    Options {
        algorithms: vec![algorithm.parse().unwrap()],
        only: only.iter().map(|name| (*name).to_owned()).collect(),
        quick: true,
        threads: 2,
        parts: None,
        command: format!("ccplane evaluate --alg {algorithm} --quick"),
    }
}

fn run(
    options: &Options,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<Evaluation, Error> {
    evaluate::run(options, &Sim::default(), registry, progress).map(|mut all| all.each.remove(0))
}

fn ask(algorithm: &str, only: &[&str]) -> Evaluation {
    run(&options(algorithm, only), &Registry::builtin(), &NoProgress)
        .unwrap_or_else(|why| panic!("{why}"))
}

fn verdict(evaluation: &Evaluation, question: &str) -> Verdict {
    let answer = evaluation
        .answers
        .iter()
        .find(|(asked, _)| asked.name == question);
    let (_, answer) = answer.unwrap_or_else(|| panic!("{question} was not asked"));
    println!("{question}: {:?}, {}", answer.verdict, answer.finding);
    answer.verdict
}

/// Returns a value of a place, or of the whole question if the place is "".
fn figure(evaluation: &Evaluation, question: &str, place: &str, name: &str) -> f64 {
    let mut answers = evaluation
        .answers
        .iter()
        .filter(|(asked, _)| asked.name == question);
    let (_, answer) = answers.next().unwrap();
    let numbers = match place {
        "" => Some(&answer.figures),
        place => answer
            .places
            .iter()
            .find(|p| p.place == place)
            .map(|p| &p.figures),
    };
    let found = numbers.and_then(|numbers| numbers.iter().find(|(known, _)| *known == name));
    found
        .unwrap_or_else(|| panic!("{question} has no {name} at `{place}`: {:?}", answer.places))
        .1
}

#[test]
fn cubic_shares_with_reno_and_with_itself() {
    // RFC 9438, 4.3: where Reno performs well, as at 20 ms, Cubic has Reno's mean window.
    let cubic = ask("cubic", &["reno", "cubic", "loss"]);
    assert_eq!(verdict(&cubic, "reno"), Verdict::Pass);
    assert_eq!(verdict(&cubic, "cubic"), Verdict::Pass);
    // RFC 9438, 5.2: Cubic's response function is never below Reno's. In Linux it is below for
    // windows of a few segments: growth is only 0.53 segments per RTT, and the minimum window of
    // two removes the advantage of the decrease by 0.7.
    assert_eq!(verdict(&cubic, "loss"), Verdict::Caution);
    let standard = ask("cubic:friendly=rfc9438", &["loss"]);
    assert_eq!(verdict(&standard, "loss"), Verdict::Pass);
}

#[test]
fn cubic_fills_any_buffer() {
    // RFC 9743, 5.1.2, states this of Reno and Cubic.
    let cubic = ask("cubic", &["bufferbloat"]);
    assert_eq!(verdict(&cubic, "bufferbloat"), Verdict::Caution);
    assert!(figure(&cubic, "bufferbloat", "10bdp", "delay_mean_ms") > 60.0);
}

#[test]
fn bbr_takes_more_than_its_share_from_cubic_in_a_shallow_buffer() {
    // Hock, Bless, Zitterbart: Experimental Evaluation of BBR Congestion Control, ICNP 2017; Ware
    // et al.: Modeling BBR's Interactions with Loss-Based Congestion Control, IMC 2019.
    let bbr = ask("bbr", &["cubic", "shallow-buffer"]);
    assert_eq!(verdict(&bbr, "cubic"), Verdict::Fail);
    assert!(figure(&bbr, "cubic", "0.5bdp", "share") > 0.7);
    // RFC 9743, 5.1.3: BBR "failed this requirement" because of persistent loss with several flows
    // in less than 1.5 BDP.
    assert_eq!(verdict(&bbr, "shallow-buffer"), Verdict::Fail);
}

#[test]
fn vegas_starves_beside_cubic_and_keeps_no_queue_alone() {
    // Mo, La, Anantharam, Walrand: Analysis and Comparison of TCP Reno and Vegas, INFOCOM 1999:
    // Vegas yields to buffer-filling flows and does not harm them.
    let vegas = ask("vegas", &["cubic"]);
    assert_eq!(verdict(&vegas, "cubic"), Verdict::Caution);
    assert!(
        figure(&vegas, "cubic", "", "least_share") < 0.1
            && figure(&vegas, "cubic", "", "least_kept_share") > 1.0
    );
    // Brakmo, O'Malley, Peterson, SIGCOMM 1994: between alpha and beta packets in the queue, 2 to
    // 4. This needs the full length, since the queue that slow start leaves in ten BDP drains at
    // one packet per RTT.
    let thorough = Options {
        quick: false,
        ..options("vegas", &["bufferbloat"])
    };
    let vegas = run(&thorough, &Registry::builtin(), &NoProgress).unwrap();
    assert_eq!(verdict(&vegas, "bufferbloat"), Verdict::Pass);
    assert!(figure(&vegas, "bufferbloat", "10bdp", "delay_mean_ms") < 1.0);
}

#[test]
fn copa_keeps_the_queue_small_alone() {
    // Arun, Balakrishnan: Copa, NSDI 2018, sections 2 and 5: the default mode's queue is a few
    // packets (2.5/delta).
    let copa = ask("copa", &["bufferbloat"]);
    assert_eq!(verdict(&copa, "bufferbloat"), Verdict::Pass);
    assert!(figure(&copa, "bufferbloat", "10bdp", "delay_mean_ms") < 10.0);
}

#[test]
fn dctcp_keeps_the_link_full_and_the_queue_at_the_threshold() {
    // Alizadeh et al.: DCTCP, SIGCOMM 2010, section 4.1: full throughput with a queue near K, here
    // 27 packets or 3.4 ms.
    let dctcp = ask("dctcp", &["aqm"]);
    verdict(&dctcp, "aqm");
    assert!(figure(&dctcp, "aqm", "threshold", "goodput_mbit") > 85.0);
    assert!(figure(&dctcp, "aqm", "threshold", "delay_mean_ms") < 4.0);
}

#[test]
fn without_bbr_the_question_says_so_and_with_it_it_is_asked() {
    let evaluation = run(
        &options("native:cubic", &["bbr"]),
        &Registry::empty(),
        &NoProgress,
    );
    let evaluation = evaluation.unwrap();
    assert_eq!(verdict(&evaluation, "bbr"), Verdict::Unanswered);
    assert!(evaluation.answers[0].1.finding.contains("BBR"));
    if Registry::builtin().names().any(|name| name == "bbr") {
        assert_ne!(
            verdict(&ask("native:cubic", &["bbr"]), "bbr"),
            Verdict::Unanswered
        );
    }
}

#[test]
fn threads_and_interruptions_change_nothing() {
    let only = ["start-up", "loss", "reno"];
    let parts = std::env::temp_dir().join(format!("ccplane-evaluate-{}", std::process::id()));
    let both = |evaluation: &Evaluation| {
        (
            evaluation.json().to_string(),
            evaluate::page(evaluation, &Provenance::default()),
        )
    };
    let with = |threads, parts: Option<&std::path::Path>, watch: &dyn Progress| {
        let options = Options {
            threads,
            parts: parts.map(Into::into),
            ..options("reno", &only)
        };
        run(&options, &Registry::builtin(), watch)
    };
    let one = both(&with(1, None, &NoProgress).unwrap());
    assert_eq!(one, both(&with(3, None, &NoProgress).unwrap()));

    /// Cancels the work after 4,000 checks.
    struct Stopping(AtomicUsize);
    impl Progress for Stopping {
        fn is_cancelled(&self) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed) > 4_000
        }
    }
    let interrupted = with(2, Some(&parts), &Stopping(AtomicUsize::new(0)));
    assert!(
        matches!(interrupted, Err(Error::Interrupted)),
        "it was stopped"
    );
    let kept = std::fs::read_dir(&parts).unwrap().count();
    assert!(kept > 0, "finished runs are kept");
    // Cached runs are used again; a wrong result in the cache would show here.
    assert_eq!(one, both(&with(2, Some(&parts), &NoProgress).unwrap()));
    assert!(std::fs::read_dir(&parts).unwrap().count() > kept);
    std::fs::remove_dir_all(&parts).unwrap();
}

#[test]
fn the_page_needs_nothing_from_outside() {
    let page = evaluate::page(&ask("reno", &["start-up"]), &Provenance::default());
    assert!(page.starts_with("<!doctype html>") && page.contains("<svg"));
    // The script that saves charts is part of the page.
    assert_eq!(page.matches("<script").count(), 1);
    for outside in ["src=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn a_question_that_is_not_there_is_told_with_those_that_are() {
    let error = run(
        &options("reno", &["cubik"]),
        &Registry::builtin(),
        &NoProgress,
    );
    let error = error.map(|_| ()).unwrap_err().to_string();
    assert!(
        error.contains("there is no question `cubik`") && error.contains("did you mean `cubic`?"),
        "{error}"
    );
    assert!(run(&options("nobody", &[]), &Registry::builtin(), &NoProgress).is_err());
    assert!(
        run(
            &options("native:nobody", &[]),
            &Registry::builtin(),
            &NoProgress
        )
        .is_err()
    );
}
