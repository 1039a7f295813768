//! Reports as structs.

use crate::support::{DATAPATH, START_TIME, datapath, info};
use ccplane_agent::{
    AddError, Agent, AgentOptions, Algorithm, Control, Fields, FlowInfo, FlowStats, Programs,
    Report,
};
use ccplane_datapath::Capabilities;
use ccplane_wire::WireEvent;

#[derive(Debug, PartialEq, Fields)]
struct Round {
    acked: u64,
    lost: bool,
}

#[derive(Fields)]
#[expect(dead_code, reason = "it has no fields")]
struct OtherReport {
    lost: bool,
    acked: u64,
}

const FOLD_PROGRAM: &str =
    "(def (Report (volatile acked 0) (volatile lost false))) (when true (report))";

/// Algorithm whose program reports `Round`, or the given programs.
struct Reads<F: Fn(Programs) -> Programs>(F, std::sync::mpsc::Sender<Option<Round>>);

impl<F: Fn(Programs) -> Programs + Send> Algorithm for Reads<F> {
    type Flow = ();
    fn name(&self) -> &str {
        "reads"
    }
    fn required_capabilities(&self) -> Capabilities {
        Capabilities::CWND
    }
    fn programs(&self) -> Programs {
        self.0(Programs::new())
    }
    fn open(&mut self, _: &FlowInfo, control: &mut Control<'_>) {
        control.set_program("fold", &[]);
    }
    fn on_report(&mut self, (): &mut (), report: &Report<'_>, _: &mut Control<'_>) {
        assert!(
            report.read::<OtherReport>().is_none(),
            "the fields differ from the declaration"
        );
        self.1
            .send(report.read())
            .expect("the test holds the receiver");
    }
}

/// Returns the struct read from a report with these values.
fn read(
    programs: impl Fn(Programs) -> Programs + Send + 'static,
    fields: &[u64],
) -> Result<Option<Round>, AddError> {
    let (sender, seen) = std::sync::mpsc::channel();
    let mut agent = Agent::new(AgentOptions::default());
    agent.add(Reads(programs, sender))?;
    let uid = agent
        .hosted_algorithms()
        .flat_map(|hosted| &hosted.programs)
        .map(|program| program.uid)
        .next();
    let events = [
        WireEvent::Ready {
            datapath: datapath(None),
        },
        WireEvent::FlowOpened {
            flow: 1,
            info: info("reads"),
        },
        WireEvent::Report {
            flow: 1,
            program: uid.expect("a program"),
            urgent: false,
            fields,
        },
    ];
    for event in events {
        agent.handle(START_TIME, DATAPATH, event);
    }
    agent.handle(
        START_TIME,
        DATAPATH,
        WireEvent::FlowClosed {
            flow: 1,
            stats: FlowStats::default(),
        },
    );
    Ok(seen.try_recv().expect("a report came"))
}

#[test]
fn a_report_is_read_into_its_struct() {
    let typed = |programs: Programs| programs.with_report::<Round>("fold", FOLD_PROGRAM);
    assert_eq!(
        read(typed, &[7, 1]).expect("it fits"),
        Some(Round {
            acked: 7,
            lost: true
        })
    );
    let untyped = |programs: Programs| programs.with("fold", FOLD_PROGRAM);
    assert_eq!(read(untyped, &[7, 1]).expect("it compiles"), None);
}

#[test]
fn a_struct_with_other_fields_is_refused_when_the_algorithm_is_added() {
    let renamed = FOLD_PROGRAM.replace("acked", "akced");
    let longer = FOLD_PROGRAM.replace("(volatile lost false)", "(volatile lost false) (rtt 0)");
    for source in [renamed, longer] {
        let text = source.clone();
        let why = read(
            move |programs| programs.with_report::<Round>("fold", text.clone()),
            &[],
        )
        .expect_err(&source);
        let AddError::Fields {
            program, fields, ..
        } = &why
        else {
            panic!("{why}")
        };
        assert_eq!((program.as_str(), *fields), ("fold", Round::NAMES));
        assert!(why.to_string().contains("(acked, lost)"), "{why}");
    }
    let swapped = read(
        |programs| programs.with_report::<OtherReport>("fold", FOLD_PROGRAM),
        &[],
    );
    assert!(matches!(swapped, Err(AddError::Fields { .. })));
}
