//! Instrumented program file that counts the runs of each clause, to show which ones were in force
//! at a time.

use super::{ProgramFile, mask_strings};
use crate::diagnostics::Problems;
use crate::reader::Forms;

/// Instrumented program file. It controls a flow as the original does, and counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstrumentedProgram {
    /// Source of the instrumented program.
    pub source: String,
    /// Clauses, in order.
    pub clauses: Vec<CountedClause>,
}

/// Clause of a program file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedClause {
    /// Report variable with the number of its runs since the flow opened.
    pub counter: String,
    /// First line, from 1.
    pub line: usize,
    /// Guard on one line.
    pub guard: String,
}

impl ProgramFile {
    /// Returns the instrumented program; `None` if it exceeds the limits of a program. It reports
    /// when the original does. If the original never reports, it reports at every run of a clause,
    /// unless it has volatile variables, which a report would reset.
    pub fn instrumented(&self) -> Option<InstrumentedProgram> {
        let masked = mask_strings(&self.source, &mut Problems::default());
        let forms = Forms::read(&masked, &mut Problems::default());
        let is = |at: u32, what: &str| {
            forms
                .children(at)
                .next()
                .is_some_and(|word| forms.text(forms.get(word)) == what)
        };
        let said = |what: &str| forms.iter().any(|(_, form)| forms.text(form) == what);
        let report = match (said("report"), said("volatile")) {
            (true, _) => "",
            (false, false) => " (report)",
            (false, true) => return None,
        };
        let (mut clauses, mut counts) = (Vec::new(), Vec::new());
        for when in forms.top_level().filter(|at| is(*at, "when")) {
            let guard = forms.get(forms.children(when).nth(1)?).span;
            let name = format!("ccplane_ran_{}", clauses.len() + 1);
            let count = format!(" (:= Report.{name} (+ Report.{name} 1)){report}");
            counts.push((guard.end as usize, count));
            let text = &self.source[guard.start as usize..guard.end as usize];
            clauses.push(CountedClause {
                counter: name,
                line: 1 + self.source[..forms.get(when).span.start as usize]
                    .matches('\n')
                    .count(),
                guard: text.split_whitespace().collect::<Vec<_>>().join(" "),
            });
        }
        let declared: String = clauses
            .iter()
            .map(|clause| format!(" ({} 0)", clause.counter))
            .collect();
        let def = forms.top_level().find(|at| is(*at, "def"))?;
        let reports = forms.children(def).find(|at| is(*at, "Report"));
        let behind = |list: u32| Some(forms.get(forms.children(list).next()?).span.end as usize);
        counts.push(match reports {
            Some(reports) => (behind(reports)?, declared),
            None => (behind(def)?, format!(" (Report{declared})")),
        });
        counts.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        let mut source = self.source.clone();
        counts
            .iter()
            .for_each(|(at, text)| source.insert_str(*at, text));
        ProgramFile::read(&source).ok()?;
        Some(InstrumentedProgram { source, clauses })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_are_counted_where_the_limits_allow() {
        let text = "(algorithm a (about \"(when\")) # (when\n(def (x 0))\n\
                    (when (> x\n 1) (:= x 0))\n(when true (:= Cwnd 9000))";
        let counted = ProgramFile::read(text)
            .expect("a valid algorithm")
            .instrumented()
            .expect("the limits allow counters");
        let expected = "(algorithm a (about \"(when\")) # (when\n\
                        (def (Report (ccplane_ran_1 0) (ccplane_ran_2 0)) (x 0))\n\
            (when (> x\n 1) (:= Report.ccplane_ran_1 (+ Report.ccplane_ran_1 1)) \
            (report) (:= x 0))\n\
            (when true (:= Report.ccplane_ran_2 (+ Report.ccplane_ran_2 1)) \
            (report) (:= Cwnd 9000))";
        assert_eq!(counted.source, expected);
        let seen: Vec<_> = counted
            .clauses
            .iter()
            .map(|c| (c.line, c.guard.as_str()))
            .collect();
        assert_eq!(seen, [(3, "(> x 1)"), (5, "true")]);

        let reports =
            "(algorithm a) (def (Report (volatile y 0))) (when true (:= Cwnd 9000) (report))";
        let counted = ProgramFile::read(reports)
            .expect("a valid algorithm")
            .instrumented()
            .expect("the limits allow counters");
        assert!(
            counted
                .source
                .contains("(Report (ccplane_ran_1 0) (volatile y 0))"),
            "{}",
            counted.source
        );
        assert_eq!(
            counted.source.matches("(report)").count(),
            1,
            "{}",
            counted.source
        );
        // A report would reset it.
        let keeps = "(algorithm a) (def (Report (volatile y 0))) \
            (when true (:= Report.y 1) (:= Cwnd 9000))";
        assert_eq!(
            ProgramFile::read(keeps)
                .expect("a valid algorithm")
                .instrumented(),
            None
        );
    }
}
