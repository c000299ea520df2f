//! Samples the code that the server executes in user mode (perf_event_open(2)), and maps
//! instruction addresses of a process to kinds of code, by shared library and by function.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use floodmark_record::metric::CodeFigure;
use object::read::elf::{ElfFile64, ElfSymbol64, Sym};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadCache};
use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};
use procfs_core::FromRead;
use procfs_core::process::{MMPermissions, MMapPath, MemoryMaps};

use crate::tree::Tree;
use crate::{Root, cpu};

/// CPU time between two samples of a CPU, in nanoseconds.
const PERIOD_NS: u64 = 5_000_000;

/// Size of each CPU's buffer in bytes. A buffer holds about 16 s of samples.
const BUFFER: usize = 128 * 1024;

/// Samples the code of a process tree.
pub(crate) struct CodeProfile {
    samplers: Vec<Sampler>,
    tree: Rc<RefCell<Tree>>,
    map: CodeMap,
    /// CPU time in seconds: in all code, in cryptography and in compression.
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

/// Maximum number of processes whose mappings are cached.
const MAX_PROCESSES: usize = 256;

/// Kind of code in user mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CodeKind {
    Cryptography,
    Compression,
    Other,
}

impl CodeKind {
    /// Returns the kind of a shared library's code.
    fn of_library(file: &str) -> Self {
        const CRYPTOGRAPHY: [&str; 9] = [
            "libcrypto",
            "libssl",
            "libgnutls",
            "libnettle",
            "libhogweed",
            "libmbed",
            "libwolfssl",
            "libfreebl",
            "libsoftokn",
        ];
        const COMPRESSION: [&str; 6] = [
            "libz.",
            "libz-",
            "libzstd",
            "libbrotli",
            "libdeflate",
            "liblzma",
        ];
        Self::of(file, &CRYPTOGRAPHY, &COMPRESSION)
    }

    /// Returns the kind of a function of a Go or Rust program, or of a statically linked C
    /// library.
    fn of_function(name: &str) -> Self {
        const CRYPTOGRAPHY: [&str; 9] = [
            "crypto/",
            "math/big.",
            "vendor/golang.org/x/crypto/",
            "ring_core_",
            "_ZN4ring",
            "_ZN6rustls",
            "aws_lc_",
            "bn_mul",
            "ossl_",
        ];
        const COMPRESSION: [&str; 8] = [
            "compress/",
            "github.com/klauspost/compress/",
            "deflate",
            "longest_match",
            "compress_block",
            "_ZN11miniz_oxide",
            "ZSTD_",
            "Brotli",
        ];
        Self::of(name, &CRYPTOGRAPHY, &COMPRESSION)
    }

    fn of(name: &str, cryptography: &[&str], compression: &[&str]) -> Self {
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        match () {
            () if starts(cryptography) => Self::Cryptography,
            () if starts(compression) => Self::Compression,
            () => Self::Other,
        }
    }
}

/// File offsets at which the kind of code in an executable changes, in ascending order, each with
/// the kind of code that follows.
type FunctionTable = Vec<(u64, CodeKind)>;

/// Code of one executable mapping.
#[derive(Debug)]
enum MappedCode {
    Kind(CodeKind),
    /// An executable with a function table. The number is the mapping's offset in the file.
    Functions(Rc<FunctionTable>, u64),
}

/// The executable mappings of processes.
#[derive(Debug)]
pub(crate) struct CodeMap {
    root: Root,
    /// Start address, end address (exclusive) and code of each mapping, by process ID.
    processes: HashMap<u32, Vec<(u64, u64, MappedCode)>>,
    tables: HashMap<PathBuf, Rc<FunctionTable>>,
}

impl CodeMap {
    pub(crate) fn new(root: &Root) -> Self {
        Self {
            root: root.clone(),
            processes: HashMap::new(),
            tables: HashMap::new(),
        }
    }

