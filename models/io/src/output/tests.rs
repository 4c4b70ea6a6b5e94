use super::*;

fn entries(path: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn folders_appear_whole_and_replace_whole() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("new/adapter");
    write_folder(&folder, &[("a", b"1"), ("b", b"2")], Existing::Refuse).unwrap();
    assert!(matches!(write_folder(&folder, &[("a", b"3")], Existing::Refuse), Err(Error::Exists(_))));
    assert_eq!(fs::read(folder.join("a")).unwrap(), b"1");
    write_folder(&folder, &[("a", b"3")], Existing::Replace).unwrap();
    assert_eq!(entries(&folder), ["a"]);
    assert_eq!(entries(&root.path().join("new")), ["adapter"]);
}

#[test]
fn a_failure_leaves_what_was_there_and_no_litter() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("adapter");
    write_folder(&folder, &[("a", b"1")], Existing::Refuse).unwrap();
    // The second file cannot be created: its folder does not exist.
    let broken: &[(&str, &[u8])] = &[("a", b"2"), ("missing/b", b"2")];
    assert!(write_folder(&folder, broken, Existing::Replace).is_err());
    assert!(write_folder(&root.path().join("x/y/z"), broken, Existing::Refuse).is_err());
    assert_eq!(fs::read(folder.join("a")).unwrap(), b"1");
    let message = write_file(&root.path().join("no/such/file"), b"2", Existing::Refuse).unwrap_err().to_string();
    let [path, above] = ["no/such/file", "no/such"].map(|name| root.path().join(name).display().to_string());
    assert!(message.starts_with(&format!("cannot write {path}: there is no folder {above};")), "{message}");
    // A file is none.
    let message = write_file(&folder.join("a/b"), b"2", Existing::Refuse).unwrap_err().to_string();
    assert!(message.contains("there is no folder"), "{message}");
    // A file does not replace a folder, nor a folder a file.
    assert!(write_file(&folder, b"2", Existing::Replace).is_err());
    assert!(write_folder(&folder.join("a"), &[], Existing::Replace).is_err());
    assert_eq!(entries(root.path()), ["adapter"]);
    write_file(&folder.join("a"), b"4", Existing::Replace).unwrap();
    assert_eq!(fs::read(folder.join("a")).unwrap(), b"4");
}

#[test]
fn what_appears_at_the_last_instant_is_not_replaced() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("model");
    let pending = PendingFolder::create(&folder, Existing::Refuse).unwrap();
    pending.write("weights", b"random").unwrap();
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("thesis"), "years").unwrap();
    assert!(matches!(pending.commit(), Err(Error::Exists(_))));
    assert_eq!(entries(&folder), ["thesis"]);
    assert_eq!(entries(root.path()), ["model"]);

    let file = root.path().join("out.npz");
    let mut outputs = Outputs::new();
    outputs.file(&file, b"new", Existing::Refuse).unwrap();
    fs::write(&file, "old").unwrap();
    assert!(matches!(outputs.commit(), Err(Error::Exists(_))));
    assert_eq!(fs::read(&file).unwrap(), b"old");
    assert_eq!(entries(root.path()), ["model", "out.npz"]);
}

#[test]
fn files_that_belong_together_come_together_or_not_at_all() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let mut outputs = Outputs::new();
    outputs.create_folder(&at("plots/deep")).unwrap();
    outputs.file(&at("certificate"), b"1", Existing::Refuse).unwrap();
    outputs.file(&at("result"), b"2", Existing::Refuse).unwrap();
    assert!(!at("certificate").exists());
    fs::write(at("result"), "another's").unwrap();
    assert!(outputs.commit().is_err());
    assert_eq!(entries(root.path()), ["result"], "the certificate was taken back, the folders as well");
    fs::remove_file(at("result")).unwrap();

    let mut outputs = Outputs::new();
    outputs.file(&at("certificate"), b"1", Existing::Refuse).unwrap();
    assert!(outputs.file(&at("missing/result"), b"2", Existing::Refuse).is_err());
    drop(outputs);
    assert!(entries(root.path()).is_empty());
}

