//! Reading files: regular ones, of a bounded size when they are compressed.

use crate::{Error, Result};
use flate2::read::MultiGzDecoder;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek};
use std::path::Path;

/// How many times larger than its file a content may be; texts reach 10, columns of equal numbers 50.
pub const RATIO: u64 = 100;
/// What may be unpacked of the smallest file, in bytes.
const LEAST: u64 = 64 << 20;

/// How a file begins that Git LFS left in place of a large one, and its length at most.
const LFS: &[u8] = b"version https://git-lfs.github.com/spec/";
const LONGEST_POINTER: u64 = 1024;

fn refuse_pointer(file: &mut File) -> io::Result<()> {
    let mut beginning = [0; LFS.len()];
    file.read_exact(&mut beginning)?;
    if beginning == LFS {
        let problem = "it is a pointer of Git LFS in place of the file, which `git lfs pull` in its repository fetches";
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    file.rewind()
}

/// Opens a regular file. A pipe or a device is refused and not waited for.
///
/// # Errors
/// When it cannot be opened, or is something else, a pointer of Git LFS among them.
pub fn open(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt;
        // The file stays non-blocking: some that look regular, below /proc, would block as well.
        options.custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed());
    }
    let mut file = options.open(path).map_err(Error::io("read", path))?;
    let facts = file.metadata().map_err(Error::io("read", path))?;
    let kind = facts.file_type();
    let found = if kind.is_file() {
        if (LFS.len() as u64..LONGEST_POINTER).contains(&facts.len()) {
            refuse_pointer(&mut file).map_err(Error::io("read", path))?;
        }
        return Ok(file);
    } else if kind.is_dir() {
        "a directory"
    } else {
        "a device or a pipe"
    };
    Err(Error::Kind { path: path.to_owned(), found, expected: "a regular file" })
}

/// The content of a regular file.
///
/// # Errors
/// As [`open`], and when it cannot be read.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let mut file = open(path)?;
    let mut content = Vec::new();
    let size = file.metadata().map_or(0, |found| found.len());
    let reserved = content.try_reserve_exact(usize::try_from(size).unwrap_or(usize::MAX));
    reserved
        .map_err(|_| io::Error::new(io::ErrorKind::OutOfMemory, format!("no room for its {size} bytes in memory")))
        .and_then(|()| file.read_to_end(&mut content))
        .map_err(Error::io("read", path))?;
    Ok(content)
}

/// The content of a regular file of text.
///
/// # Errors
/// As [`read`], and when it is not UTF-8.
pub fn read_to_string(path: &Path) -> Result<String> {
    let invalid = |error: std::string::FromUtf8Error| {
        let place = error.utf8_error().valid_up_to();
        Error::io("read", path)(io::Error::new(io::ErrorKind::InvalidData, format!("byte {place} is not UTF-8")))
    };
    String::from_utf8(read(path)?).map_err(invalid)
}

/// The most that is unpacked of `stored` bytes.
pub fn unpacked_limit(stored: u64) -> u64 {
    stored.saturating_mul(RATIO).max(LEAST)
}

/// The content of a gzip file that is in memory; `path` is for messages.
///
/// # Errors
/// When it is damaged, or unpacks to more than [`unpacked_limit`].
pub fn gunzip(path: &Path, packed: &[u8]) -> Result<Vec<u8>> {
    unpack(path, MultiGzDecoder::new(packed), packed.len() as u64)
}

