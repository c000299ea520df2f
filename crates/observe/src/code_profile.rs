//! Samples the code that the server executes in user mode (perf_event_open(2)).

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use floodmark_record::metric::CodeFigure;
use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};

use crate::Root;
use crate::code_map::{CodeKind, CodeMap};
use crate::cpu;
use crate::tree::Tree;

/// CPU time between two samples of a CPU, in nanoseconds.
const PERIOD_NS: u64 = 5_000_000;

/// Size of each CPU's buffer in bytes: holds about 16 s of samples.
const BUFFER: usize = 128 * 1024;

/// Samples the code of a process tree.
pub(crate) struct CodeProfile {
    samplers: Vec<Sampler>,
    tree: Rc<RefCell<Tree>>,
    map: CodeMap,
    /// CPU time in all code, cryptography and compression, in seconds.
    sums: [f64; 3],
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
        let sampler = |cpu| {
            Builder::new(Software::CPU_CLOCK)
                .any_pid()
                .one_cpu(cpu)
                .sample(SampleFlag::IP | SampleFlag::TID)
                .sample_period(PERIOD_NS)
                .exclude_kernel(true)
                .enabled(true)
                .build()?
                .sampled(BUFFER)
        };
        let cpus = cpu::online(root).unwrap_or(1);
        Ok(Self {
            samplers: (0..cpus as usize).map(sampler).collect::<io::Result<_>>()?,
            tree: Rc::clone(tree),
            map,
            sums: [0.0; 3],
        })
    }

    /// Returns the CPU time since the start for each figure in [`CodeFigure::ALL`], in seconds.
    pub(crate) fn read(&mut self) -> [f64; CodeFigure::ALL.len()] {
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
                let mut kind = self.map.kind(pid, address);
                if kind.is_none() && !reread.contains(&pid) {
                    reread.push(pid);
                    self.map.read(pid);
                    kind = self.map.kind(pid, address);
                }
                let seconds = PERIOD_NS as f64 / 1e9;
                self.sums[0] += seconds;
                match kind {
                    Some(CodeKind::Cryptography) => self.sums[1] += seconds,
                    Some(CodeKind::Compression) => self.sums[2] += seconds,
                    Some(CodeKind::Other) | None => {}
                }
            }
        }
        self.sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    #[test]
    fn finds_compression_in_a_library() {
        let program = "import zlib, random\n\
                       data = random.randbytes(100000)\n\
                       while True: zlib.compress(data, 9)";
        let mut python = Command::new("python3")
            .args(["-c", program])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // Wait until Python has loaded the library.
        std::thread::sleep(Duration::from_millis(300));
        let root = Root::host();
        let tree = Tree::new(&root, &[python.id()], None).unwrap();
        let profile = CodeProfile::start(&root, &Rc::new(RefCell::new(tree)));
        std::thread::sleep(Duration::from_millis(1_500));
        let read = profile.map(|mut profile| profile.read());
        python.kill().unwrap();
        python.wait().unwrap();
        let [all, cryptography, compression] = match read {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return eprintln!("skipped: perf_event_open: {error}");
            }
            read => read.unwrap(),
        };
        assert!(all >= 0.1, "{all}");
        assert!(compression >= 0.8 * all, "{compression} of {all}");
        assert!(cryptography <= 0.1 * all, "{cryptography} of {all}");
    }
}
