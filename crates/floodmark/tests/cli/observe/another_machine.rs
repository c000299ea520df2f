//! What comes from a machine with another clock.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

use floodmark_record::elsewhere::{Clocks, Line, Method};

use super::{lines, named, start_observe};
use crate::support::{Serve, load, signal, wait_for};
use crate::watching::cpu_s;

/// Writes what an observer says as another machine would: its clocks count from elsewhere, and nobody has set them.
fn as_of_another_machine(from: impl BufRead, to: &Path) {
    let mut file = fs::File::create(to).unwrap();
    for line in from.lines().map_while(Result::ok) {
        let mut line: serde_json::Value = serde_json::from_str(&line).unwrap();
        if let Some(clocks) = line.get_mut("clocks") {
            clocks["boot_id"] = "of another machine".into();
            clocks["synchronised"] = false.into();
            for (clock, ahead_ns) in [
                ("unix_ns", WALL_AHEAD_NS),
                ("monotonic_ns", 5_000_000_000_000),
            ] {
                clocks[clock] = (clocks[clock].as_u64().unwrap() + ahead_ns).into();
            }
        }
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}

/// By how much the other machine's wall clock is ahead.
const WALL_AHEAD_NS: u64 = 83_000_000_000;

/// Where the series began on this machine's clock, ms.
fn begin_ms(clocks: &Clocks) -> f64 {
    clocks.monotonic_ns as f64 / 1e6 - clocks.at_ms
}

#[test]
fn the_clock_of_another_machine_is_found_by_the_load_itself() {
    let server = Serve::start(&["hello"]);
    let folder = tempfile::tempdir().unwrap();
    let (raw, file) = (folder.path().join("raw"), folder.path().join("file"));
    let mut observe = start_observe(&server, &["--out", "-"]);
    let said = BufReader::new(observe.stdout.take().unwrap());
    let (kept, shifted) = (raw.clone(), file.clone());
    let writing = std::thread::spawn(move || {
        let mut first = fs::File::create(kept).unwrap();
        let teed = BufReader::new(Tee(said, &mut first));
        as_of_another_machine(teed, &shifted);
    });
    wait_for("two seconds", || {
        let text = fs::read_to_string(&file).ok()?;
        (text.matches("\"line\":\"second\"").count() >= 2).then_some(())
    });
    let before = cpu_s(server.pid());
    // Work that comes and goes: half a second at a high rate, half a second at a low one.
    let steps = "4000:700ms,200:500ms,4000:400ms,200:400ms,4000:900ms";
    let load = load(
        &server.url,
        &["-c", "20", "--steps", steps, "--with", named(&file)],
    );
    let truth = cpu_s(server.pid()) - before;
    signal(observe.id(), libc::SIGINT);
    observe.wait().unwrap();
    writing.join().unwrap();

    let run = load.run();
    let there = run.elsewhere.as_ref();
    let there = there.unwrap_or_else(|| panic!("{:?}", run.missing));
    let aligned = &there.aligned;
    assert_eq!(
        (aligned.method, &aligned.but),
        (Method::Load, &None),
        "{aligned:?}"
    );
    assert!(
        aligned.correlation.unwrap() >= 0.7 && aligned.error_ms <= 1_000.5,
        "{aligned:?}"
    );
    // The clocks as they were, before they were moved, on both sides.
    let Some(Line::Opened(opened)) = lines(&fs::read_to_string(raw).unwrap()).into_iter().next()
    else {
        panic!("no first line")
    };
    let events = fs::read_to_string(load.events()).unwrap();
    let here = events
        .lines()
        .find_map(|line| match serde_json::from_str(line).ok()? {
            floodmark_record::Event::Observed(observed) => observed.clocks,
            _ => None,
        });
    let offset_ms = begin_ms(&opened.clocks) - begin_ms(&here.unwrap());
    let wrong_ms = aligned.offset_ms - offset_ms;
    println!("{aligned:?}, wrong by {wrong_ms:.1} ms");
    assert!(
        wrong_ms.abs() <= aligned.error_ms,
        "wrong by {wrong_ms} ms: {aligned:?}"
    );
    let seen = run
        .server
        .as_ref()
        .unwrap_or_else(|| panic!("{:?}", run.missing));
    assert!(
        (seen.cpu_s - truth).abs() < 0.08 + 0.1 * truth,
        "{} {truth}",
        seen.cpu_s
    );
    assert!(load.stderr().contains("by the load"), "{}", load.stderr());
}

/// Copies what is read.
struct Tee<'a, R>(R, &'a mut fs::File);

impl<R: Read> Read for Tee<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.0.read(buffer)?;
        self.1.write_all(&buffer[..read])?;
        Ok(read)
    }
}
