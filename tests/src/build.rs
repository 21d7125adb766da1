//! Builds workloads, once per content: the result's folder is named by a hash of the sources
//! and flags.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::scratch::{target_folder, workloads};

/// Flags under which every function keeps its frame and every allocator call stays a call.
const PLAIN: &[&str] = &["-O0", "-g", "-fno-omit-frame-pointer", "-fno-builtin", "-pthread"];

/// One workload and how to compile it.
#[derive(Clone, Debug)]
pub struct Build {
    compiler: String,
    /// Path below `workloads/`.
    source: String,
    output: String,
    flags: Vec<String>,
}

impl Build {
    /// A C program, by the file's name in `workloads/c`.
    pub fn c(file: &str) -> Self {
        Self::with("cc", &format!("c/{file}"), PLAIN)
    }

    /// The same against musl libc.
    pub fn musl(file: &str) -> Self {
        Self::with("musl-gcc", &format!("c/{file}"), PLAIN)
    }

    /// A C++ program, by the file's name in `workloads/cpp`.
    pub fn cpp(file: &str) -> Self {
        Self::with("c++", &format!("cpp/{file}"), PLAIN)
    }

    /// A C library, by its source's path below `workloads/` and its own file name.
    pub fn library(source: &str, name: &str) -> Self {
        let mut build = Self::with("cc", source, PLAIN).flag("-shared").flag("-fPIC");
        name.clone_into(&mut build.output);
        build
    }

    /// A Rust program, by the file's name in `workloads/rust`.
    pub fn rust(file: &str) -> Self {
        let flags = ["--edition=2024", "-g", "-O", "-Cforce-frame-pointers=yes"];
        Self::with("rustc", &format!("rust/{file}"), &flags)
    }

    /// A Go program, by the file's name in `workloads/go`, with or without calls of C.
    pub fn go(file: &str, calls_c: bool) -> Self {
        let calls_c = format!("CGO_ENABLED={}", u8::from(calls_c));
        // The C part is compiled as every other workload is.
        let flags = [&calls_c, "CGO_CFLAGS=-O0 -g -fno-omit-frame-pointer", "go", "build"];
        Self::with("env", &format!("go/{file}"), &flags)
    }

    fn with(compiler: &str, source: &str, flags: &[&str]) -> Self {
        let stem = Path::new(source).file_stem().unwrap_or_default();
        Self {
            compiler: compiler.to_owned(),
            source: source.to_owned(),
            output: stem.to_string_lossy().into_owned(),
            flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
        }
    }

    /// One more flag for the compiler.
    #[must_use]
    pub fn flag(mut self, flag: impl Into<String>) -> Self {
        self.flags.push(flag.into());
        self
    }

    /// Replaces all flags.
    #[must_use]
    pub fn only_flags(mut self, flags: &[&str]) -> Self {
        self.flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        self
    }

    /// Compiles where that was not done before; the result's path.
    pub fn build(&self) -> PathBuf {
        self.try_build().unwrap_or_else(|err| panic!("{err}"))
    }

    /// As [`Build::build`], for flags that a machine's tools may lack.
    ///
    /// # Errors
    /// What the compiler said.
    pub fn try_build(&self) -> Result<PathBuf, String> {
        let folder = target_folder().join("workloads").join(format!("{:016x}", self.hash()));
        let result = folder.join(&self.output);
        if result.exists() {
            return Ok(result);
        }
        fs::create_dir_all(&folder).map_err(|err| format!("{}: {err}", folder.display()))?;

        // Another test may build the same at this moment: each under its own name, the last wins.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let draft = folder.join(format!("draft-{}-{number}", std::process::id()));
        self.compile(&draft)?;
        fs::rename(&draft, &result).map_err(|err| format!("{}: {err}", result.display()))?;
        Ok(result)
    }

    /// Compiles into this folder, whatever there is; the result's path.
    pub fn build_in(&self, folder: &Path) -> PathBuf {
        let result = folder.join(&self.output);
        self.compile(&result).unwrap_or_else(|err| panic!("{err}"));
        result
    }

