//! Maps instruction addresses of a process to kinds of code, by shared library and by function.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use object::elf::{FileHeader64, Sym64};
use object::read::elf::{ElfFile64, Sym, SymbolTable};
use object::{Architecture, Endianness, Object, ObjectSection, ObjectSegment, ReadCache, ReadRef};
use procfs_core::FromRead;
use procfs_core::process::{MMPermissions, MMapPath, MemoryMaps};

use crate::code_kind::{CodeKind, Runtime, is_runtime};
use crate::{Root, collector};

/// Maximum number of processes whose mappings are cached.
const MAX_PROCESSES: usize = 256;

/// Addresses at which the kind of code changes, each with the kind of code that follows.
type KindChanges = Vec<(u64, CodeKind)>;

/// The functions of a program or library.
#[derive(Debug, Default)]
struct FunctionTable {
    /// Kinds of code by file offset, in ascending order.
    kinds: KindChanges,
    /// The language runtime that the file contains.
    runtime: Option<Runtime>,
}

impl FunctionTable {
    fn has_collector(&self) -> bool {
        let mut kinds = self.kinds.iter();
        kinds.any(|(_, kind)| *kind == CodeKind::Collection)
    }
}

/// Code of one executable mapping.
#[derive(Debug)]
enum MappedCode {
    Kind(CodeKind),
    /// A file with a function table. The number is the mapping's offset in the file.
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
                    if is_runtime(&name) {
                        let inside = path.strip_prefix("/").unwrap_or(path).display();
                        let file = self.root.path(format!("/proc/{pid}/root/{inside}"));
                        MappedCode::Functions(self.table(path, &file), map.offset)
                    } else {
                        MappedCode::Kind(CodeKind::of_library(&name))
                    }
                }
                _ => MappedCode::Kind(CodeKind::Other),
            };
            mappings.push((map.address.0, map.address.1, code));
        }
        self.processes.insert(pid, mappings);
    }

    /// Returns the function table of a program or library. The table is empty if no functions are
    /// known. `path` is the path in the process's own mount namespace.
    fn table(&mut self, path: &Path, file: &Path) -> Rc<FunctionTable> {
        if let Some(table) = self.tables.get(path) {
            return Rc::clone(table);
        }
        let table = Rc::new(functions(file).unwrap_or_default());
        self.tables.insert(path.to_owned(), Rc::clone(&table));
        table
    }

    /// Returns whether any program or library contains a known function of a garbage collector.
    pub(crate) fn has_collector(&self) -> bool {
        self.tables.values().any(|table| table.has_collector())
    }

    /// Returns the programs and libraries that contain a language runtime, but no known function of
    /// its garbage collector.
    pub(crate) fn hidden_collectors(&self) -> impl Iterator<Item = &Path> {
        let is_hidden = |table: &FunctionTable| table.runtime.is_some() && !table.has_collector();
        let tables = self
            .tables
            .iter()
            .filter(move |(_, table)| is_hidden(table));
        tables.map(|(path, _)| path.as_path())
    }

    /// Returns the kind of the code at an address, or `None` if the process has no mapping there.
    pub(crate) fn kind(&self, pid: u32, address: u64) -> Option<CodeKind> {
        let mut mappings = self.processes.get(&pid)?.iter();
        let (from, _, code) = mappings.find(|(from, to, _)| (*from..*to).contains(&address))?;
        Some(match code {
            MappedCode::Kind(kind) => *kind,
            MappedCode::Functions(table, offset) => {
                let offset = address - from + offset;
                let kinds = &table.kinds;
                let after = kinds.partition_point(|(start, _)| *start <= offset);
                after
                    .checked_sub(1)
                    .map_or(CodeKind::Other, |at| kinds[at].1)
            }
        })
    }
}

/// Reads the functions of a program or library from its symbol table, or from the line table that
/// each Go program contains. Without either, finds only exported functions and those of a garbage
/// collector. Returns `None` if the file is damaged or has a different format.
fn functions(path: &Path) -> Option<FunctionTable> {
    let file = ReadCache::new(File::open(path).ok()?);
    let elf = ElfFile64::<Endianness, _>::parse(&file).ok()?;
    let table = elf.elf_symbol_table();
    let (mut kinds, runtime) = if let Some(section) = elf.section_by_name(".gopclntab") {
        let text = elf.section_by_name(".text")?.address();
        (go_functions(section.data().ok()?, text)?, None)
    } else if table.is_empty() {
        stripped_functions(&elf)?
    } else {
        let (functions, runtime) = named_functions(&elf, table)?;
        (changes(functions), runtime)
    };
    kinds.sort_unstable_by_key(|(address, _)| *address);
    kinds.dedup_by_key(|(_, kind)| *kind);
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
    Some(FunctionTable {
        kinds: kinds.into_iter().filter_map(offset).collect(),
        runtime,
    })
}

