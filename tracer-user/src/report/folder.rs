//! The session folder: readable by its owner alone, because stacks and command lines tell of
//! the target. A file is written under a temporary name and renamed, so that whoever reads it
//! sees the old one or the new one.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::model::Session;
use super::{Options, flamegraph, folded, json, markdown};

/// The file that makes a folder a session.
const SESSION: &str = "session.json";
const SHRINK: &str = "shrink.svg";

/// Why a session folder cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The folder could not be made or looked into.
    #[error("session folder {}: {source}; give another one with -o", path.display())]
    Create {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is something else.
    #[error(
        "{} exists and is not a session folder; give another one with -o, or empty it",
        path.display()
    )]
    NotASession {
        /// What is there.
        path: PathBuf,
    },
    /// No room.
    #[error("no room for {}: {source}; free some, or give a folder on another disk with -o", path.display())]
    Full {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file could not be written.
    #[error("{} cannot be written: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A form could not be made.
    #[error("{} cannot be made: {source}; please report this as a bug of outlive", path.display())]
    Render {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file could not be read.
    #[error("{} cannot be read: {source}; give the folder that an outlive run wrote with -o", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file that is no session of this version.
    #[error("{}: {source}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        source: json::ReadError,
    },
}

/// A session folder that exists and may be written.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes the folder with mode 0700, or takes one that is empty or holds a session, whose
    /// files will be replaced. Called before anything is measured, so that a path that cannot
    /// be written costs nobody a measurement.
    ///
    /// # Errors
    /// When it cannot be made, or is something else.
    pub fn create(path: &Path) -> Result<Self, FolderError> {
        let failed = |source| FolderError::Create { path: path.to_owned(), source };
        let folder = Self { path: path.to_owned() };
        match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => return Ok(folder),
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
            Err(err) => return Err(failed(err)),
        }
        if !fs::metadata(path).map_err(failed)?.is_dir() {
            return Err(FolderError::NotASession { path: path.to_owned() });
        }
        let is_empty = fs::read_dir(path).map_err(failed)?.next().is_none();
        if !is_empty && !path.join(SESSION).is_file() {
            return Err(FolderError::NotASession { path: path.to_owned() });
        }
        fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(failed)?;
        Ok(folder)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes every form of the session, `session.json` first.
    ///
    /// # Errors
    /// When a form cannot be made or a file cannot be written.
    pub fn write(&self, session: &Session, options: &Options) -> Result<(), FolderError> {
        let failed = |name: &str| {
            let path = self.path.join(name);
            move |source| FolderError::Render { path, source }
        };
        self.keep(session)?;
        self.replace("growth.folded", folded::render(session).as_bytes())?;
        self.replace("summary.md", markdown::render(session, options).as_bytes())?;
        let growth = flamegraph::growth(session).map_err(failed("growth.svg"))?;
        self.replace("growth.svg", &growth)?;
        match flamegraph::shrink(session).map_err(failed(SHRINK))? {
            Some(svg) => self.replace(SHRINK, &svg),
            None => self.remove(SHRINK),
        }
    }

    /// Writes `session.json` alone: what a measurement that is not at its end keeps.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn keep(&self, session: &Session) -> Result<(), FolderError> {
        // Straight into the file: of a large session it is longer than all that is in memory.
        self.replace_by(SESSION, |file| {
            let mut out = BufWriter::new(file);
            json::write(session, &mut out)?;
            out.flush()
        })
    }

    /// Writes one file with mode 0600, replacing what is there.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), FolderError> {
        self.replace_by(name, |mut file| file.write_all(bytes))
    }

    fn replace_by(
        &self,
        name: &str,
        write: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<(), FolderError> {
        let temporary = self.path.join(format!(".{name}.{}", std::process::id()));
        let path = self.path.join(name);
        let written = write_new(&temporary, write).and_then(|()| fs::rename(&temporary, &path));
        written.map_err(|source| {
            // The error that matters is the one that we have.
            let _ = fs::remove_file(&temporary);
            match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    FolderError::Full { path, source }
                }
                _ => FolderError::Write { path, source },
            }
        })
    }

    fn remove(&self, name: &str) -> Result<(), FolderError> {
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => {
                Err(FolderError::Write { path, source: err })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Reads the session of a folder, or of a `session.json` itself.
///
/// # Errors
/// When there is none, or one of another version.
pub fn read(path: &Path) -> Result<Session, FolderError> {
    let path = if path.is_dir() { path.join(SESSION) } else { path.to_owned() };
    match File::open(&path) {
        Ok(file) => json::read(file).map_err(|source| FolderError::Parse { path, source }),
        Err(source) => Err(FolderError::Read { path, source }),
    }
}

fn write_new(path: &Path, write: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    // A run that was killed may have left one of this name.
    match fs::remove_file(path) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
        Ok(()) | Err(_) => {}
    }
    let file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    write(&file)?;
    // A disk that is full may tell only now.
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{GroupBy, sample};

    const OPTIONS: Options = Options { top: 10, width: 80, color: false, group_by: GroupBy::Stack };

    /// A folder that goes with the test.
    struct Place(PathBuf);

    impl Place {
        fn new(test: &str) -> Self {
            let path = std::env::temp_dir().join(format!("outlive-{test}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).expect("a folder for the test");
            Self(path)
        }

        fn path(&self) -> PathBuf {
            self.0.join("session")
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("there").permissions().mode() & 0o777
    }

    fn names(path: &Path) -> Vec<String> {
        let entries = fs::read_dir(path).expect("a folder");
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn everything_is_the_owners_alone_and_nothing_temporary_stays() {
        let place = Place::new("modes");
        let folder = Folder::create(&place.path()).expect("a folder");
        folder.write(&sample::leaking(), &OPTIONS).expect("written");
        assert_eq!(mode(&place.path()), 0o700);
        assert_eq!(
            names(&place.path()),
            ["growth.folded", "growth.svg", "session.json", "shrink.svg", "summary.md"]
        );
        for name in names(&place.path()) {
            assert_eq!(mode(&place.path().join(&name)), 0o600, "{name}");
        }
    }

    #[test]
    fn what_is_written_is_read_back_by_folder_and_by_file() {
        let place = Place::new("read");
        let folder = Folder::create(&place.path()).expect("a folder");
        folder.write(&sample::nasty(), &OPTIONS).expect("written");
        assert_eq!(read(&place.path()).expect("a session"), sample::nasty());
        assert_eq!(read(&place.path().join("session.json")).expect("a session"), sample::nasty());
    }

    #[test]
    fn a_session_is_replaced_and_what_no_longer_shrinks_goes() {
        let place = Place::new("again");
        let folder = Folder::create(&place.path()).expect("a folder");
        folder.write(&sample::leaking(), &OPTIONS).expect("written");
        fs::set_permissions(place.path(), Permissions::from_mode(0o755)).expect("a mode");
        let folder = Folder::create(&place.path()).expect("a session folder");
        folder.write(&sample::clean(), &OPTIONS).expect("written");
        assert_eq!(
            names(&place.path()),
            ["growth.folded", "growth.svg", "session.json", "summary.md"]
        );
        assert_eq!(mode(&place.path()), 0o700);
    }

    #[test]
    fn what_is_no_session_is_left_alone() {
        let place = Place::new("other");
        fs::create_dir(place.path()).expect("a folder");
        fs::write(place.path().join("thesis.tex"), "years of work").expect("a file");
        for path in [place.path(), place.path().join("thesis.tex")] {
            let err = Folder::create(&path).expect_err("not a session").to_string();
            assert_eq!(
                err,
                format!(
                    "{} exists and is not a session folder; give another one with -o, or empty it",
                    path.display()
                )
            );
        }
        assert_eq!(names(&place.path()), ["thesis.tex"]);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_said() {
        let place = Place::new("deep");
        let err = Folder::create(&place.path().join("a/b")).expect_err("no parent").to_string();
        assert!(
            err.starts_with("session folder ") && err.ends_with("give another one with -o"),
            "{err}"
        );
        let err = read(&place.path()).expect_err("nothing there").to_string();
        assert!(err.contains("cannot be read"), "{err}");
    }

    #[test]
    fn a_file_that_cannot_be_replaced_is_said_and_leaves_nothing_temporary() {
        let place = Place::new("blocked");
        let folder = Folder::create(&place.path()).expect("a folder");
        fs::create_dir_all(place.path().join("session.json/inside")).expect("in the way");
        let err = folder.write(&sample::clean(), &OPTIONS).expect_err("in the way").to_string();
        assert!(err.contains("session.json cannot be written"), "{err}");
        assert_eq!(names(&place.path()), ["session.json"]);
    }
}
