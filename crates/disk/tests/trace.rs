//! Traces a process that changes a directory in many ways: the image with all effects must equal
//! the real directory.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::ffi::CString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use floodmark_disk::{
    Crash, DiskFault, DiskHistory, FaultKind, FaultyCall, Operation, Persistence, TcpPorts, Trace,
    TraceError, TraceOptions,
};
use support::{connect, content, free_address, store, trace};

const DIRECTORY: &str = "FLOODMARK_TEST_DIRECTORY";
const ACTION: &str = "FLOODMARK_TEST_ACTION";

/// Entry point of the traced process, which runs this test binary.
#[test]
#[ignore = "runs as the child of the other tests"]
fn child() {
    let directory = PathBuf::from(std::env::var_os(DIRECTORY).expect("started by another test"));
    match std::env::var(ACTION).unwrap().as_str() {
        "change" => change(&directory),
        "threads" => append_from_threads(&directory),
        "child" => append_from_child(&directory),
        "map" => map(&directory),
        "copy" => drop(fs::copy(directory.join("old"), directory.join("copy"))),
        "move" => fs::rename(directory.join("old"), directory.with_extension("moved")).unwrap(),
        "ring" => set_up_ring(&directory),
        "syncfs" => sync_file_systems(&directory),
        #[cfg(target_arch = "x86_64")]
        "registers" => write_with_registers(&directory),
        action => panic!("{action}"),
    }
}

fn change(directory: &Path) {
    let path = |name: &str| directory.join(name);
    // Append, seek and write, write at an offset, write beyond the end, truncate.
    let mut log = OpenOptions::new()
        .append(true)
        .create(true)
        .open(path("log"))
        .unwrap();
    log.write_all(b"one ").unwrap();
    log.write_all(b"two ").unwrap();
    log.seek(SeekFrom::Start(0)).unwrap();
    log.write_all(b"three").unwrap();
    let mut old = OpenOptions::new().write(true).open(path("old")).unwrap();
    old.seek(SeekFrom::Start(2)).unwrap();
    old.write_all(b"XY").unwrap();
    old.write_all_at(b"far", 2000).unwrap();
    old.set_len(2002).unwrap();
    let duplicate = old.try_clone().unwrap();
    (&duplicate).write_all(b"Z").unwrap();
    let buffers = [b"ab".as_slice(), b"cd"].map(std::io::IoSlice::new);
    assert_eq!(old.write_vectored(&buffers).unwrap(), 4);
    old.sync_data().unwrap();
    // SAFETY: the file descriptor is open.
    assert_eq!(unsafe { libc::fallocate(old.as_raw_fd(), 0, 0, 3000) }, 0);
    // Replace a file, with relative paths.
    std::env::set_current_dir(directory).unwrap();
    fs::write("new", b"replacement").unwrap();
    fs::rename("new", "./replaced").unwrap();
    File::open(".").unwrap().sync_all().unwrap();
    // Directories, links and removals.
    fs::create_dir_all("a/b").unwrap();
    fs::write("a/b/deep", b"deep").unwrap();
    fs::rename("a/b", "a/c").unwrap();
    fs::hard_link("a/c/deep", "second").unwrap();
    fs::write("second", b"through the second name").unwrap();
    symlink("a/c/deep", "link").unwrap();
    fs::write("link", b"through the link").unwrap();
    fs::write("gone", b"x").unwrap();
    fs::remove_file("gone").unwrap();
    for (path, mode) in [("second", 0o640), ("a", 0o710), (".", 0o750)] {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    fs::create_dir("empty").unwrap();
    fs::remove_dir("empty").unwrap();
    let mut synced = OpenOptions::new();
    synced.write(true).create(true).custom_flags(libc::O_DSYNC);
    synced.open("synced").unwrap().write_all(b"s").unwrap();
    // Inode numbers are reused.
    for number in 0..20 {
        fs::write("temporary", format!("{number}")).unwrap();
        fs::rename("temporary", "counter").unwrap();
    }
    let swap = ["counter", "replaced"].map(|name| CString::new(name).unwrap());
    // SAFETY: both paths are valid C strings.
    let swapped = unsafe {
        let (from, to) = (swap[0].as_ptr(), swap[1].as_ptr());
        libc::renameat2(
            libc::AT_FDCWD,
            from,
            libc::AT_FDCWD,
            to,
            libc::RENAME_EXCHANGE,
        )
    };
    assert_eq!(swapped, 0);
    // Failed calls have no effect.
    assert!(fs::rename("missing", "other").is_err());
    assert!(File::open("old").unwrap().write_all(b"read only").is_err());
}

fn append_from_threads(directory: &Path) {
    let open = || {
        OpenOptions::new()
            .append(true)
            .create(true)
            .open(directory.join("log"))
    };
    let shared = open().unwrap();
    thread::scope(|scope| {
        for number in 0..4 {
            let (own, shared) = (open().unwrap(), &shared);
            scope.spawn(move || {
                for step in 0..50 {
                    let mut file = if step % 2 == 0 { shared } else { &own };
                    file.write_all(format!("{number}.{step} ").as_bytes())
                        .unwrap();
                    if step % 10 == 0 {
                        file.sync_all().unwrap();
                    }
                }
            });
        }
    });
}

fn append_from_child(directory: &Path) {
    let log = File::create(directory.join("log")).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo one; echo two >>appended; mv appended moved"]);
    let status = shell.current_dir(directory).stdout(log).status().unwrap();
    assert!(status.success());
}

fn map(directory: &Path) {
    let old = OpenOptions::new()
        .read(true)
        .write(true)
        .open(directory.join("old"))
        .unwrap();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the kernel chooses the address.
    unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4,
            protection,
            libc::MAP_SHARED,
            old.as_raw_fd(),
            0,
        );
    }
}

