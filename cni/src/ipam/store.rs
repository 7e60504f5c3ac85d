//! Reservations on disk, laid out like those of the `host-local` plugin.
//!
//! ```text
//! <dir>/lock                  flock: one call at a time
//! <dir>/10.244.0.7            "<container id>\r\n<ifname>": the reservation, the only truth
//! <dir>/last_reserved_ip.0    where the round robin is
//! <dir>/owners/<hash>         "10.244.0.7": a hint that saves reading every reservation; written first
//! ```
//!
//! A reservation appears complete or not at all (link(2) of a finished file), so a call killed
//! anywhere leaves either nothing or a reservation that its owner's DEL, or [`Store::retain`],
//! finds. Nothing is synced to disk: after a crash of the machine there are no pods that could hold
//! an address, and what is left half written is collectable.

use std::{
    collections::HashSet,
    fs::{self, File},
    io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use nix::fcntl::{Flock, FlockArg};
use sha2::{Digest as _, Sha256};

use crate::error::CniError;

const LAST: &str = "last_reserved_ip.0";

/// Who has an address: one interface of one sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    /// CNI_CONTAINERID.
    pub container_id: String,
    /// CNI_IFNAME.
    pub ifname: String,
}

impl Owner {
    fn body(&self) -> String {
        format!("{}\r\n{}", self.container_id, self.ifname)
    }

    fn parse(body: &str) -> Option<Self> {
        let (container_id, ifname) = body.split_once("\r\n")?;
        Some(Self {
            container_id: container_id.to_owned(),
            ifname: ifname.trim_end().to_owned(),
        })
    }

    fn hash(&self) -> String {
        hex::encode(&Sha256::digest(self.body())[..16])
    }
}

/// One network's reservations, locked.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    /// Held until drop.
    _lock: Flock<File>,
}

impl Store {
    /// Opens and locks the directory, making it if needed. Blocks while another call holds it.
    ///
    /// # Errors
    /// [`CniError::Io`].
    pub fn open(dir: &Path) -> Result<Self, CniError> {
        fs::create_dir_all(dir.join("owners")).map_err(|e| failed("make", dir, e))?;
        let path = dir.join("lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|source| failed("open", &path, source))?;
        let lock = Flock::lock(file, FlockArg::LockExclusive)
            .map_err(|(_, e)| failed("lock", &path, e.into()))?;
        Ok(Self {
            dir: dir.to_owned(),
            _lock: lock,
        })
    }

    /// As [`Store::open`], but makes nothing.
    ///
    /// # Errors
    /// [`CniError::Io`].
    pub fn open_existing(dir: &Path) -> Result<Option<Self>, CniError> {
        if dir.is_dir() {
            Self::open(dir).map(Some)
        } else {
            Ok(None)
        }
    }

    /// The address of `owner`.
    ///
    /// # Errors
    /// [`CniError::Io`].
    pub fn find(&self, owner: &Owner) -> Result<Option<Ipv4Addr>, CniError> {
        let hint = self
            .read(&self.hint(owner))?
            .and_then(|text| text.trim().parse::<Ipv4Addr>().ok());
        Ok(match hint {
            Some(address) if self.owner(address)?.as_ref() == Some(owner) => Some(address),
            _ => None,
        })
    }

    /// Whether somebody has `address`.
    #[must_use]
    pub fn is_reserved(&self, address: Ipv4Addr) -> bool {
        self.reservation(address).exists()
    }

    /// Reserves `address`; false if somebody has it.
    ///
    /// # Errors
    /// [`CniError::Io`].
    pub fn try_reserve(&self, address: Ipv4Addr, owner: &Owner) -> Result<bool, CniError> {
        let hint = self.hint(owner);
        fs::write(&hint, address.to_string()).map_err(|e| failed("write", &hint, e))?;
        let unfinished = self.dir.join("unfinished");
        // One that a killed call left may be linked to its reservation: writing into it would
        // change that.
        remove(&unfinished)?;
        fs::write(&unfinished, owner.body()).map_err(|e| failed("write", &unfinished, e))?;
        let path = self.reservation(address);
        match fs::hard_link(&unfinished, &path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            Err(error) => return Err(failed("write", &path, error)),
        }
        remove(&unfinished)?;
        let last = self.dir.join(LAST);
        fs::write(&last, address.to_string()).map_err(|e| failed("write", &last, e))?;
        Ok(true)
    }

    /// Removes what `owner` has.
    ///
    /// # Errors
    /// [`CniError::Io`].
    pub fn release(&self, owner: &Owner) -> Result<(), CniError> {
        match self.find(owner)? {
            Some(address) => remove(&self.reservation(address))?,
            None => {
                for (address, found) in self.list()? {
                    if found.as_ref() == Some(owner) {
                        remove(&self.reservation(address))?;
                    }
                }
            }
        }
        remove(&self.hint(owner))
    }

    /// Keeps only the reservations of owners in `valid`; returns the others' addresses.
    ///
    /// # Errors
    /// [`CniError::Io`].
    pub fn retain(&self, valid: &HashSet<Owner>) -> Result<Vec<Ipv4Addr>, CniError> {
        let mut freed = Vec::new();
        for (address, owner) in self.list()? {
            // A reservation without an owner is what a crash of the machine left of one.
            if owner.as_ref().is_some_and(|owner| valid.contains(owner)) {
                continue;
            }
            remove(&self.reservation(address))?;
            freed.push(address);
        }
        let hints: HashSet<String> = valid.iter().map(Owner::hash).collect();
        let dir = self.dir.join("owners");
        for entry in fs::read_dir(&dir).map_err(|e| failed("list", &dir, e))? {
            let entry = entry.map_err(|e| failed("list", &dir, e))?;
            if !entry
                .file_name()
                .to_str()
                .is_some_and(|name| hints.contains(name))
            {
                remove(&entry.path())?;
            }
        }
        freed.sort();
        Ok(freed)
    }

    /// All reservations.
    ///
    /// # Errors
    /// [`CniError::Io`].
    pub fn list(&self) -> Result<Vec<(Ipv4Addr, Option<Owner>)>, CniError> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(|e| failed("list", &self.dir, e))? {
            let entry = entry.map_err(|e| failed("list", &self.dir, e))?;
            let Some(address) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            all.push((address, self.owner(address)?));
        }
        Ok(all)
    }

    /// The address given out last.
    ///
    /// # Errors
    /// [`CniError::Io`].
    pub fn last(&self) -> Result<Option<Ipv4Addr>, CniError> {
        Ok(self
            .read(&self.dir.join(LAST))?
            .and_then(|text| text.trim().parse().ok()))
    }

    /// Who has `address`, as far as that was written.
    ///
    /// # Errors
    /// [`CniError::Io`].
    pub fn owner(&self, address: Ipv4Addr) -> Result<Option<Owner>, CniError> {
        Ok(self
            .read(&self.reservation(address))?
            .as_deref()
            .and_then(Owner::parse))
    }

    fn reservation(&self, address: Ipv4Addr) -> PathBuf {
        self.dir.join(address.to_string())
    }

    fn hint(&self, owner: &Owner) -> PathBuf {
        self.dir.join("owners").join(owner.hash())
    }

    fn read(&self, path: &Path) -> Result<Option<String>, CniError> {
        match fs::read(path) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", path, error)),
        }
    }
}

fn remove(path: &Path) -> Result<(), CniError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path, error)),
        _ => Ok(()),
    }
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> CniError {
    CniError::Io {
        operation,
        path: path.to_owned(),
        source,
    }
}
