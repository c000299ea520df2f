//! Kills a process that uses a journal, and makes its disk fail.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use support::TestJournal;

const DIRECTORY: &str = "FLOODMARK_TEST_JOURNAL";
const FAULT: &str = "FLOODMARK_TEST_FAULT";
/// Number of kills.
const ROUNDS: u32 = 20;
/// Number of batches before a fault.
const BATCHES: u64 = 3;

/// Entry point of the process, which runs this test binary. Prints each durable record number, and
/// the cause of a failure.
#[test]
#[ignore = "runs as the child of the other tests"]
fn child() {
    let directory = env::var_os(DIRECTORY).expect("started by another test");
    let fault = env::var(FAULT).ok();
    let mut journal = TestJournal::open(Path::new(&directory));
    let mut batches = 0;
    println!("\ndurable {}", journal.records());
    while journal.add(1 + journal.records() % 400) {
        println!("durable {}", journal.records());
        std::io::stdout().flush().unwrap();
        batches += 1;
        if batches == BATCHES {
            match fault.as_deref() {
                Some("limit") => limit_file_size(),
                Some("fdatasync") => fail_call(libc::SYS_fdatasync, libc::EIO),
                Some("fsync") => fail_call(libc::SYS_fsync, libc::EIO),
                Some("write") => fail_call(libc::SYS_pwrite64, libc::ENOSPC),
                Some("rename") => fail_call(RENAME, libc::EIO),
                _ => {}
            }
        }
    }
    let cause = journal.journal.progress().failure.unwrap().to_string();
    for _ in 0..3 {
        assert!(!journal.add(1), "a failed journal stays failed");
    }
    println!("failed: {cause}");
    journal.journal.close().unwrap_err();
}

/// The system call of `rename`.
#[cfg(target_arch = "aarch64")]
const RENAME: libc::c_long = libc::SYS_renameat;
#[cfg(not(target_arch = "aarch64"))]
const RENAME: libc::c_long = libc::SYS_rename;

/// Lowers the maximum file size, so that later writes are short or fail.
fn limit_file_size() {
    let limit = libc::rlimit {
        rlim_cur: 9 * 1024,
        rlim_max: 9 * 1024,
    };
    // SAFETY: the calls get valid arguments. Without a handler, the signal would end the process.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
    }
}

/// Makes a system call fail from now on, in all threads, with a seccomp filter (seccomp(2)).
fn fail_call(call: libc::c_long, error: libc::c_int) {
    let step = |code: u32, jt, jf, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let mut steps = [
        // Load the number of the system call, which is the first field of `seccomp_data`.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            call as u32,
        ),
        step(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | error as u32,
        ),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: `filter` points to valid steps, which the kernel copies.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let set = libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const filter,
        );
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    }
}

fn start(directory: &Path, fault: Option<&str>) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["child", "--exact", "--ignored", "--nocapture"])
        .env(DIRECTORY, directory)
        .envs(fault.map(|fault| (FAULT, fault)))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    (child, output)
}

/// Returns the last durable record number in the output. The last line may be incomplete.
fn last_durable(output: &str) -> u64 {
    let lines = output.split_inclusive('\n');
    let whole = lines.filter_map(|line| line.strip_suffix('\n'));
    let mut numbers = whole.filter_map(|line| line.strip_prefix("durable ")?.parse().ok());
    numbers.next_back().expect("the journal was opened")
}

#[test]
fn loses_no_durable_record_over_many_kills() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().join("journal");
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut random = seed.subsec_nanos() | 1;
    let mut before = 0;
    for round in 0..ROUNDS {
        let (mut child, mut output) = start(&directory, None);
        let mut text = String::new();
        while !text.contains("durable") {
            assert!(output.read_line(&mut text).unwrap() > 0, "{text}");
        }
        // Marsaglia's xorshift picks a random moment.
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        let kill = thread::spawn(move || {
            thread::sleep(Duration::from_micros(u64::from(random % 100_000)));
            child.kill().unwrap();
            child.wait().unwrap();
        });
        while output.read_line(&mut text).unwrap() > 0 {}
        kill.join().unwrap();
        let durable = last_durable(&text);
        assert!(durable >= before, "round {round}: {durable} < {before}");
        // Opening the journal checks all records.
        let recovered = TestJournal::open(&directory).records();
        assert!(
            recovered >= durable,
            "round {round}: {recovered} < {durable}"
        );
        before = recovered;
    }
    assert!(before > 0);
}

#[test]
fn acknowledges_nothing_after_a_failed_write_or_sync() {
    // With some faults, either of the two threads can fail first.
    let create = "cannot create";
    let faults = [
        (
            "limit",
            &["bytes; free disk space", "cannot write", create][..],
        ),
        ("fdatasync", &["cannot sync"]),
        ("write", &["cannot write"]),
        ("fsync", &["cannot sync", "cannot write", create]),
        ("rename", &["cannot rename", "cannot write", create]),
    ];
    for (fault, causes) in faults {
        let directory = tempfile::tempdir().unwrap();
        let (mut child, mut output) = start(directory.path(), Some(fault));
        let mut text = String::new();
        while output.read_line(&mut text).unwrap() > 0 {}
        assert!(child.wait().unwrap().success(), "{fault}: {text}");
        let failure = text.lines().find_map(|line| line.strip_prefix("failed: "));
        let failure = failure.expect(&text);
        let is_expected = causes.iter().any(|cause| failure.contains(cause));
        assert!(is_expected, "{fault}: {failure}");
        let recovered = TestJournal::open(directory.path()).records();
        assert!(recovered >= last_durable(&text), "{fault}: {recovered}");
    }
}