fn set_up_ring(directory: &Path) {
    // SAFETY: the filter denies the call before it reads its arguments.
    let result = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, 0) };
    let error = std::io::Error::last_os_error();
    assert_eq!((result, error.raw_os_error()), (-1, Some(libc::ENOSYS)));
    fs::write(directory.join("denied"), b"").unwrap();
}

fn sync_file_systems(directory: &Path) {
    for path in [Path::new("/proc"), directory] {
        let file = File::open(path).unwrap();
        // SAFETY: the file descriptor is open.
        assert_eq!(unsafe { libc::syncfs(file.as_raw_fd()) }, 0);
    }
}

/// Writes 16 bytes, and checks that the call leaves its third argument in its register.
#[cfg(target_arch = "x86_64")]
fn write_with_registers(directory: &Path) {
    let file = File::create(directory.join("file")).unwrap();
    let (bytes, mut length, mut result) = ([1_u8; 16], 16_u64, libc::SYS_write);
    // SAFETY: the kernel reads 16 bytes from `bytes`. A system call changes only rax, rcx and r11.
    unsafe {
        std::arch::asm!(
            "syscall",
            inout("rax") result,
            inout("rdx") length,
            in("rdi") file.as_raw_fd(),
            in("rsi") bytes.as_ptr(),
            out("rcx") _,
            out("r11") _,
        );
    }
    assert_eq!((result, length), (8, 16));
}

fn run(action: &str, directory: &Path) -> Result<Trace, TraceError> {
    run_with(action, directory, TraceOptions::default())
}

/// Runs an action in a traced process until it ends.
fn run_with(action: &str, directory: &Path, options: TraceOptions) -> Result<Trace, TraceError> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["child", "--exact", "--ignored", "--nocapture"]);
    command.env(DIRECTORY, directory).env(ACTION, action);
    let tracer = trace(command, directory, options);
    let until = Instant::now() + Duration::from_secs(60);
    while !tracer.has_ended() {
        assert!(Instant::now() < until, "{action} does not end");
        thread::sleep(Duration::from_millis(2));
    }
    tracer.stop(Duration::ZERO)
}

fn prepare() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("old"), b"content").unwrap();
    fs::create_dir(directory.path().join("dir")).unwrap();
    fs::write(directory.path().join("dir/file"), b"below").unwrap();
    symlink("dir/file", directory.path().join("base link")).unwrap();
    directory
}

