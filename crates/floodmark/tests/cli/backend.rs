//! Which backend is used, and what happens where the kernel forbids io_uring.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use floodmark_load::backend::uring::{Uring, unavailable};
use floodmark_record::plan::Backend;

use crate::support::{Serve, code, finish, floodmark, load, text};

/// Forbids io_uring to a command as a container's seccomp profile does: `io_uring_setup` fails with EPERM.
fn without_io_uring(command: &mut Command) -> &mut Command {
    let instruction = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    // The system call's number is the first word of what a filter sees.
    let mut filter = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            libc::SYS_io_uring_setup as u32,
        ),
        instruction(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        ),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let forbid = move || {
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: two system calls between fork and exec, with pointers to memory of the closure's own.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const program,
                ) == 0
        };
        if done {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    };
    // SAFETY: the closure only makes system calls.
    unsafe { command.pre_exec(forbid) }
}

#[test]
fn auto_falls_back_with_a_notice() {
    let server = Serve::start(&["hello"]);
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("record.json");
    let mut command = floodmark(&[
        "load",
        &server.url,
        "-n",
        "200",
        "--json",
        json.to_str().unwrap(),
    ]);
    let output = finish(without_io_uring(&mut command).spawn().unwrap());
    let said = text(&output.stderr);
    assert!(
        said.contains("epoll is used: io_uring is forbidden here"),
        "{said}"
    );
    let record: floodmark_record::Record =
        serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let run = &record.runs[0];
    assert_eq!((run.plan.backend, run.requests.ok), (Backend::Epoll, 200));
    assert!(
        run.missing
            .iter()
            .any(|line| line.contains("io_uring is forbidden")),
        "{:?}",
        run.missing
    );
}

#[test]
fn a_backend_that_was_asked_for_and_is_forbidden_is_refused() {
    let mut command = floodmark(&["load", "http://127.0.0.1:1/", "--backend", "uring"]);
    let output = finish(without_io_uring(&mut command).spawn().unwrap());
    assert_eq!(code(&output), 2);
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("kernel.io_uring_disabled") && said.contains("--backend epoll"),
        "{said}"
    );
}

#[test]
fn both_backends_give_the_same_counts() {
    let server = Serve::start(&["hello"]);
    let uring = match Uring::probe(1) {
        Ok(_) => Some(("uring", Backend::Uring)),
        Err(error) => {
            // Where the kernel forbids or lacks it; any other refusal is ours.
            let refused = [libc::EPERM, libc::EACCES, libc::ENOSYS].map(Some);
            assert!(refused.contains(&error.raw_os_error()), "{error}");
            eprintln!("skipped: {}", unavailable(&error));
            None
        }
    };
    for (name, backend) in uring.into_iter().chain([("epoll", Backend::Epoll)]) {
        for more in [
            &["-c", "7"][..],
            &["--fresh"],
            &["--requests-per-connection", "3", "--close-first", "reset"],
        ] {
            let mut arguments = vec!["-n", "1000", "--backend", name];
            arguments.extend_from_slice(more);
            let load = load(&server.url, &arguments);
            assert_eq!(load.run().plan.backend, backend);
            assert_eq!(
                (load.counts().intended, load.counts().ok),
                (1000, 1000),
                "{name} {more:?}"
            );
        }
    }
}