    /// Reads the mappings of a process and replaces earlier ones. A process that cannot be read has
    /// no mappings.
    pub(crate) fn read(&mut self, pid: u32) {
        if self.processes.len() >= MAX_PROCESSES {
            self.processes.clear();
        }
        let maps = self.root.read(format!("/proc/{pid}/maps")).ok();
        let maps = maps.and_then(|text| MemoryMaps::from_read(text.as_bytes()).ok());
        let program = std::fs::read_link(self.root.path(format!("/proc/{pid}/exe"))).ok();
        let mut mappings = Vec::new();
        for map in maps.into_iter().flatten() {
            if !map.perms.contains(MMPermissions::EXECUTE) {
                continue;
            }
            let code = match &map.pathname {
                MMapPath::Path(path) if Some(path) == program.as_ref() => {
                    let file = self.root.path(format!("/proc/{pid}/exe"));
                    MappedCode::Functions(self.table(path, &file), map.offset)
                }
                MMapPath::Path(path) => {
                    let name = path.file_name().unwrap_or_default().to_string_lossy();
                    MappedCode::Kind(CodeKind::of_library(&name))
                }
                _ => MappedCode::Kind(CodeKind::Other),
            };
            mappings.push((map.address.0, map.address.1, code));
        }
        self.processes.insert(pid, mappings);
    }

    /// Returns the function table of a program. The table is empty if the file has no symbols.
    fn table(&mut self, program: &Path, file: &Path) -> Rc<FunctionTable> {
        if let Some(table) = self.tables.get(program) {
            return Rc::clone(table);
        }
        let table = Rc::new(functions(file).unwrap_or_default());
        self.tables.insert(program.to_owned(), Rc::clone(&table));
        table
    }

    /// Returns the kind of the code at an address, or `None` if the process has no mapping there.
    pub(crate) fn kind(&self, pid: u32, address: u64) -> Option<CodeKind> {
        let mut mappings = self.processes.get(&pid)?.iter();
        let (from, _, code) = mappings.find(|(from, to, _)| (*from..*to).contains(&address))?;
        Some(match code {
            MappedCode::Kind(kind) => *kind,
            MappedCode::Functions(table, offset) => {
                let offset = address - from + offset;
                let after = table.partition_point(|(start, _)| *start <= offset);
                after
                    .checked_sub(1)
                    .map_or(CodeKind::Other, |at| table[at].1)
            }
        })
    }
}

/// Reads the functions of an executable from its symbol table, or from the line table that each Go
/// program contains. Returns `None` if the file is damaged or has a different format.
fn functions(path: &Path) -> Option<FunctionTable> {
    let file = ReadCache::new(File::open(path).ok()?);
    let elf = ElfFile64::<object::Endianness, _>::parse(&file).ok()?;
    let mut functions: Vec<(u64, CodeKind)> = match elf.section_by_name(".gopclntab") {
        Some(section) => {
            let text = elf.section_by_name(".text")?.address();
            go_functions(section.data().ok()?, text)?
        }
        None => {
            // Read all names at once. `ElfSymbol64::name` would read the file for each name.
            let table = elf.elf_symbol_table();
            let strings = elf.section_by_index(table.string_section()).ok()?;
            let strings = strings.data().ok()?;
            let function = |symbol: ElfSymbol64<'_, '_, _, _>| {
                let start = symbol.elf_symbol().st_name(elf.endian()) as usize;
                let name = strings.get(start..)?.split(|byte| *byte == 0).next()?;
                let name = std::str::from_utf8(name).ok()?;
                Some((symbol.address(), CodeKind::of_function(name)))
            };
            let symbols = elf.symbols().filter(|symbol| symbol.is_definition());
            symbols.filter_map(function).collect()
        }
    };
    functions.sort_unstable_by_key(|(address, _)| *address);
    functions.dedup_by_key(|(_, kind)| *kind);
    let segments: Vec<_> = elf
        .segments()
        .map(|segment| (segment.address(), segment.size(), segment.file_range().0))
        .collect();
    let offset = |(address, kind): (u64, CodeKind)| {
        let mut segments = segments.iter();
        let in_segment =
            |(start, size, _): &&(u64, u64, u64)| address >= *start && address - *start < *size;
        let (start, _, offset) = segments.find(in_segment)?;
        Some((address - start + offset, kind))
    };
    Some(functions.into_iter().filter_map(offset).collect())
}

