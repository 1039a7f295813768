//! Counts the events of a qlog that the `qlog` crate can type, and the others.

use qlog::reader::{Event, QlogSeqReader};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: ccplane-qlog-test FILE.sqlog")?;
    let (mut typed, mut others) = (0, 0);
    for event in QlogSeqReader::with_file(&path)? {
        match event {
            Event::Qlog(_) => typed += 1,
            Event::Json(event) => {
                eprintln!("not typed: {} {}", event.name, event.data);
                others += 1;
            }
        }
    }
    println!("{typed} typed, {others} others");
    Ok(())
}
