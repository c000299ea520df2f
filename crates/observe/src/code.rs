//! Samples the code that the server executes (perf_event_open(2)).

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::rc::Rc;

use floodmark_record::metric::CodeFigure;
use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};

use crate::code_kind::CodeKind;
use crate::code_map::CodeMap;
use crate::kernel_functions::FileSyncFunctions;
use crate::tree::Tree;
use crate::{Root, cpu};

/// CPU time between two samples of a CPU, in nanoseconds.
const PERIOD_NS: u64 = 5_000_000;

/// Size of each CPU's buffer in bytes. A buffer holds about 3.6 s of samples with call chains of 40
/// functions. All processes of a user share a default limit of 516 KiB per CPU
/// (`perf_event_mlock_kb`).
const BUFFER: usize = 256 * 1024;

/// Size of each CPU's buffer in bytes if samples have no call chains.
const USER_BUFFER: usize = 128 * 1024;

/// Start of the kernel's addresses.
const KERNEL: u64 = 1 << 63;

/// Samples the code of a process tree.
pub(crate) struct CodeProfile {
    samplers: Vec<Sampler>,
    tree: Rc<RefCell<Tree>>,
    map: CodeMap,
    /// The kernel functions that write files to disk, or the reason why kernel code is not sampled.
    file_sync: io::Result<FileSyncFunctions>,
    figures: Vec<CodeFigure>,
    /// CPU time since the start for each figure in [`CodeFigure::ALL`], in seconds.
    sums: [f64; CodeFigure::ALL.len()],
}

impl CodeProfile {
    /// Starts sampling. Reads the functions of the tree's programs in advance, so that this work
    /// does not disturb the run.
    ///
    /// # Errors
    /// The kernel does not permit sampling.
    pub(crate) fn start(root: &Root, tree: &Rc<RefCell<Tree>>) -> io::Result<Self> {
        let mut map = CodeMap::new(root);
        for member in &tree.borrow().members {
            map.read(member.pid);
        }
        let mut file_sync = FileSyncFunctions::read(root);
        let samplers = match samplers(root, file_sync.is_ok()) {
            // Sampling the kernel needs more privileges and memory.
            Err(error) if file_sync.is_ok() => {
                file_sync = Err(error);
                samplers(root, false)
            }
            opened => opened,
        }?;
        let is_sampled = |of: &CodeFigure| match of {
            CodeFigure::Collection => map.has_collector(),
            CodeFigure::Kernel | CodeFigure::FileSync => file_sync.is_ok(),
            CodeFigure::All | CodeFigure::Cryptography | CodeFigure::Compression => true,
        };
        Ok(Self {
            samplers,
            tree: Rc::clone(tree),
            figures: CodeFigure::ALL.into_iter().filter(is_sampled).collect(),
            map,
            file_sync,
            sums: [0.0; CodeFigure::ALL.len()],
        })
    }

    /// Returns the figures that are sampled. Garbage collection is one of them only if a collector
    /// was recognized at the start.
    pub(crate) fn figures(&self) -> &[CodeFigure] {
        &self.figures
    }

    /// Returns the reason why kernel code is not sampled.
    pub(crate) fn kernel_error(&self) -> Option<&io::Error> {
        self.file_sync.as_ref().err()
    }

    /// Returns the files that contain a language runtime whose collector was not recognized.
    pub(crate) fn hidden_collectors(&self) -> impl Iterator<Item = &Path> {
        self.map.hidden_collectors()
    }

