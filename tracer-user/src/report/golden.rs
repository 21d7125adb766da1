//! Expected output as files, `tests/golden/<form>/<case>`. `UPDATE_GOLDEN=1` writes them; a
//! file that is missing is a failure, because a new test must not pass by itself.

use std::path::Path;

pub(crate) fn check(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        let folder = path.parent().expect("a folder");
        std::fs::create_dir_all(folder).expect("a folder for golden files");
        std::fs::write(&path, actual).expect("a golden file");
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_else(|err| {
        panic!("{}: {err}; write it with UPDATE_GOLDEN=1", path.display());
    });
    if expected != actual {
        let seen = std::env::temp_dir().join(format!("outlive-golden-{}", name.replace('/', "-")));
        std::fs::write(&seen, actual).expect("a temporary file");
        panic!(
            "{} differs from {}; look at the difference, and if it is right, UPDATE_GOLDEN=1",
            path.display(),
            seen.display()
        );
    }
}