/// How files begin that are packed otherwise than by gzip.
const PACKED: [(&[u8], &str); 4] = [
    (b"PK\x03\x04", "a zip archive"),
    (b"\xfd7zXZ\0", "packed by xz"),
    (b"\x28\xb5\x2f\xfd", "packed by zstd"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
];

/// How Parquet files begin and end.
const PARQUET: &[u8] = b"PAR1";

/// `stored`, unpacked if it is a gzip file, which its content tells; `path` is for messages.
///
/// # Errors
/// As [`gunzip`], and when it is packed otherwise.
pub fn unzipped(path: &Path, stored: Vec<u8>) -> Result<Vec<u8>> {
    if stored.starts_with(&[0x1f, 0x8b]) {
        return gunzip(path, &stored);
    }
    if stored.starts_with(PARQUET) && stored.ends_with(PARQUET) {
        let problem = "it is a Parquet file: write it as JSON lines, which pandas' `read_parquet(FILE).to_json(OUT, orient=\"records\", \
                       lines=True)` does";
        return Err(Error::io("read", path)(io::Error::new(io::ErrorKind::InvalidData, problem)));
    }
    let beginning = PACKED.iter().find(|(beginning, _)| stored.starts_with(beginning)).map(|(_, how)| *how);
    // Behind the level.
    let is_bzip2 = stored.starts_with(b"BZh") && stored.get(4..).is_some_and(|rest| rest.starts_with(b"1AY&SY"));
    match beginning.or_else(|| is_bzip2.then_some("packed by bzip2")) {
        Some(how) => {
            let problem = format!("it is {how}: unpack it, or pack it by gzip, which alone is read");
            Err(Error::io("read", path)(io::Error::new(io::ErrorKind::InvalidData, problem)))
        }
        None => Ok(stored),
    }
}

/// What `reader` unpacks from `stored` bytes of a file; `path` is for messages.
///
/// # Errors
/// When it is damaged, or more than [`unpacked_limit`].
pub fn unpack(path: &Path, reader: impl Read, stored: u64) -> Result<Vec<u8>> {
    let limit = unpacked_limit(stored);
    let mut content = Vec::new();
    reader.take(limit + 1).read_to_end(&mut content).map_err(Error::io("unpack", path))?;
    if content.len() as u64 > limit {
        return Err(Error::Unpacked { path: path.to_owned(), limit });
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    #[test]
    fn pointers_of_git_lfs_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("model.safetensors");
        let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 7\n";
        std::fs::write(&path, pointer).unwrap();
        let message = read(&path).unwrap_err().to_string();
        assert!(message.contains("model.safetensors") && message.contains("git lfs pull"), "{message}");
        let other = pointer.replace("git-lfs", "git-lsf");
        std::fs::write(&path, &other).unwrap();
        assert_eq!(read_to_string(&path).unwrap(), other);
    }

    #[test]
    fn what_expands_out_of_proportion_is_refused() {
        let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
        for _ in 0..80 {
            bomb.write_all(&vec![0; 1 << 20]).unwrap();
        }
        let bomb = bomb.finish().unwrap();
        assert!(bomb.len() < 200_000);
        let message = gunzip(Path::new("bomb.gz"), &bomb).unwrap_err().to_string();
        assert!(message.starts_with("bomb.gz unpacks to more than 67108864 bytes"), "{message}");
        let mut text = GzEncoder::new(Vec::new(), Compression::best());
        text.write_all(b"a text").unwrap();
        let text = text.finish().unwrap();
        assert_eq!(gunzip(Path::new("a.gz"), &text).unwrap(), b"a text");
        assert_eq!(unzipped(Path::new("a"), text.clone()).unwrap(), b"a text");
        assert_eq!(unzipped(Path::new("a"), b"a text".to_vec()).unwrap(), b"a text");
        assert!(gunzip(Path::new("a.gz"), &text[..text.len() - 4]).is_err());
        for (packed, how) in [
            (&b"PK\x03\x04 and more"[..], "a zip archive"),
            (b"BZh91AY&SY and more", "packed by bzip2"),
            (b"\xfd7zXZ\0 and more", "packed by xz"),
            (b"\x28\xb5\x2f\xfd and more", "packed by zstd"),
            (b"7z\xbc\xaf\x27\x1c and more", "a 7z archive"),
        ] {
            let refused = unzipped(Path::new("a"), packed.to_vec()).unwrap_err().to_string();
            assert!(refused.contains(&format!("it is {how}: unpack it")), "{refused}");
        }
        let parquet = unzipped(Path::new("a"), b"PAR1 and more PAR1".to_vec()).unwrap_err().to_string();
        assert!(parquet.contains("it is a Parquet file: write it as JSON lines"), "{parquet}");
        assert_eq!(unzipped(Path::new("a"), b"BZh is a word".to_vec()).unwrap(), b"BZh is a word");
    }

    #[test]
    #[cfg(unix)]
    fn only_regular_files_are_read_and_nothing_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let message = read(&pipe).unwrap_err().to_string();
        assert!(message.ends_with("pipe is a device or a pipe: expected a regular file"), "{message}");
        assert!(read(Path::new("/dev/zero")).is_err() && read(directory.path()).is_err());
        assert!(read(&directory.path().join("none")).unwrap_err().is_not_found());
        // As root it opens, and to read it would wait for the kernel to say something.
        let _ = read(Path::new("/proc/kmsg"));
    }
}