/// Parses the function table of a Go program (`runtime.pcHeader` and `runtime.functab`, Go 1.18 and
/// later). `text` is the start address of the functions, used if the table does not contain one.
/// Returns `None` if the table is damaged or has an unsupported version.
fn go_functions(table: &[u8], text: u64) -> Option<FunctionTable> {
    // Formats of Go 1.18 and Go 1.20. The fields that this function reads are the same in both.
    const MAGICS: [u32; 2] = [0xffff_fff0, 0xffff_fff1];
    let u32_at = |at: usize| {
        Some(u32::from_le_bytes(
            table.get(at..at.checked_add(4)?)?.try_into().ok()?,
        ))
    };
    let word = |index: usize| {
        let at = 8 + 8 * index;
        Some(u64::from_le_bytes(table.get(at..at + 8)?.try_into().ok()?))
    };
    if !MAGICS.contains(&u32_at(0)?) {
        return None;
    }
    let (count, start) = (word(0)?, word(2)?);
    let text = if start == 0 { text } else { start };
    let [names, entries] = [word(3)? as usize, word(7)? as usize];
    let function = |index: usize| {
        let entry = entries.checked_add(8 * index)?;
        let described = entries.checked_add(u32_at(entry + 4)? as usize)?;
        let name = names.checked_add(u32_at(described + 4)? as usize)?;
        let name = table.get(name..)?.split(|byte| *byte == 0).next()?;
        let kind = CodeKind::of_function(std::str::from_utf8(name).ok()?);
        Some((text.checked_add(u64::from(u32_at(entry)?))?, kind))
    };
    let count = usize::try_from(count).ok()?.min(table.len() / 8);
    Some((0..count).map_while(function).collect())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

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
        // Give Python time to load the library.
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

    #[test]
    fn classifies_libraries_and_functions() {
        use CodeKind::{Compression, Cryptography, Other};
        for (file, kind) in [
            ("libcrypto.so.3", Cryptography),
            ("libz.so.1.3.1", Compression),
            ("libzmq.so.5", Other),
            ("libc.so.6", Other),
        ] {
            assert_eq!(CodeKind::of_library(file), kind, "{file}");
        }
        for (name, kind) in [
            ("crypto/internal/fips140/bigmod.addMulVVW2048", Cryptography),
            ("compress/flate.(*compressor).deflate", Compression),
            ("runtime.mallocgc", Other),
        ] {
            assert_eq!(CodeKind::of_function(name), kind, "{name}");
        }
    }

    #[test]
    fn maps_addresses_of_this_process() {
        let mut map = CodeMap::new(&Root::host());
        let own = std::process::id();
        let address = maps_addresses_of_this_process as *const () as u64;
        assert_eq!(map.kind(own, address), None);
        map.read(own);
        assert_eq!(map.kind(own, address), Some(CodeKind::Other));
        assert_eq!(map.kind(own, 1), None);
        map.read(u32::MAX);
        assert_eq!(map.kind(u32::MAX, address), None);
    }

    /// Returns a table with the given functions, in Go's format.
    fn go_table(functions: &[(u32, &str)]) -> Vec<u8> {
        const HEADER: usize = 72;
        let mut names = Vec::new();
        let mut entries = Vec::new();
        let mut described = Vec::new();
        let all = 8 * functions.len();
        for (start, name) in functions {
            entries.extend(start.to_le_bytes());
            entries.extend(u32::try_from(all + described.len()).unwrap().to_le_bytes());
            described.extend(start.to_le_bytes());
            described.extend(u32::try_from(names.len()).unwrap().to_le_bytes());
            names.extend(name.bytes().chain([0]));
        }
        let mut table = 0xffff_fff1_u32.to_le_bytes().to_vec();
        table.extend([0, 0, 1, 8]);
        let header = [functions.len(), 0, 0, HEADER, 0, 0, 0, HEADER + names.len()];
        table.extend(header.iter().flat_map(|word| (*word as u64).to_le_bytes()));
        [table, names, entries, described].concat()
    }

    #[test]
    fn reads_the_functions_of_go() {
        let functions = [
            (0, "runtime.main"),
            (64, "compress/flate.x"),
            (96, "main.main"),
        ];
        let table = go_functions(&go_table(&functions), 0x1000).unwrap();
        let expected = [
            (0x1000, CodeKind::Other),
            (0x1040, CodeKind::Compression),
            (0x1060, CodeKind::Other),
        ];
        assert_eq!(table, expected);
    }

    proptest! {
        #[test]
        fn damaged_tables_are_rejected(
            at in 0_usize..160,
            byte: u8,
            length in 0_usize..160,
        ) {
            let mut table = go_table(&[(0, "runtime.main"), (64, "crypto/rsa.x")]);
            let last = table.len() - 1;
            table[at.min(last)] = byte;
            table.truncate(length);
            let _ = go_functions(&table, 0x1000);
        }
    }
}
