//! What is to be sent: files, folders with all that is in them, standard input, or a pattern.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ccplane_files::name;
use ccplane_files::wire::{Entry, What};
use ccplane_units::Bytes;

use crate::exit::{Failure, Kind};

/// One of what is sent, and where its bytes are.
#[derive(Debug)]
pub(super) struct Item {
    pub entry: Entry,
    pub from: From,
}

/// Where bytes come from.
#[derive(Debug)]
pub(super) enum From {
    /// A regular file, opened when its turn comes.
    File(PathBuf),
    /// What ends when its writer says so.
    Pipe(File),
    /// A pattern.
    Pattern,
    /// A folder has none.
    Nowhere,
}

/// All of it, in the order in which it is sent.
pub(super) fn gather(paths: &[PathBuf], pattern: Option<Bytes>) -> Result<Vec<Item>, Failure> {
    let mut items = Vec::new();
    if let Some(bytes) = pattern {
        let what = What::File {
            bytes: bytes.get(),
            executable: false,
        };
        items.push(Item {
            entry: Entry { name: Vec::new(), what },
            from: From::Pattern,
        });
    }
    for path in paths {
        named(path, &mut items)?;
    }
    check(&items)?;
    Ok(items)
}

/// What stands on the command line: a link is followed.
fn named(path: &Path, items: &mut Vec<Item>) -> Result<(), Failure> {
    if path == Path::new("-") {
        let input = io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|why| unreadable(path, &why))?;
        return pipe(File::from(input), items);
    }
    let about = fs::metadata(path).map_err(|why| unreadable(path, &why))?;
    if !about.is_dir() && !about.is_file() {
        return pipe(File::open(path).map_err(|why| unreadable(path, &why))?, items);
    }
    // `.` and `..` have a name too.
    let whole = fs::canonicalize(path).map_err(|why| unreadable(path, &why))?;
    let name = if path.file_name().is_some() { path } else { &whole };
    let Some(name) = name.file_name() else {
        return Err(
            Failure::text(Kind::Usage, format!("{} has no name to send it under", path.display()))
                .hint("send what is in it, as /etc /home"),
        );
    };
    add(path, name.as_bytes().to_vec(), &about, items)
}

fn pipe(input: File, items: &mut Vec<Item>) -> Result<(), Failure> {
    if items.iter().any(|item| matches!(item.from, From::Pipe(_))) {
        return Err(
            Failure::text(Kind::Usage, "two of what is sent have no length and no name")
                .hint("send one of them at a time"),
        );
    }
    items.push(Item {
        entry: Entry {
            name: Vec::new(),
            what: What::Stream,
        },
        from: From::Pipe(input),
    });
    Ok(())
}

fn add(path: &Path, name: Vec<u8>, about: &Metadata, items: &mut Vec<Item>) -> Result<(), Failure> {
    if about.is_dir() {
        items.push(Item {
            entry: Entry {
                name: name.clone(),
                what: What::Folder,
            },
            from: From::Nowhere,
        });
        return folder(path, &name, items);
    }
    let what = What::File {
        bytes: about.len(),
        executable: about.permissions().mode() & 0o100 != 0,
    };
    items.push(Item {
        entry: Entry { name, what },
        from: From::File(path.to_owned()),
    });
    Ok(())
}

/// What is in a folder, in the order of names. A link is not followed: it may lead out, or round in a circle.
fn folder(path: &Path, name: &[u8], items: &mut Vec<Item>) -> Result<(), Failure> {
    let read = |why: io::Error| unreadable(path, &why);
    let mut inside = fs::read_dir(path)
        .map_err(read)?
        .collect::<Result<Vec<_>, _>>()
        .map_err(read)?;
    inside.sort_by_key(fs::DirEntry::file_name);
    for entry in inside {
        let path = entry.path();
        let about = fs::symlink_metadata(&path).map_err(|why| unreadable(&path, &why))?;
        if about.is_dir() || about.is_file() {
            let name = [name, b"/", entry.file_name().as_bytes()].concat();
            add(&path, name, &about, items)?;
        } else {
            tracing::warn!("{} is not sent: links and special files are left out", path.display());
        }
    }
    Ok(())
}

/// What any receiver would refuse is said before anything is sent. Hidden files some receivers take, and some do not.
fn check(items: &[Item]) -> Result<(), Failure> {
    let mut names = BTreeSet::new();
    for Item { entry, .. } in items.iter().filter(|item| !item.entry.name.is_empty()) {
        name::path(&entry.name, true).map_err(|why| {
            Failure::new(Kind::Usage, why)
                .hint("rename it, or send an archive: tar -c FOLDER | ccplane send HOST:PORT -")
        })?;
        if !names.insert(&entry.name) {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            return Err(
                Failure::text(Kind::Usage, format!("two of what is sent are called {name}"))
                    .hint("rename one of them, or send them one after the other"),
            );
        }
    }
    Ok(())
}

pub(super) fn unreadable(path: &Path, why: &io::Error) -> Failure {
    Failure::text(Kind::Failed, format!("{} cannot be read: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn names(items: &[Item]) -> Vec<String> {
        items
            .iter()
            .map(|item| String::from_utf8_lossy(&item.entry.name).into_owned())
            .collect()
    }

    #[test]
    fn a_folder_is_all_that_is_in_it_without_links() {
        let folder = Folder(std::env::temp_dir().join(format!("ccplane-gather-{}", std::process::id())));
        let root = folder.0.join("photos");
        fs::create_dir_all(root.join("empty")).unwrap();
        fs::create_dir_all(root.join("day")).unwrap();
        fs::write(root.join("day/b.jpg"), "bb").unwrap();
        fs::write(root.join("day/a.jpg"), "a").unwrap();
        std::os::unix::fs::symlink("/etc", root.join("link")).unwrap();
        let items = gather(std::slice::from_ref(&root), None).unwrap();
        assert_eq!(
            names(&items),
            [
                "photos",
                "photos/day",
                "photos/day/a.jpg",
                "photos/day/b.jpg",
                "photos/empty"
            ]
        );
        assert_eq!(
            items[3].entry.what,
            What::File {
                bytes: 2,
                executable: false
            }
        );

        // By another way to it, the same name.
        let again = gather(&[root.join("day/..")], None).unwrap();
        assert_eq!(names(&again)[0], "photos");
        let twice = gather(&[root.join("day/a.jpg"), root.join("day/a.jpg")], None).unwrap_err();
        assert!(twice.to_string().contains("called a.jpg"), "{twice}");
        fs::write(root.join(".hidden"), "").unwrap();
        assert!(gather(&[root], None).is_ok());
    }
}