/// A function with a symbol.
#[derive(Debug, Clone, Copy)]
struct Function {
    start: u64,
    /// Length in bytes, or 0 if the symbol has no size.
    size: u64,
    kind: CodeKind,
}

/// Reads the functions in a symbol table and identifies their language runtime.
fn named_functions<'d, R: ReadRef<'d>>(
    elf: &ElfFile64<'d, Endianness, R>,
    table: &SymbolTable<'d, FileHeader64<Endianness>, R>,
) -> Option<(Vec<Function>, Option<Runtime>)> {
    // Read all names at once. `ElfSymbol64::name` would read the file for each name.
    let strings = elf.section_by_index(table.string_section()).ok()?;
    let strings = strings.data().ok()?;
    let endian = elf.endian();
    let name = |symbol: &Sym64<Endianness>| {
        let start = symbol.st_name(endian) as usize;
        let name = strings.get(start..)?.split(|byte| *byte == 0).next()?;
        std::str::from_utf8(name).ok()
    };
    let symbols = || {
        let symbols = table.iter();
        let symbols = symbols.filter(|symbol| symbol.is_definition(endian, table.strings()));
        symbols.filter_map(|symbol| Some((symbol, name(symbol)?)))
    };
    let runtime = symbols().find_map(|(_, name)| Runtime::defining(name));
    let function = |(symbol, name): (&Sym64<Endianness>, &str)| Function {
        start: symbol.st_value(endian),
        size: symbol.st_size(endian),
        kind: CodeKind::of_function(name, runtime),
    };
    Some((symbols().map(function).collect(), runtime))
}

/// Returns the addresses at which the kind of code changes. Code after the end of a function is
/// [`CodeKind::Other`].
fn changes(mut functions: Vec<Function>) -> KindChanges {
    functions.sort_by_key(|function| function.start);
    let mut changes = Vec::new();
    for (at, function) in functions.iter().enumerate() {
        changes.push((function.start, function.kind));
        let next = functions.get(at + 1).map_or(u64::MAX, |next| next.start);
        let end = function.start.saturating_add(function.size);
        if function.size > 0 && end < next {
            changes.push((end, CodeKind::Other));
        }
    }
    changes
}

/// Finds the exported functions in a file without a symbol table. If these belong to a language
/// runtime, also finds the functions of its garbage collector.
fn stripped_functions<'d, R: ReadRef<'d>>(
    elf: &ElfFile64<'d, Endianness, R>,
) -> Option<(KindChanges, Option<Runtime>)> {
    let (exported, runtime) = named_functions(elf, elf.elf_dynamic_symbol_table())?;
    let section = |name| {
        let section = elf.section_by_name(name)?;
        let (address, bytes) = (section.address(), section.data().ok()?);
        Some(collector::Section { address, bytes })
    };
    let Some(starts) = section(".eh_frame_hdr").and_then(collector::function_starts) else {
        return Some((changes(exported), runtime));
    };
    let exported: HashMap<u64, CodeKind> = exported
        .into_iter()
        .map(|function| (function.start, function.kind))
        .collect();
    // Reading the code of a large program is slow, so read it only for a language runtime.
    let is_readable = runtime.is_some() && elf.architecture() == Architecture::X86_64;
    let sections = is_readable.then(|| Some((section(".text")?, section(".rodata")?)));
    let collecting = match sections.flatten() {
        Some((text, constants)) => collector::find(&starts, text, constants, |start| {
            exported.contains_key(&start)
        }),
        None => BTreeSet::new(),
    };
    let kind = |start: u64| match exported.get(&start) {
        Some(kind) => *kind,
        None if collecting.contains(&start) => CodeKind::Collection,
        None => CodeKind::Other,
    };
    let kinds = starts.into_iter().map(|start| (start, kind(start)));
    Some((kinds.collect(), runtime))
}

/// Parses the function table of a Go program (`runtime.pcHeader` and `runtime.functab`, Go 1.18 and
/// later). `text` is the start address of the functions, used if the table does not contain one.
/// Returns `None` if the table is damaged or has an unsupported version.
fn go_functions(table: &[u8], text: u64) -> Option<KindChanges> {
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
        let kind = CodeKind::of_function(std::str::from_utf8(name).ok()?, None);
        Some((text.checked_add(u64::from(u32_at(entry)?))?, kind))
    };
    let count = usize::try_from(count).ok()?.min(table.len() / 8);
    Some((0..count).map_while(function).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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

    #[test]
    fn code_after_the_end_of_a_function_has_no_kind() {
        let function = |start, size, kind| Function { start, size, kind };
        let functions = vec![
            function(96, 0, CodeKind::Collection),
            function(0, 16, CodeKind::Collection),
            function(32, 64, CodeKind::Compression),
        ];
        let expected = [
            (0, CodeKind::Collection),
            (16, CodeKind::Other),
            (32, CodeKind::Compression),
            (96, CodeKind::Collection),
        ];
        assert_eq!(changes(functions), expected);
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
