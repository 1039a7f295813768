//! `ccplane check PROGRAM`: diagnostics, typed tree, bytecode, eBPF and the worst-case cost of a datapath program,
//! and whether CCP's own datapaths can run it.

use std::io::Read;
use std::path::PathBuf;

use ccplane_lang::{Limits, compile};
use ccplane_linux::codegen;
use clap::Args;

use crate::exit::{Failure, Kind};
use crate::version1;

/// Which program to look at.
#[derive(Args)]
pub struct CheckArgs {
    /// The file with the program's text; `-` reads standard input.
    program: PathBuf,
    /// Leave out the typed tree, the bytecode and the eBPF listing.
    #[arg(long, short)]
    quiet: bool,
}

/// Runs the command.
pub fn run(args: &CheckArgs, json: bool) -> Result<(), Failure> {
    let name = args.program.display().to_string();
    let unreadable = |e: std::io::Error| {
        Failure::text(Kind::Usage, format!("{name} cannot be read: {e}"))
            .hint("the argument is a file with a program's text, or - for standard input")
    };
    let source = if name == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(unreadable)?;
        text
    } else {
        std::fs::read_to_string(&args.program).map_err(unreadable)?
    };
    let program = compile(&source, &Limits::default())
        .map_err(|problems| Failure::diagnostic(Kind::Failed, problems.named(&name)))?;
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
            "needs": code.needs().names().collect::<Vec<_>>(),
            "ccp_error": version1::unsayable(&program),
            "ebpf_instructions": ebpf.as_ref().map(Vec::len).ok(),
            "ebpf_worst": codegen::worst_case(code),
            "ebpf_error": ebpf.as_ref().err().map(ToString::to_string),
        });
        println!("{object}");
        return Ok(());
    }
    if !args.quiet {
        println!("# typed tree\n{}", program.tree());
        println!("# bytecode\n{}", program.bytecode());
        println!("# eBPF\n{}", codegen::listing(code));
    }
    println!("{name}: no errors");
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
        code.needs().names().collect::<Vec<_>>().join(", ")
    );
    println!(
        "  bytecode           {} instructions, at most {} an ACK, {} variables",
        cost.instrs, cost.instrs_worst, cost.vars
    );
    match ebpf {
        Ok(insns) => println!(
            "  eBPF               {} instructions, at most {} an ACK",
            insns.len(),
            codegen::worst_case(code)
        ),
        Err(too_large) => println!("  eBPF               {too_large}"),
    }
    match version1::unsayable(&program) {
        None => println!("  CCP datapaths      can run it"),
        Some(why) => println!("  CCP datapaths      cannot run it: {why}"),
    }
    Ok(())
}