    /// Returns the CPU time since the start for each of [`CodeProfile::figures`], in seconds.
    pub(crate) fn read(&mut self) -> Vec<f64> {
        let tree = self.tree.borrow();
        let mut reread = Vec::new();
        for sampler in &mut self.samplers {
            while let Some(record) = sampler.next_record() {
                let Ok(Record::Sample(sample)) = record.parse_record() else {
                    continue;
                };
                let (Some(pid), Some(address)) = (sample.pid(), sample.ip()) else {
                    continue;
                };
                if !tree.members.iter().any(|member| member.pid == pid) {
                    continue;
                }
                let mut add = |of: CodeFigure| self.sums[of as usize] += PERIOD_NS as f64 / 1e9;
                if address >= KERNEL {
                    add(CodeFigure::Kernel);
                    let calls = sample.callchain().unwrap_or_default();
                    let functions = self.file_sync.as_ref();
                    if functions.is_ok_and(|functions| functions.contain(calls)) {
                        add(CodeFigure::FileSync);
                    }
                    continue;
                }
                let mut kind = self.map.kind(pid, address);
                if kind.is_none() && !reread.contains(&pid) {
                    reread.push(pid);
                    self.map.read(pid);
                    kind = self.map.kind(pid, address);
                }
                add(CodeFigure::All);
                if let Some(figure) = kind.and_then(CodeKind::figure) {
                    add(figure);
                }
            }
        }
        let figures = self.figures.iter();
        figures.map(|figure| self.sums[*figure as usize]).collect()
    }
}

