//! Sets the cfg `can_trace` if this host allows ptrace. Build scripts include this file.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Prints the cfg. Tests that trace processes are ignored without it.
pub fn detect() {
    println!("cargo::rustc-check-cfg=cfg(can_trace)");
    let mut command = Command::new("true");
    // SAFETY: the closure makes one async-signal-safe system call.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let Ok(child) = command.spawn() else { return };
    let mut status = 0;
    // SAFETY: the call writes only to `status`. The child stops at its exec; this process's exit
    // lets it continue.
    unsafe { libc::waitpid(child.id().cast_signed(), &raw mut status, 0) };
    if libc::WIFSTOPPED(status) {
        println!("cargo::rustc-cfg=can_trace");
    }
}
