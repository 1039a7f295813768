//! `ccplane check PROGRAM`: diagnostics, typed tree, bytecode, eBPF and worst-case cost of a
//! datapath program, and whether CCP's own datapaths can run it.

use std::path::PathBuf;

use ccplane_lang::{Diagnostics, Problem, ProgramFile, ProgramLimits, compile};
use ccplane_linux::codegen;
use clap::Args;

use crate::exit::{Failure, FailureKind};
use crate::{program_file, version1};

#[derive(Args)]
pub struct CheckArgs {
    /// File with a datapath program or a whole algorithm; `-` for standard input.
    program: PathBuf,
    /// Omit the typed tree, the bytecode and the eBPF listing.
    #[arg(long, short)]
    quiet: bool,
    /// Treat warnings as errors: exit code 1.
    #[arg(long)]
    strict: bool,
}

pub fn run(args: &CheckArgs, json: bool) -> Result<(), Failure> {
    let name = args.program.display().to_string();
    let unreadable = |e: std::io::Error| {
        Failure::text(FailureKind::Usage, format!("{name} cannot be read: {e}"))
            .hint("give a program file, or - for standard input")
    };
    let source = if name == "-" {
        program_file::read_from(std::io::stdin()).map_err(unreadable)?
    } else {
        program_file::read(&args.program).map_err(unreadable)?
    };
    // A file with a whole algorithm has a header before its program.
    let told =
        |problems: Diagnostics| Failure::diagnostic(FailureKind::Failed, problems.with_name(&name));
    let text = match ProgramFile::has_header(&source) {
        true => Some(ProgramFile::read(&source).map_err(told)?),
        false => None,
    };
    let source = match &text {
        Some(text) => text
            .program(&[])
            .map_err(|bad| Failure::new(FailureKind::Failed, bad))?,
        None => source,
    };
    let program = compile(&source, &ProgramLimits::default()).map_err(told)?;
    let warnings = match &text {
        Some(text) => text.warnings(),
        None => program.warnings(),
    };
    let warnings = warnings.map(|warnings| warnings.with_name(&name));
    let warned = warnings
        .as_ref()
        .map_or(0, |warnings| warnings.problems().len());
    let outcome = match warned {
        0 => Ok(()),
        _ if !args.strict => Ok(()),
        n => Err(Failure::text(
            FailureKind::Failed,
            format!("{name}: {}, which --strict treats as errors", counted(n)),
        )),
    };
    let cost = program.cost();
    let code = program.code();
    let ebpf = codegen::compile(code);
    if json {
        let object = serde_json::json!({
            "program": name,
            "report": program.report_names().collect::<Vec<_>>(),
            "control": program.control_names().collect::<Vec<_>>(),
            "instructions": cost.instrs,
            "instructions_worst": cost.instrs_worst,
            "variables": cost.vars,
            "needs": code.required_capabilities().names().collect::<Vec<_>>(),
            "ccp_error": version1::not_expressible(&program),
            "ebpf_instructions": ebpf.as_ref().map(Vec::len).ok(),
            "ebpf_worst": codegen::worst_case(code),
            "ebpf_error": ebpf.as_ref().err().map(ToString::to_string),
            "warnings": warnings.iter().flat_map(Diagnostics::problems).map(as_json).collect::<Vec<_>>(),
        });
        println!("{object}");
        return outcome;
    }
    if let Some(warnings) = warnings {
        crate::output::draw(warnings);
    }
    match warned {
        0 => println!("{name}: no errors, no warnings"),
        n => println!("{name}: no errors, {}", counted(n)),
    }
    println!(
        "  report fields      {}",
        program.report_names().collect::<Vec<_>>().join(" ")
    );
    println!(
        "  control variables  {}",
        program.control_names().collect::<Vec<_>>().join(" ")
    );
    println!(
        "  needs              {}",
        code.required_capabilities()
            .names()
            .collect::<Vec<_>>()
            .join(", ")
    );
    println!(
        "  bytecode           {} instructions, at most {} per ACK, {} variables",
        cost.instrs, cost.instrs_worst, cost.vars
    );
    match ebpf {
        Ok(insns) => println!(
            "  eBPF               {} instructions, at most {} per ACK",
            insns.len(),
            codegen::worst_case(code)
        ),
        Err(too_large) => println!("  eBPF               {too_large}"),
    }
    match version1::not_expressible(&program) {
        None => println!("  CCP datapaths      can run it"),
        Some(why) => println!("  CCP datapaths      cannot run it: {why}"),
    }
    if !args.quiet {
        println!("\n# typed tree\n{}", program.tree());
        println!("# bytecode\n{}", program.bytecode());
        println!("# eBPF\n{}", codegen::listing(code));
    }
    outcome
}

fn counted(warnings: usize) -> String {
    match warnings {
        1 => "1 warning".to_owned(),
        n => format!("{n} warnings"),
    }
}

fn as_json(problem: &Problem) -> serde_json::Value {
    serde_json::json!({
        "code": problem.code().as_str(),
        "line": problem.line(),
        "column": problem.column(),
        "message": problem.message(),
        "fix": problem.fix(),
    })
}