/// Starts sampling each CPU: code in user mode, and kernel code with its call chain if `in_kernel`.
fn samplers(root: &Root, in_kernel: bool) -> io::Result<Vec<Sampler>> {
    let sampler = |cpu| {
        let mut builder = Builder::new(Software::CPU_CLOCK);
        builder
            .any_pid()
            .one_cpu(cpu)
            .sample(SampleFlag::IP | SampleFlag::TID)
            .sample_period(PERIOD_NS)
            .exclude_kernel(true)
            .exclude_idle(true)
            .enabled(true);
        // The library rejects an empty call chain at the end of a record, so another field follows.
        if in_kernel {
            builder
                .include_kernel()
                .sample(SampleFlag::CALLCHAIN | SampleFlag::WEIGHT)
                .exclude_callchain_user(true);
        }
        let buffer = if in_kernel { BUFFER } else { USER_BUFFER };
        builder.build()?.sampled(buffer)
    };
    let cpus = cpu::online(root).unwrap_or(1);
    (0..cpus as usize).map(sampler).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::io::Write;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::*;

    /// Returns a program's CPU time over 1.5 s for each sampled figure, in seconds, or `None` if
    /// sampling is not permitted. Kills the program afterwards.
    fn profile(command: &mut Command) -> Option<HashMap<CodeFigure, f64>> {
        let mut program = command.stdout(Stdio::null()).spawn().unwrap();
        // Give the program time to load its libraries.
        std::thread::sleep(Duration::from_millis(500));
        let root = Root::host();
        let tree = Tree::new(&root, &[program.id()], None).unwrap();
        let profile = CodeProfile::start(&root, &Rc::new(RefCell::new(tree)));
        std::thread::sleep(Duration::from_millis(1_500));
        let read = profile.map(|mut profile| {
            let values = profile.read();
            profile.figures().iter().copied().zip(values).collect()
        });
        program.kill().unwrap();
        program.wait().unwrap();
        match read {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                eprintln!("skipped: perf_event_open: {error}");
                None
            }
            read => Some(read.unwrap()),
        }
    }

    #[test]
    fn finds_compression_in_a_library() {
        let program = "import zlib, random\n\
                       data = random.randbytes(100000)\n\
                       while True: zlib.compress(data, 9)";
        let Some(seconds) = profile(Command::new("python3").args(["-c", program])) else {
            return;
        };
        let all = seconds[&CodeFigure::All];
        assert!(all >= 0.1, "{all}");
        let compression = seconds[&CodeFigure::Compression];
        assert!(compression >= 0.8 * all, "{compression} of {all}");
        for other in [CodeFigure::Cryptography, CodeFigure::Collection] {
            let other = seconds.get(&other).copied().unwrap_or_default();
            assert!(other <= 0.1 * all, "{other} of {all}");
        }
    }

    /// Checks that the garbage collector takes most of a program's CPU time in user mode.
    fn check_collection(command: &mut Command) {
        let Some(seconds) = profile(command) else {
            return;
        };
        let all = seconds[&CodeFigure::All];
        assert!(all >= 0.05, "{command:?}: {all}");
        let collection = seconds[&CodeFigure::Collection];
        assert!(
            collection >= 0.5 * all,
            "{command:?}: {collection} of {all}"
        );
    }

    /// Returns the command for a program, or `None` if it is not installed.
    fn installed(program: &str) -> Option<Command> {
        let version = Command::new(program).arg("--version").output();
        if version.is_err() {
            eprintln!("skipped: {program} is not installed");
        }
        version.ok().map(|_| Command::new(program))
    }

    #[test]
    fn finds_the_collectors_of_language_runtimes() {
        let python = "import gc\nkept = [[i] for i in range(200000)]\nwhile True: gc.collect()";
        let node =
            "const kept = []; for (let i = 0; i < 3e5; i++) kept.push({ i }); for (;;) gc();";
        for (program, arguments) in [
            ("python3", ["-c", python].as_slice()),
            (
                "ruby",
                &[
                    "-e",
                    "kept = Array.new(200000) { |i| [i] }; loop { GC.start }",
                ],
            ),
            (
                "Rscript",
                &["-e", "kept <- lapply(1:200000, list); while (TRUE) gc()"],
            ),
            ("node", &["--expose-gc", "-e", node]),
        ] {
            if let Some(mut command) = installed(program) {
                check_collection(command.args(arguments));
            }
        }
        // Debian's Python has no symbol table, so its collector is recognized only on x86-64.
        if cfg!(target_arch = "x86_64")
            && let Some(mut command) = installed("/usr/bin/python3")
        {
            check_collection(command.args(["-c", python]));
        }
    }

    #[test]
    fn a_program_without_a_known_collector_has_no_figure_for_collection() {
        let Some(seconds) = profile(Command::new("sh").args(["-c", "while :; do :; done"])) else {
            return;
        };
        assert!(seconds.contains_key(&CodeFigure::All));
        assert!(!seconds.contains_key(&CodeFigure::Collection));
    }

    #[test]
    fn finds_the_collector_of_a_go_program() {
        let Some(mut build) = installed("go") else {
            return;
        };
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name);
        let source = "package main\n\
                      func main() {\n\
                      kept := make([]*[2]*int, 200000)\n\
                      for i := 0; ; i++ { kept[i%len(kept)] = &[2]*int{new(int), new(int)} }\n\
                      }\n";
        std::fs::write(path("main.go"), source).unwrap();
        build.args(["build", "-ldflags=-s -w", "-o"]);
        let build = build.args([path("program"), path("main.go")]).status();
        assert!(build.unwrap().success());
        check_collection(Command::new(path("program")).env("GOGC", "2"));
    }

    #[test]
    fn finds_kernel_code_that_writes_files_to_disk() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("journal");
        std::fs::File::create(&path)
            .unwrap()
            .write_all(b"x")
            .unwrap();
        for program in [
            "file = os.open(sys.argv[1], os.O_WRONLY)\n\
             while True: os.pwrite(file, b'x', 0), os.fsync(file)",
            "file = os.open(sys.argv[1], os.O_WRONLY | os.O_DSYNC)\n\
             while True: os.pwrite(file, b'x', 0)",
        ] {
            let mut command = Command::new("python3");
            let program = format!("import os, sys\n{program}");
            let Some(seconds) = profile(command.args(["-c", &program]).arg(&path)) else {
                return;
            };
            let Some(file_sync) = seconds.get(&CodeFigure::FileSync) else {
                eprintln!("skipped: kernel code is not sampled");
                return;
            };
            let kernel = seconds[&CodeFigure::Kernel];
            assert!(
                *file_sync > 0.5 * kernel,
                "{program}: {file_sync} of {kernel}"
            );
        }
    }
}