/// Checks that the image with all effects equals the directory. Returns the trace.
fn check(action: &str) -> Trace {
    let directory = prepare();
    let trace = run(action, directory.path()).unwrap();
    let history = DiskHistory::new(&trace, Persistence::Strict);
    let crash = Crash::new(&history, u64::MAX - 1);
    let image = tempfile::tempdir().unwrap();
    crash.image(&[]).write_to(image.path()).unwrap();
    assert_eq!(content(image.path()), content(directory.path()));
    trace
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn an_image_with_all_effects_equals_the_directory() {
    let trace = check("change");
    let has = |wanted: &dyn Fn(&Operation) -> bool| {
        trace.calls.iter().any(|call| wanted(&call.operation))
    };
    assert!(has(&|operation| matches!(
        operation,
        Operation::Write { durable: true, .. }
    )));
    assert!(has(&|operation| matches!(
        operation,
        Operation::Sync {
            succeeded: true,
            ..
        }
    )));
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn follows_threads() {
    let trace = check("threads");
    let is_write =
        |call: &&floodmark_disk::TracedCall| matches!(call.operation, Operation::Write { .. });
    assert_eq!(trace.calls.iter().filter(is_write).count(), 200);
    assert!(trace.calls.is_sorted_by(|a, b| a.ended < b.ended));
    assert!(trace.calls.iter().all(|call| call.began < call.ended));
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn follows_children() {
    check("child");
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn records_the_ports_of_each_connection() {
    let (directory, address) = (tempfile::tempdir().unwrap(), free_address());
    let command = store("no-sync").command(directory.path(), address);
    let tracer = trace(command, directory.path(), TraceOptions::default());
    // The store serves one connection at a time.
    let put = |number: usize| {
        let mut stream = connect(&tracer, address).unwrap();
        stream
            .write_all(format!("PUT {number}\n").as_bytes())
            .unwrap();
        stream.read_exact(&mut [0; 5]).unwrap();
        // By the time the second response arrives, the system call that sent the first has
        // returned.
        stream.write_all(b"LIST\n").unwrap();
        stream.read_exact(&mut [0; 2]).unwrap();
        stream.local_addr().unwrap().port()
    };
    let peers = [1, 2].map(put);
    let trace = tracer.stop(Duration::ZERO).unwrap();
    let sent = trace.sent(|_| true);
    for (peer, response) in peers.into_iter().zip(["OK 1", "OK 2"]) {
        let local = address.port();
        let ports = TcpPorts { local, peer };
        let socket = trace.ports.iter().find(|(_, of)| **of == ports).unwrap().0;
        assert!(sent[socket].starts_with(response.as_bytes()));
    }
    assert_eq!(trace.ports.len(), 2);
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn denies_io_uring() {
    let trace = check("ring");
    assert!(
        !trace.calls.is_empty(),
        "the process saw ENOSYS and went on"
    );
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn ignores_syncs_of_other_file_systems() {
    let trace = check("syncfs");
    let is_sync = |call: &&floodmark_disk::TracedCall| call.operation == Operation::SyncAll;
    assert_eq!(trace.calls.iter().filter(is_sync).count(), 1);
}

#[test]
#[cfg(target_arch = "x86_64")]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn a_short_write_keeps_the_registers() {
    let directory = tempfile::tempdir().unwrap();
    let fault = DiskFault {
        call: FaultyCall::Write,
        first: 1,
        is_lasting: false,
        kind: FaultKind::Short,
    };
    let options = TraceOptions {
        fault: Some(fault),
        ..TraceOptions::default()
    };
    let trace = run_with("registers", directory.path(), options).unwrap();
    let exit = trace.own_exit.expect("the process exits");
    assert!(exit.success(), "{exit}");
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn refuses_what_it_cannot_follow() {
    for (action, reason) in [
        ("map", "it maps a data file as shared and writable (old)"),
        ("copy", "it writes data with copy_file_range (copy)"),
        ("move", "it moves old into or out of the watched directory"),
    ] {
        let directory = prepare();
        let error = run(action, directory.path()).unwrap_err().to_string();
        assert_eq!(error, format!("cannot trace the server: {reason}"));
    }
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn reports_a_program_that_does_not_start() {
    let directory = tempfile::tempdir().unwrap();
    let missing = Command::new("no-such-program");
    let error = floodmark_disk::Tracer::start(missing, directory.path(), TraceOptions::default());
    let error = error.unwrap_err().to_string();
    assert!(
        error.starts_with("cannot start no-such-program: no such program"),
        "{error}"
    );
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn limits_the_size_of_a_trace() {
    let directory = prepare();
    let options = TraceOptions {
        max_bytes: 20,
        ..TraceOptions::default()
    };
    let error = run_with("change", directory.path(), options).unwrap_err();
    assert!(matches!(error, TraceError::Full), "{error}");
}