    fn compile(&self, result: &Path) -> Result<(), String> {
        // Libraries that are linked to come after what needs them.
        let (libraries, flags): (Vec<_>, Vec<_>) =
            self.flags.iter().partition(|flag| flag.starts_with("-l") || flag.starts_with('/'));
        let output = Command::new(&self.compiler)
            .args(flags)
            .arg("-o")
            .arg(result)
            .arg(workloads().join(&self.source))
            .args(libraries)
            .output()
            .map_err(|err| format!("cannot run {}: {err}", self.compiler))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{} cannot compile {}:\n{said}", self.compiler, self.source));
        }
        Ok(())
    }

    fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.compiler, &self.source, &self.output, &self.flags).hash(&mut hasher);
        for file in [self.source.as_str(), "c/batch.h", "c/step.h", "c/functions.h"] {
            let path = workloads().join(file);
            fs::read(&path)
                .unwrap_or_else(|err| panic!("cannot read {}: {err}", path.display()))
                .hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// The path of a library that the linker would take for `-l:name`.
pub fn library_path(name: &str) -> String {
    let output = Command::new("cc").arg(format!("-print-file-name={name}")).output();
    let output = output.unwrap_or_else(|err| panic!("cannot run cc: {err}"));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// jemalloc's static library with `_rjem_` before each name that it offers, as Rust programs
/// have it.
pub fn prefixed_jemalloc() -> PathBuf {
    const NAMES: &[&str] = &[
        "malloc",
        "free",
        "calloc",
        "realloc",
        "posix_memalign",
        "aligned_alloc",
        "memalign",
        "valloc",
        "malloc_usable_size",
        "mallocx",
        "rallocx",
        "xallocx",
        "sallocx",
        "dallocx",
        "sdallocx",
        "nallocx",
        "mallctl",
        "mallctlnametomib",
        "mallctlbymib",
        "malloc_stats_print",
        "malloc_conf",
        "malloc_message",
    ];
    let folder = target_folder().join("workloads");
    fs::create_dir_all(&folder).unwrap_or_else(|err| panic!("{}: {err}", folder.display()));
    let result = folder.join("librjem.a");
    let draft = folder.join(format!("librjem-{}.a", std::process::id()));
    let renames = NAMES.iter().map(|name| format!("--redefine-sym={name}=_rjem_{name}"));
    let status = Command::new("objcopy")
        .args(renames)
        .arg(library_path("libjemalloc.a"))
        .arg(&draft)
        .status();
    assert!(status.is_ok_and(|status| status.success()), "objcopy cannot rename symbols");
    fs::rename(&draft, &result).unwrap_or_else(|err| panic!("{}: {err}", result.display()));
    result
}

/// Path of the interpreter that `python3` means; a version manager puts a script in its place.
pub fn python() -> PathBuf {
    asked("python3", "import sys;print(sys.executable)").into()
}

/// Folder of the workload's Python extension.
pub fn python_extension() -> PathBuf {
    let include = asked("python3", "import sysconfig;print(sysconfig.get_path('include'))");
    let library = Build::library("python/leaky_extension.c", "leaky_extension.so")
        .flag(format!("-I{include}"))
        .build();
    library.parent().map_or_else(PathBuf::new, Path::to_owned)
}

/// The same for any version of Python 3.
pub fn python_extension_for_all() -> PathBuf {
    let include = asked("python3", "import sysconfig;print(sysconfig.get_path('include'))");
    let library = Build::library("python/leaky_extension.c", "leaky_extension.so")
        .flag(format!("-I{include}"))
        .flag("-DPy_LIMITED_API=0x03070000")
        .build();
    library.parent().map_or_else(PathBuf::new, Path::to_owned)
}

/// Path of the workload's Node.js addon.
pub fn node_addon() -> PathBuf {
    let headers = node_headers().join("node_modules/node-api-headers/include");
    Build::library("node/leaky_addon.c", "leaky_addon.node")
        .flag(format!("-I{}", headers.display()))
        .build()
}

/// Installs the headers for addons, once per lock file.
fn node_headers() -> PathBuf {
    static ONCE: OnceLock<PathBuf> = OnceLock::new();
    ONCE.get_or_init(|| {
        let mut hasher = DefaultHasher::new();
        let files = ["package.json", "package-lock.json"];
        for file in files {
            fs::read(workloads().join("node").join(file)).unwrap_or_default().hash(&mut hasher);
        }
        let folder =
            target_folder().join("workloads").join(format!("npm-{:016x}", hasher.finish()));
        if folder.join("node_modules/.package-lock.json").exists() {
            return folder;
        }
        fs::create_dir_all(&folder).unwrap_or_else(|err| panic!("{}: {err}", folder.display()));
        for file in files {
            fs::copy(workloads().join("node").join(file), folder.join(file))
                .unwrap_or_else(|err| panic!("cannot copy {file}: {err}"));
        }
        let output = Command::new("npm").args(["ci", "--silent"]).current_dir(&folder).output();
        match output {
            Ok(output) if output.status.success() => folder,
            other => panic!("npm ci in {}: {other:?}", folder.display()),
        }
    })
    .clone()
}

/// Folder of the classes of the workload in Java.
pub fn java_classes() -> PathBuf {
    let source = workloads().join("java/Generated.java");
    let text = fs::read(&source).unwrap_or_else(|err| panic!("{}: {err}", source.display()));
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let folder = target_folder().join("workloads").join(format!("java-{:016x}", hasher.finish()));
    let output = Command::new("javac").arg("-d").arg(&folder).arg(&source).output();
    match output {
        Ok(output) if output.status.success() => folder,
        other => panic!("javac of {}: {other:?}", source.display()),
    }
}

/// What a short program in Python prints.
fn asked(python: &str, program: &str) -> String {
    let output = Command::new(python)
        .args(["-c", program])
        .output()
        .unwrap_or_else(|err| panic!("cannot run {python}: {err}"));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
