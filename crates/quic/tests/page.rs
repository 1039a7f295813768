//! The program of docs/quic.md.

#[test]
fn the_page_has_the_complete_program() {
    let program = include_str!("../examples/quinn_server.rs");
    let page = include_str!("../../../docs/quic.md");
    assert!(page.contains(&format!("```rust\n{program}```")));
    assert!(program.lines().count() <= 25);
}
