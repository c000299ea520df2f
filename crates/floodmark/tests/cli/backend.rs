//! Tests of the I/O backends, including on hosts that forbid io_uring.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use floodmark_load::backend::uring::{Uring, unavailable};
use floodmark_record::plan::Backend;

use crate::support::{Serve, code, finish, floodmark, load, run, text};

/// Makes `io_uring_setup` fail with EPERM in a command. Seccomp profiles of containers do the same.
fn without_io_uring(command: &mut Command) -> &mut Command {
    let instruction = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    // The filter's input starts with the system call number.
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
        // SAFETY: the closure makes only two system calls between fork and exec. Their pointers
        // refer to data that the closure owns.
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
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("record.json");
    let mut command = floodmark(&[
        "load",
        &server.url,
        "-n",
        "200",
        "--json",
        json.to_str().unwrap(),
    ]);
    let output = finish(without_io_uring(&mut command).spawn().unwrap());
    let printed = text(&output.stderr);
    assert!(
        printed.contains("using epoll: io_uring is not permitted on this host"),
        "{printed}"
    );
    let record: floodmark_record::Record =
        serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let run = &record.runs[0];
    assert_eq!((run.plan.backend, run.requests.ok), (Backend::Epoll, 200));
    assert!(
        run.missing
            .iter()
            .any(|line| line.contains("io_uring is not permitted")),
        "{:?}",
        run.missing
    );
}

#[test]
fn refuses_a_forbidden_backend() {
    let mut command = floodmark(&["load", "http://127.0.0.1:1/", "--backend", "uring"]);
    let output = finish(without_io_uring(&mut command).spawn().unwrap());
    assert_eq!(code(&output), 2);
    let printed = text(&output.stderr);
    assert_eq!(printed.lines().count(), 1, "{printed}");
    assert!(
        printed.contains("kernel.io_uring_disabled") && printed.contains("--backend epoll"),
        "{printed}"
    );
}

#[test]
fn both_backends_give_the_same_counts() {
    let server = Serve::start(&["hello"]);
    let uring = match Uring::probe(1) {
        Ok(_) => Some(("uring", Backend::Uring)),
        Err(error) => {
            // The kernel forbids io_uring or does not support it.
            let output = run(&["load", &server.url, "-n", "1", "--backend", "uring"]);
            assert_eq!(code(&output), 2);
            let printed = text(&output.stderr);
            assert!(printed.contains(&unavailable(&error)), "{printed}");
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