#[test]
fn one_of_several_at_once_gets_the_name() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("out");
    let write = |number: u8| {
        let folder = folder.clone();
        std::thread::spawn(move || write_folder(&folder, &[("n", &[number])], Existing::Refuse).is_ok())
    };
    let threads: Vec<_> = (0..8).map(write).collect();
    let wins = threads.into_iter().map(|thread| thread.join().unwrap()).filter(|won| *won).count();
    assert_eq!((wins, entries(root.path())), (1, vec!["out".to_owned()]));
}

#[test]
fn what_is_removed_loses_its_name_at_once() {
    let root = tempfile::tempdir().unwrap();
    write_folder(&root.path().join("a"), &[("x", b"1")], Existing::Refuse).unwrap();
    remove_whole(&root.path().join("a")).unwrap();
    assert!(entries(root.path()).is_empty());
}

#[cfg(unix)]
mod special {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::{FileTypeExt, symlink};

    fn pipe(path: &Path) {
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    }

    #[test]
    fn a_device_is_written_to_and_stays() {
        write_file(Path::new("/dev/null"), b"page", Existing::Replace).unwrap();
        assert!(Path::new("/dev/null").symlink_metadata().unwrap().file_type().is_char_device());
        let root = tempfile::tempdir().unwrap();
        let link = root.path().join("link");
        symlink("/dev/null", &link).unwrap();
        write_file(&link, b"page", Existing::Replace).unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        let message = write_file(Path::new("/dev/full"), b"page", Existing::Replace).unwrap_err().to_string();
        assert!(message.starts_with("cannot write /dev/full"), "{message}");
    }

    #[test]
    fn a_pipe_is_written_to_and_stays() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("pipe");
        pipe(&path);
        assert!(write_file(&path, b"page", Existing::Replace).is_err(), "nobody reads it");
        // Opened for both, so that opening waits for nobody.
        let mut reader = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        write_file(&path, b"page", Existing::Replace).unwrap();
        let mut page = [0; 4];
        reader.read_exact(&mut page).unwrap();
        assert_eq!(&page, b"page");
        assert_eq!(entries(root.path()), ["pipe"]);
        assert!(path.symlink_metadata().unwrap().file_type().is_fifo());
        assert!(write_folder(&path, &[], Existing::Replace).is_err());
    }

    #[test]
    fn a_link_is_neither_followed_nor_replaced() {
        let root = tempfile::tempdir().unwrap();
        let (precious, link) = (root.path().join("precious"), root.path().join("report.html"));
        fs::write(&precious, "precious").unwrap();
        symlink(&precious, &link).unwrap();
        let message = write_file(&link, b"page", Existing::Replace).unwrap_err().to_string();
        assert!(message.contains("report.html is a link"), "{message}");
        assert_eq!(fs::read(&precious).unwrap(), b"precious");
        assert!(link.symlink_metadata().unwrap().is_symlink());
    }
}

#[test]
fn a_file_written_in_pieces_appears_whole_or_not_at_all() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("deep/model");
    let mut dropped = PendingFile::create(&path, Existing::Refuse).unwrap();
    dropped.write(b"half").unwrap();
    assert_eq!(fs::read(dropped.flushed().unwrap()).unwrap(), b"half");
    drop(dropped);
    assert!(!root.path().join("deep").exists());
    let mut whole = PendingFile::create(&path, Existing::Refuse).unwrap();
    whole.write(b"who").unwrap();
    whole.write(b"le").unwrap();
    assert!(!path.exists());
    whole.commit().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"whole");
    assert!(PendingFile::create(&path, Existing::Refuse).is_err());
    assert_eq!(fs::read_dir(root.path().join("deep")).unwrap().count(), 1);
}
