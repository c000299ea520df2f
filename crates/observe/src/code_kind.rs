//! Kinds of code that a server executes in user mode.

use floodmark_record::metric::CodeFigure;

/// Kind of code in user mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CodeKind {
    Cryptography,
    Compression,
    /// Garbage collection.
    Collection,
    Other,
}

impl CodeKind {
    /// Returns the figure for this kind of code, or `None` for other code.
    pub(crate) fn figure(self) -> Option<CodeFigure> {
        match self {
            Self::Cryptography => Some(CodeFigure::Cryptography),
            Self::Compression => Some(CodeFigure::Compression),
            Self::Collection => Some(CodeFigure::Collection),
            Self::Other => None,
        }
    }

    /// Returns the kind of a shared library's code.
    pub(crate) fn of_library(file: &str) -> Self {
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
        match () {
            () if starts(file, &CRYPTOGRAPHY) => Self::Cryptography,
            () if starts(file, &COMPRESSION) => Self::Compression,
            () => Self::Other,
        }
    }

    /// Returns the kind of a function of a Go or Rust program, of a statically linked C library, or
    /// of a language runtime. `runtime` is the runtime that the file contains, if any.
    pub(crate) fn of_function(name: &str, runtime: Option<Runtime>) -> Self {
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
        match () {
            () if starts(name, &CRYPTOGRAPHY) => Self::Cryptography,
            () if starts(name, &COMPRESSION) => Self::Compression,
            () if is_collector(name, runtime) => Self::Collection,
            () => Self::Other,
        }
    }
}

/// Returns whether a function belongs to a garbage collector. Allocation does not count.
fn is_collector(name: &str, runtime: Option<Runtime>) -> bool {
    const GO: [&str; 15] = [
        "gc",
        "(*gc",
        "wbBufFlush",
        "greyobject",
        "markroot",
        "scan",
        "tryDeferToSpanScan",
        "(*spanQueue)",
        "(*spanInlineMarkBits)",
        "(*mspan).moveInlineMarks",
        "findObject",
        "typePointers",
        "bgsweep",
        "sweepone",
        "(*sweepLocked)",
    ];
    // Parts of C++ names in the namespace `v8::internal`.
    const V8: [&str; 7] = [
        "Scaveng",
        "MarkCompact",
        "MarkSweep",
        "MarkingVisitor",
        "ConcurrentMarking",
        "Sweeper",
        "Evacuat",
    ];
    if let Some(name) = name.strip_prefix("runtime.") {
        return starts(name, &GO);
    }
    if starts(name, &["_ZN2v88internal", "_ZNK2v88internal"]) {
        return V8.iter().any(|part| name.contains(part));
    }
    // Go's package for the fast paths of its collector.
    name.starts_with("internal/runtime/gc/")
        || runtime.is_some_and(|runtime| starts(name, runtime.collector()))
}

/// Language runtime with a garbage collector, recognized by a function that it exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runtime {
    Python,
    R,
    Ruby,
    V8,
}

impl Runtime {
    /// Returns the runtime whose files define an exported function with this name.
    pub(crate) fn defining(function: &str) -> Option<Self> {
        match function {
            "Py_Initialize" => Some(Self::Python),
            "R_gc" => Some(Self::R),
            "ruby_init" => Some(Self::Ruby),
            // v8::V8::Initialize(int)
            "_ZN2v82V810InitializeEi" => Some(Self::V8),
            _ => None,
        }
    }

    /// Returns the name prefixes of the collector's C functions.
    fn collector(self) -> &'static [&'static str] {
        match self {
            Self::Python => &[
                "gc_",
                "deduce_unreachable",
                "subtract_refs",
                "move_unreachable",
                "untrack_tuples",
                "visit_decref",
                "visit_reachable",
                "_PyDict_MaybeUntrack",
                "dict_traverse",
                "list_traverse",
                "tupletraverse",
                "func_traverse",
                "subtype_traverse",
            ],
            Self::R => &[
                "R_gc_internal",
                "RunGenCollect",
                "AgeNodeAndChildren",
                "ReleaseLargeFreeVectors",
                "TryToReleasePages",
            ],
            Self::Ruby => &[
                "gc_",
                "rgengc_",
                "rb_gc_mark",
                "garbage_collect",
                "obj_free",
            ],
            Self::V8 => &[],
        }
    }
}

fn starts(name: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// Messages of garbage collectors in shared libraries and programs. In a file without a symbol
/// table, the functions that use such a message belong to the collector.
pub(crate) const COLLECTOR_MESSAGES: [&str; 7] = [
    // CPython: gc_collect_main.
    "gc: collecting generation %d...\n",
    // R: R_gc_internal, into which the compiler inlines the other functions.
    "Garbage collection %d = %d",
    // Ruby: gc_mark_ptr, gc_mark_children, gc_grey and obj_free.
    "try to mark T_NONE object",
    "rb_gc_mark() called for broken object",
    "rb_gc_mark(): unknown data type 0x%x(%p) %s",
    "obj_free() called for broken object",
    "gc_sweep(): unknown data type 0x%x(%p) 0x%lx",
];

/// Returns whether a shared library contains a language runtime that collects garbage.
pub(crate) fn is_runtime(file: &str) -> bool {
    starts(file, &["libnode.", "libpython", "libR.", "libruby"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classifies_libraries_and_functions() {
        use CodeKind::{Collection, Compression, Cryptography, Other};
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
            ("runtime.gcDrainN", Collection),
            ("runtime.(*mspan).init", Other),
            (
                "_ZN2v88internal9Scavenger7ProcessEPNS_11JobDelegateE",
                Collection,
            ),
            ("_ZN2v88internal8JsonParserIhE9ParseJsonE", Other),
            ("gc_malloc", Other),
            ("list_traverse", Other),
        ] {
            assert_eq!(CodeKind::of_function(name, None), kind, "{name}");
        }
        for (runtime, name, kind) in [
            (Runtime::Ruby, "gc_mark_children", Collection),
            (Runtime::Python, "visit_decref.lto_priv.0", Collection),
            (Runtime::Python, "_PyEval_EvalFrameDefault", Other),
            (Runtime::Python, "rgengc_mark", Other),
            (Runtime::R, "RunGenCollect", Collection),
        ] {
            assert_eq!(CodeKind::of_function(name, Some(runtime)), kind, "{name}");
        }
    }
}
